"""Every choice there is on a small cluster of nodes with four GPUs each, and its merit: an oracle for placement."""

from collections.abc import Iterator, Sequence
from itertools import combinations, groupby, product
from math import ceil, inf, lcm
from operator import itemgetter
from typing import Any

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.machine.graph import Machine, machine
from closeknit.machine.islands import islands
from closeknit.placement.allreduce.bandwidth import nearest_nics, nic_bandwidth, nic_distance, set_bandwidth
from closeknit.placement.allreduce.paths import PcieTree, pcie_tree
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from scenarios.clusters import graph
from scenarios.machines import INTEL_2017, spec, tree

Chosen = tuple[tuple[int, ...], ...]  # positions of each node, in the order of nodes

QUAD_LEVELS = tree([0, 0, 1, 1], [0, 0, 1, 1])
QUAD = machine(  # half a DGX-1V, whose pairs differ
    spec(
        count=4,
        product="Tesla-V100",
        capability="7.0",
        memory_gib=16,
        sockets=[0, 0, 1, 1],
        levels=QUAD_LEVELS,
        pairs="0-1:1 0-3:2 1-2:2 2-3:1",
        pcie=3,
        cpu=INTEL_2017,
        nics=[(["PIX", "PIX", "SYS", "SYS"], 100), (["SYS", "SYS", "PIX", "PIX"], 50)],
    )
)
SHAPES = {"quad": QUAD, "a100x4": graph("a100x4"), "pcie-only": graph("pcie-only")}

# Of NVLink, by compute capability; the L40S have none.
GENERATIONS: dict[tuple[int, int] | None, int | None] = {(7, 0): 2, (8, 0): 3, (8, 9): None}

BEST: dict[tuple[str, tuple[int, ...], int], float] = {}  # of each pool
TREES: dict[tuple[str, tuple[int, ...]], float] = {}
RINGS: dict[tuple[str, tuple[int, ...]], float] = {}  # by class of machine: there are three, and few sets in each
PCIE: dict[str, PcieTree] = {}


def ring(graph: Machine, positions: Sequence[int]) -> float:
    of = graph.topology_class, tuple(sorted(positions))
    if of not in RINGS:
        RINGS[of] = set_bandwidth(graph, pcie(graph), of[1]).order_gb_s
    return RINGS[of]


def pcie(graph: Machine) -> PcieTree:
    if graph.topology_class not in PCIE:
        PCIE[graph.topology_class] = pcie_tree(graph)
    return PCIE[graph.topology_class]


def nics_of(graph: Machine, transport: Transport, positions: Sequence[int]) -> float | None:
    return nic_bandwidth(graph, nearest_nics(graph, transport, positions), positions)


def best_of(graph: Machine, pool: Sequence[int], count: int) -> float:
    of = graph.topology_class, tuple(pool), count
    if of not in BEST:
        BEST[of] = max((ring(graph, chosen) for chosen in subsets(pool) if len(chosen) == count), default=0.0)
    return BEST[of]


def subsets(pool: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(member for number, member in enumerate(pool) if mask >> number & 1) for mask in range(1 << len(pool))]


def tree_bound(graph: Machine, positions: Sequence[int]) -> float:
    """What trees over the NVLinks of a set can carry at most."""
    of = graph.topology_class, tuple(positions)
    if of not in TREES:
        TREES[of] = worst_division(graph, positions)
    return TREES[of]


def worst_division(graph: Machine, positions: Sequence[int]) -> float:
    """The links between the parts of a set for each part beyond the first, in its worst division into parts."""
    found = inf
    for owners in product(range(len(positions)), repeat=len(positions)):
        parts = len(set(owners))
        if parts > 1:
            pairs = combinations(zip(positions, owners, strict=True), 2)
            cut = sum(graph.links[a][b] for (a, mine), (b, other) in pairs if mine != other)
            found = min(found, cut / (parts - 1))
    return found


