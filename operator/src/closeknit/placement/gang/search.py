"""Which nodes and which GPUs a gang takes: the order of merit of docs/decisions/0004-place.md, searched.

A layout on one node comes first: it needs no network. Then come those in one NVLink domain, where Pods can have the
channels that open NVLink between nodes, in equal shares of more than half of each. Of the other ways of placing a gang
on several nodes these are better, in this order: groups whole on their nodes; machines of one kind; RDMA between all;
expert groups whole on their nodes. Layouts of one way compare by their Merit (layout.py), with the Cost of their spread
(cost.py) as its last part; of equal ones the one with the first names is taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import NvlinkPolicy, RdmaPolicy
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.objects.nic_exposure import NicExposure
from closeknit.placement.allreduce.bandwidth import RDMA_TRANSPORTS
from closeknit.placement.allreduce.paths import nvlink_generation
from closeknit.placement.candidates.offer import Peers
from closeknit.placement.candidates.usable_areas import Areas, OfferNumber
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.gang.layout import Layout, best_of, best_of_drafts
from closeknit.placement.gang.queries import Site
from closeknit.placement.gang.share_sizes import ShareSize
from closeknit.placement.gang.variant import Variant
from closeknit.placement.spread.cost import Scale
from closeknit.placement.values.budget import Budget
from closeknit.placement.values.request import Request

_Side = tuple[Peers, Sequence[OfferNumber]]
"""Peers as their machines tell them, and the offers of those by number."""


def best_layout(joints: Interconnect, ground: Areas, request: Request, tables: Tables) -> Layout | None:
    """The best layout for one gang on this ground; None where there is none."""
    site = _site(joints, ground, request, tables)
    if site is None:
        return None
    alone = _on_one_node(site)
    layout = best_of(alone.sketches([ShareSize(request.gpus, equal=True)])) if alone else None
    return layout or _on_several_nodes(joints, site)


def fits(joints: Interconnect, ground: Areas, request: Request, tables: Tables) -> bool:
    """Whether there is any layout; stops at the first way that has one."""
    site = _site(joints, ground, request, tables)
    if site is None:
        return False
    alone = _on_one_node(site)
    if alone and alone.can([ShareSize(request.gpus, equal=True)]):
        return True
    return any(pool.can_any_shape() for way in _ways(joints, site) for pool in way)


def _site(joints: Interconnect, ground: Areas, request: Request, tables: Tables) -> Site | None:
    """What the search begins with; None where no domain of the required level has GPUs enough."""
    levels = joints.levels
    level = levels.index(request.level) if request.level is not None else -1
    if ground.most_gpus(level) < request.gpus:
        return None
    return Site(request, levels, joints.level_bandwidth_gb_s, joints.rail_isolated, ground, Scale(len(levels)), tables)


def _in_nvlink_domain(joints: Interconnect, site: Site) -> Site | None:
    """The same for a gang that NVLink joins over its nodes; None where it cannot have that."""
    request = site.request
    if not joints.has_channels(request):
        return None
    inside = replace(request, patient_level=joints.inside_domain(request.level))
    found = _site(joints, site.ground, inside, site.tables)
    return None if found is None else found._replace(joined=joints.joint)


def _on_one_node(site: Site) -> Variant | None:
    request, ground = site.request, site.ground
    if request.gpus_per_node not in (None, request.gpus):
        return None
    able = [number for number in ground.counts if ground.offers[number].gpus >= request.gpus]
    whole = site._replace(rail_isolated=False)  # one node has the same indexes as all of them
    return Variant(whole, Peers(), able, Budget(), kept=request.gpus) if able else None


def _on_several_nodes(joints: Interconnect, site: Site) -> Layout | None:
    pools: list[Variant] = []
    for way in _ways(joints, site):
        now = list(way)
        pools += now
        layout = best_of_drafts(draft for pool in now if (draft := pool.draft()))
        if layout:
            unit = layout.parts[0].mask.bit_count()
            is_cut = any(pool.has_untried(unit, layout.counts) for pool in pools)
            return replace(layout, is_fewest=False) if is_cut else layout
    return None


def _ways(joints: Interconnect, site: Site) -> Iterator[Iterator[Variant]]:
    """The ways of placing a gang on several nodes, best first; of one way's pools the better layout counts."""
    offers = site.ground.offers
    every = [number for number in site.ground.counts if offers[number].gpus]
    if (inside := _in_nvlink_domain(joints, site)) is not None:
        peers = Peers(is_by_claim=joints.imex_with == {Binding.DRA})
        able = [number for number in every if peers.has(offers[number].terms)]
        # A group that lies on several nodes there is as fast as on one.
        for whole in dict.fromkeys((*_whole(site), *([False] if site.request.group > 1 else []))):
            yield from _ways_over(inside, (peers, able), whole=whole)
    for whole in _whole(site):
        yield from _ways_over(site, (Peers(), every), whole=whole)


