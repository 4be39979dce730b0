"""The next status of a job, for each event. Each function returns the whole status."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple, Protocol

from closeknit.api.names import ConditionReason, ConditionType, EndReason, JobKey, PendingReason
from closeknit.api.objects import ObjectMeta, TrainingJob
from closeknit.api.trainingjob_status import (
    BlamedDevice,
    EndedAttempt,
    EnvironmentStatus,
    Exit,
    Pending,
    PlacementStatus,
    RoomToGrow,
    TrainingJobStatus,
    UnfitNode,
)
from closeknit.api.wire import Condition
from closeknit.cluster.booking.booking import BookingShare, assignments, decoded, names, with_shares
from closeknit.lifecycle.status.conditions import (
    Observation,
    found,
    is_said,
    is_true,
    observed,
    state,
    stated,
    timestamp,
)
from closeknit.lifecycle.status.degraded import NO_IPC_LOCK, Degradation
from closeknit.lifecycle.status.lost_time import (
    Launch,
    at_end,
    at_run,
    booked_again,
    detected,
    fault_at,
    is_taken_back,
    ran,
    runs_again,
    steps_again,
)
from closeknit.lifecycle.status.pending import traits
from closeknit.placement.values.sentences import count


class StoredJob(Protocol):
    """A stored job, with a readable spec or not."""

    @property
    def key(self) -> JobKey:
        """Namespace and name."""
        ...

    @property
    def metadata(self) -> ObjectMeta:
        """Name, generation."""
        ...

    @property
    def status(self) -> TrainingJobStatus:
        """Its stored status."""
        ...


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
GROWS_AFTER = timedelta(minutes=5)
"""How long there must have been room for more GPUs of an elastic job: most of what comes free is taken sooner, by the
next jobs that are submitted and by those that come back from a restart."""
# To grow costs a restart, and that takes about as long (docs/failures.md, and torchrun's own start): who waits no
# longer for what he could have all at once loses at most twice of what the best choice would have lost.
WAITS_FOR_ALL = timedelta(minutes=1)
"""How long an elastic job waits for all of its GPUs before it starts with fewer."""
KEPT_ATTEMPTS = 10  # of status.attempts, as its schema bounds it
KEPT_BLAMED = 16  # nodes and GPUs of one of them, likewise
ATTEMPT_MESSAGE_MAX_LENGTH = 1024  # of the message of one of them
BEING_STARTED = "its Pods are being started"


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
    return _next(
        job,
        now,
        _accepted(unknown) if admitted else Observation(ConditionType.ADMITTED, False, reason, message),
        Observation(ConditionType.PLACED, False, reason, message),
        *_not_running(job, ConditionReason.NOT_PLACED),
        *_not_degraded(job),
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
        **never_began,
    )


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
        return _next(job, now, observation)
    pending = Pending(reason=reason, message=stated(message), since=timestamp(now))
    return _next(job, now, observation, placement=None, pending=pending)


def decided(job: StoredJob, status: TrainingJobStatus, now: datetime) -> TrainingJobStatus:
    """The status without the words of `undecided` for a job that holds GPUs; the same object without such words."""
    placed = found(status.conditions, ConditionType.PLACED)
    if status.placement is None or placed is None or placed.status != "True" or placed.reason == ConditionReason.BOOKED:
        return status
    said = Observation(ConditionType.PLACED, True, ConditionReason.BOOKED, _booked_on(job, status.placement))
    conditions = observed(status.conditions, [said], generation=job.metadata.generation, now=now)
    return status.model_copy(update={"conditions": conditions})


def cleaning(job: StoredJob, now: datetime) -> TrainingJobStatus:
    """It waits until its own older Pods are gone. Its earlier reason to wait stays."""
    if not is_true(job.status.conditions, ConditionType.SUSPENDED):
        return job.status
    message = "waits until the Pods of the attempt before are gone"
    return _next(job, now, Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, message), pending=None)


def passed_over(job: StoredJob, now: datetime) -> TrainingJobStatus:
    """The next attempt skips a number: Pods that may never go have the names of the skipped one."""
    return _next(job, now, attempt=(job.status.attempt or 1) + 1)


def booked(
    job: StoredJob,
    now: datetime,
    placement: PlacementStatus,
    *,
    attempt: int,
    epoch: int,
    environment: EnvironmentStatus | None,
    lacks: Degradation | None,
    unknown: str | None = None,
) -> TrainingJobStatus:
    """It holds GPUs, and has no children yet. `unknown` as in `waiting`."""
    return _next(
        job,
        now,
        _accepted(unknown),
        Observation(ConditionType.PLACED, True, ConditionReason.BOOKED, _booked_on(job, placement)),
        Observation(ConditionType.PLACEMENT_VERIFIED, None, ConditionReason.NOT_BOUND, "its Pods are not bound yet"),
        Observation(ConditionType.RUNNING, False, ConditionReason.STARTING, BEING_STARTED),
        *_degraded(job, lacks),
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
    return _next(job, now, *_degraded(job, NO_IPC_LOCK))


def starting(job: StoredJob, now: datetime, reason: ConditionReason, message: str) -> TrainingJobStatus:
    """It does not run yet, for this reason."""
    return _next(job, now, Observation(ConditionType.RUNNING, False, reason, message))


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
    found = (told for each in lacks for told in _degraded(job, each))
    placement = _with(job, shares)
    if placement is not None and run is not None:
        placement = placement.model_copy(update={"swapping": None, "run": run})
    changes: dict[str, Any] = {"placement": placement, "patient_until": None, "queued_since": None}
    if environment is not None:
        changes["environment"] = environment
    if not is_true(job.status.conditions, ConditionType.RUNNING):
        changes["attempts"] = runs_again(job.status, launch, now)
        changes["cost"] = at_run(job.status, job.spec.gpus, now)
    changes["attempts"] = steps_again(changes.get("attempts", job.status.attempts), launch, now)
    return _next(job, now, observation, verified, *found, **changes)


def roomy(job: TrainingJob, now: datetime, gpus: int, refused: str | None = None) -> TrainingJobStatus:
    """There is room for so many GPUs of a job that holds fewer than it asks for, from now on; 0: there is none.
    `refused`: why the API server does not take the job at the size that it was told of before."""
    placement = job.status.placement
    known = placement.room if placement is not None and refused is not None else None
    room = RoomToGrow(gpus=gpus, since=timestamp(now)) if gpus else None
    if known is not None and refused is not None:
        room = known.model_copy(update={"refused": stated(refused)})
    return _next(job, now, placement=None if placement is None else placement.model_copy(update={"room": room}))


def verified(job: StoredJob, now: datetime, shares: Sequence[BookingShare], result: Observation) -> TrainingJobStatus:
    """The result of verifying its Pods' GPUs."""
    return _next(job, now, result, placement=_with(job, shares))


