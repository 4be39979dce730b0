"""Nodes that fall silent under a gang, on real kubelets: a blip ends nothing, and a node that is cut off or dead is
replaced, keeps nobody's GPUs, and gives them back.
"""

import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from harness.node.local_node import LocalNode
from harness.node.stand import Stand
from node.jobs import Jobs

pytestmark = pytest.mark.nodes

# A rank that notes each step, and trains until it is told to end.
SCRIPT = """
trap 'exit 143' TERM
while :; do date +%s.%N >> /reports/steps-$HOSTNAME; sleep 0.2; done
"""
GPUS = 16  # of two whole nodes
NOT_READY_S = 50  # after a kubelet's last word
REPLACED_WITHIN_S = 30


@pytest.fixture(scope="module")
def stand_of_three(jobs: Jobs) -> Iterator[Stand]:
    """One node more than a gang has."""
    with jobs.stand.claims(), jobs.stand.spare() as stand:
        yield stand


@pytest.fixture(autouse=True)
def gang(jobs: Jobs, stand_of_three: Stand, request: pytest.FixtureRequest) -> Iterator[None]:
    """A gang of two nodes that runs, in a namespace of its own."""
    for node in stand_of_three.nodes:
        for file in node.reports.glob("*"):
            file.unlink()
    jobs.begin(request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-"))
    # Whole nodes: while Pods of the test before still hold some GPUs, a gang on three nodes would do, too.
    jobs.train(["sh", "-c", SCRIPT], gpus=GPUS, topology={"gpusPerNode": GPUS // 2}, restart={"limit": 1})
    jobs.wait_for_state("Running")
    yield
    jobs.clear()


def node_of(stand: Stand, name: str) -> LocalNode:
    return next(node for node in stand.nodes if node.site.name == name)


def booked(jobs: Jobs, name: str = "train") -> list[str]:
    placement = jobs.job(name)["status"].get("placement") or {}
    return [each["name"] for each in placement.get("nodes", [])]


def steps(node: LocalNode, *, of: str = "") -> list[float]:
    """When ranks on this node have made a step; those `of` Pods whose names begin so."""
    files = list(node.reports.glob(f"steps-{of}*"))
    return sorted(float(line) for file in files for line in file.read_text().splitlines() if line.strip())


def is_ready(jobs: Jobs, node: LocalNode) -> bool:
    conditions = jobs.cluster.get("node", node.site.name)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def wait_for_replacement(jobs: Jobs, lost: LocalNode, began: float) -> dict[str, Any]:
    """The gang's last end, once all its Pods are bound to other nodes and run."""

    def are_bound() -> bool:
        nodes = booked(jobs)
        return len(nodes) == 2 and lost.site.name not in nodes and sorted(map(str, live(jobs))) == sorted(nodes)

    jobs.cluster.wait_for(are_bound, "others to be bound", 90)
    took_s = time.monotonic() - began
    print(f"{lost.site.name} was replaced after {took_s:.1f} s")
    assert took_s <= REPLACED_WITHIN_S
    jobs.wait_for_state("Running")
    end: dict[str, Any] = jobs.job()["status"]["attempts"][-1]
    return end


def live(jobs: Jobs) -> list[str | None]:
    """Nodes of the Pods that run on, or are to."""
    return [
        pod["spec"].get("nodeName")
        for pod in jobs.all("pods")
        if pod["status"].get("phase") not in {"Succeeded", "Failed"} and "deletionTimestamp" not in pod["metadata"]
    ]


def test_a_kubelet_that_is_stopped_for_a_minute_ends_nothing(jobs: Jobs, stand_of_three: Stand) -> None:
    """That of node rank 0, whose sidecar hears the others."""
    node = node_of(stand_of_three, booked(jobs)[0])
    before = {pod["metadata"]["uid"] for pod in jobs.all("pods")}
    jobs.wait_for_told("Placed")
    began = datetime.now(UTC)
    node.signal(signal.SIGSTOP, "kubelet")
    try:
        jobs.cluster.wait_for(lambda: not is_ready(jobs, node), "Kubernetes to miss the kubelet", 2 * NOT_READY_S)
        stopped_at = time.time()
        time.sleep(5)  # the operator has seen it
    finally:
        node.signal(signal.SIGCONT, "kubelet")
    jobs.cluster.wait_for(lambda: is_ready(jobs, node), "the node to be Ready")
    assert steps(node)[-1] > stopped_at, "its rank trained on"
    status = jobs.job()["status"]
    assert (status["state"], status.get("restarts", 0), status.get("attempts", [])) == ("Running", 0, [])
    assert {pod["metadata"]["uid"] for pod in jobs.all("pods")} == before
    assert [event for event in jobs.writes() if event.received > began] == []


def test_who_is_cut_off_is_replaced_and_gives_its_gpus_back(jobs: Jobs, stand_of_three: Stand) -> None:
    """Its rank trains on meanwhile, alone; nobody else gets its GPUs before that has ended."""
    node = node_of(stand_of_three, booked(jobs)[0])
    node.unplug()
    try:
        began = time.monotonic()
        end = wait_for_replacement(jobs, node, began)
        assert (end["reason"], end["charged"]) == ("NodeLost", False)
        jobs.train(["sh", "-c", SCRIPT], name="next", gpus=GPUS // 2)
        jobs.wait_for_reason("InsufficientGPUs", "next")
        cut_off_at = time.time()
        jobs.cluster.wait_for(lambda: steps(node, of="train")[-1] > cut_off_at, "the old rank to train on")
    finally:
        node.plug_in()
    jobs.wait_for_state("Running", "next")
    assert booked(jobs, "next") == [node.site.name]
    assert steps(node, of="train")[-1] < steps(node, of="next")[0], "two ranks have had the same GPUs at once"
    status = jobs.job()["status"]
    assert (status["state"], status["restarts"], len(status["attempts"])) == ("Running", 1, 1)
    assert sorted(map(str, live(jobs))) == sorted([*booked(jobs), node.site.name])
    jobs.delete("trainingjob", "next")


@pytest.mark.long  # the operator sees what it sees of one that is cut off; `make bench-recovery` kills fifty
def test_a_node_that_dies_is_replaced(jobs: Jobs, stand_of_three: Stand) -> None:
    """Kubelet, container runtime and ranks at once; it is back after a while."""
    node = node_of(stand_of_three, booked(jobs)[1])
    began = time.monotonic()
    node.die()
    try:
        end = wait_for_replacement(jobs, node, began)
    finally:
        node.revive()
    assert (end["reason"], end["charged"]) == ("NodeLost", False)
    assert "is silent: for 20 s its kubelet has not renewed its Lease" in end["message"]
