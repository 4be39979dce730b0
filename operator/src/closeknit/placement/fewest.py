"""The fewest domains that hold so many units, outermost level first: exact within a budget of steps, else bounded.

Every number of units up to what an area holds can be had of it, so that an area is known by its steps: for each number
of domains inside it, the most units that so few hold.

    block of racks with 16, 12 and 4 nodes:   16 in 1 rack, 28 in 2, 32 in 3

Of the children of an area the fewest are used that can do, and of those that can do, the ones which need the fewest
domains inside. A price of a unit, in domains, tells from below what any choice needs (Lagrange's bound); where what was
found needs no more, it is the best there is. Else all choices are gone through that the bound does not rule out.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fractions import Fraction
from heapq import heappop, heappush, nlargest
from itertools import accumulate, pairwise
from typing import NamedTuple

from closeknit.placement.ground import Area
from closeknit.placement.room import Room

COUNT_BITS = 20  # of the domains of one level: there are fewer than a million
FEWEST_STEPS = 40_000  # combinations of steps for one area, some 15 ms


class Step(NamedTuple):
    """What an area gives at most with so many domains inside it."""

    cost: int
    """Domains, packed with COUNT_BITS a level, the outermost first."""
    units: int


class Split(NamedTuple):
    """Which children give how much."""

    parts: tuple[tuple[Area, int], ...]
    cost: int
    """The domains inside the area, packed."""
    is_proven: bool
    """Whether no split needs fewer domains."""


class Fewest:
    """The steps of the areas of one search."""

    def __init__(self, room: Room, innermost: int) -> None:
        self._room = room
        self._innermost = innermost
        self._steps: dict[Area, tuple[Step, ...]] = {}
        self._used: dict[Area, tuple[Step, ...]] = {}
        """The same with the area's own use."""
        self._alike: dict[object, tuple[tuple[Step, ...], bool]] = {}
        """By the steps of the children: many areas hold the same. With whether they are exact."""
        self._unproven: set[Area] = set()
        """Areas whose steps may need more domains than there must be."""

    def split(self, area: Area, units: int) -> Split:
        """How the units, of no more than the area holds, come of the fewest children and the fewest domains inside."""
        children = [child for child in area.children if self._room.capacity(child)]
        found, is_proven = _Choice([self._of_child(child) for child in children], units).best()
        taken = [(children[number], step) for number, step in found]
        surplus = sum(step.units for _, step in taken) - units
        # A child less would not do: so each gives more than the surplus, and the last can give that less.
        last, step = taken[-1]
        parts = [*((child, step.units) for child, step in taken[:-1]), (last, step.units - surplus)]
        return Split(
            tuple(parts),
            sum(step.cost for _, step in taken),
            is_proven and not any(child in self._unproven for child, _ in taken),
        )

    def _weight(self, level: int) -> int:
        return 1 << COUNT_BITS * (self._innermost - level)

    def _use(self, area: Area) -> int:
        levels = range(area.level, self._innermost + 1) if area.is_lone else (area.level,)
        return sum(map(self._weight, levels))

    def _of_child(self, area: Area) -> tuple[Step, ...]:
        known = self._used.get(area)
        if known is None:
            use = self._use(area)
            known = self._used[area] = tuple(Step(step.cost + use, step.units) for step in self._of(area))
        return known

    def _of(self, area: Area) -> tuple[Step, ...]:
        """The steps inside an area, which holds something, without its own use."""
        known = self._steps.get(area)
        if known is None:
            known = self._inside(area) if area.children else (Step(0, self._room.capacity(area)),)
            self._steps[area] = known
        return known

    def _inside(self, area: Area) -> tuple[Step, ...]:
        inside = tuple(self._of_child(child) for child in area.children if self._room.capacity(child))
        key = tuple(sorted(inside))
        known = self._alike.get(key)
        if known is None:
            known = self._alike[key] = _alike(key) or _combined(key)
        steps, is_exact = known
        if not is_exact or any(child in self._unproven for child in area.children):
            self._unproven.add(area)
        return steps


