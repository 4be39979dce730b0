"""A domain of the network with its nodes, counted by groups, and its update when nodes come, change and go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from closeknit.cluster.forest.group import Group
from closeknit.cluster.immutable.table import EMPTY
from closeknit.cluster.objects.pod_requests import Amounts


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain of one level, or the root of all; shared read-only between versions."""

    counts: Mapping[Group, int]
    """How many nodes of each group are in it, at any depth."""
    children: Mapping[str, Domain]
    """Domains of the next level, in no order."""
    hosts: Mapping[Group, tuple[str, ...]]
    """Nodes right below, ascending: in a domain of the innermost level all of its nodes, elsewhere those without a
    domain at the next level, each its own domain."""
    spare: Map[str, Amounts] = EMPTY
    """The rest of each of these nodes besides GPUs; unknown ones are missing."""

    def walk(self) -> Iterator[Domain]:
        """Itself and all domains in it, in no order."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def members(self) -> Iterator[tuple[Group, tuple[str, ...]]]:
        """(group, its nodes at one place) of the whole domain, without order."""
        for domain in self.walk():
            yield from domain.hosts.items()


NOTHING = Domain({}, {}, {})


class Move(NamedTuple):
    """A node that comes (1) into the group at the end of a path, leaves it (-1), or stays (0) with another spare."""

    path: tuple[str, ...]
    group: Group
    name: str
    by: int
    spare: Amounts | None
    """From now on; None for a node that leaves."""


def moved(domain: Domain, moves: Sequence[Move], depth: int = 0) -> Domain:
    """The domain, at this depth of the tree, after nodes below it have come, changed and gone."""
    if not moves:
        return domain
    inside: dict[str, list[Move]] = {}
    here: list[Move] = []
    for move in moves:
        if len(move.path) > depth:
            inside.setdefault(move.path[depth], []).append(move)
        else:
            here.append(move)
    children = domain.children
    if inside:
        children = dict(children)
        for name, found in inside.items():
            children[name] = moved(children.get(name, NOTHING), found, depth + 1)
            if not children[name].counts:
                del children[name]
    return Domain(_counted(domain.counts, moves), children, _named(domain.hosts, here), _spared(domain.spare, here))


def only(domain: Domain, names: frozenset[str]) -> Domain:
    """The domain with only these nodes."""
    hosts = {group: kept for group, members in domain.hosts.items()
             if (kept := tuple(name for name in members if name in names))}  # fmt: skip
    children = {name: left for name, child in domain.children.items() if (left := only(child, names)).counts}
    counts = {group: len(kept) for group, kept in hosts.items()}
    for child in children.values():
        for group, number in child.counts.items():
            counts[group] = counts.get(group, 0) + number
    spare = Map({name: spare for name, spare in domain.spare.items() if name in names}) if hosts else EMPTY
    return Domain(counts, children, hosts, spare)


def _counted(counts: Mapping[Group, int], moves: Sequence[Move]) -> Mapping[Group, int]:
    if not any(move.by for move in moves):
        return counts
    found = dict(counts)
    for move in moves:
        found[move.group] = found.get(move.group, 0) + move.by
    for group in {move.group for move in moves if move.by < 0}:
        if not found[group]:
            del found[group]
    return found


def _named(hosts: Mapping[Group, tuple[str, ...]], moves: Sequence[Move]) -> Mapping[Group, tuple[str, ...]]:
    by_group: dict[Group, list[Move]] = {}
    for move in moves:
        if move.by:
            by_group.setdefault(move.group, []).append(move)
    if not by_group:
        return hosts
    found = dict(hosts)
    for group, comers in by_group.items():
        found[group] = _names(found.get(group, ()), comers)
        if not found[group]:
            del found[group]
    return found


def _spared(spare: Map[str, Amounts], moves: Sequence[Move]) -> Map[str, Amounts]:
    found = spare.mutate()
    for move in sorted(moves, key=_is_last):
        if move.spare is not None:
            found[move.name] = move.spare
        elif move.name in found:
            del found[move.name]
    return found.finish()


def _is_last(move: Move) -> bool:
    """A node that changes its group leaves before it enters."""
    return move.by >= 0


def _names(names: tuple[str, ...], moves: Sequence[Move]) -> tuple[str, ...]:
    if len(moves) == 1:  # by slices: one leaf may hold every node of the cluster
        at = bisect_left(names, moves[0].name)
        return (*names[:at], moves[0].name, *names[at:]) if moves[0].by > 0 else names[:at] + names[at + 1 :]
    gone = {move.name for move in moves if move.by < 0}
    come = {move.name for move in moves if move.by > 0}
    return tuple(sorted(({*names} - gone) | come))
