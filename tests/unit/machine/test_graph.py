"""What a NodeTopology becomes, and what it must not say."""

from typing import Any

import pytest

from closeknit.api.nodetopology import NodeTopologySpec, PortState
from closeknit.machine.graph import InvalidTopology, machine
from closeknit.machine.islands import islands
from scenarios.machines import a100x4, dgx1v, hgx_h200, pairs8


def changed(spec: NodeTopologySpec, **parts: Any) -> NodeTopologySpec:
    """The spec with parts replaced or, where both are objects, merged."""
    wire = spec.wire()
    for key, value in parts.items():
        wire[key] = {**wire[key], **value} if isinstance(value, dict) else value
    return NodeTopologySpec.parse(wire)


def gpus(**differences: Any) -> list[dict[str, Any]]:
    """Four GPUs, the last with the differences."""
    rows: list[dict[str, Any]] = a100x4().wire()["gpus"]
    return [*rows[:3], {**rows[3], **differences}]


REFUSED = {
    "two GPUs of one index": ({"gpus": gpus(index=0)}, "gpus[3].index", "0 is also that of gpus[0].index"),
    "two GPUs of one uuid": (
        {"gpus": gpus(uuid="GPU-0-1")},
        "gpus[3].uuid",
        "GPU-0-1 is also that of gpus[1].uuid",
    ),
    "two GPUs at one address": (
        {"gpus": gpus(pciAddress="0000:01:00.0")},
        "gpus[3].pciAddress",
        "0000:01:00.0 is also that of gpus[0].pciAddress",
    ),
    "a pair with a GPU that is not there": (
        {"nvlink": {"pairs": [{"a": 0, "b": 4, "links": 1}]}},
        "nvlink.pairs[0].b",
        "GPU 4 is not among gpus",
    ),
    "a pair the wrong way round": (
        {"nvlink": {"pairs": [{"a": 2, "b": 1, "links": 1}]}},
        "nvlink.pairs[0]",
        "a is 2 and b is 1; a must be below b",
    ),
    "a pair of one GPU": (
        {"nvlink": {"pairs": [{"a": 1, "b": 1, "links": 1}]}},
        "nvlink.pairs[0]",
        "a is 1 and b is 1; a must be below b",
    ),
    "a pair twice": (
        {"nvlink": {"pairs": [{"a": 0, "b": 1, "links": 1}, {"a": 0, "b": 1, "links": 2}]}},
        "nvlink.pairs[1]",
        "0-1 is also nvlink.pairs[0]; give each pair once",
    ),
    "pairs behind switches": (
        {"nvlink": {"switched": True, "linksPerGPU": [4, 4, 4, 4]}},
        "nvlink.pairs",
        "must be empty with switched: true; pairs are links without a switch",
    ),
    "switches without link counts": (
        {"nvlink": {"switched": True, "pairs": []}},
        "nvlink.linksPerGPU",
        "is missing; with switched: true it has one entry for each GPU",
    ),
    "too few link counts": (
        {"nvlink": {"linksPerGPU": [4, 4]}},
        "nvlink.linksPerGPU",
        "has 2 entries; must have one for each of the 4 gpus, or none",
    ),
    "too few rows": (
        {"pcie": {"levels": ["X PIX", "PIX X"]}},
        "pcie.levels",
        "has 2 rows; must have one for each of the 4 gpus, or none",
    ),
    "a ragged row": (
        {"pcie": {"levels": ["X PIX PIX PIX", "PIX X PIX", "PIX PIX X PIX", "PIX PIX PIX X"]}},
        "pcie.levels[1]",
        "has 3 words; must have 4, one for each GPU",
    ),
    "an unknown word": (
        {"pcie": {"levels": ["X PIX SOC PIX", "PIX X PIX PIX", "SOC PIX X PIX", "PIX PIX PIX X"]}},
        "pcie.levels[0]",
        "word 2 is 'SOC'; must be PIX, PXB, PHB, NODE or SYS",
    ),
    "no X on the diagonal": (
        {"pcie": {"levels": ["X PIX PIX PIX", "PIX PIX PIX PIX", "PIX PIX X PIX", "PIX PIX PIX X"]}},
        "pcie.levels[1]",
        "word 1 is 'PIX'; must be X",
    ),
    "an asymmetric matrix": (
        {"pcie": {"levels": ["X PIX PIX PIX", "PIX X PIX PIX", "PIX SYS X PIX", "PIX PIX PIX X"]}},
        "pcie.levels[2]",
        "is SYS to GPU 1, but pcie.levels[1] is PIX back; both must be the same",
    ),
    "a NIC with too few levels": (
        {"nics": [{"name": "mlx5_0", "transport": "RoCE", "state": "Active", "gpuLevels": ["PIX"]}]},
        "nics[0].gpuLevels",
        "has 1 entries; must have one for each of the 4 gpus, or none",
    ),
    "a NIC with an unknown level": (
        {"nics": [{"name": "mlx5_0", "transport": "RoCE", "state": "Active", "gpuLevels": ["X", "PIX", "PIX", "PIX"]}]},
        "nics[0].gpuLevels[0]",
        "is 'X'; must be PIX, PXB, PHB, NODE or SYS",
    ),
    "a NIC port twice": (
        {"nics": [{"name": "mlx5_0", "transport": "RoCE", "state": "Active"}] * 2},
        "nics[1]",
        "mlx5_0:1 is also that of nics[0]",
    ),
}


