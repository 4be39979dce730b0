"""The least that any order of hosts sends across domains, as a dynamic program over the stages of a gang.

It counts as the mixed-integer program of rank_oracle.py does: how many hosts of each innermost domain a stage has, not
where in it they stand. Of a stage it knows more, the best that its expert groups can be made of so many of each. Every
gang of the benchmark is proven in seconds, where that program's bound stays at half of it: hosts of a domain are alike,
so that it meets each order of stages and groups thousands of times. Where an order sends more than that, it counts once
more, by what each group of a stage has, in their order: groups of equal place are next to each other in the pipeline.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from bench.rank_oracle import crossing
from bench.rank_parts import Parts
from closeknit.placement.ranks.axis_traffic import between_hosts
from closeknit.placement.ranks.host_order import NEAR
from closeknit.placement.values.request import Request

MOST_NUMBERS = 1_000_000  # ways to hold some of the hosts: 786,240 are counted in 7 s
MOST_TRIES = 300_000  # groups after each other, to find all that a stage may be: some 5 s

Whole = NDArray[numpy.int64]
Real = NDArray[numpy.float64]


def least_sent(known: Sequence[tuple[str, ...]], request: Request) -> float | None:
    """What any order of these hosts sends across domains at least, None where they are in too many domains to count.

    Nothing that sends more than the order that is known is looked at.
    """
    if prod(known.count(leaf) + 1 for leaf in set(known)) > MOST_NUMBERS:
        return None
    sent = crossing(known, between_hosts(request, request.gpus // len(known)))
    gang = _Gang(known, Parts.of(request, len(known)), sent + NEAR)
    kinds = gang.kinds()
    least = gang.least(kinds)
    if least < sent - NEAR and gang.parts.groups > 1 and (kinds_by_group := gang.by_group(kinds)):
        least = gang.least(kinds_by_group)
    return min(sent, least)


class _Kinds(NamedTuple):
    """What a stage may be: row by row."""

    counts: Whole
    """Hosts of each innermost domain."""
    number: Whole
    """A number for that."""
    sent: Real
    """What it sends inside itself, at least."""
    near: list[Whole]
    """By level: hosts of each domain, or of each domain in each group."""


class _First(NamedTuple):
    """Ways to begin with so many stages: row by row what they hold, the last of them, and what they send."""

    held: Whole  # a number of counts
    last: Whole  # a row of the kinds
    sent: Real


class _Gang:
    """How its hosts may be shared out among its stages."""

    def __init__(self, known: Sequence[tuple[str, ...]], parts: Parts, most: float) -> None:
        leaves = sorted(set(known))
        self.parts, self._most = parts, most
        self._hosts = numpy.array([known.count(leaf) for leaf in leaves])
        self._digits = numpy.concatenate(([1], numpy.cumprod(self._hosts[:-1] + 1)))
        self._all = int(self._hosts @ self._digits)
        self._levels = [
            numpy.array([[leaf[level] == name for name in sorted({each[level] for each in leaves})] for leaf in leaves])
            for level in range(len(leaves[0]))
        ]
        groups = self._counts(numpy.arange(self._all + 1))
        self._groups = groups[groups.sum(1) == parts.width]
        """What an expert group may hold."""
        domains = [self._groups @ level for level in self._levels]
        self._tokens = parts.pair * sum((parts.width**2 - (each**2).sum(1)) // 2 for each in domains)
        within = parts.ring * sum((each > 0).sum(1) - 1 for each in domains) if parts.groups > 1 else 0.0
        self._inside = self._tokens + within

    def kinds(self) -> _Kinds:
        """By what they hold.

        The ring of a stage crosses once into each domain that has a part of it; and, as groups follow each other,
        inside each of them once less than the group has domains.
        """
        *_, table = self._sums(self._groups, self._tokens, self.parts.groups)
        *_, by_both = self._sums(self._groups, self._inside, self.parts.groups)
        held = numpy.flatnonzero(table <= self._most)
        for level in self._levels:
            span = ((self._counts(held) @ level) > 0).sum(1)
            table[held] += self.parts.ring * numpy.where(span > 1, span, 0)
        table = numpy.maximum(table, by_both)
        number = numpy.flatnonzero(table <= self._most)
        counts = self._counts(number)
        return _Kinds(counts, number, table[number], [counts @ level for level in self._levels])

    def by_group(self, kinds: _Kinds) -> _Kinds | None:
        """By what each group of them holds, in the order of groups, as far as the other stages leave room for it; None
        where that is too many."""
        *_, others = self._sums(kinds.counts, kinds.sent, self.parts.stages - 1)
        spare = self._most - others[self._all - kinds.number]
        room = dict(zip(kinds.number.tolist(), spare.tolist(), strict=True))
        numbers, inside = (self._groups @ self._digits).tolist(), self._inside.tolist()
        domains = [self._groups @ level for level in self._levels]
        sets = [[frozenset(numpy.flatnonzero(row).tolist()) for row in level] for level in domains]
        cheapest = numpy.argsort(self._inside, kind="stable").tolist()
        found: list[tuple[tuple[int, ...], float]] = []
        begun: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        tries = 0
        while begun:
            tries += 1
            if tries > MOST_TRIES:
                return None
            groups, sent = begun.pop()
            if len(groups) == self.parts.groups:
                borders = sum(_borders(tuple(level[group] for group in groups)) for level in sets)
                sent = float(self._tokens[list(groups)].sum()) + self.parts.ring * borders
                if sent <= room.get(sum(numbers[group] for group in groups), -1.0):
                    found.append((groups, sent))
                continue
            for group in cheapest:
                if sent + inside[group] > spare.max():
                    break
                longer = (*groups, group)
                if (self._groups[list(longer)].sum(0) <= self._hosts).all():
                    begun.append((longer, sent + inside[group]))
        rows = numpy.array([groups for groups, _ in found])
        counts = self._groups[rows].sum(1)
        near = [level[rows].reshape(len(rows), -1) for level in domains]
        return _Kinds(counts, counts @ self._digits, numpy.array([sent for _, sent in found]), near)

    def least(self, kinds: _Kinds) -> float:
        """Of all ways to begin with half of the stages and to end with the others, the least."""
        parts = self.parts
        before, after = parts.stages // 2, parts.stages - parts.stages // 2
        rests = list(self._sums(kinds.counts, kinds.sent, after))
        if not before:
            return float(rests[1][self._all])
        firsts = [_First(kinds.number, numpy.arange(len(kinds.number)), kinds.sent)]
        for stages in range(2, after + 1):
            left = parts.stages - stages
            rest = rests[left] if left <= after else numpy.zeros_like(rests[0])
            firsts.append(self._longer(firsts[-1], kinds, rest))
        return self._met(firsts[before - 1], firsts[after - 1], kinds)

    def _counts(self, numbers: Whole) -> Whole:
        counts: Whole = numbers[:, None] // self._digits % (self._hosts + 1)
        return counts

    def _sums(self, counts: Whole, sent: Real, times: int) -> Iterator[Real]:
        """For none of these, one, two, ...: by the number of what they hold together, the least that they send."""
        numbers = counts @ self._digits
        table = numpy.full(self._all + 1, numpy.inf)
        table[0] = 0.0
        yield table
        for _ in range(times):
            held = numpy.flatnonzero(table <= self._most)
            room, before = self._room(held), table[held]
            table = numpy.full(self._all + 1, numpy.inf)
            for count, number, more in zip(counts, numbers, sent, strict=True):
                fit = _fitting(room, count)
                both = held[fit] + number
                table[both] = numpy.minimum(table[both], before[fit] + more)
            yield table

    def _room(self, held: Whole) -> list[Whole]:
        """By domain: how many hosts of it these leave."""
        return list(numpy.ascontiguousarray((self._hosts - self._counts(held)).T))

    def _longer(self, first: _First, kinds: _Kinds, rests: Real) -> _First:
        """With one stage more, where the rest can be had for what is left of the most."""
        room = self._room(first.held)
        found: list[_First] = []
        for row, (count, number, more) in enumerate(zip(*kinds[:3], strict=True)):
            fit = numpy.flatnonzero(_fitting(room, count))
            held = first.held[fit] + number
            spare = self._most - rests[self._all - held] - more - first.sent[fit]
            fit, held, spare = (each[spare >= 0] for each in (fit, held, spare))
            apart = self._apart(kinds, first.last[fit], numpy.array([row]))
            fit, held, apart = (each[apart <= spare] for each in (fit, held, apart))
            sent = first.sent[fit] + more + apart
            cheapest = numpy.argsort(sent, kind="stable")
            held, at = numpy.unique(held[cheapest], return_index=True)
            found.append(_First(held, numpy.full(len(held), row), sent[cheapest][at]))
        return _First(*(numpy.concatenate(column) for column in zip(*found, strict=True)))

    def _apart(self, kinds: _Kinds, one: Whole, other: Whole) -> Real:
        """What two consecutive stages send each other: as many of their hosts are near as the fuller domains allow."""
        near = sum(numpy.minimum(domains[one], domains[other]).sum(-1) for domains in kinds.near)
        apart: Real = self.parts.chain * (len(self._levels) * self.parts.size - near)
        return apart

    def _met(self, first: _First, other: _First, kinds: _Kinds) -> float:
        """The least of a beginning and an end, which is a beginning read backwards, that hold all hosts together."""
        least = numpy.inf
        begins, ends = _by_held(first), _by_held(other)
        for held, begin in begins.items():
            end = ends.get(self._all - held)
            if end is not None:
                apart = self._apart(kinds, first.last[begin][:, None], other.last[end][None, :])
                least = min(least, float((first.sent[begin][:, None] + other.sent[end] + apart).min()))
        return least


def _by_held(first: _First) -> dict[int, Whole]:
    """By what they hold together: the rows of such ways."""
    rows = numpy.argsort(first.held, kind="stable")
    held, starts = numpy.unique(first.held[rows], return_index=True)
    return dict(zip(held.tolist(), numpy.split(rows, starts[1:]), strict=True))


def _fitting(room: Sequence[Whole], count: Whole) -> NDArray[numpy.bool_]:
    """Where so many hosts of each domain are left."""
    fits: NDArray[numpy.bool_] = room[0] >= count[0]
    for left, wanted in zip(room[1:], count[1:], strict=True):
        fits &= left >= wanted
    return fits


@cache
def _borders(groups: tuple[frozenset[int], ...]) -> int:
    """How often a ring through groups, each of hosts of these domains, crosses from one domain to another at least."""
    if len(frozenset().union(*groups)) == 1:
        return 0
    found = []
    first, *others = groups
    for begin in first:
        # By the domain that the way so far leaves in; a group of several leaves in another than it is entered in.
        least = {leave: len(first) - 1 for leave in first if len(first) == 1 or leave != begin}
        for group in others:
            least = {
                leave: min(
                    borders + (came != enter) + len(group) - 1
                    for came, borders in least.items()
                    for enter in group
                    if len(group) == 1 or enter != leave
                )
                for leave in group
            }
        found.append(min(borders + (leave != begin) for leave, borders in least.items()))
    return min(found)
