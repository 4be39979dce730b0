"""Jobs that hold GPUs and allow to be moved while they run, kept from one decision to the next."""

from collections.abc import Mapping
from typing import NamedTuple

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import Defragment
from closeknit.cluster.store.difference import difference


class MovableJobs(NamedTuple):
    """The jobs of one version of the cluster that hold GPUs and allow to be moved, now or later."""

    jobs: Mapping[JobKey, TrainingJob] = {}
    """All that were looked at."""
    keys: frozenset[JobKey] = frozenset()


def movable_jobs(jobs: Mapping[JobKey, TrainingJob], known: MovableJobs) -> MovableJobs:
    """Those among these jobs; `known` are those of an earlier version."""
    if jobs is known.jobs:
        return known
    changed = difference(known.jobs, jobs)
    allowing = {
        key
        for key in changed.stored
        if jobs[key].spec.defragment is Defragment.PLANNED and jobs[key].status.placement is not None
    }
    return MovableJobs(jobs, known.keys.difference(changed.stored, changed.gone) | allowing)
