"""The wait of a job for the level that it prefers, though it would fit elsewhere, and the room that is kept for it.

One that prefers none is kept in one machine where that has room for it: for a while it waits for one.

The reservation of a patient job is at its level where the first room that it fits has that: who passes leaves it that.
Where the first room is at another level, the reservation is dated at the end of the patience. Once it is free that room
stays the job's until then, idle, if this is an hour at most; it is given up otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from closeknit.api.names import HOST_LEVEL
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.preference import patient_until
from closeknit.lifecycle.verdict import Refusal, Reservation, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.refusals.ideal import could_place, ideal_gb_s
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.reservation.earliest import EarliestFit
from closeknit.scheduling.reservation.expected_ends import ExpectedEnd
from closeknit.scheduling.reservation.reserve import minute_after, reservation_of

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


def kept_while_patient(
    job: TrainingJob, request: Request, alone: Cluster, tables: Tables, now: datetime
) -> EarliestFit | None:
    """Where a job that fits into `alone` goes once its patience is over, if room was kept for it before that came free,
    and it is over soon. One that gives way has none: it waits for those behind it, and they would wait for its room."""
    until, pending = patient_until(job, now), job.status.pending
    if pending is None or pending.reserved_since is None or request.gives_way:
        return None
    if until is None or until - now > PATIENT_AT_MOST:
        return None
    there = place(alone, replace(request, patient_level=None), tables)
    return EarliestFit((), there, alone, alone, (), until) if isinstance(there, Placement) else None


def reservation_of_patient(
    job: TrainingJob,
    asked: Request,
    cluster: Cluster,
    ends: Sequence[ExpectedEnd],
    found: EarliestFit,
    tables: Tables,
) -> Reservation:
    """The reservation of a job that fits once some in `cluster` have ended. One that is still patient at that moment
    gets the level that it prefers, or else waits there until its patience is over."""
    kept = reservation_of(job, cluster, ends, found)
    if kept.at is None or found.patient_until is not None:  # that is the end of its patience
        return kept
    until, request = patient_until(job, kept.at), _while_patient(job, asked, cluster, tables)
    if until is None or request is None:
        return kept
    there = place(found.cluster, request, tables) if can_place(found.cluster, request, tables) else None
    if not isinstance(there, Placement):
        # One that waits for one machine is told the sooner moment: a machine may come free within its half hour.
        return kept if asked.patient_level is None else replace(kept, at=minute_after(until))
    kept = reservation_of(job, cluster, ends, replace(found, placement=there))
    return replace(kept, patient_level=request.patient_level)


def _while_patient(job: TrainingJob, asked: Request, cluster: Cluster, tables: Tables) -> Request | None:
    """What a job asks while it is patient; None where it does not wait. One that waits for one machine asks so only
    once it could be torn."""
    if asked.patient_level is not None:
        return asked
    return None if job.spec.topology.fabric.preferred is not None else patient(asked, cluster, tables)
