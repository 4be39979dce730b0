"""Jobs as rows: what their status tells, in the operator's own words."""

from collections.abc import Iterable, Iterator
from typing import Any

from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Parallelism
from closeknit.api.trainingjob_status import Actual, EndedAttempt, PlacementStatus, State
from closeknit.cluster.booking.booking import BookingShare, decoded, spares
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.overview.counts import waits_since
from closeknit.lifecycle.status.next_steps import next_step
from closeknit.webmap.map_rows import AxisRow, JobRow, RunRow, ShareRow
from closeknit.webmap.phase_spans import seconds, spans

_WORDS = 2000  # characters of a message: a refusal takes some hundred
_NEAREST = 5  # the operator tells three
_BLAMED = 4


def job_row(job: TrainingJob | InvalidJob, cluster: Cluster) -> JobRow:
    """One job, whether its spec can be read or not."""
    status, pending = job.status, job.status.pending
    is_waiting = pending is not None or status.state in {None, State.QUEUED}
    since = waits_since(job, cluster.now) if is_waiting and cluster.now is not None else None
    placed = status.placement if cluster.booking_of(job.key) is not None else None
    reason = status.reason or ("Unreadable" if isinstance(job, InvalidJob) else "")
    message = status.message or (job.error if isinstance(job, InvalidJob) else "")
    nearest = pending.nearest if pending is not None else None
    is_readable = isinstance(job, TrainingJob)
    step = next_step(job.key, status.state or State.QUEUED, reason, nearest, is_readable=is_readable)
    cost = status.cost
    return JobRow(
        namespace=job.key.namespace,
        name=job.key.name,
        state=(status.state or State.QUEUED).value,
        reason=reason,
        message=message[:_WORDS],
        next_step="" if step is None else step.text[:_WORDS],
        nearest=tuple(change[:_WORDS] for change in pending.nearest[:_NEAREST]) if pending is not None else (),
        created=seconds(job.metadata.creation_timestamp),
        waits_since=None if since is None else int(since.timestamp()),
        estimated_start=seconds(pending.estimated_start) if pending is not None else None,
        attempt=status.attempt or 1,
        restarts=status.restarts or 0,
        spans=spans(job),
        runs=tuple(_runs(status.attempts)),
        trained_s=None if cost is None else cost.trained_seconds,
        lost_gpu_s=None if cost is None else sum(cost.lost_gpu_seconds.values()),
        ettr=None if cost is None else cost.ettr,
        **(_asked(job, cluster) if isinstance(job, TrainingJob) else {}),
        **(_placed(placed) if placed is not None else {}),
    )


def _asked(job: TrainingJob, cluster: Cluster) -> dict[str, Any]:
    """What its spec says. The axes are those of the GPUs that it holds, which an elastic job may hold fewer of."""
    booked = cluster.booking_of(job.key)
    held = 0 if booked is None else sum(len(share.gpus) for share in booked.shares)
    return {
        "gpus": job.spec.gpus,
        "queue": job.spec.queue or "",
        "priority_class": job.spec.priority_class_name or "",
        "priority": cluster.priority(job),
        "axes": axes(held or job.spec.gpus, job.spec.parallelism),
    }


def axes(gpus: int, degrees: Parallelism) -> tuple[AxisRow, ...]:
    """The axes that are larger than 1, as `coordinates` of closeknit.placement.ranks.coordinates counts them."""
    dense = degrees.tensor * degrees.context
    data = gpus // (dense * degrees.pipeline)
    found = (
        AxisRow("tensor", degrees.tensor, 1),
        AxisRow("context", degrees.context, degrees.tensor),
        AxisRow("data", data, dense),
        AxisRow("pipeline", degrees.pipeline, dense * data),
        AxisRow("expert", degrees.expert, degrees.tensor),
    )
    return tuple(axis for axis in found if axis.size > 1)


def _placed(placed: PlacementStatus) -> dict[str, Any]:
    """Where it sits, and what that gives."""
    workers = [share for share in decoded(placed) if share.server is None]
    return {
        "shares": tuple(ShareRow(share.node, share.gpus, share.first_rank, _state(share)) for share in workers),
        "nodes": placed.node_count,
        "spares": tuple(share.node for share in spares(placed)),
        "levels": dict(placed.levels or {}),
        "predicted_gb_s": placed.predicted_bus_bandwidth_gb_s,
        "ideal_gb_s": placed.ideal_bus_bandwidth_gb_s,
        "limited_by": placed.limited_by or "",
    }


def _state(share: BookingShare) -> str:
    if share.lost or share.succeeded:
        return "Lost" if share.lost else "Succeeded"
    return "" if share.actual in {None, Actual.UNKNOWN} else share.actual.value


def _runs(ends: Iterable[EndedAttempt]) -> Iterator[RunRow]:
    for ended in ends:
        yield RunRow(
            attempt=ended.number,
            reason=ended.reason,
            ended=seconds(ended.ended) or 0,
            message=(ended.message or "")[:_WORDS],
            charged=ended.charged,
            in_place=bool(ended.in_place),
            blamed=tuple(
                f"{each.node}/{each.gpu}" if each.gpu else each.node for each in (ended.blamed or ())[:_BLAMED]
            ),
        )
