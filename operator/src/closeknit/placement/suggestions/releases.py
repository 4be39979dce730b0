"""GPUs that would have to become free for a gang to fit, of as few holders as a count finds, and placed again.

Where no count finds any, holders go one after the other, those of few GPUs first, until it fits.

Who holds a GPU gives all that it holds back at once, so that holders are chosen, those of few GPUs first: for nodes
with so many free GPUs each, or for so many GPUs in all, in one domain of the level that the gang is kept to. What is
told are the GPUs that the gang would take of theirs. Pods that go leave their CPU and memory, too.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from closeknit.api.trainingjob import BindingPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import Holder, HolderKind, NodeView
from closeknit.cluster.objects.pod_requests import Amounts
from closeknit.placement.candidates.binding import bindable
from closeknit.placement.candidates.resource_fit import fits
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.refusals.ideal import could_place
from closeknit.placement.suggestions.bisection import MANY_NODES, Freed, until_it_fits
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import count, listed

MOST_TRIED = 4  # choices of holders that are placed again
NAMED = 3  # so many nodes are named; more are counted


class Release(NamedTuple):
    """GPUs that would have to become free, and the gang's placement then."""

    gpus: Mapping[str, tuple[int, ...]]
    """By node."""
    holders: tuple[Holder, ...]
    """Of these GPUs."""
    placement: Placement

    def __str__(self) -> str:
        """Holders are counted, not named: the reader may be a tenant who may not list their namespace."""
        named = [f"{' '.join(map(str, gpus))} of {name}" for name, gpus in sorted(self.gpus.items())[:NAMED]]
        if more := len(self.gpus) - len(named):
            named.append(f"{sum(map(len, self.gpus.values())) - self._named()} of {count(more, 'other node')}")
        kinds = Counter(holder.kind for holder in self.holders)
        held = listed([count(kinds[kind], kind) for kind in HolderKind if kinds[kind]], "and")
        return f"free GPUs: {listed(named, 'and')}, held by {held}"

    def _named(self) -> int:
        return sum(len(gpus) for _, gpus in sorted(self.gpus.items())[:NAMED])


class _Node(NamedTuple):
    """A node that the gang may use."""

    name: str
    domain: str | None
    """Of the level that it is kept to."""
    kind: tuple[str, ...]
    """Its machine's: a gang may need one kind."""
    free: int
    held: Mapping[Holder, tuple[int, ...]]
    has_room: bool
    """Besides GPUs."""


_Holders = tuple[Holder, ...]


