"""The exact search of a machine's sets: each is looked at, or its upper limit is below the best one.

It is exact up to masks.MANY_SETS sets of one size, which covers every machine of 16 GPUs.
"""

from collections.abc import Iterator
from itertools import combinations
from math import comb, inf
from operator import attrgetter

from closeknit.api.nodetopology import Transport
from closeknit.placement.allreduce.bandwidth import NicAccess, Nics, SetBandwidth
from closeknit.placement.gpusets.experts import NO_EXPERTS, Experts
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.gpusets.plugin_pick import MOST_GPUS
from closeknit.placement.gpusets.set_facts import FactTable, SetFacts
from closeknit.placement.gpusets.set_value import ANY, Measure, SetChoice, SetCriteria, Value, rank, reaches, unblocked

MANY_SEARCHES = 500  # ring searches, at up to 10 ms each; 8 over 4 is 70, 16 over 2 is 120
LEARNED_GPUS = 8  # every pool of so many is learned: 256 at most
LATER_SIZES = (2, 3, 4, 5)  # GPUs of later jobs on part of a machine


class ExhaustiveSets:
    """The sets of a topology class that is searched whole."""

    def __init__(self, facts: SetFacts) -> None:
        self.facts = facts
        self._is_small = len(facts.machine.gpus) <= LEARNED_GPUS
        self._best = FactTable(self._best_of)
        self._choices = FactTable(self._choice_of)
        self._ranked = FactTable(self._ranked_of)
        self._later_gb_s = FactTable[int, float](lambda pool: sum(self._best_ring(pool, size) for size in LATER_SIZES))
        """Ring bandwidth that jobs of LATER_SIZES can have in a pool, summed."""
        self._best_rings = FactTable(self._best_ring_out_of)
        self._foreseen = FactTable(self._is_foreseen)

    def bandwidth(self, mask: int, *, alone: bool) -> SetBandwidth:  # noqa: ARG002 - of all sets alike
        """Ring bandwidth inside a set."""
        return self.facts.bandwidth[mask]

    def nics(self, mask: int, transport: Transport, access: NicAccess) -> Nics:
        """The NICs nearest to a set."""
        return self.facts.nics[mask, transport, access]

    def learn(self) -> bool:
        """Works out all that jobs ask of an empty machine, and of every pool of a small one."""
        facts = self.facts
        for transport in (None, *facts.transports):
            for gpus in range(1, len(facts.machine.gpus) + 1):
                ask = SetCriteria(gpus, transport=transport, alone=transport is None)
                self.choose(facts.every, facts.every, ask, ANY)
        for pool in range(1, facts.every + 1) if self._is_small else ():  # every part of a pool comes before it
            facts.most_gb_s(pool)
            facts.indexes[pool]
            for gpus in range(1, pool.bit_count() + 1):
                self._ranked[pool, gpus]
            for transport in (None, *facts.transports):
                self._learn_best(pool, transport)
        return False

    def _learn_best(self, pool: int, transport: Transport | None) -> None:
        """Learns the best sets of a pool whose parts are known: all of it, or the best of a part with one GPU less."""
        count, alone = pool.bit_count(), transport is None
        ask = SetCriteria(count, transport=transport, alone=alone)
        self._best[pool, ask, ANY, Measure.BUS] = self.facts.value[pool, ask]
        parts = [pool & ~(1 << position) for position in positions_of(pool)]
        for gpus in range(1, count):
            ask = SetCriteria(gpus, transport=transport, alone=alone)
            found = (self._best[part, ask, ANY, Measure.BUS] for part in parts)
            self._best[pool, ask, ANY, Measure.BUS] = max(filter(None, found), key=attrgetter("bus_gb_s"), default=None)

    def best(self, pool: int, ask: SetCriteria, floor: Value, by: Measure) -> float | None:
        """The most of one measure among the sets out of `pool` that reach the floor; None where none does."""
        question = (floor, by) if ask.block > 1 else unblocked(floor, by)
        return best[by] if (best := self._best[pool, ask, *question]) else None

    def _best_of(self, question: tuple[int, SetCriteria, Value, Measure]) -> Value | None:
        pool, ask, floor, by = question
        facts, best = self.facts, None
        most = facts.most_gb_s if by is Measure.BUS else lambda _: inf
        for mask in sorted(facts.of_count(pool, ask.gpus), key=most, reverse=True):
            if best is not None and best[by] >= most(mask):
                break
            if facts.most_gb_s(mask) < floor.bus_gb_s:
                continue
            value = facts.value[mask, ask]
            if reaches(value, floor) and value and (best is None or value[by] > best[by]):
                best = value
        return best

    def is_indifferent(self, pool: int, ask: SetCriteria) -> bool:
        """Whether every set out of `pool` is a candidate and all are worth the same."""
        ask = _worth_waiting_for(ask)
        values = {self.facts.value[mask, ask] for mask in self.facts.of_count(pool, ask.gpus)}
        return len(values) == 1 and None not in values

    def is_foreseen(self, free: int, guessed: tuple[int, ...], unnamed: int, ask: SetCriteria) -> bool:
        """Whether all sets that NVIDIA's device plugin may give are candidates and worth the same."""
        return self._foreseen[free, guessed, unnamed, _worth_waiting_for(ask)]

    def _is_foreseen(self, question: tuple[int, tuple[int, ...], int, SetCriteria]) -> bool:
        free, guessed, unnamed, ask = question
        values, picks = set[Value | None](), self.facts.picks
        if picks is None or len(self.facts.machine.gpus) > MOST_GPUS:
            return False
        for pool in self._pools(free, guessed, unnamed):
            picked = picks.pick(pool, ask.gpus)
            if picked is None:
                return False
            values.update(self.facts.value[mask, ask] for mask in picked.all)
            if len(values) > 1 or None in values:
                return False
        return bool(values)

    def _pools(self, free: int, guessed: tuple[int, ...], unnamed: int) -> Iterator[int]:
        """The sets of GPUs that may be free."""
        found = {free | sum(guessed)}
        for share in guessed:
            alike = self._joined_like(share, free | sum(guessed))
            found = {pool & ~other for pool in found for other in alike if not other & ~pool}
        if not unnamed:
            return iter(found)
        return iter({left for pool in found for left in _parts(pool, pool.bit_count() - unnamed)})

    def _joined_like(self, mask: int, pool: int) -> list[int]:
        """The sets out of the pool that are joined as well as this one.

        A Pod that was foreseen to have this set has one of them: all that the plugin could give it was worth the same.
        """
        ask, value = SetCriteria(mask.bit_count()), self.facts.value
        return [other for other in _parts(pool, ask.gpus) if value[other, ask] == value[mask, ask]]

    def choose(
        self, pool: int, free: int, ask: SetCriteria, floor: Value, experts: Experts = NO_EXPERTS
    ) -> SetChoice | None:
        """The set out of `pool` to take from the free GPUs: the first in the order of `rank` that reaches the floor."""
        if pool == free and self._is_small:
            facts = self.facts
            able = (choice for choice in self._ranked[pool, ask.gpus] if reaches(facts.value[choice.mask, ask], floor))
            if experts.ranks == 1:
                return next(able, None)
            return min((facts.with_torn(choice, experts) for choice in able), key=attrgetter("torn"), default=None)
        return self._choices[pool, free, ask, floor, experts]

    def _choice_of(self, question: tuple[int, int, SetCriteria, Value, Experts]) -> SetChoice | None:
        (pool, free, ask, floor, experts), facts = question, self.facts
        choices = (
            facts.with_torn(self._choice(mask, free), experts)
            for mask in facts.of_count(pool, ask.gpus)
            if facts.most_gb_s(mask) >= floor.bus_gb_s and reaches(facts.value[mask, ask], floor)
        )
        return min(choices, key=rank, default=None)

    def _ranked_of(self, key: tuple[int, int]) -> tuple[SetChoice, ...]:
        """The sets of so many GPUs out of a pool, where all of it is free, the one to take first."""
        pool, count = key
        return tuple(sorted([self._choice(mask, pool) for mask in self.facts.of_count(pool, count)], key=rank))

    def _choice(self, mask: int, free: int) -> SetChoice:
        """What it costs to take a set from the free GPUs."""
        return SetChoice(mask, self.facts.loss_gb_s(mask, free, self._later_gb_s.__getitem__), *self.facts.fit[mask])

    def _best_ring(self, pool: int, count: int) -> float:
        """Bandwidth of the best set of `count` GPUs in the pool; 0 where it has fewer.

        On a large machine without switches the NVLinks inside the pool stand for it: searching every set would take a
        minute, and what is left for later jobs only decides between sets of equal bandwidth.
        """
        return self._best_rings[self.facts.alike(pool), count] if pool.bit_count() >= count else 0.0

    def _best_ring_out_of(self, key: tuple[int, int]) -> float:
        (pool, count), facts = key, self.facts
        machine = facts.machine
        if not machine.switched and comb(len(machine.gpus), count) > MANY_SEARCHES:
            positions = positions_of(pool)
            return float(sum(machine.links[a][b] for a in positions for b in positions) // 2)
        # No part of the machine does better than the whole.
        most = inf if pool == facts.alike(facts.every) else self._best_ring(facts.every, count)
        best = 0.0
        for mask in sorted(facts.of_count(pool, count), key=facts.most_gb_s, reverse=True):
            if best >= min(most, facts.most_gb_s(mask)):
                break
            best = max(best, facts.bandwidth[mask].order_gb_s)
        return best


def _parts(pool: int, count: int) -> Iterator[int]:
    """All sets of so many GPUs out of a pool."""
    return (mask_of(chosen) for chosen in combinations(positions_of(pool), count))


def _worth_waiting_for(ask: SetCriteria) -> SetCriteria:
    """The criteria of sets that a plugin chooses: what trees could use beyond the rings is not worth waiting for."""
    return ask._replace(alone=False)
