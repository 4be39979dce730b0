"""What no cluster should say, and nobody should ask: a clear answer, in no more calls than a second has."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import change, from_document
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import NoFit, Placement
from harness.called import A_SECOND, calls_of
from scenarios.clusters import cluster_of, graph, node, wanted
from scenarios.manifests import Manifest, cluster_topology, node_topology, resource_claim, resource_slice
from scenarios.manifests import node as node_manifest
from unit.placement.values.test_bounds import fleet

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


@pytest.mark.parametrize(
    ("described", "asked", "is_placed"),
    [({"rack": 25}, 25, True), ({"rack": 25}, 25.1, False), ({"block": 25}, 25, True), ({}, 0.1, False), ({}, 0, True)],
)
def test_sockets_are_as_fast_as_somebody_has_said(
    described: dict[str, float], asked: float, *, is_placed: bool
) -> None:
    """Inside a block that is described its racks are no slower; where nothing is, nothing is promised."""
    views = [node(f"gpu-{rack}", graph("hgx-h200"), path=("b0", rack), rdma=False) for rack in ("r0", "r1")]
    cluster = cluster_of(*views, levels=LEVELS, fabric={"levelBandwidthGBps": described})
    found = answered(cluster, gpus=16, topology={"minBusBandwidthGBps": asked})
    assert isinstance(found, Placement) == is_placed


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
    "one inside the next, and the last inside the first": (
        lambda: cluster_topology("block", "rack"),
        [("x", "y"), ("y", "z"), ("z", "x")],
    ),
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


def test_of_two_nodes_with_the_same_gpus_a_claim_holds_those_of_its_own_node() -> None:
    first, second = machines([("b0", "r0")]), machines([("b0", "r0"), ("b0", "r0")])[3:]
    twin = json.loads(json.dumps(second).replace("GPU-gpu-1-", "GPU-gpu-0-"))
    cluster = said(cluster_topology("block", "rack"), *first, *twin, resource_claim("notebook", ("gpu-0", 0)))
    assert [len(cluster.nodes[name].free) for name in ("gpu-0", "gpu-1")] == [7, 8]
    assert isinstance(answered(cluster, gpus=15), Placement)
    assert isinstance(answered(cluster, gpus=16), NoFit)


@pytest.mark.parametrize("field", ["index", "uuid", "pciAddress"])
def test_a_node_that_reports_one_gpu_twice_is_left_out(field: str) -> None:
    """Which of the two a job would get, nobody could say. The node beside it is used as ever."""
    both = machines([("b0", "r0"), ("b0", "r0")])
    gpus = both[1]["spec"]["gpus"]
    gpus[1][field] = gpus[0][field]
    cluster = said(cluster_topology("block", "rack"), *both)
    found = answered(cluster, gpus=8)
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["gpu-1"]
    refused = answered(cluster, gpus=9)
    assert isinstance(refused, NoFit)
    words = f"gpus[1].{field}: {gpus[0][field]} is also that of gpus[0].{field}"
    assert refused.message == (
        "needs 9 GPUs; 8 are free on 1 node; the cluster has 8 at all: ask for fewer; "
        f"1 node excluded: gpu-0 (InvalidTopology: {words})"
    )


@pytest.mark.parametrize("device", [0, 1])
def test_whichever_of_two_devices_of_one_uuid_is_claimed_its_gpu_is_held(device: int) -> None:
    lone = machines([("b0", "r0")])
    lone[2]["spec"]["devices"][1]["attributes"]["uuid"]["string"] = "GPU-gpu-0-0"
    cluster = said(cluster_topology("block", "rack"), *lone, resource_claim("notebook", ("gpu-0", device)))
    assert cluster.nodes["gpu-0"].free == (2, 3, 4, 5, 6, 7)
    refused = answered(cluster, gpus=7)
    assert isinstance(refused, NoFit)
    assert refused.message == (
        "needs 7 GPUs; 6 are free on 1 node; 2 excluded: 1 no ResourceSlice names it, 1 held by 1 claim"
    )


@pytest.mark.parametrize("gpus", [1, 7, 64])
def test_the_largest_machine_that_can_be_told_is_answered_in_time(gpus: int) -> None:
    found = answered(said(*machine_of(64)), gpus=gpus)
    assert isinstance(found, Placement)
    assert found.shares[0].gpus == tuple(range(gpus))


def test_a_larger_one_is_left_out() -> None:
    refused = answered(said(*machine_of(65)), gpus=1)
    assert isinstance(refused, NoFit)
    assert "gpu-0 (InvalidTopology: spec.gpus: List should have at most 64 items" in refused.message


def machine_of(count: int) -> list[Manifest]:
    return [
        node_manifest("gpu-0", gpus=None),
        node_topology("gpu-0", count=count),
        resource_slice("gpu-0", range(count)),
    ]


@pytest.mark.parametrize(
    ("count", "why"),
    [
        (9, "gpu-0 (InvalidTopology: its NodeTopology has 8 GPUs, its device plugin 9)"),
        (10**9, "8 offered more often than there are GPUs, and no label tells how they are shared (1000000000 "),
        (10**30, "gpu-0 (InvalidTopology: its NodeTopology has 8 GPUs, its device plugin "),
    ],
    ids=["one more", "a multiple", "more than can be counted"],
)
def test_a_device_plugin_that_offers_more_than_the_machine_has_is_not_believed(count: int, why: str) -> None:
    refused = answered(said(node_manifest("gpu-0", gpus=count), node_topology("gpu-0")), gpus=1)
    assert isinstance(refused, NoFit)
    assert why in refused.message


WITHOUT_GPUS: dict[str, list[Manifest]] = {
    "no report": [node_manifest("web", gpus=0)],
    "a report of none": [node_manifest("web", gpus=0), node_topology("web", count=0)],
    "a report of none, and a plugin of some": [node_manifest("web", gpus=8), node_topology("web", count=0)],
    "an offer of fewer than none": [node_manifest("web", gpus=-1), node_topology("web")],
    "an offer that is no number": [node_manifest("web", allocatable={"nvidia.com/gpu": "all"}), node_topology("web")],
    "a report without a Node": [node_topology("web")],
}


@pytest.mark.parametrize("case", WITHOUT_GPUS)
def test_a_node_that_has_or_offers_no_gpu_is_left_out_and_the_next_is_used(case: str) -> None:
    cluster = said(*WITHOUT_GPUS[case], *machine_of(8))
    found = answered(cluster, gpus=8)
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["gpu-0"]
    refused = answered(cluster, gpus=9)
    assert isinstance(refused, NoFit)
    assert refused.message.startswith("needs 9 GPUs; 8 are free on 1 node")


def test_nodes_without_gpus_are_nowhere() -> None:
    bare = replace(graph("a100x4"), gpus=(), links=(), switch_links=(), nics=(), pcie_levels=())
    cluster = cluster_of(*(node(f"web-{number}", bare, path=("b0", "r0")) for number in range(40)), levels=LEVELS)
    for gpus in (1, 8):
        assert isinstance(answered(cluster, gpus=gpus), NoFit)


def uneven(nodes: int, fans: Sequence[int], *, missing: float = 0.0, held: float = 0.0) -> Cluster:
    """So many nodes, of which each domain holds so many domains; a part of their labels is missing, and of their GPUs
    held, in one of eight ways."""
    random = Random(0)  # noqa: S311 - the same cluster every time
    words = [" ".join("a" if random.random() < held else str(gpu) for gpu in range(8)) for _ in range(8)]
    kinds = [node("x", graph("hgx-h200"), gpus=each) for each in words]
    views = []
    for number in range(nodes):
        path, domains, inside = "", list[str | None](), 1
        for fan in fans:
            inside *= fan
            path += f"/{number * inside // nodes}"
            domains.append(None if random.random() < missing else path)
        name = f"gpu-{number:05}"
        views.append(replace(random.choice(kinds), name=name, domains=(*domains, f"{path}/{name}")))
    return cluster_of(*views, levels=tuple(f"level-{depth}" for depth in range(len(fans))))


@pytest.mark.parametrize(
    ("nodes", "fans", "missing", "held", "gpus", "most"),
    [
        (2000, (1, 1), 0.5, 0.0, 61, A_SECOND),
        (1600, (3, 40, 10, 10), 0.0, 0.4, 3607, 3 * A_SECOND),
        (2000, (10, 40, 40, 2, 2), 0.5, 0.4, 1637, 2 * A_SECOND),
        (2000, (3, 2, 10), 0.99, 0.0, 15_999, 2 * A_SECOND),
    ],
    ids=["half of the labels missing", "hardly a node to a domain", "hundreds stand alone", "nearly all stand alone"],
)
def test_an_uneven_fabric_is_searched_in_bounded_time(
    nodes: int, fans: Sequence[int], missing: float, held: float, gpus: int, most: int
) -> None:
    """Nodes without a label are domains of their own, of which none has the rest of a gang; and where hardly any two
    nodes share a domain, a domain has hundreds of them inside to choose from."""
    cluster, tables = uneven(nodes, fans, missing=missing, held=held), Tables()
    tables.learn(graph("hgx-h200"))
    assert cluster.forest.now.counts
    found, calls = calls_of(lambda: place(cluster, wanted(gpus=gpus), tables))
    assert isinstance(found, Placement)
    assert calls < most
