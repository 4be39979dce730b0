"""What one odd object costs: itself. Pages, streams and answers go on."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
import pytest

from closeknit.api.text.nesting import MAX_DEPTH, is_deeper
from closeknit.kube.api import Key, ListPage, WatchEvent
from closeknit.kube.errors import ApiError, Gone, Unavailable, error_from_status
from closeknit.kube.http.replies import events_of, object_of, page_of
from closeknit.kube.object_identity import Head, NoHead, head_of
from closeknit.kube.reflector import NAMELESS
from faults import virtual_time
from faults.kinds import NODES
from faults.memory_api import MemoryApi
from faults.observed import Observed, node, observe
from faults.store import Store

DEEP = b"[" * 1200 + b"]" * 1200


def document(name: str = "odd", rv: str = "7", **fields: bytes) -> bytes:
    inside = b"".join(b', "%s": %s' % (field.encode(), value) for field, value in fields.items())
    return b'{"metadata": {"name": "%s", "uid": "u", "resourceVersion": "%s"}%s}' % (name.encode(), rv.encode(), inside)


def page(*items: bytes) -> ListPage:
    return page_of(b'{"metadata": {"resourceVersion": "9"}, "items": [%s]}' % b", ".join(items))


ODD = [
    pytest.param(DEEP, id="1,200 lists"),
    pytest.param(b'{"a":' * 1200 + b"1" + b"}" * 1200, id="1,200 objects"),
    pytest.param(b"9" * 5000, id="a number of 5,000 digits"),
    pytest.param(b"NaN", id="NaN"),
    pytest.param(b"-Infinity", id="minus infinity"),
    pytest.param(b'"\xff\xfe"', id="no UTF-8"),
    pytest.param(b'{"\xff": 1}', id="a key that is no UTF-8"),
    pytest.param(b'"\\ud800 "', id="half a surrogate"),
    pytest.param(b'{"a": 1, "a": 2}', id="a key twice"),
    pytest.param(b"[1,]", id="a comma too many"),
    pytest.param(b"", id="nothing"),
]


@pytest.mark.parametrize("value", ODD)
def test_an_odd_object_costs_neither_its_page_nor_its_stream_and_has_a_name(value: bytes) -> None:
    odd = document(spec=value)
    both = (odd, document("good"))
    read = page(*both)
    assert (read.resource_version, len(read.items)) == ("9", 2)
    assert [head_of(item).name for item in read.items] == ["odd", "good"]
    lines = [b'{"type": "MODIFIED", "object": %s}' % each for each in both]
    events, error = events_of(lines)
    assert error is None
    assert [(event.kind, head_of(event.document)) for event in events] == [
        ("MODIFIED", Head("odd", "", "u", "7")),
        ("MODIFIED", Head("good", "", "u", "7")),
    ]


def test_what_is_too_deep_is_emptied_and_still_tells_so() -> None:
    odd = document(spec=DEEP)
    (event,), _ = events_of([b'{"type": "ADDED", "object": %s}' % odd])
    for each in (page(odd).items[0], event.document, msgspec.json.encode(object_of(odd))):
        assert is_deeper(each)
        assert not is_deeper(each, MAX_DEPTH + 1)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"<html>", id="no JSON"),
        pytest.param(b"[]", id="a list"),
        pytest.param(DEEP, id="1,200 lists"),
        pytest.param(b'{"metadata": {"resourceVersion": "9"}, "items": [{}', id="cut off"),
        pytest.param(b'{"metadata": {"resourceVersion": "9"}, "items": {}}', id="items are no list"),
        pytest.param(b'{"metadata": {"resourceVersion": "9"}, "items": [NaN}', id="brackets that do not match"),
        pytest.param(b'{"metadata": {"resourceVersion": 9}, "items": []}', id="a version that is a number"),
        pytest.param(b'{"metadata": {"resourceVersion": "x"}, "items": []}', id="a version that is none"),
        pytest.param(b'{"metadata": {}, "items": []}', id="no version"),
        pytest.param(b'{"items": []}', id="no metadata"),
        pytest.param(b'{"metadata": {"resourceVersion": "%s"}, "items": []}' % (b"9" * 5000), id="5,000 digits"),
    ],
)
def test_what_is_no_page_is_no_answer(answer: bytes) -> None:
    with pytest.raises(Unavailable, match=r"^the answer is not what an API server sends: "):
        page_of(answer)


@pytest.mark.parametrize(
    "line",
    [b"<html>", b"[]", b"{}", DEEP, b'{"type": "SYNC", "object": {}}', b'{"type": 1, "object": {}}', b'{"type": "ADD'],
)
def test_a_line_that_is_no_event_is_told_as_such(line: bytes) -> None:
    assert events_of([line, line]) == ([WatchEvent("UNREADABLE", line)] * 2, None)


@pytest.mark.parametrize(
    "body", [DEEP, b"\xff", b'{"code": "x"}', b'{"message": "\xff"}', b'{"code": %s}' % (b"9" * 99)]
)
def test_an_error_in_any_form_is_an_error(body: bytes) -> None:
    assert isinstance(error_from_status(500, body), ApiError)
    events, error = events_of([b'{"type": "ERROR", "object": %s}' % body])
    assert error is not None or [event.kind for event in events] == ["UNREADABLE"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"{}", id="no metadata"),
        pytest.param(b'{"metadata": []}', id="metadata is a list"),
        pytest.param(b'{"metadata": {"name": 1}}', id="a name that is a number"),
        pytest.param(b'{"metadata": {"name": "\xff"}}', id="a name that is no UTF-8"),
        pytest.param(b'{"metadata": {"name": "a", "resourceVersion": "x"}}', id="a version that is none"),
        pytest.param(b'{"metadata": {"name": "a", "resourceVersion": "%s"}}' % (b"9" * 5000), id="5,000 digits"),
        pytest.param(DEEP, id="1,200 lists"),
        pytest.param(b"null", id="null"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_who_has_no_head_is_said_to_have_none(text: bytes) -> None:
    with pytest.raises(NoHead):
        head_of(text)


class Odd(MemoryApi):
    """Shows documents that no store would hold: in every list, and at the begin of every watch."""

    def __init__(self, store: Store, listed: Sequence[bytes] = (), watched: Sequence[WatchEvent] = ()) -> None:
        super().__init__(store)
        self.listed, self.watched = list(listed), list(watched)

    async def list(self, *arguments: Any, **options: Any) -> ListPage:
        page = await super().list(*arguments, **options)
        return ListPage([*self.listed, *page.items], page.resource_version, page.continue_token)

    async def watch(self, *arguments: Any, **options: Any) -> AsyncGenerator[Sequence[WatchEvent], None]:
        is_first = True
        async for batch in super().watch(*arguments, **options):
            yield batch
            if is_first and self.watched:
                yield self.watched
            is_first = False


def shown(api: Odd, seconds: float = 5.0) -> Observed:
    async def main() -> Observed:
        seen = Observed(api)
        running = asyncio.create_task(seen.reflector.run())
        await asyncio.sleep(seconds)
        assert not running.done()
        running.cancel()
        return seen

    return virtual_time.run(main())


def store(*names: str) -> Store:
    made = Store()
    for name in names:
        made.create(NODES, node(name))
    return made


def test_objects_without_a_head_cost_themselves_and_are_reported_as_one() -> None:
    nameless = [b"{}", b"\xff", DEEP, b'{"metadata": {"name": ""}}']
    seen = shown(Odd(store("a"), nameless[:1] * 3))
    assert seen.told == [("ADDED", "a")]
    assert seen.quarantined == [("", "it has no metadata")]
    seen = shown(Odd(store("a"), nameless))
    assert seen.told == [("ADDED", "a")]
    assert dict(seen.reflector.quarantined).keys() == {NAMELESS}


@pytest.mark.parametrize("event", [WatchEvent("UNREADABLE", b"<html>"), WatchEvent("MODIFIED", b"{}")])
def test_after_an_event_of_nobody_knows_whom_the_watch_goes_on_and_a_list_follows_it(event: WatchEvent) -> None:
    api = Odd(store("a"), watched=[event])

    async def main() -> Observed:
        seen = Observed(api)
        running = asyncio.create_task(seen.reflector.run())
        await seen.settle()
        api.store.create(NODES, node("b"))
        await seen.settle()
        assert seen.told[-1] == ("ADDED", "b")
        assert seen.asked() == ["list", "watch"]
        api.watched = []
        api.end_streams()
        await seen.settle()
        assert not seen.reflector.quarantined
        running.cancel()
        return seen

    seen = virtual_time.run(main())
    assert seen.asked() == ["list", "watch", "list", "watch"]
    assert [key for key, _ in seen.quarantined] == [""]


def test_a_server_that_sends_nothing_but_odd_lines_is_asked_ever_less_often() -> None:
    class Gibberish(Odd):
        async def watch(self, *arguments: Any, **options: Any) -> AsyncGenerator[Sequence[WatchEvent], None]:
            async for batch in MemoryApi.watch(self, *arguments, **options):
                yield batch
                yield [WatchEvent("UNREADABLE", b"<html>")]
                return

    assert len(shown(Gibberish(store("a")), 180).asked("watch")) == 14  # as every watch that ends at once


def test_a_reason_holds_no_document() -> None:
    async def story(seen: Observed) -> None:
        seen.store.create(NODES, node("c", broken="x" * 10_000 + "\n" + "y"))
        await seen.settle()
        reason = seen.reflector.quarantined[Key("", "c")]
        assert len(reason) == 500
        assert reason.isprintable()

    observe(story)


def test_gone_is_gone_also_beside_odd_lines() -> None:
    gone = b'{"type": "ERROR", "object": {"code": 410, "message": "old"}}'
    events, error = events_of([b"<html>", gone, b"<html>"])
    assert ([event.kind for event in events], type(error)) == (["UNREADABLE"], Gone)
