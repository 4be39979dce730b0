"""What `kubectl get` shows of a job besides its state: one word and a sentence for what is wrong or waited for."""

from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.conditions import timestamp
from scenarios.manifests import pod, training_job
from scenarios.stories import two_plugin_nodes
from scenarios.story import NOW, Story, plugin_node

HARMFUL = {"template": {"spec": {"containers": [{"name": "trainer", "image": "i", "env": [
    {"name": "NCCL_ALGO", "value": "Ring"}]}]}}}  # fmt: skip


def shown(story: Story) -> tuple[State | None, str | None]:
    return story.status().state, story.status().reason


def degraded(story: Story) -> tuple[str, str, str]:
    (found,) = [each for each in story.status().conditions if each.type == "Degraded"]
    return found.status, found.reason, found.message


def running(**spec: Any) -> Story:
    story = two_plugin_nodes(**spec)
    story.settle()
    story.run_all()
    story.settle()
    return story


def test_of_a_job_that_waits_it_is_the_reason_why() -> None:
    story = two_plugin_nodes(gpus=64)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert shown(story) == (State.QUEUED, "InsufficientGPUs")
    assert story.status().message == pending.message


def test_one_is_told_in_the_singular() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 1}))
    story.settle()
    story.run_all()
    story.settle()
    (placed,) = [each.note for each in story.notices if each.reason == "Placed"]
    (running,) = [each.message for each in story.status().conditions if each.type == "Running"]
    assert (placed.partition(" on ")[0], running) == ("1 GPU", "1 of 1 Pod runs")
    story.change_pod("train-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert story.notices[-1].note == "its one Pod ended with exit code 0"


def test_of_a_job_of_which_all_is_well_it_is_nothing() -> None:
    story = two_plugin_nodes()
    story.settle()
    assert shown(story) == (State.STARTING, None)
    story.run_all()
    story.settle()
    assert (shown(story), story.status().message) == ((State.RUNNING, None), None)


def test_of_a_job_that_lacks_something_it_is_that_until_the_job_is_over() -> None:
    story = running(**HARMFUL)
    status, reason, words = degraded(story)
    assert (status, reason) == ("True", "HarmfulSettings")
    assert (shown(story), story.status().message) == ((State.RUNNING, "HarmfulSettings"), words)
    for each in story.pods():
        story.change_pod(each, phase="Succeeded")
    story.settle()
    assert (shown(story), story.status().message) == ((State.SUCCEEDED, None), None)
    assert degraded(story) == ("False", "Finished", f"while it ran: {words}")


def test_of_a_job_that_failed_it_is_how_whatever_it_lacked() -> None:
    story = running(**HARMFUL)
    container = {"name": "trainer", "state": {"terminated": {"exitCode": 3}}}
    story.change_pod("train-a1-worker-00001", phase="Failed", containerStatuses=[container])
    story.settle()
    assert shown(story) == (State.FAILED, "PodFailed")
    assert "exit code 3" in (story.status().message or "")
    assert degraded(story)[:2] == ("False", "Finished")


def test_of_a_job_that_starts_again_it_is_why() -> None:
    story = running()
    story.remove_pod("train-a1-worker-00001")
    plan, *_ = [each for each in story.plans() if each.writes]
    assert plan.status is not None
    assert (plan.status.state, plan.status.reason) == (State.STARTING, "ChildDeleted")
    assert "was deleted before it was over" in (plan.status.message or "")


def test_of_a_suspended_job_it_is_nothing_and_what_the_next_gpus_lack_is_unknown() -> None:
    story = running(**HARMFUL)
    story.edit_job(suspend=True)
    story.settle()
    assert shown(story) == (State.SUSPENDED, None)
    assert degraded(story)[:2] == ("Unknown", "HarmfulSettings")
    story.edit_job(suspend=False)
    story.settle()
    assert degraded(story)[:2] == ("True", "HarmfulSettings")


def test_a_foreign_word_in_a_condition_ends_nothing() -> None:
    story = running()
    job = story.objects["TrainingJob", "team-b", "train"]
    told = {"type": "Degraded", "status": "True", "reason": "OfALaterVersion", "message": "?"}
    job["status"]["conditions"].append({**told, "lastTransitionTime": timestamp(NOW)})
    story.edit_job(suspend=True)
    story.settle()
    assert degraded(story) == ("Unknown", "NotPlaced", "?")


def test_how_long_a_job_has_waited_in_all_is_told_whatever_the_reasons() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8, "topology": {"fabric": {"required": "rack"}}}))
    story.settle()
    story.pass_time(600)
    story.edit_job(topology={})
    story.add(pod("notebook", requests={"nvidia.com/gpu": "8"}))
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, pending.since) == ("InsufficientGPUs", timestamp(NOW + timedelta(seconds=600)))
    assert pending.queued_since == timestamp(NOW)
    story.remove_pod("notebook")
    story.settle()
    assert shown(story) == (State.STARTING, None)
    story.edit_job(suspend=True)
    story.settle()
    story.add(pod("notebook", requests={"nvidia.com/gpu": "8"}))
    story.pass_time(600)
    story.edit_job(suspend=False)
    story.settle()
    pending = story.status().pending or pytest.fail("not pending")
    assert pending.queued_since == timestamp(NOW + timedelta(seconds=1200))
