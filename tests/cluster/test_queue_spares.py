"""A spare node of a queue is lent, and taken by a job of the queue that loses a node, on a real control plane."""

import itertools
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from closeknit.api.names import SPARE_FOR_LABEL
from harness.operator_bed import Bed, standing

PLUGIN, DRA = ("gpu-1", "gpu-2", "gpu-3"), ("gpu-4", "gpu-5", "gpu-6")
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
serials = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[Bed]:
    with standing(Bed, PLUGIN, DRA) as bed:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
        bed.cluster.apply({**kind, "value": 1000})
        for name, queue in ((PLUGIN[2], "research"), (DRA[2], "vision")):
            bed.cluster.kubectl("label", "node", name, f"{SPARE_FOR_LABEL}={queue}")
        bed.restart(signal.SIGTERM)  # one that has seen the labels before it decides
        yield bed


@pytest.fixture
def site(running: Bed) -> Iterator[Bed]:
    running.begin(f"queue-{next(serials)}")
    yield running
    running.cluster.delete("trainingjobs", namespace=running.namespace)
    running.cluster.kubectl("delete", "pods", "--all", f"--namespace={running.namespace}", "--force")
    running.cluster.delete("namespace", running.namespace)
    running.cluster.kubectl("taint", "nodes", "--all", f"{OUT_OF_SERVICE}-", check=False)  # where it got so far


@pytest.mark.parametrize(
    ("queue", "spec", "nodes"),
    [
        pytest.param("research", {"gpu": {"products": ["NVIDIA-H200"]}}, PLUGIN, id="plugin"),
        pytest.param("vision", {"gpu": {"binding": "DRA"}}, DRA, id="DRA"),
    ],
)
def test_a_job_of_the_queue_takes_it_and_no_other_starts_there(
    site: Bed, queue: str, spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    spare = nodes[2]
    site.submit("large", gpus=24, queue="speech", **spec)
    told = site.wait_for_reason("InsufficientGPUs", "large")["message"]
    assert f"{spare} (spare for queue {queue})" in told
    site.submit("owner", gpus=16, queue=queue, priorityClassName="urgent", **spec)
    site.wait_for_state("Running", "owner")
    assert site.nodes_of_pods() == [*nodes[:2]]
    site.submit("other", gpus=8, queue="speech", priorityClassName="urgent", **spec)
    site.wait_for_reason("InsufficientGPUs", "other")
    site.submit("low", gpus=8, queue="speech", **spec)
    site.wait_for_state("Running", "low")
    pod = "low-a1-worker-00000"
    assert site.nodes_of_pods() == [spare, *nodes[:2]]
    site.finish(pod, "late")  # it takes its time to end, as one does that writes a checkpoint

    site.cluster.kubectl("taint", "node", nodes[1], OUT_OF_SERVICE)
    site.cluster.wait_for(lambda: site.job("low")["status"].get("attempts"), "the borrower to make room")
    site.restart()
    site.wait_for_reason("NodesLost", "owner")
    (ended,) = site.job("low")["status"]["attempts"]
    assert (ended["reason"], ended["charged"]) == ("Preempted", False)
    assert [each["name"] for each in site.job("owner")["status"]["placement"]["nodes"]] == [*nodes[:2]]
    site.cluster.kubectl("delete", "pod", pod, f"--namespace={site.namespace}", "--force")
    site.wait_for_state("Running", "owner")
    assert site.nodes_of_pods() == [nodes[0], spare]
    for name in ("large", "other", "low"):
        site.wait_for_reason("InsufficientGPUs", name)
