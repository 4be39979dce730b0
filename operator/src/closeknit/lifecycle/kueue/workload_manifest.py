"""The Workload of a job: what it asks of which LocalQueue, and with which priority."""

from typing import Any

from closeknit.api.names import API_VERSION, KUEUE_GROUP, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, TRAINING_JOB
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.kueue.pod_sets import pod_sets
from closeknit.cluster.kueue.workload import KUEUE_VERSION, WORKLOAD, workload_name
from closeknit.launch.gang import Manifest

_JOB_UID_LABEL = f"{KUEUE_GROUP}/job-uid"  # by which Kueue's own tools find a job's Workload
_CLASSES = {KUEUE_GROUP: "WorkloadPriorityClass", "scheduling.k8s.io": "PriorityClass"}


def workload_manifest(job: TrainingJob, cluster: Cluster) -> Manifest:
    """The Workload as it is made. It goes with its job, which owns it; a finalizer of Kueue's it does not need."""
    metadata = job.metadata
    owner = {
        "apiVersion": API_VERSION,
        "kind": TRAINING_JOB,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
    }
    return {
        "apiVersion": f"{KUEUE_GROUP}/{KUEUE_VERSION}",
        "kind": WORKLOAD,
        "metadata": {
            "name": workload_name(metadata.name, metadata.uid or ""),
            "namespace": job.key.namespace,
            "labels": {_JOB_UID_LABEL: metadata.uid},
            "ownerReferences": [owner],
        },
        "spec": {"active": True, "podSets": pod_sets(cluster.kueue.as_submitted(job).spec), **queueing(job, cluster)},
    }


def queue_priority(job: TrainingJob, cluster: Cluster) -> int | None:
    """Its priority in Kueue's queue; None where its class is not there yet."""
    name = job.metadata.labels.get(QUEUE_PRIORITY_LABEL)
    return cluster.kueue.priority(name) if name else cluster.priority(job)


def queueing(job: TrainingJob, cluster: Cluster) -> dict[str, Any]:
    """The part of a Workload's spec that may change while it has no quota."""
    priority, own = queue_priority(job, cluster), job.metadata.labels.get(QUEUE_PRIORITY_LABEL)
    name = job.spec.priority_class_name
    named = name if name is not None and name in cluster.priorities else ""
    ref = (KUEUE_GROUP, own) if own else ("scheduling.k8s.io", named) if named else ("", "")
    return {"queueName": job.metadata.labels.get(QUEUE_LABEL, ""), **reference(*ref, priority)}


def reference(group: str, name: str, priority: int | None) -> dict[str, Any]:
    """The priority of a Workload, as its spec has it."""
    kind = _CLASSES.get(group, "")
    ref = {"priorityClassRef": {"group": group, "kind": kind, "name": name}} if name else {}
    return {**ref, **({} if priority is None else {"priority": priority})}
