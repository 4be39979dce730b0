"""The cheapest way to spread a gang over the tree of domains.

Costs are compared from the left: first how many domains of the outermost level are used, then of the next, and so on
down to hosts; then whatever else a share costs. Nodes give units, of which the gang needs a number:

    root ── b1 ── r1 ── gpu-01: 1 unit for (0, 0, 1, …)
         │     └─ r2 ── gpu-02: 1 unit
         └─ b2 ── r3 ── gpu-03: 1 unit

What a spread costs is worked out first, once for all domains of one content; which nodes it takes only for those that
win. Of spreads that cost the same the one with the first nodes is taken, and of domains that are alike the first one.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from closeknit.placement.candidates.usable_areas import Area, OfferMask, OfferNumber, numbers_of
from closeknit.placement.spread.capacity import Capacity
from closeknit.placement.spread.cost import PackedCost, Scale
from closeknit.placement.spread.domain_counts import Alike, FewestDomains
from closeknit.placement.spread.greedy import SpreadPlans
from closeknit.placement.spread.leaf import LeafNodes, Units
from closeknit.placement.spread.min_sums import Pick, SumEntry, certain, cheapest_sums, named_sums, of_cheapest

# Beyond these sizes it is the fewest of each (domain_counts.py), or the fullest first, which need not be the cheapest:
# combinations tried for one domain (about 2 ms), and nodes that may give unequal shares.
EXACT_STEPS = 20_000
EXACT_NODES = 16
MANY_TIMES, FEW_AREAS = 2, 256  # so many areas are remembered: times those of the tree, and on top
MANY_COSTS = 1 << 16  # are remembered beyond one decision: any user may ask for any number of GPUs
FEW_SIZES = 4  # so many sums of a domain are worked out one by one, more of them together

# What may be wrong with a cost that was found, as bits: there may be a spread over fewer domains, or one over as few
# and fewer nodes.
DOUBTED, LAVISH = 1, 2


class Spread(NamedTuple):
    """Which nodes give how much."""

    picks: tuple[Pick, ...]
    """By node."""
    is_proven: bool
    """Whether they need the fewest domains, and in these the fewest nodes, for certain."""


class Filling:
    """One search over the tree: which nodes give how much. It follows the tree from version to version, and what it
    knows of areas that stand it does not work out again."""

    def __init__(
        self,
        scale: Scale,
        alike: Alike,
        most_steps: tuple[int, ...],
        *,
        is_equal: bool,
        is_exact: bool,
        counts_hosts: bool,
        counts_free: bool = False,
    ) -> None:
        """What one area of each level may search, the root's first; whether each node gives one unit or none, whether
        so few nodes give anything that all combinations of unequal shares are tried, and whether of as few domains
        those are looked for in which fewer nodes do.

        Every used domain costs 1 at its level and, where it counts, its free GPUs.
        """
        self._is_exact = is_exact
        self._is_equal = is_equal
        self._counts_hosts = counts_hosts
        self._counts_free = counts_free
        self._scale = scale
        self._alike = alike
        self._innermost = len(scale.of_domain) - 1
        self._most_steps = most_steps
        self._forget()

    def _forget(self) -> None:
        self._hosts = LeafNodes(
            self._scale, is_equal=self._is_equal, is_exact=self._is_exact, is_uniform=not self._counts_free
        )
        self._room = Capacity(self._hosts, self._scale, counts_free=self._counts_free)
        fewest = partial(FewestDomains, self._room, self._innermost, self._alike, self._most_steps)
        self._plans = SpreadPlans(
            self._hosts,
            self._room,
            fewest(counts_hosts=False),
            fewest(counts_hosts=True) if self._counts_hosts else None,
            with_use=self._with_use,
            cheapest=self._cheapest,
            is_count=self._hosts.uniform is not None,
        )
        self._seen = 0
        self._costs: dict[tuple[int, int], int | None] = {}
        self._heaped: set[tuple[int, int]] = set()
        """Which of them are what a heap costs that was made up of all nodes."""
        self._doubts_of: dict[tuple[int, int], int] = {}
        """Of those costs that are not certain, what may be wrong: their own doubts, and those of all that they were
        made up of, whatever was asked before."""
        self._doubts = 0
        """Of what is being worked out, so far."""
        self._is_proven = True
        """Of what is being picked, so far: whether it needs the fewest for certain."""
        self._sums: dict[int, list[int | None]] = {}
        self._named: dict[Area, list[tuple[Pick, ...] | None]] = {}

    def follow(self, root: Area, offers: OfferMask, units_of: Callable[[OfferNumber], Units]) -> None:
        """From now on the search is in the tree below this root, where the offers of this mask give anything.

        What an offer gives is asked once, and is always the same.
        """
        is_mostly_gone = self._room.areas > MANY_TIMES * root.areas + FEW_AREAS
        if is_mostly_gone or len(self._costs) > MANY_COSTS:  # all at once: costs rest on the numbers of contents
            self._forget()
        for number in numbers_of(offers & ~self._seen):
            self._hosts.add(number, units_of(number))
        self._seen |= offers
        self._root = root
        self._named = {}
        self._plans.forget()
        self._hosts.forget_names()

    @property
    def capacity(self) -> int:
        """How many units there are at all."""
        return self._room.capacity(self._root)

    def cost(self, units: int) -> PackedCost | None:
        """What the cheapest spread of so many units costs; None where there is none."""
        cost = self._exactly(self._root, units)
        return None if cost is None else PackedCost(cost)

    def may_cost(self, units: int, cost: PackedCost) -> bool:
        """Whether so few domains may hold so many units: at each level the largest of them do. It costs a hundredth of
        the search for what they really cost."""
        return self._may_hold(self._root, self._scale.domains(cost), units)

    def _may_hold(self, area: Area, fewest: Sequence[int], units: int) -> bool:
        """Whether so many domains of each level inside an area may hold them. Where it is one domain, the further ones
        are inside that."""
        inside = area.children or (area,)
        if fewest and fewest[0] == 1:
            able = (child for child in inside if self._room.capacity(child) >= units)
            return any(self._may_hold(child, fewest[1:], units) for child in able)
        for most in fewest:
            if sum(sorted(map(self._room.capacity, inside), reverse=True)[:most]) < units:
                return False
            inside = tuple(deeper for child in inside for deeper in child.children or (child,))
        return True

    def costs_more(self, units: int, cost: PackedCost) -> bool:
        """Whether so many units, of no more than there are, certainly need more domains or hosts than that."""
        return self._room.is_above(self._room.at_least(self._root, units), cost)

    def is_least(self, units: int) -> bool:
        """Whether for certain no spread needs fewer domains than what this many cost; hosts it may. Their cost was
        asked."""
        return not self._doubts_about(units) & DOUBTED

    def spread(self, units: int) -> Spread:
        """The cheapest spread of so many units. There is one, and its cost was asked."""
        self._is_proven = True
        picks = self._picks(self._root, units)
        is_lavish = self._doubts_about(units) & LAVISH and len(picks) > self._hosts.fewest(self._root, units)
        return Spread(picks, self._is_proven and not is_lavish)

    def _doubts_about(self, units: int) -> int:
        return self._doubts_of.get((self._room.content(self._root), units), 0)

    def _exactly(self, area: Area, units: int) -> int | None:
        """What the cheapest spread of exactly these units inside one area costs, but for using the area."""
        if units > self._room.capacity(area):
            return None
        key = (self._room.content(area), units)
        try:
            found = self._costs[key]
        except KeyError:
            outside, self._doubts = self._doubts, 0
            found = self._costs[key] = self._worked_out(area, units)
            if self._doubts:
                self._doubts_of[key] = self._doubts
            self._doubts |= outside
            return found
        if self._doubts_of:
            self._doubts |= self._doubts_of.get(key, 0)
        return found

    def _worked_out(self, area: Area, units: int) -> int | None:
        found = self._over_children(area, units) if area.children else self._hosts.cost(area, units)
        has_gaps = self._hosts.has_gaps(area)
        if has_gaps:
            self._doubts |= DOUBTED | LAVISH
        if found is not None or not has_gaps:
            return found
        if self._is_exact and (not area.children or self._is_combined(area, units)):
            return None
        heap = self._plans.change.heap(area, units)
        if heap is None:
            return None
        self._heaped.add((self._room.content(area), units))
        return heap.cost

    def _with_use(self, area: Area, units: int) -> int | None:
        cost = self._exactly(area, units)
        return None if cost is None else cost + self._room.used(area)

    def _cheapest(self, children: Sequence[Area], units: int) -> int | None:
        """What the cheapest spread inside one of these children costs, with its use.

        A child that must use more domains or hosts than the best one so far is not tried.
        """
        best: int | None = None
        tried: set[int] = set()
        for least, child in self._room.able(children, units):
            if best is not None and self._room.is_above(least, best):
                break
            content = self._room.content(child)
            if content not in tried:
                tried.add(content)
                cost = self._with_use(child, units)
                if cost is not None and (best is None or cost < best):
                    best = cost
        return best

    def _steps(self, area: Area, units: int) -> int:
        return sum(min(self._room.capacity(child), units) for child in area.children) * units

    def _is_combined(self, area: Area, units: int) -> bool:
        """Whether all combinations of an area's children are tried."""
        return (self._is_equal or self._is_exact) and self._steps(area, units) <= EXACT_STEPS

    def _over_children(self, area: Area, units: int) -> int | None:
        if units == self._room.capacity(area):
            return self._whole(area)
        # One child is cheaper than any two, since it counts 1 at its level and the levels inside come later.
        alone = self._cheapest(area.children, units)
        if alone is not None:
            return alone
        if not self._is_combined(area, units):
            plan = self._plans.plan(area, units)
            if plan is None or not plan.is_proven:
                self._doubts |= DOUBTED
            if plan is not None and not plan.is_frugal:
                self._doubts |= LAVISH
            return plan.cost if plan else None
        if self._hosts.uniform is not None and not self._counts_free and area.level + 1 == self._innermost:
            return self._fewest_children(area, units)
        known = self._sums.get(self._room.content(area))
        if known is not None and len(known) > units:
            return known[units]
        least = self._least(area, units)
        tables = [self._table(child, least, units) for child in area.children if self._room.capacity(child) >= least]
        return cheapest_sums(tables, units)[units]

    def _whole(self, area: Area) -> int | None:
        """What it costs that every node inside an area gives its most: nothing is left to choose."""
        capacity = self._room.capacity
        costs = [self._with_use(child, most) for child in area.children if (most := capacity(child))]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    def _table(self, child: Area, least: int, most: int) -> list[tuple[int, int]]:
        """(units, cost with the child's use) of everything that a child gives within these bounds, ascending."""
        sizes = range(min(self._room.capacity(child), most), least - 1, -1)
        if len(sizes) > FEW_SIZES:
            self._sums_over(child, self._most_combined(child, sizes.start))
        return [(given, cost) for given in sizes if (cost := self._with_use(child, given)) is not None][::-1]

    def _least(self, area: Area, units: int) -> int:
        """No child gives less than this to the cheapest spread over the children: it uses the fewest children.

        Where each child gives any number up to its capacity, the fewest can be had, and each of them must give what
        the largest others leave.
        """
        if not self._is_equal:
            return 1
        fewest = self._room.fewest(area, units)
        return max(1, units - self._room.most_of(area, fewest - 1)) if fewest > 1 else units

    def _fewest_children(self, area: Area, units: int) -> int:
        """The same where every unit costs the same and only the number of children is left to choose."""
        return self._room.fewest(area, units) * self._room.used(area.children[0]) + units * (self._hosts.uniform or 0)

    def _most_combined(self, area: Area, units: int) -> int:
        """The most units, up to these, for which all combinations of an area's children are tried; 0 for none."""
        if not area.children or not (self._is_equal or self._is_exact):
            return 0
        return bisect_right(range(1, units + 1), EXACT_STEPS, key=lambda given: self._steps(area, given))

    def _sums_over(self, area: Area, units: int) -> None:
        """Works out the cheapest combinations of an area's children for every number of units up to this."""
        if not units or (self._hosts.uniform is not None and not self._counts_free):
            return
        key = self._room.content(area)
        known = self._sums.get(key)
        if known is None or len(known) <= units:
            tables = [self._table(child, 1, units) for child in area.children if self._room.capacity(child)]
            self._sums[key] = cheapest_sums(tables, units)

    def _picks(self, area: Area, units: int) -> tuple[Pick, ...]:
        """The nodes of the cheapest spread of exactly these units inside one area, by name."""
        if (self._room.content(area), units) in self._heaped:
            self._is_proven = False
            return certain(self._plans.change.heap(area, units), units).picks
        if not area.children:
            return self._hosts.picks(area, units)
        if units == self._room.capacity(area):
            inside = ((child, most) for child in area.children if (most := self._room.capacity(child)))
            return tuple(sorted(pick for child, most in inside for pick in self._picks(child, most)))
        alone = self._cheapest(area.children, units)
        if alone is not None:
            return self._picks_of_one(area.children, units, alone)
        if self._is_combined(area, units):
            return certain(self._named_over(area, units, self._least(area, units))[units], units)
        plan = certain(self._plans.plan(area, units), units)
        self._is_proven = self._is_proven and plan.is_proven
        found = [pick for child, given in plan.parts for pick in self._picks(child, given)]
        if plan.rest:
            found += self._picks_of_one(plan.rest.room, plan.rest.units, plan.rest.cost)
        return tuple(sorted(found))

    def _picks_of_one(self, children: Sequence[Area], units: int, cost: int) -> tuple[Pick, ...]:
        """The first nodes among the children of this cost; of children that are alike the first is taken."""
        ties: dict[object, Area] = {}
        for least, child in self._room.able(children, units):
            if self._room.is_above(least, cost):
                break
            if self._with_use(child, units) == cost:
                ties.setdefault((child.free_gpus, self._room.likeness(child)), child)
        return min(self._picks(child, units) for child in ties.values())

    def _named_over(self, area: Area, units: int, least: int) -> list[tuple[Pick, ...] | None]:
        """The nodes of the cheapest combinations of an area's children, each of which gives at least so much."""
        known = self._named.get(area)
        if known is not None and len(known) > units:
            return known
        able = [child for child in area.children if self._room.capacity(child) >= least]
        tables = [self._table(child, least, units) for child in able]
        if least > 1:  # only the whole is asked for
            tables = of_cheapest(tables, units)
        elif units - least >= FEW_SIZES:
            for child in able:
                if most := self._most_combined(child, min(self._room.capacity(child), units)):
                    self._named_over(child, most, 1)
        found = named_sums(
            [
                [SumEntry(given, cost, self._picks(child, given)) for given, cost in table]
                for child, table in zip(able, tables, strict=True)
            ],
            units,
        )
        if least == 1:
            self._named[area] = found
        return found
