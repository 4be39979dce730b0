"""Restarts in place, as the operator sees them: what it counts, judges and tells of what has already happened."""

import json
from typing import Any

import pytest

from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob_status import State
from scenarios.stories import end_trainer, ended, two_plugin_nodes
from scenarios.story import Story

PODS = ("train-a1-worker-00000", "train-a1-worker-00001")
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "train", "command": ["train"]}]}}
FEATURES = ["RestartAllContainersOnContainerExits"]


def with_sidecar(features: list[str] | None = None, image: str = "closeknit/agent:1", **spec: Any) -> Story:
    """A gang of two nodes that can restart in place, before anything is decided."""
    story = two_plugin_nodes(**{"restart": {"limit": 2}, "template": TEMPLATE, **spec})
    story.sidecar_image = image
    for (kind, _, _), found in story.objects.items():
        if kind == "Node":
            found["status"]["declaredFeatures"] = FEATURES if features is None else features
    return story


def started(features: list[str] | None = None, image: str = "closeknit/agent:1", **spec: Any) -> Story:
    """A gang of two Pods that can restart in place, and has run for two minutes."""
    story = with_sidecar(features, image, **spec)
    story.settle()
    story.run_all()
    for pod in story.pods():
        told(story, pod, 0)
    story.settle()
    assert story.status().state is State.RUNNING
    story.pass_time(120)
    story.written.clear()
    story.notices.clear()
    return story


def told(story: Story, pod: str, run: int | None, code: int | None = None, *, ago_s: float = 2, **words: Any) -> None:
    """A Pod whose barrier has let it go for a run, with how its trainer ended in the run before."""
    said: dict[str, Any] = {"run": run, **words}
    if code is not None:
        at = story.now.timestamp() - ago_s
        said["ended"] = {"code": code, "at": at, "was_told": False, "words": "", **words.get("ended", {})}
    state = {"terminated": {"exitCode": 0, "message": json.dumps(said), "finishedAt": at_now(story)}}
    change(story, pod, "Running", state)


def resets(story: Story, pod: str) -> None:
    """A Pod whose containers start again, and whose barrier waits."""
    change(story, pod, "Pending", {"running": {}})


def change(story: Story, pod: str, phase: str, barrier: dict[str, Any]) -> None:
    sidecar = {"name": SIDECAR_CONTAINER, "state": {"running": {}}}
    trainer = {
        "name": "trainer",
        "state": {"running": {}} if phase == "Running" else {"waiting": {"reason": "PodInitializing"}},
    }
    story.change_pod(
        pod,
        phase=phase,
        initContainerStatuses=[{"name": BARRIER_CONTAINER, "state": barrier}],
        containerStatuses=[trainer, sidecar],
    )


def at_now(story: Story) -> str:
    return story.now.strftime("%Y-%m-%dT%H:%M:%SZ")


def run_of(story: Story) -> int | None:
    placement = story.status().placement
    assert placement is not None
    return placement.run


def restart(story: Story, run: int, code: int = 3) -> None:
    """The second Pod's trainer fails, and the gang begins again."""
    for pod in PODS:
        resets(story, pod)
        story.settle()
    told(story, PODS[0], run)
    story.settle()
    told(story, PODS[1], run, code)
    story.settle()


def test_a_restart_in_place_is_counted_once_and_nothing_is_made() -> None:
    story = started()
    restart(story, 1)
    status = story.status()
    assert (status.state, status.attempt, status.restarts, run_of(story)) == (State.RUNNING, 1, 1, 1)
    assert ended(story) == [(1, "PodFailed", True)]
    (end,) = status.attempts
    assert (end.in_place, end.ran, [each.exit_code for each in end.exits or ()]) == (True, "118s", [3])
    assert end.message == (
        "container trainer of Pod train-a1-worker-00001 on node gpu-2 ended with exit code 3; the job starts again, "
        "charged: 1 of 2 within 24h"
    )
    assert story.written == ["status Starting", "status Running"]
    assert [notice.reason for notice in story.notices] == ["Restarted"]
    before = list(story.written)
    story.pass_time(60)
    story.settle()
    assert story.written == before


