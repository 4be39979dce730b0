"""The reflector against the in-memory API server and its faults, on a virtual clock."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from closeknit.kube.api import JsonObject, Key, Resource
from closeknit.kube.errors import Forbidden, Gone, TooManyRequests, Unavailable
from closeknit.kube.reflector import Event, Reflector, pause_s
from faults import virtual_time
from faults.fault import Delay, EndStream, Fault, HoldEvents, Refuse, Verb
from faults.kinds import CONFIG_MAPS, NODES
from faults.memory_api import MemoryApi
from faults.store import Store

UNAVAILABLE = Refuse(Unavailable("down", code=503))


def node(name: str, **labels: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def label(store: Store, name: str, **labels: str) -> None:
    store.json_patch(NODES, Key("", name), [{"op": "add", "path": "/metadata/labels", "value": labels}])


def decode(document: bytes) -> Mapping[str, str] | None:
    """A Node's labels; None for those that say so, an error for those that are broken."""
    labels: Mapping[str, str] = msgspec.json.decode(document)["metadata"]["labels"]
    if "broken" in labels:
        raise ValueError(f"broken: {labels['broken']}")
    return None if "drop" in labels else labels


class Observed:
    """A reflector of Nodes, what it told, and a picture of the Nodes put together from that alone."""

    def __init__(self, api: MemoryApi, jitter: float = 1.0) -> None:
        self.api = api
        self.store = api.store
        self.batches: list[list[tuple[str, str]]] = []
        self.picture: dict[Key, Mapping[str, str] | None] = {}
        self.quarantined: list[tuple[str, str]] = []
        self.reflector = Reflector(
            api,
            NODES,
            decode,
            self.take,
            on_quarantine=lambda key, error: self.quarantined.append((str(key), str(error))),
            jitter=lambda: jitter,
        )

    def take(self, events: Sequence[Event[Mapping[str, str]]]) -> None:
        self.batches.append([(event.kind, str(event.key)) for event in events])
        for event in events:
            assert self.picture.get(event.key) == event.old
            assert (event.kind == "ADDED") == (event.old is None)
            assert (event.kind == "DELETED") == (event.new is None)
            if event.new is None:
                del self.picture[event.key]
            else:
                self.picture[event.key] = event.new
        assert self.picture == self.reflector.objects

    @property
    def told(self) -> list[tuple[str, str]]:
        return [event for batch in self.batches for event in batch]

    def asked(self, *verbs: str) -> list[str]:
        return [call.verb for call in self.api.calls if not verbs or call.verb in verbs]

    async def settle(self) -> None:
        """Lets everything happen that needs no time."""
        await asyncio.sleep(0.001)


def observe(
    story: Callable[[Observed], Awaitable[None]],
    *faults: Fault,
    nodes: Sequence[str] = ("a", "b"),
    history: int = 1000,
    jitter: float = 1.0,
) -> Observed:
    """Runs a story beside a reflector that starts when the story first waits."""

    async def main() -> Observed:
        store = Store(history=history)
        for name in nodes:
            store.create(NODES, node(name))
        observed = Observed(MemoryApi(store, faults), jitter)
        running = asyncio.create_task(observed.reflector.run())
        await story(observed)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert not store.listeners, "a stream was left open"
        return observed

    return virtual_time.run(main())


def test_it_lists_then_follows_the_watch() -> None:
    async def story(seen: Observed) -> None:
        assert not seen.reflector.synced.is_set()
        assert (seen.reflector.last_rv, seen.reflector.last_activity_s) == ("", float("inf"))
        await seen.reflector.synced.wait()
        assert seen.reflector.objects == {Key("", "a"): {}, Key("", "b"): {}}
        await seen.settle()
        seen.store.create(NODES, node("c", x="1"))
        label(seen.store, "c", x="2")
        seen.store.delete(NODES, Key("", "a"))
        await seen.settle()
        assert seen.reflector.objects == {Key("", "b"): {}, Key("", "c"): {"x": "2"}}
        assert seen.reflector.last_rv == str(seen.store.rv)

    seen = observe(story)
    assert seen.batches == [
        [("ADDED", "a"), ("ADDED", "b")],
        [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "a")],
    ]
    assert seen.asked() == ["list", "watch"]


