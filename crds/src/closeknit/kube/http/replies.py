"""What an API server sends over HTTP: objects, pages of lists, and the lines of a watch.

Objects are others' work. No decoder sees one before its depth is known, but for msgspec's where it only skips it and
minds its own depth; what is nested too deeply in it is emptied. One that is no JSON costs neither its page nor its
stream.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from closeknit.api.text.nesting import MAX_DEPTH, is_surely_shallow, shallow
from closeknit.kube.api import JsonObject, ListPage, WatchEvent
from closeknit.kube.errors import ApiError, Unavailable, error_from_status
from closeknit.kube.json_pieces import elements, members
from closeknit.kube.object_identity import UNREADABLE, Head, NoHead, head_of, is_version

_T = TypeVar("_T")


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 -- the wire's spelling
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None  # Go writes an empty slice as null here and there


class _Row(msgspec.Struct):
    cells: list[str | int | float | bool | None] = []


class _Table(msgspec.Struct):
    rows: list[_Row] | None = None


_EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class _WatchLine(msgspec.Struct):
    type: _EventType
    object: msgspec.Raw


# Levels around an object: a list is an object with a field of items, an event one with an object inside. What is
# emptied there still counts as too deep for the object that it stands in.
_AROUND_ITEM, _AROUND_EVENT = 2, 1


_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_table = msgspec.json.Decoder(_Table).decode
_decode_list = msgspec.json.Decoder(_List).decode
_decode_list_meta = msgspec.json.Decoder(_ListMeta).decode
_decode_watch_line = msgspec.json.Decoder(_WatchLine).decode
_decode_type = msgspec.json.Decoder(_EventType).decode


def object_of(answer: bytes) -> JsonObject:
    """The one object of an answer. Raises Unavailable for what is none."""
    return _decoded(_decode_object, shallow(answer))


def names_of(answer: bytes) -> list[str]:
    """The first cell of each row of a table, which is the name. Raises Unavailable for what is no table."""
    return [str(row.cells[0]) for row in _decoded(_decode_table, answer).rows or () if row.cells]


def made_of(answer: bytes) -> Head:
    """The head of the one object of an answer. Raises Unavailable for what is none."""
    try:
        return head_of(answer)
    except NoHead as error:
        raise Unavailable(f"the answer is not what an API server sends: {error}") from error


def page_of(answer: bytes) -> ListPage:
    """The page of a list. Raises Unavailable for what is none."""
    answer = shallow(answer, MAX_DEPTH + _AROUND_ITEM)
    try:
        page = _decode_list(answer)
        meta, items = page.metadata, [bytes(item) for item in page.items or ()]
    except UNREADABLE:
        meta, items = _decoded(_pieces_of_page, answer)
    if not meta.resourceVersion or not is_version(meta.resourceVersion):
        raise Unavailable(f"the answer is not what an API server sends: resourceVersion {meta.resourceVersion[:40]!r}")
    return ListPage(items, meta.resourceVersion, meta.continue_ or None)


def events_of(lines: Sequence[bytes]) -> tuple[Sequence[WatchEvent], ApiError | None]:
    """The events of these lines up to the first ERROR event, and its error."""
    events: list[WatchEvent] = []
    for line in lines:
        try:
            kind, document = _event(line)
        except UNREADABLE:
            events.append(WatchEvent("UNREADABLE", line))
            continue
        if kind == "ERROR":
            return events, error_from_status(0, document)
        events.append(WatchEvent(kind, document))
    return events, None


def _event(line: bytes) -> tuple[_EventType, bytes]:
    """What one line says. Raises one of UNREADABLE."""
    levels = MAX_DEPTH + _AROUND_EVENT
    try:
        parsed = _decode_watch_line(line)  # skips the object, and gives up before that is too deep for it
        if is_surely_shallow(line, levels):
            return parsed.type, bytes(parsed.object)
    except UNREADABLE:
        pass
    text = shallow(line, levels)
    try:
        parsed = _decode_watch_line(text)
    except UNREADABLE:
        return _pieces_of_event(text)
    return parsed.type, bytes(parsed.object)


def _pieces_of_page(answer: bytes) -> tuple[_ListMeta, list[bytes]]:
    page = members(answer)
    return _decode_list_meta(page.get(b"metadata", b"")), elements(page.get(b"items", b""))


def _pieces_of_event(line: bytes) -> tuple[_EventType, bytes]:
    event = members(line)
    return _decode_type(event.get(b"type", b"")), event.get(b"object", b"")


def _decoded(decode: Callable[[bytes], _T], answer: bytes) -> _T:
    try:
        return decode(answer)
    except UNREADABLE as error:
        raise Unavailable(f"the answer is not what an API server sends: {error}") from error
