"""Brings the objects of one job to its verdict. Nothing is searched here: the verdict is given."""

from dataclasses import replace
from datetime import datetime
from math import inf

from closeknit.api.names import TRAINING_JOB, service_name
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType, EndReason, EventAction, EventReason, PendingReason
from closeknit.cluster.booking.booking import Booking, BookingShare, booking
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.attempt.ended_pods import Remains, remains, removals
from closeknit.lifecycle.attempt.own_pods import children
from closeknit.lifecycle.attempt.subject import Subject, deletions, empty, seconds_until
from closeknit.lifecycle.booking.book_gang import book
from closeknit.lifecycle.booking.wait_for_victims import wait_for_victims
from closeknit.lifecycle.ended_by_verdict import evict, evict_by_kueue, grow, move, shrink
from closeknit.lifecycle.failed_start_words import failed_start_words
from closeknit.lifecycle.failures.staying_pods import cannot_stay, farewells
from closeknit.lifecycle.health.attempt_end import abandoned, over, succeeded
from closeknit.lifecycle.reserved_words import estimated_start, expectation
from closeknit.lifecycle.running_gang import tend
from closeknit.lifecycle.status.capacity_words import capacity_words
from closeknit.lifecycle.status.conditions import found, stated, timestamp
from closeknit.lifecycle.status.deadlines import deadline, expiry
from closeknit.lifecycle.status.degraded import FIXED
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.status.preference import patient_until, unknown_preference
from closeknit.lifecycle.transitions import ends, runs, waits
from closeknit.lifecycle.unreadable import erred
from closeknit.lifecycle.verdict import (
    Await,
    Book,
    Evict,
    EvictByKueue,
    Grow,
    Hold,
    Keep,
    Refusal,
    Relocate,
    Reservation,
    Reserve,
    Shrink,
    Verdict,
    Wait,
    WaitCause,
)
from closeknit.lifecycle.writes.answers import NOTHING, TOLD_AGAIN, Answers
from closeknit.lifecycle.writes.denial_words import undeleted_words
from closeknit.lifecycle.writes.plan import Action, Delete, Plan, Telling
from closeknit.placement.values.sentences import count


def follow(
    job: TrainingJob,
    verdict: Verdict,
    cluster: Cluster,
    now: datetime,
    *,
    answers: Answers = NOTHING,
    epoch: int = 1,
    is_draft: bool = False,
) -> Plan:
    """The next writes for the job, from what is stored now, not from observed changes.

    Applied, and seen again, it gives a Plan that writes nothing. A draft lacks the status where the Plan would only
    write news of a wait, and that may be left for later.
    """
    subject = Subject(job, cluster, now, children(job, cluster), answers, epoch, is_draft)
    due = None if isinstance(verdict, Wait) and verdict.refusal.cause in _NOT_DUE else deadline(job)
    is_late = due is not None and due <= now
    match verdict:
        case Keep():
            plan = _keep(subject, verdict, is_late=is_late)
        case _ if is_late:
            plan = _too_late(subject)
        case Book(placement, why):
            plan = book(subject, placement, why)
        case Hold(shares, message):
            plan = _hold(subject, shares, message)
        case Await(awaits, message, placement):
            plan = wait_for_victims(subject, awaits, message, placement)
        case Evict(held, by, is_recalled):
            plan = evict(Attempt(subject, held), by, is_recalled=is_recalled)
        case EvictByKueue(held, message):
            plan = evict_by_kueue(Attempt(subject, held), message)
        case Grow(held, placement):
            plan = grow(Attempt(subject, held), placement)
        case Shrink(held, placement, by):
            plan = shrink(Attempt(subject, held), placement, by)
        case Relocate(held, placement, by, gpus):
            plan = move(Attempt(subject, held), placement, by, gpus)
        case Reserve(refusal, reservation):
            plan = _wait(subject, refusal, reservation)
        case Wait(refusal):
            plan = _wait(subject, refusal)
    plan = plan if is_late else plan.woken_at(now, due)
    return _with_undeleted(subject, plan) if answers.undeleted_services else plan


def _with_undeleted(subject: Subject, plan: Plan) -> Plan:
    """The Plan with the deletions of Services that have failed, but of the one of an attempt that it makes or keeps."""
    status = subject.job.status if plan.status is None else plan.status
    kept = set() if status.placement is None else {service_name(subject.job.metadata.name, subject.attempt)}
    named = {each.name for each in plan.actions if isinstance(each, Delete)}
    left = sorted(subject.answers.undeleted_services - kept - named)
    return replace(plan, actions=(*plan.actions, *(Delete("Service", name) for name in left))) if left else plan


