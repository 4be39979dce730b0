"""What Kubernetes alone would do: the first nodes with enough GPUs, and there the lowest free ones. To compare with."""

from collections.abc import Sequence

from closeknit.api.trainingjob import RdmaPolicy
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.cluster import Cluster
from closeknit.placement.bandwidth import RDMA_TRANSPORTS
from closeknit.placement.place import placement_of
from closeknit.placement.placement import Placement
from closeknit.placement.pool import Part, Plan
from closeknit.placement.prediction import level_cap, level_floor, predict
from closeknit.placement.request import Request
from closeknit.placement.sets import mask_of, positions_of
from closeknit.placement.survey import Candidate, survey


def first_fit(cluster: Cluster, request: Request) -> Placement | None:
    """The gang in equal Pods, as large as any node could hold, on the first nodes by name; None where too few fit.

    It keeps to the job's products and node selector, and to nothing else: no islands, no levels, no bandwidth.
    """
    candidates = survey(cluster, request)
    largest = max((len(entry.machine.gpus) for entry in candidates), default=0)
    for size in range(min(largest, request.gpus), 0, -1):
        if request.gpus % size or request.gpus_per_node not in (None, size):
            continue
        first = [entry for entry in candidates if entry.profile.pool.bit_count() >= size][: request.gpus // size]
        if len(first) * size == request.gpus:
            return placement_of(_plan(cluster, request, first, size), cluster, request)
    return None


def _plan(cluster: Cluster, request: Request, nodes: Sequence[Candidate], size: int) -> Plan:
    parts = tuple(
        Part(
            entry,
            mask_of(positions_of(entry.profile.pool)[:size]),
            Binding.DRA if entry.profile.dra else Binding.BEST_EFFORT,
        )
        for entry in nodes
    )
    common = [
        transport
        for transport in RDMA_TRANSPORTS
        if request.rdma is not RdmaPolicy.DISABLED and all(transport in entry.profile.transports for entry in nodes)
    ]
    transport = common[0] if common and len(nodes) > 1 else None
    counts = tuple(len({entry.domains[level] for entry in nodes}) for level in range(len(cluster.levels)))
    prediction = predict(
        [(part.candidate.view.name, part.candidate.profile.sets, part.mask) for part in parts],
        transport,
        level_cap(cluster.levels, cluster.fabric.level_bandwidth_gb_s, counts),
        level_floor(cluster.levels, cluster.fabric.level_bandwidth_gb_s, counts),
    )
    return Plan(parts, transport, counts, prediction, ())
