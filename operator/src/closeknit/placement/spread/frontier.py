"""What areas give at most with so few domains inside them, step by step.

    block of racks with 16, 12 and 4 nodes:   16 in 1 rack, 28 in 2, 32 in 3

Most areas of a fabric are alike, and most searches of one decision see the same ones: what an area gives is one object
for all that give the same, and is worked out once.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from itertools import accumulate
from typing import NamedTuple

COUNT_BITS = 20  # of the domains of one level: there are fewer than a million


class FrontierStep(NamedTuple):
    """What an area gives at most with so many domains inside it."""

    cost: int
    """Domains, packed, the outermost first."""
    units: int


step_of = partial(tuple.__new__, FrontierStep)
"""The step of a (cost, units); a call of FrontierStep takes twice as long, and a large fabric has 200,000."""


class Menu:
    """The steps of an area, the cheapest first, and equal to itself alone."""

    def __init__(self, steps: tuple[FrontierStep, ...]) -> None:
        self.steps = steps

    @cached_property
    def hull(self) -> tuple[FrontierStep, ...]:
        """Those from which each domain less takes no more units than from any that is higher: at any price of a unit
        one of them is the best."""
        return hull(self.steps)

    @property
    def most(self) -> int:
        """Units that it gives at all."""
        return self.steps[-1].units


def hull(steps: Sequence[FrontierStep]) -> tuple[FrontierStep, ...]:
    """Of steps, the lowest first, those from which each domain less takes no more units than from any higher one."""
    kept = [steps[0]]
    for step in steps[1:]:
        cost, units = step
        while len(kept) > 1:
            (least_cost, least_units), (low_cost, low_units) = kept[-2], kept[-1]
            if (low_units - least_units) * (cost - low_cost) > (units - low_units) * (low_cost - least_cost):
                break
            kept.pop()
        kept.append(step)
    return tuple(kept)


Counted = tuple[tuple[Menu, int], ...]
"""The children of an area: how many have the same menu; those of the least steps first."""


def combined(children: Counted, most_steps: int) -> tuple[tuple[FrontierStep, ...], bool]:
    """The steps of all children together; and whether they are exact: where there are more combinations than may be
    looked at it is the fullest children first."""
    first, *parts = _parts(children)
    found: list[tuple[int, int]] = [(0, 0), *first]  # by cost, ascending: the most units
    left = most_steps
    for steps in parts:
        left -= len(found) * len(steps)
        if left < 0:
            return _in_order(children), False
        grown = dict(found)
        for more, given in steps:
            for cost, units in found:
                if units + given > grown.get(cost + more, 0):
                    grown[cost + more] = units + given
        found, most = [], -1
        for cost, units in sorted(grown.items()):
            if units > most:
                found.append((cost, units))
                most = units
    return tuple(map(step_of, found[1:])), True


def _parts(children: Counted) -> list[Sequence[tuple[int, int]]]:
    """What is combined: children that all cost the same whatever they give are one, the fullest first."""
    alike: dict[int, list[int]] = {}
    parts: list[Sequence[tuple[int, int]]] = []
    for menu, number in children:
        steps = menu.steps
        if len(steps) == 1:
            alike.setdefault(steps[0].cost, []).extend([steps[0].units] * number)
        else:
            parts += [steps] * number
    for cost, units in alike.items():
        sums = accumulate(sorted(units, reverse=True))
        parts.append([(cost * number, most) for number, most in enumerate(sums, 1)])
    return sorted(parts, key=len)


def _in_order(children: Counted) -> tuple[FrontierStep, ...]:
    """The fullest children first."""
    found: list[FrontierStep] = []
    cost = units = most = 0
    for menu, number in sorted(children, key=lambda child: -child[0].most):
        for _ in range(number):
            for step in menu.steps:
                if units + step.units > most:
                    most = units + step.units
                    found.append(step_of((cost + step.cost, most)))
            cost, units = cost + menu.steps[-1].cost, units + menu.most
    return tuple(found)
