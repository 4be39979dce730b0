"""The nodes of one domain: what units of them cost, and which are taken."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from closeknit.placement.candidates.usable_areas import Area, Members, OfferNumber
from closeknit.placement.spread.cost import PackedCost, Scale
from closeknit.placement.spread.min_sums import Pick, SumEntry, certain, cheapest_sums, named_sums

Units = Mapping[int, PackedCost]  # how much a node can give, ascending, each with its cost

LAST_RESORT_STEPS = 200_000  # combinations tried before a refusal, which may be false otherwise: 20 ms


class NodeClass(NamedTuple):
    """Nodes that are filled one after the other, by name."""

    most: int
    """What each can give."""
    cost: int
    """Of that."""
    nodes: int
    table: int | None
    """The number of what they give for what; None where that differs."""
    members: tuple[Members, ...]


class LeafNodes:
    """What the nodes of each offer give."""

    def __init__(self, scale: Scale, *, is_equal: bool, is_exact: bool, is_uniform: bool) -> None:
        """Where they are uniform, a node costs what a host costs, and no more."""
        self._units: dict[OfferNumber, Units] = {}
        self.is_equal = is_equal
        self.is_uniform = is_uniform
        self.offers = 0
        """Mask of the offers that can give anything, by number."""
        self._gaps = 0
        """Of those that give only some of the numbers up to their most."""
        self._is_exact = is_exact
        self._most: dict[OfferNumber, int] = {}
        self._ranks: dict[OfferNumber, tuple[int, int]] = {}
        """Offer -> (minus the most that a node gives, its cost): the order in which nodes are filled."""
        self._prices: dict[OfferNumber, int] = {}
        self._different: dict[object, int] = {}
        self._tables_of: dict[OfferNumber, int] = {}
        """Offer -> a number that is equal for offers that give the same for the same."""
        self.uniform = scale.of_host if is_equal and is_uniform else None
        """What one unit costs, where each node gives one and all cost the same."""
        self._ranked: dict[Area, tuple[NodeClass, ...]] = {}
        self._fullest: dict[tuple[Area, int], tuple[int, tuple[Pick, ...]] | None] = {}

    def add(self, offer: OfferNumber, units: Units) -> None:
        """Has nodes of an offer give these units."""
        self._units[offer] = units
        self.offers |= 1 << offer
        most = self._most[offer] = max(units)
        if len(units) < most:
            self._gaps |= 1 << offer
        self._ranks[offer] = (-most, units[most])
        self._tables_of[offer] = self._different.setdefault(tuple(units.items()), len(self._different))
        if self.is_equal:
            self._prices[offer] = units[1]

    def forget_names(self) -> None:
        """Throws away what is of little use to another decision."""
        self._ranked, self._fullest = {}, {}

    def _able(self, area: Area) -> list[Members]:
        return [entry for entry in area.members if entry.offer in self._units]

    def units(self, offer: OfferNumber) -> Units:
        """What each node of an offer gives, and for what; nothing where it gives nothing."""
        return self._units.get(offer, {})

    def has_gaps(self, area: Area) -> bool:
        """Whether nodes of an area give only some of the numbers up to their most."""
        return bool(area.offers & self._gaps)

    def capacity(self, area: Area) -> int:
        """How many units the nodes can give together."""
        most, total = self._most, 0
        for offer, nodes, _ in area.members:
            if offer in most:
                total += nodes * most[offer]
        return total

    def fewest(self, area: Area, units: int) -> int:
        """No fewer nodes of an area than this give so many, wherever they are in it."""
        nodes: dict[int, int] = {}
        for offer, number in area.counted():
            if offer in self._most:
                nodes[self._most[offer]] = nodes.get(self._most[offer], 0) + number
        fewest = 0
        for most in sorted(nodes, reverse=True):
            taken = min(nodes[most], -(-units // most))
            fewest, units = fewest + taken, units - taken * most
            if units <= 0:
                break
        return fewest

    def most(self, area: Area) -> list[int]:
        """The most that each of the nodes can give."""
        found: list[int] = []
        for offer, nodes, _ in area.members:
            most = self._most.get(offer)
            if most is not None:
                found += [most] * nodes
        return found

    def content(self, area: Area) -> object:
        """Equal for domains of which every number of units costs the same."""
        if self.uniform is not None:
            return self.capacity(area)
        if self.is_equal:
            return self._ladder(area)
        if len(area.members) == 1:  # as of a lone node
            offer, nodes, _ = area.members[0]
            return ((self._tables_of[offer], nodes),) if offer in self._tables_of else ()
        classes = self._classes(area)
        if all(entry.table is not None for entry in classes):
            return tuple((entry.table, entry.nodes) for entry in classes)
        return area  # which of two equal offers goes first depends on names

    def cost(self, area: Area, units: int) -> int | None:
        """What the cheapest units cost, of no more than `capacity`; None where they do not add up."""
        if self.uniform is not None:
            return self.uniform * units
        if self.is_equal:
            total = 0
            for cost, count in self._ladder(area):
                taken = min(count, units)
                total, units = total + cost * taken, units - taken
                if not units:
                    break
            return total
        if not self._is_exact:
            found = self._fullest_cost(area, units)
            if found is not None:
                return found
            if not self._is_worth_trying(area, units):
                return None
        return cheapest_sums([table for entry in self._able(area) for table in self._tables(entry)], units)[units]

    def picks(self, area: Area, units: int) -> tuple[Pick, ...]:
        """The nodes that give them, by name."""
        if self.is_equal:
            return self._cheapest_nodes(area, units)
        if not self._is_exact:
            found = self._fullest_hosts(area, units)
            if found is not None:
                return tuple(sorted(found[1]))
        tables = [
            [SumEntry(given, cost, ((name, given, entry.offer),)) for given, cost in self._units[entry.offer].items()]
            for entry in self._able(area)
            for name in entry.ascending()
        ]
        return certain(named_sums(tables, units)[units], units)

    def _tables(self, entry: Members) -> Iterator[Sequence[tuple[int, int]]]:
        table = list(self._units[entry.offer].items())
        yield from (table for _ in range(entry.nodes))

    def _ladder(self, area: Area) -> tuple[tuple[int, int], ...]:
        """(cost of a unit, how many there are), the cheapest first."""
        prices, ladder = self._prices, dict[int, int]()
        for offer, nodes, _ in area.members:
            price = prices.get(offer)
            if price is not None:
                ladder[price] = ladder.get(price, 0) + nodes
        return tuple(sorted(ladder.items()))

    def _cheapest_nodes(self, area: Area, units: int) -> tuple[Pick, ...]:
        by_cost: dict[int, list[Members]] = {}
        for entry in self._able(area):
            by_cost.setdefault(self._units[entry.offer][1], []).append(entry)
        found: list[Pick] = []
        for _, entries in sorted(by_cost.items()):
            left = units - len(found)
            if len(entries) == 1:
                found += ((name, 1, entries[0].offer) for name in islice(entries[0].ascending(), left))
            else:
                found += ((name, 1, offer) for name, offer in _nodes(entries)[:left])
            if len(found) == units:
                break
        return tuple(sorted(found))

    def _is_worth_trying(self, area: Area, units: int) -> bool:
        """Whether the units can add up at all, in so few steps that it is tried: the fullest first may leave a rest
        that no node gives."""
        able = self._able(area)
        if sum(entry.nodes * len(self._units[entry.offer]) for entry in able) * units > LAST_RESORT_STEPS:
            return False
        sums = 1  # bit n: n units can be had
        within = (1 << (units + 1)) - 1
        for entry in able:
            for _ in range(entry.nodes):
                more = sums
                for given in self._units[entry.offer]:
                    more |= sums << given
                more &= within
                if more == sums:
                    break
                sums = more
        return bool(sums >> units & 1)

    def _classes(self, area: Area) -> tuple[NodeClass, ...]:
        """The nodes in the order in which they are filled: those that give the most first, of these the cheapest."""
        found = self._ranked.get(area)
        if found is None:
            ranked: dict[tuple[int, int], list[Members]] = {}
            for entry in area.members:
                rank = self._ranks.get(entry.offer)
                if rank is not None:
                    ranked.setdefault(rank, []).append(entry)
            found = self._ranked[area] = tuple(
                NodeClass(-rank[0], rank[1], *self._together(ranked[rank])) for rank in sorted(ranked)
            )
        return found

    def _together(self, entries: list[Members]) -> tuple[int, int | None, tuple[Members, ...]]:
        nodes, table = 0, self._tables_of[entries[0].offer]
        is_one = True
        for entry in entries:
            nodes += entry.nodes
            is_one = is_one and self._tables_of[entry.offer] == table
        return nodes, table if is_one else None, tuple(entries)

    def _fullest_cost(self, area: Area, units: int) -> int | None:
        """What `_fullest_hosts` costs, without names where they cannot matter."""
        classes = self._classes(area)
        if any(entry.table is None for entry in classes):
            found = self._fullest_hosts(area, units)
            return found[0] if found else None
        total = 0
        looked_for = 0
        for number, entry in enumerate(classes):
            left = entry.nodes
            units_of = self._units[entry.members[0].offer]
            if units > entry.most:
                taken = min(left, -((units - entry.most) // -entry.most))
                total, units, left = total + taken * entry.cost, units - taken * entry.most, left - taken
            while left:
                if looked_for != units:
                    looked_for = units
                    costs = [
                        self._units[other.offer][units]
                        for later in classes[number:]
                        for other in later.members
                        if units in self._units[other.offer]
                    ]
                    if costs:
                        return total + min(costs)
                given = max((given for given in units_of if given < units), default=0)
                if not given:
                    break
                total, units, left = total + units_of[given], units - given, left - 1
        return None

    def _fullest_hosts(self, area: Area, units: int) -> tuple[int, tuple[Pick, ...]] | None:
        key = (area, units)
        if key not in self._fullest:
            self._fullest[key] = self._filled(area, units)
        return self._fullest[key]

    def _filled(self, area: Area, units: int) -> tuple[int, tuple[Pick, ...]] | None:
        """The most that each node can give, the largest first, and the rest from the one that suits it best."""
        classes = self._classes(area)
        total = 0
        picks: list[Pick] = []
        looked_for = 0
        for number, (most, cost, _, _, members) in enumerate(classes):
            nodes = _nodes(members)
            at = 0
            if units > most:  # nobody gives all of it yet
                at = min(len(nodes), -((units - most) // -most))
                total, units = total + at * cost, units - at * most
                picks += ((name, most, offer) for name, offer in nodes[:at])
            while at < len(nodes):
                if looked_for != units:
                    looked_for = units
                    rest = [entry for later in classes[number + 1 :] for entry in later.members]
                    last = self._last(nodes[at:], rest, units)
                    if last is not None:
                        return total + last[0], (*picks, (last[1], units, last[2]))
                name, offer = nodes[at]
                at += 1
                given = max((given for given in self._units[offer] if given < units), default=0)
                if given:
                    total, units = total + self._units[offer][given], units - given
                    picks.append((name, given, offer))
        return None

    def _last(
        self, nodes: Sequence[tuple[str, OfferNumber]], later: Sequence[Members], units: int
    ) -> tuple[int, str, OfferNumber] | None:
        """The cheapest node that gives exactly so many units, of equal cost the first, as (cost, name, offer)."""
        found: list[tuple[int, str, OfferNumber]] = []
        seen: set[int] = set()
        for name, offer in nodes:
            if offer not in seen:
                seen.add(offer)
                if units in self._units[offer]:
                    found.append((self._units[offer][units], name, offer))
        for entry in later:
            if units in self._units[entry.offer]:
                found.append((self._units[entry.offer][units], min(run[0] for run in entry.names), entry.offer))
        return min(found, default=None)


def _nodes(entries: Sequence[Members]) -> list[tuple[str, OfferNumber]]:
    """(name, offer) of all these nodes, ascending."""
    return sorted((name, entry.offer) for entry in entries for name in entry.ascending())
