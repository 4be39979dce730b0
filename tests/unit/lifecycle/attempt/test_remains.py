"""What is left of attempts that have ended: stopped and kept for its logs, for a while, and in nobody's way."""

from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.writes.resource_quotas import Quota
from closeknit.lifecycle.writes.results import Denial, DenialKind
from scenarios.stories import booked_nodes, ended, two_plugin_nodes
from scenarios.story import Story

FIRST, SECOND = "train-a1-worker-00000", "train-a1-worker-00001"
NEXT = ["train-a2-worker-00000", "train-a2-worker-00001"]
RUNS: dict[str, Any] = {"running": {"startedAt": "2026-11-21T10:00:00Z"}}
LOST: dict[str, Any] = {"terminated": {"exitCode": 255, "reason": "Unknown"}}


def states(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "trainer", "state": state}]


def run(story: Story, attempt: int) -> None:
    """The Pods of an attempt run, as their kubelets say."""
    story.run_all()
    for rank in (0, 1):
        story.change_pod(f"train-a{attempt}-worker-{rank:05d}", containerStatuses=states(RUNS))
    story.settle()
    assert (story.status().state, story.status().attempt) == (State.RUNNING, attempt)


def running(**spec: Any) -> Story:
    story = two_plugin_nodes(**spec)
    story.settle()
    run(story, 1)
    return story


def lose(story: Story, pod: str) -> None:
    """Its node is booted again under it."""
    story.change_pod(pod, phase="Failed", containerStatuses=states(LOST))
    story.settle()


def crash(story: Story, pod: str) -> None:
    story.change_pod(pod, phase="Failed", containerStatuses=states({"terminated": {"exitCode": 1, "reason": "Error"}}))
    story.settle()


def test_of_a_job_that_has_failed_every_rank_keeps_its_log() -> None:
    story = running()
    crash(story, SECOND)
    assert (story.status().state, story.written[-1]) == (State.FAILED, f"stop Pod {FIRST}")
    story.end_stopped()
    story.settle()
    story.pass_time(timedelta(days=30).total_seconds())
    story.settle()
    assert story.pods() == [FIRST, SECOND]
    assert all(len(view.free) == 8 for view in story.cluster.nodes.values())


def test_the_next_attempt_waits_for_gpus_until_what_is_stopped_has_ended_and_leaves_it_there() -> None:
    story = running()
    lose(story, SECOND)
    assert (ended(story), story.pods()) == ([(1, "NodeLost", False)], [FIRST, SECOND])
    assert f"stop Pod {FIRST}" in story.written
    story.end_stopped()
    story.settle()
    assert story.pods() == [FIRST, SECOND, *NEXT]
    run(story, 2)
    assert story.pods() == [FIRST, SECOND, *NEXT]


def test_only_the_last_attempt_is_kept() -> None:
    story = running()
    lose(story, SECOND)
    story.end_stopped()
    story.settle()
    run(story, 2)
    lose(story, NEXT[1])
    story.end_stopped()
    story.pass_time(2)
    story.settle()
    assert story.pods() == [*NEXT, "train-a3-worker-00000", "train-a3-worker-00001"]


def test_it_is_kept_for_a_day_also_by_an_operator_that_has_just_started() -> None:
    story = running()
    lose(story, SECOND)
    story.end_stopped()
    story.settle()
    run(story, 2)
    story.answers.clear()
    (waits,) = [plan.wake_after_s for plan in story.plans()]
    assert waits == timedelta(days=1).total_seconds()
    story.pass_time(waits - 1)
    story.settle()
    assert story.pods() == [FIRST, SECOND, *NEXT]
    story.pass_time(1)
    story.settle()
    assert story.pods() == NEXT


def test_a_pod_whose_kubelet_does_not_stop_it_is_deleted_after_its_grace_period_and_half_a_minute() -> None:
    story = running(template={"spec": {"containers": [{"name": "trainer"}], "terminationGracePeriodSeconds": 20}})
    lose(story, SECOND)
    story.pass_time(49)
    story.settle()
    assert (FIRST in story.pods(), [plan.wake_after_s for plan in story.plans()]) == (True, [1.0])
    story.pass_time(1)
    story.settle()
    assert story.pods() == [SECOND, *NEXT]


