"""Planned all-reduce bandwidth of GPU sets: rings inside a node, NICs between nodes.

It is the bus bandwidth of a ring all-reduce of 1 GiB, as NCCL plans it; calibration.py says what is reached of it.
In-switch reduction (NVLS), which launch leaves to NCCL, is not counted: whether a machine's driver gives NCCL multicast
memory is told by CUDA alone. On the recorded 8 x H200 machine, whose fabric was up, NCCL by its defaults reached
358.7 GB/s, which is the rings' bandwidth and not that of NVLS; nvls.py says what NCCL plans with it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from closeknit.api.nodetopology import PortState, Transport
from closeknit.machine.graph import Machine, MachineNic
from closeknit.placement.allreduce import constants
from closeknit.placement.allreduce.paths import Paths, PathType, PcieTree, compute_capability, paths
from closeknit.placement.allreduce.rings import Rings, most, rings

ASSUMED_SM = 80  # plans sets of unknown compute capability, so that they can be ordered; nothing is predicted for them
# What NCCL speaks: InfiniBand and RoCE by itself, EFA by a plugin in the image.
RDMA_TRANSPORTS = (Transport.INFINIBAND, Transport.ROCE, Transport.EFA)
_LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # nearest first


class Nics(NamedTuple):
    """The active NICs of one transport that are nearest to each GPU of a set."""

    rows: tuple[int, ...]
    """Which of the machine's `nics`, ascending."""
    gb_s: float | None
    """What they carry between nodes, in GB/s; None where it is unknown."""


class NicAccess(NamedTuple):
    """Which of a machine's NICs a share of it can be given."""

    taken: int = 0
    """Those that it cannot, as a mask of rows."""
    is_dealt: bool = False
    """Whether each goes to one share alone: then a share is given no more of them than its part of the GPUs, at least
    one, or nothing would be left beside the other GPUs."""


EVERY_NIC = NicAccess()


class SetBandwidth(NamedTuple):
    """Bandwidth inside one node."""

    order_gb_s: float
    """To order sets by; infinite for one GPU, which has nothing to exchange."""
    known: bool
    """Whether `order_gb_s` is a prediction; false where a compute capability is unknown."""
    worst: PathType | None
    """The worst type of path that the rings take; None for one GPU."""
    steps: int = 0
    """What the search for rings took."""
    is_cut: bool = False
    """Whether that ended at its budget, so that there may be better ones."""


ALONE = SetBandwidth(float("inf"), known=True, worst=None)


def set_bandwidth(
    machine: Machine, tree: PcieTree, positions: Sequence[int], search: Callable[[Paths], Rings] = rings
) -> SetBandwidth:
    """Ring bandwidth of a set inside its node; positions ascending. `search` is `rings`, or one that remembers."""
    if len(positions) < 2:
        return ALONE
    sm = compute_capability(machine, positions)
    found = search(paths(machine, tree, positions, sm if sm is not None else ASSUMED_SM))
    return SetBandwidth(found.bandwidth_gb_s, sm is not None, found.worst, found.steps, found.is_cut)


def most_bandwidth(machine: Machine, tree: PcieTree, positions: Sequence[int]) -> float:
    """An upper limit of `set_bandwidth(…).order_gb_s`, twenty times cheaper."""
    if len(positions) < 2:
        return ALONE.order_gb_s
    return most(paths(machine, tree, positions, compute_capability(machine, positions) or ASSUMED_SM))


def active_nics(machine: Machine, transport: Transport, taken: int = 0) -> list[int]:
    """Rows of the machine's nics of one transport that are active and not in this mask of rows, ascending."""
    nics = enumerate(machine.nics)
    active = [row for row, nic in nics if nic.transport is transport and nic.state is PortState.ACTIVE]
    return [row for row in active if not taken >> row & 1]


