"""What a job's Pods need of a node beyond its template, because admission adds it: a LimitRange's CPUs, for example.

Only the Pods that were made tell it, and admission may be another one by now. So it counts for a while after an
attempt that could not start: where others are to go for the job with each such attempt longer, in free room for an hour
at most.
"""

from collections import Counter
from datetime import datetime, timedelta

from closeknit.api.names import Role
from closeknit.cluster.objects.pod_requests import CPU, MEMORY, Needs
from closeknit.lifecycle.status.pauses import failed_starts
from closeknit.scheduling.queue.entries import Case

# A LimitRange may have been lowered. A try in free room ends nobody, and holds that for half a minute.
IN_FREE_ROOM_FOR = timedelta(hours=1)


def with_admitted(needs: Needs, case: Case, now: datetime) -> Needs:
    """The needs of a worker as admission made the last one."""
    more = case.answers.admitted_more(Role.WORKER, case.job.metadata.generation, now)
    if not more:
        return needs
    all_of_it = Counter(dict(needs))
    all_of_it.update({name: more.get(name, 0) for name in (CPU, MEMORY)})
    return tuple(sorted((+all_of_it).items()))


def counts_until(case: Case, now: datetime, *, in_free_room: bool = True) -> datetime | None:
    """So long what admission added counts; None where it does not."""
    failed, admitted = failed_starts(case.job.status, now), case.answers.admitted
    more = case.answers.admitted_more(Role.WORKER, case.job.metadata.generation, now)
    if failed is None or admitted is None or not more:
        return None
    until = min(failed.until, failed.last + IN_FREE_ROOM_FOR) if in_free_room else failed.until
    return min(until, admitted.until) if now < until else None
