"""A job of high priority gets the room of others: who goes, when, and what is held for whom."""

from typing import Any

import pytest

from closeknit.api.names import PendingReason
from closeknit.api.trainingjob_status import State
from scenarios.manifests import priority_class, training_job
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])
HIGH = {"priorityClassName": "high"}


def site(kind: Any, *jobs: dict[str, Any], nodes: int = 1) -> Story:
    """So many nodes, and jobs that run there."""
    machines = [each for number in range(1, nodes + 1) for each in kind(f"gpu-{number}")]
    story = Story(*machines, priority_class("high", 100), priority_class("meek", 100, preempts=False), *jobs)
    story.settle()
    begin(story)
    return story


def job(name: str, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    return training_job(name, spec={"gpus": gpus, **spec})


def begin(story: Story) -> None:
    """All Pods run, and their containers with them."""
    story.run_all()
    for name in story.pods():
        if story.pod(name)["status"].get("phase") == "Running":
            states = [{"name": "trainer", "state": {"running": {"startedAt": "2026-11-21T10:00:00Z"}}}]
            story.change_pod(name, containerStatuses=states)
    story.settle()


def finish(story: Story) -> None:
    """Kubelets end what they were told to end."""
    story.end_stopped()
    for (kind, _, name), pod in story.objects.items():
        claim = story.objects.get(("ResourceClaim", "team-b", name))
        if kind == "Pod" and pod["status"]["phase"] == "Failed" and claim is not None:
            claim.pop("status", None)  # Kubernetes' own controller frees it
    story.settle()


def told(story: Story, name: str) -> tuple[str, str]:
    pending = story.status(name).pending
    return (pending.reason, pending.message) if pending is not None else ("", "")


def ends(story: Story, name: str) -> list[tuple[int, str, bool]]:
    return [(each.number, each.reason, each.charged) for each in story.status(name).attempts]


@KINDS
def test_a_job_of_high_priority_takes_the_room_of_a_low_one(kind: Any) -> None:
    story = site(kind, job("low"))
    assert story.status("low").state is State.RUNNING
    story.add(job("urgent", **HIGH))
    story.settle()
    assert ends(story, "low") == [(1, "Preempted", False)]
    assert told(story, "urgent")[0] == PendingReason.PREEMPTION_PENDING
    assert "left is Pod team-b/low-a1-worker-00000 on node gpu-1" not in told(story, "urgent")[1]
    assert not [name for name in story.pods() if name.startswith("urgent")]
    finish(story)
    begin(story)
    assert story.status("urgent").state is State.RUNNING
    assert story.status("low").state is State.RESTARTING
    assert told(story, "low")[0] == PendingReason.INSUFFICIENT_GPUS
    placement = story.status("urgent").placement
    assert placement is not None
    assert placement.awaits is None
