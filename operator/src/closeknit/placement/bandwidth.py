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
from closeknit.placement import speeds
from closeknit.placement.paths import Paths, PathType, PcieTree, compute_capability, paths
from closeknit.placement.rings import Rings, most, rings

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
    """
    nics = [machine.nics[row] for row in sorted(rows)]
    sm = compute_capability(machine, positions)
    if not nics or sm is None:
        return None
    cpu = speeds.cpu(machine.cpu_model, machine.inter_socket_gb_s)
    table = speeds.network_speeds(sm)
    within, across = 0.0, 0.0
    for nic in nics:
        if nic.rate_gb_s is None or not nic.gpu_levels:
            return None
        near = min(positions, key=lambda position: _LEVELS.index(nic.gpu_levels[position]))
        slot = speeds.pcie_gb_s(sm, machine.gpus[near].pcie_generation, machine.gpus[near].pcie_width)
        level = nic.gpu_levels[near]
        is_staged = not machine.gpu_direct and level in ("PIX", "PXB")
        rate = min(nic.rate_gb_s, slot / 2 if is_staged else slot)
        if (is_staged or level in ("PHB", "NODE")) and cpu.intel:
            times, parts = speeds.INTEL_HOST_BRIDGE_FACTOR
            rate = rate * parts / times
        planned = next((speed for speed in table if speed <= rate + 1e-9), rate)
        if level == "SYS":
            across += planned
        else:
            within += planned
    return within + min(across, cpu.inter_socket_gb_s)


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
