"""The trainer's container decides its rank's end, whatever runs on or ends beside it in the same Pod."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from scenarios.stories import conditions, disruption, ended, two_plugin_nodes
from scenarios.story import Story

PODS = ("train-a1-worker-00000", "train-a1-worker-00001")
BESIDE = {"template": {"spec": {"containers": [{"name": "trainer"}, {"name": "exporter"}]}}}
RUNS: dict[str, Any] = {"running": {"startedAt": "2026-11-21T10:00:00Z"}}


def exited(code: int, reason: str = "", at: str = "2026-11-21T10:00:10Z") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "finishedAt": at}}


def containers(**states: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "state": state} for name, state in states.items()]


def running(**spec: Any) -> Story:
    story = two_plugin_nodes(**(spec or BESIDE))
    story.settle()
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING
    return story


def outcome(story: Story) -> tuple[State | None, list[tuple[int, str, bool]]]:
    return story.status().state, ended(story)


@pytest.mark.parametrize("beside", [RUNS, exited(0), exited(1)], ids=["runs on", "is done", "has failed"])
def test_a_job_whose_trainers_have_succeeded_is_over_whatever_is_beside_them(beside: dict[str, Any]) -> None:
    story = running()
    for pod in PODS:
        phase = "Running" if beside is RUNS else "Succeeded" if beside == exited(0) else "Failed"
        story.change_pod(pod, phase=phase, containerStatuses=containers(trainer=exited(0), exporter=beside))
    story.settle()
    assert outcome(story) == (State.SUCCEEDED, [(1, "Succeeded", False)])
    story.end_stopped()
    assert all(story.pod(pod)["status"]["phase"] != "Running" for pod in story.pods()), "GPUs are held"


def test_one_rank_that_has_succeeded_is_counted_though_its_pod_runs_on() -> None:
    story = running()
    story.change_pod(PODS[0], containerStatuses=containers(trainer=exited(0), exporter=RUNS))
    story.settle()
    placement = story.status().placement
    assert placement is not None
    assert (story.status().state, placement.succeeded) == (State.RUNNING, "0")
    (told,) = (each.message for each in story.status().conditions if each.type == "Running")
    assert told == "1 of 2 Pods run, 1 has ended with exit code 0"


def test_a_trainer_that_fails_ends_the_job_at_once_though_another_container_runs_on() -> None:
    story = running()
    story.change_pod(PODS[1], containerStatuses=containers(exporter=RUNS, trainer=exited(3)))
    story.settle()
    assert outcome(story) == (State.FAILED, [(1, "PodFailed", True)])
    words = "container trainer of Pod train-a1-worker-00001 on node gpu-2 ended with exit code 3"
    assert story.status().attempts[0].message == words


@pytest.mark.parametrize("beside", [exited(0), exited(7)], ids=["is done", "has failed"])
def test_what_ends_beside_a_trainer_that_runs_ends_nothing(beside: dict[str, Any]) -> None:
    story = running()
    story.change_pod(PODS[0], containerStatuses=containers(trainer=RUNS, exporter=beside))
    story.settle()
    assert outcome(story) == (State.RUNNING, [])


def test_a_container_that_somebody_adds_to_each_pod_does_not_decide_either() -> None:
    """A mesh's proxy: the template has one container, of whatever name."""
    story = running(template={"spec": {"containers": [{"name": "main"}]}})
    for pod in PODS:
        states = [{"name": "istio-proxy", "state": RUNS}, {"name": "main", "state": exited(0)}]
        story.change_pod(pod, containerStatuses=states)
    story.settle()
    assert outcome(story) == (State.SUCCEEDED, [(1, "Succeeded", False)])


def test_a_native_sidecar_that_fails_beside_the_trainer_ends_nothing() -> None:
    sidecar = {"name": "ear", "restartPolicy": "Always"}
    template = {"spec": {"containers": [{"name": "trainer"}], "initContainers": [sidecar]}}
    story = running(template=template)
    story.change_pod(
        PODS[0],
        containerStatuses=containers(trainer=RUNS),
        initContainerStatuses=[{"name": "ear", "state": exited(1)}],
    )
    story.settle()
    assert outcome(story) == (State.RUNNING, [])
    for pod in PODS:
        story.change_pod(pod, containerStatuses=containers(trainer=exited(0)))
    story.settle()
    assert outcome(story) == (State.SUCCEEDED, [(1, "Succeeded", False)])


