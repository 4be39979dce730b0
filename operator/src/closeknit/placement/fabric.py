"""The domains of the network as a tree, and the cheapest way to spread a gang over it.

Costs are vectors, compared from the left: first how many domains of the outermost level are used, then of the next,
and so on down to hosts; then whatever the caller counts. Nodes give units, of which the gang needs a number:

    root ── b1 ── r1 ── gpu-01: 1 unit for (0, 0, 1, …)
         │     └─ r2 ── gpu-02: 1 unit
         └─ b2 ── r3 ── gpu-03: 1 unit
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import NamedTuple

Cost = tuple[float, ...]
Units = Mapping[int, Cost]  # what a node can give, each with its cost

# Beyond these sizes the fullest domains, and nodes, are filled first, which is the fewest of each but need not be the
# cheapest: combinations tried for one domain (about 50 ms), and nodes that may give unequal shares.
EXACT_STEPS = 20_000
LAST_RESORT_STEPS = 200_000  # before a refusal, which may be false otherwise; 0.1 s for 162,000
EXACT_NODES = 16


class Spread(NamedTuple):
    """Units of some nodes, and what they cost together. Spreads compare by cost, then by nodes."""

    cost: Cost
    picks: tuple[tuple[int, int], ...]
    """(node, units), by node."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain of one level; shared read-only between searches."""

    level: int
    """-1 for the root."""
    free_gpus: int
    children: tuple[Domain, ...]
    hosts: tuple[int, ...]
    """Nodes, where the next level is the host; ascending."""


def tree(nodes: Sequence[tuple[Sequence[str], int]]) -> Domain:
    """The tree of nodes, given as (domains outermost first and host last, free GPUs), by name; they are numbered so."""
    depth = len(nodes[0][0]) if nodes else 1

    def grow(level: int, members: Sequence[int]) -> Domain:
        free = sum(nodes[member][1] for member in members)
        if level + 1 >= depth - 1:
            return Domain(level, free, (), tuple(members))
        inside: dict[str, list[int]] = {}
        for member in members:
            inside.setdefault(nodes[member][0][level + 1], []).append(member)
        return Domain(level, free, tuple(grow(level + 1, found) for found in inside.values()), ())

    return grow(-1, range(len(nodes)))


