"""How the GPUs of one set reach each other: paths, their types, and the links that they share.

The graph is that of the set alone (NCCL sees no GPU outside the job):

    GPU --- NVLink --- GPU                    direct
    GPU --- NVSwitch --- GPU                  every GPU with an active link
    GPU - switch - bridge - CPU === CPU - …   PCIe; one CPU for each NUMA node
"""

from array import array
from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

from closeknit.machine.graph import Machine
from closeknit.placement.allreduce import constants

UNIT = 1000  # capacities are whole MB/s, so that what fits is a question of integers


class PathType(IntEnum):
    """Types of path, nearest first (NCCL's order; its names are stable, its numbers are not)."""

    NVL = 1
    NVB = 2  # over NVLink through one other GPU of the set
    PIX = 4  # one PCIe switch
    PXB = 5  # several
    PHB = 8  # a host bridge
    SYS = 9  # between NUMA nodes


class Path(NamedTuple):
    """One way from a GPU to another: the links it takes, numbered in the set."""

    type: PathType
    links: tuple[int, ...]


class Paths(NamedTuple):
    """All pairs of a set of k GPUs; equal values have equal bandwidth, whichever GPUs they came from."""

    between: tuple[tuple[Path | None, ...], ...]
    """k rows of k; None on the diagonal."""
    capacity: tuple[int, ...]
    """MB/s of each link, in one direction."""
    total: int
    """The most that any of the GPUs can send, in MB/s."""
    sm: int
    intel: bool

    def digest(self) -> bytes:
        """Stands for the value in tables, which it would fill: 16 bytes instead of some 200 for each path."""
        numbers = [len(self.between), len(self.capacity), *self.capacity, self.total, self.sm, self.intel]
        for row in self.between:
            for path in row:
                if path is not None:
                    numbers += (path.type, len(path.links), *path.links)
        return blake2b(array("q", numbers).tobytes(), digest_size=16).digest()


class PcieTree(NamedTuple):
    """Where each GPU hangs: equal number, equal place; None where there is no such bridge that another GPU shares."""

    cpu: tuple[int, ...]
    bridge: tuple[int | None, ...]
    switch: tuple[int | None, ...]


def pcie_tree(machine: Machine) -> PcieTree:
    """The PCIe tree, from the levels between GPUs, or from NUMA nodes where there are none."""
    count = len(machine.gpus)
    if not machine.pcie_levels:
        return PcieTree(tuple(gpu.numa_node or 0 for gpu in machine.gpus), (None,) * count, (None,) * count)

    def shared(levels: tuple[str, ...]) -> tuple[int, ...]:
        """For each GPU the first GPU that it reaches within these levels."""
        group = list(range(count))
        for a in range(count):
            for b in range(a):
                if machine.pcie_levels[a][b] in levels and group[a] != group[b]:
                    low, high = sorted((group[a], group[b]))
                    group = [low if member == high else member for member in group]
        return tuple(group)

    def alone_is_none(group: tuple[int, ...]) -> tuple[int | None, ...]:
        return tuple(member if group.count(member) > 1 else None for member in group)

    switch, bridge = shared(("PIX",)), shared(("PIX", "PXB"))
    below: dict[int, set[int]] = {}
    for here, above in zip(switch, bridge, strict=True):
        below.setdefault(above, set()).add(here)
    chained = tuple(member if len(below[member]) > 1 else None for member in bridge)
    return PcieTree(shared(("PIX", "PXB", "PHB", "NODE")), chained, alone_is_none(switch))


def compute_capability(machine: Machine, positions: Sequence[int]) -> int | None:
    """The lowest compute capability of the set times ten, by which NCCL plans; None where one is unknown."""
    known = [gpu.compute_capability for gpu in (machine.gpus[position] for position in positions)]
    if not known or None in known:
        return None
    return min(major * 10 + minor for major, minor in filter(None, known))


def nvlink_generation(machine: Machine) -> int:
    """Machines with equal ones have the same generation of NVLink, by the compute capability of their GPUs; 0 without
    NVLink, or where that is unknown."""
    has_links = any(machine.switch_links) or any(map(any, machine.links))
    sm = compute_capability(machine, range(len(machine.gpus))) if has_links else None
    return sm // 10 if sm else 0  # 1 to 5 came with capabilities 6 to 10, one each


