"""The message about attempts that could not start, to a job that waits for room."""

from datetime import datetime

from closeknit.api.names import Role
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import names
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.pod_requests import CPU, MEMORY
from closeknit.lifecycle.attempt.avoided_nodes import tried_in_vain
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.status.pauses import failed_starts
from closeknit.lifecycle.writes.answers import Answers
from closeknit.placement.candidates.resource_fit import told
from closeknit.placement.values.sentences import listed


def failed_start_words(job: TrainingJob, cluster: Cluster, answers: Answers, now: datetime) -> tuple[str, ...]:
    """What follows from them, as clauses: what admission added to the last Pod, and nobody makes room for a job
    whose class is above another one."""
    failed = failed_starts(job.status, now)
    if failed is None:
        return ()
    until = timestamp(failed.until)
    more = answers.admitted_more(Role.WORKER, job.metadata.generation, now)
    added = [f"{told(name, more[name])} {name}" for name in (CPU, MEMORY) if more.get(name, 0) > 0]
    words = [f"admission added {listed(added, 'and')} to its last Pod, and may do so again"] if added else []
    if not cluster.may_preempt(job) or cluster.priority(job) <= min(
        (cluster.default_priority, *cluster.priorities.values())
    ):
        return tuple(words)
    vain, barred = tried_in_vain(job, cluster, now), failed.bars_room_until
    if vain:
        words.append(f"nobody makes room for it on {names(sorted(vain))} before {until}: it could not start there")
    if barred is not None and now < barred:
        last = f"its last {len(failed.attempts)} attempts could not start"
        words.append(f"nobody makes room for it before {timestamp(barred)}: {last}")
    return tuple(words)