def test_a_long_list_is_told_page_by_page_and_synced_is_set_after_the_last() -> None:
    async def story(seen: Observed) -> None:
        await seen.reflector.synced.wait()

    seen = observe(story, nodes=[f"n{index:04}" for index in range(1001)])
    assert [len(batch) for batch in seen.batches] == [500, 500, 1]
    assert seen.asked("list") == ["list"] * 3


def test_a_watch_that_ends_is_resumed_at_once_without_a_list() -> None:
    async def story(seen: Observed) -> None:
        for name in ("c", "d", "e"):
            await asyncio.sleep(5)
            seen.api.end_streams()
            seen.store.create(NODES, node(name))  # in the gap
            await seen.settle()
            assert seen.told[-1] == ("ADDED", name)

    seen = observe(story)
    assert seen.asked() == ["list", "watch", "watch", "watch", "watch"]
    assert (seen.reflector.relists_total, seen.reflector.watch_errors_total) == (0, 0)


def test_an_object_deleted_in_a_gap_that_history_no_longer_covers_is_no_ghost() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(5)
        seen.api.end_streams()
        seen.store.delete(NODES, Key("", "a"))
        label(seen.store, "b", x="1")
        seen.store.create(NODES, node("c"))
        seen.store.compact()
        await seen.settle()

    seen = observe(story)
    assert seen.batches[1:] == [[("MODIFIED", "b"), ("ADDED", "c")], [("DELETED", "a")]]
    assert seen.asked() == ["list", "watch", "watch", "list", "watch"]
    counted = seen.reflector
    assert (counted.relists_total, counted.ghosts_removed_total, counted.watch_errors_total) == (1, 1, 1)
    assert counted.last_error is None


def test_an_object_made_again_under_its_name_is_deleted_and_added() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(5)
        seen.api.end_streams()
        seen.store.delete(NODES, Key("", "a"))
        seen.store.create(NODES, node("a"))
        seen.store.compact()
        await seen.settle()

    seen = observe(story)
    assert seen.batches[1:] == [[("DELETED", "a"), ("ADDED", "a")]]
    assert seen.reflector.ghosts_removed_total == 0


def test_a_list_that_expires_between_pages_is_begun_again() -> None:
    expired = Fault(Refuse(Gone("expired", code=410)), "list", nth=2)

    async def story(seen: Observed) -> None:
        await seen.reflector.synced.wait()
        assert len(seen.reflector.objects) == 600

    seen = observe(story, expired, nodes=[f"n{index:04}" for index in range(600)])
    assert seen.asked("list") == ["list"] * 4
    assert [len(batch) for batch in seen.batches] == [500, 100], "what the first attempt told is not told again"


def test_a_change_that_leaves_what_is_kept_equal_is_not_told() -> None:
    async def story(seen: Observed) -> None:
        await seen.settle()
        patch = [{"op": "add", "path": "/metadata/annotations", "value": {"heartbeat": "1"}}]
        seen.store.json_patch(NODES, Key("", "a"), patch)
        await seen.settle()
        assert seen.reflector.last_rv == str(seen.store.rv)

    assert observe(story).batches == [[("ADDED", "a"), ("ADDED", "b")]]


def test_an_object_of_no_interest_any_more_is_deleted_and_of_interest_again_added() -> None:
    async def story(seen: Observed) -> None:
        await seen.settle()
        for labels in ({"drop": "1"}, {"drop": "2"}, {"x": "1"}, {"drop": "3"}):
            label(seen.store, "a", **labels)
            await seen.settle()
        seen.store.delete(NODES, Key("", "a"))
        await seen.settle()

    assert observe(story).batches[1:] == [[("DELETED", "a")], [("ADDED", "a")], [("DELETED", "a")]]


def test_an_object_that_cannot_be_decoded_is_absent_and_reported_once_per_reason() -> None:
    async def story(seen: Observed) -> None:
        seen.store.create(NODES, node("c", broken="from the start"))
        await seen.settle()
        assert str(seen.reflector.quarantined[Key("", "c")]) == "broken: from the start"
        for labels in ({"broken": "1"}, {"broken": "1", "y": "z"}, {"broken": "2"}):
            label(seen.store, "a", **labels)
            await seen.settle()
        seen.store.delete(NODES, Key("", "c"))
        label(seen.store, "a", x="healed")
        await seen.settle()
        assert not seen.reflector.quarantined

    seen = observe(story)
    assert seen.quarantined == [("c", "broken: from the start"), ("a", "broken: 1"), ("a", "broken: 2")]
    assert seen.batches[1:] == [[("DELETED", "a")], [("ADDED", "a")]]


