"""The placement that a gang has: its shares on the nodes that it keeps, what they share there, and how fast it is."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from closeknit.api.nodetopology import Transport
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.forest.group import group_of
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.nic_exposure import NicExposure, asks_for_nics, nic_exposure
from closeknit.placement.allreduce.bandwidth import EVERY_NIC, NicAccess
from closeknit.placement.allreduce.paths import nvlink_generation
from closeknit.placement.candidates.offer import matching, terms
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.gang.prediction import Prediction, level_cap, level_floor, predict, undescribed
from closeknit.placement.gpusets.gpu_sets import GpuSets
from closeknit.placement.refusals.ideal import ideal_gb_s
from closeknit.placement.values.placement import Placement, Share, TransportChoice
from closeknit.placement.values.request import Request

PlacedSet = tuple[str, GpuSets, int, NicAccess]
"""Node, its sets of GPUs, the mask of one, and the NICs that it reaches."""


def current_placement(cluster: Cluster, request: Request, shares: Sequence[BookingShare], tables: Tables) -> Placement:
    """The placement of a gang on the nodes that it has, all of which are there with their machines."""
    workers = [share for share in shares if share.server is None]
    gang = KeptGang.of(cluster, request, workers, tables)
    every = gang.every({})
    return gang.placement(every, gang.predicted(gang.placed, gang.domains_of(every)), is_cut=False)


@dataclass(frozen=True, slots=True)
class KeptGang:
    """The shares of a gang that stay where they are, and the placement of the gang with others in place of the lost."""

    cluster: Cluster
    request: Request
    tables: Tables
    joints: Interconnect
    workers: Sequence[BookingShare]
    placed: Sequence[PlacedSet]
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
        tables: Tables,
    ) -> "KeptGang":
        """`workers`: its shares without parameter servers; not all of them are lost."""
        kept = [share for share in workers if not share.lost]
        nodes = cluster.nodes
        placed: dict[object, PlacedSet] = {}
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
            tuple(workers),
            tuple(placed.values()),
            frozenset(kinds),
            frozenset(generations),
            _transport(nodes[first.node], first.nics),
            nic_exposure(first.rdma_resource) if first.nics else None,
            [frozenset(filter(None, each)) for each in domains],
            [each.count(None) for each in domains],
        )

    def predicted(self, placed: Sequence[PlacedSet], counts: Sequence[int]) -> Prediction:
        """How fast a gang is on these sets, in so many domains of each level."""
        network = (self.joints.levels, self.joints.level_bandwidth_gb_s, counts)
        if len(placed) == 1:  # all are alike, and there are several
            placed = [*placed, *placed]
        return predict(placed, self.transport, level_cap(*network), level_floor(*network), undescribed(*network))

    def placement(self, every: Sequence[Share], prediction: Prediction, *, is_cut: bool) -> Placement:
        """The placement of these shares."""
        best = ideal_gb_s(self.cluster, replace(self.request, avoided=frozenset()), self.tables)
        known = [gb_s for gb_s in (best, prediction.gb_s) if gb_s is not None]
        counts = self.domains_of(every)
        return Placement(
            shares=tuple(every),
            levels=tuple(zip(self.cluster.levels[:-1], counts[:-1], strict=True)),
            transport=TransportChoice.RDMA if self.transport else TransportChoice.SOCKETS,
            predicted_bus_bandwidth_gb_s=prediction.gb_s,
            ideal_bus_bandwidth_gb_s=None if best is None else max(known),
            limited_by=prediction.limited_by,
            ended_at_budget=is_cut,
        )

    def every(self, new: Mapping[int, Share]) -> Sequence[Share]:
        """All shares of the gang, with the new ones at their positions."""
        nodes = self.cluster.nodes
        return [new.get(position) or _share(share, nodes) for position, share in enumerate(self.workers)]

    def domains_of(self, every: Sequence[Share]) -> tuple[int, ...]:
        """Number of domains of each level that these shares lie in, host last."""
        return _domains(self.cluster.nodes, [share.node for share in every], len(self.joints.levels))


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
