"""How the reflector bears errors, ends and silence: what it asks again, and when. In memory, on a virtual clock."""

import asyncio
from itertools import pairwise

import pytest

from closeknit.kube.errors import Forbidden, TooManyRequests
from faults.fault import Delay, EndStream, Fault, HoldEvents, Refuse, Verb
from faults.kinds import CONFIG_MAPS
from faults.observed import UNAVAILABLE, Observed, label, observe


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


def test_the_server_says_how_long_to_wait() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(7.9)
        assert seen.asked() == ["list"]
        await asyncio.sleep(0.4)
        assert seen.reflector.synced.is_set()

    observe(story, Fault(Refuse(TooManyRequests("slow", code=429, retry_after_s=8)), "list", nth=1))


def test_a_slow_list_does_not_stop_the_loop() -> None:
    async def story(seen: Observed) -> None:
        await asyncio.sleep(9)
        assert not seen.reflector.synced.is_set()
        await asyncio.sleep(2)
        assert seen.reflector.synced.is_set()

    observe(story, Fault(Delay(10), "list"))
