"""When running jobs are expected to end: by what they declare, by their deadline, or because they are over.

A job that runs longer than it declared is expected to end a little later: by an eighth of what it declared, one minute
at least, and then by twice as much each time that it is still there. So a small mistake costs little, a declaration
that is wrong by a factor of 100 is corrected ten times, and no end is ever in the past. (D. Tsafrir, Y. Etsion,
D. Feitelson, "Backfilling using system-generated predictions rather than user runtime estimates", IEEE TPDS 18, 2007,
extend predictions in growing steps, too.)
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from closeknit.api.names import ConditionType, JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.own_pods import children
from closeknit.lifecycle.status.conditions import found, moment
from closeknit.lifecycle.status.pauses import LINGERS_AFTER
from closeknit.lifecycle.status.statuses import is_finished

SHORTEST = timedelta(minutes=1)
"""Of what a declaration counts for: no step is shorter, so that decisions and statuses follow at a bounded rate."""
_STEPS = 8  # of what was declared, so that who is late by 20 % is corrected twice at most
# The grace period of a Pod that names none (terminationGracePeriodSeconds of Kubernetes).
_GRACE = timedelta(seconds=30)
_LONGEST_S = 100 * 365 * 86_400  # a duration may be written with any number of hours, and the calendar ends


class ExpectedEnd(NamedTuple):
    """When a job is expected to leave its GPUs. Sorts by that."""

    at: datetime
    """Never in the past."""
    job: JobKey
    is_late: bool = False
    """Whether it runs longer than it declared."""


def run_time(spec: TrainingJobSpec) -> timedelta | None:
    """How long a job that starts now runs at most by its own word, or by its deadline; None where it says neither."""
    declared, deadline_s = spec.expected_duration, spec.active_deadline_seconds
    said = [max(_length(declared), SHORTEST)] if declared is not None else []
    said += [timedelta(seconds=deadline_s)] if deadline_s is not None else []
    return min(said, default=None)


def expected_end(job: TrainingJob, now: datetime) -> ExpectedEnd | None:
    """When a job that holds GPUs is expected to end; None where nothing says so.

    What it trained before a restart counts: it goes on from its last checkpoint. A deadline ends it by force, so that
    nobody is late by it.
    """
    spec, status = job.spec, job.status
    at, is_late = None, False
    if spec.expected_duration is not None:
        declared = max(_length(spec.expected_duration), SHORTEST)
        trained = timedelta(seconds=status.cost.trained_seconds if status.cost is not None else 0)
        at = begun(job, now) + max(declared - trained, timedelta())
        is_late = at <= now
        if is_late:
            at = _extended(at, max(declared / _STEPS, SHORTEST), now)
    if spec.active_deadline_seconds is not None:
        since = moment(status.start_time) if status.start_time is not None else _whole(now)
        due = since + timedelta(seconds=spec.active_deadline_seconds)
        if due > now and (at is None or due < at):
            return ExpectedEnd(due, job.key)
    return None if at is None else ExpectedEnd(at, job.key, is_late)


def begun(job: TrainingJob, now: datetime) -> datetime:
    """Since when a job that holds GPUs has them, or since its last end where it started again on them; now for one that
    gets them in this decision."""
    status = job.status
    placed = found(status.conditions, ConditionType.PLACED)
    booked = status.start_time if placed is None or placed.status != "True" else placed.last_transition_time
    since = [moment(booked)] if booked is not None else []
    since += [moment(each.ended) for each in status.attempts[-1:]]
    return min(max(since, default=_whole(now)), _whole(now))


def expected_ends(cluster: Cluster, now: datetime) -> tuple[ExpectedEnd, ...]:
    """Of all jobs that hold GPUs and say how long, and of those whose Pods are going; soonest first."""
    return tuple(sorted((*_declared(cluster, now), *_leaving(cluster, now))))


def silent_jobs(cluster: Cluster, now: datetime, known: tuple[ExpectedEnd, ...]) -> tuple[JobKey, ...]:
    """Jobs that hold GPUs and do not say how long, those that began first at the front."""
    ending = {end.job for end in known}
    silent = [
        (begun(job, now), key)
        for key, job in cluster.jobs.items()
        if key not in ending and cluster.booking_of(key) is not None
    ]
    return tuple(key for _, key in sorted(silent))


def _declared(cluster: Cluster, now: datetime) -> Iterator[ExpectedEnd]:
    for key, job in cluster.jobs.items():
        if job.status.placement is None or cluster.booking_of(key) is None or _is_leaving(job):
            continue
        if (end := expected_end(job, now)) is not None:
            yield end


def _leaving(cluster: Cluster, now: datetime) -> Iterator[ExpectedEnd]:
    """Jobs that are over, suspended or being deleted, and whose Pods still hold something. One that waits again may
    get its own GPUs back, and one whose Pods stay longer than they may is stuck: nothing tells when either leaves."""
    for key, pods in cluster.pods_by_job.items():
        job = cluster.jobs.get(key)
        if job is None or not _is_leaving(job) or not any(pod.is_live for pod in pods):
            continue
        told = (job.metadata.deletion_timestamp, *(pod.deletion_timestamp for pod in children(job, cluster).live))
        going = [moment(each) for each in told if each is not None]
        going += [moment(each.ended) + _GRACE for each in job.status.attempts[-1:]]
        if going and (at := max(going) + LINGERS_AFTER) > now:
            yield ExpectedEnd(at, key)


def _is_leaving(job: TrainingJob) -> bool:
    return is_finished(job) or job.spec.suspend or job.metadata.deletion_timestamp is not None


def _extended(at: datetime, step: timedelta, now: datetime) -> datetime:
    """The first moment after now of those that lie one step, two, four and so on behind `at`."""
    while at + step <= now:
        step *= 2
    return at + step


def _length(declared: str) -> timedelta:
    return timedelta(seconds=min(duration_s(declared), _LONGEST_S))


def _whole(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(microsecond=0)
