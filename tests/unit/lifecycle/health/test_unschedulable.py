"""A gang that a node or the scheduler keeps from running: how long that is watched, how it ends, where it goes on."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.conditions import timestamp
from scenarios.manifests import device_taint_rule, node, node_topology, training_job, uuids
from scenarios.stories import WHOLE, booked_nodes, ended, nodes, unschedulable
from scenarios.story import NOW, Story, dra_node, plugin_node

ANTI_AFFINITY = "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) didn't match ..."
KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])


def one_of(*nodes: str, kind: Callable[[str], list[dict[str, Any]]] = plugin_node) -> Story:
    """A job of one whole node, started on the first of these."""
    story = Story(*(manifest for name in nodes for manifest in kind(name)), training_job(spec={"gpus": 8}))
    story.settle()
    assert [node.name for node in booked_nodes(story)] == ["gpu-1"]
    return story


def refuse(story: Story, words: str = ANTI_AFFINITY) -> None:
    """The scheduler refuses what is not bound yet."""
    for name in story.pods():
        if not story.pod(name)["spec"].get("nodeName"):
            story.change_pod(name, conditions=[unschedulable(words, timestamp(story.now))])


@KINDS
def test_a_rank_that_the_scheduler_refuses_for_half_a_minute_has_the_gang_placed_elsewhere(kind: Any) -> None:
    story = one_of("gpu-1", "gpu-2", kind=kind)
    refuse(story)
    story.pass_time(29)
    story.settle()
    assert (story.status().attempt, [plan.wake_after_s for plan in story.plans()]) == (1, [1.0])
    story.pass_time(1)
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "Unschedulable", False)], ["gpu-2"])
    message = f"Pod train-a1-worker-00000 cannot be scheduled on node gpu-1: {ANTI_AFFINITY}"
    assert story.status().attempts[0].message == message
    assert [node.name for node in story.status().attempts[0].unfit or []] == ["gpu-1"]
    assert (story.notices[-2].reason, story.notices[-2].note) == ("Unschedulable", message)


def test_only_nodes_that_refused_a_pod_are_avoided() -> None:
    story = Story(*(each for number in "1234" for each in plugin_node(f"gpu-{number}")), training_job(spec=WHOLE))
    story.settle()
    story.change_pod("train-a1-worker-00000", node="gpu-1", phase="Running")
    refuse(story)
    story.pass_time(30)
    story.settle()
    assert nodes(story) == ["gpu-1", "gpu-3"]


def test_nodes_are_avoided_after_a_restart_of_the_operator_too_for_ten_minutes() -> None:
    story = one_of("gpu-1")
    refuse(story)
    story.pass_time(30)
    story.settle()
    story.answers.clear()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, pending.message) == (
        "InsufficientGPUs",
        "needs 8 GPUs; 0 are free; 1 node excluded: gpu-1 (avoided after it refused a Pod of this job); "
        "gpu-1 is avoided until 2026-11-21T10:10:30Z since attempt 1 ended there: "
        f"Pod train-a1-worker-00000 cannot be scheduled on node gpu-1: {ANTI_AFFINITY}",
    )
    story.pass_time(599)
    story.settle()
    assert (story.status().state, story.decide().wake_at) == (State.RESTARTING, story.now + timedelta(seconds=1))
    story.pass_time(1)
    story.settle()
    assert nodes(story) == ["gpu-1"]


def test_a_node_that_changes_is_taken_again() -> None:
    story = one_of("gpu-1")
    refuse(story)
    story.pass_time(30)
    story.settle()
    assert story.status().placement is None
    story.objects[("Node", "", "gpu-1")]["metadata"]["labels"]["zone"] = "b"
    story.settle()
    assert nodes(story) == ["gpu-1"]


def test_a_node_does_not_change_by_what_the_gang_itself_has_taken_there() -> None:
    """Each node has two kinds of NICs for one Pod each: which is left depends on who is there."""
    nics = {"rdma/a": "1", "rdma/b": "1"}
    active = [{"name": "mlx5_0", "transport": "RoCE", "rateGbps": 400, "state": "Active"}]
    story = Story(training_job(spec={"gpus": 16}))
    for name in ("gpu-1", "gpu-2"):
        topology = node_topology(name)
        topology["spec"]["nics"] = active
        story.add(node(name, allocatable=nics))
        story.add(topology)
    story.settle()
    assert booked_nodes(story)[0].rdma_resource == "rdma/a"
    refuse(story)
    story.pass_time(30)
    story.settle()
    story.pass_time(500)
    story.settle()
    assert (ended(story), story.status().placement) == ([(1, "Unschedulable", False)], None)


def test_another_job_goes_where_one_was_refused() -> None:
    story = one_of("gpu-1")
    refuse(story)
    story.pass_time(30)
    story.settle()
    story.add(training_job("next", spec={"gpus": 8}))
    story.settle()
    assert story.status("next").state is State.STARTING


def cordon(story: Story) -> None:
    story.objects[("Node", "", "gpu-1")]["spec"]["unschedulable"] = True


def taint(story: Story) -> None:
    story.objects[("Node", "", "gpu-1")]["spec"]["taints"] = [{"key": "maintenance", "effect": "NoSchedule"}]


def remove(story: Story) -> None:
    del story.objects[("Node", "", "gpu-1")], story.objects[("NodeTopology", "", "gpu-1")]


def silence(story: Story) -> None:
    story.lose_node("gpu-1")


def sicken(story: Story) -> None:
    sick = [{"index": index, "state": "Unhealthy", "reasons": ["XID79"]} for index in range(8)]
    story.objects[("NodeTopology", "", "gpu-1")]["status"] = {"gpus": sick}


@pytest.mark.parametrize(
    "words",
    [
        'persistentvolumeclaim "data" not found',
        "pod has unbound immediate PersistentVolumeClaims",
        'resourceclaim "net" not found',
    ],
)
def test_for_an_object_that_lacks_no_node_is_to_blame_and_the_job_holds_nothing(words: str) -> None:
    story = one_of("gpu-1", "gpu-2")
    refuse(
        story, f"0/2 nodes are available: {words}. preemption: 0/2 nodes are available: 2 Preemption is not helpful."
    )
    story.pass_time(30)
    story.settle()
    assert (ended(story), story.status().placement) == ([(1, "ObjectMissing", False)], None)
    assert words in (story.status().attempts[0].message or "")
    assert story.status().attempts[0].unfit is None
    story.pass_time(14)
    story.settle()
    assert story.status().placement is None
    story.pass_time(1)
    story.settle()
    assert nodes(story) == ["gpu-1"]


@KINDS
@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(cordon, "has the taint node.kubernetes.io/unschedulable:NoSchedule, which", id="cordoned"),
        pytest.param(taint, "it has the taint maintenance:NoSchedule, which the job does not tolerate", id="tainted"),
        pytest.param(remove, "node gpu-1 is no longer there", id="gone"),
        pytest.param(silence, "the Node's Ready condition is Unknown (NodeStatusUnknown)", id="not ready"),
        pytest.param(sicken, "none of its 8 GPUs is healthy", id="unhealthy"),
    ],
)
def test_a_node_that_turns_unfit_before_its_pod_is_bound_is_left_at_once(kind: Any, change: Any, words: str) -> None:
    story = one_of("gpu-1", "gpu-2", kind=kind)
    change(story)
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "NodeChanged", False)], ["gpu-2"])
    assert words in (story.status().attempts[0].message or "")


def test_a_bound_pod_that_a_silent_node_does_not_start_is_waited_for_as_long_as_a_kubelet_may_restart() -> None:
    story = one_of("gpu-1", "gpu-2")
    story.change_pod("train-a1-worker-00000", node="gpu-1")
    story.lose_node("gpu-1")
    story.pass_time(29)
    story.settle()
    assert (ended(story), [plan.wake_after_s for plan in story.plans()]) == ([], [1.0])
    story.pass_time(1)
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "NodeChanged", False)], ["gpu-2"])
    assert story.pods() == ["train-a1-worker-00000", "train-a2-worker-00000"]


def test_a_node_that_is_silent_for_a_moment_is_no_reason_to_go() -> None:
    story = one_of("gpu-1", "gpu-2")
    story.change_pod("train-a1-worker-00000", node="gpu-1")
    story.lose_node("gpu-1")
    story.pass_time(20)
    story.settle()
    story.recover_node("gpu-1")
    story.pass_time(20)
    story.settle()
    story.run_all()
    story.settle()
    assert (story.status().state, story.status().attempt) == (State.RUNNING, 1)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (
            "UnexpectedAdmissionError",
            "Pod was rejected: Allocate failed due to no devices left",
        ),
        ("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 96000, used: 64000"),
        ("TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality"),
    ],
)
def test_a_pod_that_its_kubelet_does_not_take_is_not_charged_and_its_node_is_avoided(reason: str, message: str) -> None:
    story = one_of("gpu-1", "gpu-2")
    story.change_pod("train-a1-worker-00000", node="gpu-1", phase="Failed", reason=reason, message=message)
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "NodeRefused", False)], ["gpu-2"])
    said = f"node gpu-1 refused Pod train-a1-worker-00000: {reason} ({message})"
    assert story.status().attempts[0].message == said
    assert story.pods() == ["train-a2-worker-00000"]


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"reason": "DeadlineExceeded"}, id="the template's own deadline"),
        pytest.param(
            {"reason": "Evicted", "message": 'Usage of EmptyDir volume "data" exceeds the limit.', "containers": True},
            id="the Pod's own limit of storage",
        ),
        pytest.param({}, id="no reason"),
    ],
)
def test_a_pod_that_fails_by_its_own_fault_is_charged(status: dict[str, Any]) -> None:
    story = one_of("gpu-1", "gpu-2")
    terminated = [{"name": "trainer", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}]
    containers = terminated if status.pop("containers", False) else []
    story.change_pod("train-a1-worker-00000", node="gpu-1", phase="Failed", containerStatuses=containers, **status)
    story.settle()
    assert (story.status().state, ended(story)) == (State.FAILED, [(1, "PodFailed", True)])


@pytest.mark.parametrize("message", ["", "evicted by a kubelet of the year 2030"], ids=["no words", "words of others"])
def test_an_eviction_that_nobody_understands_is_not_charged(message: str) -> None:
    story = one_of("gpu-1", "gpu-2")
    story.run_all()
    story.settle()
    story.change_pod("train-a1-worker-00000", phase="Failed", reason="Evicted", message=message)
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "NodeRefused", False)], ["gpu-2"])


def test_gpus_that_a_claim_of_the_jobs_own_still_holds_are_taken_by_nobody() -> None:
    """The claim controller comes round to it some seconds after its Pod is gone."""
    story = one_of("gpu-1", "gpu-2", kind=dra_node)
    story.run_all()
    story.settle()
    left_over = story.objects[("ResourceClaim", "team-b", "train-a1-worker-00000")]
    story.remove_pod("train-a1-worker-00000")
    story.add(left_over)
    story.settle()
    assert (story.status().attempt, nodes(story), story.pods()) == (2, ["gpu-1"], [])
    del story.objects[("ResourceClaim", "team-b", "train-a1-worker-00000")]
    story.settle()
    assert (story.status().attempt, nodes(story), story.pods()) == (2, ["gpu-1"], ["train-a2-worker-00000"])


def test_beside_a_claim_of_the_templates_own_nobody_is_said_to_have_taken_gpus() -> None:
    own = {"containers": [{"name": "trainer"}], "resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}]}
    story = Story(*dra_node("gpu-1"), training_job(spec={"gpus": 8, "template": {"spec": own}}))
    story.settle()
    refuse(story, "0/1 nodes are available: 1 cannot allocate all claims.")
    story.pass_time(29)
    story.settle()
    assert ended(story) == []
    story.pass_time(1)
    story.settle()
    assert ended(story) == [(1, "Unschedulable", False)]


def test_a_gpu_that_a_rule_taints_is_left_out_and_its_node_is_not() -> None:
    story = Story(*dra_node("gpu-1"), device_taint_rule(pool="gpu-1", device="gpu-0"))
    story.add(training_job(spec={"gpus": 4}))
    story.settle()
    assert [(each.name, each.gpus) for each in booked_nodes(story)] == [("gpu-1", [1, 2, 3, 4])]
    # One more, before the scheduler has given the Pod its GPUs.
    story.add(device_taint_rule("more", pool="gpu-1", device="gpu-2"))
    refuse(story, "0/1 nodes are available: 1 cannot allocate all claims.")
    story.pass_time(2)
    story.settle()
    assert ended(story) == [(1, "GPUTaken", False)]
    assert [each.devices for each in story.status().attempts[0].unfit or ()] == [uuids("gpu-1", 2)]
    assert [(each.name, each.gpus) for each in booked_nodes(story)] == [("gpu-1", [1, 3, 4, 5])]


@pytest.mark.parametrize(
    ("since", "attempt"),
    [
        pytest.param("2026-11-21T16:00:00Z", 2, id="six hours ahead: nobody waits for that"),
        pytest.param("2026-11-21T10:00:03Z", 1, id="three seconds ahead: another machine's clock"),
        pytest.param("2026-11-21T04:00:00Z", 2, id="six hours ago"),
        pytest.param("last Tuesday", 2, id="no time at all"),
        pytest.param("2026-11-21T09:59:50", 1, id="without a zone"),
    ],
)
def test_a_pause_is_never_longer_than_its_own_length_whatever_a_clock_says(since: str, attempt: int) -> None:
    story = one_of("gpu-1", "gpu-2")
    story.change_pod("train-a1-worker-00000", conditions=[unschedulable(ANTI_AFFINITY, since)])
    story.settle()
    assert story.status().attempt == attempt
    assert all((plan.wake_after_s or 0) <= 35 for plan in story.plans())


@pytest.mark.parametrize("hours", [-6, 6])
def test_avoiding_a_node_ends_when_the_clock_is_set(hours: int) -> None:
    story = one_of("gpu-1")
    refuse(story)
    story.pass_time(30)
    story.settle()
    assert story.status().placement is None
    story.pass_time(3600 * hours)
    story.settle()
    assert nodes(story) == ["gpu-1"]


def test_a_template_that_no_node_takes_is_tried_in_a_slow_rhythm() -> None:
    """GPUs are held for the half minute of each try, and free in between."""
    story = one_of("gpu-1", "gpu-2", "gpu-3")
    held_s = 0.0
    while story.now < NOW + timedelta(hours=2):
        story.settle()
        is_held = story.status().placement is not None
        if is_held:
            refuse(story)
        wake_at = story.decide().wake_at
        assert wake_at is not None
        held_s += (wake_at - story.now).total_seconds() if is_held else 0
        story.now = wake_at
    hours = (story.now - NOW) / timedelta(hours=1)
    assert 6 <= (story.status().attempt or 0) / hours <= 20
    assert held_s / 3600 / hours < 0.25


def test_a_rank_that_ends_on_a_dead_node_before_its_gang_has_run_does_not_hold_the_others() -> None:
    story = Story(*(each for number in "123" for each in plugin_node(f"gpu-{number}")), training_job(spec=WHOLE))
    story.settle()
    story.change_pod("train-a1-worker-00000", node="gpu-1", phase="Running")
    story.change_pod("train-a1-worker-00001", node="gpu-2")  # still pulls its image
    story.mark_deleted("train-a1-worker-00000")
    story.settle()
    story.lose_node("gpu-1")
    story.pass_time(29)
    story.settle()
    assert (story.status().attempt, [plan.wake_after_s for plan in story.plans()]) == (1, [1.0])
    story.pass_time(1)
    story.settle()
    assert (ended(story), nodes(story)) == ([(1, "NodeChanged", False)], ["gpu-3", "gpu-2"])
    words = "Pod train-a1-worker-00000 is deleted and not gone, and its node gpu-1 is not ready: "
    assert (story.status().attempts[0].message or "").startswith(words)
