"""The sets of a machine that is too dear to search: one set of each size, and nothing said of its bandwidth."""

from collections.abc import Callable

from closeknit.api.nodetopology import Transport
from closeknit.machine.graph import Machine
from closeknit.machine.islands import islands, joined
from closeknit.placement.allreduce.bandwidth import ALONE, EVERY_NIC, NicAccess, Nics, SetBandwidth, active_nics, dealt
from closeknit.placement.allreduce.paths import UNIT, Paths, PathType
from closeknit.placement.allreduce.rings import NO_RING, Rings
from closeknit.placement.gpusets.criteria import Measure, SetChoice, SetCriteria, Value, reaches
from closeknit.placement.gpusets.exhaustive import ExhaustiveSets
from closeknit.placement.gpusets.experts import NO_EXPERTS, Experts
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.values.bounded import Bounded

_UNKNOWN = SetBandwidth(NO_RING / UNIT, known=False, worst=PathType.SYS)


class UnsearchedSets(ExhaustiveSets):
    """Of each size the lowest GPUs are the set, those of the largest NVLink island first; where those would tear a
    group, the first ones that tear none. Worth what NCCL assumes where it finds no ring, so that every machine that
    could be searched comes before it."""

    is_rough = True

    def __init__(self, machine: Machine, search: Callable[[Paths], Rings]) -> None:
        """`search` is not asked."""
        super().__init__(machine, search)
        self._grown: Bounded[int, tuple[int, ...]] = Bounded()
        self._taken: Bounded[tuple[int, SetCriteria], int | None] = Bounded()

    def learn(self) -> bool:
        """There is nothing to learn."""
        return False

    def bandwidth(self, mask: int) -> SetBandwidth:
        """Unknown."""
        return ALONE if mask.bit_count() < 2 else _UNKNOWN

    def nics(self, mask: int, transport: Transport, access: NicAccess = EVERY_NIC) -> Nics:
        """Every active NIC that it can be given: which are near is not looked for."""
        key = (mask if access.is_dealt else self.every, transport, access)
        found = self._nics.get(key)
        if found is None:
            rows = frozenset(active_nics(self.machine, transport, access.taken))
            if access.is_dealt:
                rows = dealt(self.machine, transport, [rows], mask.bit_count())
            found = self._nics[key] = Nics(tuple(sorted(rows)), None)
        return found

    def of_count(self, pool: int, count: int) -> tuple[int, ...]:
        """The one set of `count` GPUs out of the pool, or none."""
        order = self._order(pool)
        return (mask_of(order[:count]),) if count <= len(order) else ()

    def choose(
        self, pool: int, free: int, ask: SetCriteria, floor: Value, experts: Experts = NO_EXPERTS
    ) -> SetChoice | None:
        """The one set for the ask, if it reaches the floor."""
        mask = self._one(pool, ask)
        if mask is None or not reaches(self.value(mask, ask), floor):
            return None
        return self._with(experts, self.judge(mask, free))

    def judge(self, mask: int, free: int) -> SetChoice:  # noqa: ARG002 - whatever else is free
        """As if it cost nothing: there is no other to compare with."""
        return SetChoice(mask, 0.0, 0, 1)

    def is_indifferent(self, pool: int, ask: SetCriteria) -> bool:
        """Only where there is nothing to choose, or of GPUs one by one: nothing is known of how any two are joined."""
        if ask.gpus == pool.bit_count():
            return self.value(pool, ask) is not None
        return ask.gpus == 1

    def _searched(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> Value | None:  # noqa: ARG002 - of one set
        mask = self._one(pool, ask)
        value = None if mask is None else self.value(mask, ask)
        return value if reaches(value, floor) else None

    def _one(self, pool: int, ask: SetCriteria) -> int | None:
        """The set for the ask; None where the pool has too few GPUs, or too few that keep to islands."""
        key = (pool, ask)
        if key not in self._taken:
            lowest = next(iter(self.of_count(pool, ask.gpus)), None)
            is_wrong = lowest is not None and not self._is_candidate(lowest, ask)
            self._taken[key] = self._joined(pool, ask) if is_wrong else lowest
        return self._taken[key]

    def _joined(self, pool: int, ask: SetCriteria) -> int | None:
        """A set whose every block is joined, where there is one.

        Blocks are consecutive in bus order. The block that ends first is taken, again and again: whatever else would
        be taken ends no sooner, and leaves no more to those that follow.
        """
        block = ask.block if ask.block > 1 else ask.gpus
        taken, window = 0, list[int]()
        for position in self.in_bus_order(pool):
            window.append(position)
            part = next(part for part in islands(self.machine, window) if position in part)
            if len(part) >= block:
                taken |= mask_of(self._grow(position, part, block))
                window.clear()
            if taken.bit_count() == ask.gpus:
                return taken
        return None

    def _grow(self, first: int, part: tuple[int, ...], count: int) -> list[int]:
        """So many GPUs of an island, each joined to one before it."""
        grown = [first]
        for reached in grown:  # grows while it is walked
            grown += [other for other in part if other not in grown and joined(self.machine, reached, other)]
        return grown[:count]

    def _order(self, pool: int) -> tuple[int, ...]:
        found = self._grown.get(pool)
        if found is None:
            parts = sorted(islands(self.machine, positions_of(pool)), key=len, reverse=True)
            found = self._grown[pool] = tuple(position for part in parts for position in part)
        return found
