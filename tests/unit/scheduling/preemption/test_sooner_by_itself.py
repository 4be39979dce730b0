"""Nobody ends for a job that starts by itself before those would have had their grace."""

from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from scenarios.manifests import priority_class
from scenarios.story import Story, plugin_node
from unit.scheduling.preemption.test_preempted_jobs import begin, ends, finish, job, told


def on(number: int) -> dict[str, Any]:
    """The field of a job that runs on this node."""
    container = {"name": "trainer", "image": "train:1"}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": f"gpu-{number}"}}
    return {"template": {"spec": spec}}


def nearly_over(left_s: int, *others: dict[str, Any]) -> Story:
    """Three whole nodes that others hold: `low` for so long by its deadline, the rest for hours."""
    nodes = [each for number in (1, 2, 3) for each in plugin_node(f"gpu-{number}")]
    story = Story(*nodes, priority_class("high", 100))
    story.add(job("top", priorityClassName="high", expectedDuration="10h", **on(1)))
    story.add(job("middle", expectedDuration="5h", **on(2)))
    story.add(job("low", activeDeadlineSeconds=600, **on(3)))
    story.settle()
    begin(story)
    story.pass_time(600 - left_s)
    for each in others:
        story.add(each)
        story.settle()
    story.add(job("urgent", priorityClassName="high", expectedDuration="1h"))
    story.settle()
    return story


LARGE = job("large", 24, priorityClassName="high")


@pytest.mark.parametrize("others", [(), (LARGE,)], ids=["first", "behind a reservation"])
def test_a_job_waits_for_an_end_that_is_nearer_than_a_victims_grace(others: tuple[dict[str, Any], ...]) -> None:
    story = nearly_over(10, *others)
    assert [ends(story, name) for name in ("low", "middle", "top")] == [[], [], []]
    assert told(story, "urgent")[0] == PendingReason.INSUFFICIENT_GPUS
    story.pass_time(10)
    story.settle()
    finish(story)
    begin(story)
    assert [reason for _, reason, _ in ends(story, "low")] == ["DeadlineExceeded"]
    assert story.status("urgent").state is State.RUNNING


@pytest.mark.parametrize("others", [(), (LARGE,)], ids=["first", "behind a reservation"])
def test_it_waits_for_none_that_is_farther(others: tuple[dict[str, Any], ...]) -> None:
    story = nearly_over(120, *others)
    assert told(story, "urgent")[0] == PendingReason.PREEMPTION_PENDING
