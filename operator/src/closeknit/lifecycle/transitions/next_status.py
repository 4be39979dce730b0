"""The next status of a job: what is observed of it, and the words that follow from all of that."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import LENT, ConditionReason, ConditionType, EndReason
from closeknit.api.trainingjob_status import (
    Pending,
    PlacementStatus,
    TrainingJobStatus,
)
from closeknit.api.wire import Condition
from closeknit.cluster.booking.booking import BookingShare, assignments, names, with_shares
from closeknit.lifecycle.status.conditions import (
    Observation,
    found,
    is_said,
    is_true,
    observed,
    state,
    stated,
)
from closeknit.lifecycle.status.degraded import Degradation
from closeknit.lifecycle.status.stored_job import StoredJob
from closeknit.placement.values.sentences import count

GROWS_AFTER = timedelta(minutes=5)
"""How long there must have been room for more GPUs of an elastic job: most of what comes free is taken sooner, by the
next jobs that are submitted and by those that come back from a restart."""
BEING_STARTED = "its Pods are being started"


def next_status(job: StoredJob, now: datetime, *observations: Observation, **changes: Any) -> TrainingJobStatus:
    """The stored status with these conditions observed and these fields changed, by their names. State, reason, message
    and the beginning of a wait follow from the whole."""
    stored = job.status
    generation = job.metadata.generation
    seen = list(observations)
    if not any(observation.type is ConditionType.SUSPENDED for observation in seen) and is_true(
        stored.conditions, ConditionType.SUSPENDED
    ):
        seen.append(Observation(ConditionType.SUSPENDED, False, ConditionReason.RESUMED, "spec.suspend is false again"))
    conditions = observed(stored.conditions, seen, generation=generation, now=now)
    attempt = int(changes.pop("attempt", stored.attempt or 1))
    restarts = int(changes.pop("restarts", stored.restarts or 0))
    pending = _queued(stored, changes.pop("pending", stored.pending))
    placement: PlacementStatus | None = changes.get("placement", stored.placement)
    reason, message = _told(conditions, pending, _fewer(job, placement))
    return stored.model_copy(
        update={
            "observed_generation": generation,
            "conditions": conditions,
            "attempt": attempt,
            "restarts": restarts,
            "state": state(conditions, restarts),
            "reason": reason,
            "message": message,
            "pending": pending,
            "queued_since": _queued_since(stored) if pending is None else None,
            **changes,
        }
    )


def _told(conditions: Sequence[Condition], pending: Pending | None, fewer: str | None) -> tuple[str | None, str | None]:
    """The fault or wait of a job, as (word, words) for `kubectl get`. Empty where all is well. `fewer` is the message
    about GPUs that it asks for and does not have."""
    if (failed := found(conditions, ConditionType.FAILED)) is not None and failed.status == "True":
        return failed.reason, stated(failed.message)
    if is_true(conditions, ConditionType.SUCCEEDED) or is_true(conditions, ConditionType.SUSPENDED):
        return None, None
    if pending is not None:
        return pending.reason, pending.message
    placed = found(conditions, ConditionType.PLACED)
    if placed is not None and placed.status == "True" and placed.reason != ConditionReason.BOOKED:
        return placed.reason, stated(placed.message)  # we erred about a job that holds GPUs
    running = found(conditions, ConditionType.RUNNING)
    if running is not None and running.status == "False" and running.message not in {"", BEING_STARTED}:
        return running.reason, stated(running.message)
    for wanted, status in ((ConditionType.DEGRADED, "True"), (ConditionType.PLACEMENT_VERIFIED, "False")):
        told = found(conditions, wanted)
        if told is not None and told.status == status:
            return told.reason, stated(told.message)
    if fewer is not None and running is not None and running.status == "True":
        return ConditionReason.FEWER_GPUS.value, stated(fewer)
    return None, None


def _fewer(job: StoredJob, placement: PlacementStatus | None) -> str | None:
    """The message about an elastic job that runs with fewer GPUs than it asks for; None for any other."""
    if placement is None or placement.gpus is None or not isinstance(job, TrainingJob):
        return None
    told = f"runs with {placement.gpus} of its {count(job.spec.gpus, 'GPU')}"
    minutes = count(int(GROWS_AFTER.total_seconds()) // 60, "minute")
    if placement.room is None:
        return f"{told}, and grows once there has been room for more for {minutes}, and nobody before it waits for that"
    if placement.room.refused is not None:
        since = f"since {placement.room.since}"
        return (
            f"{told}; there is room for {placement.room.gpus} {since}, and it stays as it is: {placement.room.refused}"
        )
    return f"{told}; there is room for {placement.room.gpus} since {placement.room.since}, and it grows after {minutes}"


def _queued_since(status: TrainingJobStatus) -> str | None:
    """Since when it waits: its first reason's beginning. A booking by which it never ran does not end its wait."""
    pending = status.pending
    return status.queued_since if pending is None else pending.queued_since or pending.since


