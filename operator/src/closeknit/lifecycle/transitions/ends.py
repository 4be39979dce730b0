"""The next status of a job at the end of a run: it starts again, is suspended, or is over."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionReason, ConditionType, EndReason
from closeknit.api.trainingjob_status import (
    BlamedDevice,
    EndedAttempt,
    Exit,
    TrainingJobStatus,
    UnfitNode,
)
from closeknit.cluster.booking.booking import BookingShare, decoded, with_shares
from closeknit.lifecycle.status.conditions import (
    Observation,
    found,
    is_true,
    stated,
    timestamp,
)
from closeknit.lifecycle.status.degraded import Degradation
from closeknit.lifecycle.status.lost_time import (
    at_end,
    detected,
    fault_at,
    ran,
)
from closeknit.lifecycle.status.stored_job import StoredJob
from closeknit.lifecycle.transitions.next_status import (
    booked_on,
    degraded,
    given_up,
    next_status,
    not_degraded,
    not_running,
    was_degraded,
    with_its_shares,
)


@dataclass(frozen=True, slots=True)
class EndFacts:
    """What is known of an end beside its reason."""

    exits: tuple[Exit, ...] = ()
    """Last words of the Pods that failed, the cause first."""
    fault: datetime | None = None
    """When it happened, by a node's clock; None where that is not known."""
    charges: tuple[datetime, ...] | None = None
    """When charged restarts were that still count, this one among them; None where it is not charged."""
    blamed: tuple[BlamedDevice, ...] = ()
    """Nodes and GPUs that ended the run."""


NO_FACTS = EndFacts()


class Following(Enum):
    """How a gang starts again."""

    IN_PLACE = "in the Pods that it has"
    WITH_OTHERS = "in the Pods that it has, with new ones on other nodes"
    ON_ITS_GPUS = "with the GPUs that it has"
    AGAIN = "wherever it is placed then"


_STAYS = frozenset({Following.IN_PLACE, Following.WITH_OTHERS})
_KEEPS = frozenset({Following.IN_PLACE, Following.ON_ITS_GPUS})
KEPT_ATTEMPTS = 10  # of status.attempts, as its schema bounds it
KEPT_BLAMED = 16  # nodes and GPUs of one of them, likewise
ATTEMPT_MESSAGE_MAX_LENGTH = 1024  # of the message of one of them


def restarting(
    job: TrainingJob,
    now: datetime,
    reason: EndReason,
    message: str,
    *,
    again: Sequence[BookingShare] | None,
    unfit: list[UnfitNode] | None = None,
    lacks: Degradation | None = None,
    facts: EndFacts = NO_FACTS,
) -> TrainingJobStatus:
    """The attempt ended, and the next one follows. It takes the shares of `again`, if any, avoids the nodes of `unfit`,
    and lacks `lacks`, if that is new."""
    number = job.status.attempt or 1
    placement = None if again is None else with_its_shares(job, [replace(share, replacement=0) for share in again])
    if placement is not None:
        placement = placement.model_copy(update={"run": None, "swapping": None})  # in new Pods
    is_whole = placement is not None and placement.lost is None
    if placement is None or not is_whole:
        words = f"attempt {number} ended: {message}"
        placed = Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, words)
    else:
        placed = Observation(ConditionType.PLACED, True, ConditionReason.BOOKED, booked_on(job, placement))
    return next_status(
        job,
        now,
        placed,
        *not_running(job, reason, message),
        *(() if is_whole else not_degraded(job)),
        *([] if lacks is None else degraded(job, lacks)),
        attempt=number + 1,
        restarts=(job.status.restarts or 0) + 1,
        placement=placement,
        pending=None,
        **_ended(
            job,
            now,
            reason,
            message,
            charged=facts.charges is not None,
            unfit=unfit,
            facts=facts,
            follows=Following.ON_ITS_GPUS if is_whole else Following.AGAIN,
        ),
        **({} if facts.charges is None else {"charges": [timestamp(each) for each in facts.charges]}),
    )


def restarted_in_place(
    job: TrainingJob, now: datetime, reason: EndReason, message: str, *, run: int, facts: EndFacts
) -> TrainingJobStatus:
    """The gang has started again in its Pods, for this run: the attempt goes on."""
    placement = job.status.placement
    before = 0 if placement is None or placement.run is None else placement.run
    running = found(job.status.conditions, ConditionType.RUNNING)
    return next_status(
        job,
        now,
        *([] if running is None else [Observation(ConditionType.RUNNING, False, reason, message)]),
        restarts=(job.status.restarts or 0) + run - before,
        placement=None if placement is None else placement.model_copy(update={"run": run}),
        **_ended(
            job,
            now,
            reason,
            message,
            charged=facts.charges is not None,
            facts=facts,
            follows=Following.IN_PLACE,
        ),
        **({} if facts.charges is None else {"charges": [timestamp(each) for each in facts.charges]}),
    )


def swapping(
    job: TrainingJob,
    now: datetime,
    reason: EndReason,
    message: str,
    *,
    shares: Sequence[BookingShare],
    unfit: list[UnfitNode] | None,
    facts: EndFacts,
) -> TrainingJobStatus:
    """The run has ended by the loss of nodes. Pods on the others stay, and wait for new ones: the attempt goes on."""
    placement = with_its_shares(job, shares)
    words = f"attempt {job.status.attempt or 1} has lost nodes: {message}"
    return next_status(
        job,
        now,
        Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, words),
        *not_running(job, reason, message),
        *not_degraded(job),
        restarts=(job.status.restarts or 0) + 1,
        placement=None if placement is None else placement.model_copy(update={"swapping": True}),
        pending=None,
        **_ended(job, now, reason, message, charged=False, unfit=unfit, facts=facts, follows=Following.WITH_OTHERS),
    )