@pytest.mark.parametrize(("parts", "field", "message"), REFUSED.values(), ids=REFUSED)
def test_a_contradiction_is_refused_with_its_field(parts: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidTopology) as refusal:
        machine(changed(a100x4(), **parts))
    assert (refusal.value.field, refusal.value.message) == (field, message)
    assert str(refusal.value) == f"{field}: {message}"


def test_positions_follow_the_index_whatever_order_the_file_has() -> None:
    straight = dgx1v()
    wire = straight.wire()
    order = [5, 2, 7, 0, 1, 3, 6, 4]
    rows = [row.split() for row in wire["pcie"]["levels"]]
    shuffled = changed(
        straight,
        gpus=[wire["gpus"][row] for row in order],
        pcie={"levels": [" ".join(rows[a][b] for b in order) for a in order]},
        nics=[{**nic, "gpuLevels": [nic["gpuLevels"][row] for row in order]} for nic in reversed(wire["nics"])],
    )
    assert machine(shuffled) == machine(straight)


def test_local_ranks_follow_the_pci_bus_not_the_index() -> None:
    wire = a100x4().wire()
    backwards = [{**gpu, "pciAddress": f"0000:{0x40 - gpu['index']:02x}:00.0"} for gpu in wire["gpus"]]
    graph = machine(changed(a100x4(), gpus=backwards))
    assert graph.bus_order == (3, 2, 1, 0)
    assert graph.in_bus_order({0, 1, 3}) == (3, 1, 0)


def test_addresses_are_numbers() -> None:
    wire = a100x4().wire()
    addresses = ["10000:01:00.0", "0000:ff:00.0", "0000:0f:00.0", "0000:0f:01.0"]
    graph = machine(
        changed(
            a100x4(),
            gpus=[{**gpu, "pciAddress": address} for gpu, address in zip(wire["gpus"], addresses, strict=True)],
        )
    )
    assert graph.bus_order == (2, 3, 1, 0)


@pytest.mark.parametrize(
    ("down", "island"),
    [
        pytest.param((), (0, 1, 2, 3, 4, 5, 6, 7), id="all links up"),
        pytest.param(tuple((3, link) for link in range(18)), (0, 1, 2, 4, 5, 6, 7), id="every link of GPU 3 down"),
    ],
)
def test_behind_switches_a_gpu_is_alone_when_all_its_links_are_down(
    down: tuple[tuple[int, int], ...], island: tuple[int, ...]
) -> None:
    graph = machine(hgx_h200(), down)
    assert islands(graph, range(8))[0] == island


