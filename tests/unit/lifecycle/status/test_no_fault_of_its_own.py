"""How Pods end, and who bears it: what Kubernetes does to a gang is not charged to its job."""

from collections.abc import Mapping
from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.cluster.booking.booking import decoded
from closeknit.lifecycle.status.degraded import FIXED
from scenarios.machines import dgx1v
from scenarios.manifests import node, node_topology, training_job
from scenarios.stories import WHOLE, booked_nodes, conditions, disruption, ended, two_plugin_nodes
from scenarios.story import Story, plugin_node

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


FAILED = "train-a1-worker-00001"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Terminated", "Pod was terminated in response to imminent node shutdown."),
        ("NodeShutdown", "Pod was rejected as the node is shutting down."),
        ("Shutdown", "Node is shutting, evicting pods"),
        ("Preempting", "Preempted in order to admit critical pod"),
        (
            "Evicted",
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. Container "
            "trainer was using 80Gi, request is 0, has larger consumption of ephemeral-storage.",
        ),
    ],
)
def test_a_pod_that_its_node_ends_is_not_charged_though_nobody_marks_it(reason: str, message: str) -> None:
    """And what the kubelet says of it is told: not the exit code, after which people look for want of memory."""
    story = running()
    killed = [{"name": "trainer", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}]
    story.change_pod("train-a1-worker-00000", phase="Failed", containerStatuses=EXIT_1)
    story.change_pod(FAILED, phase="Failed", reason=reason, message=message, containerStatuses=killed)
    story.settle()
    assert ended(story) == [(1, "Disrupted", False)]
    words = f"node gpu-2 ended Pod {FAILED}: {reason} ({message}); the job starts again"
    assert story.status().attempts[0].message == words


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (255, "Unknown", ""),
        (137, "ContainerStatusUnknown", "The container could not be located when the pod was terminated"),
    ],
)
def test_a_container_that_a_node_lost_is_not_charged(code: int, reason: str, message: str) -> None:
    """As containerd and the kubelet tell it after a reboot."""
    story = running()
    lost = {"exitCode": code, "reason": reason, "message": message}
    story.change_pod("train-a1-worker-00000", phase="Failed", containerStatuses=EXIT_1)
    story.change_pod(FAILED, phase="Failed", containerStatuses=[{"name": "trainer", "state": {"terminated": lost}}])
    story.settle()
    assert ended(story) == [(1, "NodeLost", False)]
    assert story.status().state is State.STARTING
    assert "node gpu-2 lost a container of Pod train-a1-worker-00001" in (story.status().attempts[0].message or "")


def test_a_container_that_a_node_lost_beside_the_trainer_is_no_excuse_for_it() -> None:
    story = running()
    lost = {"name": "exporter", "state": {"terminated": {"exitCode": 255, "reason": "Unknown"}}}
    story.change_pod(FAILED, phase="Failed", containerStatuses=[lost, *EXIT_1])
    story.settle()
    assert ended(story) == [(1, "PodFailed", True)]


@pytest.mark.parametrize("failed", [0, 1])
def test_what_fails_while_a_node_of_the_gang_is_not_ready_is_not_charged(failed: int) -> None:
    """A rank whose peer is on a dead node fails like one on it."""
    story = running()
    story.lose_node("gpu-2")
    story.change_pod(f"train-a1-worker-{failed:05d}", phase="Failed", containerStatuses=EXIT_1)
    story.settle()
    assert ended(story) == [(1, "NodeLost", False)]
    assert "failed while node gpu-2 is not ready" in (story.status().attempts[0].message or "")


STORE = "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined."
BARRIER = "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0"
LONG = {"startedAt": "2026-11-21T10:00:00Z", "finishedAt": "2026-11-21T10:15:01Z"}
PULLED = {"name": "trainer", "state": {"waiting": {"reason": "ContainerCreating"}}}


