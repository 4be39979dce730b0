"""A machine whose GPUs others count otherwise: a lie, or a state that an honest node passes through."""

from typing import Any

import pytest

from closeknit.cluster.cluster import build
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.store.watched_kinds import from_document
from scenarios.manifests import Manifest, node, node_topology


def view(*manifests: Manifest) -> NodeView:
    return build(value for manifest in manifests if (value := from_document(manifest)) is not None).nodes["gpu-1"]


def offering(capacity: int | None, allocatable: int | None = None) -> Manifest:
    found: dict[str, Any] = node("gpu-1")
    for name, count in (("capacity", capacity), ("allocatable", capacity if allocatable is None else allocatable)):
        there = {key: value for key, value in found["status"].get(name, {}).items() if key != "nvidia.com/gpu"}
        found["status"][name] = there if count is None else {**there, "nvidia.com/gpu": str(count)}
    return found


@pytest.mark.parametrize("capacity", [2, 9])
def test_a_count_that_no_honest_node_has(capacity: int) -> None:
    exclusion = view(offering(capacity), node_topology("gpu-1", count=8)).exclusion
    assert exclusion is not None
    said = f"{exclusion.reason}: {exclusion.message}"
    assert said == f"InvalidTopology: its NodeTopology has 8 GPUs, its device plugin {capacity}"


@pytest.mark.parametrize("capacity", [16, 800])
def test_sharing_that_no_label_tells_is_said_of_each_gpu_with_what_is_missing(capacity: int) -> None:
    found = view(offering(capacity), node_topology("gpu-1", count=8))
    assert found.exclusion is None
    assert {str(fault) for fault in found.unusable.values()} == {
        "offered more often than there are GPUs, and no label tells how they are shared "
        f"({capacity} nvidia.com/gpu for 8: run GPU feature discovery there, or see why the agent finds no more)"
    }


HONEST = {
    "as many": (offering(8), {}),
    "one is unhealthy to the plugin": (offering(8, 7), {}),
    "the plugin is starting": (offering(None), {}),
    "the plugin has gone": (offering(0), {}),
    "the plugin has begun without one that does not answer": (
        offering(7), {"gpus": [{"index": 3, "state": "Unhealthy"}]},
    ),
    "none is allocatable yet": (offering(8, 0), {}),
}  # fmt: skip


@pytest.mark.parametrize(("offer", "status"), HONEST.values(), ids=HONEST.keys())
def test_an_honest_node_is_not_taken_for_a_liar(offer: Manifest, status: dict[str, Any]) -> None:
    exclusion = view(offer, node_topology("gpu-1", count=8, **status)).exclusion
    assert exclusion is None or exclusion.reason != "InvalidTopology"
