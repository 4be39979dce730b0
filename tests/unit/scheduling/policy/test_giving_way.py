"""A gang that is too large for the level that it prefers gives way while smaller jobs wait, and waits for the next
one."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.verdict import Book, Wait
from closeknit.scheduling.policy.backlog import CROWD, Backlog, Contender
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
    """A job that has come first, and for which there is no room: on its node, where it says nothing of levels."""
    selector = {"nodeSelector": {"kubernetes.io/hostname": "gpu-2"}}
    job = training_job(f"other-{number}", spec={"gpus": 8, **spec})
    if not spec.get("topology"):
        job["spec"]["template"]["spec"] |= selector
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
        "is too large for any rack and, while smaller jobs wait for room, waits for 24 GPUs in one block; b1 has the "
        "most free, 16 on 2 nodes; it fits over 2 domains of level block, which it takes once fabric.patience is over "
        "or few of them wait; 32 excluded: 32 held by 4 claims; it waits until 2026-11-21T10:10:00Z at the latest",
    )


def test_it_takes_what_there_is_where_few_wait() -> None:
    assert told(*many(CROWD - 1)).status().state is State.STARTING


@pytest.mark.parametrize("go", [leaves, pauses, is_going])
def test_it_takes_what_there_is_as_soon_as_few_wait(go: Callable[[Story, int], None]) -> None:
    waiting = told(*many())
    assert is_waiting(waiting)
    go(waiting, 0)
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
    refused: dict[str, Any] = {"topology": {"fabric": {"required": "galaxy"}}}
    found = told(*many(**refused))
    pending = found.status("other-0").pending
    assert pending is not None
    assert pending.reason == "UnknownLevel"
    assert found.status().state is State.STARTING


def test_those_that_it_gives_way_to_take_what_it_leaves() -> None:
    in_one_rack = {"gpusPerNode": 8, "fabric": {"required": "rack"}}
    waiting = told(*many(gpus=16, topology=in_one_rack))
    assert is_waiting(waiting)
    del waiting.objects["ResourceClaim", "ml", "on-gpu-2"]
    waiting.settle()
    assert waiting.status("other-0").state is State.STARTING


def test_who_is_given_room_in_this_very_decision_still_counts() -> None:
    """So the same comes out wherever in the queue it is asked first how many wait."""
    waiting = told(*many())
    del waiting.objects["ResourceClaim", "ml", "on-gpu-2"]
    decided = waiting.decide().schedule
    assert isinstance(decided[JobKey("team-b", "other-0")], Book)
    assert isinstance(decided[JobKey("team-b", "train")], Wait)
    waiting.settle()
    assert waiting.status().state is State.STARTING


@pytest.mark.parametrize("gpus", [24, 32, 512])
def test_it_gives_way_to_smaller_jobs_alone(gpus: int) -> None:
    """Gangs as large would each wait for the others, and all GPUs be idle; what it leaves is none that they prefer."""
    assert told(*many(gpus=gpus)).status().state is State.STARTING


def test_gangs_that_are_alike_do_not_wait_for_each_other() -> None:
    """They have all waited for room. When some comes, over both blocks, the first one takes it."""
    topology = {"gpusPerNode": 8, "fabric": {"preferred": "rack", "patience": "10h"}}
    full = [resource_claim(f"on-gpu-{odd}", *((f"gpu-{odd}", index) for index in GPUS)) for odd in (1, 3, 5, 7)]
    gangs = [training_job(f"gang-{number}", spec={"gpus": 24, "topology": topology}) for number in range(3 * CROWD)]
    found = story(*full, *gangs)
    found.settle()
    for claim in full:
        del found.objects["ResourceClaim", "ml", claim["metadata"]["name"]]
    found.settle()
    assert [found.status(gang["metadata"]["name"]).state for gang in gangs].count(State.STARTING) == 1


@pytest.mark.parametrize(
    ("ours", "theirs", "waits"), [(["a"], ["b"], False), (["a", "b"], ["b"], True), ([], ["b"], True)]
)
def test_it_gives_way_to_no_job_that_takes_other_gpus(ours: list[str], theirs: list[str], *, waits: bool) -> None:
    """Whether GPUs of such products are there is no matter of this rule."""
    found = Backlog(Counter({Contender(0, 8, tuple(theirs)): CROWD}))
    assert found.is_crowded(Contender(0, 24, tuple(ours))) is waits
