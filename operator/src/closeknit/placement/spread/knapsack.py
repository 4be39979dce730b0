"""Which steps of which children an area takes: as few children as can do, for the fewest domains inside.

A price of a unit, in domains, tells from below what any choice needs (Lagrange's bound); where what was found needs no
more, it is the best there is. Else all choices are gone through that the bound does not rule out.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import NamedTuple

from closeknit.placement.spread.frontier import COUNT_BITS, Counted, FrontierStep, Menu, hull

LEVEL_STEPS = 8  # of going through one more level, for each step of each child: what it is priced and ordered by

Pairs = list[tuple[Menu, FrontierStep]]
"""A step of each child that is taken."""

# (number of a child, what it gives), and those before it.
_Chain = tuple["_Chain | None", int, FrontierStep]


class Price(NamedTuple):
    """Of a unit, in domains: a fraction, of which what is saved is counted in whole parts."""

    of_unit: int
    of_cost: int


class Knapsack:
    """The choices among the children of an area that give at least so many units, of the fewest children."""

    def __init__(self, children: Counted, units: int) -> None:
        """The children hold so many."""
        self._units = units
        self._number = _fewest(children, units)
        # Of equal children no more than all that are taken are in question.
        self._counts = {menu: min(number, self._number) for menu, number in children}
        self._menus = [menu for menu, number in self._counts.items() for _ in range(number)]
        most = max(max(menu.steps[-1].cost, menu.most) for menu in self._counts)
        self._bits = 2 * most.bit_length()

    def tried(self) -> tuple[Pairs, bool]:
        """What is mostly the best, and whether there is none better for certain."""
        if len({step.cost for menu in self._counts for step in menu.steps}) == 1:  # so many children is all that counts
            return self._whole(self._fullest()), True
        found, slope = self._lowered(self._whole(self._fullest()))
        if slope and self._is_least(found, slope):  # mostly the price of the step that comes next will do
            return found, True
        price = self._price()
        worth = self._order(self._gains(price))[: self._number]
        if sum(self._menus[child].most for child in worth) >= self._units:
            found = min(found, self._lowered(self._whole(worth))[0], key=cost_of)
        return found, self._is_least(found, price)

    def gone_through(self, known: Pairs, most_steps: int) -> tuple[Pairs, bool]:
        """The best choice that is found when all are gone through, and whether there is none better.

        First it is the fewest domains of the next level, then of those choices the fewest of the level inside it: where
        so many steps do not do for all of it, the outer levels are the fewest still.
        """
        left = most_steps
        highest = max(menu.steps[-1].cost for menu in self._counts).bit_length() // COUNT_BITS
        for level in range(highest - 1, -1, -1):
            left -= LEVEL_STEPS * sum([len(menu.steps) for menu in self._counts])
            if left < 0:
                return known, False
            bits = COUNT_BITS * level
            outer = {_outer(menu, bits): menu for menu in self._counts}
            choice = Knapsack(tuple((each, self._counts[menu]) for each, menu in outer.items()), self._units)
            found, left = choice._better(sum(step.cost >> bits for _, step in known), left)
            if found is not None:
                known, _ = self._lowered([(outer[each], _at(outer[each], step.units)) for each, step in found])
            if left < 0:
                return known, False
        return known, True

    def _better(self, known: int, left: int) -> tuple[Pairs | None, int]:
        """The best choice that costs less than what is known, None where there is none; and how many steps are left,
        less than none where not all were seen."""
        price = self._price()
        gains_of = self._gains(price)
        order = [self._menus[child] for child in self._order(gains_of)]
        gains = [0, *accumulate(gains_of[menu] for menu in order)]
        capacities = [0, *accumulate(sorted((menu.most for menu in order), reverse=True))]
        behind = [*accumulate(menu.most for menu in reversed(order))][::-1]
        of_unit, of_cost = price
        # By how many children are chosen, then by cost: what gives the most for it, as nothing does that costs less.
        rows: list[dict[int, tuple[int, _Chain | None]]] = [{0: (0, None)}, *({} for _ in range(self._number))]
        for place, menu in enumerate(order, 1):
            behind_it = behind[place] if place < len(order) else 0
            # So many of the children after this one can still be chosen.
            for number in range(min(place, self._number) - 1, max(0, place + self._number - 1 - len(order)) - 1, -1):
                row = rows[number]
                left -= 1 + len(row) * len(menu.steps)
                if left < 0:  # before they are looked at: both may be long
                    return None, left
                more = self._number - number - 1
                # No choice of them saves more than this, or gives more than that.
                saved = gains[place + more] - gains[place]
                least_units = self._units - min(capacities[more], behind_it)
                most_cost = (saved + (known - 1) * of_cost) // of_cost
                most_dear = saved + (known - 1) * of_cost - of_unit * self._units
                grown = rows[number + 1]
                is_grown = False
                for step in menu.steps:
                    cost, given = step
                    dear = cost * of_cost - of_unit * given
                    for before, (units, chain) in row.items():
                        total, reached = before + cost, units + given
                        if reached < least_units or total > most_cost:
                            continue
                        if before * of_cost - of_unit * units + dear > most_dear:
                            continue
                        standing = grown.get(total)
                        if standing is None or standing[0] < reached:
                            grown[total] = reached, (chain, place - 1, step)
                            is_grown = True
                if is_grown:
                    left -= len(grown)
                    rows[number + 1] = _best(grown)
        for _, (units, chain) in sorted(rows[self._number].items(), key=lambda entry: entry[0]):
            if units >= self._units:
                return [(order[child], step) for child, step in _links(chain)], left
        return None, left

    def _whole(self, children: Sequence[int]) -> Pairs:
        return [(self._menus[child], self._menus[child].steps[-1]) for child in children]

    def _fullest(self) -> list[int]:
        """So many children as are taken, those that give the most."""
        every = sorted(range(len(self._menus)), key=lambda child: -self._menus[child].most)
        return every[: self._number]

    def _order(self, gains: Mapping[Menu, int]) -> list[int]:
        return sorted(range(len(self._menus)), key=lambda child: -gains[self._menus[child]])

    def _is_least(self, found: Pairs, price: Price) -> bool:
        """Whether nothing that costs less can give enough, by what the units are worth at a price."""
        return (cost_of(found) - 1) * price.of_cost < self._least(price)

    def _least(self, price: Price) -> int:
        """What any choice costs at least, in parts."""
        return price.of_unit * self._units - self._highest(self._gains(price))

    def _highest(self, of: Mapping[Menu, int]) -> int:
        """The sum over so many children as are taken, of those that have the most."""
        left, total = self._number, 0
        for menu in sorted(of, key=lambda menu: -of[menu]):
            taken = min(left, self._counts[menu])
            total, left = total + taken * of[menu], left - taken
            if not left:
                break
        return total

    def _slope(self, units: int, cost: int) -> int:
        """A whole number that is higher where there are more units for a domain, and equal where there are as many."""
        return (units << self._bits) // cost

    def _lowered(self, taken: Pairs) -> tuple[Pairs, Price | None]:
        """The same children with lower steps that give enough still: by those that save most a unit as long as they
        can be given up, then by whichever saves most; and the price of the first that could not be given up."""
        surplus = sum(step.units for _, step in taken) - self._units
        price: Price | None = None
        hulls = {pair: _hull(*pair) for pair in set(taken)}
        at = [len(hulls[pair]) - 1 for pair in taken]
        downs = [
            self._down(hulls[pair], number, child)
            for child, (pair, number) in enumerate(zip(taken, at, strict=True))
            if number
        ]
        heapify(downs)
        while downs:
            _, child = heappop(downs)
            steps, number = hulls[taken[child]], at[child]
            lost, saved = _between(steps[number - 1], steps[number])
            if lost <= surplus:
                surplus -= lost
                at[child] = number - 1
                if number > 1:
                    heappush(downs, self._down(steps, number - 1, child))
            elif price is None:
                price = Price(saved, lost)
        found = [(pair[0], hulls[pair][number]) for pair, number in zip(taken, at, strict=True)]
        return self._lowered_once_more(found, surplus), price

    def _down(self, steps: Sequence[FrontierStep], number: int, child: int) -> tuple[int, int]:
        return self._slope(*_between(steps[number - 1], steps[number])), child

    @staticmethod
    def _lowered_once_more(taken: Pairs, surplus: int) -> Pairs:
        while surplus:
            lower = {pair: _at(pair[0], pair[1].units - surplus) for pair in set(taken)}
            pair = min(taken, key=lambda pair: lower[pair].cost - pair[1].cost)
            if lower[pair] == pair[1]:
                break
            surplus -= pair[1].units - lower[pair].units
            taken[taken.index(pair)] = pair[0], lower[pair]
        return taken

    def _gains(self, price: Price) -> dict[Menu, int]:
        """What a child saves at a price at the best of its steps."""
        of_unit, of_cost = price
        return {menu: max(of_unit * units - of_cost * cost for cost, units in menu.hull) for menu in self._counts}

    def _price(self) -> Price:
        """A price at which the children that are worth the most give about what is asked."""
        pairs = {_between(*pair) for menu in self._counts for pair in pairwise((FrontierStep(0, 0), *menu.hull))}
        by_slope = {self._slope(units, cost): Price(cost, units) for units, cost in pairs}
        prices = [by_slope[slope] for slope in sorted(by_slope, reverse=True)]
        place = bisect_left(prices, self._units, key=self._given)
        return max(prices[max(0, place - 1) : place + 1], key=lambda price: Fraction(self._least(price), price.of_cost))

    def _given(self, price: Price) -> int:
        """Units of the children that are worth the most at a price."""
        of_unit, of_cost = price
        best = {
            menu: max((of_unit * units - of_cost * cost, units) for cost, units in menu.hull) for menu in self._counts
        }
        left, total = self._number, 0
        for menu in sorted(best, key=lambda menu: best[menu], reverse=True):
            taken = min(left, self._counts[menu])
            total, left = total + taken * best[menu][1], left - taken
        return total


def cost_of(pairs: Pairs) -> int:
    """The domains of a choice, packed."""
    return sum(step.cost for _, step in pairs)


def _fewest(children: Counted, units: int) -> int:
    """No fewer children than this hold so many."""
    fewest = 0
    for menu, number in sorted(children, key=lambda child: -child[0].most):
        taken = min(number, -(-units // menu.most))
        fewest, units = fewest + taken, units - taken * menu.most
        if units <= 0:
            break
    return fewest


def _outer(menu: Menu, bits: int) -> Menu:
    """What is given for so many domains of the outer levels, of which the cost is left without so many bits."""
    return Menu(tuple({cost >> bits: FrontierStep(cost >> bits, units) for cost, units in menu.steps}.values()))


def _at(menu: Menu, units: int) -> FrontierStep:
    """The first step that gives so many units."""
    return menu.steps[bisect_left(menu.steps, units, key=attrgetter("units"))]


def _hull(menu: Menu, last: FrontierStep) -> Sequence[FrontierStep]:
    """That of the steps up to this one."""
    return menu.hull if last == menu.steps[-1] else hull(menu.steps[: bisect_right(menu.steps, last)])


def _between(lower: FrontierStep, upper: FrontierStep) -> tuple[int, int]:
    """(units, cost) that a step has more than the one before."""
    return upper.units - lower.units, upper.cost - lower.cost


def _best(row: dict[int, tuple[int, _Chain | None]]) -> dict[int, tuple[int, _Chain | None]]:
    """Those of which none gives as much for less, the cheapest first."""
    found: dict[int, tuple[int, _Chain | None]] = {}
    most = -1
    for cost in sorted(row):
        if row[cost][0] > most:
            found[cost] = row[cost]
            most = row[cost][0]
    return found


def _links(chain: _Chain | None) -> Iterator[tuple[int, FrontierStep]]:
    while chain is not None:
        chain, child, step = chain
        yield child, step
