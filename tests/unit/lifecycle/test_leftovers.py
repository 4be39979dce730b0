"""What is left of an attempt when the next one is placed: Pods on dead nodes, claims that are not collected yet."""

from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.writes.resource_quotas import Quota
from scenarios.manifests import training_job, worker
from scenarios.stories import WHOLE, ended, nodes, two_dra_nodes
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])
HALF = {"gpus": 16, "topology": {"gpusPerNode": 8}}


def running(kind: Any, *jobs: str, nodes: int = 3) -> Story:
    """Jobs of two whole nodes each, all of which run, on so many nodes."""
    manifests = [each for number in range(1, nodes + 1) for each in kind(f"gpu-{number}")]
    story = Story(*manifests, *(training_job(job, spec=WHOLE) for job in jobs))
    story.settle()
    story.run_all()
    story.settle()
    return story


@KINDS
def test_a_gang_goes_on_elsewhere_while_its_pod_on_a_dead_node_stays_for_ever(kind: Any) -> None:
    story = running(kind, "train")
    story.lose_node("gpu-2")
    story.mark_deleted("train-a1-worker-00001")  # by the taint manager, after five minutes
    story.settle()
    story.run_all()
    story.settle()
    assert (nodes(story), story.status().state) == (["gpu-1", "gpu-3"], State.RUNNING)
    assert story.pods() == ["train-a1-worker-00001", "train-a2-worker-00000", "train-a2-worker-00001"]
    assert ended(story) == [(1, "ChildDeleted", False)]


@KINDS
def test_nobody_else_gets_what_a_pod_of_a_node_that_was_dead_holds_until_it_is_gone(kind: Any) -> None:
    story = running(kind, "train")
    story.lose_node("gpu-2")
    story.mark_deleted("train-a1-worker-00001")
    story.settle()
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.recover_node("gpu-2")
    story.settle()
    pending = story.status("waiting").pending
    assert pending is not None
    held = "1 " + ("claim" if kind is dra_node else "Pod")
    assert pending.message == f"needs 8 GPUs; 0 are free; 24 excluded: 16 held by 1 job, 8 held by {held}"
    story.remove_pod("train-a1-worker-00001")
    story.settle()
    assert story.status("waiting").state is State.STARTING


@KINDS
def test_what_a_job_still_holds_on_healthy_nodes_is_free_for_it_and_for_nobody_else(kind: Any) -> None:
    story = running(kind, "train", nodes=3)
    for name in story.pods():
        story.mark_deleted(name)
    story.objects[("Node", "", "gpu-1")]["spec"]["unschedulable"] = True
    (end,) = story.plans()
    story.write(end)
    assert (story.status().placement or pytest.fail("it holds nothing")).lost == "0"
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.settle()
    assert nodes(story) == ["gpu-3", "gpu-2"]
    assert story.status("waiting").state is State.QUEUED
    assert story.pods() == ["train-a1-worker-00000", "train-a1-worker-00001"]
    story.remove_pod("train-a1-worker-00001")
    story.settle()
    assert story.pods() == ["train-a1-worker-00000", "train-a2-worker-00000", "train-a2-worker-00001"]


@KINDS
def test_a_job_that_does_not_fit_any_more_says_so_and_holds_what_is_left_of_it_for_a_while(kind: Any) -> None:
    story = running(kind, "train", nodes=2)
    story.lose_node("gpu-2")
    story.mark_deleted("train-a1-worker-00001")
    story.mark_deleted("train-a1-worker-00000")
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.NODES_LOST
    assert pending.message == (
        "it lost gpu-2 and holds 1 node of 2; 1 node more with 8 free GPUs like its others would do, and there is none"
        "; it holds the rest until 2026-11-21T10:10:00Z"
    )
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert (story.status("waiting").state, story.status().state) == (State.QUEUED, State.RESTARTING)
    story.pass_time(600)
    story.settle()
    assert story.status("waiting").state is State.STARTING
    assert (story.status().pending or pytest.fail("not pending")).reason == PendingReason.INSUFFICIENT_GPUS
    story.pass_time(60)  # new numbers are told once a minute
    story.settle()
    assert "gpu-2 (NotReady" in (story.status().pending or pytest.fail("not pending")).message
    story.recover_node("gpu-2")
    story.remove_pod("train-a1-worker-00001")
    story.pass_time(60)  # new numbers are told once a minute
    story.settle()
    assert "held by 1 job" in (story.status().pending or pytest.fail("not pending")).message


