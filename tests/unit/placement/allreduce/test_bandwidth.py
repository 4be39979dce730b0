"""The bandwidth model against what NCCL plans, from tables of NCCL 2.30's own search on the same graphs."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest

from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import NodeTopologySpec, Transport
from closeknit.machine.graph import Machine, machine
from closeknit.placement.allreduce import constants
from closeknit.placement.allreduce.bandwidth import (
    SetBandwidth,
    most_bandwidth,
    nearest_nics,
    nic_bandwidth,
    set_bandwidth,
)
from closeknit.placement.allreduce.paths import PathType, pcie_tree
from scenarios.machines import AMD_2021, INTEL_2017, INTEL_2023, INTEL_2024, dgx1v, hgx_a100, published, spec, tree


def bandwidth(graph: Machine, positions: tuple[int, ...]) -> SetBandwidth:
    return set_bandwidth(graph, pcie_tree(graph), positions)._replace(steps=0)


# GPUs: {(GB/s, worst path): how many of the sets}
DGX1V = {
    2: {(40, "NVL"): 8, (20, "NVL"): 8, (10, "SYS"): 12},
    3: {(40, "NVL"): 8, (40, "NVB"): 4, (20, "NVB"): 20, (10, "SYS"): 24},
    4: {(80, "NVL"): 2, (60, "NVB"): 2, (40, "NVL"): 4, (40, "NVB"): 12, (20, "NVB"): 36, (10, "SYS"): 14},
    5: {(40, "any"): 32, (20, "any"): 24},
    6: {(80, "any"): 4, (40, "any"): 24},
    7: {(80, "any"): 8},
    8: {(120, "any"): 1},
}


@pytest.mark.parametrize("count", DGX1V)
def test_every_set_of_a_dgx_1v_is_in_the_class_that_nccl_puts_it_in(count: int) -> None:
    wire = dgx1v().wire()  # the classes are those of the same machine with CPUs of 2017, as Azure's NDv2 has them
    graph = machine(type(dgx1v()).parse({**wire, "pcie": {**wire["pcie"], "cpuModel": INTEL_2017}}))
    found: Counter[tuple[float, str]] = Counter()
    for positions in combinations(range(8), count):
        ring = bandwidth(graph, positions)
        assert ring.worst is not None
        found[ring.order_gb_s, ring.worst.name if count < 5 else "any"] += 1
    assert found == DGX1V[count]


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        pytest.param((0, 1, 2, 3), 80, id="a quad"),
        pytest.param((4, 5, 6, 7), 80, id="the other quad"),
        pytest.param((0, 3, 4, 7), 60, id="both double links across"),
        pytest.param((1, 2, 5, 6), 60, id="the other two"),
        pytest.param((0, 1, 4, 5), 40, id="a square"),
        pytest.param((0, 1, 2, 4, 5, 6), 80, id="one of four good sixes"),
        pytest.param((0, 2, 3, 4, 6, 7), 80, id="another"),
        pytest.param((0, 1, 2, 3, 4, 5), 40, id="a quad and two"),
    ],
)
def test_named_sets_of_a_dgx_1v(positions: tuple[int, ...], expected: float) -> None:
    assert bandwidth(machine(dgx1v()), positions).order_gb_s == expected


def switched(capability: str, links: int, pcie: int) -> Machine:
    return machine(
        spec(
            count=8,
            product="any",
            capability=capability,
            memory_gib=80,
            levels=tree([0] * 4 + [1] * 4, range(8), near="NODE"),
            switch_links=links,
            pcie=pcie,
            cpu=INTEL_2023,
        )
    )


@pytest.mark.parametrize("count", range(2, 9))
@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        pytest.param(switched("8.0", 12, 4), 240, id="A100"),
        pytest.param(switched("9.0", 18, 5), 360, id="H100 and H200"),
        pytest.param(switched("10.0", 18, 5), 720, id="B200"),
    ],
)
def test_behind_switches_every_set_is_as_fast_as_any(graph: Machine, expected: float, count: int) -> None:
    assert bandwidth(graph, tuple(range(count))) == SetBandwidth(expected, known=True, worst=PathType.NVL)


@pytest.mark.parametrize(
    ("capability", "links", "expected"),
    [
        pytest.param("7.0", 2, (40, 80, 120), id="V100, two links"),
        pytest.param("8.0", 4, (80, 160, 240), id="A100, four links"),
        pytest.param("9.0", 6, (120, 240, 360), id="H100, six links"),
    ],
)
def test_full_mesh_of_four(capability: str, links: int, expected: tuple[float, ...]) -> None:
    graph = machine(
        spec(
            count=4,
            product="any",
            capability=capability,
            memory_gib=80,
            levels=tree([0] * 4, range(4)),
            pairs=" ".join(f"{a}-{b}:{links}" for a in range(4) for b in range(a + 1, 4)),
            pcie=4,
            cpu=AMD_2021,
        )
    )
    assert tuple(bandwidth(graph, tuple(range(count))).order_gb_s for count in (2, 3, 4)) == expected


PAIR = {"PIX": ([0, 0], [0, 0]), "PHB": ([0, 0], [0, 1]), "SYS": ([0, 1], [0, 1])}


@pytest.mark.parametrize(
    ("capability", "pcie", "cpu", "level", "expected"),
    [
        pytest.param("7.0", 3, INTEL_2017, "PIX", 12, id="gen 3, one switch"),
        pytest.param("7.0", 3, INTEL_2017, "PHB", 10, id="gen 3, Skylake host bridge"),
        pytest.param("7.0", 3, INTEL_2017, "SYS", 10, id="gen 3, Skylake sockets"),
        pytest.param("8.0", 4, INTEL_2023, "PIX", 24, id="gen 4, one switch"),
        pytest.param("8.0", 4, INTEL_2023, "PHB", 20, id="gen 4, Sapphire Rapids host bridge"),
        pytest.param("8.0", 4, INTEL_2023, "SYS", 20, id="gen 4, Sapphire Rapids sockets"),
        pytest.param("8.0", 4, AMD_2021, "PHB", 24, id="gen 4, AMD host bridge"),
        pytest.param("8.0", 4, AMD_2021, "SYS", 15, id="gen 4, AMD sockets"),
        pytest.param("9.0", 5, INTEL_2024, "PHB", 40, id="gen 5, Emerald Rapids host bridge"),
        pytest.param("9.0", 5, INTEL_2024, "SYS", 40, id="gen 5, Emerald Rapids sockets"),
    ],
)
def test_pairs_over_pcie(capability: str, pcie: int, cpu: str, level: str, expected: float) -> None:
    graph = machine(
        spec(count=2, product="any", capability=capability, memory_gib=1, levels=tree(*PAIR[level]), pcie=pcie, cpu=cpu)
    )
    assert bandwidth(graph, (0, 1)) == SetBandwidth(expected, known=True, worst=PathType[level])


def bridged(capability: str, links: int, sockets: list[int], pcie: int, cpu: str) -> Machine:
    return machine(
        spec(
            count=4,
            product="any",
            capability=capability,
            memory_gib=48,
            sockets=sockets,
            levels=tree(sockets, range(4)),
            pairs=f"0-1:{links} 2-3:{links}",
            pcie=pcie,
            cpu=cpu,
        )
    )


@pytest.mark.parametrize(
    ("graph", "pair", "both"),
    [
        pytest.param(bridged("8.6", 4, [0] * 4, 4, INTEL_2023), 40, 40, id="A40, one Intel socket"),
        pytest.param(bridged("8.0", 12, [0] * 4, 4, AMD_2021), 240, 48, id="A100 PCIe, one AMD socket"),
        pytest.param(bridged("8.0", 12, [0, 0, 1, 1], 4, AMD_2021), 240, 15, id="A100 PCIe, two AMD sockets"),
        pytest.param(bridged("9.0", 12, [0] * 4, 5, INTEL_2024), 240, 80, id="H100 NVL, one Intel socket"),
        pytest.param(bridged("9.0", 12, [0, 0, 1, 1], 5, INTEL_2024), 240, 40, id="H100 NVL, two Intel sockets"),
    ],
)
def test_bridged_pairs(graph: Machine, pair: float, both: float) -> None:
    assert (bandwidth(graph, (0, 1)).order_gb_s, bandwidth(graph, (0, 1, 2, 3)).order_gb_s) == (pair, both)


def test_chained_switches_are_worse_than_one_and_as_fast() -> None:
    levels = ["X PIX PXB", "PIX X PXB", "PXB PXB X"]
    graph = machine(spec(count=3, product="any", capability="8.0", memory_gib=1, levels=levels, pcie=4, cpu=AMD_2021))
    assert bandwidth(graph, (0, 1)) == SetBandwidth(24, known=True, worst=PathType.PIX)
    assert bandwidth(graph, (1, 2)) == SetBandwidth(24, known=True, worst=PathType.PXB)


def test_the_upper_limit_is_one() -> None:
    graph = machine(dgx1v())
    tree_of = pcie_tree(graph)
    for count in range(2, 9):
        for positions in combinations(range(8), count):
            assert most_bandwidth(graph, tree_of, positions) >= bandwidth(graph, positions).order_gb_s


def test_without_compute_capability_sets_are_ordered_and_nothing_is_promised() -> None:
    wire = dgx1v().wire()
    for gpu in wire["gpus"]:
        del gpu["computeCapability"]
    graph = machine(type(dgx1v()).parse(wire))
    double, single, none = (bandwidth(graph, pair) for pair in ((0, 3), (0, 1), (0, 5)))
    assert not (double.known or single.known or none.known)
    assert double.order_gb_s > single.order_gb_s > none.order_gb_s


def test_one_gpu_has_nothing_to_exchange() -> None:
    assert bandwidth(machine(dgx1v()), (3,)).worst is None


def hgx(gpus: int, rate: int, levels: list[list[str]], capability: str = "9.0", *, gpu_direct: bool = True) -> Machine:
    """Eight GPUs behind switches, four on each socket; of each NIC its level to each GPU."""
    pcie = {"9.0": 5, "10.0": 5, "8.0": 4}[capability]
    found = spec(
        count=gpus,
        product="any",
        capability=capability,
        memory_gib=80,
        levels=tree([0] * 4 + [1] * (gpus - 4), range(gpus), near="NODE"),
        switch_links=12 if capability == "8.0" else 18,
        pcie=pcie,
        cpu=INTEL_2023,
        nics=[(tuple(row), rate) for row in levels],
    ).wire()
    capabilities = {"gpuDirectRDMA": "Supported" if gpu_direct else "Unsupported"}
    return machine(NodeTopologySpec.parse({**found, "capabilities": capabilities}))


def rails(nics: list[int]) -> list[list[str]]:
    """A NIC beside each of these GPUs."""
    return [["PIX" if gpu == at else "NODE" if gpu // 4 == at // 4 else "SYS" for gpu in range(8)] for at in nics]


EIGHT = rails(list(range(8)))


@pytest.mark.parametrize(
    ("graph", "positions", "expected"),
    [
        pytest.param(hgx(8, 400, EIGHT), range(8), 384, id="H100, eight NICs"),
        pytest.param(hgx(8, 400, EIGHT, gpu_direct=False), range(8), 160, id="H100, no GPUDirect RDMA"),
        pytest.param(hgx(8, 400, EIGHT), range(4), 192, id="H100, four GPUs, theirs of eight NICs"),
        pytest.param(hgx(8, 400, rails([0, 1, 2, 3])), range(4), 192, id="H100, four GPUs, four NICs"),
        pytest.param(hgx(8, 400, rails([4, 5, 6, 7])), range(4), 22, id="H100, the other socket's NICs"),
        pytest.param(hgx(8, 400, EIGHT), range(2), 96, id="H100, two GPUs"),
        pytest.param(hgx(8, 400, EIGHT), range(1), 48, id="H100, one GPU"),
        pytest.param(hgx(8, 400, rails([0, 2, 4, 6])), range(8), 192, id="H100, four NICs"),
        pytest.param(hgx(8, 400, EIGHT, "10.0"), range(8), 384, id="B200, eight NICs"),
        pytest.param(hgx(8, 200, EIGHT, "8.0"), range(8), 192, id="A100, eight NICs of 200 Gb/s"),
        pytest.param(hgx(8, 100, rails([0, 2, 4, 6]), "8.0"), range(8), 48, id="A100, four NICs of 100 Gb/s"),
    ],
)
def test_what_nccl_plans_between_nodes(graph: Machine, positions: range | tuple[int, ...], expected: float) -> None:
    rows = nearest_nics(graph, Transport.INFINIBAND, tuple(positions))
    assert nic_bandwidth(graph, rows, tuple(positions)) == expected


def test_what_cannot_do_gpu_direct_is_another_class_of_machine() -> None:
    assert hgx(8, 400, EIGHT).topology_class != hgx(8, 400, EIGHT, gpu_direct=False).topology_class


def beside(level: str, rate: int, capability: str = "9.0", pcie: int = 5) -> Machine:
    levels = tree([0], [0])
    return machine(
        spec(
            count=1,
            product="any",
            capability=capability,
            memory_gib=1,
            levels=levels,
            pcie=pcie,
            cpu=INTEL_2023,
            nics=[((level,), rate)],
        )
    )


@pytest.mark.parametrize(
    ("graph", "positions", "expected"),
    [
        pytest.param(switched("9.0", 18, 5), range(8), None, id="no NIC"),
        pytest.param(machine(hgx_a100()), range(8), 192, id="A100, eight NICs of 200 Gb/s"),
        pytest.param(machine(hgx_a100()), range(4), 96, id="four GPUs use their four NICs"),
        pytest.param(machine(dgx1v()), range(8), 48, id="DGX-1V, four NICs of 100 Gb/s"),
        pytest.param(beside("PIX", 400), (0,), 48, id="400 Gb/s beside the GPU"),
        pytest.param(beside("PHB", 400), (0,), 40, id="400 Gb/s through an Intel host bridge"),
        pytest.param(beside("SYS", 400), (0,), 22, id="400 Gb/s from the other socket"),
    ],
)
def test_nics_between_nodes(graph: Machine, positions: range | tuple[int, ...], expected: float | None) -> None:
    rows = nearest_nics(graph, Transport.INFINIBAND, tuple(positions))
    assert nic_bandwidth(graph, rows, tuple(positions)) == expected


def graced(
    gpus: Sequence[int | None],
    nics: Sequence[tuple[str, int | None, int]],
    *,
    links: int = 5,
    speed: float | None = 223.56,
    width: int = 16,
    gpu_direct: bool = True,
) -> Machine:
    """GPUs by their NUMA node, each with C2C of so many links; of each NIC its level to all of them, its NUMA node and
    its rate."""
    c2c = {"links": links, **({} if speed is None else {"bandwidthGBps": speed})}
    return machine(
        NodeTopologySpec.parse(
            {
                "source": {"method": "Simulated"},
                "gpus": [
                    {
                        "index": index,
                        "pciAddress": f"{8 + index:04x}:01:00.0",
                        "computeCapability": "10.0",
                        "pcieGeneration": 6,
                        "pcieWidth": width,
                        "c2c": c2c,
                        **({} if numa is None else {"numaNode": numa}),
                    }
                    for index, numa in enumerate(gpus)
                ],
                "pcie": {"cpuModel": "Neoverse-V2"},
                "nics": [
                    {
                        "name": f"mlx5_{number}",
                        "transport": "InfiniBand",
                        "state": "Active",
                        "rateGbps": rate,
                        "gpuLevels": [level] * len(gpus),
                        **({} if numa is None else {"numaNode": numa}),
                    }
                    for number, (level, numa, rate) in enumerate(nics)
                ],
                "capabilities": {"gpuDirectRDMA": "Supported" if gpu_direct else "Unsupported"},
            }
        )
    )


TRAY = [("SYS", None, 400)] * 4


@pytest.mark.parametrize(
    ("graph", "positions", "expected"),
    [
        pytest.param(
            machine(published(load_profile("gb200-tray"), "0")), range(4), 192, id="GB200, as its agent tells"
        ),
        pytest.param(graced([0, 0, 1, 1], TRAY), range(4), 192, id="a whole tray, NICs of which nobody knows the CPU"),
        pytest.param(graced([0, 0, 1, 1], TRAY), range(2), 96, id="half a tray has half of them near"),
        pytest.param(graced([0, 0, 1, 1], TRAY), (3,), 48, id="one GPU of four has one"),
        pytest.param(graced([0, 0, 1, 1], TRAY[:1]), (3,), 48, id="of one NIC a GPU has that one"),
        pytest.param(graced([None] * 4, [("SYS", 0, 400)] * 4), range(4), 192, id="GPUs of which nobody knows the CPU"),
        pytest.param(graced([0, 0], [("SYS", 0, 400)]), range(2), 48, id="a NIC of the same CPU, whatever its level"),
        pytest.param(graced([0, 0], [("SYS", 1, 400)] * 2), range(2), 6, id="NICs of the other CPU"),
        pytest.param(graced([0], [("NODE", 0, 800)]), (0,), 96, id="800 Gb/s beside a GPU"),
        pytest.param(graced([0], [("NODE", 0, 400)], width=1), (0,), 48, id="its own slot does not count"),
        pytest.param(graced([0], [("PIX", 0, 400)], width=8), (0,), 48, id="but for a NIC on its switch"),
        pytest.param(
            graced([0], [("PIX", 0, 400)], gpu_direct=False), (0,), 48, id="no GPUDirect RDMA, and no way back"
        ),
        pytest.param(graced([0], [("NODE", 0, 400)] * 8), (0,), 223.56, id="all share the GPU's C2C"),
        pytest.param(graced([0], [("NODE", 0, 400)] * 8, speed=None), (0,), 223.56, id="C2C of five links, unread"),
        # Reached 96.07 GB/s with GPUDirect RDMA between two machines, 79.72 without (NVIDIA/nccl#1579).
        pytest.param(
            graced([0], [("NODE", 0, 200)] * 4, links=10, speed=447.12), (0,), 96, id="GH200, four of 200 Gb/s"
        ),
    ],
)
def test_nics_behind_a_grace(graph: Machine, positions: range | tuple[int, ...], expected: float) -> None:
    rows = nearest_nics(graph, Transport.INFINIBAND, tuple(positions))
    assert nic_bandwidth(graph, rows, tuple(positions)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("profile", "positions", "names"),
    [
        # rdma_topo on a GB300 tray: the NIC 0000:03:00.0 belongs to the GPU 0009:06:00.0, which is the second.
        pytest.param("gb300-tray", (0,), ["mlx5_1"], id="GB300, the first GPU"),
        pytest.param("gb300-tray", (1, 2), ["mlx5_0", "mlx5_3"], id="GB300, one of each CPU"),
        pytest.param("hgx-b300", (5,), ["mlx5_5"], id="B300"),
    ],
)
def test_the_nics_of_a_connectx_8_are_those_that_share_its_way_of_data(
    profile: str, positions: tuple[int, ...], names: list[str]
) -> None:
    graph = machine(published(load_profile(profile), "0"))
    rows = nearest_nics(graph, Transport.INFINIBAND, positions)
    assert [graph.nics[row].name for row in sorted(rows)] == names
    # Each carries 800 Gb/s beside its GPU, and not over the C2C that all NICs of a CPU share.
    assert nic_bandwidth(graph, rows, positions) == pytest.approx(96 * len(positions))


def test_a_gpu_with_c2c_is_no_twin_of_one_without() -> None:
    assert graced([0, 0], TRAY).topology_class != graced([0, 0], TRAY, links=0, speed=None).topology_class


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", (True, 6)),
        ("Intel(R) Xeon(R) Platinum 8168 CPU @ 2.70GHz", (True, 10)),
        ("Intel(R) Xeon(R) Gold 6348 CPU @ 2.60GHz", (True, 10)),
        ("Intel(R) Xeon(R) Platinum 8480C", (True, 22)),
        ("INTEL(R) XEON(R) PLATINUM 8580", (True, 40)),
        ("Intel(R) Xeon(R) 6972P", (True, 22)),
        ("AMD EPYC 9654 96-Core Processor", (False, 16)),
        ("Neoverse-V2", (False, 6)),
        ("POWER9, altivec supported", (False, 32)),
        (None, (True, 10)),
    ],
)
def test_cpus_by_the_name_they_give(model: str | None, expected: tuple[bool, float]) -> None:
    assert constants.cpu(model, None) == expected


def test_a_measured_inter_socket_bandwidth_wins() -> None:
    assert constants.cpu(AMD_2021, 27.5) == (False, 27.5)
