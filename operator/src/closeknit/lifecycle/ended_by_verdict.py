"""A running attempt ends by a verdict on the queue: it makes room, gives Kueue its quota back, changes its size, or
moves.

The end of such an attempt and the booking of the next one are one write. All its Pods are new: how many
ranks there are, and how many of them are before its own, is told to each Pod when it is made. But where a gang grows
beside the nodes that it has, the Pods there may stay: they are told the size, and the attempt goes on.
"""

from dataclasses import replace

from closeknit.api.names import JobKey, service_name
from closeknit.api.reasons import EndReason, EventAction
from closeknit.cluster.booking.booking import assignments, names
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.ended_pods import remains
from closeknit.lifecycle.attempt.subject import Subject, deletions
from closeknit.lifecycle.booking.book_gang import book, book_beside
from closeknit.lifecycle.booking.booked_placement import booked_share
from closeknit.lifecycle.failures.staying_pods import cannot_grow
from closeknit.lifecycle.health.attempt_end import succeeded
from closeknit.lifecycle.transitions import ends
from closeknit.lifecycle.transitions.next_status import GROWS_AFTER
from closeknit.lifecycle.writes.plan import Delete, Plan
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.sentences import count


def evict(attempt: Attempt, by: JobKey, *, is_recalled: bool = False) -> Plan:
    """The attempt ends, uncharged: its Pods get their grace period, and the job waits again with its age. One that is
    over already is over."""
    subject = attempt.subject
    whom = _named(by, subject)
    why = (
        "which has lost nodes, and takes back spare nodes that were lent"
        if is_recalled
        else "which has a higher priority"
    )
    message = (
        f"makes room for {whom}, {why}; the job keeps its age, is not charged for this, and "
        "starts again as soon as there is room for it"
    )
    return _ended(attempt, EndReason.PREEMPTED, message, EventAction.PREEMPT)


def evict_by_kueue(attempt: Attempt, message: str) -> Plan:
    """The same, until Kueue admits the job again."""
    return _ended(attempt, EndReason.EVICTED_BY_KUEUE, message, EventAction.SUSPEND)


def _ended(attempt: Attempt, reason: EndReason, message: str, action: EventAction) -> Plan:
    if attempt.is_over:
        return succeeded(attempt)
    subject = attempt.subject
    status = ends.restarting(subject.job, subject.now, reason, message, again=None)
    foreign = deletions(attempt.replaced)
    gone = {each.name for each in foreign}
    ending = remains(subject, subject.attempt, ended=subject.now, reason=reason)
    left = (each for each in ending.actions if each.name not in gone)
    service = Delete("Service", service_name(subject.job.metadata.name, subject.attempt))
    notice = subject.notice(reason, message, action=action, warning=True)
    return subject.plan(status, actions=(*foreign, *left, service), notice=notice)


def grow(attempt: Attempt, placement: Placement) -> Plan:
    """The run ends, uncharged, and the next one has these GPUs. Nothing is stored where a quota has too little left for
    them, or the API server refuses the larger gang."""
    before, after, asked = attempt.booking.gpus, _gpus(placement), attempt.subject.job.spec.gpus
    message = (
        f"grows from {before} to {after} of its {count(asked, 'GPU')}, for there has been room for more of them for "
        f"{_minutes()}; it starts again {{}}, and is not charged for this"
    )
    if (beside := _grown_in_place(attempt, placement, message)) is not None:
        return beside
    return _resized(attempt, placement, EndReason.GROWN, message.format("in new Pods"), is_by_choice=True)


