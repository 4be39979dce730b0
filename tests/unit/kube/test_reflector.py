"""What the reflector follows: lists, watches, ghosts, quarantine. In memory, on a virtual clock."""

import asyncio
from typing import Any

import pytest

from closeknit.kube.api import Key, Resource
from closeknit.kube.errors import Gone
from faults import virtual_time
from faults.fault import Delay, EndStream, Fault, HoldEvents, Refuse
from faults.kinds import NODES
from faults.memory_api import MemoryApi
from faults.observed import UNAVAILABLE, Observed, label, node, observe
from faults.store import Store


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
        [("ADDED", "c"), ("DELETED", "a")],
    ]
    assert seen.asked() == ["list", "watch"]


def test_of_what_an_object_passes_through_at_once_the_last_state_alone_is_decoded() -> None:
    async def story(seen: Observed) -> None:
        await seen.settle()
        seen.decoded.clear()
        seen.store.create(NODES, node("c", broken="1"))
        label(seen.store, "a", x="1")
        label(seen.store, "c", x="2")
        label(seen.store, "c", x="3")
        seen.store.delete(NODES, Key("", "b"))
        seen.store.create(NODES, node("b", new="1"))
        await seen.settle()
        assert seen.decoded == [{"x": "1"}, {"x": "3"}, {"new": "1"}]
        assert seen.reflector.last_rv == str(seen.store.rv)

    seen = observe(story)
    told = [("MODIFIED", "a"), ("ADDED", "c"), ("DELETED", "b"), ("ADDED", "b")]
    assert (seen.batches[1:], seen.quarantined) == ([told], [])


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
        assert seen.reflector.quarantined[Key("", "c")] == "broken: from the start"
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


def test_read_again_shows_what_was_written_before_though_the_stream_holds_it_back() -> None:
    """A watch may lag: the list that is asked for does not wait for it, and the next watch goes on from there."""

    async def story(seen: Observed) -> None:
        await seen.settle()
        seen.store.create(NODES, node("c", x="1"))
        began = asyncio.get_running_loop().time()
        await seen.reflector.read_again()
        assert asyncio.get_running_loop().time() - began < 1
        assert Key("", "c") in seen.reflector.objects
        await asyncio.sleep(600)
        label(seen.store, "c", x="2")
        await asyncio.sleep(600)
        assert seen.reflector.objects[Key("", "c")] == {"x": "2"}

    observe(story, Fault(HoldEvents(300.0), "watch", nth=1))


def test_a_list_that_had_begun_before_does_not_count_for_read_again() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(0.5)  # the first list is on its way, and has read nothing yet
        await asyncio.gather(seen.reflector.read_again(), seen.reflector.read_again())
        assert seen.asked().count("list") >= 2

    observe(story, Fault(Delay(1.0), "list", nth=1))


def test_read_again_outlasts_lists_that_fail() -> None:
    async def story(seen: Observed) -> None:
        await seen.settle()
        seen.store.create(NODES, node("c", x="1"))
        await seen.reflector.read_again()
        assert Key("", "c") in seen.reflector.objects

    observe(story, *(Fault(UNAVAILABLE, "list", nth=number) for number in (2, 3)), Fault(HoldEvents(300.0), "watch"))
