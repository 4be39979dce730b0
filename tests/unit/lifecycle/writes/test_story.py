"""A job's life, step by step: what is written, in which order, and what is left alone."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import Actual, State
from closeknit.lifecycle.status.degraded import FIXED
from closeknit.lifecycle.writes.plan import Delete
from scenarios.machines import dgx1v
from scenarios.manifests import condition, node, node_topology, owner, resource_claim, training_job, worker
from scenarios.stories import WHOLE, booked_nodes, conditions, ended, two_dra_nodes, two_plugin_nodes, unschedulable
from scenarios.story import Story, dra_node, plugin_node


@pytest.mark.parametrize(
    ("story", "children"),
    [
        pytest.param(
            two_plugin_nodes(), ["Pod train-a1-worker-00000", "Pod train-a1-worker-00001"], id="by a device plugin"
        ),
        pytest.param(
            two_dra_nodes(),
            [
                *("Pod train-a1-worker-00000", "ResourceClaim train-a1-worker-00000"),
                *("Pod train-a1-worker-00001", "ResourceClaim train-a1-worker-00001"),
            ],
            id="by claims, each after its Pod",
        ),
    ],
)
def test_a_gang_is_booked_and_made(story: Story, children: list[str]) -> None:
    story.settle()
    assert story.written == ["status Starting", "create Service train-a1", *(f"create {child}" for child in children)]
    status = story.status()
    assert (status.attempt, status.restarts, status.epoch, status.pending) == (1, 0, 7, None)
    expected = {"Admitted": "True", "Placed": "True", "PlacementVerified": "Unknown", "Running": "False"}
    assert conditions(story) == expected
    assert [notice.reason for notice in story.notices] == ["Placed"]


def test_one_status_tells_that_it_runs_on_the_planned_gpus() -> None:
    story = two_dra_nodes()
    story.settle()
    before = len(story.written)
    story.run_all()
    story.settle()
    assert story.written[before:] == ["status Running"]
    assert conditions(story)["PlacementVerified"] == conditions(story)["Running"] == "True"
    placement = story.status().placement
    assert placement is not None
    assert [node.actual for node in placement.nodes] == [Actual.VERIFIED, Actual.VERIFIED]
    assert [notice.reason for notice in story.notices] == ["Placed"]


def test_other_gpus_than_planned_are_a_mismatch() -> None:
    story = two_dra_nodes()
    story.settle()
    story.run_all()
    claim = story.objects[("ResourceClaim", "team-b", "train-a1-worker-00001")]
    story.allocate(claim, "gpu-1", [f"GPU-gpu-1-{index}" for index in range(8)])
    story.settle()
    verified = next(c for c in story.status().conditions if c.type == "PlacementVerified")
    assert (verified.status, verified.reason, verified.message) == (
        "False",
        "Mismatch",
        "other GPUs than planned: gpu-2 was to give 0,1,2,3,4,5,6,7 and gave "
        + ",".join(f"GPU-gpu-1-{index}" for index in range(8)),
    )


def test_all_succeeded_ends_the_job_and_keeps_its_pods() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    for name in story.pods():
        story.change_pod(name, phase="Succeeded")
    story.settle()
    assert story.status().state is State.SUCCEEDED
    assert story.pods() == ["train-a1-worker-00000", "train-a1-worker-00001"]
    assert all(len(view.free) == 8 for view in story.cluster.nodes.values())
    assert story.notices[-1].reason == "Succeeded"


def test_one_failed_pod_ends_the_job_and_the_others_are_deleted() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    terminated = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    story.change_pod(
        "train-a1-worker-00001", phase="Failed", containerStatuses=[{"name": "trainer", "state": terminated}]
    )
    story.settle()
    failed = next(c for c in story.status().conditions if c.type == "Failed")
    assert failed.message == (
        "container trainer of Pod train-a1-worker-00001 on node gpu-2 ended with exit code 137 (OOMKilled); "
        "its template sets no limit, so that its node had no more memory, or a LimitRange of the namespace sets one: "
        f"give resources.requests.memory and resources.limits.memory what it needs, or use less; {FIXED}"
    )
    assert story.status().state is State.FAILED
    assert story.pods() == ["train-a1-worker-00001"]
    assert ended(story) == [(1, "PodFailed", True)]
    assert all(len(view.free) == 8 for view in story.cluster.nodes.values())


def test_a_pod_deleted_before_its_gang_has_run_is_made_again_under_its_name() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.change_pod("train-a1-worker-00001", node="gpu-2", phase="Running")
    story.mark_deleted("train-a1-worker-00000")
    story.pass_time(1)
    before = len(story.written)
    story.settle()
    assert story.written[before:] == []  # it has the name until it is gone
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert story.written[before:] == ["create Pod train-a1-worker-00000"]
    assert (story.status().attempt, ended(story)) == (1, [])


def test_a_pod_deleted_again_and_again_is_made_again_at_growing_intervals() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.settle()
    made = []
    for second in range(200):
        if second == 100:
            story.answers.clear()  # the operator is restarted
        story.settle()
        if story.pods():
            made.append(second)
            story.remove_pod("train-a1-worker-00000")
        story.pass_time(1)
    assert made == [0, 1, 2, 4, 8, 16, 32, 64, 100, 160]
    assert story.status().attempt == 1


def test_a_claim_that_is_not_there_is_made_alone() -> None:
    """The operator was killed between a Pod and its claim."""
    story = two_dra_nodes()
    story.settle()
    del story.objects[("ResourceClaim", "team-b", "train-a1-worker-00001")]
    before = len(story.written)
    story.settle()
    assert story.written[before:] == ["create ResourceClaim train-a1-worker-00001"]
    uids = {name: story.objects[("Pod", "team-b", name)]["metadata"]["uid"] for name in story.pods()}
    claims = {name: story.objects[("ResourceClaim", "team-b", name)] for name in story.names("ResourceClaim")}
    assert {name: claim["metadata"]["ownerReferences"][0]["uid"] for name, claim in claims.items()} == uids


def test_a_pod_that_fails_for_the_loss_of_another_does_not_fail_its_job() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.change_pod("train-a1-worker-00001", node="gpu-2", phase="Failed")
    story.mark_deleted("train-a1-worker-00000")
    story.settle()
    assert ended(story) == [(1, "ChildDeleted", False)]


def test_a_pod_deleted_after_its_gang_has_run_ends_the_attempt_and_the_next_takes_the_same_place() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    placed = [node.name for node in (story.status().placement or pytest.fail("not placed")).nodes]
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert story.pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]
    assert story.names("Service") == ["train-a2"]
    assert ended(story) == [(1, "ChildDeleted", False)]
    assert (story.status().state, story.status().restarts) == (State.STARTING, 1)
    assert [node.name for node in (story.status().placement or pytest.fail("not placed")).nodes] == placed


def test_a_whole_gang_that_is_deleted_after_it_has_run_is_not_begun_again_under_its_names() -> None:
    story = Story(*dra_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.settle()
    story.run_all()
    story.settle()
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert story.pods() == ["train-a2-worker-00000"]


def test_the_next_attempt_waits_until_the_pods_of_the_one_before_are_gone_and_says_so() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    story.mark_deleted("train-a1-worker-00000")
    for plan in story.plans():
        assert [action.kind for action in plan.actions if isinstance(action, Delete)] == ["Pod", "Service"]
    story.mark_deleted("train-a1-worker-00001")  # deletion has been asked for, and has a grace period
    story.settle()
    assert story.written[-1].startswith("delete")
    assert {plan.wake_after_s for plan in story.plans()} == {5.0}
    story.pass_time(5)
    story.settle()
    assert story.pods() == ["train-a1-worker-00000", "train-a1-worker-00001"]
    running = next(c for c in story.status().conditions if c.type == "Running")
    assert (running.status, running.reason, running.message) == (
        "False",
        "Restarting",
        "waits until what is left of its Pods of before is gone: "
        "Pod train-a1-worker-00000 on node gpu-1, Pod train-a1-worker-00001 on node gpu-2",
    )
    before = len(story.written)
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert story.written[before:] == []  # not every Pod that goes is a status
    story.remove_pod("train-a1-worker-00001")
    story.settle()
    assert story.written[before:] == [
        "status Starting", "create Service train-a2", "create Pod train-a2-worker-00000",
        "create Pod train-a2-worker-00001",
    ]  # fmt: skip
    running = next(c for c in story.status().conditions if c.type == "Running")
    assert (running.reason, running.message) == ("Starting", "its Pods are being started")


def test_a_rank_whose_gpus_were_taken_has_the_gang_placed_anew() -> None:
    story = Story(*dra_node("gpu-1"), *dra_node("gpu-2"), training_job(spec={"gpus": 8}))
    story.settle()
    story.add(resource_claim("thief", *(("gpu-1", index) for index in range(8))))
    words = "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) didn't match Pod's node affinity."
    story.change_pod("train-a1-worker-00000", conditions=[unschedulable(words)])
    assert [plan.wake_after_s for plan in story.plans()] == [2.0]
    story.pass_time(2)
    story.settle()
    assert ended(story) == [(1, "GPUTaken", False)]
    assert story.pods() == ["train-a2-worker-00000"]
    assert [node.name for node in (story.status().placement or pytest.fail("not placed")).nodes] == ["gpu-2"]


def test_suspend_ends_the_attempt_uncharged_and_resume_begins_the_next() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    story.edit_job(suspend=True)
    story.settle()
    assert story.status().state is State.SUSPENDED
    assert story.status().observed_generation == 2
    assert (story.pods(), story.names("Service")) == ([], [])
    assert ended(story) == [(1, "Suspended", False)]
    story.edit_job(suspend=False)
    story.settle()
    assert story.status().state is State.STARTING
    assert conditions(story)["Suspended"] == "False"
    assert story.pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]


def test_a_job_suspended_from_the_start_holds_nothing() -> None:
    story = two_plugin_nodes(suspend=True)
    story.settle()
    assert (story.status().state, story.written) == (State.SUSPENDED, ["status Suspended"])


def test_a_refusal_that_only_the_creates_show_takes_back_what_was_made() -> None:
    story = two_plugin_nodes()
    words = "the API server refuses Pod team-b/train-a1-worker-00001: exceeded quota: pods"
    story.forbidden["train-a1-worker-00001"] = "exceeded quota: pods"
    story.settle()
    assert (story.pods(), story.names("Service")) == ([], [])
    assert story.status().placement is None
    message = (story.status().pending or pytest.fail("not pending")).message
    assert message == f"{words}; free some of it, change spec.template, or have an administrator raise it"
    assert (story.status().state, story.status().attempt) == (State.QUEUED, 1)


def renumbered(topology: dict[str, Any]) -> None:
    """After a restart of the machine its first two GPUs have each other's indexes."""
    first, second = topology["spec"]["gpus"][:2]
    first["uuid"], second["uuid"] = second["uuid"], first["uuid"]


