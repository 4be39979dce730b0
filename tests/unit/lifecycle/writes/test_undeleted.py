"""Children that stay. Of Pods that the operator may not delete the status says so, and what to do. The deletion of a
Service that gets no answer is asked for again."""

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


LOST = Denial(DenialKind.LOST, 504, "Timeout", "request did not complete in time")


def services(story: Story) -> list[str]:
    return [name for kind, _, name in story.objects if kind == "Service"]


def test_a_service_whose_deletion_is_lost_is_deleted_once_the_api_server_answers() -> None:
    story = running(LOST)
    story.undeletable_kind = "Service"
    story.edit_job(suspend=True)
    for _ in range(3):
        step(story)
    assert (story.pods(), services(story)) == ([], ["train-a1"])
    story.undeletable = None
    story.settle()
    assert services(story) == []
    story.edit_job(suspend=False)
    story.settle()
    assert services(story) == ["train-a2"]


def test_the_service_of_an_attempt_that_begins_again_under_its_number_is_kept() -> None:
    """Its deletion was lost when a child of the attempt had been refused."""
    story = two_plugin_nodes()
    story.forbidden["train-a1-worker-00001"] = "no second one"
    story.undeletable, story.undeletable_kind = LOST, "Service"
    for _ in range(3):
        step(story)
    assert (story.pods(), services(story)) == ([], ["train-a1"])
    story.forbidden.clear()
    story.pass_time(600)
    step(story)
    story.undeletable = None
    story.run_all()
    story.settle()
    assert (len(story.pods()), services(story)) == (2, ["train-a1"])


def test_a_service_that_a_policy_keeps_is_not_asked_for_again() -> None:
    story = running(POLICY)
    story.undeletable_kind = "Service"
    story.edit_job(suspend=True)
    story.settle()
    assert services(story) == ["train-a1"]
