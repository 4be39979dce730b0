"""An elastic job that a quota leaves a part of its GPUs starts with that part, and grows once the quota leaves more."""

from typing import Any

import pytest

from closeknit.api.reasons import EventReason, PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.writes.quota_demand import QuotaDemand
from closeknit.lifecycle.writes.quota_shortfall import Shortfall, gpus_left
from closeknit.lifecycle.writes.resource_quotas import Quota, ScopeRequirement
from scenarios.stories import placement
from scenarios.story import Story
from unit.scheduling.resizing.test_elastic_jobs import (
    KINDS,
    MINUTE,
    ROOM_LASTS,
    begin,
    elastic,
    ends,
    fixed,
    site,
    size,
)


@pytest.fixture(autouse=True)
def no_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours fails the test, and is not told to the job."""
    monkeypatch.setattr("closeknit.scheduling.schedule.guarded", lambda run, *rest: run(*rest))


def pods(hard: int, used: int = 0) -> list[Quota]:
    """A quota of Pods: a whole node is one Pod here."""
    return [Quota("team", {"pods": str(hard)}, {"pods": str(used)})]


def waits_for_quota(story: Story) -> str:
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.QUOTA_EXCEEDED
    return pending.message


@KINDS
def test_it_starts_with_what_the_quota_leaves(kind: Any) -> None:
    story = site(kind=kind)
    story.quotas = pods(3)
    story.add(elastic())
    story.settle()
    assert waits_for_quota(story).endswith(
        "quota team: pods: asked 4, hard 3, used 0, left 3; free some of it, ask for less, or have an administrator "
        "raise it; after a minute it starts with fewer, 8 at least, where so many fit and delay nobody"
    )
    story.pass_time(MINUTE)
    begin(story)
    story.pass_time(MINUTE)
    begin(story)
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 24, [])


def test_it_grows_once_the_quota_leaves_more() -> None:
    story = site()
    story.quotas = pods(2)
    story.add(elastic())
    story.settle()
    for _ in range(2):
        story.pass_time(MINUTE)
        begin(story)
    assert size(story) == 16
    story.pass_time(ROOM_LASTS)
    begin(story)
    story.pass_time(ROOM_LASTS)
    begin(story)
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 16, [])
    assert [each.reason for each in story.notices].count(EventReason.RESIZE_REFUSED) == 1
    story.quotas = pods(9)
    for _ in range(4):
        story.pass_time(ROOM_LASTS)
        begin(story)
    assert (size(story), ends(story)) == (32, [("Grown", False)])


@pytest.mark.parametrize("left", [0, 1], ids=["nothing", "less than its least size"])
def test_it_waits_where_the_quota_leaves_too_little(left: int) -> None:
    story = site()
    story.quotas = pods(left)
    story.add(elastic(least=16))
    story.settle()
    assert "starts with fewer" not in waits_for_quota(story)
    for _ in range(5):
        story.pass_time(MINUTE)
        begin(story)
        waits_for_quota(story)
    story.quotas = pods(4)
    story.pass_time(MINUTE)
    begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 32)


def test_it_gets_all_where_the_quota_is_raised_within_the_minute() -> None:
    story = site()
    story.quotas = pods(3)
    story.add(elastic())
    story.settle()
    waits_for_quota(story)
    story.quotas = pods(4)
    story.pass_time(MINUTE / 2)
    begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 32)


def test_what_the_quota_leaves_is_found_again_by_another_operator() -> None:
    story = site()
    story.quotas = pods(2)
    story.add(elastic())
    story.settle()
    story.pass_time(MINUTE)
    story.answers.clear()
    begin(story)
    waits_for_quota(story)
    story.pass_time(MINUTE)
    begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 16)


def test_what_a_quota_leaves_is_nothing_for_a_changed_job() -> None:
    """Its Pods may ask for less now, so that all of them are tried first."""
    story = site()
    story.quotas = pods(2)
    story.add(elastic())
    story.settle()
    story.edit_job(gpus=16)
    story.pass_time(5)  # a refused namespace is left alone for a moment
    story.settle()
    assert len(placement(story).nodes) == 2


def test_jobs_before_it_in_the_queue_keep_their_turn() -> None:
    """One that waits for a larger room than is free has it kept: the elastic one takes nothing of it, whatever the
    quota leaves."""
    story = site(fixed("runs", 16, expectedDuration="10m"))
    story.quotas = pods(4, used=2)
    story.add(fixed("first", 32, priorityClassName="high"))
    story.add(elastic(least=8))
    story.settle()
    for _ in range(3):
        story.pass_time(MINUTE)
        begin(story)
    assert (story.status("first").state, story.status().state) == (State.QUEUED, State.QUEUED)


@KINDS
def test_others_make_room_for_no_more_than_the_quota_leaves(kind: Any) -> None:
    story = site(*(fixed(f"low-{number}") for number in range(4)), kind=kind)
    of_high = ScopeRequirement("PriorityClass", "In", ["high"])
    story.quotas = [Quota("team", {"pods": "2"}, {"pods": "0"}, (of_high,))]
    story.add(elastic(priorityClassName="high"))
    story.settle()
    waits_for_quota(story)
    for _ in range(3):
        story.pass_time(MINUTE)
        begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 16)
    assert sorted(len(ends(story, f"low-{number}")) for number in range(4)) == [0, 0, 1, 1]


def test_the_smallest_part_of_several_quotas_counts() -> None:
    asked = QuotaDemand({"pods": 4, "cpu": 32000}, {"services": 1}, gpus=32)
    short = Shortfall("one", "pods", 4, 3, 0), Shortfall("two", "cpu", 32000, 20000, 4000)
    assert gpus_left(asked, short) == 16
    assert gpus_left(asked, short[:1]) == 24
    assert gpus_left(asked, [*short, Shortfall("two", "services", 1, 3, 3)]) == 0
    assert gpus_left(asked, [Shortfall("one", "pods", 4, 3, 9)]) == 0
    assert gpus_left(QuotaDemand({"pods": 1}, {}), short) is None