def dealt(machine: Machine, transport: Transport, near: Sequence[frozenset[int]], gpus: int) -> frozenset[int]:
    """The NICs that a share of so many GPUs is given where each goes to one share alone: of rows `near` to each GPU,
    those that are near to most GPUs first, and to those that have none yet."""
    most = max(1, len(active_nics(machine, transport)) * gpus // len(machine.gpus))
    chosen = set[int]()
    waiting = list(near)
    while len(chosen) < most:
        rows = frozenset[int]().union(*waiting) - chosen
        if not rows:
            if len(waiting) == len(near):
                break
            waiting = list(near)
            continue
        best = max(rows, key=lambda row: (sum(row in each for each in waiting), -row))
        chosen.add(best)
        waiting = [each for each in waiting if best not in each]
    return frozenset(chosen)


def nearest_nics(machine: Machine, transport: Transport, positions: Sequence[int], taken: int = 0) -> frozenset[int]:
    """The active NICs of one transport, less those of a mask, that are nearest to each of these GPUs, together: rows of
    the machine's nics."""
    active = [(row, machine.nics[row]) for row in active_nics(machine, transport, taken)]
    chosen = set[int]()
    for position in positions:
        distances = [_distance(nic, position) for _, nic in active]
        nearest = min(distances, default=0)
        chosen |= {row for (row, _), distance in zip(active, distances, strict=True) if distance == nearest}
    return frozenset(chosen)


def nic_bandwidth(machine: Machine, rows: Iterable[int], positions: Sequence[int]) -> float | None:
    """What the nearest NICs of these GPUs, given by row, carry between nodes, in GB/s; None where a rate or place is
    unknown.

    Each NIC carries what it and its PCIe slot can, rounded down to a speed that NCCL plans with; 5/6 of it through an
    Intel host bridge; all that cross sockets share the link between them. Without GPUDirect RDMA all of it goes through
    the CPU's memory, and on the link that a NIC shares with its GPU there and back.

    A GPU with NVLink-C2C reaches the NICs of its CPU over that, and not through its own PCIe slot (P2C in NCCL 2.30,
    graph/paths.cc and graph/topo.cc). All that goes this way shares the C2C of these GPUs.
    """
    nics = [machine.nics[row] for row in sorted(rows)]
    sm = compute_capability(machine, positions)
    if not nics or sm is None:
        return None
    cpu = constants.cpu(machine.cpu_model, machine.inter_socket_gb_s)
    table = constants.network_speeds(sm)
    within, across, over_c2c = 0.0, 0.0, 0.0
    unplaced = _unplaced_near(machine, nics[0].transport, positions)
    for nic in nics:
        if nic.rate_gb_s is None or not nic.gpu_levels:
            return None
        near = min(positions, key=lambda position: _LEVELS.index(nic.gpu_levels[position]))
        level = nic.gpu_levels[near]
        c2c_gb_s = _c2c_gb_s(machine, nic, positions)
        if c2c_gb_s and not (machine.gpu_direct and level in ("PIX", "PXB")):
            if _is_unplaced(machine, nic, positions):
                if not unplaced:
                    continue  # as many are with the other GPUs
                unplaced -= 1
            over_c2c += _planned(table, min(nic.rate_gb_s, c2c_gb_s))
            continue
        slot = constants.pcie_gb_s(sm, machine.gpus[near].pcie_generation, machine.gpus[near].pcie_width)
        is_staged = not machine.gpu_direct and level in ("PIX", "PXB")
        rate = min(nic.rate_gb_s, slot / 2 if is_staged else slot)
        if (is_staged or level in ("PHB", "NODE")) and cpu.intel:
            times, parts = constants.INTEL_HOST_BRIDGE_FACTOR
            rate = rate * parts / times
        if level == "SYS":
            across += _planned(table, rate)
        else:
            within += _planned(table, rate)
    total_c2c = sum(machine.gpus[position].c2c_gb_s or 0.0 for position in positions)
    return within + min(over_c2c, total_c2c) + min(across, cpu.inter_socket_gb_s)


def _planned(table: tuple[float, ...], rate_gb_s: float) -> float:
    return next((speed for speed in table if speed <= rate_gb_s + 1e-9), rate_gb_s)


def _c2c_gb_s(machine: Machine, nic: MachineNic, positions: Sequence[int]) -> float:
    """The fastest C2C from one of these GPUs to a CPU that the NIC may hang off; 0 where there is none.

    On GB200 trays nvidia-smi has every NIC at SYS from every GPU, also those of a GPU's own Grace: only where the NUMA
    nodes of both are told and differ is the NIC another CPU's.
    """
    return max(
        (
            machine.gpus[position].c2c_gb_s or 0.0
            for position in positions
            if nic.gpu_levels[position] != "SYS"
            or None in (nic.numa_node, machine.gpus[position].numa_node)
            or nic.numa_node == machine.gpus[position].numa_node
        ),
        default=0.0,
    )


def _is_unplaced(machine: Machine, nic: MachineNic, positions: Sequence[int]) -> bool:
    """Whether the CPU of the NIC is unknown."""
    return all(
        nic.gpu_levels[position] == "SYS" and None in (nic.numa_node, machine.gpus[position].numa_node)
        for position in positions
    )


def _unplaced_near(machine: Machine, transport: Transport, positions: Sequence[int]) -> int:
    """How many of those NICs count as near to these GPUs: their part of the machine's, for each CPU has its own."""
    every = range(len(machine.gpus))
    number = sum(
        1 for nic in machine.nics if nic.transport is transport and nic.gpu_levels and _is_unplaced(machine, nic, every)
    )
    return max(1, number * len(positions) // len(machine.gpus)) if number else 0


def rdma_transports(machine: Machine) -> tuple[Transport, ...]:
    """The transports that NCCL can use and that have an active port, InfiniBand first."""
    active = {nic.transport for nic in machine.nics if nic.state is PortState.ACTIVE}
    return tuple(transport for transport in RDMA_TRANSPORTS if transport in active)


def nic_distance(machine: Machine, positions: Sequence[int]) -> int:
    """Sum over the GPUs of how far their nearest active NIC is (PIX 0 … SYS 4); 0 without NICs."""
    active = [nic for nic in machine.nics if nic.state is PortState.ACTIVE and nic.transport in RDMA_TRANSPORTS]
    return sum(min(_distance(nic, position) for nic in active) for position in positions) if active else 0


def _distance(nic: MachineNic, position: int) -> int:
    return _LEVELS.index(nic.gpu_levels[position]) if nic.gpu_levels else len(_LEVELS)
