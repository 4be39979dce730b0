"""Jobs of a trace, and small clusters for them."""

from datetime import UTC, datetime
from typing import Any

from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import ClusterObject, from_document
from scenarios import manifests
from scenarios.machines import hgx_h200

BEGINS = datetime(2026, 11, 21, 12, tzinfo=UTC)


def spec(gpus: int, **topology: Any) -> TrainingJobSpec:
    body = {
        "gpus": gpus,
        "topology": topology,
        "template": {"spec": {"containers": [{"name": "trainer", "image": "simulated"}]}},
    }
    return TrainingJobSpec.parse_strictly(body)


def cluster(*racks: str, count: int = 8, now: datetime = BEGINS) -> Cluster:
    """A node of `count` GPUs for each word: in the rack of that name."""
    found: list[ClusterObject | None] = [from_document(manifests.cluster_topology("rack"))]
    for number, rack in enumerate(racks):
        name = f"gpu-{number}"
        beat = f"{now:%Y-%m-%dT%H:%M:%SZ}"
        found.append(from_document(manifests.node(name, gpus=None, labels={"net.example/rack": rack})))
        found.append(from_document(manifests.node_topology(name, count=count, heartbeatTime=beat)))
        found.append(from_document(manifests.resource_slice(name, range(count))))
    return build(each for each in found if each is not None)


def h200s(*racks: str) -> Cluster:
    """A machine of eight H200 for each word: in the rack of that name, in the block of its first letter."""
    found: list[ClusterObject | None] = [from_document(manifests.cluster_topology("block", "rack"))]
    for number, rack in enumerate(racks):
        name, levels = f"gpu-{number}", {"net.example/block": rack[0], "net.example/rack": rack}
        machine = {**manifests.node_topology(name), "spec": hgx_h200(name).wire()}
        slice_of_it = manifests.resource_slice(name, range(8))
        found += map(from_document, (manifests.node(name, gpus=None, labels=levels), machine, slice_of_it))
    return build(each for each in found if each is not None)
