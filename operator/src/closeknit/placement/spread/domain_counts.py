"""The fewest domains that hold so many units, outermost level first: exact within a budget of steps, else bounded.

Every number of units up to what an area holds can be had of it, so that an area is known by its steps (frontier.py). Of
the children of an area the fewest are used that can do, and of those that can do, the ones which need the fewest
domains inside (knapsack.py).
"""

from bisect import bisect_left
from collections.abc import Mapping, Sized
from typing import NamedTuple
from weakref import WeakValueDictionary

from closeknit.placement.candidates.usable_areas import Area
from closeknit.placement.spread.capacity import Capacity
from closeknit.placement.spread.frontier import COUNT_BITS, Counted, FrontierStep, Menu, combined, step_of
from closeknit.placement.spread.knapsack import Knapsack, Pairs, cost_of
from closeknit.placement.values.bounded import Bounded

MANY_MENUS = 1 << 14  # are remembered with their use, and as many without, of a few steps each mostly
MANY_PAIRS = 1 << 18  # of children are remembered, as they are asked about and as they are chosen: some 20 MB


class Split(NamedTuple):
    """Which children give how much."""

    parts: tuple[tuple[Area, int], ...]
    cost: int
    """The domains inside the area, packed."""
    is_proven: bool
    """Whether no split needs fewer domains."""


class Alike:
    """What holds for every area of the same steps: searches of one decision differ in what a node gives or costs, and
    hardly ever everywhere. Nothing of it depends on what was asked before."""

    def __init__(self) -> None:
        self._menus: WeakValueDictionary[tuple[FrontierStep, ...], Menu] = WeakValueDictionary()
        """As long as any search has a menu, equal steps are that very one: what is alike is found by identity."""
        self._used: Bounded[tuple[Menu, int], Menu] = Bounded(MANY_MENUS)
        self._inside: Bounded[tuple[Counted, int], tuple[Menu, bool]] = Bounded(MANY_PAIRS, _children)
        self._found: Bounded[tuple[Counted, int, int | None], tuple[Pairs, bool]] = Bounded(MANY_PAIRS, _pairs)
        """By the steps that may be taken, None for the choice that is mostly the best."""

    def menu(self, steps: tuple[FrontierStep, ...]) -> Menu:
        """The one menu of these steps."""
        found = self._menus.get(steps)
        if found is None:
            found = self._menus[steps] = Menu(steps)
        return found

    def with_use(self, menu: Menu, use: int) -> Menu:
        """A menu of which every step costs so much more."""
        key = (menu, use)
        found = self._used.get(key)
        if found is None:
            found = self._used[key] = self.menu(tuple([step_of((cost + use, units)) for cost, units in menu.steps]))
        return found

    def inside(self, children: Counted, most_steps: int) -> tuple[Menu, bool]:
        """What an area of these children gives, and whether it is exact."""
        key = (children, most_steps)
        found = self._inside.get(key)
        if found is None:
            steps, is_exact = combined(children, most_steps)
            found = self._inside[key] = self.menu(steps), is_exact
        return found

    def tried(self, children: Counted, units: int) -> tuple[Pairs, bool]:
        """What is mostly the best choice of these children, and whether there is none better for certain."""
        return self._found.kept((children, units, None), lambda: Knapsack(children, units).tried())

    def gone_through(self, children: Counted, units: int, most_steps: int) -> tuple[Pairs, bool]:
        """The best choice that is found when all are gone through, and whether there is none better."""
        key = (children, units, most_steps)
        found = self._found.get(key)
        if found is None:
            known, _ = self.tried(children, units)
            found = self._found[key] = Knapsack(children, units).gone_through(known, most_steps)
        return found


def _children(key: tuple[Counted, int], _: object) -> int:
    return len(key[0])


def _pairs(key: tuple[Counted, int, int | None], found: tuple[Pairs, bool]) -> int:
    return len(key[0]) + len(found[0])


