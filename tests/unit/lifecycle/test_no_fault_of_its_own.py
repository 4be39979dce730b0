"""How Pods end, and who bears it: what Kubernetes does to a gang is not charged to its job."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.cluster.booking import decoded
from closeknit.lifecycle.plan import Plan
from closeknit.lifecycle.results import Denial, Failure, Refused, Result
from scenarios.machines import dgx1v
from scenarios.manifests import node, node_topology, training_job
from scenarios.stories import WHOLE, booked_nodes, conditions, disruption, ended, two_plugin_nodes
from scenarios.story import Story

SHUTDOWN = disruption("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.")
EXIT_1 = [{"name": "trainer", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]


def running() -> Story:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    return story


def test_a_node_shutdown_is_not_charged() -> None:
    story = running()
    story.change_pod("train-a1-worker-00001", phase="Failed", reason="Terminated", conditions=[SHUTDOWN])
    story.settle()
    assert (ended(story), story.status().state) == ([(1, "Disrupted", False)], State.STARTING)
    assert story.status().attempts[0].message == (
        "Pod train-a1-worker-00001 of node gpu-2 was disrupted: "
        "Pod was terminated in response to imminent node shutdown.; the job starts again"
    )


@pytest.mark.parametrize(
    "reason", ["EvictionByEvictionAPI", "DeletionByTaintManager", "PreemptionByScheduler", "DeletionByPodGC"]
)
def test_an_eviction_is_told_from_a_deletion_by_hand(reason: str) -> None:
    story = running()
    story.change_pod("train-a1-worker-00001", conditions=[disruption(reason, "because")])
    story.mark_deleted("train-a1-worker-00001")
    story.settle()
    assert ended(story) == [(1, "Disrupted", False)]


def test_ranks_that_fail_because_another_one_was_disrupted_are_not_charged() -> None:
    story = running()
    story.change_pod("train-a1-worker-00000", phase="Failed", containerStatuses=EXIT_1)
    story.change_pod("train-a1-worker-00001", conditions=[SHUTDOWN])
    story.settle()
    assert ended(story) == [(1, "Disrupted", False)]


def test_a_disruption_that_did_not_come_about_excuses_nothing() -> None:
    story = running()
    story.change_pod("train-a1-worker-00001", conditions=[{**SHUTDOWN, "status": "False"}])
    story.change_pod("train-a1-worker-00000", phase="Failed", containerStatuses=EXIT_1)
    story.settle()
    assert ended(story) == [(1, "PodFailed", True)]


def test_a_rank_that_succeeded_stays_so_though_its_pod_is_removed() -> None:
    story = running()
    story.change_pod("train-a1-worker-00001", phase="Succeeded")
    story.settle()
    story.remove_pod("train-a1-worker-00001")
    story.answers.clear()
    story.settle()
    assert (story.status().state, story.status().attempt) == (State.RUNNING, 1)
    assert (story.status().placement or pytest.fail("not placed")).succeeded == "1"
    story.change_pod("train-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert (story.status().state, ended(story)) == (State.SUCCEEDED, [(1, "Succeeded", False)])


def test_a_rank_that_succeeded_is_not_made_again_with_one_that_is_missing() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.change_pod("train-a1-worker-00001", node="gpu-2", phase="Succeeded")
    story.settle()
    story.remove_pod("train-a1-worker-00001")
    story.remove_pod("train-a1-worker-00000")
    story.pass_time(60)
    story.settle()
    assert story.pods() == ["train-a1-worker-00000"]


def test_the_next_attempt_begins_with_all_ranks() -> None:
    story = running()
    story.change_pod("train-a1-worker-00001", phase="Succeeded")
    story.settle()
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert story.pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]
    assert (story.status().placement or pytest.fail("not placed")).succeeded is None


@pytest.mark.parametrize(
    ("written", "positions"),
    [
        (None, []),
        ("0-2,4", [0, 1, 2, 4]),
        ("3", [3]),
        ("4,1-2", [4]),
        ("0-1,0-99999", [0, 1, 2, 3, 4]),
        ("7-9", []),
    ],
)
def test_ranks_that_succeeded_are_stored_as_ranges(written: str | None, positions: list[int]) -> None:
    """Others than we write are read as far as they are in order, and cost no more than the job has nodes."""
    story = Story(*(each for n in range(5) for each in [node(f"gpu-{n}"), node_topology(f"gpu-{n}")]))
    story.add(training_job(spec={"gpus": 40}))
    story.settle()
    placement = story.status().placement
    assert placement is not None
    shares = decoded(placement.model_copy(update={"succeeded": written}))
    assert [position for position, share in enumerate(shares) if share.succeeded] == positions


class Baseline(Story):
    """A namespace whose Pod Security level does not admit IPC_LOCK."""

    def _create(self, plan: Plan, manifest: dict[str, Any], *, is_probe: bool = False) -> Result:
        if manifest["kind"] == "Pod" and "IPC_LOCK" in str(manifest["spec"]["containers"]):
            words = 'violates PodSecurity "baseline:latest": non-default capabilities'
            return Refused(manifest, Denial(Failure.FORBIDDEN, 403, "Forbidden", words), is_probe)
        return super()._create(plan, manifest, is_probe=is_probe)


def test_a_refusal_of_ipc_lock_is_remembered_over_a_restart_of_the_operator() -> None:
    """Else the next attempt is refused its first Pod, and what was told of the job changes to and fro."""
    story = Baseline(training_job(spec=WHOLE))
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        story.add(node(name, allocatable={"rdma/hca": "8"}))
        story.add({**node_topology(name), "spec": dgx1v(tag=name).wire()})
    story.settle()
    assert conditions(story)["Degraded"] == "True"
    assert next(c for c in story.status().conditions if c.type == "Degraded").reason == "IPCLockRefused"
    story.run_all()
    story.settle()
    story.answers.clear()
    before = len(story.written)
    story.objects[("Node", "", "gpu-2")]["spec"]["unschedulable"] = True
    story.remove_pod("train-a1-worker-00001")
    story.settle()
    assert [assignment.name for assignment in booked_nodes(story)] == ["gpu-1", "gpu-3"]
    assert booked_nodes(story)[0].nics
    assert conditions(story)["Degraded"] == "True"
    assert [each for each in story.written[before:] if each.startswith("status")] == ["status Restarting"] * 1 + [
        "status Starting"
    ]


def test_and_over_a_suspension_while_which_nothing_is_lacked() -> None:
    story = Baseline(training_job(spec=WHOLE))
    for name in ("gpu-1", "gpu-2"):
        story.add(node(name, allocatable={"rdma/hca": "8"}))
        story.add({**node_topology(name), "spec": dgx1v(tag=name).wire()})
    story.settle()
    story.edit_job(suspend=True)
    story.settle()
    assert conditions(story)["Degraded"] == "Unknown"
    story.answers.clear()
    before = len(story.written)
    story.edit_job(suspend=False)
    story.settle()
    assert conditions(story)["Degraded"] == "True"
    assert [each for each in story.written[before:] if each.startswith("status")] == ["status Starting"]