def paths(machine: Machine, tree: PcieTree, positions: Sequence[int], sm: int) -> Paths:
    """The paths of a set, given ascending, planned for compute capability `sm`."""
    graph = _Graph(machine, tree, tuple(positions), sm)
    between = tuple(tuple(graph.path(a, b) if a != b else None for b in graph.positions) for a in graph.positions)
    return Paths(between, tuple(graph.capacity), graph.total(), sm, graph.cpu.intel)


class _Graph:
    """Working state of `paths`: links are numbered as they are met, so that equal sets give equal numbers."""

    def __init__(self, machine: Machine, tree: PcieTree, positions: tuple[int, ...], sm: int) -> None:
        self.machine = machine
        self.tree = tree
        self.positions = positions
        self.link_mb_s = round(constants.nvlink_gb_s(sm) * UNIT)
        self.cpu = constants.cpu(machine.cpu_model, machine.inter_socket_gb_s)
        self.pcie_mb_s = {
            position: round(
                constants.pcie_gb_s(sm, machine.gpus[position].pcie_generation, machine.gpus[position].pcie_width)
                * UNIT
            )
            for position in positions
        }
        self.capacity: list[int] = []
        self.number: dict[tuple[object, object], int] = {}

    def total(self) -> int:
        return max(
            max(
                self.machine.switch_links[position] * self.link_mb_s
                if self.machine.switched
                else sum(self.machine.links[position][other] for other in self.positions) * self.link_mb_s,
                self.pcie_mb_s[position],
            )
            for position in self.positions
        )

    def link(self, start: object, end: object, capacity: int) -> int:
        number = self.number.get((start, end))
        if number is None:
            number = self.number[start, end] = len(self.capacity)
            self.capacity.append(capacity)
        return number

    def nvlink(self, a: int, b: int) -> int:
        return self.link(a, b, self.machine.links[a][b] * self.link_mb_s)

    def path(self, a: int, b: int) -> Path:
        machine, tree = self.machine, self.tree
        if machine.switched:
            if machine.switch_links[a] and machine.switch_links[b]:
                out = self.link(a, "nvswitch", machine.switch_links[a] * self.link_mb_s)
                return Path(PathType.NVL, (out, self.link("nvswitch", b, machine.switch_links[b] * self.link_mb_s)))
        elif machine.links[a][b]:
            return Path(PathType.NVL, (self.nvlink(a, b),))
        else:
            through = [other for other in self.positions if machine.links[a][other] and machine.links[other][b]]
            if through:
                best = max(through, key=lambda other: min(machine.links[a][other], machine.links[other][b]))
                return Path(PathType.NVB, (self.nvlink(a, best), self.nvlink(best, b)))
        if tree.switch[a] is not None and tree.switch[a] == tree.switch[b]:
            return Path(PathType.PIX, self.climb(a, ("switch",)) + self.descend(b, ("switch",)))
        if tree.bridge[a] is not None and tree.bridge[a] == tree.bridge[b]:
            below = ("switch", "bridge")
            return Path(PathType.PXB, self.climb(a, below) + self.descend(b, below))
        whole = ("switch", "bridge", "cpu")
        if tree.cpu[a] == tree.cpu[b]:
            return Path(PathType.PHB, self.climb(a, whole) + self.descend(b, whole))
        across = self.link(("cpu", tree.cpu[a]), ("cpu", tree.cpu[b]), round(self.cpu.inter_socket_gb_s * UNIT))
        return Path(PathType.SYS, (*self.climb(a, whole), across, *self.descend(b, whole)))

    def steps(self, position: int, kinds: tuple[str, ...]) -> list[object]:
        """The GPU and the places above it, nearest first."""
        places: list[object] = [position]
        for kind in kinds:
            place = getattr(self.tree, kind)[position]
            if place is not None:
                places.append((kind, place))
        return places

    def climb(self, position: int, kinds: tuple[str, ...]) -> tuple[int, ...]:
        places = self.steps(position, kinds)
        capacity = self.pcie_mb_s[position]
        return tuple(self.link(low, high, capacity) for low, high in pairwise(places))

    def descend(self, position: int, kinds: tuple[str, ...]) -> tuple[int, ...]:
        places = self.steps(position, kinds)[::-1]
        capacity = self.pcie_mb_s[position]
        return tuple(self.link(high, low, capacity) for high, low in pairwise(places))
