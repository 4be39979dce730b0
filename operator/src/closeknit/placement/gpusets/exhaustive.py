"""Sets of GPUs in one machine: which exist, what each is worth, and which one to take.

Sets are bit masks over positions. The choice is exact: every set of the asked size is either looked at or beaten by its
upper limit, up to subsets.MANY_SETS of them, which covers every machine of 16 GPUs.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import combinations
from math import comb, inf
from operator import attrgetter

from closeknit.api.nodetopology import Transport
from closeknit.machine.graph import Machine
from closeknit.machine.islands import islands
from closeknit.placement.allreduce import constants
from closeknit.placement.allreduce.bandwidth import (
    ASSUMED_SM,
    EVERY_NIC,
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
from closeknit.placement.gpusets.criteria import ANY, Measure, SetChoice, SetCriteria, Value, rank, reaches
from closeknit.placement.gpusets.experts import NO_EXPERTS, Experts
from closeknit.placement.gpusets.masks import mask_of, positions_of, sets_of_count, twins
from closeknit.placement.gpusets.plugin_pick import MOST_GPUS, Picks, scores
from closeknit.placement.values.bounded import Bounded

MANY_SEARCHES = 500  # ring searches, at up to 10 ms each; 8 over 4 is 70, 16 over 2 is 120
LEARNED_GPUS = 8  # every pool of so many is learned: 256 at most
KEPT_SIZES = (2, 3, 4, 5)  # of later jobs on part of a machine
MANY_LISTED = 1 << 20  # sets in lists, 40 MB


class ExhaustiveSets:
    """The sets of one topology class. What was worked out once is remembered, which never changes an answer."""

    is_rough = False
    """Whether not all of it is searched: unsearched.py, best_first.py."""

    def __init__(self, machine: Machine, search: Callable[[Paths], Rings]) -> None:
        """`search` finds the rings of a set."""
        self.machine = machine
        self._search = search
        self.every = (1 << len(machine.gpus)) - 1
        self.transports = rdma_transports(machine)
        self._bits = {gpu.index: 1 << position for position, gpu in enumerate(machine.gpus)}
        self._bandwidths: Bounded[int, SetBandwidth] = Bounded()
        self._mosts: Bounded[int, float] = Bounded()
        self._values: Bounded[tuple[int, SetCriteria], Value | None] = Bounded()
        self._of_count: Bounded[tuple[int, int], tuple[int, ...]] = Bounded()
        self._best_rings: Bounded[tuple[int, int], float] = Bounded()
        self._best_values: Bounded[tuple[int, SetCriteria, Value, Measure], Value | None] = Bounded()
        self._choices: Bounded[tuple[int, int, SetCriteria, Value, Experts], SetChoice | None] = Bounded()
        self._torn: Bounded[tuple[int, Experts], int] = Bounded()
        self._ranked: Bounded[tuple[int, int], tuple[SetChoice, ...]] = Bounded()
        self._likes: Bounded[int, int] = Bounded()
        self._kept_rings: Bounded[int, float] = Bounded()
        self._fits: Bounded[int, tuple[int, int]] = Bounded()
        self._indexes: Bounded[int, tuple[int, ...]] = Bounded()
        self._orders: Bounded[int, tuple[int, ...]] = Bounded()
        self._nics: Bounded[tuple[int, Transport, NicAccess], Nics] = Bounded()
        self._near: Bounded[tuple[Transport, int], list[frozenset[int]]] = Bounded()
        self._foreseen: Bounded[tuple[int, tuple[int, ...], int, SetCriteria], bool] = Bounded()
        self._listed = 0
        self._trees = TreeBound(machine.links)
        self._is_small = len(machine.gpus) <= LEARNED_GPUS

    @cached_property
    def tree(self) -> PcieTree:
        """Where each GPU hangs."""
        return pcie_tree(self.machine)

    @cached_property
    def picks(self) -> Picks | None:
        """What a device plugin would give out of it; None where that cannot be told."""
        return None if (pairs := scores(self.machine)) is None else Picks(pairs)

    @cached_property
    def _twins(self) -> tuple[tuple[int, ...], ...]:
        return twins(self.machine)

    @cached_property
    def _far(self) -> list[int]:
        """Of each GPU how far its nearest NIC is."""
        return [nic_distance(self.machine, (position,)) for position in range(len(self.machine.gpus))]

    def is_predicted(self, *, alone: bool) -> bool:  # noqa: ARG002 - of all sets alike
        """Whether anything is said of the bandwidth of a set, which is all of a job or a share of it."""
        return not self.is_rough

    def mask_of_indexes(self, indexes: Iterable[int]) -> int:
        """The bit mask of GPUs given by NVML index; those that the machine does not have are left out."""
        bits = self._bits
        return sum(bits.get(index, 0) for index in indexes)

    def bandwidth(self, mask: int) -> SetBandwidth:
        """Ring bandwidth inside a set."""
        mask = self._alike(mask)
        found = self._bandwidths.get(mask)
        if found is None:
            found = self._bandwidths[mask] = set_bandwidth(self.machine, self.tree, positions_of(mask), self._search)
        return found

    def reached(self, mask: int) -> float:
        """Bus bandwidth that a job on this set alone gets, in GB/s: what all-reduces reach of its rings."""
        ring = self.bandwidth(mask)
        if not ring.known:
            return ring.order_gb_s
        positions = positions_of(mask)
        return reached(ring.order_gb_s, ring.worst, compute_capability(self.machine, positions), len(positions))

    def all_rings(self) -> Iterator[SetBandwidth]:
        """Ring bandwidth of every set, the largest first; of sets that are alike that of one."""
        seen = set[int]()
        for size in range(len(self.machine.gpus), 1, -1):
            for mask in self.of_count(self.every, size):
                like = self._alike(mask)
                if like not in seen:
                    seen.add(like)
                    yield self.bandwidth(like)

    def nics(self, mask: int, transport: Transport, access: NicAccess = EVERY_NIC) -> Nics:
        """The NICs nearest to a set, of those that it can be given."""
        key = (mask, transport, access)
        found = self._nics.get(key)
        if found is None:
            positions = positions_of(mask)
            all_near = self._near.get((transport, access.taken))
            if all_near is None:
                every = range(len(self.machine.gpus))
                all_near = [nearest_nics(self.machine, transport, (position,), access.taken) for position in every]
                self._near[transport, access.taken] = all_near
            near = [all_near[position] for position in positions]
            rows = frozenset[int]().union(*near)
            if access.is_dealt:
                rows = dealt(self.machine, transport, near, len(positions))
            found = self._nics[key] = Nics(tuple(sorted(rows)), nic_bandwidth(self.machine, rows, positions))
        return found

    def in_bus_order(self, mask: int) -> tuple[int, ...]:
        """The positions of a set as local ranks 0, 1, 2, …"""
        found = self._orders.get(mask)
        if found is None:
            found = self._orders[mask] = self.machine.in_bus_order(positions_of(mask))
        return found

    def indexes(self, mask: int) -> tuple[int, ...]:
        """The NVML indexes of a set, as local ranks."""
        found = self._indexes.get(mask)
        if found is None:
            found = tuple(self.machine.gpus[position].index for position in self.in_bus_order(mask))
            self._indexes[mask] = found
        return found

    def learn(self) -> bool:
        """Works out what the jobs of an empty machine ask, so that none of them waits for it. Whether there is more."""
        for transport in (None, *self.transports):
            for gpus in range(1, len(self.machine.gpus) + 1):
                ask = SetCriteria(gpus, transport=transport, alone=transport is None)
                self.choose(self.every, self.every, ask, ANY)
        for pool in range(1, self.every + 1) if self._is_small else ():  # every part of a pool comes before it
            self._most(pool)
            self.in_bus_order(pool)
            self.indexes(pool)
            for gpus in range(1, pool.bit_count() + 1):
                self._by_rank(pool, gpus)
            for transport in (None, *self.transports):
                self._learn_best(pool, transport)
        return False

    def _learn_best(self, pool: int, transport: Transport | None) -> None:
        """The best of a pool whose parts are known: that of all of it, or of a part that is one smaller."""
        count, alone = pool.bit_count(), transport is None
        ask = SetCriteria(count, transport=transport, alone=alone)
        self._best_values[pool, ask, ANY, Measure.BUS] = self.value(pool, ask)
        parts = [pool & ~(1 << position) for position in positions_of(pool)]
        for gpus in range(1, count):
            ask = SetCriteria(gpus, transport=transport, alone=alone)
            found = (self._best(part, ask, ANY, Measure.BUS) for part in parts)
            self._best_values[pool, ask, ANY, Measure.BUS] = max(filter(None, found), key=attrgetter("bus_gb_s"))

    def value(self, mask: int, ask: SetCriteria) -> Value | None:
        """What a set is worth; None where it is no candidate: a block would leave its NVLink island."""
        key = (mask, ask)
        try:
            return self._values[key]
        except KeyError:
            found = self._values[key] = self._value(mask, ask)
            return found

    def best(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> float | None:
        """The best slowest block, bus bandwidth, … among sets out of `pool` that reach the floor; None where there is
        no such set."""
        return best[by] if (best := self._best(pool, ask, floor, by)) else None

    def is_indifferent(self, pool: int, ask: SetCriteria) -> bool:
        """Whether every set out of `pool` is a candidate and all are worth the same."""
        ask = ask._replace(alone=False)  # what trees could use beyond the rings is not worth waiting for
        values = {self.value(mask, ask) for mask in self.of_count(pool, ask.gpus)}
        return len(values) == 1 and None not in values

    def is_foreseen(self, free: int, guessed: tuple[int, ...], unnamed: int, ask: SetCriteria) -> bool:
        """Whether whatever NVIDIA's device plugin gives is a candidate and worth the same: out of the free GPUs, of
        which so many have holders that nobody can name, where these shares may be of others that are joined as well."""
        if self.picks is None or self.is_rough or len(self.machine.gpus) > MOST_GPUS:
            return False
        key = (free, guessed, unnamed, ask)
        found = self._foreseen.get(key)
        if found is None:
            found = self._foreseen[key] = self._is_foreseen(free, guessed, unnamed, ask)
        return found

    def _is_foreseen(self, free: int, guessed: tuple[int, ...], unnamed: int, ask: SetCriteria) -> bool:
        values = set[Value | None]()
        for pool in self._pools(free, guessed, unnamed):
            picked = self.picks.pick(pool, ask.gpus) if self.picks else None
            if picked is None:
                return False
            values.update(self.value(mask, ask) for mask in picked.all)
            if len(values) > 1 or None in values:
                return False
        return bool(values)

    def _pools(self, free: int, guessed: tuple[int, ...], unnamed: int) -> Iterator[int]:
        """All that may be free."""
        found = {free | sum(guessed)}
        for share in guessed:
            alike = self._joined_like(share, free | sum(guessed))
            found = {pool & ~other for pool in found for other in alike if not other & ~pool}
        if not unnamed:
            return iter(found)
        return iter({left for pool in found for left in _parts(pool, pool.bit_count() - unnamed)})

    def _joined_like(self, mask: int, pool: int) -> list[int]:
        """The sets out of the pool that are joined as well as this one: whoever was foreseen to have it has one of
        them, for all that the plugin could give him was worth the same."""
        ask = SetCriteria(mask.bit_count())
        return [other for other in _parts(pool, ask.gpus) if self.value(other, ask) == self.value(mask, ask)]

    def choose(
        self, pool: int, free: int, ask: SetCriteria, floor: Value, experts: Experts = NO_EXPERTS
    ) -> SetChoice | None:
        """The set out of `pool` to take from the free GPUs: it reaches the floor, tears the fewest expert groups,
        hurts later jobs least, lies nearest to NICs and in the fewest NUMA nodes, and has the lowest indexes, in this
        order."""
        if pool == free and self._is_small:
            found = self._by_rank(pool, ask.gpus)
            able = (choice for choice in found if reaches(self.value(choice.mask, ask), floor))
            if experts.ranks == 1:
                return next(able, None)
            return min((self._with(experts, choice) for choice in able), key=attrgetter("torn"), default=None)
        key = (pool, free, ask, floor, experts)
        if key not in self._choices:
            choices = (
                self._with(experts, self.judge(mask, free))
                for mask in self.of_count(pool, ask.gpus)
                if self._most(mask) >= floor.bus_gb_s and reaches(self.value(mask, ask), floor)
            )
            self._choices[key] = min(choices, key=rank, default=None)
        return self._choices[key]

    def _with(self, experts: Experts, choice: SetChoice) -> SetChoice:
        """A choice that says how many expert groups it tears."""
        if experts.ranks == 1:
            return choice
        key = (choice.mask, experts)
        found = self._torn.get(key)
        if found is None:
            found = self._torn[key] = experts.torn(self.machine, self.in_bus_order(choice.mask))
        return choice._replace(torn=found)

    def _by_rank(self, pool: int, count: int) -> tuple[SetChoice, ...]:
        """The sets of `count` GPUs out of the pool, where all of it is free, the one to take first."""
        key = (pool, count)
        found = self._ranked.get(key)
        if found is None:
            choices = [self.judge(mask, pool) for mask in self.of_count(pool, count)]
            found = self._ranked[key] = tuple(sorted(choices, key=rank))
        return found

    def judge(self, mask: int, free: int) -> SetChoice:
        """What it costs to take this set from the free GPUs."""
        return SetChoice(mask, self._loss(mask, free), *self._fit(mask))

    def _loss(self, mask: int, free: int) -> float:
        return self._kept(free) - self._kept(free & ~mask) + (self._kept(self.every) - self._kept(self.every & ~mask))

    def _kept(self, pool: int) -> float:
        """Bandwidth of the best sets of KEPT_SIZES in a pool, summed."""
        found = self._kept_rings.get(pool)
        if found is None:
            found = self._kept_rings[pool] = sum(self.best_ring(pool, size) for size in KEPT_SIZES)
        return found

    def _fit(self, mask: int) -> tuple[int, int]:
        """How far the NICs of a set are, and how many NUMA nodes it is spread over."""
        found = self._fits.get(mask)
        if found is None:
            positions = positions_of(mask)
            cpus = {self.tree.cpu[position] for position in positions}
            found = self._fits[mask] = sum([self._far[position] for position in positions]), len(cpus)
        return found

    def best_ring(self, pool: int, count: int) -> float:
        """Bandwidth of the best set of `count` GPUs in the pool; 0 where it has fewer.

        On a large machine without switches the NVLinks inside the pool stand for it: searching every set would take a
        minute, and what is left for later jobs only decides between sets of equal bandwidth.
        """
        if pool.bit_count() < count:
            return 0.0
        key = (self._alike(pool), count)
        if key not in self._best_rings:
            self._best_rings[key] = self._best_ring(*key)
        return self._best_rings[key]

    def _best_ring(self, pool: int, count: int) -> float:
        machine = self.machine
        if not machine.switched and comb(len(machine.gpus), count) > MANY_SEARCHES:
            positions = positions_of(pool)
            return float(sum(machine.links[a][b] for a in positions for b in positions) // 2)
        # No part of the machine does better than the whole.
        most = inf if pool == self._alike(self.every) else self.best_ring(self.every, count)
        best = 0.0
        for mask in sorted(self.of_count(pool, count), key=self._most, reverse=True):
            if best >= min(most, self._most(mask)):
                break
            best = max(best, self.bandwidth(mask).order_gb_s)
        return best

    def of_count(self, pool: int, count: int) -> tuple[int, ...]:
        """The sets of `count` GPUs out of the pool, by positions; of sets that differ in twins only the lowest."""
        key = (pool, count)
        found = self._of_count.get(key)
        if found is None:
            found = sets_of_count(self.machine, self._twins, pool, count)
            if self._listed + len(found) > MANY_LISTED:
                self._of_count.clear()
                self._listed = 0
            self._of_count[key] = found
            self._listed += len(found)
        return found

    def _alike(self, mask: int) -> int:
        """One mask for all sets of equal rings: behind switches only the number of links of each GPU counts."""
        if not self.machine.switched:
            return mask
        found = self._likes.get(mask)
        if found is None:
            found = self._likes[mask] = self._first_alike(mask)
        return found

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

    def _most(self, mask: int) -> float:
        mask = self._alike(mask)
        known = self._bandwidths.get(mask)
        if known is not None:
            return known.order_gb_s
        found = self._mosts.get(mask)
        if found is None:
            found = self._mosts[mask] = most_bandwidth(self.machine, self.tree, positions_of(mask))
        return found

    def blocks(self, mask: int, ask: SetCriteria) -> list[tuple[int, ...]]:
        """The tensor x context groups that local ranks in bus order make of a set."""
        ranks = self.machine.in_bus_order(positions_of(mask))
        return [ranks[first : first + ask.block] for first in range(0, len(ranks), ask.block)]

    def _is_candidate(self, mask: int, ask: SetCriteria) -> bool:
        """Whether no block leaves its NVLink island, where that is asked."""
        if not ask.joined:
            return True
        blocks = self.blocks(mask, ask) if ask.block > 1 else [positions_of(mask)]
        return all(len(islands(self.machine, block)) == 1 for block in blocks)

    def _value(self, mask: int, ask: SetCriteria) -> Value | None:
        if not self._is_candidate(mask, ask):
            return None
        blocks = self.blocks(mask, ask) if ask.block > 1 else []
        bus = self.reached(mask) if ask.alone else self.bandwidth(mask).order_gb_s
        if ask.transport:
            nics = self.nics(mask, ask.transport, ask.nics).gb_s
            bus = bus if nics is None else min(bus, nics)
        block = min((self.bandwidth(mask_of(block)).order_gb_s for block in blocks), default=inf)
        return Value(block, bus, self._tree(mask) if ask.alone else ANY.tree_gb_s)

    def _tree(self, mask: int) -> float:
        """What no way of using the NVLinks of a set can exceed, in GB/s."""
        machine, positions = self.machine, positions_of(mask)
        link_gb_s = constants.nvlink_gb_s(compute_capability(machine, positions) or ASSUMED_SM)
        if machine.switched:
            return link_gb_s * min(machine.switch_links[position] for position in positions)
        return link_gb_s * self._trees.most(mask)

    def _best(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> Value | None:
        if ask.block == 1:  # and its slowest block is as fast as any
            if floor.block_gb_s != ANY.block_gb_s:
                floor = floor._replace(block_gb_s=ANY.block_gb_s)
            by = Measure.BUS if by is Measure.BLOCK else by
        key = (pool, ask, floor, by)
        try:
            return self._best_values[key]
        except KeyError:
            found = self._best_values[key] = self._searched(pool, ask, floor, by)
            return found

    def _searched(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> Value | None:
        best: Value | None = None
        most = self._most if by is Measure.BUS else lambda _: inf
        for mask in sorted(self.of_count(pool, ask.gpus), key=most, reverse=True):
            if best is not None and best[by] >= most(mask):
                break
            if self._most(mask) < floor.bus_gb_s:
                continue
            value = self.value(mask, ask)
            if reaches(value, floor) and value and (best is None or value[by] > best[by]):
                best = value
        return best


def _parts(pool: int, count: int) -> Iterator[int]:
    """All sets of so many GPUs out of a pool."""
    return (mask_of(chosen) for chosen in combinations(positions_of(pool), count))