def while_one_starts(**terminated: Any) -> Story:
    """A gang whose first Pod has failed so while the image of the second is pulled."""
    story = two_plugin_nodes()
    story.settle()
    story.change_pod(FAILED, node="gpu-2", phase="Pending", containerStatuses=[PULLED])
    state = {"terminated": {"exitCode": 1, "reason": "Error", **terminated}}
    failed = [{"name": "trainer", "state": state}]
    story.change_pod("train-a1-worker-00000", node="gpu-1", phase="Failed", containerStatuses=failed)
    story.settle()
    return story


@pytest.mark.parametrize(
    "terminated",
    [
        pytest.param({"message": STORE}, id="torchrun's words"),
        pytest.param({"message": BARRIER}, id="JAX's words"),
        pytest.param({"message": "ssh: Could not resolve hostname train-a1-worker-00001"}, id="ssh's words"),
        pytest.param(LONG, id="a long time, and no word"),
    ],
)
def test_a_rank_that_waits_in_vain_for_one_that_has_not_started_is_not_charged(terminated: dict[str, Any]) -> None:
    story = while_one_starts(**terminated)
    assert ended(story) == [(1, "RankNotStarted", False)]
    assert story.status().state is State.STARTING
    assert story.status().attempts[0].message == (
        f"Pod train-a1-worker-00000 on node gpu-1 gave up while Pod {FAILED} on node gpu-2 had not started "
        "(ContainerCreating); the job starts again"
    )
    assert story.status().attempts[0].unfit is None


@pytest.mark.parametrize(
    "terminated",
    [
        pytest.param({"message": "ModuleNotFoundError: No module named 'apex'"}, id="an error of its own"),
        pytest.param({"exitCode": 137, "reason": "OOMKilled", **LONG}, id="want of memory"),
        pytest.param({"startedAt": "tomorrow", "finishedAt": ""}, id="a clock that tells nothing"),
    ],
)
def test_a_rank_that_fails_by_itself_is_charged_though_another_has_not_started(terminated: dict[str, Any]) -> None:
    assert ended(while_one_starts(**terminated)) == [(1, "PodFailed", True)]


def test_a_time_out_of_a_gang_that_runs_is_charged() -> None:
    story = running()
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": STORE, **LONG}}
    story.change_pod(FAILED, phase="Failed", containerStatuses=[{"name": "trainer", "state": state}])
    story.settle()
    assert ended(story) == [(1, "PodFailed", True)]


def test_what_fails_while_a_node_of_others_is_not_ready_is() -> None:
    story = running()
    story.add(node("gpu-3"))
    story.lose_node("gpu-3")
    story.change_pod(FAILED, phase="Failed", containerStatuses=EXIT_1)
    story.settle()
    assert ended(story) == [(1, "PodFailed", True)]


@pytest.mark.parametrize(
    ("message", "is_of_driver"),
    [
        ("OCI runtime create failed: nvidia-container-cli: device error: GPU-3: unknown device: unknown", True),
        ("failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=3: CDI device injection failed", True),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown", True),
        ('exec: "tarin.py": executable file not found in $PATH: unknown', False),
    ],
)
def test_a_container_that_its_devices_keep_from_starting_is_its_nodes_fault(message: str, is_of_driver: bool) -> None:
    story = Story(*(each for n in "123" for each in [node(f"gpu-{n}"), node_topology(f"gpu-{n}")]))
    story.add(training_job(spec=WHOLE))
    story.settle()
    said = {"exitCode": 128, "reason": "StartError", "message": message}
    states = [{"name": "trainer", "state": {"terminated": said}}]
    story.change_pod(FAILED, node="gpu-2", phase="Failed", containerStatuses=states)
    story.settle()
    if is_of_driver:
        assert (ended(story), [each.name for each in booked_nodes(story)]) == (
            [(1, "NodeRefused", False)],
            ["gpu-1", "gpu-3"],
        )
    else:
        assert ended(story) == [(1, "PodFailed", True)]


