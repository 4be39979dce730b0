"""The message about attempts that could not start, to a job that waits for room."""

from datetime import datetime

from closeknit.api.names import Role
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.pod_requests import CPU, MEMORY
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.status.pauses import failed_starts
from closeknit.lifecycle.writes.answers import Answers
from closeknit.placement.candidates.resource_fit import told
from closeknit.placement.values.sentences import listed


def failed_start_words(job: TrainingJob, cluster: Cluster, answers: Answers, now: datetime) -> tuple[str, ...]:
    """What follows from them, as clauses: what admission added to the last Pod counts, and nobody makes room for a job
    whose class is above another one."""
    failed = failed_starts(job.status, now)
    if failed is None:
        return ()
    more = answers.admitted_more(Role.WORKER, job.metadata.generation, now)
    added = [f"{told(name, more[name])} {name}" for name in (CPU, MEMORY) if more.get(name, 0) > 0]
    words = (f"admission added {listed(added, 'and')} to its last Pod, which counts, too",) if added else ()
    if not failed.bars_room or not cluster.may_preempt(job):
        return words
    if cluster.priority(job) <= min((cluster.default_priority, *cluster.priorities.values())):
        return words
    last = "last attempt" if failed.number == 1 else f"last {failed.number} attempts"
    return (*words, f"nobody makes room for it before {timestamp(failed.until)}, since its {last} could not start")
