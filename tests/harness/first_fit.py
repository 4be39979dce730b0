"""What Kubernetes alone would do: the first nodes with enough GPUs, and there the lowest free ones. To compare with."""

from collections.abc import Sequence

from closeknit.api.trainingjob import RdmaPolicy
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.cluster import Cluster
from closeknit.placement.allreduce.bandwidth import RDMA_TRANSPORTS
from closeknit.placement.candidates.offer import Offer
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.layout import Layout, Part
from closeknit.placement.gang.prediction import level_cap, level_floor, predict
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.place import placement_of
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request


def first_fit(cluster: Cluster, request: Request, tables: Tables) -> Placement | None:
    """The gang in equal Pods, as large as any node could hold, on the first nodes by name; None where too few fit.

    It keeps to the job's products and node selector, and to nothing else: no islands, no levels, no bandwidth.
    """
    nodes = sorted(
        ((name, offer) for _, offer, name in tables.ground(cluster, request).nodes()), key=lambda node: node[0]
    )
    largest = max((len(offer.terms.sets.facts.machine.gpus) for _, offer in nodes), default=0)
    for size in range(min(largest, request.gpus), 0, -1):
        if request.gpus % size or request.gpus_per_node not in (None, size):
            continue
        first = [(name, offer) for name, offer in nodes if offer.gpus >= size][: request.gpus // size]
        if len(first) * size == request.gpus:
            return placement_of(_layout(cluster, request, first, size), cluster, request, tables)
    return None


def _layout(cluster: Cluster, request: Request, nodes: Sequence[tuple[str, Offer]], size: int) -> Layout:
    parts = tuple(
        Part(
            name,
            offer,
            mask_of(positions_of(offer.terms.pool)[:size]),
            Binding.DRA if offer.terms.dra else Binding.BEST_EFFORT,
        )
        for name, offer in nodes
    )
    common = [
        transport
        for transport in RDMA_TRANSPORTS
        if request.rdma is not RdmaPolicy.DISABLED and all(transport in offer.terms.transports for _, offer in nodes)
    ]
    transport = common[0] if common and len(nodes) > 1 else None
    domains = [cluster.nodes[name].domains for name, _ in nodes]
    counts = tuple(
        len({found[level] or f"?/{name}" for (name, _), found in zip(nodes, domains, strict=True)})
        for level in range(len(cluster.levels))
    )
    prediction = predict(
        [(part.node, part.offer.terms.sets, part.mask, part.offer.terms.nics) for part in parts],
        transport,
        level_cap(cluster.levels, cluster.fabric.level_bandwidth_gb_s, counts),
        level_floor(cluster.levels, cluster.fabric.level_bandwidth_gb_s, counts),
    )
    return Layout(parts, transport, counts, prediction)
