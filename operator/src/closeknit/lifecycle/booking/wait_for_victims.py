"""The wait of a preemptor, which has its nodes booked, for the Pods of the jobs that make room for it."""

from collections.abc import Sequence

from closeknit.cluster.booking.booking import AwaitedAttempt
from closeknit.lifecycle.attempt.subject import Subject, seconds_until
from closeknit.lifecycle.booking.book_gang import reserve
from closeknit.lifecycle.booking.booking_words import reason_of
from closeknit.lifecycle.status.conditions import stated
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.transitions import waits
from closeknit.lifecycle.writes.answers import TOLD_AGAIN
from closeknit.lifecycle.writes.plan import Plan
from closeknit.placement.values.placement import Placement


def wait_for_victims(
    subject: Subject, awaited: Sequence[AwaitedAttempt], message: str, placement: Placement | None
) -> Plan:
    """The booking of what it is to have, once; then the words about what it waits for, at most once a minute."""
    if placement is not None:
        return reserve(subject, placement, awaited, message)
    told, told_at, now = subject.job.status.pending, subject.answers.told_at, subject.now
    reason = reason_of(awaited)
    is_told = told is not None and told.reason == reason
    if is_told and told is not None and told.message == stated(message):
        return subject.nothing()
    if is_told and told_at is not None and is_between(told_at, now, told_at + TOLD_AGAIN):
        return subject.plan(wake_after_s=seconds_until(told_at + TOLD_AGAIN, now))
    return subject.plan(waits.awaiting(subject.job, now, None, reason, message))
