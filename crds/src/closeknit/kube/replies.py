"""What an API server sends over HTTP: objects, pages of lists, and the lines of a watch."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, TypeVar

import aiohttp
import msgspec

from closeknit.kube.api import JsonObject, ListPage, WatchEvent
from closeknit.kube.errors import ApiError, Unavailable, error_from_status

_T = TypeVar("_T")


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 -- the wire's spelling
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None  # Go writes an empty slice as null here and there


class _WatchLine(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_list = msgspec.json.Decoder(_List).decode
_decode_watch_line = msgspec.json.Decoder(_WatchLine).decode


def object_of(answer: bytes) -> JsonObject:
    """The one object of an answer. Raises Unavailable for what is none."""
    return _decoded(_decode_object, answer)


def page_of(answer: bytes) -> ListPage:
    """The page of a list. Raises Unavailable for what is none."""
    page = _decoded(_decode_list, answer)
    items = [bytes(item) for item in page.items or ()]
    return ListPage(items, page.metadata.resourceVersion, page.metadata.continue_ or None)


async def line_batches(stream: aiohttp.StreamReader) -> AsyncGenerator[list[bytes], None]:
    """The complete lines of each read, so that what came together stays together.

    Not `readline`: aiohttp bounds it by its buffer, and one object may have 1.5 MiB.
    """
    begun: list[bytes] = []  # the line that is not complete yet
    async for chunk in stream.iter_any():
        *complete, rest = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join([*begun, complete[0]])
            begun = []
        if rest:
            begun.append(rest)
        if lines := [line for line in complete if line]:
            yield lines
    if begun:
        raise Unavailable("the watch was cut off inside an event")


def events_of(lines: Sequence[bytes]) -> tuple[Sequence[WatchEvent], ApiError | None]:
    """The events of these lines up to the first error, an ERROR event or a line that is no event; and that error."""
    events: list[WatchEvent] = []
    for line in lines:
        try:
            parsed = _decoded(_decode_watch_line, line)
        except Unavailable as error:
            return events, error
        if parsed.type == "ERROR":
            return events, error_from_status(0, bytes(parsed.object))
        events.append(WatchEvent(parsed.type, bytes(parsed.object)))
    return events, None


def _decoded(decode: Callable[[bytes], _T], answer: bytes) -> _T:
    try:
        return decode(answer)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the answer is not what an API server sends: {error}") from error
