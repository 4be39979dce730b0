"""Nodes in place of those that a gang has lost, while the rest of it stays where it is.

The order of merit is that of a whole gang (docs/decisions/0004-place.md) with the kept shares given: what they use is
used anyway, so that a node beside them costs no domain, and nothing faster than they are is looked for.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.nic_exposure import nic_exposure
from closeknit.placement.candidates.offer import Joint, Peers
from closeknit.placement.candidates.usable_areas import Area, Areas, OfferMask, OfferNumber, mask_of_offers, numbers_of
from closeknit.placement.current_placement import KeptGang
from closeknit.placement.gang.cache import OfferShare, Tables
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.gang.layout import Part
from closeknit.placement.gang.share_sizes import ShareSize
from closeknit.placement.gang.share_values import ShareValues
from closeknit.placement.gpusets.set_value import Measure, Value
from closeknit.placement.place import NicNames, share_of
from closeknit.placement.spread.cost import Scale
from closeknit.placement.values.placement import Placement, Share
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
        best = _replacement(
            _LostShares(KeptGang.of(cluster, request, workers, tables), tables.ground(cluster, request), part)
        )
        found |= best.shares
        for position, share in best.shares.items():
            workers[position] = _taken(workers[position], share)
        placement = best.placement
    return Replacement(found, placement)


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


def _replacement(lost: "_LostShares") -> Replacement:
    best: Replacement = NONE
    for peers in lost.peers():
        found = lost.replaced(lost.found(peers))
        if len(found.shares) > len(best.shares):
            best = found
        if len(best.shares) == len(lost.lost):
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
class _LostShares:
    """What is asked in place of some shares of a gang."""

    gang: KeptGang
    ground: Areas
    lost: Sequence[int]
    """Positions that are to be replaced, all of one size; others that are lost stay so."""

    def peers(self) -> Iterable[Peers]:
        """The nodes that may join the kept ones: those of their kind before others."""
        gang = self.gang
        peers = Peers(transport=gang.transport, exposure=gang.exposure)
        if len(gang.kinds) == 1:
            yield peers._replace(kind=next(iter(gang.kinds)))
        if gang.request.mixes_kinds:
            is_open = self._size % gang.request.group == 0 or gang.request.nvlink is NvlinkPolicy.IGNORED
            yield peers if is_open else peers._replace(nvlink_generation=min(gang.generations))

    @property
    def _size(self) -> int:
        return len(self.gang.workers[self.lost[0]].gpus)

    @property
    def _shape(self) -> ShareSize:
        """On isolated rails all nodes give the same local indexes."""
        rail = tuple(sorted(next(share.gpus for share in self.gang.workers if not share.lost)))
        return ShareSize(self._size, equal=True, rail=rail if self.gang.joints.rail_isolated else ())

    def found(self, peers: Peers) -> Sequence[tuple[str, OfferNumber, OfferShare]]:
        """As many nodes as can be had among these peers, by name."""
        gang = self.gang
        offers, request, shape = self.ground.offers, gang.request, self._shape
        mask = mask_of_offers(number for number in self.ground.counts if peers.has(offers[number].terms))
        most = max((offers[number].gpus for number in numbers_of(mask)), default=0)
        if most < self._size:
            return ()
        scale, floor = Scale(len(gang.joints.levels)), Value(0.0, request.min_bus_bandwidth_gb_s or 0.0)
        values = ShareValues(
            gang.tables,
            request,
            offers,
            most,
            gang.transport,
            scale=scale,
            kept=self._whole_ranks,
            joined=Joint.NONE,
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
        request = self.gang.request
        blocks = (request.group,) if request.nvlink is NvlinkPolicy.IGNORED else (request.expert_block, request.group)
        return next((block for block in blocks if self._size % block == 0), 1)

    def _cheapest(self, scale: Scale, costs: Mapping[OfferNumber, int], *, counts_free: bool = True) -> _Sum:
        """The most nodes that can be had, up to the lost ones, and of these the cheapest: first where the kept ones lie
        at the innermost level, then further out."""
        gang = self.gang
        gone = {share.node for share in gang.workers}
        search = _Search(gang.cluster, scale, gang.used, gone, costs, counts_free=counts_free)
        level = gang.request.level
        outermost = -1 if level is None else gang.joints.levels.index(level)
        outermost = min(outermost, len(gang.used) - 1)
        best = _NOTHING
        for inside in range(len(gang.used) - 1, outermost - 1, -1):
            best = search.sums(self.ground.root, len(self.lost), inside)[-1]
            if len(best.picks) == len(self.lost):
                break
        return best

    def _counts(self, scale: Scale, found: _Sum) -> tuple[int, ...]:
        """Number of domains of each level that the whole gang uses then, host last."""
        new = scale.domains(found.cost)
        outer = (
            len(used) + alone + more for used, alone, more in zip(self.gang.used, self.gang.alone, new, strict=False)
        )
        return (*outer, len(self.gang.workers))

    def _limit_gb_s(self, scale: Scale, found: _Sum) -> float | None:
        """What limits the gang whatever the new nodes are worth; None where that is unknown."""
        counts = self._counts(scale, found)
        return self.gang.predicted(self.gang.placed, counts).gb_s

    def replaced(self, found: Sequence[tuple[str, OfferNumber, OfferShare]]) -> Replacement:
        """The lost shares on these nodes; nothing where the gang could be slower then than the job demands."""
        gang = self.gang
        if not found:
            return NONE
        asked = next((name for name, _ in gang.request.needs if nic_exposure(name)), None)
        named: NicNames = {}
        offers, nodes = self.ground.offers, gang.cluster.nodes
        parts = {
            name: Part(name, offers[number], taken.choice.mask, taken.seat.binding, taken.choice.is_cut)
            for name, number, taken in found
        }
        new = {
            position: share_of(
                nodes[name], parts[name], gang.transport, gang.workers[position].first_rank, asked, named
            )
            for position, name in self._seated(sorted(parts)).items()
        }
        placed = [*gang.placed, *((part.node, part.offer.terms.sets, part.mask, part.offer.terms.nics)
                                  for part in parts.values())]  # fmt: skip
        every = gang.every(new)
        prediction = gang.predicted(placed, gang.domains_of(every))
        minimum = gang.request.min_bus_bandwidth_gb_s
        sure = prediction.gb_s if prediction.gb_s is not None else prediction.at_least_gb_s
        if minimum and (sure is None or sure < minimum):
            return NONE
        if any(share.lost and position not in new for position, share in enumerate(gang.workers)):
            return Replacement(new, None)
        is_cut = any(part.is_cut for part in parts.values())
        return Replacement(new, gang.placement(every, prediction, is_cut=is_cut))

    def _seated(self, names: Sequence[str]) -> dict[int, str]:
        """Which node takes which lost position, the first position first: the one that is nearest to the lost node,
        then to the nodes of the ranks before and after it."""
        gang = self.gang
        nodes, left = gang.cluster.nodes, list(names)
        found: dict[int, str] = {}
        for position in self.lost[: len(names)]:
            beside = (position, position - 1, position + 1)
            there = [nodes.get(gang.workers[at].node) for at in beside if 0 <= at < len(gang.workers)]
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
