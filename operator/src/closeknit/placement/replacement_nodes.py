"""Nodes in place of those that a gang has lost, while the rest of it stays where it is.

The order of merit is that of a whole gang (docs/decisions/0004-place.md) with the kept shares given: what they use is
used anyway, so that a node beside them costs no domain, and nothing faster than they are is looked for.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.forest.group import group_of
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.nic_exposure import NicExposure, asks_for_nics, nic_exposure
from closeknit.placement.allreduce.bandwidth import EVERY_NIC, NicAccess
from closeknit.placement.allreduce.paths import nvlink_generation
from closeknit.placement.candidates.offer import Joint, Peers, matching, terms
from closeknit.placement.candidates.usable_areas import Area, Areas, OfferMask, OfferNumber, mask_of_offers, numbers_of
from closeknit.placement.gang.cache import OfferShare, Tables
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.gang.layout import Part
from closeknit.placement.gang.prediction import Prediction, level_cap, level_floor, predict, undescribed
from closeknit.placement.gang.share_sizes import ShareSize
from closeknit.placement.gang.share_values import ShareValues
from closeknit.placement.gpusets.gpu_sets import GpuSets
from closeknit.placement.gpusets.set_value import Measure, Value
from closeknit.placement.place import NicNames, share_of
from closeknit.placement.refusals.ideal import ideal_gb_s
from closeknit.placement.spread.cost import Scale
from closeknit.placement.values.placement import Placement, Share, TransportChoice
from closeknit.placement.values.request import Request

# Nodes that are compared at once: to compare every way to replace so many took half a second on 5,000 nodes, beside
# other work.
_AT_ONCE = 16
MOST_LOST = 64  # nodes of one gang: three racks of 18 and some, by four such searches


@dataclass(frozen=True, slots=True)
class Replacement:
    """What there is in place of the lost shares."""

    shares: Mapping[int, Share]
    """By position, for as many of the lost ones as can be replaced now: the first ones."""
    placement: Placement | None
    """The whole gang with them; None while a lost one is left."""


NONE = Replacement({}, None)
_Placed = tuple[str, GpuSets, int, NicAccess]
_Pick = tuple[str, OfferNumber]


def not_replaced(cluster: Cluster, request: Request, shares: Sequence[BookingShare]) -> str | None:
    """Why no node of this gang is replaced alone, as a clause; None where they are."""
    workers = [share for share in shares if share.server is None]
    lost = [share for share in workers if share.lost]
    if not lost or len(lost) == len(workers):
        return "none of its nodes is left"
    if request.mig is not None:
        return "it has a MIG device of one node"
    if Interconnect.of(cluster).has_channels(request):
        return "NVLink may join its nodes, so that all of them lie in one NVLink domain"
    if len(lost) > MOST_LOST:
        return f"it lost {len(lost)} nodes at once, and no more than {MOST_LOST} are replaced one by one"
    return None


def replacement(cluster: Cluster, request: Request, shares: Sequence[BookingShare], tables: Tables) -> Replacement:
    """The best nodes for the lost shares of a gang that `not_replaced` allows, as the cluster is now: it holds the kept
    ones there. Their ranks and positions stay, and each lost position gets as many GPUs as it had. More than _AT_ONCE,
    or such of several sizes, are looked for one part after the other, each beside what was found before."""
    workers = [share for share in shares if share.server is None]
    found, placement = dict[int, Share](), None
    for part in _parts(workers):
        best = _replacement(_Kept.of(cluster, request, workers, part, tables))
        found |= best.shares
        for position, share in best.shares.items():
            workers[position] = _taken(workers[position], share)
        placement = best.placement
    return Replacement(found, placement)


def as_it_is(cluster: Cluster, request: Request, shares: Sequence[BookingShare], tables: Tables) -> Placement:
    """The placement of a gang on the nodes that it has, all of which are there with their machines."""
    workers = [share for share in shares if share.server is None]
    return _Kept.of(cluster, request, workers, (), tables).as_it_is()


def _parts(workers: Sequence[BookingShare]) -> Sequence[Sequence[int]]:
    """Lost positions that are replaced together: those of one size, the largest first, which fit in fewest places."""
    by_size: dict[int, list[int]] = {}
    for position, share in enumerate(workers):
        if share.lost:
            by_size.setdefault(len(share.gpus), []).append(position)
    return [
        alike[first : first + _AT_ONCE]
        for _, alike in sorted(by_size.items(), reverse=True)
        for first in range(0, len(alike), _AT_ONCE)
    ]


def _replacement(gang: "_Kept") -> Replacement:
    best: Replacement = NONE
    for peers in gang.peers():
        found = gang.replaced(gang.found(peers))
        if len(found.shares) > len(best.shares):
            best = found
        if len(best.shares) == len(gang.lost):
            break
    return best


def _taken(lost: BookingShare, new: Share) -> BookingShare:
    """A lost share on the node that takes its place, for what is looked for after it."""
    return replace(
        lost,
        node=new.node,
        gpus=new.gpus,
        binding=new.binding,
        nics=new.nics,
        rdma_resource=new.rdma_resource,
        topology_generation=new.topology_generation,
        lost=False,
    )


class _Sum(NamedTuple):
    """The cheapest of some nodes in an area; of equal ones those with the first names."""

    cost: int
    picks: tuple[_Pick, ...]
    """By name."""


_NOTHING = _Sum(0, ())


class _Search:
    """The cheapest nodes of one ground beside the kept ones."""

    def __init__(
        self,
        cluster: Cluster,
        scale: Scale,
        used: Sequence[Collection[str]],
        gone: Collection[str],
        costs: Mapping[OfferNumber, int],
        *,
        counts_free: bool,
    ) -> None:
        """`used` are the domains of each level that the kept nodes lie in, `gone` the nodes that are not to be taken,
        `costs` what a node of each offer costs."""
        self._views = cluster.nodes
        self._scale = scale
        self._used = used
        self._gone = gone
        self._costs = costs
        self._mask = mask_of_offers(costs)
        self._counts_free = counts_free

    def sums(self, area: Area, most: int, inside: int) -> list[_Sum]:
        """The cheapest 0, 1, 2, … nodes of an area, as far as it has so many and up to `most`, in domains of the level
        `inside` that are used; -1: in any."""
        if not area.children:
            return self._of_nodes(area, most)
        best = [_NOTHING]
        for child in area.children:
            if not child.offers & self._mask:
                continue
            is_used = self._is_used(child)
            if child.level <= inside and not is_used:
                continue
            table = self.sums(child, most, inside)
            if len(table) > 1:
                best = _together(best, table, 0 if is_used else self._use(child), most)
        return best

    def _of_nodes(self, area: Area, most: int) -> list[_Sum]:
        found: list[tuple[int, str, OfferNumber]] = []
        for members in area.members:
            cost = self._costs.get(members.offer)
            if cost is not None:
                names = (name for name in members.ascending() if name not in self._gone)
                found += ((cost, name, members.offer) for name in islice(names, most))
        best, picks = [_NOTHING], list[_Pick]()
        for cost, name, offer in nsmallest(most, found):
            picks.append((name, offer))
            best.append(_Sum(best[-1].cost + cost, tuple(sorted(picks))))
        return best

    def _is_used(self, area: Area) -> bool:
        """Whether a kept node lies in the area."""
        return not area.is_lone and self._views[area.first].domains[area.level] in self._used[area.level]

    def _use(self, area: Area) -> int:
        """What it costs to use an area, at its level and, where it is lone, at those inside."""
        levels = slice(area.level, None if area.is_lone else area.level + 1)
        free = sum(self._scale.of_free_gpu[levels]) * area.free_gpus if self._counts_free else 0
        return sum(self._scale.of_domain[levels]) + free


def _together(one: Sequence[_Sum], other: Sequence[_Sum], use: int, most: int) -> list[_Sum]:
    """The cheapest sums of both, where any of the other costs so much more."""
    found: list[_Sum] = []
    for number in range(min(most, len(one) + len(other) - 2) + 1):
        able = range(max(0, number - len(one) + 1), min(number, len(other) - 1) + 1)
        costs = [(one[number - given].cost + other[given].cost + (use if given else 0), given) for given in able]
        least = min(costs)[0]
        ties = [given for cost, given in costs if cost == least]
        picks = min(tuple(sorted((*one[number - given].picks, *other[given].picks))) for given in ties)
        found.append(_Sum(least, picks))
    return found


@dataclass(frozen=True, slots=True)
class _Kept:
    """What stays of a gang, and what is asked in place of the rest."""

    cluster: Cluster
    request: Request
    tables: Tables
    joints: Interconnect
    ground: Areas
    workers: Sequence[BookingShare]
    lost: Sequence[int]
    """Positions that are to be replaced, all of one size; others that are lost stay so."""
    placed: Sequence[_Placed]
    """The kept ones, one of each that limit the gang alike."""
    kinds: frozenset[tuple[str, ...]]
    generations: frozenset[int]
    transport: Transport | None
    exposure: NicExposure | None
    used: Sequence[Collection[str]]
    """Domains of each level, host left out, that the kept nodes lie in."""
    alone: Sequence[int]
    """Of each level, how many kept nodes are a domain of their own."""

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        request: Request,
        workers: Sequence[BookingShare],
        lost: Sequence[int],
        tables: Tables,
    ) -> "_Kept":
        kept = [share for share in workers if not share.lost]
        nodes = cluster.nodes
        placed: dict[object, _Placed] = {}
        kinds, generations = set[tuple[str, ...]](), set[int]()
        for share in kept:
            view = nodes[share.node]
            key = (id(view.machine), share.gpus, share.nics)
            if key in placed:
                continue
            kind, sets, access = _as_free(cluster, view, share, request, tables)
            placed[key] = (share.node, sets, sets.facts.mask_of_indexes(share.gpus), access)
            kinds.add(kind)
            generations.add(nvlink_generation(sets.facts.machine))
        levels = range(len(cluster.levels) - 1)
        domains = [[nodes[share.node].domains[level] for share in kept] for level in levels]
        first = kept[0]
        return cls(
            cluster,
            request,
            tables,
            Interconnect.of(cluster),
            tables.ground(cluster, request),
            tuple(workers),
            lost,
            tuple(placed.values()),
            frozenset(kinds),
            frozenset(generations),
            _transport(nodes[first.node], first.nics),
            nic_exposure(first.rdma_resource) if first.nics else None,
            [frozenset(filter(None, each)) for each in domains],
            [each.count(None) for each in domains],
        )

    def peers(self) -> Iterable[Peers]:
        """The nodes that may join the kept ones: those of their kind before others."""
        peers = Peers(transport=self.transport, exposure=self.exposure)
        if len(self.kinds) == 1:
            yield peers._replace(kind=next(iter(self.kinds)))
        if self.request.mixes_kinds:
            is_open = self._size % self.request.group == 0 or self.request.nvlink is NvlinkPolicy.IGNORED
            yield peers if is_open else peers._replace(nvlink_generation=min(self.generations))

    @property
    def _size(self) -> int:
        return len(self.workers[self.lost[0]].gpus)

    @property
    def _shape(self) -> ShareSize:
        """On isolated rails all nodes give the same local indexes."""
        rail = tuple(sorted(next(share.gpus for share in self.workers if not share.lost)))
        return ShareSize(self._size, equal=True, rail=rail if self.joints.rail_isolated else ())

    def found(self, peers: Peers) -> Sequence[tuple[str, OfferNumber, OfferShare]]:
        """As many nodes as can be had among these peers, by name."""
        offers, request, shape = self.ground.offers, self.request, self._shape
        mask = mask_of_offers(number for number in self.ground.counts if peers.has(offers[number].terms))
        most = max((offers[number].gpus for number in numbers_of(mask)), default=0)
        if most < self._size:
            return ()
        scale, floor = Scale(len(self.joints.levels)), Value(0.0, request.min_bus_bandwidth_gb_s or 0.0)
        values = ShareValues(
            self.tables, request, offers, most, self.transport, scale=scale, kept=self._whole_ranks, joined=Joint.NONE
        )

        def cheapest(able: OfferMask) -> _Sum:
            costs: Mapping[OfferNumber, int] = dict.fromkeys(numbers_of(able), scale.of_host)
            return self._cheapest(scale, costs, counts_free=False)

        able = values.worth(mask, shape, floor).able(mask)
        fewest = cheapest(able)
        if not fewest.picks:
            return ()
        measures = [Measure.BLOCK] if values.has_blocks else []
        for by in (*measures, Measure.BUS):
            stage = values.worth(mask, shape, floor, by)
            worths = stage.worths(mask)
            enough = self._limit_gb_s(scale, fewest) if by is Measure.BUS else None
            for worth in reversed(worths):
                best = worth if enough is None else min(worth, enough)
                at_best = cheapest(stage.able(mask, best))
                if (len(at_best.picks), at_best.cost) == (len(fewest.picks), fewest.cost):
                    floor = floor._replace(**{("block_gb_s", "bus_gb_s")[by]: max(floor[by], best)})
                    break
        taken = values.shares(mask, shape, floor)
        costs = {number: taken.of[number][1].cost for number in numbers_of(mask) if number in taken.of}
        return [(name, number, taken.of[number][1]) for name, number in self._cheapest(scale, costs).picks]

    @property
    def _whole_ranks(self) -> int:
        """How many ranks that follow each other stay on one node."""
        request = self.request
        blocks = (request.group,) if request.nvlink is NvlinkPolicy.IGNORED else (request.expert_block, request.group)
        return next((block for block in blocks if self._size % block == 0), 1)

    def _cheapest(self, scale: Scale, costs: Mapping[OfferNumber, int], *, counts_free: bool = True) -> _Sum:
        """The most nodes that can be had, up to the lost ones, and of these the cheapest: first where the kept ones lie
        at the innermost level, then further out."""
        gone = {share.node for share in self.workers}
        search = _Search(self.cluster, scale, self.used, gone, costs, counts_free=counts_free)
        level = self.request.level
        outermost = -1 if level is None else self.joints.levels.index(level)
        outermost = min(outermost, len(self.used) - 1)
        best = _NOTHING
        for inside in range(len(self.used) - 1, outermost - 1, -1):
            best = search.sums(self.ground.root, len(self.lost), inside)[-1]
            if len(best.picks) == len(self.lost):
                break
        return best

    def _counts(self, scale: Scale, found: _Sum) -> tuple[int, ...]:
        """Number of domains of each level that the whole gang uses then, host last."""
        new = scale.domains(found.cost)
        outer = (len(used) + alone + more for used, alone, more in zip(self.used, self.alone, new, strict=False))
        return (*outer, len(self.workers))

    def _limit_gb_s(self, scale: Scale, found: _Sum) -> float | None:
        """What limits the gang whatever the new nodes are worth; None where that is unknown."""
        counts = self._counts(scale, found)
        return self._predicted(self.placed, counts).gb_s

    def _predicted(self, placed: Sequence[_Placed], counts: Sequence[int]) -> Prediction:
        network = (self.joints.levels, self.joints.level_bandwidth_gb_s, counts)
        if len(placed) == 1:  # all are alike, and there are several
            placed = [*placed, *placed]
        return predict(placed, self.transport, level_cap(*network), level_floor(*network), undescribed(*network))

    def replaced(self, found: Sequence[tuple[str, OfferNumber, OfferShare]]) -> Replacement:
        """The lost shares on these nodes; nothing where the gang could be slower then than the job demands."""
        if not found:
            return NONE
        asked = next((name for name, _ in self.request.needs if nic_exposure(name)), None)
        named: NicNames = {}
        offers, nodes = self.ground.offers, self.cluster.nodes
        parts = {
            name: Part(name, offers[number], taken.choice.mask, taken.seat.binding, taken.choice.is_cut)
            for name, number, taken in found
        }
        new = {
            position: share_of(
                nodes[name], parts[name], self.transport, self.workers[position].first_rank, asked, named
            )
            for position, name in self._seated(sorted(parts)).items()
        }
        placed = [*self.placed, *((part.node, part.offer.terms.sets, part.mask, part.offer.terms.nics)
                                  for part in parts.values())]  # fmt: skip
        every = self._every(new)
        prediction = self._predicted(placed, self._domains_of(every))
        minimum = self.request.min_bus_bandwidth_gb_s
        sure = prediction.gb_s if prediction.gb_s is not None else prediction.at_least_gb_s
        if minimum and (sure is None or sure < minimum):
            return NONE
        if any(share.lost and position not in new for position, share in enumerate(self.workers)):
            return Replacement(new, None)
        is_cut = any(part.is_cut for part in parts.values())
        return Replacement(new, self._placement(every, prediction, is_cut=is_cut))

    def as_it_is(self) -> Placement:
        """The placement of a gang that has lost nothing."""
        every = self._every({})
        return self._placement(every, self._predicted(self.placed, self._domains_of(every)), is_cut=False)

    def _placement(self, every: Sequence[Share], prediction: Prediction, *, is_cut: bool) -> Placement:
        best = ideal_gb_s(self.cluster, replace(self.request, avoided=frozenset()), self.tables)
        known = [gb_s for gb_s in (best, prediction.gb_s) if gb_s is not None]
        counts = self._domains_of(every)
        return Placement(
            shares=tuple(every),
            levels=tuple(zip(self.cluster.levels[:-1], counts[:-1], strict=True)),
            transport=TransportChoice.RDMA if self.transport else TransportChoice.SOCKETS,
            predicted_bus_bandwidth_gb_s=prediction.gb_s,
            ideal_bus_bandwidth_gb_s=None if best is None else max(known),
            limited_by=prediction.limited_by,
            ended_at_budget=is_cut,
        )

    def _every(self, new: Mapping[int, Share]) -> Sequence[Share]:
        nodes = self.cluster.nodes
        return [new.get(position) or _share(share, nodes) for position, share in enumerate(self.workers)]

    def _domains_of(self, every: Sequence[Share]) -> tuple[int, ...]:
        return _domains(self.cluster.nodes, [share.node for share in every], len(self.joints.levels))

    def _seated(self, names: Sequence[str]) -> dict[int, str]:
        """Which node takes which lost position, the first position first: the one that is nearest to the lost node,
        then to the nodes of the ranks before and after it."""
        nodes, left = self.cluster.nodes, list(names)
        found: dict[int, str] = {}
        for position in self.lost[: len(names)]:
            beside = (position, position - 1, position + 1)
            there = [nodes.get(self.workers[at].node) for at in beside if 0 <= at < len(self.workers)]
            nearness = _nearness(nodes, there)
            best = max(left, key=lambda name: (nearness(name), -left.index(name)))
            left.remove(best)
            found[position] = best
        return found


def _nearness(nodes: Mapping[str, NodeView], there: Sequence[NodeView | None]) -> Callable[[str], tuple[int, ...]]:
    def near(name: str) -> tuple[int, ...]:
        own = nodes[name].domains[:-1]
        return tuple(
            sum(one == other and one is not None for one, other in zip(own, view.domains, strict=False))
            for view in there
            if view is not None
        )

    return near


def _as_free(
    cluster: Cluster, view: NodeView, share: BookingShare, request: Request, tables: Tables
) -> tuple[tuple[str, ...], GpuSets, NicAccess]:
    """The kind of a kept node, its sets, and the NICs that its share can have, as if it did not hold them yet."""
    group = group_of(view.freed(share.gpus))
    if group.kind is None:
        raise AssertionError(f"{share.node} has GPUs and no machine")
    sets, matches = tables.sets_in(cluster, group.kind), matching(group.kind, request)
    found = terms(group, group.kind, sets, request, matches, asks_for_nics=asks_for_nics(request.needs))
    is_dealt = bool(share.nics) and nic_exposure(share.rdma_resource) is NicExposure.DRANET
    return found.kind, sets, found.nics if is_dealt else EVERY_NIC


def _transport(view: NodeView, nics: Sequence[str]) -> Transport | None:
    if view.machine is None or not nics:
        return None
    return next((nic.transport for nic in view.machine.nics if f"{nic.name}:{nic.port}" in nics), None)


def _share(kept: BookingShare, nodes: Mapping[str, NodeView]) -> Share:
    """A kept share, or one that is still lost, as placement has it."""
    view = nodes.get(kept.node)
    machine = view.machine if view is not None else None
    by_index = {gpu.index: gpu.uuid or "" for gpu in machine.gpus} if machine else {}
    return Share(
        node=kept.node,
        gpus=kept.gpus,
        uuids=tuple(by_index.get(index, "") for index in kept.gpus),
        first_rank=kept.first_rank,
        binding=kept.binding,
        nics=kept.nics,
        topology_generation=kept.topology_generation,
        rdma_resource=kept.rdma_resource,
    )


def _domains(nodes: Mapping[str, NodeView], names: Sequence[str], levels: int) -> tuple[int, ...]:
    """How many domains of each level these nodes lie in, host last; unlabelled nodes each in one of their own."""
    views = [(name, nodes.get(name)) for name in names]
    outer = (
        len({(view.domains[level] if view else None) or f"?/{name}" for name, view in views})
        for level in range(levels - 1)
    )
    return (*outer, len(names))
