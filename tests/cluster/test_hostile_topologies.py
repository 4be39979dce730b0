"""NodeTopologies that lie, as a broken or hostile agent may write them: they cost their own node, and nobody else."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from harness.local_cluster import is_running
from harness.machines import node_object
from harness.operator_bed import ON_PLUGIN, ON_PLUGIN_PROFILE, PLUGIN_NODES, Bed

Spec = dict[str, Any]
GHOST, SHORT, TWICE, ODD = NAMES = ("ghost", "short", "twice", "odd")
LEFT_OUT = (
    "3 nodes excluded: ghost (NotReady: it has a NodeTopology but no Node), short (InvalidTopology: its NodeTopology "
    "has 8 GPUs, its device plugin 4), twice (InvalidTopology: gpus[1].uuid: GPU-twice-0 is also that of gpus[0].uuid)"
)


def write(bed: Bed, node: str, spec: Spec, **status: Any) -> None:
    body = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "NodeTopology", "metadata": {"name": node}, "spec": spec}
    assert bed.cluster.writer.create(body).refusal == ""
    say(bed, node, **status)


def say(bed: Bed, node: str, **status: Any) -> None:
    found = bed.cluster.get("nodetopology", PLUGIN_NODES[0])["status"]
    told = {"heartbeatTime": found["heartbeatTime"], **status}
    assert bed.cluster.writer.patch("nodetopology", node, {"status": told}, subresource="status").refusal == ""


def spec_of(bed: Bed, node: str) -> Spec:
    """As gpu-1, with uuids of its own."""
    spec: Spec = deepcopy(bed.cluster.get("nodetopology", PLUGIN_NODES[0])["spec"])
    for gpu in spec["gpus"]:
        gpu["uuid"] = f"GPU-{node}-{gpu['index']}"
    return spec


@pytest.fixture
def lied_to(bed: Bed) -> Iterator[Bed]:
    """Beside the four nodes one that has no Node, one with fewer GPUs than it says, one that has a GPU twice, and one
    with names that no machine has."""
    bed.submit("before", **ON_PLUGIN)
    bed.wait_for_state("Running", "before")
    for name in (SHORT, TWICE, ODD):
        node = node_object(name, ON_PLUGIN_PROFILE, plugin=True, rdma=8)
        for field in ("capacity", "allocatable") if name == SHORT else ():
            node["status"][field] = {**node["status"][field], "nvidia.com/gpu": "4"}
        bed.cluster.apply(node)
    specs = {name: spec_of(bed, name) for name in NAMES}
    specs[TWICE]["gpus"][1]["uuid"] = specs[TWICE]["gpus"][0]["uuid"]
    specs[ODD]["gpus"][0] |= {"uuid": "GPU-a,GPU-b\n", "product": "NVIDIA-H200\n"}
    specs[ODD]["nics"][0] |= {"name": "mlx5_0\nX: y", "netdev": "a,b"}
    for name in NAMES:
        write(bed, name, specs[name])
    yield bed
    for kind in ("trainingjobs", "pods"):  # the garbage collector may take half a minute to
        bed.cluster.delete(kind, namespace=bed.namespace)
    bed.cluster.wait_for(lambda: not bed.live_pods(), "the jobs' Pods to be gone")
    for name in NAMES:
        bed.cluster.delete("nodetopology", name)
    for name in (SHORT, TWICE, ODD):
        bed.cluster.delete("node", name)


def test_a_node_that_lies_gets_no_job_that_it_cannot_hold_and_takes_nobodys(lied_to: Bed) -> None:
    bed, begun_with = lied_to, lied_to.pid
    bed.submit("first", gpus=8, gpu={"binding": "WholeNode"})
    assert [each["name"] for each in bed.wait_for_state("Running", "first")["placement"]["nodes"]] == [ODD]
    bed.submit("second", gpus=8, gpu={"binding": "WholeNode"})
    assert LEFT_OUT in bed.wait_for_reason("InsufficientGPUs", "second")["message"]
    holders = [
        {"namespace": bed.namespace, "pod": pod, "container": "trainer", "devices": ["GPU-nobody"]}
        for pod in bed.names("pods")
    ]
    say(bed, ODD, allocations=holders)
    bed.cluster.delete("nodetopology", ODD)
    write(bed, ODD, spec_of(bed, ODD), gpus=[{"index": 63, "state": "Unhealthy", "reasons": ["X\nY"]}])
    assert bed.cluster.get("nodetopology", ODD)["metadata"]["generation"] == 1
    bed.submit("beside", gpus=8, gpu={"binding": "DRA"})
    bed.wait_for_state("Running", "beside")
    for name in ("before", "first", "beside"):
        status = bed.job(name)["status"]
        assert (status["state"], status["attempt"], status["attempts"]) == ("Running", 1, [])
        assert {node["actual"] for node in status["placement"]["nodes"]} == {"Verified"}
    assert bed.pid == begun_with and is_running(begun_with)
    assert "Traceback" not in bed.said()