def replaced(topology: dict[str, Any]) -> None:
    topology["spec"]["gpus"][7]["uuid"] += "-new"


@pytest.mark.parametrize("change", [renumbered, replaced])
def test_a_node_that_changed_before_all_pods_were_made_has_the_gang_placed_anew(change: Any) -> None:
    story = two_plugin_nodes()
    story.settle()
    story.remove_pod("train-a1-worker-00001")
    topology = story.objects[("NodeTopology", "", "gpu-2")]
    topology["metadata"]["generation"] = 5
    change(topology)
    story.settle()
    assert ended(story) == [(1, "NodeChanged", False)]
    assert story.pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]


def test_a_nodetopology_that_tells_more_of_the_same_gpus_changes_nothing() -> None:
    """As a newer agent's does, or one after another driver was loaded: the uuids are as they were booked."""
    story = two_plugin_nodes(restart={"limit": 1})
    story.settle()
    story.remove_pod("train-a1-worker-00001")
    for name in ("gpu-1", "gpu-2"):
        topology = story.objects[("NodeTopology", "", name)]
        topology["metadata"]["generation"] = 5
        topology["spec"]["source"]["driverVersion"] = "590.1"
    story.settle()
    story.pass_time(61)
    story.settle()
    assert (ended(story), story.pods()) == ([], ["train-a1-worker-00000", "train-a1-worker-00001"])
    story.run_all()
    story.settle()
    story.objects[("NodeTopology", "", "gpu-2")]["status"]["gpus"] = [
        {"index": 3, "state": "Unhealthy", "reasons": ["XID74"]}
    ]
    story.settle()
    (degraded,) = [each for each in story.status().conditions if each.type == "Degraded"]
    assert (degraded.message or "").startswith("GPU 3 of node gpu-2 (XID74)"), "and its faults are still seen"


