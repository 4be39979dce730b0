"""The CPU and memory that Pods on a few nodes must give back so that a gang fits whose GPUs are already free.

Nodes go one after the other, those that lack least first, by doubling and then halving, until the gang fits; what is
told are those that it would be on, and it was placed again with these alone.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from closeknit.api.names import POD_COUNT
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import Holder, HolderKind, NodeView
from closeknit.cluster.objects.pod_requests import Amounts, Needs
from closeknit.placement.candidates.binding import bindable
from closeknit.placement.candidates.resource_fit import fits, rounded_up, told
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.suggestions.bisection import MANY_NODES, Freed, until_it_fits
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import count, listed

NAMED = 3  # so many nodes are named; more are counted


class Vacancy(NamedTuple):
    """What would have to become free, and the gang's placement then."""

    room: Mapping[str, Amounts]
    """By node."""
    placement: Placement
    held: str
    """By whom, counted."""

    def __str__(self) -> str:
        """Holders are counted, not named: see Release."""
        parts = [f"{_amounts(self.room[name])} of {name}" for name in sorted(self.room)[:NAMED]]
        if more := len(self.room) - len(parts):
            parts.append(f"room on {count(more, 'other node')}")
        return f"free room: {listed(parts, 'and')}, held by {self.held}"


class _Lack(NamedTuple):
    """One node's shortage."""

    part: float
    """The largest part of a need that is missing."""
    name: str
    amounts: Amounts
    gpus: int
    """Free there that the gang may take."""


def vacate(cluster: Cluster, request: Request, tables: Tables) -> Generator[None, None, Vacancy | None]:
    """The CPU and the like that would have to become free; None where that is not enough, or takes more than 256 nodes.
    Yields to others in between."""
    fits_without = can_place(cluster, replace(request, needs=()), tables)
    yield
    if not (request.needs and fits_without):
        return None
    lacks = _lacks(cluster, request, tables)[:MANY_NODES]
    enough = yield from until_it_fits(lacks, lambda some: Freed({}, _room(some)), cluster, request, tables)
    there = place(cluster.freed({}, _room(lacks[:enough])), request, tables) if enough else None
    yield
    if not isinstance(there, Placement):
        return None
    taken = {share.node for share in there.shares}
    room = _room([lack for lack in lacks[:enough] if lack.name in taken])
    again = place(cluster.freed({}, room), request, tables)
    yield
    return Vacancy(room, again, _held(cluster, room)) if isinstance(again, Placement) else None


def _lacks(cluster: Cluster, request: Request, tables: Tables) -> list[_Lack]:
    """Shortages of nodes that could have room; domain by domain of the gang's level, the smallest sum first."""
    at = None if request.level is None else cluster.levels.index(request.level)
    ground = tables.ground(cluster, request)

    def domain(name: str) -> str:
        return "" if at is None else cluster.nodes[name].domains[at] or name

    free, lacks = Counter[str](), dict[str, list[_Lack]]()
    for _, offer, name in ground.nodes():
        free[domain(name)] += bindable(offer, request.binding)
    for _, number, nodes in ground.cramped():
        gpus = bindable(ground.offers[number], request.binding)
        for name, _ in nodes if gpus or request.mig else ():
            if (lack := _lack(name, cluster.nodes[name], request.needs, gpus)) is not None:
                lacks.setdefault(domain(name), []).append(lack)
    order = []
    for inside, found in lacks.items():
        found.sort()
        order.append((_cost(found, request.gpus - free[inside]), inside))
    return [lack for _, inside in sorted(order) for lack in lacks[inside]]


def _lack(name: str, view: NodeView, needs: Needs, gpus: int) -> _Lack | None:
    """None of a node that never has as much."""
    if view.spare is None or not fits(view.allocatable, needs):
        return None
    amounts = {each: lack for each, amount in needs if (lack := amount - view.spare.get(each, 0)) > 0}
    return _Lack(max(amounts[each] / amount for each, amount in needs if each in amounts), name, amounts, gpus)


def _cost(lacks: Sequence[_Lack], gpus: int) -> float:
    """The sum of shortages on the nodes that give so many GPUs."""
    cost = 0.0
    for lack in lacks:
        if gpus <= 0:
            break
        cost, gpus = cost + lack.part, gpus - lack.gpus
    return cost if gpus <= 0 else inf


def _room(lacks: Sequence[_Lack]) -> dict[str, Amounts]:
    return {lack.name: lack.amounts for lack in lacks}


def _amounts(amounts: Amounts) -> str:
    return listed(
        [
            "a place for a Pod"
            if resource == POD_COUNT
            else f"{told(resource, rounded_up(resource, amount))} {resource}"
            for resource, amount in sorted(amounts.items())
        ],
        "and",
    )


def _held(cluster: Cluster, room: Mapping[str, Amounts]) -> str:
    """Holders of as much: `2 jobs, 1 Pod and Pods without GPUs`."""
    whose, is_enough = set[Holder](), True
    for name, amounts in room.items():
        left = dict(amounts)
        for taker in cluster.takers(name):
            if any(taker.amounts.get(resource, 0) for resource, amount in left.items() if amount > 0):
                whose.add(taker.holder)
                left = {resource: amount - taker.amounts.get(resource, 0) for resource, amount in left.items()}
        is_enough = is_enough and all(amount <= 0 for amount in left.values())
    kinds = Counter(holder.kind for holder in whose)
    words = [count(kinds[kind], kind) for kind in HolderKind if kinds[kind]]
    return listed(words if is_enough else [*words, "Pods without GPUs"], "and")
