"""Room of a job that would fit, and waits with `fabric.patience` for the level that it prefers.

Its reservation is at that level where it has that while it is patient: who passes leaves it that. Where the room that
comes free first is at another level, it is dated at the end of the patience. That room stays the job's until then, and
no longer than an hour: meanwhile it stands idle.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.preference import patient_until
from closeknit.lifecycle.verdict import Refusal, Reservation, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.reservation.earliest import EarliestFit
from closeknit.scheduling.reservation.expected_ends import ExpectedEnd
from closeknit.scheduling.reservation.reserve import minute_after, reservation_of

# What has come free stands idle while its job is patient, and nobody behind it gets a reservation: twice the patience
# for one machine, which is half an hour.
PATIENT_AT_MOST = timedelta(hours=1)


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
    request: Request,
    cluster: Cluster,
    ends: Sequence[ExpectedEnd],
    found: EarliestFit,
    tables: Tables,
) -> Reservation:
    """The reservation of a job that fits once some in `cluster` have ended. One that is still patient at that moment
    gets the level that it prefers, or else waits there until its patience is over."""
    kept = reservation_of(job, cluster, ends, found)
    level, until = request.patient_level, None if kept.at is None else patient_until(job, kept.at)
    if level is None or until is None:
        return kept
    there = place(found.cluster, request, tables) if can_place(found.cluster, request, tables) else None
    if not isinstance(there, Placement):
        return replace(kept, at=minute_after(until))
    return replace(reservation_of(job, cluster, ends, replace(found, placement=there)), patient_level=level)