def _alike(inside: Sequence[tuple[Step, ...]]) -> tuple[tuple[Step, ...], bool] | None:
    """Of children that all cost the same whatever they give, the fullest first; None where they do not."""
    costs = {step.cost for steps in inside for step in steps}
    if len(costs) > 1:
        return None
    cost = costs.pop()
    sums = accumulate(sorted((steps[0].units for steps in inside), reverse=True))
    return tuple(Step(cost * number, units) for number, units in enumerate(sums, 1)), True


def _combined(inside: Sequence[tuple[Step, ...]]) -> tuple[tuple[Step, ...], bool]:
    """All combinations of the steps of children; where they are too many, the fullest children first."""
    found = {0: 0}  # by cost, ascending: the most units
    left = FEWEST_STEPS
    for steps in inside:
        left -= len(found) * len(steps)
        if left < 0:
            return _in_order(inside), False
        grown = dict(found)
        for cost, units in found.items():
            for more, given in steps:
                if units + given > grown.get(cost + more, 0):
                    grown[cost + more] = units + given
        found, most = {}, -1
        for cost, units in sorted(grown.items()):
            if units > most:
                found[cost] = most = units
    return tuple(Step(*each) for each in found.items())[1:], True


def _in_order(inside: Sequence[tuple[Step, ...]]) -> tuple[Step, ...]:
    found: list[Step] = [Step(0, 0)]
    for steps in sorted(inside, key=lambda steps: -steps[-1].units):
        base = found[-1]
        found += [Step(base.cost + step.cost, base.units + step.units) for step in steps]
    return tuple(_best(found)[1:])


def _best(steps: Sequence[Step]) -> list[Step]:
    """Those of which none gives as much for less, the cheapest first."""
    found: list[Step] = []
    for step in sorted(steps, key=lambda step: (step.cost, -step.units)):
        if not found or step.units > found[-1].units:
            found.append(step)
    return found


# (child, step) taken last, and those before it.
_Chain = tuple["_Chain | None", int, Step]