@pytest.mark.parametrize("fails", [False, True], ids=["its peer waits", "its peer gives up"])
@pytest.mark.parametrize("reason", ["CreateContainerError", "RunContainerError"])
def test_a_container_that_is_made_again_and_again_for_want_of_devices_keeps_no_gpus(reason: str, fails: bool) -> None:
    """A kubelet does that whatever the restartPolicy, so that the Pod never fails."""
    story = Story(*(each for n in "123" for each in [node(f"gpu-{n}"), node_topology(f"gpu-{n}")]))
    story.add(training_job(spec=WHOLE))
    story.settle()
    peer: dict[str, Any] = {"phase": "Failed", "containerStatuses": EXIT_1} if fails else {"phase": "Running"}
    story.change_pod("train-a1-worker-00000", node="gpu-1", **peer)
    words = "failed to inject CDI devices: unresolvable CDI devices k8s.gpu.nvidia.com/claim=5f"
    waiting = {"name": "trainer", "state": {"waiting": {"reason": reason, "message": words}}}
    story.change_pod("train-a1-worker-00001", node="gpu-2", phase="Pending", containerStatuses=[waiting])
    story.settle()
    assert ended(story) == [(1, "NodeRefused", False)]
    assert [each.name for each in booked_nodes(story)] == ["gpu-1", "gpu-3"]


def test_an_image_with_a_drivers_name_is_no_word_of_the_driver() -> None:
    story = Story(*(each for n in "12" for each in [node(f"gpu-{n}"), node_topology(f"gpu-{n}")]))
    story.add(training_job(spec=WHOLE))
    story.settle()
    words = 'Back-off pulling image "example.com/nvidia-container:1"'
    waiting = {"name": "trainer", "state": {"waiting": {"reason": "ImagePullBackOff", "message": words}}}
    story.change_pod("train-a1-worker-00001", node="gpu-2", phase="Pending", containerStatuses=[waiting])
    story.settle()
    assert ended(story) == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"reason": "Evicted", "message": 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". '},
            'was ended for the disk that it uses itself: Evicted (Usage of EmptyDir volume "scratch" exceeds the limit '
            f'"1Gi".); raise that limit, or use less; {FIXED}',
        ),
        (
            {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the specified deadline"},
            "ran longer than activeDeadlineSeconds of its template allows: DeadlineExceeded (Pod was active on the "
            f"node longer than the specified deadline); raise it, or leave it out; {FIXED}",
        ),
    ],
)
def test_what_a_pod_does_itself_is_charged_and_told_in_the_kubelets_words(status: dict[str, Any], words: str) -> None:
    story = running()
    killed = [{"name": "trainer", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}]
    story.change_pod(FAILED, phase="Failed", containerStatuses=killed, **status)
    story.settle()
    assert ended(story) == [(1, "PodFailed", True)]
    assert story.status().attempts[0].message == f"Pod {FAILED} on node gpu-2 {words}"


def test_want_of_memory_is_told_before_what_failed_with_it_and_else_what_failed_first() -> None:
    story = running()
    first = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-21T10:00:05Z"}
    later = {**first, "exitCode": 2, "finishedAt": "2026-11-21T10:00:09Z"}
    for pod, state in (("train-a1-worker-00000", later), (FAILED, first)):
        story.change_pod(pod, phase="Failed", containerStatuses=[{"name": "trainer", "state": {"terminated": state}}])
    assert told(story).startswith(f"container trainer of Pod {FAILED} on node gpu-2 ended with exit code 1; 1 more")
    killed = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-21T10:00:10Z"}
    states = [{"name": "trainer", "state": {"terminated": killed}}]
    story.change_pod("train-a1-worker-00000", containerStatuses=states)
    assert "train-a1-worker-00000 on node gpu-1 ended with exit code 137 (OOMKilled); its template sets no" in told(
        story
    )


@pytest.mark.parametrize("of_pod", [False, True])
def test_want_of_memory_below_a_limit_names_the_limit(of_pod: bool) -> None:
    resources = {"resources": {"limits": {"memory": "8Gi"}}}
    container = {"name": "trainer", "image": "i", **({} if of_pod else resources)}
    template = {"spec": {"containers": [container], **(resources if of_pod else {})}}
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8, "template": template}))
    story.settle()
    story.run_all()
    story.settle()
    killed = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-21T10:00:10Z"}
    states = [{"name": "trainer", "state": {"terminated": killed}}]
    story.change_pod("train-a1-worker-00000", phase="Failed", containerStatuses=states)
    assert "it used more memory than it may: raise resources.limits.memory of the template" in told(story)