class FewestDomains:
    """The steps of the areas of one search."""

    def __init__(
        self, room: Capacity, innermost: int, alike: Alike, most_steps: tuple[int, ...], *, counts_hosts: bool
    ) -> None:
        """`most_steps`: for each area of each level, the root's first. Where hosts count they are domains of the
        innermost level."""
        self._room = room
        self._counts_hosts = counts_hosts
        innermost += counts_hosts
        self._most_steps = most_steps
        self._alike = alike
        self._weights = [1 << COUNT_BITS * (innermost - level) for level in range(innermost + 1)]
        self._inside: dict[int, Menu] = {}
        """By the content of an area: most of a fabric is alike."""
        self._lones: dict[tuple[int, int], Menu] = {}
        """By the level of a lone node, and what it gives."""
        self._children: dict[Area, dict[Menu, list[Area]]] = {}
        self._unproven: set[int] = set()
        """Contents of areas whose steps may need more domains than there must be."""

    def split(self, area: Area, units: int) -> Split:
        """How the units, of no more than the area holds, come of the fewest children and the fewest domains inside."""
        children = self._by_menu(area)
        counted = _counted(children)
        pairs, is_proven = self._alike.tried(counted, units)
        if not is_proven and not (is_proven := cost_of(pairs) == self._least(area, units)):
            pairs, is_proven = self._alike.gone_through(counted, units, self._steps_of(area))
        pairs = sorted(pairs, key=lambda pair: (pair[0].steps, pair[1]), reverse=True)
        places = {menu: iter(alike) for menu, alike in children.items()}
        parts = [(next(places[menu]), step.units) for menu, step in pairs]
        # A child less would not do: so each gives more than the surplus, and the last can give that less.
        last, given = parts[-1]
        parts[-1] = last, given - sum(given for _, given in parts) + units
        is_proven = is_proven and not (self._unproven and any(self._is_unproven(child) for child, _ in parts))
        return Split(tuple(parts), cost_of(pairs), is_proven)

    def _by_menu(self, area: Area) -> dict[Menu, list[Area]]:
        """The children that give something, by what they give and cost, with their own use."""
        found = self._children.get(area)
        if found is None:
            found = self._children[area] = {}
            for child in area.children:
                if units := self._room.capacity(child):
                    menu = self._lone(child.level, units) if child.is_lone else self._used(child)
                    found.setdefault(menu, []).append(child)
        return found

    def _used(self, area: Area) -> Menu:
        return self._alike.with_use(self._of(area), self._weights[area.level])

    def _lone(self, level: int, units: int) -> Menu:
        known = self._lones.get((level, units))
        if known is None:
            known = self._lones[level, units] = self._alike.menu((FrontierStep(sum(self._weights[level:]), units),))
        return known

    def _of(self, area: Area) -> Menu:
        """What is inside an area, which holds something, without its own use."""
        content = self._room.content(area)
        known = self._inside.get(content)
        if known is None:
            if area.children:
                known, is_exact = self._alike.inside(_counted(self._by_menu(area)), self._steps_of(area))
                if not is_exact or (self._unproven and any(map(self._is_unproven, area.children))):
                    self._unproven.add(content)
            else:
                known = self._alike.menu(self._of_hosts(area))
            self._inside[content] = known
        return known

    def _is_unproven(self, area: Area) -> bool:
        return self._room.content(area) in self._unproven

    def _of_hosts(self, area: Area) -> tuple[FrontierStep, ...]:
        """What the nodes of a domain give, the fullest first, where each of them costs something."""
        if not self._counts_hosts:
            return (FrontierStep(0, self._room.capacity(area)),)
        return tuple(map(step_of, enumerate(self._room.sums(area), 1)))

    def _steps_of(self, area: Area) -> int:
        """How many steps may be taken for an area."""
        return self._most_steps[area.level + 1]

    def _least(self, area: Area, units: int) -> int | None:
        """What so many units of an area cost at least, where its steps are exact; not known of the root, which nobody
        else asks for."""
        if area.level < 0:
            return None
        menu = self._of(area)
        if self._is_unproven(area):
            return None
        return menu.steps[bisect_left(menu.steps, units, key=lambda step: step.units)].cost


def _counted(children: Mapping[Menu, Sized]) -> Counted:
    return tuple(sorted(((menu, len(alike)) for menu, alike in children.items()), key=lambda child: child[0].steps))
