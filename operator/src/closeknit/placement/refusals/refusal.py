"""The reason why a gang does not fit: the first demand, from the most basic on, that cannot be met with those before
it."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from closeknit.api.reasons import PendingReason
from closeknit.cluster.cluster import Cluster
from closeknit.placement.candidates.offer import Joint, matching
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.gang.search import best_layout, fits
from closeknit.placement.gang.share_sizes import ShareSizes
from closeknit.placement.refusals.demand_words import RefusalCase, is_unoffered, no_match, unoffered
from closeknit.placement.refusals.demands import DEMANDS, Demand
from closeknit.placement.values.placement import NoFit
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import listed


def unknown(cluster: Cluster, request: Request) -> NoFit | None:
    """The refusal of a level, or of a traffic class, that this cluster does not have. A preferred level blocks no
    gang."""
    level = request.required_level
    if level is not None and level not in cluster.levels:
        return NoFit(
            PendingReason.UNKNOWN_LEVEL,
            f"needs level {level}; this cluster has {listed(cluster.levels, 'and')}; "
            "name one of these, or describe the level in ClusterTopology default",
        )
    name, declared = request.traffic_class, cluster.fabric.traffic_classes
    if name is not None and name not in declared:
        return NoFit(
            PendingReason.UNKNOWN_TRAFFIC_CLASS,
            f"needs traffic class {name}; this cluster has {listed(sorted(declared), 'and') or 'none'}; "
            "name one that it has, or declare it in ClusterTopology default, spec.fabric.trafficClasses",
        )
    return None


class Unmet(NamedTuple):
    """A refusal before its words: the first demand that cannot be met together with those before it."""

    demand: Demand
    case: RefusalCase

    def told(self) -> NoFit:
        """The refusal in words."""
        return NoFit(self.demand.reason, self.demand.words(self.case) + _untried(self.case))


def refusal(cluster: Cluster, request: Request, tables: Tables) -> NoFit:
    """Why there is no layout for a request."""
    if (request.products or request.min_memory_bytes is not None) and not _any_match(cluster, request):
        return NoFit(PendingReason.NO_MATCHING_GPU, no_match(cluster, request, tables.ground(cluster, request)))
    if any(group.is_unoffered for group in cluster.forest.now.counts):
        ground = tables.ground(cluster, request)
        if is_unoffered(cluster, ground):
            return NoFit(PendingReason.GPUS_NOT_OFFERED, unoffered(request, ground))
    return unmet(cluster, request, tables).told()


def unmet(cluster: Cluster, request: Request, tables: Tables) -> Unmet:
    """The demand that refuses a request for which there is no layout."""
    tried: Request | None = None
    met: Request | None = None
    for number, demand in enumerate(DEMANDS):
        wanted = request
        for relaxed in DEMANDS[number + 1 :]:
            wanted = relaxed.relaxed(wanted)
        if wanted == tried:
            continue
        tried, ground = wanted, tables.ground(cluster, wanted)
        if wanted != request and fits(Interconnect.of(cluster), ground, wanted, tables):
            met = wanted
            continue
        best = best_layout(Interconnect.of(cluster), tables.ground(cluster, met), met, tables) if met else None
        but_for = partial(_but_for, cluster, request, number, tables)
        return Unmet(demand, RefusalCase(cluster, request, ground, tables, best, but_for))
    raise AssertionError("the last demand stands for the request itself, which does not fit")


def _but_for(cluster: Cluster, request: Request, number: int, tables: Tables) -> str:
    """The later demands that still block it without this one: ` but for network.rdma: Required`."""
    without = replace(DEMANDS[number].relaxed(request), patient_level=None)
    fields = [each.field for each in DEMANDS[number + 1 :] if each.field and each.relaxed(without) != without]
    if not fields or fits(Interconnect.of(cluster), tables.ground(cluster, without), without, tables):
        return ""
    return f" but for {listed(fields, 'and')}"


def _untried(case: RefusalCase) -> str:
    """That the refusal may be false: nodes must give the same indexes, and not all sets of these are tried."""
    request, ground = case.request, case.ground
    offers = {ground.offers[number]: nodes for number, nodes in ground.counts.items()}
    most = max((offer.gpus for offer in offers), default=0)
    sizes = ShareSizes(request, offers, most, 1, case.cluster.fabric.rail_isolated, joined=Joint.NONE)
    units = listed([str(unit) for unit in sizes.equal().cut], "or")
    if not units:
        return ""
    return (
        f"; not all sets of {units} GPU indexes were tried (fabric.railIsolated), so that there may be room: "
        "ask for another topology.gpusPerNode"
    )


def _any_match(cluster: Cluster, request: Request) -> bool:
    return any(group.kind and matching(group.kind, request) for group in cluster.forest.now.counts)