def test_pods_that_start_again_are_no_loss_and_no_failure() -> None:
    """Nor is the moment in which a kubelet shows how the trainer ended."""
    story = started()
    exited = {"name": "trainer", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    story.change_pod(PODS[1], containerStatuses=[exited])
    story.settle()
    resets(story, PODS[1])
    story.settle()
    story.pass_time(30)
    story.settle()
    assert story.written == [] and story.status().restarts == 0


def test_a_gang_that_has_run_for_long_before_each_restart_makes_progress() -> None:
    """Its Pods were made long ago: that they start again is no Pod that does not start, and the run had a length."""
    story = started(restart={"limit": 9})
    for run in range(1, 5):
        story.pass_time(3600)
        restart(story, run)
    assert [(each.reason, each.ran) for each in story.status().attempts][1:] == [("PodFailed", "3598s")] * 3
    assert {str(notice.reason) for notice in story.notices} == {"Restarted"}


def test_a_pod_that_goes_after_a_restart_in_place_is_not_made_again_in_its_gang() -> None:
    """A new Pod begins with run 0, and the others wait in a later one."""
    story = started(restart={"limit": 9})
    for pod in PODS:
        told(story, pod, 1)
    story.change_pod(PODS[1], phase="Pending")  # an init container of the user's own takes its time
    story.settle()
    assert (story.status().state, run_of(story)) == (State.STARTING, 1)
    story.remove_pod(PODS[1])
    story.settle()
    assert PODS[1] not in story.pods()
    assert [(each.reason, each.in_place) for each in story.status().attempts] == [
        ("PodFailed", True),
        ("ChildDeleted", None),
    ]


def test_a_node_that_is_not_ready_while_a_gang_starts_again_ends_nothing() -> None:
    """It is a blip as any other: the Pods are bound, and their sidecars have met."""
    story = started(restart={"limit": 9})
    for pod in PODS:
        told(story, pod, 1)
    story.change_pod(PODS[1], phase="Pending")
    story.settle()
    story.lose_node("gpu-2")
    story.pass_time(60)
    story.settle()
    assert (ended(story), story.status().attempt) == ([(1, "PodFailed", True)], 1)


def test_who_has_not_told_is_waited_for_but_not_for_ever() -> None:
    story = started()
    told(story, PODS[1], 1, 3)
    story.settle()
    assert story.status().restarts == 0
    story.pass_time(6)
    story.settle()
    assert story.status().restarts == 1


def test_who_failed_first_is_the_cause() -> None:
    story = started()
    told(story, PODS[0], 1, 1, ago_s=2)
    told(story, PODS[1], 1, 7, ago_s=3)
    story.settle()
    assert "train-a1-worker-00001" in str(story.status().attempts[0].message)
    assert [each.exit_code for each in story.status().attempts[0].exits or ()] == [7, 1]


def test_without_an_exit_code_it_is_charged_all_the_same() -> None:
    story = started()
    for pod in PODS:
        told(story, pod, 1)
    story.settle()
    (end,) = story.status().attempts
    assert (end.charged, end.exits) == (True, None)
    assert "no exit code is known" in str(end.message)


def test_past_its_limit_the_job_fails_and_its_pods_end() -> None:
    story = started(restart={"limit": 1})
    restart(story, 1)
    story.pass_time(120)
    restart(story, 2, code=4)
    assert (story.status().state, story.status().attempts[-1].reason) == (State.FAILED, "RestartLimitExceeded")
    story.end_stopped()
    story.settle()
    assert not [name for name in story.pods() if story.pod(name)["status"]["phase"] == "Running"]


def test_a_gang_that_crashes_at_once_ends_by_that() -> None:
    story = started(restart={"limit": 100})
    for run in range(1, 5):
        restart(story, run)
        if story.status().state is State.FAILED:
            break
        story.pass_time(4)
    assert (story.status().state, story.status().attempts[-1].reason) == (State.FAILED, "NoProgress")
    assert story.status().restarts == 3


def test_restarts_while_the_operator_was_away_are_all_counted() -> None:
    story = started(restart={"limit": 9})
    restart(story, 4)
    status = story.status()
    assert (status.restarts, len(status.charges or ()), run_of(story)) == (4, 4, 4)
    assert str(status.attempts[0].message).endswith("charged: 4 of 9 within 24h")


def test_more_restarts_than_the_limit_while_the_operator_was_away_end_the_job() -> None:
    story = started()
    restart(story, 5)
    assert (story.status().state, story.status().attempts[-1].reason) == (State.FAILED, "RestartLimitExceeded")
    assert "it has started again 4 times within 24h, which is more often than restart.limit allows" in str(
        story.status().message
    )
    assert (story.status().restarts, len(story.status().charges or ())) == (4, 4)


def test_restarts_that_nobody_saw_are_charged_for_when_they_were() -> None:
    """The operator was away for longer than the window."""
    story = started(restart={"limit": 2, "window": "1h"})
    story.pass_time(7200)
    for pod in PODS:
        told(story, pod, 5, 3, ago_s=3700)
    story.settle()
    assert story.status().state is State.RUNNING
    story.pass_time(120)
    restart(story, 6)
    assert str(story.status().attempts[-1].message).endswith("charged: 1 of 2 within 1h")


def test_a_run_that_no_gang_can_have_reached_costs_nothing() -> None:
    """The trainer can write where its sidecar keeps the number."""
    story = started(restart={"limit": 1000})
    told(story, PODS[0], (1 << 53) - 1)
    story.pass_time(6)
    story.settle()
    assert story.status().state is State.FAILED
    assert len(story.status().charges or ()) <= 1000


def gives_up(story: Story, pod: str, why: str) -> None:
    said = json.dumps({"run": None, "why": why})
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": said, "finishedAt": at_now(story)}}
    change(story, pod, "Failed", state)


def test_a_gang_that_does_not_come_together_again_is_not_charged() -> None:
    story = started()
    for pod in PODS:
        gives_up(story, pod, "the gang has not come together in 600 s")
    story.settle()
    assert ended(story) == [(1, "RankNotStarted", False)]
    assert story.status().attempts[0].message == (
        "Pod train-a1-worker-00000 on node gpu-1 gave up while the gang has not come together in 600 s; 1 more "
        "likewise; the job starts again"
    )


@pytest.mark.parametrize("code", [0, 5])
def test_a_rank_that_cannot_start_again_beside_one_that_is_over_is_charged_in_words(code: int) -> None:
    story = started(restart={"limit": 2, "rules": [{"exitCodes": [5], "action": "Fail"}]})
    end_trainer(story, 0, code, ago_s=9)
    gives_up(story, PODS[1], "a Pod of the gang is over, so that the others cannot begin again")
    story.settle()
    words = "train-a1-worker-00001 on node gpu-2 ended with exit code 1: a Pod of the gang is over, so that the others"
    assert ended(story) == [(1, "PodFailed", True)]
    assert (story.status().state is State.FAILED, words in str(story.status().attempts[0].message)) == (
        code == 5,
        code == 0,
    )


def test_new_pods_begin_to_count_anew() -> None:
    story = started(restart={"limit": 9})
    restart(story, 1)
    story.remove_pod(PODS[0])
    story.settle()
    assert (story.status().attempt, run_of(story)) == (2, None)
    assert story.status().restarts == 2


@pytest.mark.parametrize(
    "said", ["", "{", "[]", '{"run":-1}', '{"run":1e300}', '{"run":"1"}', '{"run":1,"ended":3}', "[" * 3000]
)
def test_what_cannot_be_read_counts_for_nothing(said: str) -> None:
    story = started()
    state = {"terminated": {"exitCode": 0, "message": said, "finishedAt": at_now(story)}}
    for pod in PODS:
        change(story, pod, "Running", state)
    story.settle()
    assert story.status().restarts == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image": ""}, "--sidecar-image"),
        ({"features": []}, "gpu-1, gpu-2 do not declare the feature RestartAllContainersOnContainerExits"),
    ],
)
def test_without_what_it_needs_a_condition_says_why(options: dict[str, Any], words: str) -> None:
    story = started(**options)
    assert all("initContainers" not in story.pod(name)["spec"] for name in story.pods())
    (degraded,) = [each for each in story.status().conditions if each.type == "Degraded"]
    assert (degraded.reason, degraded.status) == ("RestartsInNewPods", "True")
    assert words in degraded.message


