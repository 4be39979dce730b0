"""The wait of a job for the level that it prefers, though it would fit elsewhere, and the room that is kept for it.

One that prefers none is kept in one machine where that has room for it: for a while it waits for one.

The reservation of a job that is patient once it fits at all is the first room at its level before its patience is
over: who passes leaves it that. Where there is none, it is the first room at any level, dated at the end of the
patience: that room stays the job's until then, idle, if this is an hour at most. Where it is more, nothing is kept. Nor
is anything for a gang that gives way.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from closeknit.api.names import HOST_LEVEL
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.preference import patient_until
from closeknit.lifecycle.verdict import Refusal, Reservation, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.refusals.ideal import could_place, ideal_gb_s
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.reservation.backfill import ReservedRoom
from closeknit.scheduling.reservation.expected_ends import ExpectedEnd, run_time
from closeknit.scheduling.reservation.reserve import minute_after

_LITTLE = 0.1  # of the bandwidth in one machine
# What has come free stands idle while its job is patient, and nobody behind it gets a reservation: twice the patience
# for one machine, which is half an hour.
PATIENT_AT_MOST = timedelta(hours=1)


def patient(asked: Request, cluster: Cluster, tables: Tables) -> Request | None:
    """The request of a job while it is patient: its preferred level as if required; None where that is the same
    request, where it would not fit even in the empty cluster, or where tearing a job without a preference costs little.

    One that is too large for any domain of the level that it prefers asks for the next one outwards that could hold it.
    It `gives_way`: it is to wait so only while many others do.
    """
    if asked.mig is not None:  # one device is in one domain of every level
        return None
    preferred, required, levels = asked.preferred_level or HOST_LEVEL, asked.required_level, cluster.levels
    if preferred not in levels or (required is not None and required not in levels):
        return None
    if required is not None and levels.index(required) >= levels.index(preferred):
        return None
    waiting = replace(asked, patient_level=preferred)
    if asked.preferred_level is None:
        worth_it = could_place(cluster, waiting, tables) and _is_torn_at_a_loss(asked, cluster, tables)
        return waiting if worth_it else None
    outmost = levels.index(required) + 1 if required is not None else 0
    outwards = reversed(levels[outmost : levels.index(preferred) + 1])
    each = (replace(asked, patient_level=level) for level in outwards)
    return next((waiting for waiting in each if could_place(cluster, waiting, tables)), None)


def _is_torn_at_a_loss(asked: Request, cluster: Cluster, tables: Tables) -> bool:
    """Whether a gang that fits into one machine is predicted to lose more than a little over several.

    Both are of an empty cluster, so that the answer does not depend on what is free this second. The even halves, or
    for an odd number the even parts, are what a torn gang can do best. Where nothing is predicted for one machine
    the gain of a wait is unknown; where nothing is predicted between machines, that network is not described.
    """
    whole = ideal_gb_s(cluster, replace(asked, gpus_per_node=asked.gpus), tables)
    if whole is None:
        return False
    part = next(each for each in range(asked.gpus // 2, 0, -1) if asked.gpus % each == 0)
    torn = ideal_gb_s(cluster, replace(asked, gpus_per_node=part), tables)
    return torn is None or torn < (1 - _LITTLE) * whole


def asked_again_at(until: datetime | None, away: datetime | None) -> datetime | None:
    """When to ask again for a refused job though nothing has changed: the end of its patience or of an avoided node's
    time, whichever is sooner."""
    return min((moment for moment in (until, away) if moment is not None), default=None)


class Patience:
    """Requests of patient jobs, found once for each request of a walk."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._known: dict[Request, Request] = {}

    def asked(self, asked: Request, cluster: Cluster, take: Callable[[], bool]) -> Request | None:
        """The job's request while it is patient; None where that is unknown and `take` says no."""
        known = self._known.get(asked)
        if known is None:
            if not take():
                return None
            known = self._known[asked] = patient(asked, cluster, self._tables) or asked
        return known


def is_patient(refusal: Refusal) -> bool:
    """Whether a job would fit, and waits for the level that it prefers."""
    return refusal.cause is WaitCause.NO_FIT and refusal.ends


def fits_at_any_level(request: Request, cluster: Cluster, tables: Tables) -> bool:
    """Whether a patient gang fits by now, at another level than it prefers."""
    return can_place(cluster, replace(request, patient_level=None), tables)


