"""Which GPUs NVIDIA's device plugin will give a Pod, by its published rule (go-gpuallocator, best-effort policy).

It splits the GPUs that are free, padded to a multiple of the asked size, into sets of that size, in the way whose sets
score most in all, and gives the best set of them. A pair scores by its PCIe level and 100 for each direct NVLink; links
into switches do not count. Among equals the first in the order of the list that it is given wins, and the kubelet gives
it in no order: so there is one pick in index order, as recorded, and there are all that it may be.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from closeknit.machine.graph import Machine
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.values.bounded import Bounded

MOST_GPUS = 8  # of a machine: of 16 there are two million ways to split them into pairs
LINK_SCORE = 100
# go-gpuallocator's links.P2PLinkType: what it calls them is what nvidia-smi does, the same board left out.
_LEVEL_SCORES = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50}


@dataclass(frozen=True, slots=True)
class Pick:
    """What the plugin gives out of a pool, as masks over positions."""

    first: int
    """Where it looks at the GPUs by index."""
    all: frozenset[int]
    """Whatever the order in which it looks at them; `first` is among them."""


def scores(machine: Machine) -> tuple[tuple[int, ...], ...] | None:
    """The plugin's score of each pair of GPUs; None where PCIe levels are unknown."""
    levels, count = machine.pcie_levels, len(machine.gpus)
    if not levels:
        return None
    return tuple(
        tuple(0 if a == b else _LEVEL_SCORES[levels[a][b]] + LINK_SCORE * machine.links[a][b] for b in range(count))
        for a in range(count)
    )


class Picks:
    """The picks on one machine; each is worked out once."""

    def __init__(self, pairs: Sequence[Sequence[int]]) -> None:
        """`pairs` scores each pair of its GPUs."""
        self._pairs = pairs
        self._splits: dict[tuple[int, int], _Splits] = {}
        self._known: Bounded[tuple[int, int], Pick] = Bounded()

    def pick(self, pool: int, count: int) -> Pick | None:
        """What the plugin gives of `count` GPUs out of a pool; None where that is not foreseen."""
        if len(self._pairs) > MOST_GPUS or not 0 < count <= pool.bit_count():
            return None
        key = (pool, count)
        found = self._known.get(key)
        if found is None:
            padding = -pool.bit_count() % count
            splits = self._splits.setdefault((count, padding), _Splits(self._pairs, count, padding))
            first = splits.first(pool)
            found = self._known[key] = Pick(first, frozenset(splits.picks(pool)) | {first})
        return found


class _Splits:
    """The ways to split pools into sets of one size. The padding of a pool is all in one set, as the plugin wants it.

    A pool's own number of GPUs tells whether its padding is still to be put into a set.
    """

    def __init__(self, pairs: Sequence[Sequence[int]], count: int, padding: int) -> None:
        self._pairs = pairs
        self._count = count
        self._padding = padding
        self._score = cache(self._scored)
        self._best = cache(self._total)

    def first(self, pool: int) -> int:
        """The pick where sets are looked at in the order of positions, and the first of equals is kept."""
        if self._count == 1:
            return pool & -pool
        split: list[int] = []
        rest = pool
        while rest:
            best = self._best(rest, None)
            taken = next(each for each in self._next(rest) if self._with(each, rest, None) == best)
            split.append(taken)
            rest &= ~taken
        return max(split, key=self._score)  # the first of equals

    def picks(self, pool: int) -> Iterator[int]:
        """Every set that is the best of a best split, equals included."""
        most = self._best(pool, None)
        for taken in self._sets(pool, self._count):
            score = self._score(taken)
            rest = self._best(pool & ~taken, score)
            if rest is not None and score + rest == most:
                yield taken

    def _total(self, pool: int, bound: int | None) -> int | None:
        """What the best split of a pool scores whose sets all score no more than `bound`; None where there is none."""
        if not pool:
            return 0
        found = (self._with(taken, pool, bound) for taken in self._next(pool))
        return max((each for each in found if each is not None), default=None)

    def _with(self, taken: int, pool: int, bound: int | None) -> int | None:
        score = self._score(taken)
        if bound is not None and score > bound:
            return None
        rest = self._best(pool & ~taken, bound)
        return None if rest is None else score + rest

    def _next(self, pool: int) -> Iterator[int]:
        """The sets that the first GPU of a pool may be in, in the plugin's order: a padded one after those without."""
        first = pool & -pool
        others = pool & ~first
        sizes = [self._count]
        if self._padding and pool.bit_count() % self._count:
            sizes.append(self._count - self._padding)
        found = [first | rest for size in sizes for rest in self._sets(others, size - 1)]
        # Padding stands last in the plugin's list: a set with it comes where a GPU behind all others would.
        yield from sorted(found, key=lambda mask: (*positions_of(mask), len(self._pairs)))

    @staticmethod
    def _sets(pool: int, count: int) -> Iterator[int]:
        return (mask_of(chosen) for chosen in combinations(positions_of(pool), count))

    def _scored(self, mask: int) -> int:
        chosen = positions_of(mask)
        return sum(self._pairs[a][b] for place, a in enumerate(chosen) for b in chosen[place + 1 :])