def shared(job: StoredJob, now: datetime, shares: Sequence[BookingShare]) -> TrainingJobStatus:
    """The known state of its ranks; the stored status without news."""
    placement = _with(job, shares)
    return job.status if placement is job.status.placement else _next(job, now, placement=placement)


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
    placement = None if again is None else _with(job, [replace(share, replacement=0) for share in again])
    if placement is not None:
        placement = placement.model_copy(update={"run": None, "swapping": None})  # in new Pods
    is_whole = placement is not None and placement.lost is None
    if placement is None or not is_whole:
        words = f"attempt {number} ended: {message}"
        placed = Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, words)
    else:
        placed = Observation(ConditionType.PLACED, True, ConditionReason.BOOKED, _booked_on(job, placement))
    return _next(
        job,
        now,
        placed,
        *_not_running(job, reason, message),
        *(() if is_whole else _not_degraded(job)),
        *([] if lacks is None else _degraded(job, lacks)),
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
    return _next(
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
    placement = _with(job, shares)
    words = f"attempt {job.status.attempt or 1} has lost nodes: {message}"
    return _next(
        job,
        now,
        Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, words),
        *_not_running(job, reason, message),
        *_not_degraded(job),
        restarts=(job.status.restarts or 0) + 1,
        placement=None if placement is None else placement.model_copy(update={"swapping": True}),
        pending=None,
        **_ended(job, now, reason, message, charged=False, unfit=unfit, facts=facts, follows=Following.WITH_OTHERS),
    )


def abandoned(job: StoredJob, now: datetime, shares: Sequence[BookingShare], why: str) -> TrainingJobStatus:
    """The Pods that were to stay cannot, for this reason: the next attempt has new ones, and holds the same."""
    placement = _with(job, [replace(share, replacement=0, succeeded=False) for share in shares])
    if placement is not None:
        placement = placement.model_copy(update={"swapping": None, "run": None})
    number = job.status.attempt or 1
    words = f"all Pods of attempt {number + 1} are new: {why}"
    observations = (
        []
        if is_true(job.status.conditions, ConditionType.PLACED)
        else [Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, words)]
    )
    return _next(
        job,
        now,
        *observations,
        Observation(ConditionType.RUNNING, False, ConditionReason.RESTARTING, words),
        attempt=number + 1,
        placement=placement,
    )


