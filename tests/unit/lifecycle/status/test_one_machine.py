"""A job that fits into one machine and names no level waits for one for a while, and then takes several."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.scheduling.reservation.reserve import AGED
from scenarios.machines import hgx_h200, pcie_only
from scenarios.manifests import node, node_topology, resource_claim, resource_slice, training_job
from scenarios.stories import booked_nodes, disruption, unschedulable
from scenarios.story import Story

WAIT_S = 1800


def machine(name: str, made: Callable[[str], NodeTopologySpec]) -> list[dict[str, Any]]:
    spec = made(name).wire()
    gpus = range(len(spec["gpus"]))
    return [node(name, gpus=None), {**node_topology(name), "spec": spec}, resource_slice(name, gpus)]


def story(made: Callable[[str], NodeTopologySpec] = hgx_h200, **spec: Any) -> Story:
    """Two machines, on each of which a notebook holds half of the GPUs; the job would fit on what both have left."""
    count = len(made("gpu-1").gpus)
    names = ("gpu-1", "gpu-2")
    machines = [each for name in names for each in machine(name, made)]
    notebooks = [resource_claim(f"on-{name}", *((name, index) for index in range(count // 2))) for name in names]
    job = training_job(spec={"gpus": count, **spec})
    job["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    return Story(*machines, *notebooks, job)


def free(waiting: Story, claim: str) -> None:
    del waiting.objects["ResourceClaim", "ml", claim]


def reason(waiting: Story) -> str:
    pending = waiting.status().pending
    assert pending is not None
    return str(pending.reason)


def shares(found: Story) -> dict[str, int]:
    return {each.name: len(each.gpus) for each in booked_nodes(found)}


def test_it_waits_and_says_for_what_until_when_and_what_it_would_lose() -> None:
    waiting = story()
    waiting.settle()
    pending = waiting.status().pending
    assert pending is not None
    assert (pending.reason, pending.message) == (
        "WaitingForPreferred",
        "waits for 8 GPUs in one host; gpu-1 has the most free, 4; it fits over 2 hosts at a bandwidth that is not "
        "predicted, where one host gives up to 358.9 GB/s; 8 excluded: 8 held by 2 claims; "
        "it waits until 2026-11-21T10:30:00Z at the latest",
    )
    (placed,) = [each for each in waiting.status().conditions if each.type == "Placed"]
    assert placed.message == pending.message
    waiting.pass_time(WAIT_S - 1)
    waiting.settle()
    assert waiting.status().state is State.QUEUED


def test_it_is_placed_as_soon_as_a_machine_is_free() -> None:
    waiting = story()
    waiting.settle()
    waiting.pass_time(WAIT_S // 2)
    free(waiting, "on-gpu-2")
    waiting.settle()
    assert shares(waiting) == {"gpu-2": 8}


def test_it_is_torn_when_it_has_waited_long_enough() -> None:
    waiting = story()
    waiting.settle()
    wake_at = waiting.decide().wake_at
    assert wake_at is not None
    assert (wake_at - waiting.now).total_seconds() == WAIT_S
    waiting.pass_time(WAIT_S)
    waiting.settle()
    assert shares(waiting) == {"gpu-1": 4, "gpu-2": 4}


def test_the_wait_begins_when_it_could_be_torn() -> None:
    """All day there was no room at all; the first GPUs that come free one by one do not tear it."""
    waiting = story()
    rest = [resource_claim(f"rest-{name}", *((name, index) for index in range(4, 8))) for name in ("gpu-1", "gpu-2")]
    for claim in rest:
        waiting.add(claim)
    waiting.settle()
    assert reason(waiting) == "InsufficientGPUs"
    waiting.pass_time(8 * 3600)
    for claim in rest:
        free(waiting, claim["metadata"]["name"])
    waiting.settle()
    assert reason(waiting) == "WaitingForPreferred"
    waiting.pass_time(WAIT_S - 1)
    waiting.settle()
    assert waiting.status().state is State.QUEUED
    waiting.pass_time(1)
    waiting.settle()
    assert shares(waiting) == {"gpu-1": 4, "gpu-2": 4}


def test_nor_does_a_wait_for_a_required_level_count() -> None:
    """All day no rack had room for it, however torn: the first one that has does not tear it at once."""
    names = {"gpu-1": "r1", "gpu-2": "r1", "gpu-3": "r2"}
    machines = [each for name in names for each in machine(name, hgx_h200)]
    for each in machines:
        if each["kind"] == "Node":
            each["metadata"]["labels"] = {"rack": names[each["metadata"]["name"]]}
    levels = {"spec": {"levels": [{"name": "rack", "nodeLabel": "rack"}]}}
    topology = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "default"}}
    notebooks = [resource_claim(f"on-{name}", *((name, index) for index in range(4))) for name in names]
    rest = resource_claim("rest", *(("gpu-2", index) for index in range(4, 8)))
    job = training_job(spec={"gpus": 8, "topology": {"fabric": {"required": "rack"}}})
    waiting = Story(*machines, {**topology, **levels}, *notebooks, rest, job)
    waiting.settle()
    assert reason(waiting) == "NoDomain"
    waiting.pass_time(8 * 3600)
    free(waiting, "rest")
    waiting.settle()
    waiting.pass_time(WAIT_S - 1)
    waiting.settle()
    assert waiting.status().state is State.QUEUED
    waiting.pass_time(1)
    waiting.settle()
    assert shares(waiting) == {"gpu-1": 4, "gpu-2": 4}


def test_a_job_that_is_tried_and_refused_again_and_again_does_not_make_it_wait_anew() -> None:
    """While the API server is asked, what that one would get counts as taken."""
    waiting = story()
    greedy = training_job("greedy", namespace="other", spec={"gpus": 4})
    greedy["metadata"]["creationTimestamp"] = "2026-11-21T09:00:00Z"
    waiting.forbidden["greedy-a1-worker-00000"] = "no"
    waiting.add(greedy)
    waiting.settle()
    begun = waiting.now
    while reason(waiting) == "InsufficientGPUs":  # it was told so in the first moment
        waiting.pass_time(1)
        waiting.settle()
    while waiting.status().state is State.QUEUED and (waiting.now - begun).total_seconds() < 2 * WAIT_S:
        waiting.pass_time(20)
        waiting.settle()
    assert shares(waiting) == {"gpu-1": 4, "gpu-2": 4}
    assert (waiting.now - begun).total_seconds() < WAIT_S + 60


def others(waiting: Story) -> None:
    """Others take the room that it would be torn over."""
    for name in ("gpu-1", "gpu-2"):
        waiting.add(resource_claim(f"rest-{name}", *((name, index) for index in range(4, 8))))
    waiting.settle()


def leave(waiting: Story) -> None:
    for name in ("gpu-1", "gpu-2"):
        free(waiting, f"rest-{name}")
    waiting.settle()


def told(waiting: Story) -> str:
    """The end of the last sentence that it was told."""
    pending = waiting.status().pending
    assert pending is not None
    return str(pending.message).rpartition("; ")[2]


UNTIL = "it waits until 2026-11-21T10:30:00Z at the latest"


def test_the_end_that_it_was_told_stands_though_others_take_the_room_again_and_again() -> None:
    waiting = story()
    waiting.settle()
    for _ in range(5):
        assert (reason(waiting), told(waiting)) == ("WaitingForPreferred", UNTIL)
        waiting.pass_time(120)
        others(waiting)
        assert (reason(waiting), waiting.status().patient_until) == ("InsufficientGPUs", "2026-11-21T10:30:00Z")
        waiting.pass_time(180)
        leave(waiting)
    waiting.pass_time(WAIT_S - 5 * 300)
    waiting.settle()
    assert shares(waiting) == {"gpu-1": 4, "gpu-2": 4}


def test_it_waits_for_one_machine_no_more_where_there_was_no_room_at_the_end() -> None:
    waiting = story()
    waiting.settle()
    others(waiting)
    waiting.pass_time(2 * WAIT_S)
    leave(waiting)
    assert shares(waiting) == {"gpu-1": 4, "gpu-2": 4}


def lose(placed: Story, thief: str) -> None:
    """Somebody else gets the GPUs of its Pod on gpu-2 before it is bound."""
    placed.add(resource_claim(thief, *(("gpu-2", index) for index in range(8))))
    words = "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) didn't match Pod's node affinity."
    placed.change_pod(placed.pods()[0], conditions=[unschedulable(words, timestamp(placed.now))])
    placed.pass_time(2)
    placed.settle()
    free(placed, thief)


def test_an_attempt_that_never_ran_leaves_the_end_where_it_was() -> None:
    waiting = story()
    waiting.settle()
    for number in (1, 2):
        waiting.pass_time(300)
        free(waiting, "on-gpu-2")
        waiting.settle()
        assert shares(waiting) == {"gpu-2": 8}
        lose(waiting, f"thief-{number}")
        waiting.add(resource_claim("on-gpu-2", *(("gpu-2", index) for index in range(4))))
        waiting.pass_time(2)
        waiting.settle()
        assert (reason(waiting), told(waiting)) == ("WaitingForPreferred", UNTIL)
    waiting.pass_time(WAIT_S)
    waiting.settle()
    assert shares(waiting) == {"gpu-1": 4, "gpu-2": 4}


def test_once_it_has_run_it_waits_anew() -> None:
    waiting = story()
    waiting.settle()
    waiting.pass_time(300)
    free(waiting, "on-gpu-2")
    waiting.settle()
    waiting.run_all()
    waiting.settle()
    assert waiting.status().state is State.RUNNING
    assert waiting.status().patient_until is None
    waiting.pass_time(2 * WAIT_S)
    (name,) = waiting.pods()
    waiting.change_pod(name, phase="Failed", conditions=[disruption("EvictionByEvictionAPI", "drained")])
    waiting.add(resource_claim("on-gpu-2", *(("gpu-2", index) for index in range(4))))
    waiting.settle()
    assert (reason(waiting), told(waiting)) == (
        "WaitingForPreferred",
        "it waits until 2026-11-21T11:35:00Z at the latest",
    )


def test_a_suspended_job_waits_anew() -> None:
    waiting = story()
    waiting.settle()
    waiting.edit_job(suspend=True)
    waiting.settle()
    assert waiting.status().patient_until is None
    waiting.pass_time(WAIT_S)
    waiting.edit_job(suspend=False)
    waiting.settle()
    assert told(waiting) == "it waits until 2026-11-21T11:00:00Z at the latest"


def test_an_end_that_a_wrong_clock_told_holds_nothing_up() -> None:
    waiting = story()
    waiting.pass_time(86_400)
    waiting.settle()
    waiting.pass_time(-86_000)
    waiting.settle()
    assert shares(waiting) == {"gpu-1": 4, "gpu-2": 4}


def test_a_job_without_room_is_not_asked_again_for_its_patience() -> None:
    waiting = story()
    for name in ("gpu-1", "gpu-2"):
        waiting.add(resource_claim(f"rest-{name}", *((name, index) for index in range(4, 8))))
    waiting.settle()
    assert waiting.decide().wake_at == waiting.now + AGED, "when room is kept for it"


def test_it_writes_nothing_more_while_it_waits() -> None:
    waiting = story()
    waiting.settle()
    written = list(waiting.written)
    for _ in range(3):
        waiting.pass_time(WAIT_S / 4)
        waiting.settle()
    assert waiting.written == written


def test_nobody_behind_it_waits_for_it() -> None:
    """It holds nothing, so that a smaller job after it gets its GPUs at once."""
    waiting = story()
    later = training_job("later", spec={"gpus": 4})
    later["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    waiting.add(later)
    waiting.settle()
    assert waiting.status("later").state is State.STARTING
    assert waiting.status().state is State.QUEUED


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"topology": {"nvlink": "Ignored"}}, id="NVLink is nothing to it"),
        pytest.param({"topology": {"gpusPerNode": 4}}, id="it asks for so many on each node"),
        pytest.param({"topology": {"fabric": {"preferred": "host"}}}, id="it has no patience"),
        pytest.param({"parallelism": {"tensor": 4}}, id="its groups are whole"),
        pytest.param({"parallelism": {"expert": 4}}, id="its expert groups are whole"),
    ],
)
def test_it_does_not_wait_where_the_job_says_otherwise(spec: Mapping[str, Any]) -> None:
    at_once = story(**spec)
    at_once.settle()
    assert shares(at_once) == {"gpu-1": 4, "gpu-2": 4}


def test_it_does_not_wait_where_no_machine_is_so_large() -> None:
    at_once = story(gpus=12)
    free(at_once, "on-gpu-1")
    at_once.settle()
    assert shares(at_once) == {"gpu-1": 8, "gpu-2": 4}


def test_it_does_not_wait_where_nothing_is_known_of_the_machines() -> None:
    at_once = story(lambda name: NodeTopologySpec.parse(node_topology(name)["spec"]))
    at_once.settle()
    assert shares(at_once) == {"gpu-1": 4, "gpu-2": 4}


def test_its_own_word_on_one_host_counts() -> None:
    """Who wants to wait longer says so."""
    waiting = story(topology={"fabric": {"preferred": "host", "patience": "1h"}})
    waiting.pass_time(WAIT_S)
    waiting.settle()
    pending = waiting.status().pending
    assert pending is not None
    assert pending.message.startswith("prefers 8 GPUs in one host")
    assert pending.message.endswith("it waits until 2026-11-21T11:00:00Z at the latest")


def test_where_the_network_is_as_fast_it_does_not_wait() -> None:
    """The GPUs of a machine without NVLink reach each other over PCIe, and each other's over a fast network."""
    at_once = story(pcie_only)
    at_once.add(
        {
            "apiVersion": "closeknit.dev/v1alpha1",
            "kind": "ClusterTopology",
            "metadata": {"name": "default"},
            "spec": {"fabric": {"levelBandwidthGBps": {"host": 50}}},
        }
    )
    at_once.settle()
    assert shares(at_once) == {"gpu-1": 2, "gpu-2": 2}