def _queued(stored: TrainingJobStatus, pending: Pending | None) -> Pending | None:
    """Why it waits, and since when."""
    if pending is None or pending is stored.pending:
        return pending
    return pending.model_copy(update={"queued_since": _queued_since(stored) or pending.since})


def accepted(unknown: str | None) -> Observation:
    """The job is acceptable, though it may prefer what the cluster does not have."""
    reason = ConditionReason.ACCEPTED if unknown is None else ConditionReason.PREFERRED_LEVEL_UNKNOWN
    return Observation(ConditionType.ADMITTED, True, reason, unknown or "")


def not_running(
    job: StoredJob, reason: ConditionReason | EndReason, message: str = "", *, keep_verified: bool = False
) -> list[Observation]:
    """Withdraws the words about a running gang; nothing without such words."""
    types = {condition.type for condition in job.status.conditions}
    taken_back = []
    if ConditionType.PLACEMENT_VERIFIED in types and not keep_verified:
        taken_back.append(Observation(ConditionType.PLACEMENT_VERIFIED, None, reason, message))
    if ConditionType.RUNNING in types:
        taken_back.append(Observation(ConditionType.RUNNING, False, reason, message))
    return taken_back


def not_degraded(job: StoredJob) -> list[Observation]:
    """Unknown: it is open what the next GPUs of the job will lack. The reason stays for the next attempt."""
    told = found(job.status.conditions, ConditionType.DEGRADED)
    if told is None or told.status != "True":
        return []
    reason = ConditionReason(told.reason) if told.reason in frozenset(ConditionReason) else ConditionReason.NOT_PLACED
    return [Observation(ConditionType.DEGRADED, None, reason, told.message)]


def was_degraded(job: StoredJob) -> list[Observation]:
    """What a finished job lacked while it ran."""
    told = found(job.status.conditions, ConditionType.DEGRADED)
    if told is None or told.status == "False":
        return []
    message = f"while it ran: {told.message}"
    return [Observation(ConditionType.DEGRADED, False, ConditionReason.FINISHED, message)]


def degraded(job: StoredJob, lacks: Degradation | None) -> list[Observation]:
    """Nothing where nothing is missing, and nothing was said to be."""
    if lacks is not None:
        return [Observation(ConditionType.DEGRADED, True, lacks.reason, lacks.told(is_booked=True))]
    if is_said(job.status.conditions, ConditionType.DEGRADED):
        return [Observation(ConditionType.DEGRADED, False, ConditionReason.AS_PLANNED, "")]
    return []


def with_its_shares(job: StoredJob, shares: Sequence[BookingShare]) -> PlacementStatus | None:
    """The placement that it has, with these shares; None where it has none."""
    placement = job.status.placement
    return None if placement is None else with_shares(placement, shares)


def booked_on(job: StoredJob, placement: PlacementStatus, lent: str | None = None) -> str:
    """The message about its nodes, with its spares, and which of its nodes are spares of others; None: as it is told of
    these very nodes already."""
    told = _booked_on(job, placement)
    if lent is not None:
        return f"{told}{LENT}{lent}" if lent else told
    before = found(job.status.conditions, ConditionType.PLACED)
    return before.message if before is not None and before.message.startswith(f"{told}{LENT}") else told


def _booked_on(job: StoredJob, placement: PlacementStatus) -> str:
    told = f"booked on {names([node.name for node in assignments(placement)])}"
    wanted = job.spec.spares if isinstance(job, TrainingJob) else 0
    if placement.gpus is not None and isinstance(job, TrainingJob):
        told = f"{told}, with {placement.gpus} of {count(job.spec.gpus, 'GPU')}"
    spare = [node.name for node in placement.spares or ()]
    if not (wanted or spare):
        return told
    few = "" if len(spare) >= wanted else f", {len(spare)} of {wanted}: no more nodes like its own were free near them"
    return f"{told}; spare: {names(spare) if spare else 'none'}{few}"


def given_up(why: str, stays: str | None) -> str:
    """The message about the former GPUs of a job: they are free with its Pods, unless these stay."""
    return f"{why}: {stays}" if stays else f"{why}: its GPUs are free as soon as its Pods are gone"