def test_on_a_node_that_is_not_ready_nobody_is_there_to_stop_it() -> None:
    story = running()
    story.lose_node("gpu-1")
    crash(story, SECOND)
    assert ended(story) == [(1, "NodeLost", False)]
    assert f"delete Pod {FIRST}" in story.written
    assert "deletionTimestamp" in story.pod(FIRST)["metadata"]


@pytest.mark.parametrize(
    "said",
    [
        Denial(DenialKind.FORBIDDEN, 403, "Forbidden", "pods is forbidden: cannot patch"),
        Denial(DenialKind.INVALID, 422, "Invalid", "ValidatingAdmissionPolicy of the site denied the request"),
    ],
    ids=["403", "422"],
)
def test_where_the_api_server_does_not_let_us_stop_it_it_is_deleted(said: Denial) -> None:
    """A chart of before, or a policy of the site."""
    story = running()
    story.unstoppable = said
    crash(story, SECOND)
    story.settle()
    assert (story.pods(), story.written[-1]) == ([SECOND], f"delete Pod {FIRST}")


def test_what_has_said_nothing_is_not_kept() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.change_pod(FIRST, node="gpu-1", phase="Failed", reason="UnexpectedAdmissionError", message="no devices left")
    story.change_pod(SECOND, node="gpu-2")
    story.settle()
    assert [pod for pod in story.pods() if "-a1-" in pod] == []


def test_where_a_quota_counts_pods_that_are_over_nothing_is_kept_for_the_next_attempt_to_stumble_over() -> None:
    story = two_plugin_nodes()
    story.quotas = [Quota("objects", hard={"count/pods": 3}, used={"count/pods": 0})]
    story.settle()
    run(story, 1)
    lose(story, SECOND)
    story.end_stopped()
    story.settle()
    assert story.pods() == NEXT


def test_a_job_that_waits_for_a_quota_gives_up_what_may_count_in_it() -> None:
    story = running()
    story.edit_job(suspend=True)
    for pod in (FIRST, SECOND):
        story.change_pod(pod, phase="Failed", containerStatuses=states(LOST))
    story.settle()
    assert story.pods() == [FIRST, SECOND]
    story.pass_time(60)
    story.quotas = [Quota("objects", hard={"count/pods": 3}, used={"count/pods": 2})]
    story.edit_job(suspend=False)
    story.settle()
    assert (story.status().pending or pytest.fail("is told")).reason == "QuotaExceeded"
    assert story.pods() == []


def test_a_succeeded_job_stops_what_runs_beside_its_trainers_and_keeps_the_logs() -> None:
    story = running()
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-11-21T10:00:05Z"}}
    for pod in (FIRST, SECOND):
        story.change_pod(pod, containerStatuses=[*states(done), {"name": "exporter", "state": RUNS}])
    story.settle()
    assert (story.status().state, sorted(story.written[-2:])) == (
        State.SUCCEEDED,
        [f"stop Pod {FIRST}", f"stop Pod {SECOND}"],
    )
    story.end_stopped()
    story.settle()
    assert (story.pods(), booked_nodes(story)[0].name) == ([FIRST, SECOND], "gpu-1")
    assert all(len(view.free) == 8 for view in story.cluster.nodes.values())


def test_what_ends_by_itself_is_not_stopped_and_counts_as_succeeded() -> None:
    """Its kubelet takes a moment from the end of its containers to its own phase: of a Pod that is to be stopped
    meanwhile, it would say that it failed by its deadline."""
    story = running()
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-11-21T10:00:05Z"}}
    for pod in (FIRST, SECOND):
        story.change_pod(pod, containerStatuses=states(done))
    story.settle()
    assert story.status().state is State.SUCCEEDED
    assert not [written for written in story.written if written.startswith("stop")]
    story.pass_time(61)  # the grace period, and half a minute
    story.settle()
    assert story.pods() == [], "its kubelet has not ended it"
