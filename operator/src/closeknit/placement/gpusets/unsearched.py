"""One set of each size, for a machine that is too dear to search. Its bandwidth is not predicted."""

from math import inf

from closeknit.api.nodetopology import Transport
from closeknit.machine.islands import islands, joined
from closeknit.placement.allreduce.bandwidth import NicAccess, Nics, active_nics, dealt
from closeknit.placement.allreduce.paths import UNIT
from closeknit.placement.allreduce.rings import NO_RING
from closeknit.placement.gpusets.experts import NO_EXPERTS, Experts
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.gpusets.set_facts import FactTable, SetFacts
from closeknit.placement.gpusets.set_value import ANY, Measure, SetChoice, SetCriteria, Value, reaches


class UnsearchedSets:
    """The sets of a topology class that is not searched.

    Each size has one set: the lowest GPUs, those of the largest NVLink island first. Where these would tear a group, it
    is the first set that tears none. It is worth what NCCL assumes where it finds no ring, so that every machine that
    is searched comes before it.
    """

    def __init__(self, facts: SetFacts) -> None:
        self.facts = facts
        self._orders = FactTable(self._order_of)
        self._sets = FactTable(self._set_of)
        self._nics = FactTable(self._nics_of)

    def learn(self) -> bool:
        """Nothing to work out."""
        return False

    def bandwidth(self, mask: int, *, alone: bool) -> None:
        """Never predicted."""

    def nics(self, mask: int, transport: Transport, access: NicAccess) -> Nics:
        """Every active NIC that a set can be given, near or not."""
        return self._nics[mask.bit_count() if access.is_dealt else 0, transport, access]

    def _nics_of(self, key: tuple[int, Transport, NicAccess]) -> Nics:
        gpus, transport, access = key
        rows = frozenset(active_nics(self.facts.machine, transport, access.taken))
        if access.is_dealt:
            rows = dealt(self.facts.machine, transport, [rows], gpus)
        return Nics(tuple(sorted(rows)), None)

    def best(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> float | None:
        """One measure of the set for the ask; None where it does not reach the floor."""
        mask = self._sets[pool, ask]
        value = None if mask is None else self._value(mask, ask)
        return value[by] if value and reaches(value, floor) else None

    def choose(
        self, pool: int, _free: int, ask: SetCriteria, floor: Value, experts: Experts = NO_EXPERTS
    ) -> SetChoice | None:
        """The set for the ask, if it reaches the floor. It costs nothing: there is no other to compare it with."""
        mask = self._sets[pool, ask]
        if mask is None or not reaches(self._value(mask, ask), floor):
            return None
        return self.facts.with_torn(SetChoice(mask, 0.0, 0, 1), experts)

    def is_indifferent(self, pool: int, ask: SetCriteria) -> bool:
        """Whether there is nothing to choose, or one GPU is asked for: how any two are joined is unknown."""
        return self.facts.is_candidate(pool, ask) if ask.gpus == pool.bit_count() else ask.gpus == 1

    def is_foreseen(self, free: int, guessed: tuple[int, ...], unnamed: int, ask: SetCriteria) -> bool:  # noqa: ARG002 - of all alike
        """Never."""
        return False

    def _value(self, mask: int, ask: SetCriteria) -> Value:
        """What a candidate is worth."""
        gb_s = inf if mask.bit_count() < 2 else NO_RING / UNIT
        return Value(gb_s if ask.block > 1 else inf, gb_s, self.facts.tree_gb_s(mask) if ask.alone else ANY.tree_gb_s)

    def _set_of(self, question: tuple[int, SetCriteria]) -> int | None:
        """The set for the ask; None where the pool has too few GPUs, or too few that keep to islands."""
        pool, ask = question
        if ask.gpus > pool.bit_count():
            return None
        if self.facts.machine.partitions is not None:
            partitions = self.facts.of_count(pool, ask.gpus)
            return next((mask for mask in partitions if self.facts.is_candidate(mask, ask)), None)
        lowest = mask_of(self._orders[pool][: ask.gpus])
        return lowest if self.facts.is_candidate(lowest, ask) else self._joined(pool, ask)

    def _joined(self, pool: int, ask: SetCriteria) -> int | None:
        """A set whose every block is joined, where there is one.

        Blocks are consecutive in bus order. The block that ends first is taken, again and again: whatever else would
        be taken ends no sooner, and leaves no more to those that follow.
        """
        block = ask.block if ask.block > 1 else ask.gpus
        taken, window = 0, list[int]()
        for position in self.facts.in_bus_order[pool]:
            window.append(position)
            part = next(part for part in islands(self.facts.machine, window) if position in part)
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
            grown += [other for other in part if other not in grown and joined(self.facts.machine, reached, other)]
        return grown[:count]

    def _order_of(self, pool: int) -> tuple[int, ...]:
        """The GPUs of a pool, those of the largest NVLink island first."""
        parts = sorted(islands(self.facts.machine, positions_of(pool)), key=len, reverse=True)
        return tuple(position for part in parts for position in part)