def test_a_launcher_that_is_done_ends_the_job_beside_whatever_runs_on() -> None:
    story = running(framework="MPI", **BESIDE)
    story.change_pod(PODS[0], containerStatuses=containers(trainer=exited(0), exporter=RUNS))
    story.settle()
    assert outcome(story) == (State.SUCCEEDED, [(1, "Succeeded", False)])


def test_a_trainer_that_ends_well_because_it_is_told_to_stop_has_not_succeeded() -> None:
    story = running()
    mark = {**disruption("EvictionByEvictionAPI", "a drain"), "lastTransitionTime": "2026-11-21T10:00:10Z"}
    for pod in PODS:
        states = containers(trainer=exited(0, at="2026-11-21T10:00:11Z"), exporter=RUNS)
        story.change_pod(pod, containerStatuses=states, conditions=[mark])
    story.mark_deleted(PODS[0])
    story.settle()
    assert ended(story) == [(1, "Disrupted", False)]


def test_a_trainer_that_was_done_before_its_pod_was_disrupted_has_succeeded() -> None:
    story = running()
    mark = {**disruption("TerminationByKubelet", "low on memory"), "lastTransitionTime": "2026-11-21T10:00:30Z"}
    for pod in PODS:
        story.change_pod(pod, containerStatuses=containers(trainer=exited(0), exporter=RUNS), conditions=[mark])
    story.settle()
    assert outcome(story) == (State.SUCCEEDED, [(1, "Succeeded", False)])


def test_a_rank_that_is_stored_as_done_stays_so_whatever_becomes_of_its_pod() -> None:
    story = running()
    story.change_pod(PODS[0], containerStatuses=containers(trainer=exited(0), exporter=RUNS))
    story.settle()
    story.mark_deleted(PODS[0])
    story.settle()
    states = containers(trainer=exited(0), exporter=exited(143))
    story.change_pod(PODS[0], phase="Failed", reason="Evicted", containerStatuses=states)
    story.settle()
    assert outcome(story) == (State.RUNNING, [])


def test_containers_that_are_started_again_by_a_rule_have_not_ended() -> None:
    story = running()
    states = containers(trainer=exited(137, "RestartingAllContainers"), exporter=RUNS)
    story.change_pod(PODS[0], containerStatuses=states)
    story.settle()
    assert outcome(story) == (State.RUNNING, [])


@pytest.mark.parametrize("own", [{"restartPolicy": "OnFailure"}, {"restartPolicyRules": [{"action": "Restart"}]}])
def test_of_a_trainer_that_its_kubelet_may_start_again_the_pod_tells_the_end(own: dict[str, Any]) -> None:
    story = running(template={"spec": {"containers": [{"name": "trainer", **own}, {"name": "exporter"}]}})
    story.change_pod(PODS[0], containerStatuses=containers(trainer=exited(1), exporter=RUNS))
    story.settle()
    assert outcome(story) == (State.RUNNING, [])


def test_of_a_parameter_server_its_own_trainer_decides() -> None:
    servers = {"replicas": 2, "template": {"spec": {"containers": [{"name": "serve"}]}}}
    story = running(framework="TensorFlow", parameterServers=servers, topology={"gpusPerNode": 8})
    story.change_pod("train-a1-ps-00001", containerStatuses=containers(proxy=exited(0), serve=RUNS))
    story.settle()
    assert outcome(story) == (State.RUNNING, [])
    story.change_pod("train-a1-ps-00001", containerStatuses=containers(proxy=RUNS, serve=exited(9)))
    story.settle()
    assert outcome(story) == (State.FAILED, [(1, "PodFailed", True)])


def test_a_helper_that_is_done_leaves_no_probe_to_be_blamed() -> None:
    story = running()
    unready = {
        "type": "Ready",
        "status": "False",
        "reason": "ContainersNotReady",
        "lastTransitionTime": "2026-11-21T10:00:10Z",
    }
    story.change_pod(PODS[0], containerStatuses=containers(trainer=RUNS, exporter=exited(0)), conditions=[unready])
    story.pass_time(3600)
    story.settle()
    assert "Degraded" not in conditions(story)
