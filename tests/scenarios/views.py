"""What a cluster of manifests looks like at noon."""

from collections.abc import Mapping
from datetime import UTC, datetime

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.kinds import from_document
from closeknit.cluster.node import NodeView
from scenarios.manifests import Manifest

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def cluster(*manifests: Manifest) -> Cluster:
    return build(value for manifest in manifests if (value := from_document(manifest)) is not None)


def view(*manifests: Manifest, name: str = "gpu-1") -> NodeView:
    return cluster(*manifests).at(NOON).nodes[name]


def words(facts: Mapping[int, object]) -> dict[int, str]:
    """Holders or faults of a node as people read them."""
    return {index: str(fact) for index, fact in facts.items()}
