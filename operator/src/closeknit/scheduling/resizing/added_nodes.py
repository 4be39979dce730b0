"""A larger placement of a job that runs, which keeps the nodes that it has: then its Pods there can stay."""

from dataclasses import replace

from closeknit.api.trainingjob_status import MAX_REPLACED
from closeknit.cluster.booking.booking import Booking, BookingShare
from closeknit.cluster.cluster import Cluster
from closeknit.placement.replacement_nodes import not_replaced
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.queue.entries import Case


def with_added_nodes(
    case: Case, held: Booking, found: Placement, asked: Request, cluster: Cluster, walk: Walk
) -> Placement | None:
    """The gang with as many GPUs as in `found` and with its nodes of now, which keep their ranks; those that are added
    come after them. None where its Pods cannot stay anyway, or where that uses more domains of a level or is slower
    than `found`. `cluster`: with what it holds now."""
    if case.volumes.choices or not _is_told_size(case, held):
        return None
    shares = _with_empty_places(held, sum(len(share.gpus) for share in found.shares))
    if shares is None or not_replaced(cluster, asked, shares) is not None:
        return None
    best = walk.questions.replaced(asked, shares, cluster).placement
    if best is None:
        return None

    def ask(request: Request, there: Cluster) -> Placement | None:
        return walk.questions.replaced(request, shares, there).placement

    best = walk.lemons.with_fewest(best, asked, cluster, ask, [share.node for share in held.shares])
    return best if _is_no_worse(best, found) else None


def _is_told_size(case: Case, held: Booking) -> bool:
    """Whether node rank 0's Pod is one that learns another size."""
    own = (pod for pod in case.pods if pod.attempt == held.attempt and pod.child is not None)
    return any(bool(pod.size) for pod in own)


def _with_empty_places(held: Booking, gpus: int) -> tuple[BookingShare, ...] | None:
    """The shares with a lost one for each node that is to be added; None where their nodes give unequal shares."""
    first, more = held.shares[0], gpus - held.gpus
    per_node = len(first.gpus)
    if any(len(share.gpus) != per_node for share in held.shares) or more % per_node or more // per_node > MAX_REPLACED:
        return None
    empty = replace(first, node="", nics=(), rdma_resource="", gpu_digest="", actual=None, replacement=0, lost=True)
    added = (replace(empty, first_rank=rank) for rank in range(held.gpus, gpus, per_node))
    return (*held.shares, *added)


def _is_no_worse(kept: Placement, found: Placement) -> bool:
    levels = dict(found.levels)
    if any(number > levels.get(level, 0) for level, number in kept.levels):
        return False
    best, has = found.predicted_bus_bandwidth_gb_s, kept.predicted_bus_bandwidth_gb_s
    return best is None or (has is not None and has >= best)
