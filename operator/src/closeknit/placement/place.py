"""The decision for one gang: place(cluster, request, tables)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.nic_exposure import NicExposure, nic_exposure
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.gang.layout import Layout, Part
from closeknit.placement.gang.search import best_layout, fits
from closeknit.placement.mig import can_place_mig, place_mig
from closeknit.placement.ranks.coordinates import in_fabric_order
from closeknit.placement.ranks.host_order import has_order, ordered
from closeknit.placement.refusals.ideal import ideal_gb_s
from closeknit.placement.refusals.refusal import refusal, unknown
from closeknit.placement.values.placement import NoFit, Placement, Share, TransportChoice
from closeknit.placement.values.request import DENSE_TRAFFIC, NOBODY, Request

NicNames = dict[tuple[int, tuple[int, ...]], tuple[str, ...]]


def place(cluster: Cluster, request: Request, tables: Tables) -> Placement | NoFit:
    """The best nodes, GPUs and ranks for the whole gang as the cluster is now, or why there are none.

    The order of merit is that of docs/decisions/0004-place.md. Equal clusters and requests give equal answers, byte
    for byte, whatever the order of the nodes and whatever the tables hold.
    """
    if (missing := unknown(cluster, request)) is not None:
        return missing
    if request.mig is not None:
        return place_mig(cluster, request)
    ground = tables.ground(cluster, request)
    layout = best_layout(Interconnect.of(cluster), ground, request, tables)
    if layout is None:
        return refusal(cluster, request, tables)
    return placement_of(layout, cluster, request, tables)


def can_place(cluster: Cluster, request: Request, tables: Tables) -> bool:
    """Whether `place` gives a Placement: what a waiting job asks. Jobs that ask the same share one answer."""
    if unknown(cluster, request) is not None:
        return False
    if request.mig is not None:
        return can_place_mig(cluster, request)
    asked = replace(request, job=NOBODY, pipeline=1, traffic=DENSE_TRAFFIC)  # which decide the order of ranks alone
    joints, ground = Interconnect.of(cluster), tables.ground(cluster, asked)
    return tables.fits(ground.root).kept((joints, asked), partial(fits, joints, ground, asked, tables))


def placement_of(layout: Layout, cluster: Cluster, request: Request, tables: Tables) -> Placement:
    """A layout as the value that is booked: shares in rank order, with ranks, NICs and bandwidth."""
    by_name = {part.node: part for part in layout.parts}
    order = _in_rank_order(cluster, request, by_name)
    named: NicNames = {}
    asked = next((name for name, _ in request.needs if nic_exposure(name)), None)
    shares, first_rank = [], 0
    for name in order:
        shares.append(share_of(cluster.nodes[name], by_name[name], layout.transport, first_rank, asked, named))
        first_rank += by_name[name].mask.bit_count()
    predicted = layout.prediction.gb_s
    return Placement(
        shares=tuple(shares),
        levels=tuple(zip(cluster.levels[:-1], layout.counts[:-1], strict=True)),
        transport=_transport(layout),
        predicted_bus_bandwidth_gb_s=predicted,
        ideal_bus_bandwidth_gb_s=_ideal(predicted, ideal_gb_s(cluster, request, tables)),
        limited_by=layout.prediction.limited_by,
        ended_at_budget=layout.is_cut,
    )


def _in_rank_order(cluster: Cluster, request: Request, by_name: Mapping[str, Part]) -> list[str]:
    """The nodes so that what ranks exchange crosses few domains; unequal shares in the fabric's order."""
    order = in_fabric_order(
        (_outer_domains(cluster, name), name, part.mask.bit_count()) for name, part in by_name.items()
    )
    if not has_order(request, len(order)) or len({part.mask.bit_count() for part in by_name.values()}) > 1:
        return order
    return [order[host] for host in ordered([_outer_domains(cluster, name) for name in order], request)]


def _outer_domains(cluster: Cluster, name: str) -> tuple[str, ...]:
    """Unlabelled nodes may be anywhere, so that each counts as a domain of its own."""
    outer = cluster.nodes[name].domains[:-1]
    if None not in outer:
        return outer  # type: ignore[return-value]
    return tuple(domain if domain is not None else f"?/{name}" for domain in outer)


def _transport(layout: Layout) -> TransportChoice:
    if len(layout.parts) == 1:
        return TransportChoice.NONE
    return TransportChoice.RDMA if layout.transport else TransportChoice.SOCKETS


def share_of(
    view: NodeView, part: Part, transport: Transport | None, first_rank: int, asked: str | None, named: NicNames
) -> Share:
    """The share of one node. `asked` is the template's own word for what gives its Pods NICs, else it is what the node
    has left; `named` keeps
    the names of NICs, which most nodes share."""
    terms = part.offer.terms
    machine = view.machine
    if machine is None:
        raise AssertionError(f"{part.node} has GPUs and no machine")
    positions = terms.sets.facts.in_bus_order[part.mask]
    nics: tuple[str, ...] = ()
    if transport:
        # The device plugin may hand out other GPUs than predicted, so that any NIC near a free one can be the nearest.
        # Not so of NICs that are claimed: what this job claims no other has.
        is_guess = part.binding is Binding.BEST_EFFORT and terms.exposure is not NicExposure.DRANET
        near = terms.sets.nics(terms.given_from if is_guess else part.mask, transport, terms.nics)
        key = (id(machine.nics), near.rows)
        if key not in named:
            named[key] = tuple([f"{machine.nics[row].name}:{machine.nics[row].port}" for row in near.rows])
        nics = named[key]
    return Share(
        node=part.node,
        gpus=terms.sets.facts.indexes[part.mask],
        uuids=tuple([machine.gpus[position].uuid or "" for position in positions]),
        first_rank=first_rank,
        binding=part.binding,
        nics=nics,
        topology_generation=view.topology_generation,
        rdma_resource=(asked or (view.rdma.resource if view.rdma else "")) if nics else "",
    )


def _ideal(predicted: float | None, best: float | None) -> float | None:
    """In an empty copy of the cluster the gang could lie as now, too."""
    return best if best is None or predicted is None else max(best, predicted)
