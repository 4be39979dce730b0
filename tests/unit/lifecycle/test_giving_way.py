"""A gang that is too large for the level that it prefers gives way while many jobs wait, and waits for the next one."""

from collections.abc import Callable
from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.backlog import CROWD
from scenarios.manifests import (
    cluster_topology,
    node,
    node_topology,
    priority_class,
    resource_claim,
    resource_slice,
    training_job,
)
from scenarios.stories import booked_nodes
from scenarios.story import Story

GPUS = range(8)
LONG_AGO = "2026-11-21T09:00:00Z"


def racked(name: str, block: str, rack: str) -> list[dict[str, Any]]:
    labels = {"net.example/block": block, "net.example/rack": rack}
    return [node(name, gpus=None, labels=labels), node_topology(name, count=8), resource_slice(name, GPUS)]


def other(number: int, **spec: Any) -> dict[str, Any]:
    """A job that has come first, and for which there is no room."""
    job = training_job(f"other-{number}", spec={"gpus": 512, **spec})
    job["metadata"]["creationTimestamp"] = LONG_AGO
    return job


def story(
    *others: dict[str, Any], fabric: dict[str, str] | None = None, gpus: int = 24, priority: str | None = None
) -> Story:
    """Two racks of two nodes in each of two blocks; a node of each rack is held. The job has three nodes' GPUs."""
    machines = [
        machine
        for number in range(1, 9)
        for machine in racked(f"gpu-{number}", "b1" if number < 5 else "b2", f"r{(number + 1) // 2}")
    ]
    holders = [resource_claim(f"on-gpu-{even}", *((f"gpu-{even}", index) for index in GPUS)) for even in (2, 4, 6, 8)]
    topology = {"gpusPerNode": 8, "fabric": fabric or {"preferred": "rack", "patience": "10m"}}
    spec = {"gpus": gpus, "topology": topology} | ({"priorityClassName": priority} if priority else {})
    job = training_job(spec=spec)
    job["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    classes = (priority_class("high", 1000), priority_class("low", -1000))
    return Story(cluster_topology("block", "rack"), *classes, *machines, *holders, *others, job)


def many(number: int = CROWD, **spec: Any) -> list[dict[str, Any]]:
    return [other(each, **spec) for each in range(number)]


def told(*others: dict[str, Any], **asked: Any) -> Story:
    """The job comes when the others have been told that they wait."""
    found = story(*others, **asked)
    job = found.objects.pop(("TrainingJob", "team-b", "train"))
    found.settle()
    found.add(job)
    found.settle()
    return found


def leaves(found: Story, number: int) -> None:
    del found.objects["TrainingJob", "team-b", f"other-{number}"]


def pauses(found: Story, number: int) -> None:
    """It stays in the queue, so that the order of all that are asked is what it was."""
    found.objects["TrainingJob", "team-b", f"other-{number}"]["spec"]["suspend"] = True


def is_going(found: Story, number: int) -> None:
    """Somebody's finalizer keeps it."""
    metadata = found.objects["TrainingJob", "team-b", f"other-{number}"]["metadata"]
    metadata |= {"deletionTimestamp": LONG_AGO, "finalizers": ["example.com/audit"]}


def is_waiting(found: Story) -> bool:
    pending = found.status().pending
    return pending is not None and pending.reason == "WaitingForPreferred"


def test_it_waits_for_a_block_and_says_so() -> None:
    waiting = told(*many())
    pending = waiting.status().pending
    assert pending is not None
    assert (pending.reason, pending.message) == (
        "WaitingForPreferred",
        "is too large for any rack and, while many jobs wait for room, waits for 24 GPUs in one block; b1 has the most "
        "free, 16 on 2 nodes; it fits over 2 domains of level block, which it takes once fabric.patience is over or "
        "few jobs wait; 32 excluded: 32 held by 4 claims; it waits until 2026-11-21T10:10:00Z at the latest",
    )


def test_it_takes_what_there_is_where_few_wait() -> None:
    assert told(*many(CROWD - 1)).status().state is State.STARTING


@pytest.mark.parametrize("go", [leaves, pauses, is_going])
def test_it_takes_what_there_is_as_soon_as_few_wait(go: Callable[[Story, int], None]) -> None:
    waiting = told(*many())
    for number in range(2):  # it counts itself since it was told
        assert is_waiting(waiting)
        go(waiting, number)
        waiting.settle()
    assert waiting.status().state is State.STARTING


def test_it_waits_no_longer_than_its_patience() -> None:
    waiting = told(*many())
    wake_at = waiting.decide().wake_at
    assert wake_at is not None
    waiting.pass_time((wake_at - waiting.now).total_seconds())
    waiting.settle()
    assert waiting.status().state is State.STARTING


def test_it_takes_a_block_as_soon_as_one_has_room() -> None:
    waiting = told(*many())
    del waiting.objects["ResourceClaim", "ml", "on-gpu-6"]
    waiting.settle()
    assert [each.name for each in booked_nodes(waiting)] == ["gpu-5", "gpu-6", "gpu-7"]


def test_without_patience_it_does_not_wait() -> None:
    assert told(*many(), fabric={"preferred": "rack"}).status().state is State.STARTING


def test_it_waits_for_no_level_that_it_requires_anyway() -> None:
    found = told(*many(), fabric={"required": "block", "preferred": "rack", "patience": "10m"})
    pending = found.status().pending
    assert pending is not None
    assert pending.reason == "NoDomain"


def test_what_no_domain_could_hold_does_not_wait() -> None:
    """A job of five nodes is larger than a block, too."""
    found = told(*many(), gpus=40)
    pending = found.status().pending
    assert pending is not None
    assert pending.reason == "InsufficientGPUs"
    del found.objects["ResourceClaim", "ml", "on-gpu-6"]
    found.settle()
    assert found.status().state is State.STARTING


@pytest.mark.parametrize(
    ("ours", "theirs", "waits"),
    [("high", "low", False), ("low", "high", True), ("high", "high", True), (None, "low", False)],
)
def test_it_gives_way_to_no_lower_priority(ours: str | None, theirs: str, *, waits: bool) -> None:
    assert is_waiting(told(*many(priorityClassName=theirs), priority=ours)) is waits


def test_who_waits_for_something_else_than_room_does_not_count() -> None:
    refused: dict[str, Any] = {
        "parallelism": {"tensor": 16},
        "gpus": 32,
        "topology": {"fabric": {"required": "galaxy"}},
    }
    found = told(*many(**refused))
    pending = found.status("other-0").pending
    assert pending is not None
    assert pending.reason == "UnknownLevel"
    assert found.status().state is State.STARTING