def test_what_vanished_while_in_quarantine_leaves_it_with_the_next_list() -> None:
    async def story(seen: Observed) -> None:
        seen.store.create(NODES, node("c", broken="1"))
        await asyncio.sleep(5)
        assert seen.reflector.quarantined
        seen.api.end_streams()
        seen.store.delete(NODES, Key("", "c"))
        seen.store.compact()
        await seen.settle()
        assert not seen.reflector.quarantined

    assert observe(story).reflector.ghosts_removed_total == 0


@pytest.mark.parametrize(
    ("fault", "verb", "error"),
    [
        pytest.param(Fault(UNAVAILABLE, "list"), "list", "down", id="lists fail"),
        pytest.param(Fault(UNAVAILABLE, "watch"), "watch", "down", id="watches fail"),
        pytest.param(Fault(Refuse(Forbidden("no", code=403)), "watch"), "watch", "no", id="watching is not allowed"),
    ],
)
def test_errors_are_answered_after_pauses_that_double_to_30_s(fault: Fault, verb: Verb, error: str) -> None:
    times: list[float] = []

    async def story(seen: Observed) -> None:
        loop = asyncio.get_running_loop()
        while len(times) < 11:
            if len(seen.asked(verb)) > len(times):
                times.append(round(loop.time(), 1))
            await asyncio.sleep(0.01)
        assert str(seen.reflector.last_error) == error

    seen = observe(story, fault)
    pauses = [round(later - sooner, 1) for sooner, later in pairwise(times)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert seen.asked("list") == ["list"] * (11 if verb == "list" else 1), "a failing watch is no reason to list again"
    assert seen.reflector.watch_errors_total == 11


@pytest.mark.parametrize(
    ("faults", "lists", "watches"),
    [
        pytest.param([Fault(EndStream(), "watch")], 1, 14, id="every watch ends at once"),
        pytest.param([Fault(Refuse(Gone("old", code=410)), "watch")], 14, 14, id="every watch is Gone at once"),
    ],
)
def test_it_never_spins(faults: list[Fault], lists: int, watches: int) -> None:
    async def story(_: Observed) -> None:
        await asyncio.sleep(180)

    # At once, then 0.2 s doubling to 30 s: the 14th attempt in three minutes comes after 0 + 0.2 + … + 25.6 + 4 x 30 s.
    seen = observe(story, *faults)
    assert (len(seen.asked("list")), len(seen.asked("watch"))) == (lists, watches)


def test_after_a_healthy_stream_pauses_start_small_again() -> None:
    asked: list[int] = []

    async def story(seen: Observed) -> None:
        await asyncio.sleep(20)  # 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 s of pauses are over: the seventh watch is open
        label(seen.store, "a", x="1")
        await seen.settle()
        assert seen.told[-1] == ("MODIFIED", "a")
        assert seen.reflector.last_error is None
        asked.append(len(seen.asked("watch")))
        seen.api.end_streams()
        await asyncio.sleep(0.3)
        asked.append(len(seen.asked("watch")))

    observe(story, *(Fault(UNAVAILABLE, "watch", nth=nth) for nth in (1, 2, 3, 4, 5, 6, 8)))
    assert asked == [7, 9], "the eighth at once, the ninth after 0.2 s"


def test_a_stream_that_brought_something_is_healthy_however_short() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(12.7)  # the seventh watch has just opened, after 12.6 s of pauses
        label(seen.store, "a", x="1")
        await seen.settle()
        assert len(seen.asked("watch")) == 8

    failing = (Fault(UNAVAILABLE, "watch", nth=nth) for nth in range(1, 7))
    observe(story, *failing, Fault(EndStream(after_events=1), "watch", nth=1))


def test_a_silent_watch_is_given_up_after_70_s_and_resumed() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(5)
        label(seen.store, "a", x="1")
        await asyncio.sleep(64)
        assert seen.told[-1] == ("ADDED", "b")
        await asyncio.sleep(1.3)
        assert seen.told[-1] == ("MODIFIED", "a")
        assert seen.reflector.last_activity_s < 2

    seen = observe(story, Fault(HoldEvents(1000), "watch", nth=1))
    assert seen.asked() == ["list", "watch", "watch"]
    assert seen.reflector.watch_errors_total == 0


def test_a_cluster_at_rest_sends_not_even_bookmarks_and_no_error_is_told_of_it() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(1000)
        assert seen.reflector.last_activity_s < 71

    seen = observe(story)
    assert seen.asked() == ["list", *["watch"] * 15]
    assert (seen.reflector.watch_errors_total, seen.reflector.last_error) == (0, None)


def test_a_connection_that_died_in_silence_shows_when_the_watch_is_resumed() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(75)
        assert str(seen.reflector.last_error) == "down"

    observe(story, *(Fault(UNAVAILABLE, "watch", nth=nth) for nth in range(2, 20)))


def test_a_watch_that_nobody_answers_is_an_error() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(75)
        assert str(seen.reflector.last_error) == "the API server did not answer a watch for 70 s"

    observe(story, Fault(Delay(10_000), "watch"))


def test_bookmarks_keep_a_quiet_watch_alive_and_its_version_fresh() -> None:
    async def story(seen: Observed) -> None:
        await seen.settle()
        other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
        seen.store.create(CONFIG_MAPS, other, namespace="ml")
        await asyncio.sleep(200)
        assert seen.reflector.last_rv == str(seen.store.rv)
        assert seen.reflector.last_activity_s < 60

    seen = observe(story)
    assert seen.asked() == ["list", "watch"]


def test_a_list_older_than_what_was_seen_is_not_taken() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(5)
        fresh, seen.store.rv = seen.store.rv, 900  # an API server that lags
        seen.store.compact()
        seen.store._oldest[NODES] = 2000
        seen.api.end_streams()
        await seen.settle()
        assert str(seen.reflector.last_error) == f"the API server lists resourceVersion 900, older than {fresh}"
        assert seen.reflector.last_rv == str(fresh)
        seen.store.rv = fresh
        seen.store.compact()
        await asyncio.sleep(1)
        assert seen.reflector.last_error is None

    assert observe(story).told == [("ADDED", "a"), ("ADDED", "b")]


def test_an_event_older_than_what_was_seen_changes_nothing() -> None:
    class Repeating(MemoryApi):
        """Sends everything from the beginning of its history, whatever version is asked for."""

        def watch(self, resource: Resource, **options: Any) -> Any:
            return super().watch(resource, **options | {"resource_version": "1000"})

    async def main() -> Observed:
        store = Store()
        store.create(NODES, node("a"))
        store.delete(NODES, Key("", "a"))
        store.create(NODES, node("a", x="2"))
        seen = Observed(Repeating(store))
        running = asyncio.create_task(seen.reflector.run())
        await seen.settle()
        running.cancel()
        return seen

    assert virtual_time.run(main()).batches == [[("ADDED", "a")]]


def test_the_server_says_how_long_to_wait() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(7.9)
        assert seen.asked() == ["list"]
        await asyncio.sleep(0.2)
        assert seen.reflector.synced.is_set()

    observe(story, Fault(Refuse(TooManyRequests("slow", code=429, retry_after_s=8)), "list", nth=1))


def test_a_slow_list_does_not_stop_the_loop() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(9)
        assert not seen.reflector.synced.is_set()
        await asyncio.sleep(2)
        assert seen.reflector.synced.is_set()

    observe(story, Fault(Delay(10), "list"))


@pytest.mark.parametrize(
    ("failures", "jitter", "expected"),
    [(1, 1.0, 0.2), (1, 0.25, 0.05), (2, 1.0, 0.4), (8, 1.0, 25.6), (9, 1.0, 30.0), (9, 0.0, 0.0), (10_000, 1.0, 30.0)],
)
def test_a_pause_is_a_random_share_of_a_doubling_time(failures: int, jitter: float, expected: float) -> None:
    assert pause_s(failures, jitter) == pytest.approx(expected)
