"""The decision for one gang: place(cluster, request)."""

from dataclasses import replace

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import BindingPolicy
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.cluster import Cluster
from closeknit.placement.bandwidth import nearest_nics
from closeknit.placement.placement import NoFit, Placement, Share, TransportChoice
from closeknit.placement.pool import Part, Plan
from closeknit.placement.ranks import in_fabric_order
from closeknit.placement.refusal import refusal, unknown_level
from closeknit.placement.request import Request
from closeknit.placement.search import best_plan
from closeknit.placement.sets import positions_of
from closeknit.placement.survey import survey, survey_empty


def place(cluster: Cluster, request: Request) -> Placement | NoFit:
    """The best nodes, GPUs and ranks for the whole gang as the cluster is now, or why there are none.

    The order of merit is that of docs/decisions/0004-place.md. Equal arguments give equal answers, byte for byte; the
    order of the cluster's nodes does not matter.
    """
    unknown = unknown_level(cluster, request)
    if unknown:
        return unknown
    candidates = survey(cluster, request)
    plan = best_plan(cluster.levels, cluster.fabric, candidates, request)
    if plan is None:
        return refusal(cluster, request, candidates)
    return placement_of(plan, cluster, request)


def placement_of(plan: Plan, cluster: Cluster, request: Request) -> Placement:
    """A plan as the value that is booked: shares in rank order, with ranks, NICs and bandwidth."""
    by_name = {part.candidate.view.name: part for part in plan.parts}
    order = in_fabric_order(
        (part.candidate.domains[:-1], name, part.mask.bit_count()) for name, part in by_name.items()
    )
    shares, first_rank = [], 0
    for name in order:
        shares.append(_share(by_name[name], plan.transport, first_rank))
        first_rank += by_name[name].mask.bit_count()
    predicted = plan.prediction.gb_s
    return Placement(
        shares=tuple(shares),
        levels=tuple(zip(cluster.levels[:-1], plan.counts[:-1], strict=True)),
        transport=_transport(plan),
        predicted_bus_bandwidth_gb_s=predicted,
        ideal_bus_bandwidth_gb_s=_ideal(cluster, request, predicted),
        limited_by=plan.prediction.limited_by,
    )


def _transport(plan: Plan) -> TransportChoice:
    if len(plan.parts) == 1:
        return TransportChoice.NONE
    return TransportChoice.RDMA if plan.transport else TransportChoice.SOCKETS


def _share(part: Part, transport: Transport | None, first_rank: int) -> Share:
    machine = part.candidate.machine
    positions = machine.in_bus_order(positions_of(part.mask))
    # The device plugin may hand out other GPUs than predicted, so that any NIC near a free one can be the nearest.
    reachable = positions_of(part.candidate.profile.free) if part.binding is Binding.BEST_EFFORT else positions
    nics = nearest_nics(machine, transport, reachable) if transport else ()
    return Share(
        node=part.candidate.view.name,
        gpus=tuple(machine.gpus[position].index for position in positions),
        uuids=tuple(machine.gpus[position].uuid or "" for position in positions),
        first_rank=first_rank,
        binding=part.binding,
        nics=tuple(f"{nic.name}:{nic.port}" for nic in nics),
        topology_generation=part.candidate.view.topology_generation,
    )


def _ideal(cluster: Cluster, request: Request, predicted: float | None) -> float | None:
    """The bandwidth of the same gang in an empty, healthy copy of the cluster, where it could lie as now, too."""
    free = replace(request, min_bus_bandwidth_gb_s=None, binding=BindingPolicy.AUTO)
    plan = best_plan(cluster.levels, cluster.fabric, survey_empty(cluster, request), free)
    best = plan.prediction.gb_s if plan else None
    return best if best is None or predicted is None else max(best, predicted)
