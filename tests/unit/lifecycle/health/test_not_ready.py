"""A gang that runs while a Pod of it does not become ready: when that is told, and that nothing ends by it."""

from typing import Any

from closeknit.lifecycle.status.blame import UNREADY_AFTER
from closeknit.lifecycle.status.conditions import timestamp
from scenarios.manifests import training_job
from scenarios.networks import degraded
from scenarios.stories import two_plugin_nodes
from scenarios.story import Story, plugin_node

POD = "train-a1-worker-00000"
SAID = "containers with unready status: [trainer]"
WORDS = (
    "Pods of it run and have not been ready for 10 min; kubectl get pods -l closeknit.dev/job=train tells which, "
    "kubectl describe pod which probe fails or which container has ended; ranks reach each other all the same"
)
NOTE = f"{POD} not ready for 10 min: {SAID}"


def ready(story: Story, *, is_ready: bool) -> list[dict[str, Any]]:
    condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": timestamp(story.now)}
    return [condition | ({} if is_ready else {"reason": "ContainersNotReady", "message": SAID})]


def ran() -> Story:
    """A job whose one Pod runs, and is not ready."""
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.settle()
    story.run_all()
    story.change_pod(POD, conditions=ready(story, is_ready=False))
    story.settle()
    return story


def found(story: Story) -> tuple[str, str, str] | None:
    told = degraded(story)
    return None if told is None else (told.status, told.reason, told.message or "")


def test_it_is_told_after_ten_minutes_and_taken_back() -> None:
    story = ran()
    assert found(story) is None
    (waits,) = [plan for plan in story.plans() if plan.wake_after_s is not None]
    assert waits.wake_after_s == UNREADY_AFTER.total_seconds()
    story.pass_time(UNREADY_AFTER.total_seconds())
    (plan,) = story.plans()
    assert plan.notice is not None
    assert (plan.notice.reason, plan.notice.note, plan.notice.warning) == ("PodsNotReady", NOTE, True)
    story.settle()
    assert found(story) == ("True", "PodsNotReady", WORDS)
    assert story.status().state == "Running"
    assert not [plan for plan in story.plans() if plan.writes]
    story.change_pod(POD, conditions=ready(story, is_ready=True))
    story.settle()
    assert found(story) == ("False", "AsPlanned", "")


def test_one_that_falls_out_later_is_given_as_long() -> None:
    story = ran()
    story.change_pod(POD, conditions=ready(story, is_ready=True))
    story.pass_time(3600)
    story.settle()
    story.change_pod(POD, conditions=ready(story, is_ready=False))
    (waits,) = [plan for plan in story.plans() if plan.wake_after_s is not None]
    assert waits.wake_after_s == UNREADY_AFTER.total_seconds()
    story.settle()
    assert found(story) is None
    story.pass_time(UNREADY_AFTER.total_seconds())
    story.settle()
    assert found(story) == ("True", "PodsNotReady", WORDS)


def test_pods_that_nobody_calls_not_ready_are_not_told_of() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.pass_time(2 * UNREADY_AFTER.total_seconds())
    story.settle()
    assert found(story) is None


def test_one_more_of_them_is_no_news() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    for rank in (0, 1):
        story.change_pod(f"train-a1-worker-{rank:05d}", conditions=ready(story, is_ready=False))
        story.pass_time(60)
    story.pass_time(UNREADY_AFTER.total_seconds() - 61)
    story.settle()
    assert found(story) == ("True", "PodsNotReady", WORDS)
    story.pass_time(120)
    assert not [plan for plan in story.plans() if plan.writes]
