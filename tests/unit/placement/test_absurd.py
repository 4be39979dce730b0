"""What no cluster should say, and nobody should ask: a clear answer, in no more calls than a second has."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.kinds import change, from_document
from closeknit.placement.place import can_place, place
from closeknit.placement.placement import NoFit, Placement
from closeknit.placement.tables import Tables
from harness.called import A_SECOND, calls_of
from scenarios.clusters import cluster_of, graph, node, wanted
from scenarios.manifests import Manifest, cluster_topology, node_topology, resource_slice
from scenarios.manifests import node as node_manifest
from unit.placement.test_bounds import fleet

LEVELS = ("block", "rack")
REPEATED = 10_000


def answered(cluster: Cluster, **spec: Any) -> Placement | NoFit:
    """The answer, in bounds, and the same again by `can_place`."""
    request = wanted(**spec)
    found, calls = calls_of(lambda: place(cluster, request, Tables()))
    assert calls < A_SECOND
    assert can_place(cluster, request, Tables()) == isinstance(found, Placement)
    return found


ABSURD: dict[str, dict[str, Any]] = {
    "more GPUs than there are": {"gpus": 65_536},
    "a tensor group wider than any machine": {"gpus": 4096, "parallelism": {"tensor": 4096}},
    "a rack for all": {"gpus": 4096, "topology": {"fabric": {"required": "rack"}}},
    "a bandwidth that nothing has": {"gpus": 4, "topology": {"minBusBandwidthGBps": 100_000}},
    "more GPUs of a node than it has": {"gpus": 65_536, "topology": {"gpusPerNode": 64}},
}


@pytest.mark.parametrize("job", ABSURD)
def test_what_is_absurd_is_refused_at_once(job: str) -> None:
    found = answered(fleet(3), **ABSURD[job])
    assert isinstance(found, NoFit)
    assert found.message.startswith("needs ")


def test_ten_thousand_equal_nodes_are_no_choice() -> None:
    one = node("gpu-00000", graph("a100x4"), path=("b0", "r0"))
    views = [
        replace(one, name=name, domains=("b0", f"b0/r{number // 25}", f"b0/r{number // 25}/{name}"))
        for number in range(REPEATED)
        for name in (f"gpu-{number:05}",)
    ]
    cluster, tables = cluster_of(*views, levels=LEVELS), Tables()
    tables.learn(graph("a100x4"))
    assert cluster.forest.now.counts
    for gpus in (1, 512):
        request = wanted(gpus=gpus)
        found, calls = calls_of(lambda: place(cluster, request, tables))  # noqa: B023 - called at once
        assert isinstance(found, Placement)
        assert found.shares[0].node == "gpu-00000"
        assert calls < A_SECOND


def said(*manifests: Manifest) -> Cluster:
    """The cluster of these objects."""
    return build(value for manifest in manifests if (value := from_document(manifest)) is not None)


def machines(places: Sequence[tuple[str, str]]) -> list[Manifest]:
    """Nodes of eight GPUs, each with the block and the rack that its labels name."""
    found: list[Manifest] = []
    for number, (block, rack) in enumerate(places):
        name = f"gpu-{number}"
        labels = {"net.example/block": block, "net.example/rack": rack}
        found += [node_manifest(name, gpus=None, labels=labels), node_topology(name), resource_slice(name)]
    return found


def one_label() -> Manifest:
    """Two levels that are read from one label."""
    topology = cluster_topology("block", "rack")
    topology["spec"]["levels"][0]["nodeLabel"] = topology["spec"]["levels"][1]["nodeLabel"]
    return topology


CONTRADICTORY: dict[str, tuple[Callable[[], Manifest], Sequence[tuple[str, str]]]] = {
    "racks outside blocks": (lambda: cluster_topology("rack", "block"), [("b0", "r0"), ("b0", "r1"), ("b1", "r2")]),
    "a rack in two blocks": (lambda: cluster_topology("block", "rack"), [("b0", "r0"), ("b1", "r0"), ("b2", "r0")]),
    "each inside the other": (lambda: cluster_topology("block", "rack"), [("x", "y"), ("y", "x"), ("z", "z")]),
    "two levels of one label": (one_label, [("b0", "r0"), ("b0", "r1"), ("b0", "r2")]),
}


@pytest.mark.parametrize("case", CONTRADICTORY)
def test_levels_that_contradict_each_other_are_domains_inside_domains(case: str) -> None:
    """A domain is one together with all that it is in: no two of these nodes are in one rack, whatever it is called."""
    topology, places = CONTRADICTORY[case]
    cluster = said(topology(), *machines(places))
    assert isinstance(answered(cluster, gpus=24), Placement)
    rack = {"fabric": {"required": "rack"}}
    assert isinstance(answered(cluster, gpus=8, topology=rack), Placement)
    assert isinstance(answered(cluster, gpus=16, topology=rack), NoFit)


def test_a_node_that_is_said_to_be_in_two_racks_is_in_the_last_one() -> None:
    cluster = said(cluster_topology("block", "rack"), *machines([("b0", "r0"), ("b0", "r1")]))
    both = {"gpus": 16, "topology": {"fabric": {"required": "rack"}}}
    assert isinstance(answered(cluster, **both), NoFit)
    moved = from_document(
        node_manifest("gpu-1", gpus=None, labels={"net.example/block": "b0", "net.example/rack": "r0"})
    )
    assert moved is not None
    assert isinstance(answered(cluster.after([change(moved)]), **both), Placement)


def test_two_nodes_that_report_the_same_gpus_are_two_nodes() -> None:
    """Uuids of a copied machine image: each node's GPUs are its own."""
    twins = [node(f"gpu-{number}", graph("a100x4"), path=("b0", "r0")) for number in range(2)]
    cluster = cluster_of(*twins, levels=LEVELS)
    found = answered(cluster, gpus=8)
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["gpu-0", "gpu-1"]
    assert isinstance(answered(cluster, gpus=9), NoFit)


def test_nodes_without_gpus_are_nowhere() -> None:
    bare = replace(graph("a100x4"), gpus=(), links=(), switch_links=(), nics=(), pcie_levels=())
    cluster = cluster_of(*(node(f"web-{number}", bare, path=("b0", "r0")) for number in range(40)), levels=LEVELS)
    for gpus in (1, 8):
        assert isinstance(answered(cluster, gpus=gpus), NoFit)
