"""GPUs by state, as metrics count them."""

from collections.abc import Sequence

import pytest

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.kinds import from_document
from closeknit.cluster.usage import in_use
from scenarios.manifests import Manifest, allocation, booked, node, node_topology, pod, training_job, uuids

SICK = [{"index": 1, "state": "Unhealthy"}]
COUNTS: dict[str, tuple[list[Manifest], tuple[int, int, int, int]]] = {
    "an idle node": ([node(), node_topology()], (0, 0, 0, 8)),
    "a node without a topology has no GPU that anybody knows": ([node()], (0, 0, 0, 0)),
    "an unhealthy GPU, held or not": (
        [node(), node_topology(gpus=SICK), training_job(placement=booked(("gpu-1", [0, 1])))],
        (1, 1, 0, 6),
    ),
    "a node that is not Ready: what is booked there is still booked": (
        [node(ready="False"), node_topology(), training_job(placement=booked(("gpu-1", [0, 1])))],
        (0, 2, 6, 0),
    ),
    "a node that nothing offers": ([node(gpus=None), node_topology()], (0, 0, 8, 0)),
    "GPUs that were handed out without a word which": (
        [node(), node_topology(), pod(requests={"nvidia.com/gpu": "3"})],
        (0, 3, 0, 5),
    ),
    "GPUs that were handed out and named": (
        [node(), node_topology(allocations=[allocation("ml", "notebook", uuids("gpu-1", 4))]), pod()],
        (0, 1, 0, 7),
    ),
    "a GPU that only the device plugin holds unhealthy": ([node(gpus=7), node_topology()], (0, 0, 1, 7)),
    "two nodes": ([node(), node_topology(), node("gpu-2"), node_topology("gpu-2", gpus=SICK)], (1, 0, 0, 15)),
}


@pytest.mark.parametrize(("manifests", "expected"), COUNTS.values(), ids=COUNTS.keys())
def test_gpus_by_state(manifests: Sequence[Manifest], expected: tuple[int, int, int, int]) -> None:
    cluster = build(value for manifest in manifests if (value := from_document(manifest)) is not None)
    assert in_use(cluster) == dict(zip(("unhealthy", "booked", "excluded", "free"), expected, strict=True))


def test_an_empty_cluster_counts_nothing() -> None:
    assert set(in_use(Cluster.empty()).values()) == {0}
