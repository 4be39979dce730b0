"""The forest for one kind of request: groups become offers, and domains areas, version by version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from closeknit.cluster.forest.domain import Domain
from closeknit.cluster.forest.group import Group, MachineKind
from closeknit.cluster.objects.nic_exposure import asks_for_nics
from closeknit.placement.candidates.cpu_cover import CpuCover, cpu_cover, cpu_milli
from closeknit.placement.candidates.held_gpus import HeldGpus
from closeknit.placement.candidates.node_filter import is_kept, untolerated
from closeknit.placement.candidates.offer import Offer, Terms, matching, terms
from closeknit.placement.candidates.resource_fit import with_room
from closeknit.placement.candidates.usable_areas import (
    Area,
    Areas,
    Members,
    OfferMask,
    OfferNumber,
    branching,
    mask_of_offers,
)
from closeknit.placement.gpusets.gpu_sets import GpuSets
from closeknit.placement.values.request import NodeCriteria

# So many have been seen over the time, and twice as many as there are: begin again with all, for masks name offers by
# their numbers.
MANY_GROUPS = 1 << 14
# Domains of former versions that are remembered beside those of the last one, a quarter as many: the larger number is
# some twenty versions in which one node changed. They are forgotten together, by a walk through the whole tree.
MOST_FORMER = 64


_Room = tuple[Group, OfferNumber, tuple[str, ...]]


class CandidateTree:
    """Offers and areas for one kind of request; it remembers its last version."""

    def __init__(
        self,
        criteria: NodeCriteria,
        sets_of: Callable[[MachineKind], GpuSets],
        offer_of: Callable[[Terms], Offer],
        held: Callable[[], HeldGpus],
    ) -> None:
        """`criteria` is the common part of requests of this kind: nothing else of them is read."""
        self._request = criteria.alone
        self._sets_of = sets_of
        self._offer_of = offer_of
        self._offers: list[Offer] = []
        self._numbers: dict[Offer, OfferNumber] = {}
        self._groups: dict[Group, OfferNumber | None] = {}
        self._cpu_milli = cpu_milli(criteria.needs)
        self._covers: dict[tuple[OfferNumber, CpuCover], OfferNumber] = {}
        self._matches: dict[object, int] = {}
        self._areas: dict[int, tuple[Domain, Area | None]] = {}
        self._most_areas = 0
        self._rooms: dict[int, tuple[Domain, tuple[_Room, ...]]] = {}
        self._ground: tuple[Domain, Areas] | None = None
        self._held = held

    @property
    def is_full(self) -> bool:
        """Whether it remembers so much that is gone that a new one is better."""
        now = len(self._ground[0].counts) if self._ground else 0
        return len(self._groups) > max(MANY_GROUPS, 2 * now)

    def ground(self, domain: Domain, levels: int) -> Areas:
        """The areas of the tree below this root, with so many levels, host included."""
        if self._ground is not None and self._ground[0] is domain:
            return self._ground[1]
        root = self._area(domain, self._ground[0] if self._ground else None, -1, levels - 2) or _NOWHERE
        if len(self._areas) > self._most_areas:
            self._forget_all_but(domain)
        counts = _counts((root,))
        every = sum(nodes for group, nodes in domain.counts.items() if self._number(group) is not None)
        needs = () if sum(counts.values()) == every else self._request.needs
        ground = Areas(domain, root, self._offers, counts, self._groups, needs, self._roomy, self._held)
        self._ground = (domain, ground)
        return ground

    def _forget_all_but(self, root: Domain) -> None:
        """Forgets domains that are not in the tree of this root."""
        kept: dict[int, tuple[Domain, Area | None]] = {}
        left = [root]
        while left:
            domain = left.pop()
            if (known := self._areas.get(id(domain))) is not None:  # what is below a leaf was never looked at
                kept[id(domain)] = known
                left.extend(domain.children.values())
        self._areas = kept
        self._most_areas = len(kept) + min(len(kept) // 4, MOST_FORMER)
        self._rooms = {key: room for key, room in self._rooms.items() if key in kept}

    def _number(self, group: Group) -> OfferNumber | None:
        """The number of a group's offer; None for an unusable one."""
        try:
            return self._groups[group]
        except KeyError:
            found = self._groups[group] = self._translated(group)
            return found

    def _translated(self, group: Group) -> OfferNumber | None:
        if group.kind is None or not group.kind.products or group.excluded is not None:
            return None
        if untolerated(group.taints, self._request) or is_kept(group.spare_for, self._request):
            return None
        kind = group.kind
        nics = asks_for_nics(self._request.needs) or not self._request.asked.isdisjoint(group.functions)
        sets, matches = self._sets_of(kind), self._matching(kind)
        return self._number_of(terms(group, kind, sets, self._request, matches, asks_for_nics=nics))

    def _number_of(self, found: Terms) -> OfferNumber:
        offer = self._offer_of(found)
        number = self._numbers.setdefault(offer, OfferNumber(len(self._offers)))
        if number == len(self._offers):
            self._offers.append(offer)
        return number

    def _matching(self, kind: MachineKind) -> int:
        key = (kind.products, kind.memory_bytes)
        found = self._matches.get(key)
        if found is None:
            found = self._matches[key] = matching(kind, self._request)
        return found

    def _area(self, domain: Domain, before: Domain | None, level: int, innermost: int) -> Area | None:
        """The area of a domain; `before` is the domain in its place in the last version."""
        known = self._areas.get(id(domain))  # an entry holds its domain, so that no other one has that number
        if known is not None:
            return known[1]
        area = self._new_area(domain, before, level, innermost)
        _, old = self._areas.get(id(before), (None, None))
        if old is not None and area is not None and old.is_like(area):
            area = old
        self._areas[id(domain)] = (domain, area)
        return area

    def _new_area(self, domain: Domain, before: Domain | None, level: int, innermost: int) -> Area | None:
        if level == innermost:
            return self._leaf(domain, level)
        were = before.children if before else {}
        inside = (self._area(child, were.get(name), level + 1, innermost) for name, child in domain.children.items())
        return _around([*filter(None, inside), *self._lone(domain, level + 1)], level)

    def _roomy(self, domain: Domain) -> Iterator[_Room]:
        """(group, offer, nodes) of those right below a domain that the job may use: looked at once for each domain of
        the last version."""
        known = self._rooms.get(id(domain))
        if known is None or known[0] is not domain:
            known = self._rooms[id(domain)] = domain, tuple(self._with_room(domain))
        return iter(known[1])

    def _with_room(self, domain: Domain) -> Iterator[_Room]:
        needs = self._request.needs
        for group, names in domain.hosts.items():
            number = self._number(group)
            if number is None or not (roomy := with_room(names, domain.spare, needs)):
                continue
            if not (self._cpu_milli and group.cpus_per_gpu):
                yield group, number, roomy
                continue
            by_cover: dict[CpuCover | None, list[str]] = {}
            for name in roomy:
                free = self._offers[number].terms.free_gpus
                found = cpu_cover(domain.spare.get(name), self._cpu_milli, group.cpus_per_gpu, free)
                by_cover.setdefault(found, []).append(name)
            for found, alike in by_cover.items():
                yield group, self._covered(number, found), tuple(alike)

    def _covered(self, number: OfferNumber, found: CpuCover | None) -> OfferNumber:
        """The number of the offer of nodes with CPUs for fewer GPUs."""
        if found is None:
            return number
        key = number, found
        if key not in self._covers:
            self._covers[key] = self._number_of(self._offers[number].terms._replace(cover=found))
        return self._covers[key]

    def _leaf(self, domain: Domain, level: int) -> Area | None:
        runs: dict[OfferNumber, list[tuple[str, ...]]] = {}
        free_gpus = gpus = 0
        first: str | None = None
        for _, number, names in self._roomy(domain):
            nodes = len(names)
            runs.setdefault(number, []).append(names)
            offer = self._offers[number]
            free_gpus += offer.terms.free_gpus * nodes
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
            members=tuple([Members(number, sum(map(len, names)), tuple(names)) for number, names in runs.items()]),
            offers=mask_of_offers(runs),
            areas=1,
            counts={},
        )

    def _lone(self, domain: Domain, level: int) -> Iterator[Area]:
        for _, number, names in self._roomy(domain):
            free = self._offers[number].terms.free_gpus
            for name in names:
                yield Area(
                    level,
                    is_lone=True,
                    free_gpus=free,
                    gpus=self._offers[number].gpus,
                    first=name,
                    children=(),
                    members=(Members(number, 1, ((name,),)),),
                    offers=OfferMask(1 << number),
                    areas=1,
                    counts={},
                )


_NOWHERE = Area(
    -1, is_lone=False, free_gpus=0, gpus=0, first="", children=(), members=(), offers=OfferMask(0), areas=1, counts={}
)


def _counts(areas: Iterable[Area]) -> dict[OfferNumber, int]:
    counts: dict[OfferNumber, int] = {}
    for area in areas:
        for number, nodes in area.counted():
            counts[number] = counts.get(number, 0) + nodes
    return counts


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
        offers=OfferMask(offers),
        areas=1 + sum(child.areas for child in children),
        counts=_counts(children),
        branching=branching(children),
    )
