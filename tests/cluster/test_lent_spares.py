"""A spare node is lent, and taken back when its owner loses a node, on a real control plane, with the operator killed
meanwhile."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from harness.operator_bed import Bed, standing

PLUGIN, DRA = ("gpu-1", "gpu-2"), ("gpu-3", "gpu-4")
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
serials = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[Bed]:
    with standing(Bed, PLUGIN, DRA) as bed:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
        bed.cluster.apply({**kind, "value": 1000})
        yield bed


@pytest.fixture
def site(running: Bed) -> Iterator[Bed]:
    running.begin(f"lent-{next(serials)}")
    yield running
    running.cluster.delete("trainingjobs", namespace=running.namespace)
    running.cluster.kubectl("delete", "pods", "--all", f"--namespace={running.namespace}", "--force")
    running.cluster.delete("namespace", running.namespace)
    running.cluster.kubectl("taint", "nodes", "--all", f"{OUT_OF_SERVICE}-", check=False)  # where it got so far


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        pytest.param({"gpus": 8, "gpu": {"products": ["NVIDIA-H200"]}}, PLUGIN, id="plugin"),
        pytest.param({"gpus": 8, "gpu": {"binding": "DRA"}}, DRA, id="DRA"),
    ],
)
def test_a_spare_node_is_lent_and_taken_back(site: Bed, spec: dict[str, Any], nodes: tuple[str, str]) -> None:
    site.submit("owner", **spec, spares=1, priorityClassName="urgent")
    site.wait_for_state("Running", "owner")
    assert [each["name"] for each in site.job("owner")["status"]["placement"]["spares"]] == [nodes[1]]
    site.submit("low", **spec)
    site.wait_for_state("Running", "low")
    pod = "low-a1-worker-00000"
    assert site.nodes_of_pods() == [nodes[1], nodes[0]]
    site.finish(pod, "late")  # it takes its time to end, as one does that writes a checkpoint

    site.cluster.kubectl("taint", "node", nodes[0], OUT_OF_SERVICE)
    site.cluster.wait_for(lambda: site.job("low")["status"].get("attempts"), "the borrower to make room")
    site.restart()
    site.wait_for_reason("NodesLost", "owner")
    assert site.live_pods() == [pod]
    (ended,) = site.job("low")["status"]["attempts"]
    assert (ended["reason"], ended["charged"]) == ("Preempted", False)
    site.cluster.kubectl("delete", "pod", pod, f"--namespace={site.namespace}", "--force")
    site.wait_for_state("Running", "owner")
    assert site.nodes_of_pods() == [nodes[1]]
    site.wait_for_reason("InsufficientGPUs", "low")