def test_the_trainers_exit_code_is_told_and_not_that_of_what_failed_beside_it() -> None:
    story = running()
    exporter = {"name": "exporter", "state": {"terminated": {"exitCode": 7, "reason": "Error"}}}
    story.change_pod(FAILED, phase="Failed", containerStatuses=[exporter, *EXIT_1])
    assert told(story) == f"container trainer of Pod {FAILED} on node gpu-2 ended with exit code 1"


def told(story: Story) -> str:
    """What would be told of the end."""
    (plan,) = story.plans()
    assert plan.status is not None
    return plan.status.attempts[0].message or ""


def cordon(story: Story, name: str) -> None:
    story.objects[("Node", "", name)]["spec"]["unschedulable"] = True


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "going"])
def test_a_drain_is_told_as_one_though_the_pod_is_gone_before_its_mark_is_seen(is_gone: bool) -> None:
    story = running()
    cordon(story, "gpu-2")
    story.remove_pod(FAILED) if is_gone else story.mark_deleted(FAILED)
    story.settle()
    assert ended(story) == [(1, "Disrupted", False)]
    who = "train-a1 rank 1" if is_gone else f"Pod {FAILED}"
    message = f"{who} was evicted from node gpu-2, which is cordoned as for a drain; the job starts again"
    assert story.status().attempts[0].message == message


def test_a_pod_that_somebody_deletes_while_another_node_is_cordoned_is_told_as_deleted() -> None:
    story = running()
    cordon(story, "gpu-1")
    story.mark_deleted(FAILED)
    story.settle()
    assert ended(story) == [(1, "ChildDeleted", False)]


def test_a_pod_that_is_evicted_before_its_gang_runs_and_stays_is_told_as_evicted() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.change_pod(FAILED, node="gpu-2", conditions=[disruption("PreemptionByScheduler", "for another")])
    story.mark_deleted(FAILED)
    story.settle()
    story.pass_time(30)
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

    def denial(self, manifest: Mapping[str, Any]) -> str | None:
        if manifest["kind"] == "Pod" and "IPC_LOCK" in str(manifest["spec"]["containers"]):
            return 'violates PodSecurity "baseline:latest": non-default capabilities'
        return super().denial(manifest)


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


def test_a_taint_that_is_tolerated_for_a_while_keeps_a_new_gang_away() -> None:
    """There it would be evicted, be placed again, and take the same node."""
    tolerated = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    container = {"name": "trainer", "image": "i"}
    template = {"spec": {"containers": [container], "tolerations": [tolerated]}}
    job = training_job(spec={"gpus": 8, "template": template})
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), job)
    story.objects["Node", "", "gpu-1"]["spec"]["taints"] = [{"key": "maintenance", "effect": "NoExecute"}]
    story.settle()
    assert [node.name for node in booked_nodes(story)] == ["gpu-2"]


@pytest.mark.parametrize("key", ["", "node.kubernetes.io/unschedulable"])
def test_a_gang_that_tolerates_all_taints_does_not_go_back_where_it_was_drained_from(key: str) -> None:
    """Unless it says by name that a cordon is nothing to it."""
    tolerated = {"operator": "Exists", **({"key": key} if key else {})}
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}], "tolerations": [tolerated]}}
    job = training_job(spec={"gpus": 8, "template": template})
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), job)
    story.settle()
    story.run_all()
    story.settle()
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    story.objects["Node", "", "gpu-1"]["spec"] |= {"unschedulable": True, "taints": [taint]}
    story.change_pod(
        "train-a1-worker-00000", conditions=[disruption("EvictionByEvictionAPI", "Eviction API: evicting")]
    )
    story.settle()
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert [node.name for node in booked_nodes(story)] == ["gpu-1" if key else "gpu-2"]
