"""The lines of a watch as they come over HTTP, read in few pieces."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from closeknit.kube.errors import Unavailable

if TYPE_CHECKING:
    import aiohttp

# Between two reads that bring little: a gang that starts brings a few events every ten milliseconds, and to read,
# decrypt and hand on twenty of them costs little more than one; of the states that a Pod passes through within a moment
# only the last is decoded. What comes after a silence is read at once, and what follows soon: streams must not tell of
# one moment at different times. Only where no silence as long as a rest follows on it the next one is twice as long.
FIRST_REST_S, LONGEST_REST_S = 0.05, 0.1
LITTLE_BYTES = 2**17  # twenty events of Pods; a longer read loses no time


async def line_batches(response: "aiohttp.ClientResponse") -> AsyncGenerator[list[bytes], None]:
    """The complete lines of each read, so that what came together stays together.

    Not `readline`: aiohttp bounds it by its buffer, and one object may have 1.5 MiB.
    """
    begun: list[bytes] = []  # the line that is not complete yet
    now, rest_s, rested_at = asyncio.get_running_loop().time, FIRST_REST_S, float("-inf")
    async for chunk in response.content.iter_any():
        rest_s = FIRST_REST_S if now() - rested_at > rest_s else min(2 * rest_s, LONGEST_REST_S)
        *complete, rest = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join([*begun, complete[0]])
            begun = []
        if rest:
            begun.append(rest)
        if lines := [line for line in complete if line]:
            yield lines
            if len(chunk) < LITTLE_BYTES:
                await _rest(response, rest_s)
                rested_at = now()
    if begun:
        raise Unavailable("the watch was cut off inside an event")


async def _rest(response: "aiohttp.ClientResponse", rest_s: float) -> None:
    """Leaves what comes to the kernel for a moment."""
    connection = response.connection
    transport = connection.transport if connection is not None else None
    if transport is None:
        return
    transport.pause_reading()
    try:
        await asyncio.sleep(rest_s)
    finally:
        transport.resume_reading()
