"""Facts of the sets of GPUs in one machine: what is true of a set in every search, for every job.

A set is a bit mask over positions.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from math import inf

from closeknit.api.nodetopology import Transport
from closeknit.machine.graph import Machine
from closeknit.machine.islands import islands
from closeknit.placement.allreduce import constants
from closeknit.placement.allreduce.bandwidth import (
    ASSUMED_SM,
    NicAccess,
    Nics,
    SetBandwidth,
    dealt,
    most_bandwidth,
    nearest_nics,
    nic_bandwidth,
    nic_distance,
    rdma_transports,
    set_bandwidth,
)
from closeknit.placement.allreduce.calibration import reached
from closeknit.placement.allreduce.paths import Paths, PcieTree, compute_capability, pcie_tree
from closeknit.placement.allreduce.rings import Rings
from closeknit.placement.allreduce.tree_bound import TreeBound
from closeknit.placement.gpusets.experts import Experts
from closeknit.placement.gpusets.masks import mask_of, positions_of, sets_of_count, twins
from closeknit.placement.gpusets.plugin_pick import Picks, scores
from closeknit.placement.gpusets.set_value import ANY, SetChoice, SetCriteria, Value
from closeknit.placement.values.bounded import Bounded, K, V

MANY_LISTED = 1 << 20  # sets in lists, 40 MB


class FactTable(Bounded[K, V]):
    """Facts by key. The first lookup of a fact works it out."""

    __slots__ = ("_fact_of",)

    def __init__(self, fact_of: Callable[[K], V]) -> None:
        """`fact_of` works out the fact of a key."""
        super().__init__()
        self._fact_of = fact_of

    def __missing__(self, key: K) -> V:
        found = self[key] = self._fact_of(key)
        return found


class SetFacts:
    """The facts of the sets of GPUs of one topology class. The key of each table is the mask, and what else counts."""

    def __init__(self, machine: Machine, search: Callable[[Paths], Rings]) -> None:
        """`search` finds the rings of a set."""
        every = range(len(machine.gpus))
        self.machine = machine
        self.every = (1 << len(every)) - 1
        """The set of all GPUs."""
        self.transports = rdma_transports(machine)
        """RDMA transports of its NICs."""
        self.in_bus_order = FactTable[int, tuple[int, ...]](lambda mask: machine.in_bus_order(positions_of(mask)))
        """The positions of a set as local ranks 0, 1, 2, …"""
        self.indexes = FactTable[int, tuple[int, ...]](
            lambda mask: tuple([machine.gpus[position].index for position in self.in_bus_order[mask]])
        )
        """The NVML indexes of a set, as local ranks."""
        self.bandwidth = FactTable(self._bandwidth_of)
        """Ring bandwidth inside a set."""
        self.room_gb_s = FactTable[int, float](lambda mask: most_bandwidth(machine, self._tree, positions_of(mask)))
        """An upper limit of that, without a search."""
        self.nics = FactTable(self._nics_of)
        """(mask, transport, access) -> the NICs nearest to a set, among those that it can be given."""
        self.value = FactTable(self._value_of)
        """(mask, ask) -> what a set is worth to a job; None where it is no candidate."""
        self.fit = FactTable(self._fit_of)
        """How far the NICs of a set are, and over how many NUMA nodes it is spread."""
        self._torn = FactTable[tuple[int, Experts], int](lambda key: key[1].torn(machine, self.in_bus_order[key[0]]))
        self._nearest = FactTable[tuple[Transport, int], list[frozenset[int]]](
            lambda key: [nearest_nics(machine, key[0], (position,), key[1]) for position in every]
        )
        self._likes = FactTable(self._first_alike)
        self._of_count: Bounded[tuple[int, int], tuple[int, ...]] = Bounded()
        self._listed = 0
        self._search = search
        self._trees = TreeBound(machine.links)
        self._bits = {gpu.index: 1 << position for position, gpu in enumerate(machine.gpus)}

    @cached_property
    def picks(self) -> Picks | None:
        """What a device plugin would give out of the machine; None where PCIe levels are unknown."""
        return None if (pairs := scores(self.machine)) is None else Picks(pairs)

    @cached_property
    def _tree(self) -> PcieTree:
        return pcie_tree(self.machine)

    @cached_property
    def _twins(self) -> tuple[tuple[int, ...], ...]:
        return twins(self.machine)

    @cached_property
    def _distances(self) -> list[int]:
        """How far the nearest NIC of each GPU is."""
        return [nic_distance(self.machine, (position,)) for position in range(len(self.machine.gpus))]

    def mask_of_indexes(self, indexes: Iterable[int]) -> int:
        """The set of GPUs given by NVML index, less those that the machine does not have."""
        bits = self._bits
        return sum(bits.get(index, 0) for index in indexes)

    def of_count(self, pool: int, count: int) -> tuple[int, ...]:
        """The sets of `count` GPUs out of the pool, by positions; of sets that differ in twins only the lowest. Of a
        machine that is cut into partitions, those."""
        key = (pool, count)
        found = self._of_count.get(key)
        if found is None:
            if self.machine.partitions is None:
                found = sets_of_count(self.machine, self._twins, pool, count)
            else:
                found = tuple(
                    mask for mask in self.machine.partitions if mask.bit_count() == count and not mask & ~pool
                )
            if self._listed + len(found) > MANY_LISTED:
                self._of_count.clear()
                self._listed = 0
            self._of_count[key] = found
            self._listed += len(found)
        return found

    def alike(self, mask: int) -> int:
        """One mask for all sets of equal rings: behind switches only the number of links of each GPU counts. No two
        pools of a machine that is cut into partitions hold the same of these."""
        return self._likes[mask] if self.machine.switched and self.machine.partitions is None else mask

    def _first_alike(self, mask: int) -> int:
        machine = self.machine
        links = [machine.switch_links[position] for position in positions_of(mask)]
        if not links or not all(links):
            return mask
        like = 0
        for count in sorted(set(links)):
            peers = [position for position, other in enumerate(machine.switch_links) if other == count]
            like |= mask_of(tuple(peers[: links.count(count)]))
        return like

    def _bandwidth_of(self, mask: int) -> SetBandwidth:
        like = self.alike(mask)
        if like != mask:
            return self.bandwidth[like]
        return set_bandwidth(self.machine, self._tree, positions_of(mask), self._search)

    def most_gb_s(self, mask: int) -> float:
        """The ring bandwidth of a set where it is known already; else an upper limit."""
        like = self.alike(mask)
        known = self.bandwidth.get(like)
        return self.room_gb_s[like] if known is None else known.order_gb_s

    def reached_gb_s(self, mask: int) -> float:
        """Bus bandwidth that a job on this set alone gets: what all-reduces reach of its rings."""
        ring = self.bandwidth[mask]
        if not ring.known:
            return ring.order_gb_s
        positions = positions_of(mask)
        return reached(ring.order_gb_s, ring.worst, compute_capability(self.machine, positions), len(positions))

    def tree_gb_s(self, mask: int) -> float:
        """What no way of using the NVLinks of a set can exceed."""
        machine, positions = self.machine, positions_of(mask)
        link_gb_s = constants.nvlink_gb_s(compute_capability(machine, positions) or ASSUMED_SM)
        if machine.switched:
            return link_gb_s * min(machine.switch_links[position] for position in positions)
        return link_gb_s * self._trees.most(mask)

    def _nics_of(self, key: tuple[int, Transport, NicAccess]) -> Nics:
        mask, transport, access = key
        positions, nearest = positions_of(mask), self._nearest[transport, access.taken]
        near = [nearest[position] for position in positions]
        rows = frozenset[int]().union(*near)
        if access.is_dealt:
            rows = dealt(self.machine, transport, near, len(positions))
        return Nics(tuple(sorted(rows)), nic_bandwidth(self.machine, rows, positions))

    def _value_of(self, key: tuple[int, SetCriteria]) -> Value | None:
        mask, ask = key
        if not self.is_candidate(mask, ask):
            return None
        bus = self.reached_gb_s(mask) if ask.alone else self.bandwidth[mask].order_gb_s
        if ask.transport:
            nics = self.nics[mask, ask.transport, ask.nics].gb_s
            bus = bus if nics is None else min(bus, nics)
        block = min((self.bandwidth[mask_of(block)].order_gb_s for block in self.blocks(mask, ask)), default=inf)
        return Value(block, bus, self.tree_gb_s(mask) if ask.alone else ANY.tree_gb_s)

    def is_candidate(self, mask: int, ask: SetCriteria) -> bool:
        """Whether a claim can have the set, and every block of it lies in one NVLink island, where the job asks for
        that."""
        if self.machine.partitions is not None and mask not in self.machine.partitions:
            return False
        if not ask.joined:
            return True
        return all(len(islands(self.machine, block)) == 1 for block in self.blocks(mask, ask) or [positions_of(mask)])

    def blocks(self, mask: int, ask: SetCriteria) -> list[tuple[int, ...]]:
        """The tensor x context groups that local ranks in bus order make of a set; none where a group is one GPU."""
        ranks = self.machine.in_bus_order(positions_of(mask)) if ask.block > 1 else ()
        return [ranks[first : first + ask.block] for first in range(0, len(ranks), ask.block)]

    def loss_gb_s(self, mask: int, free: int, best_of: Callable[[int], float]) -> float:
        """By how much later jobs get slower once a set is taken: among the free GPUs, and among all of the machine.

        `best_of` says how fast they are in a pool.
        """
        return best_of(free) - best_of(free & ~mask) + (best_of(self.every) - best_of(self.every & ~mask))

    def _fit_of(self, mask: int) -> tuple[int, int]:
        positions = positions_of(mask)
        cpus = {self._tree.cpu[position] for position in positions}
        return sum([self._distances[position] for position in positions]), len(cpus)

    def with_torn(self, choice: SetChoice, experts: Experts) -> SetChoice:
        """The choice, with how many expert groups it tears."""
        return choice if experts.ranks == 1 else choice._replace(torn=self._torn[choice.mask, experts])
