"""Pods are bound and their containers do not start: it is told once, and nothing ends by it."""

from scenarios.stories import conditions, ended, two_plugin_nodes
from scenarios.story import Story


def bound() -> Story:
    """A gang that is bound to its nodes."""
    story = two_plugin_nodes()
    story.settle()
    for name, node in (("train-a1-worker-00000", "gpu-1"), ("train-a1-worker-00001", "gpu-2")):
        story.change_pod(name, node=node, phase="Pending")
    return story


def waiting(story: Story, name: str, reason: str, message: str = "") -> None:
    state = {"waiting": {"reason": reason, "message": message}}
    story.change_pod(name, containerStatuses=[{"name": "trainer", "state": state}])


def running(story: Story) -> tuple[str, str, str]:
    found = next(each for each in story.status().conditions if each.type == "Running")
    return found.status, found.reason, found.message or ""


def test_an_image_that_cannot_be_pulled_is_told_once() -> None:
    story = bound()
    waiting(story, "train-a1-worker-00001", "ErrImagePull", "not found")
    story.settle()
    told = ("False", "NotStarting")
    message = (
        "Pod train-a1-worker-00001 on node gpu-2 does not start: container trainer waits for ErrImagePull (not found)"
    )
    assert running(story) == (*told, message)
    assert [notice.reason for notice in story.notices] == ["Placed", "NotStarting"]
    before = len(story.written)
    for reason in ("ImagePullBackOff", "ErrImagePull"):  # the kubelet says both by turns
        waiting(story, "train-a1-worker-00001", reason, "not found")
        story.pass_time(10)
        story.settle()
    assert story.written[before:] == []
    story.run_all()
    for name in story.pods():
        story.change_pod(name, phase="Running")
    story.settle()
    assert (conditions(story)["Running"], ended(story)) == ("True", [])


def test_a_container_on_its_way_is_not_told_of() -> None:
    story = bound()
    waiting(story, "train-a1-worker-00001", "ContainerCreating")
    story.settle()
    assert running(story)[:2] == ("False", "Starting")


def test_a_kubelet_that_says_nothing_is_told_of_after_a_while() -> None:
    """As of a claim that no driver prepares."""
    story = bound()
    for name in story.pods():
        waiting(story, name, "ContainerCreating")
    (plan,) = story.plans()
    assert plan.wake_after_s == 300
    story.pass_time(301)
    story.settle()
    assert running(story) == (
        "False",
        "NotStarting",
        "Pod train-a1-worker-00000 on node gpu-1 has not started for 5 min (1 more Pod likewise); "
        "kubectl describe pod tells what it waits for",
    )
    assert ended(story) == []