def swapped(job: StoredJob, now: datetime, run: int) -> TrainingJobStatus:
    """The gang has begun this run with its new Pods, though not all of them run yet."""
    placement = job.status.placement
    done = None if placement is None else placement.model_copy(update={"swapping": None, "run": run})
    return _next(job, now, placement=done)


def holding(job: StoredJob, now: datetime, shares: Sequence[BookingShare], message: str) -> TrainingJobStatus:
    """It waits for other nodes in place of lost ones, and holds the rest; without a message the words stay."""
    placement = _with(job, shares)
    if not message and placement is job.status.placement:
        return job.status
    if not message:
        words = "it has lost nodes, and others are looked for"
        placed = Observation(ConditionType.PLACED, False, ConditionReason.RESTARTING, words)
        return _next(job, now, placed, placement=placement)
    before = job.status.pending
    reason = PendingReason.NODES_LOST
    since = before.since if before is not None and before.reason == reason else timestamp(now)
    return _next(
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
    return _next(
        job,
        now,
        _accepted(unknown),
        Observation(ConditionType.PLACED, False, reason, message),
        *_not_running(job, ConditionReason.NOT_PLACED),
        *_not_degraded(job),
        placement=job.status.placement if placement is None else placement,
        pending=Pending(reason=reason, message=stated(message), since=since),
    )


def suspended(job: TrainingJob, now: datetime, stays: str | None) -> TrainingJobStatus:
    """It holds nothing because the user said so; a booked attempt has ended by it. `stays` is the message about Pods
    that cannot be deleted."""
    changes: dict[str, Any] = {"cost": at_end(job.status, job.spec.gpus, fault_at(job.status, None, now))}
    placement = job.status.placement
    if placement is not None and not placement.awaits:
        changes = _ended(job, now, EndReason.SUSPENDED, "spec.suspend is true", charged=False)
        changes |= {"attempt": (job.status.attempt or 1) + 1, "restarts": (job.status.restarts or 0) + 1}
    return _next(
        job,
        now,
        Observation(ConditionType.PLACED, False, EndReason.SUSPENDED, _given_up("spec.suspend is true", stays)),
        *_not_running(job, EndReason.SUSPENDED),
        *_not_degraded(job),
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
) -> TrainingJobStatus:
    """It is over and holds nothing. Its placement stays for readers; the success of every rank is stored once."""
    placement = job.status.placement
    if succeeded and placement is not None:
        placement = with_shares(placement, [replace(share, succeeded=False) for share in decoded(placement)])
    end = ConditionType.SUCCEEDED if succeeded else ConditionType.FAILED
    return _next(
        job,
        now,
        Observation(ConditionType.PLACED, False, ConditionReason.FINISHED, _given_up("it is over", None)),
        *_not_running(job, reason, keep_verified=True),
        *_was_degraded(job),
        Observation(end, True, reason, message),
        placement=placement,
        pending=None,
        patient_until=None,
        queued_since=None,
        **_ended(job, now, reason, message, charged=charged, facts=facts),
        **({} if facts.charges is None else {"charges": [timestamp(each) for each in facts.charges]}),
    )


def over(job: StoredJob, now: datetime, stays: str | None) -> TrainingJobStatus:
    """It is over, with the fate of its GPUs; the stored status without news."""
    placed = found(job.status.conditions, ConditionType.PLACED)
    message = _given_up("it is over", stays)
    news = _was_degraded(job)
    if placed is not None and placed.reason == ConditionReason.FINISHED and placed.message != stated(message):
        news.append(Observation(ConditionType.PLACED, False, ConditionReason.FINISHED, message))
    return _next(job, now, *news) if news else job.status


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


def _given_up(why: str, stays: str | None) -> str:
    """The message about the former GPUs of a job: they are free with its Pods, unless these stay."""
    return f"{why}: {stays}" if stays else f"{why}: its GPUs are free as soon as its Pods are gone"


def _next(job: StoredJob, now: datetime, *observations: Observation, **changes: Any) -> TrainingJobStatus:
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


def _not_running(
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


def _not_degraded(job: StoredJob) -> list[Observation]:
    """Unknown: it is open what the next GPUs of the job will lack. The reason stays for the next attempt."""
    told = found(job.status.conditions, ConditionType.DEGRADED)
    if told is None or told.status != "True":
        return []
    reason = ConditionReason(told.reason) if told.reason in frozenset(ConditionReason) else ConditionReason.NOT_PLACED
    return [Observation(ConditionType.DEGRADED, None, reason, told.message)]


def _was_degraded(job: StoredJob) -> list[Observation]:
    """What a finished job lacked while it ran."""
    told = found(job.status.conditions, ConditionType.DEGRADED)
    if told is None or told.status == "False":
        return []
    message = f"while it ran: {told.message}"
    return [Observation(ConditionType.DEGRADED, False, ConditionReason.FINISHED, message)]


def _degraded(job: StoredJob, lacks: Degradation | None) -> list[Observation]:
    """Nothing where nothing is missing, and nothing was said to be."""
    if lacks is not None:
        return [Observation(ConditionType.DEGRADED, True, lacks.reason, lacks.told(is_booked=True))]
    if is_said(job.status.conditions, ConditionType.DEGRADED):
        return [Observation(ConditionType.DEGRADED, False, ConditionReason.AS_PLANNED, "")]
    return []


def _with(job: StoredJob, shares: Sequence[BookingShare]) -> PlacementStatus | None:
    placement = job.status.placement
    return None if placement is None else with_shares(placement, shares)


def _accepted(unknown: str | None) -> Observation:
    """The job is acceptable, though it may prefer what the cluster does not have."""
    reason = ConditionReason.ACCEPTED if unknown is None else ConditionReason.PREFERRED_LEVEL_UNKNOWN
    return Observation(ConditionType.ADMITTED, True, reason, unknown or "")


def _booked_on(job: StoredJob, placement: PlacementStatus) -> str:
    told, wanted = f"booked on {names([node.name for node in assignments(placement)])}", _spares_wanted(job)
    if placement.gpus is not None and isinstance(job, TrainingJob):
        told = f"{told}, with {placement.gpus} of {count(job.spec.gpus, 'GPU')}"
    spare = [node.name for node in placement.spares or ()]
    if not (wanted or spare):
        return told
    few = "" if len(spare) >= wanted else f", {len(spare)} of {wanted}: no more nodes like its own were free near them"
    return f"{told}; spare: {names(spare) if spare else 'none'}{few}"


def _spares_wanted(job: StoredJob) -> int:
    return job.spec.spares if isinstance(job, TrainingJob) else 0


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


def is_finished(job: StoredJob) -> bool:
    """Whether the job is over."""
    return any(is_true(job.status.conditions, end) for end in (ConditionType.SUCCEEDED, ConditionType.FAILED))
