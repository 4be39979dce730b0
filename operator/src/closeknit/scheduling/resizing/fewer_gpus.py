"""An elastic job that has waited for all of its GPUs starts with fewer.

It gets the largest size that fits and keeps its groups whole; elastic/fewer_from.py says from when on. One for which a
quota of its namespace has too little left is not tried with all again while a size that the quota leaves has room.
"""

from dataclasses import replace
from datetime import datetime

from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.verdict import Book, Wait, WaitCause
from closeknit.lifecycle.writes.quota_shortfall import QuotaRoom
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.elastic.fewer_from import all_come_soon, fewer_from
from closeknit.scheduling.elastic.sizes import fewer, largest_within
from closeknit.scheduling.policy.admit import cannot_be_made
from closeknit.scheduling.policy.policy_context import Policy, Walk
from closeknit.scheduling.policy.probation import put_off
from closeknit.scheduling.preemption.trial_placement import alone, passing, placed
from closeknit.scheduling.queue.entries import Case, Outcome, RequestShape
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.reserve import waits_for_room_or_turn


def or_with_fewer(policy: Policy) -> Policy:
    """The policy, after which an elastic job that it lets wait for room may start with fewer GPUs, and before which one
    that is too large for a quota may."""

    def decided(case: Case, room: Room, walk: Walk) -> Outcome | None:
        if (within := _within_quota(case, room, walk)) is not None:
            return within
        outcome = policy(case, room, walk)
        return outcome if outcome is None else _with_fewer(case, room, walk, outcome)

    return decided


def _within_quota(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """What it gets of that which a quota leaves; None where it is not known to leave too little, or that has no room
    now."""
    quota = case.answers.quota_room(case.job)
    if quota is None:
        return None
    sizes, ready = fewer(case.job.spec, case.job.spec.gpus), fewer_from(case.job, case.workload, walk.now)
    if not sizes or ready is None or walk.now < ready:
        return None
    if walk.probation.refusal(case.job, case.answers, is_trial=True) is not None:
        return None  # nothing is tried now
    shape = walk.questions.shape(walk.questions.request(case))
    if not walk.questions.take_more(case.place):
        return walk.questions.not_asked(shape)
    found = _largest(case, room, walk, sizes, quota)
    return None if found is None else _started(case, room, walk, found, shape, until=None)


def _with_fewer(case: Case, room: Room, walk: Walk, outcome: Outcome) -> Outcome:
    """The outcome with fewer GPUs; the same one where there is none."""
    job = case.job
    sizes = fewer(job.spec, job.spec.gpus)
    if not sizes or outcome.shape is None or not isinstance(outcome.verdict, Wait):
        return outcome
    if not waits_for_room_or_turn(outcome.verdict.refusal):
        return outcome
    ready = fewer_from(job, case.workload, walk.now)
    if ready is None:  # it is told first that it waits, and for what
        return outcome
    if walk.now < ready:
        outcome.until = min(ready, outcome.until or ready)
        return outcome
    is_trial = walk.probation.may_be_refused(job, case.answers)
    if (barred := walk.probation.refusal(job, case.answers, is_trial=is_trial)) is not None:
        put_off(outcome, job, barred)
        return outcome
    if all_come_soon(job, walk.reserving.current, walk.now) or not walk.questions.take_more(case.place):
        outcome.is_settled = False
        return outcome
    quota = case.answers.quota_room(job)
    found = None if quota is None else _largest(case, room, walk, sizes, quota)
    found = found or _largest(case, room, walk, sizes)  # the quotas may leave more by now
    if found is not None:
        return _started(case, room, walk, found, outcome.shape, outcome.until)
    is_of_shape = (
        outcome.shape.request == _asked(case, room, walk) and outcome.verdict.refusal.cause is WaitCause.NO_FIT
    )
    if not is_of_shape or room.cluster is not walk.cluster:
        outcome.is_settled = False  # it rests on more than the refusal of its shape, or on what may not be stored
    return outcome


def _asked(case: Case, room: Room, walk: Walk) -> Request:
    away = avoided_nodes(case.job, room.cluster, walk.now)
    return replace(walk.questions.request(case), avoided=away.nodes)


def _started(
    case: Case, room: Room, walk: Walk, found: Placement, shape: RequestShape, until: datetime | None
) -> Outcome:
    """What it gets now, or why that cannot be made."""
    job = case.job
    walk.reserving.withdraw(case.key)
    if (cannot := cannot_be_made(case, found, shape, until, room)) is not None:
        return cannot
    walk.reserving.note(job, found)
    is_trial = walk.probation.may_be_refused(job, case.answers)
    booked = room.less(room.cluster.with_job(assumed(job, found)), is_trial=is_trial)
    return Outcome(Book(found), shape, is_settled=False, room=booked)


def _largest(case: Case, room: Room, walk: Walk, sizes: range, quota: QuotaRoom | None = None) -> Placement | None:
    """Where it would go with the largest of these sizes that fits, into what its `quota` leaves, too, and delays no job
    before it; None without any.

    The largest that fits ends first, so that none ends before the room that is kept is needed if that one does not. A
    smaller one may still leave that room."""
    asked, there = _asked(case, room, walk), alone(case, room.cluster, walk)

    def place(gpus: int) -> Placement | None:
        return placed(case, replace(asked, gpus=gpus), there, walk)

    found = largest_within(quota, sizes, asked, place, there)
    if found is None or walk.reserving.makes_room_for(case.job, found):
        return found

    def passed(gpus: int) -> Placement | None:
        return passing(case, replace(asked, gpus=gpus), place(gpus), there, walk)

    return largest_within(quota, sizes, asked, passed, there)