class _Choice:
    """Which steps of which children: exactly as many children as must be, for the least cost.

    A price of a unit is a fraction; what is saved at it is counted in its denominator's parts, in whole numbers.
    """

    def __init__(self, children: Sequence[tuple[Step, ...]], units: int) -> None:
        self._children = children
        self._different = sorted(set(children))
        self._units = units
        capacities = sorted((steps[-1].units for steps in children), reverse=True)
        self._number = bisect_left(list(accumulate(capacities)), units) + 1
        self._capacities = [0, *accumulate(capacities)]

    def best(self) -> tuple[list[tuple[int, Step]], bool]:
        """(child, step) of the best choice that was found, by child, and whether there is none better."""
        fullest = nlargest(self._number, range(len(self._children)), key=lambda child: self._children[child][-1].units)
        if len({step.cost for steps in self._different for step in steps}) == 1:  # so many children is all that counts
            return sorted((child, self._children[child][-1]) for child in fullest), True
        found, slope = self._of_those(fullest)
        if slope and self._is_least(found, 1 / slope):  # mostly the price of the step that comes next will do
            return found, True
        price = self._price()
        gains = self._gains(price)
        order = sorted(range(len(self._children)), key=lambda child: -gains[child])
        worth = order[: self._number]
        if sum(self._children[child][-1].units for child in worth) >= self._units:
            found = min(found, self._of_those(worth)[0], key=_cost)
        if self._is_least(found, price):
            return found, True
        better, is_all = self._gone_through(order, price, _cost(found))
        return better or found, is_all

    def _is_least(self, found: Sequence[tuple[int, Step]], price: Fraction) -> bool:
        """Whether nothing that costs less can give enough, by what the units are worth at a price."""
        least = price.numerator * self._units - sum(nlargest(self._number, self._gains(price)))
        return (_cost(found) - 1) * price.denominator < least

    def _of_those(self, chosen: Sequence[int]) -> tuple[list[tuple[int, Step]], Fraction | None]:
        """Steps of just these children that give enough: from everything down, by the step that saves most a unit; and
        the units for each domain of the first step that could not be given up."""
        slope: Fraction | None = None
        at = {child: len(self._children[child]) - 1 for child in chosen}
        surplus = sum(self._children[child][-1].units for child in chosen) - self._units
        downs: list[tuple[Fraction, int]] = []
        for child in chosen:
            self._add_down(downs, child, at[child])
        while downs:
            saved, child = heappop(downs)
            steps, number = self._children[child], at[child]
            lost = steps[number].units - steps[number - 1].units
            if lost <= surplus:
                surplus -= lost
                at[child] -= 1
                self._add_down(downs, child, at[child])
            elif slope is None:
                slope = saved
        return sorted((child, self._children[child][number]) for child, number in at.items()), slope

    def _add_down(self, downs: list[tuple[Fraction, int]], child: int, number: int) -> None:
        if number:
            upper, lower = self._children[child][number], self._children[child][number - 1]
            heappush(downs, (Fraction(upper.units - lower.units, upper.cost - lower.cost), child))

    def _gains(self, price: Fraction) -> list[int]:
        """What each child saves at a price at the best of its steps."""
        units, cost = price.numerator, price.denominator
        of = {steps: max(units * step.units - cost * step.cost for step in steps) for steps in self._different}
        return [of[steps] for steps in self._children]

    def _price(self) -> Fraction:
        """A price at which the children that are worth the most give about what is asked."""
        slopes = {
            (upper.cost - lower.cost, upper.units - lower.units)
            for steps in self._different
            for lower, upper in pairwise((Step(0, 0), *steps))
        }
        prices = sorted({Fraction(*slope) for slope in slopes})
        place = bisect_left(prices, self._units, key=self._given)
        return max(prices[max(0, place - 1) : place + 1], key=self._bound)

    def _bound(self, price: Fraction) -> Fraction:
        least = price.numerator * self._units - sum(nlargest(self._number, self._gains(price)))
        return Fraction(least, price.denominator)

    def _given(self, price: Fraction) -> int:
        units, cost = price.numerator, price.denominator
        of = {
            steps: max((units * step.units - cost * step.cost, step.units) for step in steps)
            for steps in self._different
        }
        return sum(given for _, given in nlargest(self._number, (of[steps] for steps in self._children)))

    def _gone_through(
        self, order: Sequence[int], price: Fraction, known: int
    ) -> tuple[list[tuple[int, Step]] | None, bool]:
        """The best choice that costs less than what is known, None where there is none; and whether all were seen."""
        gains_of = self._gains(price)
        gains = [0, *accumulate(gains_of[child] for child in order)]
        of_unit, of_cost = price.numerator, price.denominator
        most = (known - 1) * of_cost
        # By how many children are chosen: what gives as much as nothing that costs no more.
        rows: list[dict[Step, _Chain | None]] = [{Step(0, 0): None}, *({} for _ in range(self._number))]
        steps_left = FEWEST_STEPS
        for place, child in enumerate(order, 1):
            for number in range(min(place, self._number) - 1, -1, -1):
                more = self._number - number - 1  # children still to be chosen, of those after this one
                if place + more > len(order):
                    break
                # No choice of them saves more than this, or gives more than that.
                saved, reach = gains[place + more] - gains[place], self._capacities[more]
                steps_left -= len(rows[number]) * len(self._children[child])
                if steps_left < 0:  # before they are looked at: both may be long
                    return None, False
                grown = dict(rows[number + 1])
                for one, chain in rows[number].items():
                    for step in self._children[child]:
                        cost, missing = one.cost + step.cost, self._units - one.units - step.units
                        if missing <= reach and cost * of_cost + of_unit * missing - saved <= most:
                            grown.setdefault(Step(cost, one.units + step.units), (chain, child, step))
                if len(grown) > len(rows[number + 1]):
                    rows[number + 1] = {step: grown[step] for step in _best(list(grown))}
        able = min((step for step in rows[self._number] if step.units >= self._units), default=None)
        return (sorted(_links(rows[self._number][able])) if able else None), True


def _links(chain: _Chain | None) -> Iterator[tuple[int, Step]]:
    while chain is not None:
        chain, child, step = chain
        yield child, step


def _cost(choice: Sequence[tuple[int, Step]]) -> int:
    return sum(step.cost for _, step in choice)