# What ends a job, or keeps closeknit from deciding on it, comes before its deadline.
_NOT_DUE = frozenset(
    {WaitCause.BEING_DELETED, WaitCause.OVER, WaitCause.SUSPENDED, WaitCause.MISTAKE, WaitCause.PUT_ASIDE}
)


def _too_late(subject: Subject) -> Plan:
    """The failure of a job that is not over at its deadline."""
    length_s, since = subject.job.spec.active_deadline_seconds, subject.job.status.start_time
    message = (
        f"it was not over {length_s} s after {since}, when it got GPUs: spec.activeDeadlineSeconds is {length_s}; "
        "to train on from its last checkpoint, create the job again with a later deadline"
    )
    return over(subject, EndReason.DEADLINE_EXCEEDED, message)


def _keep(subject: Subject, verdict: Keep, *, is_late: bool) -> Plan:
    """The care for what it holds; then what there is to tell of room for more."""
    attempt, job, held = Attempt(subject, verdict.booking), subject.job, verdict.booking
    is_too_late = is_late and not attempt.is_over
    plan = _too_late(subject) if is_too_late else tend(attempt, is_fit=verdict.is_fit, before=verdict.before)
    unmoved = subject.answers.refused_change
    if plan.writes:
        return plan
    if unmoved is not None and unmoved.reason is EventReason.MOVE_REFUSED and not unmoved.is_told:
        words = f"it stays where it is: {unmoved.message}"
        told = subject.notice(unmoved.reason, words, action=EventAction.MOVE, warning=True)
        return replace(plan, notice=told)
    if verdict.room is None:
        return plan
    status = runs.roomy(job, subject.now, verdict.room, verdict.refused)
    if verdict.refused is None:
        return subject.plan(status, wake_after_s=plan.wake_after_s)
    words = f"it goes on with {held.gpus} of its {count(job.spec.gpus, 'GPU')}: {verdict.refused}"
    told = subject.notice(EventReason.RESIZE_REFUSED, words, action=EventAction.RESIZE, warning=True)
    return subject.plan(status, notice=told, wake_after_s=plan.wake_after_s)


def _hold(subject: Subject, shares: tuple[BookingShare, ...], message: str) -> Plan:
    """It waits for other nodes in place of lost ones. Its old Pods go meanwhile."""
    status = waits.holding(subject.job, subject.now, shares, message)
    pending = subject.job.status.pending
    attempt = Attempt(subject, Booking(subject.job.metadata.uid or "", subject.attempt, shares))
    if attempt.is_swapping and (why := cannot_stay(attempt, shares)):
        return abandoned(subject, shares, why)
    notice = None
    if message and (pending is None or pending.reason != PendingReason.NODES_LOST):
        notice = subject.notice(PendingReason.NODES_LOST, message, action=EventAction.QUEUE, warning=True)
    left = remains(subject, subject.attempt - 1) if attempt.is_swapping else _left(subject)
    leaving = farewells(subject, attempt.booking) if attempt.is_swapping else ()
    gone = removals(subject, subject.children.outlived(attempt.booking) if attempt.is_swapping else ())
    plan = subject.plan(status, actions=(*leaving, *gone.actions, *left.actions), notice=notice)
    return plan.woken_at(subject.now, left.until, gone.until)