def test_where_the_sidecars_image_is_not_there_the_next_attempt_goes_without() -> None:
    story = with_sidecar()
    story.settle()
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at_now(story)}
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not authorized"}}
    statuses = [{"name": BARRIER_CONTAINER, "state": waiting}]
    story.change_pod(PODS[0], node="gpu-1", phase="Pending", conditions=[bound], initContainerStatuses=statuses)
    story.settle()
    story.pass_time(61)
    story.settle()
    assert ended(story) == [(1, "SidecarRefused", False)]
    made = [name for name in story.pods() if "-a2-" in name]
    assert len(made) == 2 and all("initContainers" not in story.pod(name)["spec"] for name in made)


@pytest.mark.parametrize("refuses_all", [False, True])
def test_pods_that_are_refused_with_the_sidecar_are_made_without(
    monkeypatch: pytest.MonkeyPatch, refuses_all: bool
) -> None:
    """A policy that admits the images of one registry, a LimitRange with a least CPU."""
    story = with_sidecar()

    def denial(manifest: Any) -> str | None:
        containers = manifest.get("spec", {}).get("containers") or []
        is_refused = manifest["kind"] == "Pod" and (
            refuses_all or any(each["name"] != "trainer" for each in containers)
        )
        return "admission webhook denied the request: image not allowed" if is_refused else None

    monkeypatch.setattr(story, "denial", denial)
    story.settle()
    if refuses_all:
        pending = story.status().pending
        assert pending is not None and "image not allowed" in pending.message
        monkeypatch.setattr(story, "denial", lambda _: None)
        story.pass_time(3600)
        story.settle()
        assert len(story.pod(PODS[0])["spec"]["containers"]) == 2, "it was not the sidecar"
        return
    story.run_all()
    story.settle()
    assert [len(story.pod(pod)["spec"]["containers"]) for pod in PODS] == [1, 1]
    (degraded,) = [each for each in story.status().conditions if each.type == "Degraded"]
    assert degraded.reason == "RestartsInNewPods"
    assert "the API server refused them with it" in degraded.message


