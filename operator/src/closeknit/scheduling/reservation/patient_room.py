"""Room of a job that would fit, and waits with `fabric.patience` for the level that it prefers.

Its reservation is dated at the end of its patience, where the room that comes free is at another level. That room stays
its own until then, and no longer than an hour: meanwhile it stands idle.
"""

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
from closeknit.scheduling.reservation.reserve import minute_after

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


def dated_by_patience(
    kept: Reservation, job: TrainingJob, request: Request, then: Cluster, tables: Tables
) -> Reservation:
    """The reservation of a job that waits there for the level that it prefers, until its patience is over. `then`: the
    cluster as it is at the moment of the reservation."""
    if request.patient_level is None or kept.at is None:
        return kept
    until = patient_until(job, kept.at)
    if until is None or can_place(then, request, tables):
        return kept
    return replace(kept, at=minute_after(until))
