"""The nodes that one kind of request may use, as offers in the tree of domains: the first look at a cluster.

Requests that select, tolerate and filter alike see the same ground, and from one version of a forest to the next only
the domains on the way to what changed are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from closeknit.cluster.forest import Domain, Group, MachineKind
from closeknit.placement.admission import untolerated
from closeknit.placement.offer import Offer, Terms, matching, terms
from closeknit.placement.request import Request
from closeknit.placement.sets import Sets

MANY_OFFERS = 1 << 14  # so many have been seen over the time: begin anew


def numbers_of(mask: int) -> Iterator[int]:
    """The numbers of the offers in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Members(NamedTuple):
    """Nodes of one offer in one domain."""

    offer: int
    """Its number in Ground.offers."""
    nodes: int
    names: tuple[tuple[str, ...], ...]
    """Their names, as ascending runs."""

    def ascending(self) -> Sequence[str]:
        """Their names in one run."""
        return self.names[0] if len(self.names) == 1 else sorted(name for run in self.names for name in run)


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """A domain with at least one node that the job may use; found by identity, shared read-only."""

    level: int
    """-1 for the root."""
    is_lone: bool
    """One node without a domain at this level, which is a domain of its own here and at every level inside."""
    free_gpus: int
    gpus: int
    """Those that the job may take."""
    first: str
    """The first of its nodes."""
    children: tuple[Area, ...]
    """By their first nodes."""
    members: tuple[Members, ...]
    """Its nodes, where the next level is the host or the area is lone."""
    offers: int
    """Mask of the offers in it, by number."""
    areas: int
    """How many areas are in it, itself included."""


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What there is for a kind of request in one version of a forest."""

    domain: Domain
    """The root of the tree that it was made from: all nodes that the job selects."""
    root: Area
    offers: Sequence[Offer]
    """By number; there may be more than this version has."""
    counts: Mapping[int, int]
    """How many nodes have each offer."""
    groups: tuple[tuple[Group, int, int], ...]
    """(group, its offer, nodes) of every group that the job may use, in no order."""
    _most: dict[int, int] = field(default_factory=dict)

    def nodes(self) -> Iterator[tuple[Group, Offer, str]]:
        """(group, offer, name) of every node that the job may use, in no order."""
        offer_of = {group: self.offers[number] for group, number, _ in self.groups}
        for group, names in self.domain.members():
            offer = offer_of.get(group)
            if offer is not None:
                yield from ((group, offer, name) for name in names)

    def most_gpus(self, level: int) -> int:
        """GPUs that the job may take in the domain of a level that has the most."""
        if level not in self._most:
            self._most[level] = max(self._gpus_at(self.root, level), default=0)
        return self._most[level]

    def _gpus_at(self, area: Area, level: int) -> Iterator[int]:
        if area.level >= level or area.is_lone:
            yield area.gpus
        elif area.children:
            for child in area.children:
                yield from self._gpus_at(child, level)
        else:
            yield from (self.offers[entry.offer].gpus for entry in area.members)


class Translation:
    """What a kind of request makes of groups and domains; remembers the version that it has seen last."""

    def __init__(
        self, request: Request, sets_of: Callable[[MachineKind], Sets], offer_of: Callable[[Terms], Offer]
    ) -> None:
        self._request = request
        self._sets_of = sets_of
        self._offer_of = offer_of
        self._offers: list[Offer] = []
        self._numbers: dict[Offer, int] = {}
        self._groups: dict[Group, int | None] = {}
        self._matches: dict[object, int] = {}
        self._areas: dict[int, tuple[Domain, Area | None]] = {}
        self._ground: tuple[Domain, Ground] | None = None

    @property
    def is_full(self) -> bool:
        """Whether it has seen so much that is gone that a new one is better."""
        return len(self._groups) > MANY_OFFERS

    def ground(self, domain: Domain, levels: int) -> Ground:
        """The ground of the tree below this root, with so many levels, host included."""
        if self._ground is not None and self._ground[0] is domain:
            return self._ground[1]
        kept: dict[int, tuple[Domain, Area | None]] = {}
        root = self._area(domain, -1, levels - 2, kept)
        self._areas = kept
        counts: dict[int, int] = {}
        groups = []
        for group, count in domain.counts.items():
            number = self._number(group)
            if number is not None:
                counts[number] = counts.get(number, 0) + count
                groups.append((group, number, count))
        nowhere = Area(-1, is_lone=False, free_gpus=0, gpus=0, first="", children=(), members=(), offers=0, areas=1)
        ground = Ground(domain, root or nowhere, self._offers, counts, tuple(groups))
        self._ground = (domain, ground)
        return ground

    def _number(self, group: Group) -> int | None:
        """The number of a group's offer; None for one that the job may not use."""
        try:
            return self._groups[group]
        except KeyError:
            found = self._groups[group] = self._translated(group)
            return found

    def _translated(self, group: Group) -> int | None:
        if group.kind is None or not group.kind.products or group.excluded is not None:
            return None
        if untolerated(group.taints, self._request):
            return None
        offer = self._offer_of(terms(group, group.kind, self._sets_of(group.kind), self._matching(group.kind)))
        number = self._numbers.setdefault(offer, len(self._offers))
        if number == len(self._offers):
            self._offers.append(offer)
        return number

    def _matching(self, kind: MachineKind) -> int:
        key = (kind.products, kind.memory_bytes)
        found = self._matches.get(key)
        if found is None:
            found = self._matches[key] = matching(kind, self._request)
        return found

    def _area(
        self, domain: Domain, level: int, innermost: int, kept: dict[int, tuple[Domain, Area | None]]
    ) -> Area | None:
        known = self._areas.get(id(domain))
        if known is not None and known[0] is domain:
            area = known[1]
            for child in domain.children.values():
                self._area(child, level + 1, innermost, kept)
        elif level == innermost:
            area = self._leaf(domain, level)
        else:
            inside = (self._area(child, level + 1, innermost, kept) for child in domain.children.values())
            area = _around([*filter(None, inside), *self._lone(domain, level + 1)], level)
        kept[id(domain)] = (domain, area)
        return area

    def _leaf(self, domain: Domain, level: int) -> Area | None:
        runs: dict[int, tuple[int, tuple[tuple[str, ...], ...]]] = {}
        free_gpus = gpus = 0
        first: str | None = None
        for group, names in domain.hosts.items():
            number = self._number(group)
            if number is None:
                continue
            nodes, known = len(names), runs.get(number)
            runs[number] = (nodes, (names,)) if known is None else (known[0] + nodes, (*known[1], names))
            offer = self._offers[number]
            free_gpus += offer.terms.free.bit_count() * nodes
            gpus += offer.gpus * nodes
            if first is None or names[0] < first:
                first = names[0]
        if first is None:
            return None
        return Area(
            level,
            is_lone=False,
            free_gpus=free_gpus,
            gpus=gpus,
            first=first,
            children=(),
            members=tuple([Members(number, nodes, names) for number, (nodes, names) in runs.items()]),
            offers=sum([1 << number for number in runs]),
            areas=1,
        )

    def _lone(self, domain: Domain, level: int) -> Iterator[Area]:
        for group, names in domain.hosts.items():
            number = self._number(group)
            if number is None:
                continue
            free = self._offers[number].terms.free.bit_count()
            for name in names:
                yield Area(
                    level,
                    is_lone=True,
                    free_gpus=free,
                    gpus=self._offers[number].gpus,
                    first=name,
                    children=(),
                    members=(Members(number, 1, ((name,),)),),
                    offers=1 << number,
                    areas=1,
                )


def _around(children: list[Area], level: int) -> Area | None:
    if not children:
        return None
    children.sort(key=lambda area: area.first)
    offers = 0
    for child in children:
        offers |= child.offers
    return Area(
        level,
        is_lone=False,
        free_gpus=sum(child.free_gpus for child in children),
        gpus=sum(child.gpus for child in children),
        first=children[0].first,
        children=tuple(children),
        members=(),
        offers=offers,
        areas=1 + sum(child.areas for child in children),
    )