def test_the_rest_of_a_gang_that_a_policy_refuses_is_asked_for_twice_and_then_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others were taken with the sidecar: it is not the cause, and the gang does not begin without it."""
    story = with_sidecar()
    story.settle()
    story.remove_pod(PODS[1])
    story.answers.clear()  # the operator starts again
    asked: list[str] = []

    def denial(manifest: Any) -> str | None:
        if manifest["kind"] != "Pod" or manifest["metadata"]["name"] != PODS[1]:
            return None
        asked.append(PODS[1])
        return "ValidatingAdmissionPolicy 'no-ranks' with binding 'no-ranks' denied request: no rank 1 here"

    monkeypatch.setattr(story, "denial", denial)
    story.settle()
    assert len(asked) == 2
    pending = story.status().pending
    assert pending is not None and "no rank 1 here" in pending.message
    assert not story.pods()
    monkeypatch.setattr(story, "denial", lambda _: None)
    story.pass_time(3600)
    story.settle()
    assert [len(story.pod(pod)["spec"]["containers"]) for pod in PODS] == [2, 2]


def test_the_rest_of_a_gang_that_no_kubelet_tells_of_yet_has_the_sidecar_too() -> None:
    """As where an operator ends in the middle of making it."""
    story = with_sidecar()
    story.settle()
    story.remove_pod(PODS[1])
    story.settle()
    story.pass_time(600)
    story.settle()
    assert [len(story.pod(pod)["spec"]["containers"]) for pod in PODS] == [2, 2]


def steps(story: Story, run: int, at: Any, pod: str = PODS[0]) -> None:
    """Node rank 0's sidecar says when its trainer first touched its file in this run."""
    words = json.dumps({"run": run, "hang": None, "firstStep": at})
    last = {"terminated": {"exitCode": 78, "message": words}}
    for container in story.pod(pod)["status"]["containerStatuses"]:
        if container["name"] == SIDECAR_CONTAINER:
            container["lastState"] = last


def restarted_once(story: Story) -> None:
    for pod in PODS:
        told(story, pod, 1, 1 if pod == PODS[0] else None)
    story.settle()
    assert [each.in_place for each in story.status().attempts] == [True]


def test_the_first_step_after_a_restart_is_the_last_phase_and_all_add_up_to_it() -> None:
    story = started(restart={"limit": 2, "stallDeadline": "30m"})
    restarted_once(story)
    story.settle()
    phases = story.status().attempts[-1].phases
    assert phases is not None
    assert (phases.start is not None, phases.first_step) == (True, None)
    before = sum(duration_s(each) for each in phases.wire().values())
    fault = story.now.timestamp() - before
    story.pass_time(40)
    steps(story, 1, round(story.now.timestamp()) - 10)
    story.written.clear()
    story.settle()
    phases = story.status().attempts[-1].phases
    assert phases is not None
    assert phases.first_step == "30s"
    assert sum(duration_s(each) for each in phases.wire().values()) == story.now.timestamp() - 10 - fault
    assert len(story.written) == 1
    story.pass_time(60)
    steps(story, 1, round(story.now.timestamp()))
    story.settle()
    assert story.status().attempts[-1].phases == phases, "the first one counts"


@pytest.mark.parametrize(
    ("run", "at", "expected"),
    [
        (0, 1_795_255_000, None),
        (2, 1_795_255_000, None),
        (1, "soon", None),
        (1, -1, None),
        (1, 10**15, None),
        (1, 1.5, None),
        (1, 0, "0s"),
        (1, 4_000_000_000, "40s"),
    ],
    ids=["of the run before", "of another", "no number", "negative", "too late", "no whole number", "1970", "2096"],
)
def test_a_first_step_that_cannot_be_is_none_or_held_between_its_neighbours(
    run: int, at: Any, expected: str | None
) -> None:
    story = started(restart={"limit": 2, "stallDeadline": "30m"})
    restarted_once(story)
    story.pass_time(40)
    steps(story, run, at)
    story.settle()
    phases = story.status().attempts[-1].phases
    assert phases is not None
    assert phases.first_step == expected


def test_a_node_that_is_not_ready_takes_no_blame_once_its_pod_has_begun_the_next_run() -> None:
    """A blip beside a crash: new Pods on all nodes would be for nothing."""
    story = started()
    story.lose_node("gpu-1")
    restart(story, 1)
    assert ended(story) == [(1, "PodFailed", True)]
    assert (run_of(story), story.status().attempt) == (1, 1)
