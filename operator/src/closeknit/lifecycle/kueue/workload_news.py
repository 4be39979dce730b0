"""The Workloads of jobs in Kueue's LocalQueues: those to make, to delete, and to tell what became of their job.

It follows Kueue's contract for those who integrate a kind of job (keps/369-job-interface, pkg/controller/jobframework
of v0.19.0): a Workload that is evicted keeps its quota until its job holds nothing, and then loses the reservation,
with the condition Requeued.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from closeknit.api.names import QUEUE_LABEL
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.cluster.booking.job import is_whole
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.kueue.pod_sets import digest, pod_sets
from closeknit.cluster.kueue.workload import KueueCondition, Workload
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.kueue.workload_conditions import conditions, holds
from closeknit.lifecycle.kueue.workload_manifest import queue_priority, queueing, reference, workload_manifest
from closeknit.lifecycle.status.stored_job import is_finished


class WorkloadPatch(NamedTuple):
    """A change of one Workload, of this very version of it."""

    workload: Workload
    operations: tuple[dict[str, Any], ...]
    of_status: bool


class WorkloadNews(NamedTuple):
    """What to write now."""

    missing: tuple[Manifest, ...] = ()
    gone: tuple[Workload, ...] = ()
    changed: tuple[WorkloadPatch, ...] = ()


def workload_news(cluster: Cluster, now: datetime) -> WorkloadNews:
    """The Workloads to make, to delete and to change, by job; nothing where Kueue is not served."""
    if not cluster.kueue.is_served:
        return WorkloadNews()
    missing: list[Manifest] = []
    gone: list[Workload] = []
    changed: list[WorkloadPatch] = []
    for job in _queued(cluster):
        there = cluster.kueue.workload_of(job)
        if there is None:
            if (made := _missing(job, cluster)) is not None:
                missing.append(made)
        elif not there.is_going:
            if _must_go(job, there, cluster):
                gone.append(there)
            elif (patch := _changed(job, there, cluster, now)) is not None:
                changed.append(patch)
    return WorkloadNews(tuple(missing), tuple(gone), tuple(changed))


def _queued(cluster: Cluster) -> Iterator[TrainingJob]:
    """Jobs that Kueue is to know of, or knows of."""
    owners = cluster.kueue.jobs
    for key in sorted(cluster.jobs):
        job = cluster.jobs[key]
        is_queued = QUEUE_LABEL in job.metadata.labels or key in owners
        if is_queued and job.metadata.uid and job.metadata.deletion_timestamp is None:
            yield job


def _missing(job: TrainingJob, cluster: Cluster) -> Manifest | None:
    """The Workload of a job that waits for it, or holds GPUs without one; None for any other."""
    status = job.status
    waits = status.pending is not None and status.pending.reason == PendingReason.WAITING_FOR_KUEUE
    is_held = status.placement is not None and not is_finished(job)
    if not job.metadata.labels.get(QUEUE_LABEL) or not (waits or is_held) or job.spec.suspend or not is_whole(job):
        return None
    if queue_priority(job, cluster) is None:
        return None
    return workload_manifest(job, cluster)


def _must_go(job: TrainingJob, there: Workload, cluster: Cluster) -> bool:
    """Whether the Workload of a job that holds nothing is not what it needs: the job is suspended or in no queue, or
    asks for something else, also because somebody has edited the Workload."""
    if is_finished(job) or holds(job, cluster):
        return False
    if not job.metadata.labels.get(QUEUE_LABEL) or job.spec.suspend or there.says("Finished"):
        return True
    submitted = cluster.kueue.as_submitted(job)
    return is_whole(submitted) and digest(pod_sets(submitted.spec)) != there.demand


def _changed(job: TrainingJob, there: Workload, cluster: Cluster, now: datetime) -> WorkloadPatch | None:
    found = conditions(job, there, cluster, now)
    if found is not None:
        is_reserved = any(each.type == "QuotaReserved" and each.status == "True" for each in found)
        is_released = there.says("QuotaReserved") and not is_reserved
        removed = [{"op": "remove", "path": "/status/admission"}] if is_released and there.cluster_queue else []
        told = {"op": "add", "path": "/status/conditions", "value": [_written(each) for each in found]}
        return _patch(there, told, *removed, of_status=True)
    if there.says("QuotaReserved") or is_finished(job):
        return None
    wanted = queueing(job, cluster)
    now_told = {"queueName": there.queue, **reference(*there.priority_class, there.priority)}
    if queue_priority(job, cluster) is None or wanted == now_told:
        return None
    operations = [{"op": "add", "path": f"/spec/{field}", "value": value} for field, value in wanted.items()]
    operations += [{"op": "remove", "path": f"/spec/{field}"} for field in now_told.keys() - wanted.keys()]
    return _patch(there, *operations, of_status=False)


def _written(condition: KueueCondition) -> dict[str, Any]:
    kept = {field: value for field, value in msgspec.to_builtins(condition).items() if value is not None}
    return {"message": "", **kept}


def _patch(there: Workload, *operations: dict[str, Any], of_status: bool) -> WorkloadPatch:
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": there.resource_version}
    return WorkloadPatch(there, (version, *operations), of_status)