def _ways_over(site: Site, every: _Side, *, whole: bool) -> Iterator[Iterator[Variant]]:
    """Those over these offers, with groups whole on their nodes or not."""
    ground, (peers, numbers) = site.ground, every
    by_kind: dict[tuple[str, ...], list[OfferNumber]] = {}
    for number in numbers:
        by_kind.setdefault(ground.offers[number].terms.kind, []).append(number)
    kinds: list[_Side] = [(peers._replace(kind=kind), by_kind[kind]) for kind in sorted(by_kind)]
    mixed = [every] if whole else _of_one_generation(site, every)
    may_mix = site.request.mixes_kinds and len(kinds) > 1 and not site.joined
    for mixtures in [kinds, mixed] if may_mix else [kinds]:
        for transports in _transports(site.request):
            for kept in _kept(site, whole=whole):
                beside = [
                    (among, able)
                    for side in mixtures
                    for transport in transports
                    for among, able in _by_exposure(site, side, transport)
                    if able and _are_enough(site, able)
                ]
                budget = Budget().among(len(beside))
                yield (Variant(site, among, able, budget, kept=kept) for among, able in beside)


def _of_one_generation(site: Site, side: _Side) -> Sequence[_Side]:
    """Those offers whose machines may share a group that no machine holds: in every layer all of it waits for its
    slowest link, so that generations of NVLink are not mixed, but where the job has said that it does not care."""
    if site.request.nvlink is NvlinkPolicy.IGNORED:
        return [side]
    peers, numbers = side
    found: dict[int, list[OfferNumber]] = {}
    for number in numbers:
        found.setdefault(nvlink_generation(site.ground.offers[number].terms.sets.facts.machine), []).append(number)
    return [(peers._replace(nvlink_generation=generation), found[generation]) for generation in sorted(found)]


def _kept(site: Site, *, whole: bool) -> Sequence[int]:
    """How many ranks that follow each other stay on one node: expert groups with the others, where a machine holds
    them, before those alone."""
    request = site.request
    if not whole:
        return (1,)
    if request.nvlink is NvlinkPolicy.IGNORED or not request.group < request.expert_block <= _widest(site):
        return (request.group,)
    return (request.expert_block, request.group)


def _by_exposure(site: Site, side: _Side, transport: Transport | None) -> Sequence[_Side]:
    """A side by a transport, those whose NICs come into Pods in one way after those of another."""
    peers, numbers = side
    if transport is None:
        return [side]
    offers, found = site.ground.offers, dict[NicExposure, list[OfferNumber]]()
    for number in numbers:
        terms = offers[number].terms
        if terms.exposure and transport in terms.transports:
            found.setdefault(terms.exposure, []).append(number)
    return [(peers._replace(transport=transport, exposure=exposure), found[exposure]) for exposure in sorted(found)]


def _are_enough(site: Site, numbers: Sequence[OfferNumber]) -> bool:
    """Whether all nodes of these offers have the gang's number of GPUs."""
    offers, counts = site.ground.offers, site.ground.counts
    return sum(offers[number].gpus * counts[number] for number in numbers) >= site.request.gpus


def _whole(site: Site) -> tuple[bool, ...]:
    """Whether groups must stay whole on their nodes; the first that can be had is taken.

    Over a network between nodes a group is slower by an order of magnitude: a job waits for better, unless its groups
    are larger than any machine and it has not said Required, or it has said that it does not care.
    """
    request = site.request
    if request.group == 1 or request.nvlink is NvlinkPolicy.REQUIRED:
        return (True,)
    if request.nvlink is NvlinkPolicy.IGNORED:
        return (False,)
    return (True,) if request.group <= _widest(site) else (True, False)


def _widest(site: Site) -> int:
    """GPUs of the largest machine."""
    return max(len(site.ground.offers[number].terms.sets.facts.machine.gpus) for number in site.ground.counts)


def _transports(request: Request) -> tuple[tuple[Transport | None, ...], ...]:
    """Ways to talk between nodes; of equals the better layout, else the first that can be had."""
    if request.rdma is RdmaPolicy.DISABLED:
        return ((None,),)
    if request.rdma is RdmaPolicy.REQUIRED:
        return (RDMA_TRANSPORTS,)
    return (RDMA_TRANSPORTS, (None,))
