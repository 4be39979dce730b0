"""What a cluster of manifests looks like at noon."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.node.node import Holder, NodeView
from closeknit.cluster.node.view import node_view
from closeknit.cluster.store.watched_kinds import ClusterObject, from_document
from scenarios.manifests import Manifest

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def parsed(manifest: Manifest) -> ClusterObject:
    value = from_document(manifest)
    assert value is not None
    return value


def cluster(*manifests: Manifest) -> Cluster:
    return build(value for manifest in manifests if (value := from_document(manifest)) is not None)


def view(*manifests: Manifest, name: str = "gpu-1") -> NodeView:
    return cluster(*manifests).at(NOON).nodes[name]


def words(facts: Mapping[int, object]) -> dict[int, str]:
    """Faults of a node as people read them, and holders with the names that no message has."""
    return {index: _named(fact) if isinstance(fact, Holder) else str(fact) for index, fact in facts.items()}


def _named(holder: Holder) -> str:
    pods = " or ".join(f"{namespace}/{name}" for namespace, name in [(holder.namespace, holder.name), *holder.or_pods])
    return f"{holder.kind} {pods}"


def derived(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the nodes whose views are derived from now on, one for each time."""
    names: list[str] = []

    def noted(facts: Any, *others: Any, **named: Any) -> Any:
        names.append(facts.name)
        return node_view(facts, *others, **named)

    monkeypatch.setattr("closeknit.cluster.cluster.node_view", noted)
    return names