def release(cluster: Cluster, request: Request, tables: Tables) -> Generator[None, None, Release | None]:
    """The GPUs that would have to become free; None without any. Yields to others in between."""
    is_possible = could_place(cluster, request, tables)
    yield
    if not is_possible:
        return None
    nodes = yield from _nodes(cluster, request, tables)
    totals = Counter[Holder]()
    for node in nodes:
        for holder, gpus in node.held.items():
            totals[holder] += len(gpus)
    roomy = [node for node in nodes if node.has_room]
    choices, targets, looked_at = dict[_Holders, int](), _targets(request, roomy), 0
    for region in _regions(roomy, mixes_kinds=request.mixes_kinds):
        for each in targets:
            if each:
                found = yield from _of_each(region, each, request.gpus // each, totals)
            else:
                found = _of_all(region, request, totals)
            if found:
                choices[found] = sum(totals[holder] for holder in found)
            looked_at += len(region)
            if looked_at > MANY_NODES:
                looked_at = 0
                yield
    for chosen in sorted(choices, key=lambda holders: (choices[holders], holders))[:MOST_TRIED]:
        there = yield from _without(chosen, nodes, cluster, request, tables)
        if there is not None:
            return there
    if sum(len(cluster.nodes[node.name].usable) for node in nodes) < request.gpus:
        return None
    # Links, NICs or the shape of what is free may ask for others than a count of GPUs does.
    order = sorted(totals, key=lambda holder: (totals[holder], holder))
    enough = yield from until_it_fits(
        order, lambda holders: Freed(_given(nodes, tuple(holders)), {}), cluster, request, tables
    )
    return (yield from _without(tuple(order[:enough]), nodes, cluster, request, tables)) if enough else None


def _given(nodes: Sequence[_Node], holders: _Holders) -> dict[str, tuple[int, ...]]:
    """The holders' parts of these nodes."""
    gone = frozenset(holders)
    return {node.name: _of(node, gone) for node in nodes if not gone.isdisjoint(node.held)}


def _without(
    holders: _Holders, nodes: Sequence[_Node], cluster: Cluster, request: Request, tables: Tables
) -> Generator[None, None, Release | None]:
    """The gang's placement without these holders, and its part of theirs; or all that they have on its nodes, if that
    part alone is not enough (a device plugin picks among all that is free, or it needs their CPU)."""
    given = _given(nodes, holders)
    freed = cluster.freed(given)
    is_enough = can_place(freed, request, tables)
    yield
    there = place(freed, request, tables) if is_enough else None
    yield
    if not isinstance(there, Placement):
        return None
    both = {share.node: {*share.gpus} & {*given.get(share.node, ())} for share in there.shares}
    taken = {name: tuple(sorted(gpus)) for name, gpus in both.items() if gpus}
    for gpus in (taken, {share.node: given[share.node] for share in there.shares if share.node in given}):
        again = place(cluster.freed(gpus), request, tables)
        yield
        if isinstance(again, Placement):
            views = cluster.nodes
            whose = {views[name].holders[gpu] for name, indexes in gpus.items() for gpu in indexes}
            return Release(gpus, tuple(sorted(whose)), again)
    return None


def _nodes(cluster: Cluster, request: Request, tables: Tables) -> Generator[None, None, list[_Node]]:
    """The nodes that the gang may use, by name, with their healthy GPUs; where it needs more besides than they have
    left, once their holders' Pods have gone."""
    level = request.required_level or request.patient_level
    at = None if level is None else cluster.levels.index(level)
    ground, found = tables.ground(cluster, replace(request, needs=())), list[_Node]()
    for _, offer, name in ground.nodes():
        view = cluster.nodes[name]
        if request.binding is not BindingPolicy.AUTO and offer.terms.dra != (request.binding is BindingPolicy.DRA):
            continue  # whatever becomes free of it
        has_room = fits(view.spare, request.needs)
        if not has_room and not fits(_left(cluster, view), request.needs):
            continue
        held = dict[Holder, list[int]]()
        for gpu, holder in view.holders.items():
            if gpu not in view.unusable:
                held.setdefault(holder, []).append(gpu)
        domain = None if at is None else view.domains[at] or name
        by_holder = {holder: tuple(gpus) for holder, gpus in held.items()}
        found.append(_Node(name, domain, offer.terms.kind, bindable(offer, request.binding), by_holder, has_room))
        if len(found) % MANY_NODES == 0:
            yield
    return sorted(found, key=lambda node: node.name)


def _left(cluster: Cluster, view: NodeView) -> Amounts:
    """Free resources of a node, besides GPUs, once the holders of its GPUs have gone."""
    left, gone = dict(view.spare or {}), frozenset(view.holders.values())
    for taker in cluster.takers(view.name):
        if taker.is_of(gone):
            left.update((name, left.get(name, 0) + amount) for name, amount in taker.amounts.items())
    return left


def _regions(nodes: Sequence[_Node], *, mixes_kinds: bool) -> Iterator[Sequence[_Node]]:
    """The nodes of each domain by the kind of their machines, and all of a domain where the gang may mix them."""
    domains = dict[str | None, dict[tuple[str, ...], list[_Node]]]()
    for node in nodes:
        domains.setdefault(node.domain, {}).setdefault(node.kind, []).append(node)
    for kinds in domains.values():
        yield from kinds.values()
        if mixes_kinds and len(kinds) > 1:
            yield list(chain.from_iterable(kinds.values()))


def _targets(request: Request, nodes: Sequence[_Node]) -> tuple[int, ...]:
    """Number of GPUs for each node to give; 0 where only the sum counts."""
    if request.gpus_per_node is not None:
        return (request.gpus_per_node,)
    widest = max((node.free + sum(map(len, node.held.values())) for node in nodes), default=0)
    able = [
        each for each in range(min(widest, request.gpus), 0, -1) if request.gpus % each == each % request.group == 0
    ]
    return (*able[:2], 0) if request.group == 1 else tuple(able[:2])


def _of_each(
    region: Sequence[_Node], each: int, wanted: int, totals: Mapping[Holder, int]
) -> Generator[None, None, _Holders]:
    """The holders to go so that so many nodes have so many free GPUs each; empty if impossible."""
    costs = list[tuple[int, str, _Holders]]()
    for number, node in enumerate(region, 1):
        if number % MANY_NODES == 0:
            yield
        if node.free >= each:
            costs.append((0, node.name, ()))
        elif found := _cheapest({holder: len(gpus) for holder, gpus in node.held.items()}, each - node.free, totals):
            costs.append((sum(totals[holder] for holder in found), node.name, found))
    if len(costs) < wanted:
        return ()
    return tuple(sorted({holder for _, _, found in sorted(costs)[:wanted] for holder in found}))


def _of_all(region: Sequence[_Node], request: Request, totals: Mapping[Holder, int]) -> _Holders:
    """The holders to go so that the region has so many free GPUs."""
    held = Counter[Holder]()
    for node in region:
        for holder, gpus in node.held.items():
            held[holder] += len(gpus)
    return _cheapest(held, request.gpus - sum(node.free for node in region), totals)


def _cheapest(held: Mapping[Holder, int], wanted: int, totals: Mapping[Holder, int]) -> _Holders:
    """Holders of so many GPUs, and few in all: small ones together, or the smallest with as many alone."""
    order = sorted(held, key=lambda holder: (totals[holder], holder))
    taken, gained = list[Holder](), 0
    for holder in order:
        if gained >= wanted:
            break
        taken.append(holder)
        gained += held[holder]
    if gained < wanted or wanted <= 0:
        return ()
    for holder in reversed(taken[:-1]):
        if gained - held[holder] >= wanted:
            taken.remove(holder)
            gained -= held[holder]
    alone = next((holder for holder in order if held[holder] >= wanted), None)
    if alone is not None and totals[alone] <= sum(totals[holder] for holder in taken):
        return (alone,)
    return tuple(sorted(taken))


def _of(node: _Node, gone: frozenset[Holder]) -> tuple[int, ...]:
    return tuple(sorted(gpu for holder, gpus in node.held.items() if holder in gone for gpu in gpus))
