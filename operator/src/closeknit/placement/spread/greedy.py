"""How the children of an area share in units where not all combinations are tried."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from closeknit.placement.candidates.usable_areas import Area
from closeknit.placement.spread.capacity import Capacity
from closeknit.placement.spread.coin_sums import CoinSums
from closeknit.placement.spread.domain_counts import FewestDomains
from closeknit.placement.spread.leaf import LeafNodes

MANY_PLANS = 64  # are remembered beyond one decision: of large gangs, whose domains give all they have mostly

Costs = Callable[[Area, int], int | None]


class Rest(NamedTuple):
    """Units that one of several domains gives, the one which suits them best."""

    room: Sequence[Area]
    units: int
    cost: int
    """With the use of that domain."""


class SpreadPlan(NamedTuple):
    """Who gives how much."""

    cost: int
    parts: tuple[tuple[Area, int], ...]
    rest: Rest | None
    is_proven: bool
    """Whether no other needs fewer domains."""
    is_frugal: bool = True
    """Whether none with as few domains needs fewer nodes."""


class SpreadPlans:
    """The plans of one search."""

    def __init__(
        self,
        hosts: LeafNodes,
        room: Capacity,
        fewest: FewestDomains,
        frugal: FewestDomains | None,
        *,
        with_use: Costs,
        cheapest: Callable[[Sequence[Area], int], int | None],
        is_count: bool,
    ) -> None:
        """The steps of areas, and those that count nodes after domains, where fewer nodes are looked for; what a child
        costs that gives so much, its use included, and what the one of several does that suits best; whether that is a
        count of domains and hosts alone."""
        self._is_count = is_count
        self._planned: dict[tuple[Area, int], SpreadPlan | None] = {}
        self._hosts = hosts
        self._room = room
        self._fewest = fewest
        self._frugal = frugal
        self._with_use = with_use
        self._cheapest = cheapest
        self.change = CoinSums(hosts, room)
        self._ordered: dict[Area, tuple[list[Area], list[int]]] = {}
        self._whole: dict[Area, int] = {}
        """What the use of all domains in an area costs."""

    def forget(self) -> None:
        """Throws plans away where there are many: between decisions, for each reads all of its plans twice."""
        if len(self._planned) > MANY_PLANS:
            self._planned, self._ordered = {}, {}

    def plan(self, area: Area, units: int) -> SpreadPlan | None:
        """The fullest children first, or the fewest domains inside them, too, whichever costs less."""
        key = (area, units)
        if key not in self._planned:
            self._planned[key] = self._worked_out(area, units)
        return self._planned[key]

    def _worked_out(self, area: Area, units: int) -> SpreadPlan | None:
        plan = self._of_domains(area, units)
        if plan is None or self._hosts.is_equal or self._hosts.has_gaps(area):
            return plan
        if self._room.hosts_of(plan.cost) == self._hosts.fewest(area, units):  # anywhere in the area
            return plan
        split = self._split(self._frugal, area, units) if self._frugal else None
        if split is None:
            return plan._replace(is_frugal=False)
        best = split if split.cost < plan.cost else plan
        return best._replace(is_proven=plan.is_proven or split.is_proven, is_frugal=split.is_proven)

    def _of_domains(self, area: Area, units: int) -> SpreadPlan | None:
        split = self._split(self._fewest, area, units)
        if split is not None and split.is_proven and (self._is_count or self._is_least(split, area, units)):
            return split
        if split is not None and self._least_of_fullest(area, units) > split.cost:
            return split
        fullest = self._fullest(area, units)
        if split is None or (fullest is not None and fullest.cost <= split.cost):
            return fullest._replace(is_proven=split is not None and split.is_proven) if fullest else None
        return split

    def _split(self, fewest: FewestDomains, area: Area, units: int) -> SpreadPlan | None:
        split = fewest.split(area, units)
        costs = [self._with_use(child, given) for child, given in split.parts]
        known = [cost for cost in costs if cost is not None]
        return SpreadPlan(sum(known), split.parts, None, split.is_proven) if len(known) == len(costs) else None

    def _is_least(self, split: SpreadPlan, area: Area, units: int) -> bool:
        """Whether nothing costs less than the fewest domains: where a node costs the same whatever it gives, and they
        have no more nodes than the area's largest ones would be."""
        return self._hosts.is_uniform and self._room.hosts_of(split.cost) == self._hosts.fewest(area, units)

    def _in_order(self, area: Area) -> tuple[list[Area], list[int]]:
        """The children that give something, the fullest first, and minus what they give."""
        found = self._ordered.get(area)
        if found is None:
            capacity = self._room.capacity
            able = sorted(filter(capacity, area.children), key=capacity, reverse=True)
            found = self._ordered[area] = able, [-capacity(child) for child in able]
        return found

    def _least_of_fullest(self, area: Area, units: int) -> int:
        """What the fullest first cannot cost less than: the use of the domains that give all they have."""
        if self._hosts.has_gaps(area):
            return 0
        least = 0
        left, minus = self._in_order(area)
        for start, child in enumerate(left):
            if room := left[start : bisect_right(minus, -units, lo=start)]:
                return least + min(map(self._room.used, room))
            least, units = least + self._used_whole(child), units + minus[start]
        return least

    def _used_whole(self, area: Area) -> int:
        """What it costs to use an area and every domain in it."""
        inside = self._whole.get(area)
        if inside is None:
            able = filter(self._room.capacity, area.children)
            inside = self._whole[area] = sum(map(self._used_whole, able))
        return self._room.used(area) + inside

    def _fullest(self, area: Area, units: int) -> SpreadPlan | None:
        """Whole domains, the largest first, and the rest in the one that suits it best."""
        left, minus = self._in_order(area)
        parts: list[tuple[Area, int]] = []
        total, refused = 0, 0
        for start, child in enumerate(left):
            # Where none of the fullest could give just so many, none of those that are left can.
            room = left[start : bisect_right(minus, -units, lo=start)] if units != refused else ()
            last = self._cheapest(room, units) if room else None
            if last is not None:
                return SpreadPlan(total + last, tuple(parts), Rest(room, units, last), is_proven=False)
            refused = units
            most = -minus[start]  # of every node in it the most that it can give
            if units < most:
                most = self.change.most(child, units) if self._hosts.has_gaps(child) else units
            cost = self._with_use(child, most) if most else None
            if cost is not None:
                parts.append((child, most))
                total, units = total + cost, units - most
        return None
