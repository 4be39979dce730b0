"""Jobs that are to be over, and jobs that are over and go."""

from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.trainingjob_status import State
from scenarios.manifests import node
from scenarios.stories import ended, two_plugin_nodes
from scenarios.story import Story

PODS = ("train-a1-worker-00000", "train-a1-worker-00001")
JOB = JobKey("team-b", "train")


def started(**spec: Any) -> Story:
    story = two_plugin_nodes(**spec)
    story.settle()
    story.run_all()
    story.settle()
    return story


def succeed(story: Story) -> None:
    for name in PODS:
        state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        story.change_pod(name, phase="Succeeded", containerStatuses=[{"name": "trainer", "state": state}])
    story.settle()


def woken_after_s(story: Story) -> float | None:
    """When the operator looks again though nothing changes."""
    at = story.decide().wake_at
    return None if at is None else (at - story.now).total_seconds()


def test_a_job_that_runs_at_its_deadline_fails_and_its_pods_go() -> None:
    story = started(activeDeadlineSeconds=600)
    assert woken_after_s(story) == 600
    story.pass_time(599)
    story.settle()
    assert story.status().state is State.RUNNING
    story.pass_time(1)
    story.settle()
    assert (story.status().state, ended(story)) == (State.FAILED, [(1, "DeadlineExceeded", False)])
    assert story.status().message == (
        "it was not over 600 s after 2026-11-21T10:00:00Z, when it got GPUs: spec.activeDeadlineSeconds is 600; to "
        "train on from its last checkpoint, create the job again with a later deadline"
    )
    assert story.notices[-1].reason == "DeadlineExceeded"
    story.end_stopped()
    story.settle()
    assert all(story.pod(name)["status"]["phase"] == "Failed" for name in story.pods())


def test_a_job_that_waits_between_two_attempts_has_its_deadline_too() -> None:
    story = started(activeDeadlineSeconds=600)
    story.add(node("gpu-2", gpus=8, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]))
    story.remove_pod(PODS[1])
    story.settle()
    placement = story.status().placement
    assert placement is not None
    assert placement.lost == "1"
    assert (woken_after_s(story) or 0) <= 600
    story.pass_time(600)
    story.settle()
    assert (story.status().state, story.status().attempts[-1].reason) == (State.FAILED, "DeadlineExceeded")


def test_a_job_that_waits_for_its_first_gpus_has_no_deadline_yet() -> None:
    story = two_plugin_nodes(gpus=32, activeDeadlineSeconds=60)
    story.settle()
    story.pass_time(3600)
    story.settle()
    assert story.status().state is State.QUEUED


def test_a_job_that_is_done_at_its_deadline_has_succeeded() -> None:
    story = started(activeDeadlineSeconds=600)
    story.pass_time(600)
    succeed(story)
    assert story.status().state is State.SUCCEEDED


def test_a_suspended_job_has_no_deadline_and_a_resumed_one_counts_again() -> None:
    story = started(activeDeadlineSeconds=600)
    story.edit_job(suspend=True)
    story.settle()
    story.pass_time(3600)
    story.end_stopped()
    story.settle()
    assert story.status().state is State.SUSPENDED
    story.edit_job(suspend=False)
    story.settle()
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING
    story.pass_time(599)
    story.settle()
    assert story.status().state is State.RUNNING
    story.pass_time(1)
    story.settle()
    assert story.status().state is State.FAILED


def test_restarts_do_not_begin_the_time_again() -> None:
    story = started(activeDeadlineSeconds=600)
    story.pass_time(500)
    story.remove_pod(PODS[0])
    story.settle()
    story.run_all()
    story.settle()
    story.pass_time(100)
    story.settle()
    assert story.status().state is State.FAILED


def test_a_clock_that_was_set_back_ends_no_job() -> None:
    story = started(activeDeadlineSeconds=600)
    story.pass_time(-86400)
    story.settle()
    assert story.status().state is State.RUNNING


def test_a_job_that_is_over_is_deleted_in_time_with_all_that_it_owns() -> None:
    story = started(ttlSecondsAfterFinished=3600)
    story.pass_time(60)
    succeed(story)
    assert woken_after_s(story) == 3600
    story.pass_time(3599)
    story.settle()
    assert JOB in story.cluster.jobs
    story.pass_time(1)
    story.settle()
    assert JOB not in story.cluster.jobs
    assert story.written[-1] == "delete TrainingJob train"
    assert story.names("Pod") == story.names("Service") == []


def test_a_job_that_is_over_may_be_deleted_at_once() -> None:
    story = started(ttlSecondsAfterFinished=0)
    succeed(story)
    assert JOB not in story.cluster.jobs


def test_the_time_may_be_set_once_the_job_is_over() -> None:
    story = started()
    succeed(story)
    story.pass_time(3600)
    story.settle()
    assert JOB in story.cluster.jobs
    story.edit_job(ttlSecondsAfterFinished=3600)
    story.settle()
    assert JOB not in story.cluster.jobs


@pytest.mark.parametrize("state", ["running", "suspended", "waiting"])
def test_a_job_that_is_not_over_is_never_deleted(state: str) -> None:
    story = two_plugin_nodes(ttlSecondsAfterFinished=0, **({"gpus": 32} if state == "waiting" else {}))
    story.settle()
    story.run_all()
    story.settle()
    if state == "suspended":
        story.edit_job(suspend=True)
    story.pass_time(86400)
    story.settle()
    assert JOB in story.cluster.jobs


def test_a_clock_that_was_set_back_deletes_no_job() -> None:
    story = started(ttlSecondsAfterFinished=3600)
    succeed(story)
    story.pass_time(-86400)
    story.settle()
    assert JOB in story.cluster.jobs


def test_a_job_of_the_same_name_is_not_deleted_for_another() -> None:
    story = started(ttlSecondsAfterFinished=60)
    succeed(story)
    story.pass_time(60)
    (plan,) = story.plans()
    story.objects[("TrainingJob", "team-b", "train")]["metadata"]["uid"] = "uid-of-a-new-one"
    story.write(plan)
    assert JOB in story.cluster.jobs
