"""What is one kind of machine, and which gangs take several."""

from dataclasses import replace
from typing import Any

import pytest

from closeknit.cluster.node.node import NodeView
from closeknit.machine.graph import Machine
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.suggestions.changes import nearest_changes
from closeknit.placement.values.placement import NoFit, Placement
from scenarios.clusters import cluster_of, graph, node, wanted

TABLES = Tables()  # which change no answer
REQUIRED = {"nvlink": "Required"}
H200 = graph("hgx-h200")


def with_products(machine: Machine, *products: str | None) -> Machine:
    gpus = [replace(gpu, product=product) for gpu, product in zip(machine.gpus, products, strict=True)]
    return replace(machine, gpus=tuple(gpus), topology_class=f"{machine.topology_class} {products}")


def with_a_nic_down(machine: Machine) -> Machine:
    return replace(machine, nics=machine.nics[1:], topology_class=f"{machine.topology_class} nic")


def over(*machines: Machine, words: str = "", **spec: Any) -> Placement | NoFit:
    nodes: list[NodeView] = [node(f"gpu-{number}", each, gpus=words) for number, each in enumerate(machines)]
    return place(cluster_of(*nodes), wanted(**spec), TABLES)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(with_a_nic_down(H200), id="a NIC is down"),
        pytest.param(replace(H200, cpu_model="another", topology_class="another"), id="another CPU"),
    ],
)
def test_one_product_is_one_kind_however_else_machines_differ(other: Machine) -> None:
    assert other.topology_class != H200.topology_class
    assert isinstance(over(H200, other, gpus=16, topology=REQUIRED), Placement)


def test_of_unknown_products_the_compute_capability_is_the_kind() -> None:
    unknown = with_products(H200, *[None] * 8)
    assert isinstance(over(unknown, with_a_nic_down(unknown), gpus=16, topology=REQUIRED), Placement)
    a100 = with_products(graph("hgx-a100"), *[None] * 8)
    refused = over(unknown, a100, gpus=16, topology=REQUIRED)
    assert isinstance(refused, NoFit)
    assert "8 of GPUs of unknown product (compute capability 8.0) on 1 node" in refused.message


def test_gpus_that_the_job_does_not_take_make_no_kind() -> None:
    half = with_products(H200, *["NVIDIA-H200"] * 4, *["NVIDIA-H100"] * 4)
    asked = {"gpus": 8, "gpu": {"products": ["NVIDIA-H200"]}, "topology": {**REQUIRED, "gpusPerNode": 4}}
    words = "0 1 2 3 a a a a"
    assert isinstance(over(half, H200, words=words, **asked), Placement)


@pytest.mark.parametrize("policy", ["Required", "Preferred", "Ignored"])
@pytest.mark.parametrize("group", [1, 8, 16])
def test_where_one_kind_has_room_none_is_mixed_in_however_little_the_job_insists(policy: str, group: int) -> None:
    """Not for a rack in common, either: the H200 nodes stand apart, each beside an A100 node."""
    machines = {"gpu-0": ("hgx-h200", "r1"), "gpu-1": ("hgx-a100", "r1"), "gpu-2": ("hgx-h200", "r2")}
    there = cluster_of(
        *(node(name, graph(kind), path=(rack,)) for name, (kind, rack) in machines.items()), levels=("rack",)
    )
    found = place(there, wanted(gpus=16, parallelism={"tensor": group}, topology={"nvlink": policy}), TABLES)
    if (policy, group) == ("Required", 16):  # no machine has such an island
        assert isinstance(found, NoFit)
        return
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["gpu-0", "gpu-2"]


@pytest.mark.parametrize(
    ("policy", "group", "is_placed"),
    [
        ("Required", 1, False), ("Preferred", 1, True), ("Ignored", 1, True),
        ("Required", 8, False), ("Preferred", 8, True), ("Ignored", 8, True),
        ("Required", 16, False), ("Preferred", 16, False), ("Ignored", 16, True),
    ],
)  # fmt: skip
def test_where_nothing_else_is_free_it_is_the_word_that_decides(policy: str, group: int, is_placed: bool) -> None:
    """A group of sixteen would lie on both machines, whose generations of NVLink Ignored alone mixes."""
    spec: dict[str, Any] = {"gpus": 16, "parallelism": {"tensor": group}, "topology": {"nvlink": policy}}
    assert isinstance(over(H200, graph("hgx-a100"), **spec), Placement) == is_placed


def test_a_refusal_names_at_most_four_kinds() -> None:
    machines = [with_products(H200, *[f"P{number}"] * 8) for number in range(6)]
    refused = over(*machines, gpus=16, topology=REQUIRED)
    assert isinstance(refused, NoFit)
    assert refused.message == (
        "needs 16 GPUs on machines of one kind; free are 8 of P0 on 1 node, 8 of P1 on 1 node, 8 of P2 on 1 node, "
        "8 of P3 on 1 node and 16 of 2 other kinds; over several kinds it would fit (topology.nvlink: Preferred)"
    )


def test_a_kind_with_gpus_enough_in_other_shares_is_told_so() -> None:
    halves = [node(name, H200, gpus="0 1 2 3 a a a a") for name in ("gpu-0", "gpu-1")]
    there = cluster_of(*halves, node("gpu-2", H200), node("gpu-3", graph("hgx-a100")))
    refused = place(there, wanted(gpus=16, topology={**REQUIRED, "gpusPerNode": 8}), TABLES)
    assert isinstance(refused, NoFit)
    assert refused.message == (
        "needs 16 GPUs on machines of one kind; free are 16 of NVIDIA-H200 on 3 nodes and 8 of NVIDIA-A100-SXM4-80GB "
        "on 1 node, but not in shares that meet the other demands; over several kinds it would fit "
        "(topology.nvlink: Preferred); 8 excluded: 8 held by 1 job"
    )


def test_mixing_kinds_is_the_change_that_is_told() -> None:
    there = cluster_of(node("gpu-0", H200), node("gpu-1", graph("hgx-a100")))
    request = wanted(gpus=16, topology=REQUIRED)
    assert not can_place(there, request, TABLES)
    told = nearest_changes(there, request, TABLES)
    assert str(told[0]) == "with topology.nvlink: Preferred: 16 GPUs on 2 nodes, 192.0 GB/s"
    assert len({share.node for share in told[0].placement.shares}) == 2
