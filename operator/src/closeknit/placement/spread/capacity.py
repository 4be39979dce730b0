"""What the domains of one search hold: how many units, what using them costs, and which of them are alike."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from closeknit.placement.candidates.usable_areas import Area
from closeknit.placement.spread.cost import Scale
from closeknit.placement.spread.leaf import LeafNodes

# Counted by cProfile on 5,000 nodes with 60 % of their GPUs held: the bound over all levels makes 15,400 calls of the
# 9,600 of a search for one GPU, and 20,300 of 15,700 for 64. For 509 GPUs over twelve levels it spares more than half.
FEW_UNITS = 64


class Capacity:
    """Facts of areas, remembered also when an area is no longer in the tree."""

    def __init__(self, hosts: LeafNodes, scale: Scale, *, counts_free: bool) -> None:
        self._hosts = hosts
        self._scale = scale
        self._counts_free = counts_free
        innermost = len(scale.of_domain)
        self._uses = [(scale.of_domain[level], scale.of_free_gpu[level]) for level in range(innermost)]
        """Of an area at each level: for itself, and for each free GPU in it."""
        self._lone_uses = [(sum(scale.of_domain[level:]), sum(scale.of_free_gpu[level:])) for level in range(innermost)]
        self._innermost = innermost - 1
        self._capacities: dict[Area, int] = {}
        self._reached: dict[Area, list[int]] = {}
        self._inside: dict[Area, list[tuple[int, list[int]]]] = {}
        self._contents: dict[Area, int] = {}
        self._numbers: dict[object, int] = {}
        self._lone: dict[tuple[int, int], int] = {}
        """Of a lone node of an offer at a level."""

    def capacity(self, area: Area) -> int:
        """How many units an area can give at most."""
        found = self._capacities.get(area)
        if found is None:
            if not area.offers & self._hosts.offers:
                found = 0
            elif area.children:
                found = sum(map(self.capacity, area.children))
            else:
                found = self._hosts.capacity(area)
            self._capacities[area] = found
        return found

    @property
    def areas(self) -> int:
        """How many areas it remembers."""
        return len(self._capacities)

    def used(self, area: Area) -> int:
        """What it costs to use an area, at its level and, where it is lone, at those inside."""
        domains, free_gpu = (self._lone_uses if area.is_lone else self._uses)[area.level]
        return domains + free_gpu * area.free_gpus if self._counts_free else domains

    def hosts_of(self, cost: int) -> int:
        """How many nodes a cost counts."""
        return self._scale.domains(cost)[-1]

    def content(self, area: Area) -> int:
        """A number that is equal for areas of which every spread costs the same."""
        found = self._contents.get(area)
        if found is None:
            lone = (area.level, area.members[0].offer) if area.is_lone else None
            if lone is not None and lone in self._lone:
                found = self._contents[area] = self._lone[lone]
                return found
            inside: object = (
                tuple(self.content(child) for child in area.children if self.capacity(child))
                if area.children
                else self._hosts.content(area)
            )
            key = (area.level, area.is_lone, area.free_gpus if self._counts_free else 0, inside)
            found = self._contents[area] = self._numbers.setdefault(key, len(self._numbers))
            if lone is not None:
                self._lone[lone] = found
        return found

    def fewest(self, area: Area, units: int) -> int:
        """No fewer children than this hold so many units."""
        if self._hosts.is_equal and not area.children:
            return units
        return bisect_left(self.sums(area), units) + 1

    def most_of(self, area: Area, number: int) -> int:
        """What so many of its children hold at most."""
        return self.sums(area)[number - 1]

    def able(self, children: Sequence[Area], units: int) -> list[tuple[int, Area]]:
        """(what it costs at least to use it for so many units, child) of those children that hold so much, the least
        first."""
        able = [
            (self.at_least(child, units) + (self._lone_uses if child.is_lone else self._uses)[child.level][0], child)
            for child in children
            if self.capacity(child) >= units
        ]
        return sorted(able, key=lambda entry: entry[0])

    def is_above(self, least: int, cost: int) -> bool:
        """Whether what costs at least so much certainly costs more than that: what lies below a host may be less than
        nothing."""
        return least - cost > self._scale.of_host // 2

    def at_least(self, area: Area, units: int) -> int:
        """What so many units inside an area, which holds them, cost at least in domains and hosts: of each level as
        many as the largest must be. Of few units the next level tells as much, and is at hand."""
        if units <= FEW_UNITS:
            inside = sum(self._uses[level][0] for level in range(area.level + 1, self._innermost + 1))
            return self.fewest(area, units) * (self._scale.of_host + (inside if area.children else 0))
        hosts = self._hosts.fewest(area, units) if area.children else self.fewest(area, units)
        domains = (of_domain * (bisect_left(sums, units) + 1) for of_domain, sums in self._levels(area))
        return hosts * self._scale.of_host + sum(domains)

    def _levels(self, area: Area) -> list[tuple[int, list[int]]]:
        """(what a domain costs, `sums` of all of them) of each level inside an area."""
        found = self._inside.get(area)
        if found is None:
            found = self._inside[area] = []
            inside: Sequence[Area] = area.children
            for level in range(area.level + 1, self._innermost + 1 if inside else 0):
                held = accumulate(sorted(map(self.capacity, inside), reverse=True))
                found.append((self._uses[level][0], list(held)))
                inside = [deeper for child in inside for deeper in child.children or (child,)]
        return found

    def sums(self, area: Area) -> list[int]:
        """What its first child holds, its first two, …, the fullest first."""
        reached = self._reached.get(area)
        if reached is None:
            capacities = map(self.capacity, area.children) if area.children else self._hosts.most(area)
            reached = self._reached[area] = list(accumulate(sorted(capacities, reverse=True)))
        return reached

    def likeness(self, area: Area) -> tuple[object, ...]:
        """Equal for areas that hold the same, wherever it is inside them."""
        if area.children:
            return tuple(sorted((child.free_gpus, self.likeness(child)) for child in area.children))
        found: tuple[object, ...] = tuple(
            sorted((entry.offer, entry.nodes) for entry in area.members if self._hosts.offers >> entry.offer & 1)
        )
        for _ in range(area.level, self._innermost if area.is_lone else area.level):
            found = ((area.free_gpus, found),)
        return found
