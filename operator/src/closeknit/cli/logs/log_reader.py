"""Reads logs of a job's Pods, and where it follows them goes on with the Pods that come after them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass

from closeknit.api.names import TRAINER_CONTAINER
from closeknit.api.text.printable import printable
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.jobs.found_jobs import asked_job
from closeknit.cli.live.way import PODS, TRAINING_JOBS
from closeknit.cli.logs.log_lines import LogLines, stamped
from closeknit.cli.logs.log_sources import LogSource, LogSources, places
from closeknit.kube.errors import Invalid, NotFound, Transient
from closeknit.kube.http.http_api import HttpApi

EVERY_S = 1.0
MOST_PODS = 64  # each takes a connection of the API server and of a kubelet


Put = Callable[[bytes], Awaitable[None]]
"""Takes one line, with its line break. Nothing more is read before it has."""
Say = Callable[[str], None]
"""Takes a word about the reading itself."""


@dataclass(frozen=True, slots=True)
class LogsArguments:
    """Which lines of which ranks."""

    job: str
    ranks: tuple[int, ...]
    everyone: bool
    follow: bool
    tail: int | None
    """The last lines of each Pod alone."""
    reach: Reach


async def read_logs(api: HttpApi, asked: LogsArguments, put: Put, say: Say) -> None:
    """Puts every line that was asked for. Raises NotThere."""
    job = (await asked_job(api, asked.job, asked.reach)).job
    reader = _Reader(api, asked, put, say)
    found = await reader.places(job.key.namespace)
    chosen = found.chosen(asked.ranks, everyone=asked.everyone)
    if len(chosen) > MOST_PODS:
        raise NotThere(f"{found.job} has {len(chosen)} Pods, more than {MOST_PODS}: name ranks by --rank")
    if not asked.follow:
        await reader.put_all(found, chosen)
        return
    while not chosen:
        reader.tell(found)
        if found.is_over:
            return
        await asyncio.sleep(EVERY_S)
        found = await reader.places(job.key.namespace)
        chosen = found.chosen(asked.ranks, everyone=asked.everyone)
    is_alone = len(chosen) == 1
    await asyncio.gather(*(reader.follow(job.key.namespace, place, is_alone=is_alone) for place in chosen))


class _Reader:
    """Reads logs of one job."""

    def __init__(self, api: HttpApi, asked: LogsArguments, put: Put, say: Say) -> None:
        self._api = api
        self._asked = asked
        self._put = put
        self._say = say
        self._told = ""

    async def places(self, namespace: str) -> LogSources:
        """Where the job is now."""
        return places(await self._api.get(TRAINING_JOBS, self._asked.job, namespace=namespace))

    def tell(self, found: LogSources) -> None:
        """What is waited for, once."""
        words = f"{found.job} has no Pod yet: it is {found.state}{f' ({found.why})' if found.why else ''}"
        if words != self._told:
            self._told = words
            self._say(words)

    async def put_all(self, found: LogSources, chosen: tuple[LogSource, ...]) -> None:
        """What the Pods have printed so far, one after the other. Raises NotThere where none has."""
        if not chosen:
            why = f" ({found.why})" if found.why else ""
            raise NotThere(f"{found.job} has no Pod yet: it is {found.state}{why}; --follow waits for it")
        missing = []
        for place in chosen:
            prefix = b"" if len(chosen) == 1 else _prefix(place)
            try:
                async for line in self._lines(found.job.namespace, place, {}):
                    await self._put(prefix + line)
            except NotFound:
                missing.append(f"{place.pod} is gone")
            except Invalid as error:
                missing.append(str(error))
        if missing and len(missing) == len(chosen):
            raise NotThere(printable(f"there is nothing of {found.job} to read: {missing[0]}"))
        for words in missing:
            self._say(words)

    async def follow(self, namespace: str, place: LogSource, *, is_alone: bool) -> None:
        """What the Pod of this place prints, and those that come after it, until the job is over."""
        last = b""
        pod = ""
        while True:
            found = await self._asked_again(namespace)
            now = next((each for each in found.all if each.node_rank == place.node_rank), None)
            if now is not None:
                if now.pod != pod:
                    pod, last = now.pod, b""
                prefix = b"" if is_alone else _prefix(now)
                with suppress(
                    NotFound, Invalid, Transient
                ):  # it is not there yet, or has not begun, or the way is lost
                    last = await self._followed(namespace, now, prefix, last)
            found = await self._asked_again(namespace)
            if found.is_over:
                return
            await asyncio.sleep(EVERY_S)

    async def _asked_again(self, namespace: str) -> LogSources:
        while True:
            try:
                return await self.places(namespace)
            except Transient:
                await asyncio.sleep(EVERY_S)

    async def _followed(self, namespace: str, place: LogSource, prefix: bytes, last: bytes) -> bytes:
        """The time of the last line. Lines up to `last` were printed before."""
        since = {"sinceTime": last[:19].decode() + "Z"} if last else {}
        query = {"follow": "true", "timestamps": "true", **since}
        try:
            async for line in self._lines(namespace, place, query, is_again=bool(last)):
                time, words = stamped(line)
                if not time or time > last:
                    last = time or last
                    await self._put(prefix + words)
        except Transient:
            self._say(f"the log of {place.pod} was cut off; asking again")
        return last

    async def _lines(
        self, namespace: str, place: LogSource, query: Mapping[str, str], *, is_again: bool = False
    ) -> AsyncIterator[bytes]:
        tail = {} if self._asked.tail is None or is_again else {"tailLines": self._asked.tail}
        path = PODS.path(namespace, place.pod, "log")
        lines = LogLines()
        async with aclosing(self._api.pieces(path, {"container": TRAINER_CONTAINER, **tail, **query})) as pieces:
            async for piece in pieces:
                for line in lines.of(piece):
                    yield line
        for line in lines.rest():
            yield line


def _prefix(place: LogSource) -> bytes:
    return f"[{place.ranks}] ".encode()
