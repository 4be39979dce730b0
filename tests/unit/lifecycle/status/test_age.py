"""Since when a job waits: what it is told, and what gives it another age."""

import pytest

from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node

BEGUN = "2026-11-21T10:00:00Z"
QUOTA = 'pods "train-a1-worker-00000" is forbidden: exceeded quota: gpus, requested: 8, used: 8, limited: 8'


def age(story: Story) -> str | None:
    pending = story.status().pending
    assert pending is not None
    return pending.queued_since or pending.since


def waited() -> Story:
    """A job that has waited for two hours, until there is a node."""
    story = Story(training_job(spec={"gpus": 8}))
    story.settle()
    story.pass_time(7200)
    for each in plugin_node("gpu-0"):
        story.add(each)
    return story


@pytest.mark.parametrize("is_on_trial", [True, False], ids=["its booking is stored first", "nothing is stored"])
def test_gpus_that_a_quota_takes_back_leave_it_its_age(is_on_trial: bool) -> None:
    story = waited()
    story.forbidden["train-a1-worker-00000"] = QUOTA
    story.passing_on_trial = is_on_trial
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert "exceeded quota" in pending.message
    assert pending.since == "2026-11-21T12:00:00Z"
    assert age(story) == BEGUN


def test_it_keeps_it_over_many_trials() -> None:
    story = waited()
    story.forbidden["train-a1-worker-00000"] = QUOTA
    story.passing_on_trial = True
    for _ in range(4):
        story.settle()
        assert age(story) == BEGUN
        story.pass_time(3600)


def test_an_attempt_that_no_pod_ever_ran_in_leaves_it_its_age() -> None:
    story = waited()
    story.settle()
    assert story.status().queued_since == BEGUN
    story.change_pod("train-a1-worker-00000", phase="Failed", reason="UnexpectedAdmissionError", message="no GPUs")
    for each in ("Node", "NodeTopology"):
        del story.objects[each, "", "gpu-0"]
    story.settle()
    assert age(story) == BEGUN


@pytest.mark.parametrize("how", ["ran", "suspended"])
def test_what_gives_it_another_age(how: str) -> None:
    story = waited()
    story.settle()
    if how == "ran":
        story.run_all()
        story.settle()
        assert story.status().queued_since is None
        story.change_pod("train-a1-worker-00000", phase="Failed", reason="Evicted")
    else:
        story.edit_job(suspend=True)
        story.settle()
        assert story.status().queued_since is None
        story.edit_job(suspend=False)
    for each in ("Node", "NodeTopology"):
        del story.objects[each, "", "gpu-0"]
    story.settle()
    assert age(story) != BEGUN