def _wait(subject: Subject, refusal: Refusal, reservation: Reservation | None = None) -> Plan:
    job, now = subject.job, subject.now
    wake_after_s = None if refusal.until is None else seconds_until(refusal.until, now)
    match refusal.cause:
        case WaitCause.BEING_DELETED | WaitCause.PUT_ASIDE:
            return empty(job)  # being deleted, its children have it as owner and go with it
        case WaitCause.NOT_ASKED:
            left = _left(subject)
            return replace(empty(job), actions=_undone(subject, left)).woken_at(now, left.until)
        case WaitCause.MISTAKE:
            assert refusal.error is not None  # noqa: S101 - of this cause, for the type checker
            return erred(job, now, refusal.error)
        case WaitCause.OVER:
            status = ends.over(job, now, _stays(subject))
            left, due = remains(subject, subject.attempt, is_over=True), expiry(job)
            if due is not None and due <= now:  # all that it owns goes with it
                return replace(empty(job), actions=(Delete(TRAINING_JOB, job.metadata.name, job.metadata.uid),))
            return subject.plan(status, actions=left.actions).woken_at(now, left.until, due)
        case WaitCause.SUSPENDED:
            return _suspend(subject)
        case WaitCause.LEFTOVERS | WaitCause.PAUSE:
            left = _left(subject)
            plan = subject.plan(waits.cleaning(job, now), actions=left.actions, wake_after_s=wake_after_s)
            return plan.woken_at(now, left.until)
        case WaitCause.NUMBER_HELD:
            return subject.plan(waits.passed_over(job, now))
        case WaitCause.NO_FIT:
            away = avoided_nodes(job, subject.cluster, now)
            patience = patient_until(job, now) if refusal.ends else None
            until = () if patience is None else (f"it waits until {timestamp(patience)} at the latest",)
            kept = subject.cluster.volumes_of(job).words
            expected = () if reservation is None else (expectation(reservation),)
            capacity = capacity_words(job, subject.cluster, now)
            others = (
                *((away.words,) if away.words else ()),
                *((f"its volumes: {kept}",) if kept else ()),
                *((capacity,) if capacity else ()),
                *failed_start_words(job, subject.cluster, subject.answers, now),
                *_fewer_words(job),
            )
            more = (*until, *expected, *others)
            refusal = replace(refusal, message="; ".join((refusal.message, *more))) if more else refusal
            return _refuse(subject, refusal, wake_after_s, patience, reservation)
        case WaitCause.REFUSED:
            if refusal.reason is PendingReason.QUOTA_EXCEEDED and _is_part_left(subject):
                refusal = replace(refusal, message="; ".join((refusal.message, *_fewer_words(job))))
            return _refuse(subject, refusal, wake_after_s)


def _is_part_left(subject: Subject) -> bool:
    """Whether quotas that leave too little for an elastic job likely have room for its least size."""
    refused, elastic = subject.answers.rejection, subject.job.spec.elastic
    room = None if refused is None else refused.quota_room
    if room is None or elastic is None or (refused is not None and len(refused.by_size) > 1):
        return False
    return room.holds_likely(elastic.min_gpus)


def _fewer_words(job: TrainingJob) -> tuple[str, ...]:
    """What an elastic job starts with instead of all of its GPUs."""
    elastic = job.spec.elastic
    if elastic is None or elastic.min_gpus == job.spec.gpus:
        return ()
    return (f"after a minute it starts with fewer, {elastic.min_gpus} at least, where so many fit and delay nobody",)


def _refuse(
    subject: Subject,
    refusal: Refusal,
    wake_after_s: float | None,
    patient_until: datetime | None = None,
    reservation: Reservation | None = None,
) -> Plan:
    """The job waits for this reason. The Event reports a new reason, not new numbers. `patient_until` is the latest end
    of the wait: an unstored one would move."""
    left = _left(subject)
    actions = _undone(subject, left)
    refusal = _with_what_an_edit_takes(subject.job, refusal)
    assert refusal.reason is not None  # noqa: S101 - of these causes, for the type checker
    stored, now, told_at = subject.job.status, subject.now, subject.answers.told_at
    telling = _telling(subject, refusal.reason)
    is_told_lately = told_at is not None and is_between(told_at, now, told_at + TOLD_AGAIN)
    has_end = patient_until is None or stored.patient_until is not None
    if telling is Telling.AGAIN and told_at is not None and is_told_lately and has_end:
        if not _is_told(subject, refusal, reservation):
            wake_after_s = min(seconds_until(told_at + TOLD_AGAIN, now), wake_after_s or inf)
        return subject.plan(actions=actions, wake_after_s=wake_after_s).woken_at(now, left.until)
    notice = None
    is_other = stored.pending is None or stored.pending.reason != refusal.reason
    if is_other and not subject.answers.was_told(refusal.reason, now):
        notice = subject.notice(refusal.reason, refusal.message, action=EventAction.QUEUE, warning=True)
    if subject.is_draft and telling is not Telling.FIRST and not (actions or _is_told(subject, refusal, reservation)):
        return empty(subject.job, notice=notice, telling=telling)
    status = waits.waiting(
        subject.job,
        now,
        refusal.reason,
        refusal.message,
        refusal.nearest,
        unknown_preference(subject.job.spec, subject.cluster),
        patient_until,
        None if reservation is None else waits.KeptRoom(estimated_start(reservation)),
    )
    plan = subject.plan(status, actions=actions, notice=notice, wake_after_s=wake_after_s).woken_at(now, left.until)
    return plan if plan.status is None or plan.actions else replace(plan, telling=telling)


