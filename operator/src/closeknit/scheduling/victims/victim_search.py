"""Who has to go so that a gang fits its topology: the jobs that lose the least GPU-time, and no one in vain.

Among EXACT jobs or fewer the answer is exact. Of more, domains are looked at one by one, those first where the GPUs
that the gang lacks cost the least: jobs go there one after the other, the cheapest first and then node by node, until
the gang fits; those go back without which it fits as well; and the exact search has the last word on what is left and
what is cheap beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf

from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import Holder, HolderKind
from closeknit.placement.candidates.node_filter import is_kept
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.victims.cheapest_victims import EXACT, Cheapest, first_that_do, without_needless
from closeknit.scheduling.victims.victim import Victim

MOST_DOMAINS = 4  # that are tried, of many; two of equal cost are as good
MOST_TRIED = 1 << EXACT  # choices among few victims: all, a millisecond or two each where the cluster is small
MOST_REFINED = 32  # choices among the cheapest of many
REFINED_NODES = 512  # of larger clusters each choice takes milliseconds
MOST_SPARED = 64  # of many victims these are tried to be spared one by one, the dearest first


@dataclass(frozen=True, slots=True)
class ChosenVictims:
    """Who goes, and what the gang gets."""

    victims: tuple[Victim, ...]
    placement: Placement


@dataclass(frozen=True, slots=True)
class Ground:
    """The cluster with everybody on it, and the cluster without some of them."""

    cluster: Cluster
    without: Callable[[Sequence[Victim]], Cluster]
    place: Callable[[Cluster], Placement | None]
    """The gang's placement; None where it does not fit."""
    can_place: Callable[[Cluster], bool]
    _known: dict[frozenset[Victim], bool] = field(default_factory=dict)

    def fits(self, gone: Sequence[Victim]) -> bool:
        """Whether the gang fits without these."""
        key = frozenset(gone)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self.can_place(self.without(gone))
        return known


def search_victims(ground: Ground, asked: Request, victims: Sequence[Victim]) -> ChosenVictims | None:
    """The victims of a gang that does not fit, and its placement without them; None where it would not fit either.

    `victims` are those that may go, the cheapest first.
    """
    is_few = len(victims) <= EXACT
    found = _exactly(ground, asked, victims, MOST_TRIED) if is_few else _by_domains(ground, asked, victims)
    placement = None if found is None else ground.place(ground.without(found))
    return None if found is None or placement is None else ChosenVictims(tuple(sorted(found, key=_key)), placement)


def sizes_without(cluster: Cluster, asked: Request, victims: Sequence[Victim], sizes: range) -> list[int]:
    """The sizes of a gang for which one domain has GPUs enough once all of these are gone, the largest first: what is
    free there, and what they hold."""
    counts = _Counts.of(cluster, asked, victims)
    room = dict.fromkeys(counts.domains, 0)
    for domain, nodes in counts.domains.items():
        for name in nodes:
            theirs = frozenset[int]().union(*counts.held.get(name, {}).values())
            free = len(theirs.union(cluster.nodes[name].free))
            room[domain] += free if counts.each is None else counts.each * (free >= counts.each)
    most = max(room.values(), default=0) if counts.wanted else inf
    return [size for size in reversed(sizes) if size <= most]


def _key(victim: Victim) -> tuple[str, str]:
    return victim.key


def _exactly(ground: Ground, asked: Request, victims: Sequence[Victim], most: int) -> tuple[Victim, ...] | None:
    """The cheapest choice among at most EXACT of them."""
    counts = _Counts.of(ground.cluster, asked, victims)
    costs = [victim.lost_gpu_s for victim in victims]
    is_monotone = _is_monotone(ground.cluster, asked)
    found = Cheapest(victims, costs, ground.fits, counts.may_do, is_monotone=is_monotone).found(most)
    if found is None and not is_monotone:  # not the cheapest then, but none too many
        found = Cheapest(victims, costs, ground.fits, counts.may_do, is_monotone=True).found(most)
        found = None if found is None else without_needless(found[::-1], ground.fits)
    return found


