"""Bounded memory for the templates of one namespace's waiting jobs, so that no tenant takes all of it.

A tenant needs no GPU and no quota to let thousands of TrainingJobs wait, each with a template of up to 256 KiB.
Templates that fit are kept in the order of the queue; the others stay only at the API server until their turn comes. A
finished job, or a suspended one that holds nothing, needs none.
"""

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.job import weight_bytes
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.difference import difference
from closeknit.lifecycle.status.stored_job import is_finished
from closeknit.scheduling.queue.entries import (
    NOTHING_WAITS,
    Schedule,
    TemplateMemory,
    Weighed,
    is_same_order,
    queue_place,
)

# 128 of the largest templates that no compression makes smaller, or 10,000 of usual ones; a sixteenth of the memory
# that the chart gives the operator.
TEMPLATE_BYTES = 32 << 20
_MIB = 1 << 20


def is_waiting(job: TrainingJob) -> bool:
    """Whether it holds nothing, and may be given something."""
    return (
        job.status.placement is None
        and not job.spec.suspend
        and job.metadata.deletion_timestamp is None
        and not is_finished(job)
    )


def needs_templates(job: TrainingJob) -> bool:
    """Whether its templates may have to be read in its present state."""
    return is_waiting(job) or (job.status.placement is not None and not is_finished(job))


def template_memory(cluster: Cluster, made: Schedule) -> TemplateMemory:
    """The jobs whose templates fit. Unchanged parts of the decision `made` before cost little."""
    last = made.templates if is_same_order(cluster, made.cluster) else NOTHING_WAITS
    if cluster.jobs is last.jobs:
        return last
    weighed, sums = dict(last.weighed), Counter(last.sums)
    touched: set[str] = set()
    changed = difference(last.jobs, cluster.jobs)
    for key in changed.gone:
        sums[key.namespace] -= weighed.pop(key).weight_bytes
        touched.add(key.namespace)
    for key in changed.stored:
        before, now = weighed.get(key), _weighed(cluster, cluster.jobs[key])
        weighed[key] = now
        if before is None or before[1:] != now[1:]:
            sums[key.namespace] += now.weight_bytes - (before.weight_bytes if before is not None else 0)
            touched.add(key.namespace)
    beyond = {key: words for key, words in last.beyond.items() if key.namespace not in touched}
    for namespace in touched:
        if sums[namespace] > TEMPLATE_BYTES:
            waiting = [each for key, each in weighed.items() if key.namespace == namespace and each.weight_bytes]
            beyond |= _beyond(namespace, waiting, sums[namespace])
    return TemplateMemory(last.beyond if beyond == last.beyond else beyond, cluster.jobs, weighed, +sums)


def _weighed(cluster: Cluster, job: TrainingJob) -> Weighed:
    if not is_waiting(job):
        return Weighed(job, 0, None)
    return Weighed(job, weight_bytes(job), queue_place(cluster, job))


def _beyond(namespace: str, waiting: Iterable[Weighed], wanted_bytes: int) -> dict[JobKey, str]:
    """Jobs that do not fit beside the earlier ones in the queue."""
    kept, words = 0, _words(namespace, wanted_bytes)
    found: dict[JobKey, str] = {}
    for each in sorted(waiting, key=attrgetter("place")):
        if kept + each.weight_bytes <= TEMPLATE_BYTES:
            kept += each.weight_bytes
        else:
            found[each.job.key] = words
    return found


def _words(namespace: str, wanted_bytes: int) -> str:
    return (
        f"the Pod templates of the jobs of namespace {namespace} that wait take {-(-wanted_bytes // _MIB)} MiB of the "
        f"operator's memory, more than the {TEMPLATE_BYTES // _MIB} MiB that one namespace has, and jobs before this "
        "one in the queue take them; it is looked at once enough of them have started or are gone: delete some, or "
        "move what is large in their templates into ConfigMaps"
    )
