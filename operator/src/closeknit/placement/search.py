"""Which nodes and which GPUs a gang takes: the order of merit of docs/decisions/0004-place.md, searched.

A plan on one node comes first: it needs no network. Of plans on several nodes these are better, in this order: groups
whole on their nodes; machines of one kind; RDMA between all; fewer domains, outermost level first, hosts last; equal
shares; the better slowest group; the better bandwidth; less taken from later jobs; nearer NICs; first names.
"""

from collections.abc import Sequence

from closeknit.api.clustertopology import Fabric
from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import NvlinkPolicy, RdmaPolicy
from closeknit.placement.bandwidth import RDMA_TRANSPORTS
from closeknit.placement.fabric import tree
from closeknit.placement.pool import Plan, Pool, Shape, Site
from closeknit.placement.request import Request
from closeknit.placement.survey import Candidate


def best_plan(levels: Sequence[str], fabric: Fabric, candidates: Sequence[Candidate], request: Request) -> Plan | None:
    """The best plan for one gang over these nodes, given by name; None where there is none."""
    if sum(entry.profile.pool.bit_count() for entry in candidates) < request.gpus:
        return None
    site = Site(
        request,
        tuple(levels),
        fabric.level_bandwidth_gb_s,
        fabric.rail_isolated,
        candidates,
        tree([(entry.domains, entry.profile.free.bit_count()) for entry in candidates]),
    )
    return _on_one_node(site) or _on_several_nodes(site)


def _on_one_node(site: Site) -> Plan | None:
    request = site.request
    if request.gpus_per_node not in (None, request.gpus):
        return None
    every = [number for number, entry in enumerate(site.candidates) if entry.profile.pool.bit_count() >= request.gpus]
    return Pool(site, every, None, whole=True).best([Shape(request.gpus, equal=True)])


def _on_several_nodes(site: Site) -> Plan | None:
    every = [number for number, entry in enumerate(site.candidates) if entry.profile.pool]
    by_kind: dict[tuple[str, ...], list[int]] = {}
    for number in every:
        by_kind.setdefault(site.candidates[number].profile.kind, []).append(number)
    kinds = [by_kind[kind] for kind in sorted(by_kind)]
    for whole in _whole(site):
        for groups in [kinds, [every]] if len(kinds) > 1 else [kinds]:
            for transports in _transports(site.request):
                plan = _best_of(site, groups, transports, whole=whole)
                if plan:
                    return plan
    return None


def _best_of(
    site: Site, groups: Sequence[Sequence[int]], transports: Sequence[Transport | None], *, whole: bool
) -> Plan | None:
    plans = []
    for members in groups:
        for transport in transports:
            able = [
                number
                for number in members
                if transport is None or transport in site.candidates[number].profile.transports
            ]
            plans.append(Pool(site, able, transport, whole=whole).best_of_any_shape())
    return min((plan for plan in plans if plan), key=lambda plan: plan.merit, default=None)


def _whole(site: Site) -> tuple[bool, ...]:
    """Whether groups must stay whole on their nodes, or NVLink domains; the first that can be had is taken.

    Over a network between nodes a group is slower by an order of magnitude: a job waits for better, unless its groups
    are larger than any machine and it has not said Required, or it has said that it does not care.
    """
    request = site.request
    if request.group == 1 or request.nvlink is NvlinkPolicy.REQUIRED:
        return (True,)
    if request.nvlink is NvlinkPolicy.IGNORED:
        return (False,)
    widest = max(len(entry.machine.gpus) for entry in site.candidates)
    return (True,) if request.group <= widest else (True, False)


def _transports(request: Request) -> tuple[tuple[Transport | None, ...], ...]:
    """Ways to talk between nodes; of equals the better plan, else the first that can be had."""
    if request.rdma is RdmaPolicy.DISABLED:
        return ((None,),)
    if request.rdma is RdmaPolicy.REQUIRED:
        return (RDMA_TRANSPORTS,)
    return (RDMA_TRANSPORTS, (None,))