class Used:
    """The part of a choice that is used, and what of it does not depend on the order of merit."""

    def __init__(self, cluster: Cluster, request: Request, chosen: Chosen, transport: Transport | None) -> None:
        self.cluster = cluster
        self.request = request
        self.views = [cluster.nodes[name] for name in sorted(cluster.nodes)]
        self.nodes = [(number, self.views[number], positions) for number, positions in enumerate(chosen) if positions]
        self.alone = len(self.nodes) == 1
        self.transport = transport
        self.cpu_milli = dict(request.needs).get("cpu", 0)
        levels = range(len(cluster.levels))
        self.counts = tuple(len({domain(view, level) for _, view, _ in self.nodes}) for level in levels)

    def blocks(self, view: NodeView, positions: Sequence[int]) -> list[tuple[int, ...]]:
        ranks = machine_of(view).in_bus_order(positions)
        size = self.request.group
        return [ranks[first : first + size] for first in range(0, len(ranks), size)]

    def splits_a_group(self) -> bool:
        return any(len(positions) % self.request.group for *_, positions in self.nodes)

    def mixes_kinds(self) -> bool:
        return len({machine_of(view).gpus[0].product for _, view, _ in self.nodes}) > 1

    def mixes_generations(self) -> bool:
        """Of NVLink, as told by the compute capability; machines without NVLink are a generation, too."""
        machines = [machine_of(view) for _, view, _ in self.nodes]
        return len({GENERATIONS[each.gpus[0].compute_capability] for each in machines}) > 1

    def tears_experts(self) -> bool:
        """Whether an expert group that a machine would hold is on several nodes."""
        request = self.request
        block = lcm(request.group, request.tensor * request.expert)
        is_kept = request.nvlink is not NvlinkPolicy.IGNORED and block <= 4
        return is_kept and any(len(positions) % block for *_, positions in self.nodes) and not self.alone

    def torn_over_islands(self) -> int:
        """How many expert groups lie on one node each, but on several NVLink islands of it."""
        request = self.request
        span = request.tensor * request.expert
        if request.expert == 1 or request.nvlink is NvlinkPolicy.IGNORED:
            return 0
        if not self.alone and any(len(positions) % lcm(request.group, span) for *_, positions in self.nodes):
            return 0
        torn = 0
        for _, view, positions in self.nodes:
            groups: dict[tuple[int, int], list[int]] = {}
            for rank, position in enumerate(machine_of(view).in_bus_order(positions)):
                groups.setdefault((rank // span, rank % request.tensor), []).append(position)
            torn += sum(len(islands(machine_of(view), group)) > 1 for group in groups.values())
        return torn

    def stranded(self) -> int:
        """How many free GPUs more lack CPUs, if three quarters of a node's CPUs go with its GPUs, in whole ones."""
        found = 0
        for _, view, positions in self.nodes:
            has, left = (view.allocatable or {}).get("cpu", 0), (view.spare or {}).get("cpu", 0)
            each = has * 3 // 4 // 1000 // len(machine_of(view).gpus)
            if self.cpu_milli and each:
                found -= max(0, len(view.free) - left // 1000 // each)
                found += max(0, len(view.free) - len(positions) - (left - self.cpu_milli) // 1000 // each)
        return found

    def leaves_an_island(self) -> bool:
        return any(
            len(islands(machine_of(view), block)) > 1
            for _, view, positions in self.nodes
            for block in (self.blocks(view, positions) if self.request.group > 1 else [positions])
        )

    def slowest_block(self) -> float:
        if self.request.group == 1 or self.request.nvlink is NvlinkPolicy.IGNORED:
            return inf
        return min(
            (
                ring(machine_of(view), block)
                for _, view, positions in self.nodes
                if len(positions) % self.request.group == 0
                for block in self.blocks(view, positions)
            ),
            default=inf,
        )

    def bus(self) -> float:
        """The gang's bandwidth as far as it is known."""
        known = [ring(machine_of(view), positions) for _, view, positions in self.nodes]
        if self.transport:
            nics = [nics_of(machine_of(view), self.transport, positions) for _, view, positions in self.nodes]
            known += [gb_s for gb_s in nics if gb_s is not None]
        return min([*known, *self.crossed()])

    def crossed(self) -> list[float]:
        described = self.cluster.fabric.level_bandwidth_gb_s
        return [
            described[level]
            for level, count in zip(self.cluster.levels, self.counts, strict=True)
            if count > 1 and level in described
        ]

    def sure_bus(self) -> float:
        """What it cannot be below: inside a domain the network is no slower than between domains of its level."""
        if self.request.gpus == 1 or self.alone or self.transport or self.crossed():
            return self.bus()
        outside = [self.cluster.fabric.level_bandwidth_gb_s.get(level) for level in reversed(self.cluster.levels)]
        return min(self.bus(), next((gb_s for gb_s in outside if gb_s is not None), 0.0))

    def has_room(self, view: NodeView) -> bool:
        return view.spare is None or view.spare.get("cpu", 0) >= self.cpu_milli

    def is_allowed(self) -> bool:
        request = self.request
        if not all(self.has_room(view) for _, view, _ in self.nodes):
            return False
        if request.nvlink is NvlinkPolicy.REQUIRED and (self.splits_a_group() or self.leaves_an_island()):
            return False
        if request.nvlink is NvlinkPolicy.REQUIRED and self.mixes_kinds():
            return False
        if request.nvlink is NvlinkPolicy.PREFERRED and request.group <= 4 and self.splits_a_group():
            return False  # the group would fit a machine
        if request.nvlink is NvlinkPolicy.PREFERRED and self.splits_a_group() and self.mixes_generations():
            return False
        if request.gpus_per_node and any(len(positions) != request.gpus_per_node for *_, positions in self.nodes):
            return False
        if request.required_level and self.counts[self.cluster.levels.index(request.required_level)] > 1:
            return False
        return self.sure_bus() >= (request.min_bus_bandwidth_gb_s or 0.0)

    def is_near(self, *, equal: bool) -> bool:
        able = [
            len(view.free) for view in self.views if (self.transport is None or has_rdma(view)) and self.has_room(view)
        ]
        few_hosts = len(self.nodes) <= 2 * ceil(self.request.gpus / max([1, *able]))
        return self.alone or self.request.gpus_per_node is not None or (equal and few_hosts)

    def tree(self) -> float:
        """What no way of using the NVLinks of the one node can exceed, in links."""
        if not self.alone or self.request.gpus == 1:
            return 0.0
        _, view, positions = self.nodes[0]
        return tree_bound(machine_of(view), positions)

    def broken(self) -> tuple[int, int]:
        """Whole nodes broken, and how many holders the nodes lack of four."""
        whole = sum(len(view.free) == 4 != len(positions) for _, view, positions in self.nodes)
        return whole, sum(4 - len(set(view.holders.values())) for _, view, _ in self.nodes)

    def loss(self) -> float:
        """What the best sets of later jobs lose, of what is free now and of all of each machine."""
        loss = 0.0
        for _, view, positions in self.nodes:
            for pool in (view.free, range(4)):
                rest = [index for index in pool if index not in positions]
                for size in (2, 3, 4):
                    loss += best_of(machine_of(view), pool, size) - best_of(machine_of(view), rest, size)
        return loss

    def free_in_domains(self) -> list[int]:
        """Innermost level first, of nodes with room."""
        found = []
        roomy = [view for view in self.views if self.has_room(view)]
        for level in reversed(range(len(self.cluster.levels) - 1)):
            touched = {domain(view, level) for _, view, _ in self.nodes}
            found.append(sum(len(view.free) for view in roomy if domain(view, level) in touched))
        return found

    def fit(self) -> tuple[float, ...]:
        left = sum(len(view.free) - len(positions) for _, view, positions in self.nodes)
        distance = sum(nic_distance(machine_of(view), positions) for _, view, positions in self.nodes)
        cpus = [{pcie(machine_of(view)).cpu[position] for position in p} for _, view, p in self.nodes]
        return left, self.loss(), distance, sum(map(len, cpus))

    def by_numbers(self) -> tuple[Any, ...]:
        """The first parts of its merit, which follow from how many GPUs each node gives."""
        equal = len({len(positions) for *_, positions in self.nodes}) == 1
        return (
            not self.alone,
            self.request.nvlink is NvlinkPolicy.PREFERRED and self.splits_a_group(),
            self.mixes_kinds(),
            not self.alone and self.transport is None,
            self.tears_experts(),
            not self.is_near(equal=equal),
            self.counts,
            not equal,
        )

    def by_speed(self) -> tuple[Any, ...]:
        """The next ones."""
        return -self.slowest_block(), -self.bus(), -self.tree()

    def by_the_rest(self) -> tuple[Any, ...]:
        """The last ones: names, and which GPUs."""
        return (
            self.torn_over_islands(),
            self.stranded(),
            *self.broken(),
            *self.free_in_domains(),
            *self.fit(),
            tuple((number, len(positions)) for number, _, positions in self.nodes),
            tuple(positions for *_, positions in self.nodes),
        )


def merit(cluster: Cluster, request: Request, chosen: Chosen) -> tuple[Any, ...] | None:
    """The merit of one choice with the better transport; None where it breaks a demand with either."""
    merits = [merit_over(cluster, request, chosen, transport) for transport in (Transport.INFINIBAND, None)]
    return min((found for found in merits if found), default=None)


def merit_over(
    cluster: Cluster, request: Request, chosen: Chosen, transport: Transport | None
) -> tuple[Any, ...] | None:
    """The order of merit of docs/decisions/0004-place.md, read off one choice; None where it breaks a demand."""
    used = used_over(cluster, request, chosen, transport)
    if used is None or not used.is_allowed():
        return None
    return (*used.by_numbers(), *used.by_speed(), *used.by_the_rest())


def used_over(cluster: Cluster, request: Request, chosen: Chosen, transport: Transport | None) -> Used | None:
    """None where not all of its nodes have the transport, or none is needed."""
    used = Used(cluster, request, chosen, transport)
    if transport and (used.alone or not all(has_rdma(view) for _, view, _ in used.nodes)):
        return None
    return used


def best_merit(cluster: Cluster, request: Request) -> tuple[Any, ...] | None:
    """`min` of the merits of every choice, each with each transport; None where each breaks a demand.

    Its parts are compared from the left, so that those that come later are worked out only for choices that have the
    least of those before: first, by how many GPUs each node gives, only one choice of each.
    """
    views = [cluster.nodes[name] for name in sorted(cluster.nodes)]
    of_size = [
        [[positions for positions in subsets(view.free) if len(positions) == size] for size in range(5)]
        for view in views
    ]
    numbers = []
    for sizes in product(*(range(len(view.free) + 1) for view in views)):
        if sum(sizes) != request.gpus:
            continue
        sample = tuple(sets[size][0] for sets, size in zip(of_size, sizes, strict=True))
        for transport in (Transport.INFINIBAND, None):
            if (used := used_over(cluster, request, sample, transport)) is not None:
                numbers.append((used.by_numbers(), sizes, transport))
    for least, same in groupby(sorted(numbers, key=itemgetter(0)), key=itemgetter(0)):
        every = (
            Used(cluster, request, chosen, transport)
            for _, sizes, transport in same
            for chosen in product(*(sets[size] for sets, size in zip(of_size, sizes, strict=True)))
        )
        allowed = [(used.by_speed(), used) for used in every if used.is_allowed()]
        if allowed:
            fastest = min(speed for speed, _ in allowed)
            return (*least, *fastest, *min(used.by_the_rest() for speed, used in allowed if speed == fastest))
    return None


def has_rdma(view: NodeView) -> bool:
    return view.rdma is not None and bool(machine_of(view).nics)


def domain(view: NodeView, level: int) -> str:
    """A node without a domain may be anywhere: it has one of its own."""
    return view.domains[level] or f"{view.name} alone"


def machine_of(view: NodeView) -> Machine:
    assert view.machine is not None
    return view.machine


def every_choice(cluster: Cluster, gpus: int) -> Iterator[Chosen]:
    views = [cluster.nodes[name] for name in sorted(cluster.nodes)]
    for chosen in product(*(subsets(view.free) for view in views)):
        if sum(map(len, chosen)) == gpus:
            yield chosen


def chosen_by(placement: Placement, cluster: Cluster) -> Chosen:
    taken = {share.node: tuple(sorted(share.gpus)) for share in placement.shares}
    return tuple(taken.get(name, ()) for name in sorted(cluster.nodes))
