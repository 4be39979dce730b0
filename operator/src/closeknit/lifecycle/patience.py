"""How long a job waits for the level that it prefers, though it would fit elsewhere."""

from dataclasses import replace
from datetime import datetime, timedelta

from closeknit.api.names import ConditionType
from closeknit.api.objects import TrainingJob
from closeknit.api.quantity import duration_s
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.conditions import moment
from closeknit.lifecycle.pauses import is_between, over_at
from closeknit.placement.empty import could_place
from closeknit.placement.request import Request
from closeknit.placement.tables import Tables

# The calendar ends in the year 9999, while a duration may be written with any number of hours: no job waits longer.
_LONGEST_S = 100 * 365 * 86_400


def patient_until(job: TrainingJob, now: datetime) -> datetime | None:
    """When its patience is over; None where it has none, or none any more.

    It begins when the job is submitted, and anew when an attempt has ended or the job is no longer suspended.
    """
    patience = timedelta(seconds=min(duration_s(job.spec.topology.fabric.patience), _LONGEST_S))
    created = job.metadata.creation_timestamp
    if not patience or job.spec.topology.fabric.preferred is None or created is None:
        return None
    over = over_at(created, patience, now)
    begun = [moment(attempt.ended) for attempt in job.status.attempts[-1:]]
    begun += [
        moment(condition.last_transition_time)
        for condition in job.status.conditions
        if condition.type == ConditionType.SUSPENDED and condition.status == "False"
    ]
    later = [since + patience for since in begun if is_between(since, now, since + patience)]
    until = max([over, *later])
    return until if now < until else None


def patient(asked: Request, cluster: Cluster, tables: Tables) -> Request | None:
    """What a job asks while it is patient: the preferred level as if it were required; None where that is nothing else,
    or where it would not fit there if the cluster were empty."""
    if asked.mig is not None:  # one device is in one domain of every level
        return None
    preferred, required, levels = asked.preferred_level, asked.required_level, cluster.levels
    if preferred not in levels or (required is not None and required not in levels):
        return None
    if required is not None and levels.index(required) >= levels.index(preferred):
        return None
    waiting = replace(asked, patient_level=preferred)
    return waiting if could_place(cluster, waiting, tables) else None


def asked_again_at(asked: Request, until: datetime | None, away: datetime | None) -> datetime | None:
    """When a refused job is to be asked again though nothing has changed: its patience or an avoided node's time is
    over, whichever is sooner."""
    moments = [moment for moment in (until if asked.patient_level is not None else None, away) if moment is not None]
    return min(moments, default=None)
