"""Claims are collected after their Pods: what such a claim still holds is as good as free, and ends nobody."""

from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.conditions import timestamp
from scenarios.story import Story, dra_node
from unit.scheduling.preemption.test_preempted_jobs import HIGH, begin, ends, job, site, told

pytestmark = pytest.mark.usefixtures("no_mistakes")


def remove_pod_alone(story: Story, name: str) -> tuple[str, str, str]:
    """The Pod is gone, and its claim is not collected yet; gives the claim's key."""
    key = ("ResourceClaim", "team-b", name)
    claim = story.objects[key]
    story.remove_pod(name)
    story.objects[key] = claim
    story.settle()
    return key


def prepared(**spec: Any) -> Story:
    """A job of low priority makes room for an urgent one, and its Pod is there."""
    story = site(dra_node, job("low", **spec))
    story.add(job("urgent", **HIGH))
    story.settle()
    return story


def test_who_has_made_room_gets_it_back_from_nobody_while_its_claim_is_there() -> None:
    story = prepared()
    claim = remove_pod_alone(story, "low-a1-worker-00000")
    assert (ends(story, "low"), story.status("low").placement) == ([(1, "Preempted", False)], None)
    assert told(story, "urgent")[0] == PendingReason.PREEMPTION_PENDING
    story.pass_time(61)  # words change once a minute
    story.settle()
    assert told(story, "urgent")[1].endswith(
        "it starts once its Pods are gone; left is ResourceClaim team-b/low-a1-worker-00000"
    )
    del story.objects[claim]
    story.settle()
    begin(story)
    assert (story.status("urgent").state, ends(story, "low")) == (State.RUNNING, [(1, "Preempted", False)])


def test_the_job_whose_claim_is_left_may_be_gone_and_is_not_named_to_others() -> None:
    story = site(dra_node, job("low"))
    urgent = job("urgent", **HIGH)
    urgent["metadata"]["namespace"] = "prod"
    story.add(urgent)
    story.settle()
    del story.objects["TrainingJob", "team-b", "low"]
    claim = remove_pod_alone(story, "low-a1-worker-00000")
    story.pass_time(61)
    story.settle()
    pending = story.status("urgent", "prod").pending
    assert pending is not None
    assert pending.message.endswith("it starts once its Pods are gone; left is a ResourceClaim of another namespace")
    del story.objects[claim]
    story.settle()
    begin(story)
    assert story.status("urgent", "prod").state is State.RUNNING


def test_a_claim_that_a_stranger_uses_is_not_waited_for() -> None:
    """A debugging copy of the Pod: it stays as long as it likes, and what it holds comes free for nobody."""
    story = prepared()
    story.objects["ResourceClaim", "team-b", "low-a1-worker-00000"]["status"]["reservedFor"] = [
        {"resource": "pods", "name": "copy", "uid": "uid-of-copy"}
    ]
    remove_pod_alone(story, "low-a1-worker-00000")
    assert told(story, "urgent")[0] == PendingReason.INSUFFICIENT_GPUS


def waiting_for_a_suspended_job() -> Story:
    """An urgent job waits for a Pod of a job that was suspended; another node has a job of low priority."""
    story = site(dra_node, job("other", **HIGH), job("low"), nodes=2)
    story.dead.add("gpu-1")  # whose kubelet confirms no end yet
    story.edit_job("other", suspend=True)
    story.settle()
    story.add(job("urgent", **HIGH))
    story.settle()
    assert ends(story, "low") == []
    return story


def test_nobody_goes_while_a_claim_is_there_whose_pod_has_gone() -> None:
    story = waiting_for_a_suspended_job()
    claim = remove_pod_alone(story, "other-a1-worker-00000")
    assert ends(story, "low") == []
    del story.objects[claim]
    story.settle()
    begin(story)
    assert (ends(story, "low"), story.status("urgent").state) == ([], State.RUNNING)


@pytest.mark.parametrize(("for_s", "count"), [(29, 0), (31, 1)])
def test_a_claim_that_stays_though_it_is_deleted_is_not_counted_on(for_s: int, count: int) -> None:
    """A finalizer of somebody's keeps it."""
    story = waiting_for_a_suspended_job()
    claim = story.objects["ResourceClaim", "team-b", "other-a1-worker-00000"]
    claim["metadata"]["deletionTimestamp"] = timestamp(story.now - timedelta(seconds=for_s))
    remove_pod_alone(story, "other-a1-worker-00000")
    assert len(ends(story, "low")) == count
