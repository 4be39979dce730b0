"""A job that prefers a level waits for it as long as its patience lasts, and then takes the best there is."""

from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.conditions import timestamp
from scenarios.machines import hgx_h200
from scenarios.manifests import (
    cluster_topology,
    condition,
    node,
    node_topology,
    pod,
    resource_claim,
    resource_slice,
    told,
    training_job,
    uuids,
)
from scenarios.stories import booked_nodes, unschedulable
from scenarios.story import Story

GPUS = range(8)


def racked(name: str, block: str, rack: str) -> list[dict[str, Any]]:
    labels = {"net.example/block": block, "net.example/rack": rack}
    return [node(name, gpus=None, labels=labels), node_topology(name, count=8), resource_slice(name, GPUS)]


def held(name: str) -> dict[str, Any]:
    return resource_claim(f"on-{name}", *((name, index) for index in GPUS))


def story(*, gpus: int = 16, fabric: dict[str, str] | None = None, **status: Any) -> Story:
    """Two racks of two nodes in each of two blocks; in each rack of the first one node is held, the second is full."""
    machines = [
        machine
        for number in range(1, 9)
        for machine in racked(f"gpu-{number}", "b1" if number < 5 else "b2", f"r{(number + 1) // 2}")
    ]
    spec = {"gpus": gpus, "topology": {"fabric": fabric or {"preferred": "rack", "patience": "10m"}}}
    holders = [held(f"gpu-{number}") for number in (2, 4, 5, 6, 7, 8)]
    job = training_job(spec=spec, **status)
    job["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    return Story(cluster_topology("block", "rack"), *machines, *holders, job)


def free(waiting: Story, claim: str) -> None:
    del waiting.objects["ResourceClaim", "ml", claim]


def nodes(found: Story) -> list[str]:
    return [each.name for each in booked_nodes(found)]


def test_it_waits_and_says_for_what() -> None:
    waiting = story()
    waiting.settle()
    pending = waiting.status().pending
    assert pending is not None
    assert (pending.reason, pending.message) == (
        "WaitingForPreferred",
        "prefers 16 GPUs in one rack; b1/r1 has the most free, 8 on 1 node; it fits over 2 domains of level rack, "
        "which it takes once fabric.patience is over; 48 excluded: 48 held by 6 claims; "
        "it waits until 2026-11-21T10:10:00Z at the latest",
    )
    assert waiting.status().state is State.QUEUED
    waiting.pass_time(599)
    waiting.settle()
    assert waiting.status().state is State.QUEUED


def test_when_its_patience_is_over_it_takes_the_best_there_is() -> None:
    waiting = story()
    waiting.settle()
    wake_at = waiting.decide().wake_at
    assert wake_at is not None
    assert (wake_at - waiting.now).total_seconds() == 600
    waiting.pass_time(600)
    waiting.settle()
    assert nodes(waiting) == ["gpu-1", "gpu-3"]


def test_what_it_prefers_is_taken_as_soon_as_it_is_free() -> None:
    waiting = story()
    waiting.settle()
    waiting.pass_time(300)
    free(waiting, "on-gpu-4")
    waiting.settle()
    assert nodes(waiting) == ["gpu-3", "gpu-4"]


@pytest.mark.parametrize(
    ("gpus", "fabric"),
    [
        pytest.param(32, {"preferred": "rack", "patience": "10m"}, id="no rack is so large"),
        pytest.param(16, {"preferred": "rack"}, id="it has no patience"),
        pytest.param(16, {"preferred": "block", "patience": "10m"}, id="it lies in one block anyhow"),
    ],
)
def test_it_does_not_wait_where_that_would_gain_nothing(gpus: int, fabric: dict[str, str]) -> None:
    at_once = story(gpus=gpus, fabric=fabric)
    if gpus == 32:
        for name in ("gpu-2", "gpu-4"):
            free(at_once, f"on-{name}")
    at_once.settle()
    assert at_once.status().state is State.STARTING


@pytest.mark.parametrize(
    ("binding", "gpus", "taken", "fabric"),
    [
        ("WholeNode", 16, {"gpu-2": 8, "gpu-4": 8}, {"preferred": "rack", "patience": "10m"}),
        ("BestEffort", 16, {"gpu-2": 8, "gpu-4": 8}, {"preferred": "rack", "patience": "10m"}),
        ("BestEffort", 8, {f"gpu-{number}": 4 for number in range(1, 5)}, {"preferred": "host", "patience": "10m"}),
        ("BestEffort", 8, {f"gpu-{number}": 4 for number in range(1, 5)}, {}),
    ],
    ids=["whole nodes of a rack", "a rack", "a host", "one machine"],
)
def test_it_waits_though_a_plugin_binds_its_gpus(
    binding: str, gpus: int, taken: dict[str, int], fabric: dict[str, str]
) -> None:
    """Whatever binds them is nothing of an empty copy of the cluster."""
    waiting = Story(cluster_topology("rack"))
    for number in range(1, 5):
        name = f"gpu-{number}"
        labels = {"net.example/rack": f"r{(number + 1) // 2}"}
        for machine in (node(name, labels=labels), {**node_topology(name), "spec": hgx_h200(name).wire()}):
            waiting.add(machine)
        if count := taken.get(name):
            plugin = "nvidia.com/gpu"
            waiting.add(
                told(pod(f"on-{name}", node=name, requests={plugin: str(count)}), (plugin, uuids(name, *range(count))))
            )
    job = training_job(spec={"gpus": gpus, "gpu": {"binding": binding}, "topology": {"fabric": fabric}})
    job["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    waiting.add(job)
    waiting.settle()
    pending = waiting.status().pending
    assert pending is not None
    assert pending.reason == "WaitingForPreferred"
    waiting.pass_time(1800)
    waiting.settle()
    assert waiting.status().state is State.STARTING


@pytest.mark.parametrize("patience", ["87600000h", "9999999999999999999999999999999h"], ids=["no date", "no interval"])
def test_patience_beyond_the_calendar_is_for_ever(patience: str) -> None:
    waiting = story(fabric={"preferred": "rack", "patience": patience})
    waiting.settle()
    waiting.pass_time(86_400)
    waiting.settle()
    pending = waiting.status().pending
    assert pending is not None
    assert pending.reason == "WaitingForPreferred"


def test_the_required_level_stays_required() -> None:
    """The blocks have a free node each: it does not fit inside one, with patience or without."""
    waiting = story(fabric={"required": "block", "preferred": "rack", "patience": "10m"})
    free(waiting, "on-gpu-8")
    waiting.add(held("gpu-3"))
    for _ in range(2):
        waiting.settle()
        pending = waiting.status().pending
        assert pending is not None
        assert pending.message.startswith("needs 16 GPUs in one block; b1 has the most free, 8 on 1 node")
        waiting.pass_time(600)


def test_patience_begins_anew_with_the_end_of_a_suspension() -> None:
    resumed = {**condition("Suspended", "False", "Resumed"), "lastTransitionTime": "2026-11-21T10:05:00Z"}
    waiting = story(conditions=[resumed])
    waiting.pass_time(600)
    waiting.settle()
    assert waiting.status().state is State.QUEUED
    waiting.pass_time(300)
    waiting.settle()
    assert waiting.status().state is State.STARTING


UNKNOWN = (
    "prefers level row, and is placed without it: this cluster has block, rack and host; name one of these in "
    "topology.fabric.preferred, or have an administrator describe the level in ClusterTopology default"
)


def admitted(found: Story) -> tuple[str, str, str | None]:
    (told,) = [each for each in found.status().conditions if each.type == "Admitted"]
    return told.status, told.reason, told.message


@pytest.mark.parametrize("patience", ["0s", "10m"])
def test_a_preferred_level_that_is_not_there_is_told_and_keeps_it_from_nothing(patience: str) -> None:
    at_once = story(fabric={"preferred": "row", "patience": patience})
    at_once.settle()
    assert nodes(at_once) == ["gpu-1", "gpu-3"]
    assert admitted(at_once) == ("True", "PreferredLevelUnknown", UNKNOWN)
    (placed,) = at_once.notices
    assert placed.warning
    assert placed.note.endswith(f"; {UNKNOWN}")


def test_a_job_that_waits_is_told_so_too_until_the_level_is_there() -> None:
    waiting = story(gpus=64, fabric={"preferred": "row"})
    waiting.settle()
    pending = waiting.status().pending
    assert pending is not None
    assert pending.reason == "InsufficientGPUs"
    assert admitted(waiting) == ("True", "PreferredLevelUnknown", UNKNOWN)
    waiting.add(cluster_topology("row", "block", "rack"))
    waiting.pass_time(60)
    waiting.settle()
    assert admitted(waiting) == ("True", "Accepted", "")


@pytest.mark.parametrize("had", ["block", "row"])
def test_a_level_that_comes_or_goes_right_after_it_was_told_is_told_a_minute_later(had: str) -> None:
    """Nothing else of its words changes, so that nothing else wakes the operator for them."""
    waiting = story(gpus=64, fabric={"preferred": "row"})
    waiting.add(cluster_topology(had, "rack"))
    waiting.settle()
    before, told_at = admitted(waiting), waiting.now
    waiting.add(cluster_topology("row" if had == "block" else "block", "rack"))
    waiting.pass_time(1)
    waiting.settle()
    assert admitted(waiting) == before
    assert waiting.decide().wake_at == told_at + timedelta(minutes=1)
    waiting.pass_time(60)
    waiting.settle()
    assert admitted(waiting)[1] == ("Accepted" if had == "block" else "PreferredLevelUnknown")


def lose(placed: Story, thief: str) -> None:
    """Somebody else gets the GPUs of a Pod on gpu-4 before it is bound."""
    placed.add(resource_claim(thief, *(("gpu-4", index) for index in GPUS)))
    words = "0/8 nodes are available: 1 cannot allocate all claims, 7 node(s) didn't match Pod's node affinity."
    placed.change_pod(placed.pods()[1], conditions=[unschedulable(words, timestamp(placed.now))])
    placed.pass_time(2)
    placed.settle()


def test_an_attempt_that_never_ran_moves_the_end_once_told_no_further() -> None:
    waiting = story()
    waiting.settle()
    for number in range(1, 4):
        pending = waiting.status().pending
        assert pending is not None
        assert pending.message.endswith("it waits until 2026-11-21T10:10:00Z at the latest")
        waiting.pass_time(120)
        free(waiting, "on-gpu-4" if number == 1 else f"thief-{number - 1}")
        waiting.settle()
        assert nodes(waiting) == ["gpu-3", "gpu-4"]
        lose(waiting, f"thief-{number}")
        waiting.pass_time(4)  # the pause after some in a row
        waiting.settle()
    waiting.pass_time(600)
    waiting.settle()
    assert nodes(waiting) == ["gpu-1", "gpu-3"]


def test_an_edit_before_the_first_booking_moves_the_end() -> None:
    waiting = story()
    waiting.settle()
    waiting.edit_job(topology={"fabric": {"preferred": "rack", "patience": "30m"}})
    waiting.settle()
    assert waiting.status().patient_until == "2026-11-21T10:30:00Z"
    waiting.edit_job(topology={"fabric": {"preferred": "rack", "patience": "0s"}})
    waiting.settle()
    assert waiting.status().state is State.STARTING