def test_nics_that_went_with_the_generation_have_the_gang_placed_anew() -> None:
    story = Story(training_job(spec=WHOLE))
    for name in ("gpu-1", "gpu-2"):
        story.add(node(name, allocatable={"rdma/hca": "8"}))
        story.add({**node_topology(name), "spec": dgx1v(tag=name).wire()})
    story.settle()
    story.remove_pod("train-a1-worker-00001")
    topology = story.objects[("NodeTopology", "", "gpu-2")]
    topology["metadata"]["generation"] = 5
    topology["spec"]["nics"] = topology["spec"]["nics"][1:]
    story.settle()
    assert ended(story) == [(1, "NodeChanged", False)]


def test_nics_that_no_resource_exposes_any_more_have_the_gang_placed_anew() -> None:
    """Else a Pod that is made again would go without what its gang talks over."""
    story = Story(training_job(spec=WHOLE))
    for name in ("gpu-1", "gpu-2"):
        story.add(node(name, allocatable={"rdma/hca": "8"}))
        story.add({**node_topology(name), "spec": dgx1v(tag=name).wire()})
    story.settle()
    story.remove_pod("train-a1-worker-00001")
    assert booked_nodes(story)[0].nics == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    del story.objects[("Node", "", "gpu-2")]["status"]["allocatable"]["rdma/hca"]
    story.settle()
    assert ended(story) == [(1, "NodeChanged", False)]
    assert [assignment.nics for assignment in booked_nodes(story)] == [None, None]