def test_a_dead_node_that_recovers_with_the_pod_still_there_is_the_jobs_own() -> None:
    story = running(plugin_node, "train", nodes=2)
    story.lose_node("gpu-2")
    story.mark_deleted("train-a1-worker-00001")
    story.settle()
    assert (story.status().placement or pytest.fail("it holds nothing")).lost == "1"
    story.recover_node("gpu-2")
    story.settle()
    assert nodes(story) == ["gpu-1", "gpu-2"]
    assert story.pods() == ["train-a1-worker-00001"]


def test_claims_of_pods_that_are_gone_are_free_for_their_job_alone() -> None:
    story = two_dra_nodes()
    story.settle()
    story.run_all()
    story.settle()
    claims = {name: story.objects[("ResourceClaim", "team-b", name)] for name in story.names("ResourceClaim")}
    story.objects[("Node", "", "gpu-2")]["spec"]["unschedulable"] = True
    for name, claim in claims.items():
        story.remove_pod(name)
        story.add(claim)
    story.settle()
    assert (story.status().placement or pytest.fail("it holds nothing")).lost == "1"
    del story.objects[("Node", "", "gpu-2")]["spec"]["unschedulable"]
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.settle()
    assert nodes(story) == ["gpu-1", "gpu-2"]
    assert story.status("waiting").state is State.QUEUED