class PatientWait(NamedTuple):
    """What a job asks for while it is patient, and until when it is."""

    asked: Request
    until: datetime

    def ends_before(self, ends: Sequence[ExpectedEnd]) -> tuple[ExpectedEnd, ...]:
        """Those after which it starts sooner at its level than without it once its patience is over."""
        return tuple(end for end in ends if minute_after(end.at) < self.until)


def patient_wait(
    job: TrainingJob, asked: Request, cluster: Cluster, tables: Tables, at: datetime
) -> PatientWait | None:
    """What a job that fits from that moment on at some level waits for then; None where it does not wait.

    One without levels waits for one machine once it could be torn: until then it asks for no level.
    """
    until, waiting = patient_until(job, at), asked if asked.patient_level is not None else None
    if until is None:
        return None
    if waiting is None and job.spec.topology.fabric.preferred is None:
        waiting = patient(asked, cluster, tables)
    return None if waiting is None else PatientWait(waiting, until)


def at_level(room: ReservedRoom, wait: PatientWait, tables: Tables) -> ReservedRoom | None:
    """The room of a patient job at the same moment, at the level that it waits for; None where it does not fit so."""
    there = place(room.future, wait.asked, tables) if can_place(room.future, wait.asked, tables) else None
    if not isinstance(there, Placement):
        return None
    return room.moved(replace(room.reservation, placement=there, patient_level=wait.asked.patient_level))


def torn_room(job: TrainingJob, room: ReservedRoom, wait: PatientWait, at: datetime) -> ReservedRoom | None:
    """The room of a patient job at another level, free from `at` on, which it takes once its patience is over; None
    where that is long after, if all end as they declare."""
    kept, over, has_begun = room.reservation, minute_after(wait.until), _has_begun(job)
    free_at = kept.soonest if has_begun and kept.soonest is not None else at
    if wait.until - free_at > PATIENT_AT_MOST:
        return None
    return room.moved(replace(kept, at=over, soonest=over if has_begun else kept.soonest))


def _has_begun(job: TrainingJob) -> bool:
    """Whether a job's patience ends at a fixed moment: that for one machine begins once the job could be torn."""
    return job.spec.topology.fabric.preferred is not None or job.status.patient_until is not None


def told_sooner(job: TrainingJob, wait: PatientWait, at: datetime) -> timedelta | None:
    """How long after its torn room is free, which is at that moment, a job starts, if it was told to start sooner than
    that gives; None otherwise."""
    pending = job.status.pending
    if _has_begun(job) or pending is None or pending.estimated_start is None:
        return None
    return wait.until - at if moment(pending.estimated_start) < minute_after(wait.until) else None


def free_room(
    job: TrainingJob, alone: Cluster, wait: PatientWait, tables: Tables, now: datetime
) -> ReservedRoom | None:
    """The same of a job that fits by now, into `alone`: others pass that end before its patience is over."""
    there = place(alone, replace(wait.asked, patient_level=None), tables)
    # To the minute, as the room was dated before it came free.
    if wait.until - minute_after(now) > PATIENT_AT_MOST or not isinstance(there, Placement):
        return None
    over = minute_after(wait.until)
    return ReservedRoom(Reservation(job.key, over, over, there, ()), wait.asked, alone)


class PatientAhead(NamedTuple):
    """A job for which nothing is kept: it stands in the queue before others for which room is, and is patient."""

    job: TrainingJob
    wait: PatientWait
    then: Cluster
    """Where it fits, once its patience is over."""

    @property
    def over(self) -> datetime:
        """When it is over, by what it declares."""
        lasts = run_time(self.job.spec)
        return datetime.max.replace(tzinfo=UTC) if lasts is None else self.wait.until + lasts

    def gets_room_beside(self, room: ReservedRoom, tables: Tables) -> bool:
        """Whether it starts then though this is kept for another: it ends before, or fits beside."""
        return room.ends_before(self.job.spec, None, self.wait.until) or fits_at_any_level(
            self.wait.asked, self.then.without(room.devices), tables
        )


def sooner(one: ReservedRoom | None, other: ReservedRoom | None) -> ReservedRoom | None:
    """The room that is free sooner; the one where both are at the same moment, or where nothing says when."""
    moments = [None if room is None else room.reservation.at for room in (one, other)]
    if one is None or (moments[0] is not None and moments[1] is not None and moments[1] < moments[0]):
        return other
    return one
