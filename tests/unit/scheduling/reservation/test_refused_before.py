"""Room is kept for a job that was refused once; for one that is refused again and again ever more rarely."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.reasons import PendingReason
from closeknit.lifecycle.writes.refusals import FIRST_ROOM_PAUSE, LONGEST_ROOM_PAUSE
from closeknit.lifecycle.writes.resource_quotas import Quota
from closeknit.scheduling.memo.memory import Memory
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node
from unit.scheduling.resizing.test_elastic_jobs import begin, elastic, fixed, site

pytestmark = pytest.mark.usefixtures("no_mistakes")

FULL = [Quota("team", {"pods": "3"}, {"pods": "0"})]
LARGE: dict[str, Any] = {"gpus": 32, "expectedDuration": "2h"}


def small(story: Story) -> None:
    """A job of another namespace, which is in the way of the large one for long."""
    story.add(training_job("small", namespace="team-c", spec={"gpus": 8, "expectedDuration": "30h"}))
    begin(story)
    assert story.status("small", "team-c").placement is not None


def end(story: Story) -> None:
    del story.objects["TrainingJob", "team-c", "small"]
    for key in [key for key in story.objects if key[0] == "Pod" and key[1] == "team-c"]:
        del story.objects[key]


def is_kept(story: Story) -> bool:
    """Whether room is kept for the large one, which waits for room."""
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.INSUFFICIENT_GPUS
    return pending.reserved_since is not None


def refused(story: Story) -> None:
    """The quota refuses the large one, and is raised; meanwhile a small one comes."""
    story.quotas = FULL
    begin(story)
    story.pass_time(60)  # a reason that it was told lately is written a minute later
    begin(story)
    assert story.status().pending.reason == PendingReason.QUOTA_EXCEEDED  # type: ignore[union-attr]
    story.quotas = []
    small(story)
    story.pass_time(60)
    begin(story)


def test_room_is_kept_for_a_job_that_a_quota_refused_once() -> None:
    story = site()
    story.add(training_job(spec=LARGE))
    refused(story)
    assert not is_kept(story)
    story.pass_time(FIRST_ROOM_PAUSE.total_seconds())
    begin(story)
    assert is_kept(story)


def test_the_pause_doubles_where_room_was_kept_in_vain() -> None:
    story, pause = site(), FIRST_ROOM_PAUSE
    story.add(training_job(spec=LARGE))
    for _ in range(9):
        refused(story)
        story.pass_time((pause - timedelta(minutes=2)).total_seconds())
        begin(story)
        assert not is_kept(story)
        story.pass_time(120)
        begin(story)
        assert is_kept(story)
        end(story)
        pause = min(LONGEST_ROOM_PAUSE, 2 * pause)
    assert pause == LONGEST_ROOM_PAUSE


def test_an_edited_job_has_room_kept_at_once() -> None:
    story = site()
    story.add(training_job(spec=LARGE))
    story.forbidden["train-a1-worker-00000"] = "use no latest"
    story.settle()
    small(story)
    story.edit_job(priorityClassName="")
    story.forbidden.clear()
    story.pass_time(3)
    begin(story)
    assert is_kept(story)


def test_one_that_runs_is_not_on_trial_though_something_is_written_of_it_again_and_again() -> None:
    """One of its namespace is refused: others get what they get without that."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), fixed("runs"), fixed("refused"))
    story.forbidden["refused-a1-worker-00000"] = "use no latest"
    begin(story)
    other = elastic("other", 16)
    other["metadata"]["namespace"] = "team-c"
    story.add(other)
    memory, busy = Memory(), frozenset({JobKey("team-b", "runs")})
    for _ in range(6):
        story.pass_time(30)
        decision = story.decide(replace(memory, busy=busy, put_aside=busy))
        memory = Memory(schedule=decision.schedule, followed=decision.followed, told=decision.told)
        for plan in decision.plans:
            if plan.writes and plan.job not in busy:
                story.write(plan)
    assert story.status("other", "team-c").placement is not None
