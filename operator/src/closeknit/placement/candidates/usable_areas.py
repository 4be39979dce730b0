"""The nodes that one kind of request may use, as offers in the tree of domains.

Requests that select, tolerate, filter and need alike see the same ground, and from one version of a forest to the next
only the domains on the way to what changed are looked at again. What of them has changed nothing for the request stays
the very same area, so that what was searched there stays known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import NamedTuple, NewType

from closeknit.cluster.forest.domain import Domain
from closeknit.cluster.forest.group import Group
from closeknit.cluster.node.node import Holder, NodeView
from closeknit.cluster.objects.pod_requests import Needs
from closeknit.placement.candidates.held_gpus import HeldGpus
from closeknit.placement.candidates.offer import Offer
from closeknit.placement.candidates.resource_fit import lacking

OfferNumber = NewType("OfferNumber", int)
"""The place of an offer among the Areas.offers of one kind of request."""
OfferMask = NewType("OfferMask", int)
"""A set of offers: bit n for number n."""


def numbers_of(mask: int) -> Iterator[OfferNumber]:
    """The numbers of the offers in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield OfferNumber(low.bit_length() - 1)
        mask ^= low


def mask_of_offers(numbers: Iterable[OfferNumber]) -> OfferMask:
    """These offers as a mask."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return OfferMask(mask)


class Members(NamedTuple):
    """Nodes of one offer in one domain."""

    offer: OfferNumber
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
    offers: OfferMask
    """Those in it."""
    areas: int
    """Number of areas in it, itself included."""
    counts: Mapping[OfferNumber, int]
    """With children: number of nodes of each offer, by its number."""
    branching: tuple[int, ...] = ()
    """For its level and each inside it: number of areas with children; empty without levels."""

    def counted(self) -> Iterator[tuple[OfferNumber, int]]:
        """(offer, nodes), an offer more than once where nodes of it stand apart."""
        return iter(self.counts.items()) if self.children else ((entry.offer, entry.nodes) for entry in self.members)

    def is_like(self, other: Area) -> bool:
        """Whether both are equal."""
        if self is other:
            return True
        if (self.level, self.is_lone) != (other.level, other.is_lone) or len(self.children) != len(other.children):
            return False
        return self.members == other.members and all(
            one is another or (one.is_lone and one.is_like(another))
            for one, another in zip(self.children, other.children, strict=True)
        )


def branching(children: Sequence[Area]) -> tuple[int, ...]:
    """Of an area with these children and of each level inside it, how many areas have children."""
    return (1, *map(sum, zip_longest(*(child.branching for child in children), fillvalue=0)))


@dataclass(frozen=True, slots=True, eq=False)
class Areas:
    """The nodes for a kind of request in one version of a forest."""

    domain: Domain
    """The root of its tree: all nodes that the job selects."""
    root: Area
    offers: Sequence[Offer]
    """By number; there may be more than this version has."""
    counts: Mapping[OfferNumber, int]
    """Number of nodes of each offer."""
    numbers: Mapping[Group, OfferNumber | None]
    """The number of each group's offer with CPU for all of its GPUs; None where the job may not use its nodes at all.
    There may be more groups than this version has."""
    needs: Needs
    """The Pods' needs besides GPUs; empty where every otherwise usable node has room."""
    roomy: Callable[[Domain], Iterator[tuple[Group, OfferNumber, tuple[str, ...]]]]
    """(group, its offer, nodes of it that stand together) of those right below a domain that the job may use."""
    held: Callable[[], HeldGpus]
    """Of the nodes of this and of earlier versions; asked each time, for it may have been forgotten."""
    _most: dict[int, int] = field(default_factory=dict)
    _members: list[tuple[Group, OfferNumber, tuple[str, ...]]] = field(default_factory=list)
    _groups: dict[tuple[Group, OfferNumber], int] = field(default_factory=dict)

    def members(self) -> Iterator[tuple[Group, OfferNumber, tuple[str, ...]]]:
        """(group, its offer, nodes of it that stand together) of all nodes that the job may use, in no order."""
        if not self._members:  # the words of a refusal count them five times
            self._members.extend(chain.from_iterable(map(self.roomy, self.domain.walk())))
        return iter(self._members)

    def cramped(self) -> Iterator[tuple[Group, OfferNumber, tuple[tuple[str, Needs], ...]]]:
        """(group, its offer, nodes without room with their shortage) of all otherwise usable nodes."""
        for domain in self.domain.walk() if self.needs else ():
            for group, names in domain.hosts.items():
                number = self.numbers[group]
                if number is None:
                    continue
                found = tuple((name, short) for name in names if (short := lacking(domain.spare.get(name), self.needs)))
                if found:
                    yield group, number, found

    def nodes(self) -> Iterator[tuple[Group, Offer, str]]:
        """(group, offer, name) of every node that the job may use, without order."""
        for group, number, names in self.members():
            yield from ((group, self.offers[number], name) for name in names)

    def groups(self) -> Iterator[tuple[Group, OfferNumber, int]]:
        """(group, its offer, nodes) of every group that the job may use, without order."""
        if not self._groups:
            for group, number, names in self.members():
                self._groups[group, number] = self._groups.get((group, number), 0) + len(names)
        return ((group, number, nodes) for (group, number), nodes in self._groups.items())

    def holders(self, nodes: Mapping[str, NodeView]) -> Mapping[Holder, int]:
        """GPUs by holder on all nodes that the job may use, which have these views, without unusable ones."""
        return self.held().on(nodes, self._named)

    def _named(self) -> Iterator[tuple[Group, tuple[str, ...]]]:
        return ((group, names) for group, _, names in self.members())

    def most_gpus(self, level: int) -> int:
        """The most GPUs that the job may take in one domain of a level."""
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
