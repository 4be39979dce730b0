"""What NCCL 2.31 plans otherwise than 2.30: both versions' own search, run on the same graphs, and the model beside it.

NCCL 2.31.2 has other figures for the link between the sockets of AMD's Zen 3 and later, and of Intel's Xeon 6 (its
topo.h and topo.cc), and one more speed between nodes for compute capability 10 (90.2 GB/s, search.cc). The library of
2.32.3 has the same speeds. Of 575 graphs, the 247 sets of a DGX-1V among them, the plans differ only where a ring
crosses these sockets: by the rows below.
"""

import pytest

from closeknit.api.nodetopology import NodeTopologySpec, Transport
from closeknit.machine.graph import Machine, machine
from closeknit.placement.allreduce.bandwidth import nearest_nics, nic_bandwidth, set_bandwidth
from closeknit.placement.allreduce.paths import pcie_tree
from scenarios.machines import spec, tree

ZEN_3, ZEN_4, ZEN_5 = "AMD EPYC 7763 64-Core Processor", "AMD EPYC 9554 64-Core Processor", "AMD EPYC 9755"
XEON_6 = "Intel(R) Xeon(R) 6972P"
OF_2_31 = {ZEN_3: 24, ZEN_4: 24, ZEN_5: 32, XEON_6: 40}
"""GB/s between sockets."""


def planned_by(version: str, cpu: str, found: NodeTopologySpec) -> Machine:
    """The machine with the CPUs as that NCCL knows them."""
    wire = found.wire()
    between = {"interSocketGBps": OF_2_31[cpu]} if version == "2.31" else {}
    return machine(NodeTopologySpec.parse({**wire, "pcie": {**wire["pcie"], "cpuModel": cpu, **between}}))


PAIRS = [
    # compute capability, PCIe generation, CPU, GB/s by 2.30.7, by 2.31.2
    ("8.0", 4, ZEN_3, 15, 24),
    ("8.0", 4, ZEN_4, 15, 24),
    ("8.0", 4, ZEN_5, 15, 24),
    ("8.0", 4, XEON_6, 20, 24),
    ("9.0", 5, ZEN_3, 15, 24),
    ("9.0", 5, ZEN_4, 15, 24),
    ("9.0", 5, ZEN_5, 15, 30),
    ("9.0", 5, XEON_6, 22, 40),
    ("10.0", 5, ZEN_4, 0.1, 24),  # 2.30 knows no speed below 18 GB/s there, and plans its way out of last resort
    ("10.0", 5, ZEN_5, 0.1, 30),
    ("10.0", 5, XEON_6, 20, 40),
]


@pytest.mark.parametrize("version", ["2.30", "2.31"])
@pytest.mark.parametrize(("capability", "pcie", "cpu", "before", "after"), PAIRS)
def test_a_pair_over_two_sockets(
    version: str, capability: str, pcie: int, cpu: str, before: float, after: float
) -> None:
    levels = tree([0, 1], [0, 1])
    graph = planned_by(
        version,
        cpu,
        spec(count=2, product="any", capability=capability, memory_gib=1, levels=levels, pcie=pcie, cpu=cpu),
    )
    found = set_bandwidth(graph, pcie_tree(graph), (0, 1)).order_gb_s
    assert found == (after if version == "2.31" else before)


FAR_NICS = [
    # compute capability, NICs' Gb/s, CPU, GB/s by 2.30.7, by 2.31.2
    ("8.0", 200, ZEN_4, 15, 24),
    ("8.0", 200, ZEN_5, 15, 30),
    ("8.0", 200, XEON_6, 20, 40),
    ("9.0", 400, ZEN_4, 15, 24),
    ("9.0", 400, ZEN_5, 15, 30),
    ("9.0", 400, XEON_6, 22, 40),
    ("10.0", 400, ZEN_4, 15, 24),
    ("10.0", 400, ZEN_5, 15, 30),
    ("10.0", 400, XEON_6, 22, 40),
]


@pytest.mark.parametrize("version", ["2.30", "2.31"])
@pytest.mark.parametrize(("capability", "rate", "cpu", "before", "after"), FAR_NICS)
def test_four_nics_of_the_other_socket(
    version: str, capability: str, rate: int, cpu: str, before: float, after: float
) -> None:
    """The model has the link's own figure; NCCL rounds down to a speed of its table, by 7% at most."""
    found = spec(
        count=4,
        product="any",
        capability=capability,
        memory_gib=1,
        levels=tree([0] * 4, range(4)),
        switch_links=12 if capability == "8.0" else 18,
        pcie=4 if capability == "8.0" else 5,
        cpu=cpu,
        nics=[(("SYS",) * 4, rate)] * 4,
    )
    graph = planned_by(version, cpu, found)
    rows = nearest_nics(graph, Transport.INFINIBAND, range(4))
    assert nic_bandwidth(graph, rows, range(4)) == pytest.approx(after if version == "2.31" else before, rel=0.1)
