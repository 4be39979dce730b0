"""The next status of a job that waits: for room, for its own old Pods, or for a decision."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from closeknit.api.reasons import ConditionReason, ConditionType, PendingReason
from closeknit.api.trainingjob_status import (
    Pending,
    PlacementStatus,
    TrainingJobStatus,
)
from closeknit.cluster.booking.booking import BookingShare
from closeknit.lifecycle.status.conditions import (
    Observation,
    found,
    is_true,
    observed,
    stated,
    timestamp,
)
from closeknit.lifecycle.status.lost_time import (
    is_taken_back,
)
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.status.stored_job import StoredJob
from closeknit.lifecycle.transitions.next_status import (
    accepted,
    booked_on,
    next_status,
    not_degraded,
    not_running,
    with_its_shares,
)


class KeptRoom(NamedTuple):
    """GPUs are kept for a job that waits."""

    expected_start: str | None
    """When it is expected to start there; None where nothing says so."""


def waiting(
    job: StoredJob,
    now: datetime,
    reason: PendingReason,
    message: str,
    nearest: tuple[str, ...] | None = None,
    unknown: str | None = None,
    patient_until: datetime | None = None,
    kept: KeptRoom | None = None,
) -> TrainingJobStatus:
    """It holds nothing and says why. `since` stays with the reason, and so do nearest changes (None) of an unchanged
    spec, and the end of a wait (None). `unknown` is the message about a preferred level that the cluster does not
    have."""
    never_began = {"start_time": None} if is_taken_back(job.status) else {}
    before = job.status.pending if job.status.pending and job.status.pending.reason == reason else None
    since = before.since if before else timestamp(now)
    is_same_spec = job.status.observed_generation == job.metadata.generation
    told = before.nearest if before and is_same_spec else []
    admitted = traits(reason).is_admitted
    return next_status(
        job,
        now,
        accepted(unknown) if admitted else Observation(ConditionType.ADMITTED, False, reason, message),
        Observation(ConditionType.PLACED, False, reason, message),
        *not_running(job, ConditionReason.NOT_PLACED),
        *not_degraded(job),
        placement=None,
        pending=Pending(
            reason=reason,
            message=stated(message),
            since=since,
            nearest=told if nearest is None else [stated(change) for change in nearest],
            estimated_start=None if kept is None else kept.expected_start,
            reserved_since=None if kept is None else _reserved_since(job, now),
        ),
        patient_until=job.status.patient_until if patient_until is None else timestamp(patient_until),
        attempt=_next_number(job.status),
        **never_began,
    )


def _next_number(status: TrainingJobStatus) -> int:
    """The number under which it begins again. A booking that is taken back leaves its own, but for one whose Pods have
    trained: on a node that is cut off one may train on, and a gang of the same number would take it for its member."""
    held = status.placement
    has_trained = held is not None and (held.swapping or held.run is not None)
    return (status.attempt or 1) + has_trained


def _reserved_since(job: StoredJob, now: datetime) -> str:
    known = job.status.pending.reserved_since if job.status.pending is not None else None
    return timestamp(now) if known is None else known


def undecided(job: StoredJob, now: datetime, reason: PendingReason, message: str) -> TrainingJobStatus:
    """No decision on it is possible, for this reason. It keeps what it holds, and the words about that; the stored
    status if it says so already."""
    placed = found(job.status.conditions, ConditionType.PLACED)
    is_same_spec = job.status.observed_generation == job.metadata.generation
    if is_same_spec and placed is not None and placed.reason == reason:
        return job.status
    holds = job.status.placement is not None
    observation = Observation(ConditionType.PLACED, holds, reason, message)
    if holds:
        return next_status(job, now, observation)
    pending = Pending(reason=reason, message=stated(message), since=timestamp(now))
    return next_status(job, now, observation, placement=None, pending=pending)


def decided(job: StoredJob, status: TrainingJobStatus, now: datetime) -> TrainingJobStatus:
    """The status without the words of `undecided` for a job that holds GPUs; the same object without such words."""
    placed = found(status.conditions, ConditionType.PLACED)
    if status.placement is None or placed is None or placed.status != "True" or placed.reason == ConditionReason.BOOKED:
        return status
    said = Observation(ConditionType.PLACED, True, ConditionReason.BOOKED, booked_on(job, status.placement))
    conditions = observed(status.conditions, [said], generation=job.metadata.generation, now=now)
    return status.model_copy(update={"conditions": conditions})


def cleaning(job: StoredJob, now: datetime) -> TrainingJobStatus:
    """It waits until its own older Pods are gone. Its earlier reason to wait stays."""
    if not is_true(job.status.conditions, ConditionType.SUSPENDED):
        return job.status
    message = "waits until the Pods of the attempt before are gone"
    return next_status(
        job, now, Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, message), pending=None
    )


def passed_over(job: StoredJob, now: datetime) -> TrainingJobStatus:
    """The next attempt skips a number: Pods that may never go have the names of the skipped one, or it has ended."""
    return next_status(job, now, attempt=max(job.status.attempt or 1, job.status.last_ended) + 1, placement=None)


def holding(job: StoredJob, now: datetime, shares: Sequence[BookingShare], message: str) -> TrainingJobStatus:
    """It waits for other nodes in place of lost ones, and holds the rest; without a message the words stay."""
    placement = with_its_shares(job, shares)
    if not message and placement is job.status.placement:
        return job.status
    if not message:
        words = "it has lost nodes, and others are looked for"
        placed = Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, words)
        return next_status(job, now, placed, placement=placement)
    before = job.status.pending
    reason = PendingReason.NODES_LOST
    since = before.since if before is not None and before.reason == reason else timestamp(now)
    return next_status(
        job,
        now,
        Observation(ConditionType.PLACED, False, reason, message),
        placement=placement,
        pending=Pending(reason=reason, message=stated(message), since=since),
    )


def awaiting(
    job: StoredJob,
    now: datetime,
    placement: PlacementStatus | None,
    reason: PendingReason,
    message: str,
    unknown: str | None = None,
) -> TrainingJobStatus:
    """Others make room for it, and it holds what they leave: this placement, or None for the stored one. `unknown` as
    in `waiting`."""
    before = job.status.pending
    since = before.since if before is not None and before.reason == reason else timestamp(now)
    return next_status(
        job,
        now,
        accepted(unknown),
        Observation(ConditionType.PLACED, False, reason, message),
        *not_running(job, ConditionReason.NOT_PLACED),
        *not_degraded(job),
        placement=job.status.placement if placement is None else placement,
        pending=Pending(reason=reason, message=stated(message), since=since),
    )