class Filling:
    """One search over the tree: which nodes give how much."""

    def __init__(
        self,
        root: Domain,
        offers: Mapping[int, Units],
        *,
        free_at: int | None = None,
        whole_at: int | None = None,
        whole_units: int = 1,
    ) -> None:
        """`offers` has every node that can give anything, with costs that begin with a count for each level.

        Every used domain counts 1 at its level and, where `free_at` is given, its free GPUs at `free_at` + level.
        A domain of level `whole_at` gives only multiples of `whole_units`.
        """
        self._root = root
        self._offers = offers
        self._free_at = free_at
        self._whole_at = whole_at
        self._whole_units = whole_units
        some = next(iter(offers.values()), {})
        self._nothing: Cost = (0,) * len(next(iter(some.values()), ()))
        # Many nodes share one offer; each different one gets a number.
        kinds: dict[int, int] = {}
        self._offer_of = {host: kinds.setdefault(id(units), len(kinds)) for host, units in offers.items()}
        different = {self._offer_of[host]: units for host, units in offers.items()}
        self._equal = all(tuple(units) == (1,) for units in different.values())
        self._most = {number: max(units) for number, units in different.items()}
        self._capacities: dict[int, int] = {}
        self._sorted: dict[int, list[tuple[Cost, int]]] = {}
        self._signatures: dict[int, tuple[object, ...]] = {}

    def best(self, units: int) -> Spread | None:
        """The cheapest spread of so many units; None where there is none."""
        return self._exactly(self._root, units)

    def _capacity(self, domain: Domain) -> int:
        key = id(domain)
        found = self._capacities.get(key)
        if found is None:
            if domain.children:
                found = sum(map(self._capacity, domain.children))
            else:
                found = sum(self._most[self._offer_of[host]] for host in domain.hosts if host in self._offer_of)
            if domain.level == self._whole_at:
                found -= found % self._whole_units
            self._capacities[key] = found
        return found

    def _exactly(self, domain: Domain, units: int) -> Spread | None:
        """The cheapest spread of exactly these units inside one domain."""
        if units > self._capacity(domain) or (domain.level == self._whole_at and units % self._whole_units):
            return None
        if not domain.children:
            return self._over_equal_hosts(domain, units) if self._equal else self._over_hosts(domain, units)
        # One child is cheaper than any two, since it counts 1 at its level and the levels inside come later.
        alone = self._cheapest(domain.children, units)
        return alone if alone is not None else self._over_children(domain, units)

    def _cheapest(self, children: Iterable[Domain], units: int) -> Spread | None:
        """The cheapest spread inside one of these children; equal children are tried once, the first of them.

        A child that must use more domains of the next level than the best one so far is not tried.
        """
        able = [child for child in children if self._capacity(child) >= units]
        best: Spread | None = None
        tried = set()
        for fewest, child in sorted(
            ((self._fewest(child, units), child) for child in able), key=lambda entry: entry[0]
        ):
            if best is not None and fewest > best.cost[child.level + 1]:
                break
            alike = (child.free_gpus, self._signature(child))
            if alike in tried:
                continue
            tried.add(alike)
            spread = self._used(child, self._exactly(child, units))
            if spread is not None and (best is None or spread < best):
                best = spread
        return best

    def _fewest(self, domain: Domain, units: int) -> int:
        """No fewer children than this hold so many units."""
        if self._equal and not domain.children:
            return units
        capacities = [self._capacity(child) for child in domain.children] or [
            self._most[self._offer_of[host]] for host in domain.hosts if host in self._offers
        ]
        for number, capacity in enumerate(sorted(capacities, reverse=True), start=1):
            units -= capacity
            if units <= 0:
                return number
        return len(domain.children or domain.hosts) + 1

    def _signature(self, domain: Domain) -> tuple[object, ...]:
        """Equal for domains whose spreads cost the same."""
        key = id(domain)
        found = self._signatures.get(key)
        if found is None:
            if domain.children:
                found = tuple(sorted((child.free_gpus, self._signature(child)) for child in domain.children))
            else:
                found = tuple(sorted(self._offer_of[host] for host in domain.hosts if host in self._offer_of))
            self._signatures[key] = found
        return found

    def _used(self, domain: Domain, spread: Spread | None) -> Spread | None:
        """The spread with the cost of using its domain."""
        if spread is None:
            return None
        cost = list(spread.cost)
        cost[domain.level] += 1
        if self._free_at is not None:
            cost[self._free_at + domain.level] += domain.free_gpus
        return Spread(tuple(cost), spread.picks)

    def _over_equal_hosts(self, domain: Domain, units: int) -> Spread:
        cheapest = self._sorted.get(id(domain))
        if cheapest is None:
            offers = self._offers
            cheapest = sorted((offers[host][1], host) for host in domain.hosts if host in offers)
            self._sorted[id(domain)] = cheapest
        taken = cheapest[:units]
        return Spread(
            tuple(map(sum, zip(*(cost for cost, _ in taken), strict=True))),
            tuple(sorted((host, 1) for _, host in taken)),
        )

    def _over_hosts(self, domain: Domain, units: int) -> Spread | None:
        tables = [
            [(given, Spread(cost, ((host, given),))) for given, cost in sorted(self._offers[host].items())]
            for host in domain.hosts
            if host in self._offers
        ]
        if len(self._offers) <= EXACT_NODES:
            return _combined(tables, units, self._nothing)[units]
        found = self._fullest_hosts(tables, units)
        if found is None and sum(map(len, tables)) * units <= LAST_RESORT_STEPS:
            # The fullest first can end with a rest that no node gives.
            found = _combined(tables, units, self._nothing)[units]
        return found

    def _over_children(self, domain: Domain, units: int) -> Spread | None:
        children = [child for child in domain.children if self._capacity(child)]
        steps = sum(min(self._capacity(child), units) for child in children) * units
        if steps > EXACT_STEPS or not (self._equal or len(self._offers) <= EXACT_NODES):
            return self._fullest_children(children, units)
        tables = [
            [
                (given, spread)
                for given in range(1, min(self._capacity(child), units) + 1)
                if (spread := self._used(child, self._exactly(child, given))) is not None
            ]
            for child in children
        ]
        return _combined(tables, units, self._nothing)[units]

    def _fullest_children(self, children: Sequence[Domain], units: int) -> Spread | None:
        """Whole domains, the largest first, and the rest in the one that suits it best."""
        total = Spread(self._nothing, ())
        left = sorted(children, key=self._capacity, reverse=True)
        while left:
            last = self._cheapest((child for child in left if self._capacity(child) >= units), units)
            if last is not None:
                return _sum(total, last)
            child = left.pop(0)
            most = min(self._capacity(child), units)
            whole = self._used(child, self._exactly(child, most))
            if whole is not None:
                total, units = _sum(total, whole), units - most
        return None

    def _fullest_hosts(self, tables: Sequence[list[tuple[int, Spread]]], units: int) -> Spread | None:
        """The most that each node can give, the largest first, and the rest from the one that suits it best."""
        total = Spread(self._nothing, ())
        left = sorted(tables, key=lambda table: (-table[-1][0], table[-1][1]))
        while left:
            last = min((spread for table in left for given, spread in table if given == units), default=None)
            if last is not None:
                return _sum(total, last)
            given, spread = next(((given, spread) for given, spread in reversed(left[0]) if given < units), (0, None))
            left.pop(0)
            if spread is not None:
                total, units = _sum(total, spread), units - given
        return None


def _combined(tables: Sequence[Sequence[tuple[int, Spread]]], units: int, nothing: Cost) -> list[Spread | None]:
    """The cheapest sum of at most one entry of each table, for every number of units."""
    best: list[Spread | None] = [None] * (units + 1)
    best[0] = Spread(nothing, ())
    for table in tables:
        following = list(best)
        for have, base in enumerate(best):
            if base is None:
                continue
            for given, spread in table:
                if have + given > units:
                    break
                together = _sum(base, spread)
                standing = following[have + given]
                if standing is None or together < standing:
                    following[have + given] = together
        best = following
    return best


def _sum(one: Spread, other: Spread) -> Spread:
    return Spread(tuple(map(add, one.cost, other.cost)), tuple(sorted(one.picks + other.picks)))
