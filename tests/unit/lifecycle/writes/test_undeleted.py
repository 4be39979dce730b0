"""Pods that the operator may not delete: the status says so for as long as they stay, and what to do."""

import pytest

from closeknit.api.reasons import ConditionType
from closeknit.lifecycle.status.conditions import found
from closeknit.lifecycle.writes.results import Denial, DenialKind
from scenarios.stories import two_plugin_nodes
from scenarios.story import Story

NO_RIGHT = Denial(DenialKind.NO_RIGHT, 403, "Forbidden", "cannot delete resource")
POLICY = Denial(DenialKind.FORBIDDEN, 403, "Forbidden", "denied request: not this one")
TO_DO = {
    NO_RIGHT: "the operator has no right to delete Pods in namespace team-b; have an administrator add team-b to "
    "rbac.namespaces of closeknit's chart again, or delete them yourself",
    POLICY: "denied request: not this one; have an administrator see to what forbids that, or delete them yourself",
}
FREE = "its GPUs are free as soon as its Pods are gone"
BOTH = pytest.mark.parametrize("denial", [NO_RIGHT, POLICY], ids=["no right", "a policy"])


def running(denial: Denial) -> Story:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    story.undeletable = denial
    return story


def step(story: Story) -> None:
    """One decision and its writes: a Pod that stays is asked for again and again."""
    for plan in story.plans():
        story.write(plan)


def placed(story: Story) -> str | None:
    condition = found(story.status().conditions, ConditionType.PLACED)
    assert condition is not None
    return condition.message


@BOTH
def test_a_suspended_job_whose_pods_run_on_says_so_until_they_are_gone(denial: Denial) -> None:
    story = running(denial)
    story.edit_job(suspend=True)
    step(story)
    assert placed(story) == f"spec.suspend is true: {FREE}"
    assert story.notices[-1].note == f"spec.suspend is true: {FREE}"
    step(story)
    stays = f"Pod train-a1-worker-00000 and 1 more could not be deleted, and may run on and keep GPUs: {TO_DO[denial]}"
    assert (placed(story), story.pods()) == (
        f"spec.suspend is true: {stays}",
        ["train-a1-worker-00000", "train-a1-worker-00001"],
    )
    written = len(story.written)
    for _ in range(3):
        step(story)
    assert len(story.written) == written
    story.undeletable = None
    story.settle()
    assert (placed(story), story.pods()) == (f"spec.suspend is true: {FREE}", [])


@BOTH
def test_so_does_a_failed_one(denial: Denial) -> None:
    story = running(denial)
    story.change_pod("train-a1-worker-00000", phase="Failed")
    step(story)
    assert placed(story) == f"it is over: {FREE}"
    step(story)
    stays = f"Pod train-a1-worker-00001 could not be deleted, and may run on and keep GPUs: {TO_DO[denial]}"
    assert placed(story) == f"it is over: {stays}"
    story.remove_pod("train-a1-worker-00001")  # somebody else does
    story.settle()
    assert placed(story) == f"it is over: {FREE}"
