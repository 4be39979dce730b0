"""Nodes that keep a gang from running though they look fit, and Pods that never go: where the job goes on."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.status.pauses import LINGERS_AFTER
from scenarios.machines import dgx1v
from scenarios.manifests import device_class, nic_slice, node, node_topology, pod, resource_claim, training_job, worker
from scenarios.stories import WHOLE, booked_nodes, ended, nodes, unschedulable
from scenarios.story import Story, dra_node, plugin_node

ANTI_AFFINITY = "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules"
TAKEN = {
    plugin_node: "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node affinity.",
    dra_node: "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) didn't match Pod's node affinity.",
}
KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])


def refuse(story: Story, words: str, seconds: int) -> None:
    """The scheduler refuses what is not bound yet, for so long."""
    for name in story.pods():
        if not story.pod(name)["spec"].get("nodeName"):
            story.change_pod(name, conditions=[unschedulable(words, timestamp(story.now))])
    story.pass_time(seconds)
    story.settle()


def nodes_of(count: int, kind: Any = plugin_node, **spec: Any) -> Story:
    made = (each for number in range(1, count + 1) for each in kind(f"gpu-{number}"))
    story = Story(*made, training_job(spec={"gpus": 8, **spec}))
    story.settle()
    return story


@KINDS
def test_gpus_that_the_scheduler_finds_taken_twice_by_nobody_we_see_are_not_booked_a_third_time(kind: Any) -> None:
    story = nodes_of(2, kind)
    refuse(story, TAKEN[kind], 2)
    assert nodes(story) == ["gpu-1"]
    refuse(story, TAKEN[kind], 2)
    story.pass_time(2)  # the pause of the second in a row
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "GPUTaken", False), (2, "GPUTaken", False)], ["gpu-2"])


def gpus(story: Story) -> list[tuple[str, list[int]]]:
    return [(each.name, each.gpus) for each in booked_nodes(story)]


def refused_twice(story: Story) -> None:
    """Once is bad luck."""
    before = gpus(story)
    refuse(story, TAKEN[dra_node], 2)
    assert gpus(story) == before
    refuse(story, TAKEN[dra_node], 2)
    story.pass_time(2)
    story.settle()


def test_other_gpus_of_the_node_are_tried_before_it_is_left() -> None:
    """One of them is tainted by a rule, say, or its driver does not let go of it: seven are as good as ever."""
    story = nodes_of(1, dra_node, gpus=1)
    ((_, first),) = gpus(story)
    refused_twice(story)
    ((_, second),) = gpus(story)
    assert first != second
    (unfit,) = story.status().attempts[-1].unfit or []
    uuid = next(gpu for gpu in topology_uuids(story) if gpu.endswith(f"-{first[0]}"))
    assert (unfit.name, unfit.devices) == ("gpu-1", [uuid])
    story.answers.clear()
    story.run_all()
    story.settle()
    assert (story.status().state, story.status().attempt) == (State.RUNNING, 3)


def topology_uuids(story: Story) -> list[str]:
    return [gpu["uuid"] for gpu in story.objects[("NodeTopology", "", "gpu-1")]["spec"]["gpus"]]


def test_the_gpus_of_one_node_are_tried_until_half_of_them_were_not_given() -> None:
    story = nodes_of(1, dra_node, gpus=2)
    refused_twice(story)
    refuse(story, TAKEN[dra_node], 2)
    story.pass_time(4)
    story.settle()
    tried = [each.devices for attempt in story.status().attempts for each in attempt.unfit or ()]
    assert [None if each is None else len(each) for each in tried] == [2, 2]
    refuse(story, TAKEN[dra_node], 2)
    assert [each.devices for each in story.status().attempts[-1].unfit or ()] == [None]
    story.pass_time(60)
    story.settle()
    assert story.status().placement is None
    assert (story.status().pending or pytest.fail("is told")).message.startswith("needs 2 GPUs; 0 are free")


def test_gpus_that_are_avoided_are_told_and_taken_again_after_ten_minutes() -> None:
    story = nodes_of(1, dra_node, gpus=4)
    refused_twice(story)
    story.add(pod("other", node="gpu-1", uid="x"))
    story.edit_job(suspend=True)
    story.settle()
    taken = [("gpu-1", index) for index in range(4, 8)]
    story.add(resource_claim("others", *taken))
    story.edit_job(suspend=False)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert "8 excluded: 4 avoided after not being given to this job, 4 held by 1 claim" in pending.message
    assert (
        "4 of the GPUs of gpu-1 are avoided until 2026-11-21T10:10:04Z since attempt 2 ended there" in pending.message
    )
    story.pass_time(600)
    story.settle()
    assert gpus(story) == [("gpu-1", [0, 1, 2, 3])]


def test_of_a_whole_node_no_other_gpus_are_left() -> None:
    story = nodes_of(2, dra_node)
    refused_twice(story)
    assert nodes(story) == ["gpu-2"]


def test_another_job_is_given_the_gpus_that_one_avoids() -> None:
    story = nodes_of(1, dra_node, gpus=4)
    first = gpus(story)
    refused_twice(story)
    story.add(training_job("next", spec={"gpus": 4}))
    story.settle()
    placement = story.status("next").placement
    assert placement is not None and [(each.name, each.gpus) for each in placement.nodes] == first


@pytest.mark.parametrize(
    ("kind", "expected"), [(dra_node, [("gpu-1", [1])]), (plugin_node, [("gpu-2", [0])])], ids=["DRA", "plugin"]
)
def test_a_gpu_that_its_driver_names_is_avoided_and_the_node_where_a_plugin_chooses(kind: Any, expected: Any) -> None:
    story = nodes_of(2, kind, gpus=1)
    assert gpus(story) == [("gpu-1", [0])]
    message = f"nvidia-container-cli: device error: {topology_uuids(story)[0]}: unknown device: unknown"
    state = {"terminated": {"exitCode": 128, "reason": "StartError", "message": message}}
    states = [{"name": "trainer", "state": state}]
    story.change_pod("train-a1-worker-00000", node="gpu-1", phase="Failed", containerStatuses=states)
    story.settle()
    assert (ended(story), gpus(story)) == ([(1, "NodeRefused", False)], expected)


def test_gpus_that_somebody_is_seen_to_hold_are_booked_as_soon_as_they_are_free() -> None:
    story = nodes_of(1, dra_node)
    for number in (1, 2):
        story.add(resource_claim("thief", *(("gpu-1", index) for index in range(8))))
        refuse(story, TAKEN[dra_node], 2)
        assert story.status().placement is None
        del story.objects[("ResourceClaim", "ml", "thief")]
        story.pass_time(number * 2 - 2)
        story.settle()
        assert nodes(story) == ["gpu-1"]


def test_a_node_is_avoided_no_less_because_another_pod_leaves_its_nics() -> None:
    """Which `rdma/` resource is left first changes with every Pod that takes one, our own among them."""
    story = Story(
        node("gpu-1", allocatable={"rdma/a": "1", "rdma/b": "1"}),
        {**node_topology("gpu-1"), "spec": dgx1v(tag="gpu-1").wire()},
        pod("daemon", node="gpu-1", requests={"rdma/a": "1"}),
        training_job(spec={"gpus": 8}),
    )
    story.settle()
    refuse(story, ANTI_AFFINITY, 30)
    del story.objects[("Pod", "ml", "daemon")]
    story.settle()
    assert (story.status().placement, story.status().attempt) == (None, 2)
    story.objects[("Node", "", "gpu-1")]["status"]["allocatable"]["rdma/b"] = "0"
    story.settle()
    assert nodes(story) == ["gpu-1"]


def test_a_node_is_tried_again_once_its_claimable_nics_change() -> None:
    dranet = device_class("dranet", selectors=["device.driver == 'dra.net'"])
    spec = dgx1v(tag="gpu-1").wire()
    nics = [{**nic, "pciAddress": f"0000:{row:02x}:00.0"} for row, nic in enumerate(spec["nics"], start=26)]
    story = Story(
        node("gpu-1"),
        {**node_topology("gpu-1"), "spec": {**spec, "nics": nics}},
        nic_slice("gpu-1", ["0000:1a:00.0"]),
        dranet,
        training_job(spec={"gpus": 8}),
    )
    story.settle()
    refuse(story, ANTI_AFFINITY, 30)
    assert (story.status().placement, story.status().attempt) == (None, 2)
    story.add(nic_slice("gpu-1", ["0000:1a:00.0", "0000:1b:00.0"]))
    story.settle()
    assert nodes(story) == ["gpu-1"]


def test_a_node_that_refused_a_pod_is_avoided_though_another_pod_is_missing() -> None:
    story = nodes_of(3, **WHOLE)
    words = {"reason": "UnexpectedAdmissionError", "message": "no devices left"}
    story.change_pod("train-a1-worker-00000", node="gpu-1", phase="Failed", **words)
    story.remove_pod("train-a1-worker-00001")
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "NodeRefused", False)], ["gpu-2", "gpu-3"])


def test_a_node_that_refused_a_pod_is_avoided_though_another_node_was_cordoned_then() -> None:
    story = nodes_of(4, **WHOLE)
    story.objects[("Node", "", "gpu-1")]["spec"]["unschedulable"] = True
    refuse(story, ANTI_AFFINITY, 30)
    assert (ended(story), nodes(story)) == ([(1, "NodeChanged", False)], ["gpu-3", "gpu-4"])


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="not bound: a finalizer holds it"),
        pytest.param({"node": "gpu-1"}, id="bound"),
        pytest.param({"node": "gpu-1", "phase": "Running"}, id="a process that no signal ends"),
    ],
)
def test_a_gang_does_not_wait_for_ever_for_a_pod_that_was_deleted_and_does_not_go(status: dict[str, Any]) -> None:
    story = nodes_of(4, **WHOLE)
    story.change_pod("train-a1-worker-00001", node="gpu-2", phase="Running")
    story.change_pod("train-a1-worker-00000", **status)
    story.mark_deleted("train-a1-worker-00000")
    story.pod("train-a1-worker-00000")["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"  # a grace of an hour
    story.settle()
    story.pass_time(3629)
    story.settle()
    assert (ended(story), [plan.wake_after_s for plan in story.plans()]) == ([], [1.0])
    story.pass_time(1)
    story.settle()
    assert ended(story) == [(1, "ChildDeleted", False)]
    assert story.status().attempts[0].message == (
        "Pod train-a1-worker-00000 was deleted before the gang ran, and is not gone; the job starts again"
    )


def test_a_pod_that_is_deleted_on_a_silent_node_is_not_given_its_grace_period() -> None:
    story = nodes_of(4, **WHOLE)
    story.change_pod("train-a1-worker-00000", node="gpu-1", phase="Running")
    story.mark_deleted("train-a1-worker-00000")
    story.pod("train-a1-worker-00000")["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"
    story.lose_node("gpu-1")
    story.pass_time(30)
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "NodeChanged", False)], ["gpu-3", "gpu-2"])


@pytest.mark.parametrize("deleted", ["2026-11-21T10:00:00Z", "2026-11-21T10:01:00Z"])
def test_a_pod_that_does_not_go_has_its_number_passed_over(deleted: str) -> None:
    """Of a job that was restored without its status, or whose attempt was taken back under its number."""
    left = worker(attempt=1, node="gpu-1", phase="Succeeded")
    left["metadata"]["deletionTimestamp"] = deleted
    story = Story(*plugin_node("gpu-1"), left, training_job(spec={"gpus": 8}))
    story.settle()
    wake_at = story.decide().wake_at
    assert story.pods() == ["train-a1-worker-00000"]
    assert wake_at is not None and timestamp(wake_at - LINGERS_AFTER) == deleted
    story.now = wake_at
    story.settle()
    assert story.pods() == ["train-a1-worker-00000", "train-a2-worker-00000"]


def test_a_gang_that_succeeded_is_not_suspended_any_more() -> None:
    story = nodes_of(2, **WHOLE)
    story.run_all()
    story.settle()
    for name in story.pods():
        story.change_pod(name, phase="Succeeded")
    story.edit_job(suspend=True)
    story.settle()
    story.edit_job(suspend=False)
    story.settle()
    assert (story.status().state, ended(story)) == (State.SUCCEEDED, [(1, "Succeeded", False)])


def test_a_pod_that_succeeded_may_be_deleted_as_slowly_as_it_likes() -> None:
    story = nodes_of(2, **WHOLE)
    story.change_pod("train-a1-worker-00000", node="gpu-1", phase="Succeeded")
    story.mark_deleted("train-a1-worker-00000")
    story.pass_time(600)
    story.settle()
    assert (ended(story), story.status().attempt) == ([], 1)
