"""An elastic job of high priority that cannot have all of its GPUs takes the room of others for fewer."""

from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from scenarios.story import Story, plugin_node
from unit.scheduling.preemption.test_preempted_jobs import HIGH, KINDS, begin, ends, finish, job, site, told

ELASTIC: dict[str, Any] = {**HIGH, "elastic": {"minGPUs": 8}, "topology": {"gpusPerNode": 8}}


def sizes(story: Story, *names: str) -> list[int | None]:
    """With how many GPUs they are booked."""
    placements = (story.status(name).placement for name in names)
    return [None if placement is None else placement.gpus for placement in placements]


def wait(story: Story, seconds: float = 61) -> None:
    story.pass_time(seconds)
    story.settle()


@KINDS
def test_it_starts_with_what_lower_ones_leave_to_it(kind: Any) -> None:
    story = site(kind, job("peer", **HIGH), job("low"), nodes=2)
    story.add(job("urgent", 16, **ELASTIC))
    story.settle()
    assert (ends(story, "low"), told(story, "urgent")[0]) == ([], PendingReason.INSUFFICIENT_GPUS)
    wait(story)
    assert (ends(story, "low"), ends(story, "peer")) == ([(1, "Preempted", False)], [])
    assert told(story, "urgent")[0] == PendingReason.PREEMPTION_PENDING
    finish(story)
    begin(story)
    assert (story.status("urgent").state, sizes(story, "urgent")) == (State.RUNNING, [8])


@KINDS
@pytest.mark.parametrize("peers", [1, 3])
def test_it_takes_room_for_as_many_as_it_can_have(kind: Any, peers: int) -> None:
    lows = [job(f"low-{number}") for number in range(3)]
    story = site(kind, *lows, *[job(f"peer-{number}", **HIGH) for number in range(peers)], nodes=3 + peers)
    story.add(job("urgent", 24 + 8 * peers, **ELASTIC))
    wait(story)
    wait(story)
    assert [ends(story, f"low-{number}") for number in range(3)] == [[(1, "Preempted", False)]] * 3
    assert sizes(story, "urgent") == [24]


def test_one_that_the_cluster_could_never_hold_whole_does_so_too() -> None:
    story = site(plugin_node, job("low"), nodes=1)
    story.add(job("urgent", 16, **ELASTIC))
    wait(story)
    wait(story)
    assert (ends(story, "low"), sizes(story, "urgent")) == ([(1, "Preempted", False)], [8])


def test_nobody_goes_where_it_could_start_with_fewer_anyway() -> None:
    story = site(plugin_node, job("peer", **HIGH), job("low"), nodes=3)
    story.add(job("urgent", 24, **ELASTIC))
    wait(story)
    wait(story)
    assert (ends(story, "low"), sizes(story, "urgent")) == ([], [8])


def test_nobody_goes_for_one_that_gets_all_of_its_gpus_soon() -> None:
    story = site(plugin_node, job("peer", **HIGH, expectedDuration="4m"), job("low", expectedDuration="4m"), nodes=2)
    story.add(job("urgent", 16, **ELASTIC))
    wait(story)
    wait(story)
    assert ends(story, "low") == []


def test_nobody_goes_for_one_that_may_end_nobody() -> None:
    story = site(plugin_node, job("peer", **HIGH), job("low"), nodes=2)
    story.add(job("urgent", 16, **{**ELASTIC, "priorityClassName": "meek"}))
    wait(story)
    wait(story)
    assert ends(story, "low") == []


def test_it_starts_on_what_comes_free_elsewhere_meanwhile() -> None:
    """A job that went for it may outstay its grace period for ever."""
    story = site(plugin_node, job("peer", **HIGH), job("low"), nodes=2)
    story.add(job("urgent", 16, **ELASTIC))
    wait(story)
    wait(story)
    story.change_pod("peer-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert (sizes(story, "urgent"), "urgent-a1-worker-00000" in story.pods()) == ([8], True)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_it_keeps_what_is_left_where_a_node_is_lost_meanwhile(lost: int) -> None:
    """Those that went would start again there, and be ended a second time."""
    story = site(plugin_node, *[job(f"low-{number}") for number in range(3)], job("peer", **HIGH), nodes=4)
    story.add(job("urgent", 32, **ELASTIC))
    wait(story)
    wait(story)
    placement = story.status("urgent").placement
    assert placement is not None
    nodes = [share.name for share in placement.nodes]
    story.lose_node(nodes[lost])
    wait(story)
    wait(story)
    assert [len(ends(story, f"low-{number}")) for number in range(3)] == [1, 1, 1]
    finish(story)
    begin(story)
    assert (story.status("urgent").state, sizes(story, "urgent")) == (State.RUNNING, [16])


def test_a_size_that_delays_a_job_ahead_of_it_is_passed_over_for_a_smaller_one() -> None:
    first = job("first", 16, priorityClassName="meek", topology={"gpusPerNode": 8})
    lows = [job("low-0", expectedDuration="2h"), job("low-1", expectedDuration="9h")]
    peer = job("peer", **HIGH, expectedDuration="2h")
    story = site(plugin_node, peer, *lows, nodes=3)
    story.add(first)
    story.settle()
    assert "gpu-1, gpu-2, which are kept for it" in told(story, "first")[1]
    story.pass_time(1)
    story.add(job("urgent", 24, **ELASTIC))
    for _ in range(3):
        wait(story)
    assert (len(ends(story, "low-0")), len(ends(story, "low-1"))) == (0, 1)
    assert sizes(story, "urgent") == [8]


def test_a_least_size_that_is_raised_meanwhile_counts() -> None:
    story = site(plugin_node, job("peer", **HIGH), job("low"), nodes=2)
    story.add(job("urgent", 16, **ELASTIC))
    wait(story)
    wait(story)
    assert sizes(story, "urgent") == [8]
    story.edit_job("urgent", elastic={"minGPUs": 16})
    finish(story)
    begin(story)
    assert story.status("urgent").placement is None


def test_an_operator_that_starts_again_goes_on_with_the_same_size() -> None:
    story = site(plugin_node, job("peer", **HIGH), job("low"), nodes=2)
    story.add(job("urgent", 16, **ELASTIC))
    wait(story)
    wait(story)
    story.answers.clear()
    story.add(job("later", **HIGH))
    story.settle()
    finish(story)
    begin(story)
    assert (sizes(story, "urgent", "later"), ends(story, "peer")) == ([8, None], [])


@pytest.mark.parametrize("again", [1, 20])
def test_who_went_stays_out_and_nothing_moves_for_long(again: int) -> None:
    story = site(plugin_node, job("peer", **HIGH), job("low"), nodes=2)
    story.add(job("urgent", 16, **ELASTIC))
    wait(story)
    wait(story)
    finish(story)
    begin(story)
    for _ in range(again):
        wait(story, 600)
    assert (sizes(story, "urgent"), len(ends(story, "low")), ends(story, "urgent")) == ([8], 1, [])
