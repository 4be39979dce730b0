"""How GPUs are bound on real nodes by a device plugin, and that it is seen which ones the Pods really got."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from harness.node.gpus import uuids
from harness.node.local_node import LocalNode
from node.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("nothing_is_left")]

Measure = Callable[[str, object], None]
VERIFIED_WITHIN_S = 10
SHOW = ["sh", "-c", "ls /dev/nvidia*; exec sleep 600"]
# The first four of a DGX-1 are joined all to all; of these four, two pairs are not.
PLANNED, SLOWER = (0, 1, 2, 3), (0, 1, 6, 7)


@pytest.fixture(scope="module", autouse=True)
def plugin(jobs: Jobs) -> Iterator[None]:
    with jobs.stand.plugin():
        yield


def test_a_whole_node_is_given_as_planned(jobs: Jobs, record_property: Measure) -> None:
    jobs.begin("whole")
    jobs.train(SHOW, gpus=16)
    nodes = verified(jobs, record_property)
    assert [(node["binding"], node["actual"]) for node in nodes] == [("WholeNode", "Verified")] * 2
    assert [shown(jobs, pod) for pod in jobs.names("pods")] == [list(range(8))] * 2


def test_a_part_of_a_node_is_seen_to_be_what_was_planned(jobs: Jobs, record_property: Measure) -> None:
    jobs.begin("part")
    for node in jobs.stand.nodes:
        prefer(jobs, node, PLANNED)
    jobs.train(SHOW, gpus=8, topology={"gpusPerNode": 4}, gpu={"binding": "BestEffort"})
    nodes = verified(jobs, record_property)
    assert [(node["binding"], node["gpus"]) for node in nodes] == [("BestEffort", list(PLANNED))] * 2
    assert [shown(jobs, pod) for pod in jobs.names("pods")] == [list(PLANNED)] * 2
    jobs.wait_for_told("Placed")


def test_slower_gpus_than_planned_are_seen_and_the_gang_is_placed_anew(jobs: Jobs, record_property: Measure) -> None:
    jobs.begin("slower")
    other = jobs.stand.nodes[1]
    prefer(jobs, other, SLOWER)
    jobs.train(SHOW, gpus=8, topology={"gpusPerNode": 4}, gpu={"binding": "BestEffort"})
    (ended,) = jobs.cluster.wait_for(lambda: jobs.job()["status"].get("attempts"), "the first attempt to end")
    prefer(jobs, other, PLANNED)
    assert (ended["reason"], ended["charged"]) == ("Misplaced", False)
    assert ended["message"] == (
        "device plugins gave slower GPUs than planned: node-2 was to give 0,1,2,3 and gave 0,1,6,7; "
        "the job is placed again"
    )
    nodes = verified(jobs, record_property)
    assert [node["actual"] for node in nodes] == ["Verified", "Verified"]
    assert shown(jobs, "train-a2-worker-00001") == list(PLANNED)
    jobs.wait_for_told("Placed", "Misplaced", "Placed", "Restarted")


def verified(jobs: Jobs, record_property: Measure) -> list[dict[str, Any]]:
    """The nodes of the job's placement, once it is verified; that is soon after its containers have started."""
    jobs.cluster.wait_for(lambda: jobs.condition("PlacementVerified").get("status") == "True", "the GPUs to be seen")
    moments = [moment(jobs.condition("PlacementVerified")["lastTransitionTime"])]
    for pod in jobs.all("pods"):
        if not pod["metadata"].get("deletionTimestamp"):
            moments.append(moment(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]))
    took_s = (moments[0] - max(moments[1:])).total_seconds()
    record_property("measured", f"verified {took_s:.0f} s after the last container started")
    assert took_s <= VERIFIED_WITHIN_S
    nodes: list[dict[str, Any]] = jobs.job()["status"]["placement"]["nodes"]
    return nodes


def moment(written: str) -> datetime:
    return datetime.fromisoformat(written)


def prefer(jobs: Jobs, node: LocalNode, first: tuple[int, ...]) -> None:
    """Has the node's plugin give these GPUs before others."""
    every = uuids(jobs.stand.machine(node))
    node.prefer([every[index] for index in first])


def shown(jobs: Jobs, pod: str) -> list[int]:
    """The GPUs that a Pod sees."""
    log = jobs.cluster.wait_for(lambda: jobs.log(pod), f"Pod {pod} to say what it sees")
    return sorted(int(line.removeprefix("/dev/nvidia")) for line in log.split())
