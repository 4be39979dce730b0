"""Words about a reservation: for the job that it is made for, and for those that it keeps from passing.

Jobs of the reader's own namespace are named, others are counted.
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from closeknit.api.names import JobKey
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.booking.booking import names
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.verdict import Reservation
from closeknit.placement.values.sentences import count, listed

_NAMED = 4  # jobs of the own namespace


def estimated_start(reservation: Reservation) -> str | None:
    """The moment for the status; None where nothing says when."""
    return None if reservation.at is None else timestamp(reservation.at)


def expectation(reservation: Reservation) -> str:
    """When the job of a reservation is expected to start, and what that rests on."""
    room, mine = names([share.node for share in reservation.placement.shares]), reservation.job.namespace
    others = listed(list(_told(reservation.awaits, mine)), "and")
    if reservation.at is None:
        return (
            f"it has waited long, so that {room} {_is(reservation)} kept for it as the GPUs there come free; when "
            f"cannot be said: {others} hold some of them, and not all declare spec.expectedDuration, or end "
            "as they declare"
        )
    words = f"about {_clock(reservation.at)} it is expected to start on {room}, which {_is(reservation)} kept for it"
    if others:
        words += f": then {others} will have ended as declared, or a little later"
    if reservation.late:
        words += f"; {listed(list(_told(reservation.late, mine)), 'and')} ran longer than declared already"
    return words


def behind_reservation(namespace: str, spec: TrainingJobSpec, reservation: Reservation) -> str:
    """Why a job that fits does not start, and what it can do."""
    first = str(reservation.job) if reservation.job.namespace == namespace else "a job ahead of it in the queue"
    if reservation.soonest is None:
        return (
            f"it fits, and would take GPUs that are kept for {first}, which has waited long; it starts on others, or "
            "once that job has started"
        )
    soonest = _clock(reservation.soonest)
    words = f"it fits, and would delay {first}, for which these GPUs are kept: it may start at {soonest}"
    if reservation.late:
        return f"{words}; this job starts on other GPUs, or after it: jobs there run longer than they declared"
    if spec.expected_duration is None:
        return f"{words}; set spec.expectedDuration if this job ends before that, and it may go first"
    return f"{words}, and spec.expectedDuration of this job, {spec.expected_duration}, is longer; else it may go first"


def _told(jobs: Collection[JobKey], namespace: str) -> Iterator[str]:
    own = [str(job) for job in jobs if job.namespace == namespace]
    yield from own[:_NAMED]
    if others := len(jobs) - len(own[:_NAMED]):
        yield count(others, "other job" if own else "job")


def _is(reservation: Reservation) -> str:
    return "is" if len(reservation.placement.shares) == 1 else "are"


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
