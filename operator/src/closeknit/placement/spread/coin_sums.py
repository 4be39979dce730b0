"""How units add up from nodes that give only some numbers of them, as change from coins.

Nodes bound whole give all of their GPUs or none: 20 GPUs are two nodes of 8 and one of 4, and no three of 8. Filling
the fullest first ends with a rest that no node gives; this looks at all of an area's nodes as one heap and says for
certain, within its bounds, whether the units can be had of them. Domains are used fullest first, and need not be the
fewest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from closeknit.placement.candidates.usable_areas import Area, Members
from closeknit.placement.spread.capacity import Capacity
from closeknit.placement.spread.leaf import LeafNodes
from closeknit.placement.spread.min_sums import Pick

MANY_COPIES = 256  # of nodes that give the same numbers: more of them only add their most
CHANGE_STEPS = 400_000  # some 60 ms, before a refusal that may then be false

Givens = tuple[int, ...]
_Chain = tuple["_Chain | None", Givens, int]


class Heap(NamedTuple):
    """Nodes of one area that give some numbers of units."""

    cost: int
    """With the use of all domains inside the area."""
    picks: tuple[Pick, ...]


@dataclass(slots=True)
class CoinSums:
    """The heaps of one search."""

    hosts: LeafNodes
    room: Capacity
    _most: dict[tuple[int, int], int] = field(default_factory=dict)
    """By content: thousands of nodes that stand alone may be alike."""

    def most(self, area: Area, units: int) -> int:
        """The largest number up to these units that the area's nodes can add up to."""
        key = (self.room.content(area), units)
        known = self._most.get(key)
        if known is None:
            known = self._most[key] = self._sums(self._nodes(area), units).bit_length() - 1
        return known

    def heap(self, area: Area, units: int) -> Heap | None:
        """Nodes that give exactly these units; None where there are none."""
        nodes = self._nodes(area)
        if not self._sums(nodes, units) >> units & 1:
            return None
        wanted = _made_up(nodes, units)
        if wanted is None:
            return None
        picks: list[Pick] = []
        cost = self._gather(area, wanted, picks)
        return Heap(cost, tuple(sorted(picks)))

    def _nodes(self, area: Area) -> dict[Givens, int]:
        """How many nodes give the same numbers, those that give the most first."""
        found: dict[Givens, int] = {}
        for offer, nodes in area.counted():
            givens = tuple(self.hosts.units(offer))
            if givens:
                found[givens] = found.get(givens, 0) + nodes
        return dict(sorted(found.items(), key=lambda entry: (-entry[0][-1], entry[0])))

    @staticmethod
    def _sums(nodes: Mapping[Givens, int], units: int) -> int:
        """Bit n: n units can be had; up to these units."""
        within = (1 << units + 1) - 1
        sums = 1
        for givens, count in nodes.items():
            for _ in range(min(count, MANY_COPIES)):
                more = sums
                for given in givens:
                    more |= sums << given
                more &= within
                if more == sums:
                    break
                sums = more
            left, step = count - MANY_COPIES, givens[-1]
            while left > 0 and step <= units:  # 1, 2, 4, … of the rest, each giving its most
                sums = (sums | sums << step) & within
                left, step = left - step // givens[-1], step * 2
        return sums

    def _gather(self, area: Area, wanted: dict[tuple[Givens, int], int], picks: list[Pick]) -> int:
        """Takes what is wanted of an area's nodes, the fullest domains first, and says what that costs inside it."""
        if not area.children:
            return sum(self._taken(entry, wanted, picks) for entry in area.members)
        total = 0
        for child in sorted(area.children, key=self.room.capacity, reverse=True):
            if not any(wanted.values()):
                break
            before = len(picks)
            cost = self._gather(child, wanted, picks)
            if len(picks) > before:
                total += cost + self.room.used(child)
        return total

    def _taken(self, entry: Members, wanted: dict[tuple[Givens, int], int], picks: list[Pick]) -> int:
        units = self.hosts.units(entry.offer)
        givens = tuple(units)
        names = iter(entry.ascending())
        total = 0
        for given in reversed(givens):
            left = wanted.get((givens, given), 0)
            for _, name in zip(range(left), names, strict=False):
                picks.append((name, given, entry.offer))
                wanted[givens, given] -= 1
                total += units[given]
        return total


def _made_up(nodes: Mapping[Givens, int], units: int) -> dict[tuple[Givens, int], int] | None:
    """How many of which nodes give what, few of them; None where it takes too many steps to find out.

    All but the last units come of nodes that give their most: of numbers up to m, sums above m x m leave no gaps that
    more nodes do not fill. Where the last ones cannot be had so, more of them are looked at.
    """
    widest = max(givens[-1] for givens in nodes)
    last = widest * widest + widest
    steps_left = CHANGE_STEPS
    while True:
        wanted: dict[tuple[Givens, int], int] = {}
        rest, left = units, dict(nodes)
        for givens, count in nodes.items():
            taken = max(0, min(count, (rest - last) // givens[-1]))
            if taken:
                wanted[givens, givens[-1]] = taken
                rest, left[givens] = rest - taken * givens[-1], count - taken
        steps_left -= sum(min(count, rest // givens[0]) * len(givens) for givens, count in left.items()) * rest
        if steps_left < 0:
            return None
        chain = _fewest_nodes(left, rest)
        if chain is not None:
            for givens, given in _links(chain):
                wanted[givens, given] = wanted.get((givens, given), 0) + 1
            return wanted
        if rest == units:
            return None
        last *= 2


def _fewest_nodes(nodes: Mapping[Givens, int], units: int) -> _Chain | None:
    """The fewest nodes that give exactly these units; None where there are none."""
    best: list[tuple[int, _Chain | None] | None] = [None] * (units + 1)
    best[0] = (0, None)
    for givens, count in nodes.items():
        for _ in range(min(count, units // givens[0])):
            is_better = False
            for have in range(units - givens[0], -1, -1):
                base = best[have]
                if base is None:
                    continue
                for given in givens:
                    if have + given > units:
                        break
                    standing = best[have + given]
                    if standing is None or base[0] + 1 < standing[0]:
                        best[have + given] = (base[0] + 1, (base[1], givens, given))
                        is_better = True
            if not is_better:
                break
    found = best[units]
    return found[1] if found else None


def _links(chain: _Chain | None) -> Iterator[tuple[Givens, int]]:
    while chain is not None:
        chain, givens, given = chain
        yield givens, given
