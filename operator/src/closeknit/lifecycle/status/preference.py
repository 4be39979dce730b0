"""The level that a job prefers, and until when it waits for it."""

from datetime import datetime, timedelta
from typing import NamedTuple

from closeknit.api.names import HOST_LEVEL
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob import NvlinkPolicy, TrainingJobSpec
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pauses import is_between, over_at
from closeknit.placement.values.sentences import listed

# The calendar ends in the year 9999, while a duration may be written with any number of hours: no job waits longer.
_LONGEST_S = 100 * 365 * 86_400


FOR_ONE_MACHINE = timedelta(minutes=30)  # by a simulation: docs/decisions/0004-place.md


_LARGEST_MACHINE = 64  # GPUs, as spec.topology.gpusPerNode is bounded


class Preference(NamedTuple):
    """A level that a job waits for, though it would fit elsewhere, and how long at most."""

    level: str
    patience: timedelta


def preference(spec: TrainingJobSpec) -> Preference | None:
    """The job's preference, or one machine for a job without levels or groups; None where it does not wait.

    Groups keep to an island already, and so does a number of GPUs on every node.
    """
    topology, axes = spec.topology, spec.parallelism
    if topology.fabric.preferred is not None:
        patience = timedelta(seconds=min(duration_s(topology.fabric.patience), _LONGEST_S))
        return Preference(topology.fabric.preferred, patience) if patience else None
    has_groups = axes.tensor > 1 or axes.context > 1 or axes.expert > 1
    if has_groups or topology.gpus_per_node is not None or topology.nvlink is NvlinkPolicy.IGNORED:
        return None
    return Preference(HOST_LEVEL, FOR_ONE_MACHINE) if 1 < spec.gpus <= _LARGEST_MACHINE else None


def unknown_preference(spec: TrainingJobSpec, cluster: Cluster) -> str | None:
    """The message about a preferred level that the cluster does not have, which blocks nothing; None where it has the
    level."""
    level, levels = spec.topology.fabric.preferred, cluster.levels
    if level is None or level in levels:
        return None
    return (
        f"prefers level {level}, and is placed without it: this cluster has {listed(levels, 'and')}; name one of these "
        "in topology.fabric.preferred, or have an administrator describe the level in ClusterTopology default"
    )


def patient_until(job: TrainingJob, now: datetime) -> datetime | None:
    """The end of its patience; None where it has none, or no longer.

    Once it was told, that moment stands until the job runs (status.patientUntil): it moves neither where others take
    the room meanwhile, nor with an attempt that ends before the gang has run.

    Before it was told, patience for the level that a job prefers begins when it is submitted, when an attempt has ended
    and when the job is no longer suspended. That for one machine begins when the job could be torn: a job that waited
    all day is not to be torn by the first GPUs that come free one by one.
    """
    preferred, created = preference(job.spec), job.metadata.creation_timestamp
    if preferred is None or created is None:
        return None
    patience, told = preferred.patience, job.status.patient_until
    is_named = job.spec.topology.fabric.preferred is not None
    # Of a job that was never booked the patience may be edited, and the status tells when it began.
    if told is not None and (job.status.attempts or not is_named):
        until = moment(told)
        return until if timedelta() < until - now <= patience else None
    if not is_named:
        return now + patience
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