def _telling(subject: Subject, reason: PendingReason) -> Telling:
    """The importance of this reason for the job."""
    stored = subject.job.status
    is_same_spec = stored.observed_generation == subject.job.metadata.generation and stored.placement is None
    if stored.pending is None or not is_same_spec:
        return Telling.FIRST
    is_known = stored.pending.reason == reason or subject.answers.was_told(reason, subject.now)
    return Telling.AGAIN if is_known else Telling.NEWS


def _with_what_an_edit_takes(job: TrainingJob, refusal: Refusal) -> Refusal:
    """The message with what is needed where the API server no longer accepts the advised edit."""
    left = job.status
    if left.placement is not None:  # a booking that this very refusal takes back fixes nothing
        left = left.model_copy(update={"placement": None})
    if not left.was_booked or traits(refusal.reason).ends_by_others:
        return refusal
    return replace(refusal, message=f"{refusal.message}; {FIXED}")


def _is_told(subject: Subject, refusal: Refusal, reservation: Reservation | None) -> bool:
    stored = subject.job.status
    told, admitted = stored.pending, found(stored.conditions, ConditionType.ADMITTED)
    unknown = stated(unknown_preference(subject.job.spec, subject.cluster) or "")
    if admitted is None or admitted.message != unknown:
        return False
    if told is None or told.reason != refusal.reason or told.message != stated(refusal.message):
        return False
    if told.estimated_start != (None if reservation is None else estimated_start(reservation)):
        return False
    if (told.reserved_since is None) != (reservation is None):
        return False
    return refusal.nearest is None or told.nearest == [stated(change) for change in refusal.nearest]


def _undone(subject: Subject, left: Remains) -> tuple[Action, ...]:
    """Removes what is `left`: the children of an attempt that a refused child keeps incomplete, and all older ones.

    Services are not seen, and one whose end was not asked for, because the operator ended first, counts in a quota."""
    rejection, attempt = subject.answers.rejection, subject.attempt
    services: tuple[int, ...] = ()
    if subject.answers.swept != attempt and rejection is not None and rejection.reason is PendingReason.QUOTA_EXCEEDED:
        services = (attempt, attempt - 1)
    elif subject.job.status.placement is not None:
        services = (attempt,)
    name = subject.job.metadata.name
    gone = (Delete("Service", service_name(name, number)) for number in services)
    return (*left.actions, *gone)


def _left(subject: Subject) -> Remains:
    """What to do about all Pods of a job that is to have none: those of the next attempt, or of one taken back, have
    said nothing."""
    own = subject.children.own
    to_come = tuple(pod for pod in own if pod.attempt is not None and pod.attempt >= subject.attempt)
    left = remains(subject, subject.attempt - 1)
    return Remains((*deletions(to_come), *left.actions), left.until)


def _stays(subject: Subject) -> str | None:
    """The message about Pods that cannot be deleted; None without any."""
    undeleted = subject.answers.undeleted
    if undeleted is None or not deletions(subject.children.live):
        return None
    return undeleted_words(undeleted.names, undeleted.denial, subject.job.key.namespace)


def _suspend(subject: Subject) -> Plan:
    held = booking(subject.job)
    attempt = None if held is None else Attempt(subject, held)
    if attempt is not None and attempt.is_over:
        return succeeded(attempt)  # nothing is left to be suspended, and resumed it would train all over again
    booked = subject.job.status.placement is not None
    service = Delete("Service", service_name(subject.job.metadata.name, subject.attempt))
    status = ends.suspended(subject.job, subject.now, _stays(subject))
    note = f"spec.suspend is true{': its GPUs are free as soon as its Pods are gone' if booked else ''}"
    live = deletions(subject.children.live)
    left = remains(subject, subject.attempt - 1)
    old = (action for action in left.actions if isinstance(action, Delete) and action not in live)
    plan = subject.plan(
        status,
        actions=(*live, *old, *((service,) if booked else ())),
        notice=subject.notice(EndReason.SUSPENDED, note, action=EventAction.SUSPEND),
    )
    return plan.woken_at(subject.now, left.until)
