"""The next status of a job that holds GPUs: booked, starting, running."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionReason, ConditionType
from closeknit.api.trainingjob_status import (
    EnvironmentStatus,
    PlacementStatus,
    RoomToGrow,
    TrainingJobStatus,
)
from closeknit.api.wire import Condition
from closeknit.cluster.booking.booking import BookingShare
from closeknit.lifecycle.status.conditions import (
    Observation,
    is_true,
    stated,
    timestamp,
)
from closeknit.lifecycle.status.degraded import NO_IPC_LOCK, Degradation
from closeknit.lifecycle.status.lost_time import (
    Launch,
    at_run,
    before_end,
    booked_again,
    running_before,
    runs_again,
    steps_again,
)
from closeknit.lifecycle.status.stored_job import StoredJob
from closeknit.lifecycle.transitions.next_status import (
    BEING_STARTED,
    accepted,
    booked_on,
    degraded,
    next_status,
    with_its_shares,
)
from closeknit.placement.values.sentences import count

# To grow costs a restart, and that takes about as long (docs/failures.md, and torchrun's own start): who waits no
# longer for what he could have all at once loses at most twice of what the best choice would have lost.
WAITS_FOR_ALL = timedelta(minutes=1)
"""How long an elastic job waits for all of its GPUs before it starts with fewer."""


class BookingWords(NamedTuple):
    """What is told of a booking."""

    unknown: str | None = None
    """As in `waiting`."""
    lent: str = ""
    """Which of its nodes are spares of others."""


_NO_WORDS = BookingWords()


def booked(
    job: StoredJob,
    now: datetime,
    placement: PlacementStatus,
    *,
    attempt: int,
    epoch: int,
    environment: EnvironmentStatus | None,
    lacks: Degradation | None,
    words: BookingWords = _NO_WORDS,
) -> TrainingJobStatus:
    """It holds GPUs, and has no children yet."""
    return next_status(
        job,
        now,
        accepted(words.unknown),
        Observation(ConditionType.PLACED, True, ConditionReason.BOOKED, booked_on(job, placement, words.lent)),
        Observation(ConditionType.PLACEMENT_VERIFIED, None, ConditionReason.NOT_BOUND, "its Pods are not bound yet"),
        Observation(ConditionType.RUNNING, False, ConditionReason.STARTING, BEING_STARTED),
        *degraded(job, lacks),
        attempt=attempt,
        attempts=booked_again(job.status, now),
        start_time=job.status.start_time or timestamp(now),
        epoch=epoch,
        environment=environment,
        placement=placement,
        pending=None,
    )


def without_ipc_lock(job: StoredJob, now: datetime) -> TrainingJobStatus:
    """Its Pods were refused with IPC_LOCK, and accepted without."""
    return next_status(job, now, *degraded(job, NO_IPC_LOCK))


def starting(job: StoredJob, now: datetime, reason: ConditionReason, message: str) -> TrainingJobStatus:
    """It does not run yet, for this reason."""
    return next_status(job, now, Observation(ConditionType.RUNNING, False, reason, message))


def running(
    job: TrainingJob,
    now: datetime,
    shares: Sequence[BookingShare],
    verified: Observation,
    lacks: Sequence[Degradation | None],
    launch: Launch,
    run: int | None = None,
    environment: EnvironmentStatus | None = None,
) -> TrainingJobStatus:
    """All its Pods run; `lacks` is all that they lack, empty to keep the stored words about that. `launch` counts when
    they begin to run. `run`: with the Pods that have taken the place of others, in this run. `environment`: what is
    newly known of it."""
    over = sum(1 for share in shares if share.succeeded)
    ended = f", {over} {'has' if over == 1 else 'have'} ended with exit code 0" if over else ""
    message = f"{len(shares) - over} of {count(len(shares), 'Pod')} {'runs' if len(shares) == 1 else 'run'}{ended}"
    observation = Observation(ConditionType.RUNNING, True, ConditionReason.ALL_PODS_RUNNING, message)
    found = (told for each in lacks for told in degraded(job, each))
    placement = with_its_shares(job, shares)
    if placement is not None and run is not None:
        placement = placement.model_copy(update={"swapping": None, "run": run})
    changes: dict[str, Any] = {"placement": placement, "patient_until": None, "queued_since": None}
    if environment is not None:
        changes["environment"] = environment
    if not is_true(job.status.conditions, ConditionType.RUNNING):
        changes["attempts"] = runs_again(job.status, launch, now)
        changes["cost"] = at_run(job.status, job.spec.gpus, now)
    changes["attempts"] = steps_again(changes.get("attempts", job.status.attempts), launch, now)
    return next_status(job, now, observation, verified, *found, **changes)


def taken_back(
    job: TrainingJob,
    now: datetime,
    placement: PlacementStatus,
    shares: Sequence[BookingShare],
    verified: Observation,
    lacks: Sequence[Degradation | None],
    environment: EnvironmentStatus | None,
) -> TrainingJobStatus:
    """Its growth in place is taken back: it holds `placement` again, with these shares. Its Pods have run on all the
    time, so that nothing has ended: no end is told, none is counted, and no time is lost."""
    stored = job.status
    held = sum(len(share.gpus) for share in shares)
    since = Condition(
        type=ConditionType.RUNNING,
        status="True",
        reason=ConditionReason.ALL_PODS_RUNNING,
        message="",
        last_transition_time=timestamp(running_before(stored)),
    )
    others = [each for each in stored.conditions if each.type != ConditionType.RUNNING]
    was = stored.model_copy(
        update={
            "conditions": [*others, since],
            "attempts": stored.attempts[:-1],
            "restarts": max(0, (stored.restarts or 0) - 1),
            "cost": before_end(stored, held, job.spec.gpus),
            "placement": placement,
            "environment": environment,
        }
    )
    before = job.model_copy(update={"status": was})
    placed = Observation(ConditionType.PLACED, True, ConditionReason.BOOKED, booked_on(before, placement))
    before = before.model_copy(update={"status": next_status(before, now, placed)})
    return running(before, now, shares, verified, lacks, Launch())


def roomy(job: TrainingJob, now: datetime, gpus: int, refused: str | None = None) -> TrainingJobStatus:
    """There is room for so many GPUs of a job that holds fewer than it asks for, from now on; 0: there is none.
    `refused`: why the API server does not take the job at the size that it was told of before."""
    placement = job.status.placement
    known = placement.room if placement is not None and refused is not None else None
    room = RoomToGrow(gpus=gpus, since=timestamp(now)) if gpus else None
    if known is not None and refused is not None:
        room = known.model_copy(update={"refused": stated(refused)})
    return next_status(job, now, placement=None if placement is None else placement.model_copy(update={"room": room}))


def verified(job: StoredJob, now: datetime, shares: Sequence[BookingShare], result: Observation) -> TrainingJobStatus:
    """The result of verifying its Pods' GPUs."""
    return next_status(job, now, result, placement=with_its_shares(job, shares))


def shared(job: StoredJob, now: datetime, shares: Sequence[BookingShare]) -> TrainingJobStatus:
    """The known state of its ranks; the stored status without news."""
    placement = with_its_shares(job, shares)
    return job.status if placement is job.status.placement else next_status(job, now, placement=placement)


def swapped(job: StoredJob, now: datetime, run: int) -> TrainingJobStatus:
    """The gang has begun this run with its new Pods, though not all of them run yet."""
    placement = job.status.placement
    done = None if placement is None else placement.model_copy(update={"swapping": None, "run": run})
    return next_status(job, now, placement=done)
