"""Swaps at moments that are rare: before the first run, and where nodes die one after the other."""

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.cluster.objects.silence import Quiet
from closeknit.lifecycle.writes.resource_quotas import Quota
from scenarios.manifests import training_job
from scenarios.restarting_gangs import TEMPLATE, alive, allow, begins, running, waits
from scenarios.stories import kill_nodes, lose_nodes, nodes, placement
from scenarios.story import Story, plugin_node
from unit.lifecycle.failures.test_in_place_swap import FIRST, SECOND, THIRD, joins


def waiting_to_begin() -> Story:
    """A gang whose barriers wait for each other, before its first run."""
    manifests = [each for number in range(1, 6) for each in plugin_node(f"gpu-{number}")]
    spec = {"gpus": 24, "topology": {"gpusPerNode": 8}, "template": TEMPLATE, "restart": {"limit": 2}}
    story = Story(*manifests, training_job(spec=spec))
    story.sidecar_image = "agent:1"
    allow(story)
    story.settle()
    story.run_all()
    for pod in story.pods():
        waits(story, pod)
    story.settle()
    story.pass_time(30)
    return story


@pytest.mark.parametrize("are_told", [True, False], ids=["all run", "one tells late"])
def test_a_gang_that_loses_a_node_before_its_first_run_begins_it_with_the_new_pod(are_told: bool) -> None:
    story = waiting_to_begin()
    lose_nodes(story, nodes(story)[1])
    assert (story.status().attempt, placement(story).swapping) == (1, True)
    story.run_all()
    there = alive(story)
    for pod in there:
        begins(story, pod, 0)
    if not are_told:
        story.change_pod(there[0], phase="Pending")
    story.settle()
    if not are_told:
        story.pass_time(6)
        story.settle()
        story.change_pod(there[0], phase="Running")
        story.settle()
    assert (placement(story).swapping, placement(story).run) == (None, 0)
    assert story.status().state is State.RUNNING


def test_nodes_that_die_one_after_the_other_are_one_swap() -> None:
    """Of one cause: the second has missed a sign of life when the first is known to be dead."""
    story = running(nodes=6)
    before = nodes(story)
    kill_nodes(story, before[1])
    story.silence(before[2], Quiet.OVERDUE)
    story.settle()
    assert placement(story).lost == "1"
    story.pass_time(5)
    lose_nodes(story, before[2])
    assert story.status().attempt == 1
    assert placement(story).replaced == {"1": 1, "2": 1}
    for name in (SECOND, THIRD):
        assert story.pod(name)["metadata"]["labels"]["closeknit.dev/attempt"] == ""
    joins(story, f"{SECOND}-r1")
    assert (story.status().state, story.status().restarts) == (State.RUNNING, 1)


@pytest.mark.parametrize("seconds", [30, 240])
def test_a_quota_that_still_counts_the_pod_on_the_dead_node_ends_no_pod_that_stays(seconds: int) -> None:
    """Nothing happens when a Pod that nobody confirms is no longer counted: the next recount finds it."""
    story = running()
    story.quotas = [Quota("gang", {"pods": "3"}, {"pods": "3"})]
    kill_nodes(story, nodes(story)[1])
    for _ in range(seconds // 10 + 2):
        story.write_once()
        story.pass_time(10)
    assert {FIRST, THIRD} <= set(story.pods())
    assert (story.status().attempt, placement(story).lost) == (1, "1")
    story.quotas = [Quota("gang", {"pods": "3"}, {"pods": "2"})]
    story.settle()
    joins(story, f"{SECOND}-r1")
    assert (story.status().state, story.status().restarts) == (State.RUNNING, 1)


def test_a_quota_that_has_no_room_for_the_new_pod_is_told_in_the_end() -> None:
    story = running()
    story.quotas = [Quota("gang", {"pods": "3"}, {"pods": "3"})]
    kill_nodes(story, nodes(story)[1])
    for _ in range(50):
        story.write_once()
        story.pass_time(10)
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.QUOTA_EXCEEDED
    assert story.status().placement is None


def told_otherwise(used: int) -> Story:
    """A gang that has lost a node, and whose Pods are all to be new, below a quota of three Pods."""
    story = running()
    story.quotas = [Quota("gang", {"pods": str(used)}, {"pods": "3"})]
    story.sidecar_image = "agent:2"
    kill_nodes(story, nodes(story)[1])
    return story


def test_where_all_pods_are_new_the_quota_gets_back_what_those_of_before_take() -> None:
    story = told_otherwise(3)
    for _ in range(6):
        story.write_once()
        story.pass_time(10)
    assert story.status().attempt == 2
    assert placement(story).lost is None


def test_where_all_pods_are_new_and_refused_that_is_asked_ever_more_seldom_and_told_in_the_end() -> None:
    """Before it is stored, and so for another attempt than the one of the status."""
    story = told_otherwise(2)
    reads, held_s = 0, 0
    while story.status().placement is not None and held_s < 900:
        plans = [plan for plan in story.plans() if plan.writes]
        reads += sum(plan.demand is not None for plan in plans)
        for plan in plans:
            story.write(plan)
        assert story.status().placement is None or {FIRST, THIRD} <= set(story.pods())
        story.pass_time(3)
        held_s += 3
    assert reads < 25
    assert 590 < held_s < 620, "it holds what it has for ten minutes"
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.QUOTA_EXCEEDED


def test_an_operator_of_another_release_that_finds_a_swap_booked_makes_all_pods_anew() -> None:
    """The old one ended between its booking and the new Pod: sidecars of two releases may not understand each other."""
    story = running()
    kill_nodes(story, nodes(story)[1])
    while placement(story).replaced is None:
        story.write_once()
    if f"{SECOND}-r1" in story.pods():  # the API server has not heard of it
        story.remove_pod(f"{SECOND}-r1")
    story.answers.clear()
    story.sidecar_image = "agent:2"
    story.settle()
    assert story.status().attempt == 2
    assert (len(story.status().attempts), story.status().restarts) == (1, 1)
    assert placement(story).swapping is None
    assert f"{SECOND}-r1" not in story.pods()


@pytest.mark.parametrize(("back_s", "holds"), [(3, True), (3600, True), (86400, False)])
def test_a_new_leader_whose_clock_is_behind_gives_nothing_back(back_s: int, holds: bool) -> None:
    story = running(nodes=3)
    lose_nodes(story, "gpu-2")
    story.answers.clear()
    story.pass_time(-back_s)
    story.settle()
    held = story.status().placement
    assert (held is not None and held.lost == "1") is holds
    assert ("stop Pod train-a1-worker-00000" in story.written) is not holds


def test_a_new_leader_whose_clock_is_behind_does_not_go_back_to_what_refused() -> None:
    story = running(nodes=4, image="")
    story.change_pod("train-a1-worker-00001", phase="Failed", reason="UnexpectedAdmissionError", message="no devices")
    story.write_once()
    assert story.status().attempts[-1].unfit is not None
    story.answers.clear()
    story.pass_time(-3)
    for pod in story.pods():
        story.remove_pod(pod)
    story.settle()
    assert "gpu-2" not in nodes(story)