def test_a_link_down_behind_switches_is_one_fewer_of_that_gpu() -> None:
    assert machine(hgx_h200(), ((1, 4), (1, 4), (1, 5), (9, 0))).switch_links == (18, 16, 18, 18, 18, 18, 18, 18)


@pytest.mark.parametrize(
    ("down", "expected"),
    [
        pytest.param(((0, 1), (3, 2)), {(0, 3): 1}, id="both ends report one: their pair has lost it"),
        pytest.param(((0, 1), (0, 2), (3, 2), (3, 4)), {(0, 3): 0}, id="both ends report two"),
        pytest.param(
            ((0, 1),), {(0, 1): 0, (0, 2): 0, (0, 3): 1, (0, 4): 1}, id="one end reports: any of its pairs may be hit"
        ),
        pytest.param(
            ((0, 1), (6, 1)),
            {(0, 1): 0, (0, 2): 0, (0, 3): 1, (0, 4): 1, (2, 6): 0, (4, 6): 0, (5, 6): 1, (6, 7): 1},
            id="two GPUs that are not linked report",
        ),
    ],
)
def test_a_direct_link_that_may_be_down_is_not_counted_on(
    down: tuple[tuple[int, int], ...], expected: dict[tuple[int, int], int]
) -> None:
    whole, hurt = machine(dgx1v()), machine(dgx1v(), down)
    different = {
        (a, b): hurt.links[a][b] for a in range(8) for b in range(a + 1, 8) if hurt.links[a][b] != whole.links[a][b]
    }
    assert different == expected
    assert all(hurt.links[a][b] == hurt.links[b][a] for a in range(8) for b in range(8))


def test_a_nic_that_is_down_is_down() -> None:
    graph = machine(dgx1v(), nics_down=("mlx5_2",))
    assert [nic.state for nic in graph.nics] == [PortState.ACTIVE, PortState.ACTIVE, PortState.DOWN, PortState.ACTIVE]
    assert graph.nics[0].rate_gb_s == 12.5


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        pytest.param(range(8), ((0, 1), (2, 3), (4, 5), (6, 7)), id="bridges join two GPUs each"),
        pytest.param((7, 1, 0, 2), ((0, 1), (2,), (7,)), id="half a bridge is alone"),
        pytest.param((), (), id="nothing"),
    ],
)
def test_islands_of_bridged_pairs(positions: tuple[int, ...], expected: tuple[tuple[int, ...], ...]) -> None:
    assert islands(machine(pairs8()), positions) == expected


def test_no_island_goes_through_a_gpu_that_is_not_asked_for() -> None:
    graph = machine(dgx1v())
    assert islands(graph, (0, 5)) == ((0,), (5,))
    assert islands(graph, (0, 1, 5)) == ((0, 1, 5),)


def test_machines_of_one_model_share_a_class_and_others_do_not() -> None:
    assert machine(dgx1v("a")).topology_class == machine(dgx1v("b")).topology_class
    different = {
        "whole": machine(dgx1v()),
        "a link down": machine(dgx1v(), ((0, 1), (3, 2))),
        "a NIC down": machine(dgx1v(), nics_down=("mlx5_0",)),
        "another bus order": machine(
            changed(
                dgx1v(),
                gpus=[{**gpu, "pciAddress": f"0000:{0x80 - gpu['index']:02x}:00.0"} for gpu in dgx1v().wire()["gpus"]],
            )
        ),
        "another model": machine(hgx_h200()),
    }
    assert len({graph.topology_class for graph in different.values()}) == len(different)


def test_the_class_is_the_same_in_every_process() -> None:
    assert machine(a100x4()).topology_class == "b1adf17c871d"


@pytest.mark.parametrize("fact", ["transport", "state"])
def test_a_nic_of_which_not_all_is_known_is_not_counted_on(fact: str) -> None:
    known = machine(hgx_h200()).nics
    first, *others = hgx_h200().wire()["nics"]
    found = machine(changed(hgx_h200(), nics=[{name: value for name, value in first.items() if name != fact}, *others]))
    assert len(known) > 1
    assert found.nics == known[1:]