def test_a_finished_job_is_left_alone_whatever_happens_to_its_pods() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.settle()
    story.run_all()
    story.settle()
    story.change_pod("train-a1-worker-00000", phase="Succeeded")
    story.settle()
    before = len(story.written)
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert story.written[before:] == []


def test_a_pod_of_ours_that_belongs_to_no_attempt_to_come_is_removed() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.add(worker("train", 0, attempt=3, node="gpu-1", job_uid="uid-of-train", requests={"nvidia.com/gpu": "8"}))
    story.settle()
    assert story.written[0] == "delete Pod train-a3-worker-00000"
    assert story.pods() == ["train-a1-worker-00000"]


def test_an_unknown_condition_of_somebody_else_stays() -> None:
    story = Story(
        *plugin_node("gpu-1"), training_job(spec={"gpus": 8}, conditions=[condition("Audited", reason="ByHand")])
    )
    story.settle()
    assert conditions(story)["Audited"] == "True"


def test_what_is_made_belongs_to_the_job() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.settle()
    for kind in ("Pod", "Service"):
        (made,) = [value for key, value in story.objects.items() if key[0] == kind]
        assert made["metadata"]["ownerReferences"] == [owner("train", uid="uid-of-train")]


def test_the_observed_generation_follows_every_change_of_the_spec() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.settle()
    story.edit_job(queue="research")
    story.settle()
    assert story.status().observed_generation == 2


def test_a_drained_node_is_left_though_its_gpus_are_free() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), *plugin_node("gpu-3"), training_job(spec=WHOLE))
    story.settle()
    story.run_all()
    story.settle()
    story.objects[("Node", "", "gpu-1")]["spec"]["unschedulable"] = True
    story.mark_deleted("train-a1-worker-00000")
    story.settle()
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert ended(story) == [(1, "Disrupted", False)]
    assert [assignment.name for assignment in booked_nodes(story)] == ["gpu-3", "gpu-2"]