def _is_monotone(cluster: Cluster, asked: Request) -> bool:
    """Whether a gang that fits also fits where more is free: a device plugin may choose GPUs that are joined worse."""
    if asked.nvlink is not NvlinkPolicy.REQUIRED and asked.min_bus_bandwidth_gb_s is None:
        return True
    return all(view.dra or view.plugin is None for view in cluster.nodes.values() if view.exclusion is None)


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many GPUs each node can come to have free for the gang, and how many of them each victim holds."""

    wanted: int
    """0 where a count of GPUs says nothing."""
    each: int | None
    """So many the gang takes of each of its nodes; None for any number."""
    domains: Mapping[str, Sequence[str]]
    """The nodes of each domain of the level inside of which it must lie."""
    usable: Mapping[str, int]
    """GPUs of each node, without those that others are known to hold."""
    held: Mapping[str, Mapping[Victim, frozenset[int]]]
    """Usable GPUs of each node that victims hold; two may be booked the same."""

    @classmethod
    def of(cls, cluster: Cluster, asked: Request, victims: Sequence[Victim]) -> "_Counts":
        """Of the cluster with all victims on it."""
        if not asked.takes_free_gpus:
            return cls(0, None, {}, {}, {})
        held: dict[str, dict[Victim, frozenset[int]]] = {}
        for victim in victims:
            for node, gpus in victim.gpus.items():
                there = cluster.nodes.get(node)
                if there is not None and (good := gpus.intersection(there.usable)):
                    held.setdefault(node, {})[victim] = good
        ours = {Holder(HolderKind.JOB, victim.key.namespace, victim.key.name) for victim in victims}
        domains: dict[str, list[str]] = {}
        usable: dict[str, int] = {}
        for name, view in cluster.nodes.items():
            if view.exclusion is not None or name in asked.avoided or not view.usable or is_kept(view.spare_for, asked):
                continue
            gone = 0
            if view.dra:  # of a device plugin's it is often not known who holds which
                promised = frozenset[int]().union(*held.get(name, {}).values())
                others = {gpu for gpu, each in view.holders.items() if each.kind is HolderKind.JOB and each not in ours}
                gone = len(others.intersection(view.usable) - promised)
            domains.setdefault(domain_of(cluster, asked, name), []).append(name)
            usable[name] = len(view.usable) - gone
        return cls(asked.gpus, asked.gpus_per_node, domains, usable, held)

    def may_do(self, gone: Sequence[Victim]) -> bool:
        """Whether a domain can have GPUs enough once these are gone."""
        if not self.wanted:
            return True
        there = frozenset(gone)
        return any(self._room(nodes, there) >= self.wanted for nodes in self.domains.values())

    def _room(self, nodes: Sequence[str], gone: frozenset[Victim]) -> int:
        room = 0
        for node in nodes:
            stay = (gpus for victim, gpus in self.held.get(node, {}).items() if victim not in gone)
            free = max(0, self.usable[node] - len(frozenset[int]().union(*stay)))
            room += free if self.each is None else self.each if free >= self.each else 0
            if room >= self.wanted:
                break
        return room


def domain_of(cluster: Cluster, asked: Request, node: str) -> str:
    """The domain of a node of which the gang must lie in one; empty without a required level."""
    if asked.required_level is None or asked.required_level not in cluster.levels:
        return ""
    return cluster.nodes[node].domains[cluster.levels.index(asked.required_level)] or node


def _by_domains(ground: Ground, asked: Request, victims: Sequence[Victim]) -> tuple[Victim, ...] | None:
    """The best that is found in some domains."""
    best: tuple[Victim, ...] | None = None
    near: _Steps = ()
    least = inf
    counts = _Counts.of(ground.cluster, asked, victims)
    for bound, order in _regions(ground.cluster, asked, counts):
        if bound >= least:
            break
        for steps in (order, _by_nodes(ground.cluster, asked, order)):
            found = _until_it_fits(ground, counts, steps)
            if found is None:
                break  # nor in another order
            found = _spared(ground, counts, found)
            cost = _cost(found)
            if cost < least:
                best, near, least = found, order, cost
            if cost <= bound:
                break
    if best is not None:
        return _refined(ground, asked, best, near)
    found = _until_it_fits(ground, counts, [(victim,) for victim in victims])  # what counts of GPUs do not see
    return None if found is None else _spared(ground, counts, found)


def _cost(victims: Sequence[Victim]) -> int:
    return sum(victim.lost_gpu_s for victim in victims)


_Steps = Sequence[tuple[Victim, ...]]
"""Victims in the order in which they go."""


def _regions(cluster: Cluster, asked: Request, counts: "_Counts") -> list[tuple[float, _Steps]]:
    """The domains in which the gang may come to fit, at most MOST_DOMAINS: the least that its lack of GPUs there can
    cost, and who goes first for that."""
    found: list[tuple[float, str]] = []
    orders: dict[str, list[tuple[Victim, ...]]] = {}
    for domain, nodes in counts.domains.items():
        inside: dict[Victim, int] = {}
        for node in nodes:
            for victim, gpus in counts.held.get(node, {}).items():
                inside[victim] = inside.get(victim, 0) + len(gpus)
        order = sorted(inside, key=lambda victim: (victim.lost_gpu_s / max(1, inside[victim]), victim.key))
        lack = asked.gpus - sum(cluster.nodes[node].free_gpus for node in nodes)
        bound, gained = 0.0, 0
        for victim in order:
            if gained >= lack:
                break
            part = min(1.0, (lack - gained) / max(1, inside[victim]))
            bound, gained = bound + part * victim.lost_gpu_s, gained + inside[victim]
        if order and gained >= lack:
            found.append((bound, domain))
            orders[domain] = [(victim,) for victim in order]
    return [(bound, orders[domain]) for bound, domain in sorted(found)[:MOST_DOMAINS]]


def _by_nodes(cluster: Cluster, asked: Request, order: _Steps) -> _Steps:
    """The same victims node by node, those nodes first that are emptied at the least cost for each GPU."""
    on: dict[str, list[Victim]] = {}
    for (victim,) in order:
        for node in victim.gpus:
            on.setdefault(node, []).append(victim)
    prices: list[tuple[float, str]] = []
    for node, there in on.items():
        view = cluster.nodes.get(node)
        if view is None or view.exclusion is not None or node in asked.avoided or is_kept(view.spare_for, asked):
            continue
        gained = len(view.free) + sum(len(victim.gpus[node]) for victim in there)
        prices.append((_cost(there) / max(1, gained), node))
    gone: set[Victim] = set()
    steps: list[tuple[Victim, ...]] = []
    for _, node in sorted(prices):
        step = tuple(victim for victim in on[node] if victim not in gone)
        gone.update(step)
        steps += [step] if step else []
    return steps


def _until_it_fits(ground: Ground, counts: _Counts, steps: _Steps) -> tuple[Victim, ...] | None:
    """The victims of the fewest steps after which the gang fits, by doubling and then halving; None for none."""

    def fits(some: Sequence[Victim]) -> bool:
        return counts.may_do(some) and ground.fits(some)

    return first_that_do(steps, fits)


def _spared(ground: Ground, counts: _Counts, found: tuple[Victim, ...]) -> tuple[Victim, ...]:
    """Those without which it would not fit: first all go back that are on none of the nodes that it would get."""

    def fits(some: Sequence[Victim]) -> bool:
        return counts.may_do(some) and ground.fits(some)

    placement = ground.place(ground.without(found))
    if placement is not None:
        nodes = {share.node for share in placement.shares}
        near = tuple(victim for victim in found if not nodes.isdisjoint(victim.gpus))
        found = near if len(near) < len(found) and near and fits(near) else found
    dearest = sorted(found, key=lambda victim: (-victim.lost_gpu_s, victim.key))
    if len(dearest) <= MOST_SPARED:
        return without_needless(dearest, fits)
    rest = dearest[MOST_SPARED:]
    return (*without_needless(dearest[:MOST_SPARED], lambda some: fits((*some, *rest))), *rest)


def _refined(ground: Ground, asked: Request, found: tuple[Victim, ...], order: _Steps) -> tuple[Victim, ...]:
    """The exact answer among these and the cheapest others of their domain."""
    if len(found) > EXACT or len(ground.cluster.nodes) > REFINED_NODES:
        return found
    others = (victim for victim in chain.from_iterable(order) if victim not in found)
    near = [*found, *(victim for victim, _ in zip(others, range(EXACT - len(found)), strict=False))]
    near.sort(key=lambda victim: (victim.lost_gpu_s, victim.key))
    return _exactly(ground, asked, near, MOST_REFINED) or found
