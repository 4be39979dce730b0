"""How much memory the templates of one namespace's waiting jobs may take, so that no tenant takes all of it.

Whoever may make TrainingJobs needs no GPU and no quota to have thousands of them wait, each with a template of up to
256 KiB. In the order of the queue those are kept that fit; of the others the API server alone has the template, until
their turn comes. Of a job that is over, or suspended without holding anything, nobody needs it.
"""

from collections import Counter
from collections.abc import Mapping

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.job import is_whole, weight_bytes
from closeknit.lifecycle.bars import is_finished
from closeknit.lifecycle.queue import place_of

# 128 of the largest templates that no compression makes smaller, or 10,000 of usual ones; a sixteenth of the memory
# that the chart gives the operator.
ALLOWANCE_BYTES = 32 << 20
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
    """Whether somebody may have to read its templates as it is now."""
    return is_waiting(job) or (job.status.placement is not None and not is_finished(job))


def beyond(cluster: Cluster) -> Mapping[JobKey, str]:
    """Jobs whose templates do not fit, with what to tell of it."""
    most = Counter[str]()
    for key, job in cluster.jobs.items():
        if is_whole(job) or is_waiting(job):
            most[key.namespace] += weight_bytes(job)
    crowded = {namespace for namespace, weight in most.items() if weight > ALLOWANCE_BYTES}
    if not crowded:
        return {}
    waiting = [job for key, job in cluster.jobs.items() if key.namespace in crowded and is_waiting(job)]
    wanted, kept = Counter[str](), Counter[str]()
    for job in waiting:
        wanted[job.key.namespace] += weight_bytes(job)
    found: dict[JobKey, str] = {}
    for job in sorted(waiting, key=lambda each: place_of(cluster, each)):
        namespace, weight = job.key.namespace, weight_bytes(job)
        if kept[namespace] + weight <= ALLOWANCE_BYTES:
            kept[namespace] += weight
        else:
            found[job.key] = _words(namespace, wanted[namespace])
    return found


def _words(namespace: str, wanted_bytes: int) -> str:
    return (
        f"the Pod templates of the jobs of namespace {namespace} that wait take {-(-wanted_bytes // _MIB)} MiB of the "
        f"operator's memory, more than the {ALLOWANCE_BYTES // _MIB} MiB that one namespace has, and jobs before this "
        "one in the queue take them; it is looked at once enough of them have started or are gone: delete some, or "
        "move what is large in their templates into ConfigMaps"
    )
