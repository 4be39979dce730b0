"""Nobody makes room for a job that Kueue admits no longer."""

from collections.abc import Callable

import pytest

from closeknit.api.names import QUEUE_LABEL, JobKey
from closeknit.api.trainingjob_status import State
from scenarios.manifests import priority_class, training_job
from scenarios.story import Story
from unit.lifecycle.kueue.test_queues import NAME, admit, evict, kueue_story, queued_job
from unit.scheduling.preemption.test_preempted_jobs import begin, ends, told


def delete_workload(story: Story) -> None:
    del story.objects["Workload", "team-b", NAME]


def take_out_and_evict(story: Story) -> None:
    """Kueue has evicted it, and somebody else takes it out of its queue meanwhile."""
    evict(story)
    story.objects["TrainingJob", "team-b", "train"]["metadata"]["labels"] = {}


def held() -> Story:
    """What both nodes have is to be the urgent job's, and nobody has gone yet."""
    urgent = queued_job(gpus=16, priorityClassName="high")
    story = kueue_story(priority_class("high", 100), training_job("train-low", spec={"gpus": 16}), job=urgent)
    story.settle()
    begin(story)
    admit(story)
    story.write_once()
    assert (told(story, "train")[0], ends(story, "train-low")) == ("PreemptionPending", [])
    return story


@pytest.mark.parametrize("takes_back", [evict, delete_workload])
def test_who_was_to_make_room_stays_where_kueue_takes_the_quota_back(takes_back: Callable[[Story], None]) -> None:
    story = held()
    takes_back(story)
    story.settle()
    assert (ends(story, "train-low"), story.status("train-low").state) == ([], State.RUNNING)
    assert story.status().placement is None
    story.pass_time(61)
    story.settle()
    assert told(story, "train")[0] == "WaitingForKueue"


def test_a_job_that_has_left_its_queue_meanwhile_needs_no_quota() -> None:
    story = held()
    take_out_and_evict(story)
    story.settle()
    assert [reason for _, reason, _ in ends(story, "train-low")] == ["Preempted"]
    assert QUEUE_LABEL not in story.cluster.jobs[JobKey("team-b", "train")].metadata.labels
