"""Pods that no scheduler says anything of: when that ends an attempt, and when it is only told."""

from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.reasons import ConditionType
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.conditions import found, timestamp
from closeknit.lifecycle.status.degraded import FIXED
from scenarios.manifests import training_job
from scenarios.stories import booked_nodes, ended, unschedulable
from scenarios.story import Story, plugin_node

CONTAINER = {"name": "trainer", "image": "i"}
MINE = {"schedulerName": "mine"}
CLAIMS = {"resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nics"}]}
POD = "train-a1-worker-00000"
SILENCE = (
    "no scheduler has looked at its Pods for 30 s: have an administrator see whether kube-scheduler runs; they start "
    "once it does"
)


def one(*nodes: str, **template: Any) -> Story:
    """A job of one whole node whose Pod was made, with this in its template."""
    spec = {"gpus": 8, "template": {"spec": {"containers": [CONTAINER], **template}}}
    story = Story(*(each for name in nodes or ("gpu-1",) for each in plugin_node(name)), training_job(spec=spec))
    story.settle()
    return story


def wait(story: Story, seconds: float) -> None:
    story.pass_time(seconds)
    story.settle()


def told(story: Story) -> tuple[str | None, str | None]:
    running = found(story.status().conditions, ConditionType.RUNNING)
    assert running is not None
    return running.reason, running.message


@pytest.mark.parametrize(
    ("template", "words"),
    [
        pytest.param(
            MINE,
            "its template names the scheduler mine, which does not seem to run; run it, or leave schedulerName out "
            f"of the template; {FIXED}",
            id="a scheduler that nobody runs",
        ),
        pytest.param(
            CLAIMS,
            "its template has ResourceClaims of its own, and a scheduler holds a Pod back without a word while one of "
            f"them is not there; create them, or leave them out of the template; {FIXED}",
            id="a claim that nobody makes",
        ),
    ],
)
def test_silence_that_the_template_causes_is_told_and_ends_the_attempt(template: Any, words: str) -> None:
    story = one(**template)
    assert [plan.wake_after_s for plan in story.plans()] == [30.0]
    wait(story, 30)
    assert told(story) == ("Starting", f"no scheduler has looked at its Pods for 30 s: {words}")
    wait(story, 89)
    assert (ended(story), [plan.wake_after_s for plan in story.plans()]) == ([], [1.0])
    wait(story, 1)
    assert ended(story) == [(1, "Unschedulable", False)]
    assert story.status().attempts[0].message == f"no scheduler has looked at Pod {POD} for 120 s: {words}"
    assert story.status().attempts[0].unfit is None  # another node is as good or as bad


def test_it_is_tried_again_after_pauses_that_grow_and_the_gpus_are_others_meanwhile() -> None:
    story = one(**MINE)
    pauses = []
    for number in range(1, 6):
        wait(story, 120)
        if story.status().placement is None:
            began = story.now
            while story.status().placement is None:
                wait(story, 1)
            pauses.append((story.now - began).total_seconds())
        assert story.status().attempt == number + 1
    assert pauses == [2.0, 4.0, 8.0, 16.0]
    wait(story, 120)
    story.add(training_job("other", spec={"gpus": 8}))
    story.settle()
    assert (story.status("other").state, story.status().state) == (State.STARTING, State.RESTARTING)


@pytest.mark.parametrize("template", [{}, {"schedulerName": "default-scheduler"}, {"schedulerName": ""}])
def test_a_default_scheduler_that_is_down_ends_nothing_and_is_told_once(template: Any) -> None:
    story = one(**template)
    wait(story, 29)
    assert told(story) == ("Starting", "its Pods are being started")
    wait(story, 1)
    assert told(story) == ("Starting", SILENCE)
    written = len(story.written)
    for _ in range(20):
        wait(story, 180)
    assert (ended(story), len(story.written), [plan.wake_after_s for plan in story.plans()]) == ([], written, [])
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING


def test_it_is_taken_back_as_soon_as_somebody_looks() -> None:
    story = one(**MINE)
    wait(story, 30)
    story.change_pod(POD, node="gpu-1", conditions=[{"type": "PodScheduled", "status": "True"}])
    story.settle()
    assert told(story) == ("Starting", "its Pods are being started")
    wait(story, 3600)
    assert ended(story) == []


def test_a_pod_that_is_judged_is_judged_by_that() -> None:
    story = one("gpu-1", "gpu-2", **MINE)
    story.change_pod(POD, conditions=[unschedulable("no CPU", timestamp(story.now))])
    wait(story, 30)
    assert (ended(story), booked_nodes(story)[0].name) == ([(1, "Unschedulable", False)], "gpu-2")


@pytest.mark.parametrize("ago_s", [3600, -3600], ids=["an hour behind", "an hour ahead"])
def test_an_api_server_whose_clock_is_wrong_ends_no_attempt_at_once(ago_s: int) -> None:
    story = one(**MINE)
    story.pod(POD)["metadata"]["creationTimestamp"] = timestamp(story.now - timedelta(seconds=ago_s))
    wait(story, 119)
    assert ended(story) == []
    wait(story, 1)
    assert ended(story) == [(1, "Unschedulable", False)]


def test_a_pod_that_was_made_late_has_as_long_as_any() -> None:
    story = one(**MINE)
    story.pass_time(100)
    story.remove_pod(POD)
    story.settle()
    story.pod(POD)["metadata"]["creationTimestamp"] = timestamp(story.now)
    wait(story, 119)
    assert ended(story) == []
    wait(story, 1)
    assert ended(story) == [(1, "Unschedulable", False)]


def test_a_clock_of_ours_that_was_set_back_does_not_keep_the_gpus_for_as_long() -> None:
    story = one(**MINE)
    story.pod(POD)["metadata"]["creationTimestamp"] = timestamp(story.now)
    wait(story, -3600)
    assert ended(story) == [(1, "Unschedulable", False)]