def abandoned(job: StoredJob, now: datetime, shares: Sequence[BookingShare], why: str) -> TrainingJobStatus:
    """The Pods that were to stay cannot, for this reason: the next attempt has new ones, and holds the same."""
    placement = with_its_shares(job, [replace(share, replacement=0, succeeded=False) for share in shares])
    if placement is not None:
        placement = placement.model_copy(update={"swapping": None, "run": None})
    number = job.status.attempt or 1
    words = f"all Pods of attempt {number + 1} are new: {why}"
    observations = (
        []
        if is_true(job.status.conditions, ConditionType.PLACED)
        else [Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, words)]
    )
    return next_status(
        job,
        now,
        *observations,
        Observation(ConditionType.RUNNING, False, ConditionReason.RESTARTING, words),
        attempt=number + 1,
        placement=placement,
    )


def suspended(job: TrainingJob, now: datetime, stays: str | None) -> TrainingJobStatus:
    """It holds nothing because the user said so; a booked attempt has ended by it. `stays` is the message about Pods
    that cannot be deleted."""
    changes: dict[str, Any] = {"cost": at_end(job.status, job.spec.gpus, fault_at(job.status, None, now))}
    placement = job.status.placement
    if placement is not None and not placement.awaits:
        changes = _ended(job, now, EndReason.SUSPENDED, "spec.suspend is true", charged=False)
        changes |= {"attempt": (job.status.attempt or 1) + 1, "restarts": (job.status.restarts or 0) + 1}
    return next_status(
        job,
        now,
        Observation(ConditionType.PLACED, False, EndReason.SUSPENDED, given_up("spec.suspend is true", stays)),
        *not_running(job, EndReason.SUSPENDED),
        *not_degraded(job),
        Observation(ConditionType.SUSPENDED, True, EndReason.SUSPENDED, "spec.suspend is true"),
        placement=None,
        pending=None,
        patient_until=None,
        queued_since=None,
        start_time=None,
        **changes,
    )


def finished(
    job: TrainingJob,
    now: datetime,
    reason: EndReason,
    message: str,
    *,
    succeeded: bool,
    charged: bool = False,
    facts: EndFacts = NO_FACTS,
    uncounted: int = 0,
) -> TrainingJobStatus:
    """It is over and holds nothing. Its placement stays for readers; the success of every rank is stored once.
    `uncounted`: so many restarts in place before this end are in no status yet."""
    placement = job.status.placement
    if succeeded and placement is not None:
        placement = with_shares(placement, [replace(share, succeeded=False) for share in decoded(placement)])
    if placement is not None:  # it waits for nothing any more
        placement = placement.model_copy(update={"swapping": None, "lost": None})
    end = ConditionType.SUCCEEDED if succeeded else ConditionType.FAILED
    return next_status(
        job,
        now,
        Observation(ConditionType.PLACED, False, ConditionReason.FINISHED, given_up("it is over", None)),
        *not_running(job, reason, keep_verified=True),
        *was_degraded(job),
        Observation(end, True, reason, message),
        placement=placement,
        restarts=(job.status.restarts or 0) + uncounted,
        pending=None,
        patient_until=None,
        queued_since=None,
        **_ended(job, now, reason, message, charged=charged, facts=facts),
        **({} if facts.charges is None else {"charges": [timestamp(each) for each in facts.charges]}),
    )


def over(job: StoredJob, now: datetime, stays: str | None) -> TrainingJobStatus:
    """It is over, with the fate of its GPUs; the stored status without news."""
    placed = found(job.status.conditions, ConditionType.PLACED)
    message = given_up("it is over", stays)
    news = was_degraded(job)
    if placed is not None and placed.reason == ConditionReason.FINISHED and placed.message != stated(message):
        news.append(Observation(ConditionType.PLACED, False, ConditionReason.FINISHED, message))
    return next_status(job, now, *news) if news else job.status


def _ended(
    job: TrainingJob,
    now: datetime,
    reason: EndReason,
    message: str,
    *,
    charged: bool,
    unfit: list[UnfitNode] | None = None,
    facts: EndFacts = NO_FACTS,
    follows: Following | None = None,
) -> dict[str, Any]:
    """The changes of the status by the end of its attempt, or of what it waited for after an end."""
    fault = fault_at(job.status, facts.fault, now)
    ended = EndedAttempt(
        number=job.status.attempt or 1,
        reason=reason,
        charged=charged,
        ended=timestamp(now),
        message=stated(message, ATTEMPT_MESSAGE_MAX_LENGTH),
        in_place=True if follows in _STAYS else None,
        ran=ran(job.status, fault),
        phases=None if follows is None else detected(fault, now, is_decided=follows in _KEEPS),
        exits=list(facts.exits) or None,
        unfit=unfit,
        blamed=list(facts.blamed[:KEPT_BLAMED]) or None,
    )
    cost = at_end(job.status, job.spec.gpus, fault)
    return {"attempts": [*job.status.attempts, ended][-KEPT_ATTEMPTS:], "cost": cost}