def _grown_in_place(attempt: Attempt, placement: Placement, message: str) -> Plan | None:
    """The booking of the added nodes, where all Pods of the gang stay; None where they cannot."""
    held = attempt.booking.shares
    added = [replace(booked_share(share), lost=True) for share in placement.shares[len(held) :]]
    if attempt.is_over or not added or cannot_grow(attempt):
        return None
    subject, news = attempt.subject, count(len(added), "new one")
    message = message.format(f"in the Pods that it has and {news}")
    shares = (*attempt.shares, *added)
    grown = ends.swapping(
        subject.job, subject.now, EndReason.GROWN, message, shares=shares, unfit=None, facts=ends.NO_FACTS
    )
    plan = book_beside(replace(subject, job=subject.job.model_copy(update={"status": grown})), placement)
    if isinstance(plan, str):
        return None
    return replace(plan, notice=subject.notice(EndReason.GROWN, message, action=EventAction.RESIZE))


def shrink(attempt: Attempt, placement: Placement, by: JobKey) -> Plan:
    """The attempt ends, uncharged, and the next one has these GPUs: others go to a job of higher priority. Nothing is
    stored where a quota would have too little left for that job then: this one goes as a whole."""
    before, after = attempt.booking.gpus, _gpus(placement)
    whom = _named(by, attempt.subject)
    message = (
        f"gives {before - after} of its {count(before, 'GPU')} to {whom}, which has a higher priority, and goes on "
        f"with {after}; it starts again in new Pods, is not charged for this, and grows as soon as there is room"
    )
    shrunk = _resized(attempt, placement, EndReason.SHRUNK, message, is_by_choice=False)
    if by.namespace == attempt.subject.job.key.namespace:
        return shrunk
    return replace(shrunk, demand=None, is_by_choice=False)


def move(attempt: Attempt, placement: Placement, by: JobKey, gpus: int) -> Plan:
    """The attempt ends, uncharged, and the next one has these GPUs, as many, so that a gang of so many GPUs has room.
    Nothing is stored where a quota has too little left, or the API server refuses the gang there."""
    whom, stored = _named(by, attempt.subject), attempt.subject.job.status.placement
    before = names([node.name for node in assignments(stored)]) if stored is not None else ""
    after = names([share.node for share in placement.shares])
    message = (
        f"moves from {before} to {after}, as spec.defragment: Planned allows, which gives {whom} room for its "
        f"{count(gpus, 'GPU')}; it starts again in new Pods, and is not charged for this"
    )
    return _resized(attempt, placement, EndReason.MOVED, message, is_by_choice=True)


def _resized(attempt: Attempt, placement: Placement, reason: EndReason, message: str, *, is_by_choice: bool) -> Plan:
    """The end of the attempt, and the booking of the next one. Its Pods are made by the next Plan: quotas still count
    those of now. Quotas are asked first; and a dry run where it is `is_by_choice`."""
    if attempt.is_over:
        return succeeded(attempt)
    subject = attempt.subject
    ended = ends.restarting(subject.job, subject.now, reason, message, again=None)
    following = replace(subject, job=subject.job.model_copy(update={"status": ended}))
    plan = book(following, placement, message if is_by_choice else "", subject.children.own)
    foreign = deletions(attempt.replaced)
    named = {each.name for each in foreign}
    ending = remains(subject, subject.attempt, ended=subject.now, reason=reason)
    left = (each for each in ending.actions if each.name not in named)
    service = Delete("Service", service_name(subject.job.metadata.name, subject.attempt))
    return replace(
        plan,
        is_by_choice=True,
        opening=(),
        actions=(*foreign, *left, service),
        notice=subject.notice(
            reason,
            message,
            action=EventAction.MOVE if reason is EndReason.MOVED else EventAction.RESIZE,
            warning=reason is EndReason.SHRUNK,
        ),
    )


def _gpus(placement: Placement) -> int:
    return sum(len(share.gpus) for share in placement.shares)


def _minutes() -> str:
    return count(int(GROWS_AFTER.total_seconds()) // 60, "minute")


def _named(by: JobKey, subject: Subject) -> str:
    """A job, for readers of this one, who learn no names of other namespaces."""
    return str(by) if by.namespace == subject.job.key.namespace else "a job of another namespace"
