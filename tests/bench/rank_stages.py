"""The least that any order of hosts sends across domains, as a dynamic program over the stages of a gang.

It counts as the mixed-integer program of rank_oracle.py does: how many hosts of each innermost domain a stage has, not
where in it they stand. Of a stage it knows more, the best that its expert groups can be made of so many of each. Every
gang of the benchmark is proven in seconds, where that program's bound stays at half of it: hosts of a domain are alike,
so that it meets each order of stages and groups thousands of times.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from bench.rank_parts import Parts
from closeknit.placement.order import NEAR, crossing
from closeknit.placement.request import Request
from closeknit.placement.traffic import between_hosts

MOST_NUMBERS = 1_000_000  # ways to hold some of the hosts: 786,240 are counted in 7 s

Whole = NDArray[numpy.int64]
Real = NDArray[numpy.float64]


def least_sent(known: Sequence[tuple[str, ...]], request: Request) -> float | None:
    """What any order of these hosts sends across domains at least, None where they are in too many domains to count.

    Nothing that sends more than the order that is known is looked at.
    """
    if prod(known.count(leaf) + 1 for leaf in set(known)) > MOST_NUMBERS:
        return None
    sent = crossing(known, between_hosts(request, request.gpus // len(known)))
    return min(sent, _Stages(known, Parts.of(request, len(known)), sent + NEAR).least())


class _First(NamedTuple):
    """Ways to begin with so many stages: row by row what they hold, the last of them, and what they send."""

    held: Whole  # a number of `_Stages.number`
    last: Whole  # a row of `_Stages.counts`
    sent: Real


class _Stages:
    """What a stage may hold: hosts of each innermost domain."""

    def __init__(self, known: Sequence[tuple[str, ...]], parts: Parts, most: float) -> None:
        leaves = sorted(set(known))
        self._parts, self._most = parts, most
        self._hosts = numpy.array([known.count(leaf) for leaf in leaves])
        self._digits = numpy.concatenate(([1], numpy.cumprod(self._hosts[:-1] + 1)))
        self._all = int(self._hosts @ self._digits)
        self._levels = [
            numpy.array([[leaf[level] == name for name in sorted({each[level] for each in leaves})] for leaf in leaves])
            for level in range(len(leaves[0]))
        ]
        table = self._of_stages()
        self.number = numpy.flatnonzero(table <= most)
        self.counts = self._counts(self.number)
        self.sent = table[self.number]
        self._domains = [self.counts @ level for level in self._levels]

    def least(self) -> float:
        """Of all ways to begin with half of the stages and to end with the others, the least."""
        parts = self._parts
        before, after = parts.stages // 2, parts.stages - parts.stages // 2
        rests = list(self._sums(self.counts, self.sent, after))
        if not before:
            return float(rests[0][self._all])
        firsts = [_First(self.number, numpy.arange(len(self.number)), self.sent)]
        for stages in range(2, after + 1):
            left = parts.stages - stages
            firsts.append(self._longer(firsts[-1], rests[left - 1] if left <= after else numpy.zeros_like(rests[0])))
        return self._met(firsts[before - 1], firsts[after - 1])

    def _of_stages(self) -> Real:
        """By what it holds: what a stage sends inside itself, at least.

        Its ring crosses once into each domain that has a part of it; and, as groups follow each other, inside each of
        them once less than the group has domains.
        """
        parts = self._parts
        groups = self._counts(numpy.arange(self._all + 1))
        groups = groups[groups.sum(1) == parts.width]
        spans = [((groups @ level) > 0).sum(1) for level in self._levels]
        pairs = [(parts.width**2 - ((groups @ level) ** 2).sum(1)) // 2 for level in self._levels]
        tokens = parts.pair * sum(pairs)
        within = parts.ring * sum(span - 1 for span in spans) if parts.groups > 1 else 0.0
        *_, by_tokens = self._sums(groups, tokens, parts.groups)
        *_, by_both = self._sums(groups, tokens + within, parts.groups)
        held = numpy.flatnonzero(by_tokens <= self._most)
        for level in self._levels:
            span = ((self._counts(held) @ level) > 0).sum(1)
            by_tokens[held] += parts.ring * numpy.where(span > 1, span, 0)
        return numpy.maximum(by_tokens, by_both)

    def _counts(self, numbers: Whole) -> Whole:
        counts: Whole = numbers[:, None] // self._digits % (self._hosts + 1)
        return counts

    def _sums(self, counts: Whole, sent: Real, times: int) -> Iterator[Real]:
        """For one of these, two, ...: by the number of what they hold together, the least that they send."""
        numbers = counts @ self._digits
        table = numpy.full(self._all + 1, numpy.inf)
        table[numbers] = sent
        yield table
        for _ in range(1, times):
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

    def _longer(self, first: _First, rests: Real) -> _First:
        """With one stage more, where the rest can be had for what is left of the most."""
        room = self._room(first.held)
        found: list[_First] = []
        for row, (count, number, more) in enumerate(zip(self.counts, self.number, self.sent, strict=True)):
            fit = numpy.flatnonzero(_fitting(room, count))
            held = first.held[fit] + number
            spare = self._most - rests[self._all - held] - more - first.sent[fit]
            fit, held, spare = (each[spare >= 0] for each in (fit, held, spare))
            apart = self._apart(first.last[fit], numpy.array([row]))
            fit, held, apart = (each[apart <= spare] for each in (fit, held, apart))
            sent = first.sent[fit] + more + apart
            cheapest = numpy.argsort(sent, kind="stable")
            held, at = numpy.unique(held[cheapest], return_index=True)
            found.append(_First(held, numpy.full(len(held), row), sent[cheapest][at]))
        return _First(*(numpy.concatenate(column) for column in zip(*found, strict=True)))

    def _apart(self, one: Whole, other: Whole) -> Real:
        """What two consecutive stages send each other: as many of their hosts are near as the fuller domains allow."""
        near = sum(numpy.minimum(domains[one], domains[other]).sum(-1) for domains in self._domains)
        apart: Real = self._parts.chain * (len(self._levels) * self._parts.size - near)
        return apart

    def _met(self, first: _First, other: _First) -> float:
        """The least of a beginning and an end, which is a beginning read backwards, that hold all hosts together."""
        least = numpy.inf
        begins, ends = _by_held(first), _by_held(other)
        for held, begin in begins.items():
            end = ends.get(self._all - held)
            if end is not None:
                apart = self._apart(first.last[begin][:, None], other.last[end][None, :])
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