def test_a_pod_that_may_never_go_has_the_next_attempt_take_another_number() -> None:
    """Its gang was taken back under its number, since a child was refused, and then its node died."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), training_job(spec={"gpus": 8}))
    story.add(worker("train", 0, node="gpu-2", job_uid="uid-of-train", requests={"nvidia.com/gpu": "8"}))
    story.mark_deleted("train-a1-worker-00000")
    story.settle()
    assert story.written == []
    story.lose_node("gpu-2")
    story.settle()
    assert story.pods() == ["train-a1-worker-00000", "train-a2-worker-00000"]
    assert (story.status().attempt, nodes(story)) == (2, ["gpu-1"])


@KINDS
def test_a_pod_that_does_not_go_has_its_gang_run_elsewhere(kind: Any) -> None:
    """A finalizer, or a process that ignores its end: nothing of its node is wrong."""
    story = running(kind, "train")
    story.mark_deleted("train-a1-worker-00000")
    story.settle()
    assert (nodes(story), story.status().attempt) == (["gpu-1", "gpu-2"], 2)
    for _ in range(12):
        story.pass_time(10)
        story.settle()
    assert nodes(story) == ["gpu-2", "gpu-3"]
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING
    assert [reason for _, reason, _ in ended(story)] == ["ChildDeleted", "GPUTaken"]


@KINDS
def test_a_node_is_taken_again_once_what_did_not_go_is_gone(kind: Any) -> None:
    story = running(kind, "train", nodes=2)
    story.mark_deleted("train-a1-worker-00000")
    story.settle()
    while story.status().placement is not None:
        story.pass_time(10)
        story.settle()
    assert ended(story)[-1] == (2, "GPUTaken", False)
    story.pass_time(5)  # the pause after two attempts that others ended
    story.settle()
    assert story.status().placement is None
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert nodes(story) == ["gpu-1", "gpu-2"]


@KINDS
def test_so_it_is_where_the_pod_was_deleted_before_its_gang_had_run(kind: Any) -> None:
    story = Story(*kind("gpu-1"), *kind("gpu-2"), training_job(spec={"gpus": 16}))
    story.settle()
    story.mark_deleted("train-a1-worker-00000", grace_s=0)
    while story.status().attempt == 1:
        story.pass_time(10)
        story.settle()
    assert ended(story) == [(1, "ChildDeleted", False)]
    assert (story.status().placement or pytest.fail("it holds nothing")).lost == "0"
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert nodes(story) == ["gpu-1", "gpu-2"]


@KINDS
@pytest.mark.parametrize("grace_s", [30, 10**9])
def test_a_gang_whose_pod_does_not_go_holds_nothing_while_it_waits(kind: Any, grace_s: int) -> None:
    story = running(kind, "train", nodes=2)
    story.mark_deleted("train-a1-worker-00000", grace_s=grace_s)
    story.settle()
    idle = 0
    for _ in range(60):
        story.pass_time(60)
        story.settle()
        idle += story.status().placement is not None
    assert idle <= 60 * 6 // 16 + 1  # of an hour: five minutes of waiting, then ten without the node
    story.remove_pod("train-a1-worker-00000")
    for _ in range(12):
        story.pass_time(60)
        story.settle()
    assert nodes(story) == ["gpu-1", "gpu-2"]


def test_pods_that_are_over_go_with_their_attempt() -> None:
    story = running(plugin_node, "train", nodes=2)
    story.change_pod("train-a1-worker-00000", phase="Succeeded")
    story.settle()
    story.remove_pod("train-a1-worker-00001")
    story.settle()
    assert story.pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]


def share_claim(story: Story, name: str) -> None:
    """A copy of a Pod for debugging uses its claim, too, and keeps it from being collected."""
    users = [{"resource": "pods", "name": user, "uid": f"uid-of-{user}"} for user in (name, "copy")]
    story.objects[("ResourceClaim", "team-b", name)]["status"]["reservedFor"] = users


def leave_claim(story: Story, name: str) -> None:
    """The Pod goes; its claim stays."""
    claim = story.objects[("ResourceClaim", "team-b", name)]
    story.remove_pod(name)
    story.add(claim)


def test_a_claim_that_another_pod_uses_is_not_waited_for() -> None:
    story = running(dra_node, "train")
    share_claim(story, "train-a1-worker-00000")
    leave_claim(story, "train-a1-worker-00000")
    story.settle()
    assert (nodes(story), ended(story)) == (["gpu-2", "gpu-3"], [(1, "ChildDeleted", False)])


def test_a_job_whose_gpus_another_pod_keeps_holds_no_other_meanwhile() -> None:
    story = running(dra_node, "train", nodes=2)
    share_claim(story, "train-a1-worker-00000")
    leave_claim(story, "train-a1-worker-00000")
    story.settle()
    pending = story.status().pending
    assert pending is not None and story.status().placement is None
    assert pending.message == "needs 16 GPUs; 8 are free on 1 node; 8 excluded: 8 held by 1 claim"
    story.add(training_job("other", spec={"gpus": 8}))
    story.settle()
    assert story.status("other").state is State.STARTING


def test_a_claim_that_comes_to_be_used_while_its_end_is_waited_for_ends_the_wait() -> None:
    story = running(dra_node, "train")
    leave_claim(story, "train-a1-worker-00000")
    story.settle()
    assert nodes(story) == ["gpu-1", "gpu-2"]
    share_claim(story, "train-a1-worker-00000")
    story.settle()
    story.pass_time(2)  # of several attempts in a row that others ended each waits
    story.settle()
    assert (nodes(story), ended(story)[-1]) == (["gpu-2", "gpu-3"], (2, "GPUTaken", False))
    assert story.status().attempts[-1].message == (
        "Pod copy uses ResourceClaim train-a1-worker-00000, and with it GPUs that are booked; the job starts again"
    )


def test_a_quota_that_counts_a_pod_on_a_dead_node_for_ever_is_told() -> None:
    """While that Pod may still be going the gang would be asked for again and again, without a word."""
    story = running(plugin_node, "train", nodes=2)
    story.lose_node("gpu-2")
    story.mark_deleted("train-a1-worker-00001")
    story.settle()
    story.pass_time(300)
    story.quotas = [Quota("gpus", {"requests.nvidia.com/gpu": "16"}, {"requests.nvidia.com/gpu": "8"})]
    for each in plugin_node("gpu-3"):
        story.add(each)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.QUOTA_EXCEEDED


def test_a_job_whose_end_somebody_has_taken_out_of_its_status_begins_another_attempt() -> None:
    story = running(plugin_node, "train", nodes=2)
    for name in story.pods():
        story.change_pod(name, phase="Succeeded")
    story.settle()
    status = story.objects["TrainingJob", "team-b", "train"]["status"]
    assert status["state"] == "Succeeded"
    status["conditions"] = [each for each in status["conditions"] if each["type"] != "Succeeded"]
    story.settle()
    story.run_all()
    story.settle()
    assert (story.status().state, story.status().attempt) == (State.RUNNING, 2)
    assert ended(story) == [(1, "Succeeded", False)]
