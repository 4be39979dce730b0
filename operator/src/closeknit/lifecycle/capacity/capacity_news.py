"""The ProvisioningRequests to make for jobs that wait for nodes, and those to take back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from closeknit.api.names import API_VERSION, PROVISIONING_CLASS_ANNOTATION, TRAINING_JOB, PendingReason
from closeknit.api.objects import TrainingJob
from closeknit.api.toleration import GPU_TOLERATION
from closeknit.api.trainingjob_status import Pending
from closeknit.cluster.booking.job import is_whole
from closeknit.cluster.capacity.provisioning import (
    AUTOSCALING_GROUP,
    AUTOSCALING_VERSION,
    PROVISIONING_REQUEST,
    ProvisioningRequest,
)
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.pod_requests import CPU, needs
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.capacity.gang_shape import GangShape, NodeGroup, gang_shape
from closeknit.lifecycle.status.capacity_words import ASKED_AGAIN
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pauses import over_at
from closeknit.lifecycle.status.statuses import WAITS_FOR_ALL, is_finished
from closeknit.placement.gang.cache import Tables

# A job that starts within seconds needs no node, and GPUs that come free do so all the time.
ASKED_AFTER = timedelta(seconds=30)
MOST_REQUESTS = 4  # of all jobs together: an autoscaler works at few at a time, and every one costs it a simulation
NEVER = "Never"
_FOR_NODES = frozenset(
    {
        PendingReason.INSUFFICIENT_GPUS,
        PendingReason.GPUS_NOT_OFFERED,  # a node that has just come is so until its device plugin runs
        PendingReason.INSUFFICIENT_RESOURCES,
        PendingReason.NO_NVLINK_ISLAND,
        PendingReason.NO_DOMAIN,
        PendingReason.NO_MATCHING_GPU,
        PendingReason.BEHIND_RESERVATION,
    }
)


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """What an administrator lets be asked for."""

    provisioning_class: str = NEVER
    """Of jobs that say nothing themselves."""
    node_groups: tuple[NodeGroup, ...] = ()


NOTHING_ASKED = CapacityPolicy()


class CapacityAsk(NamedTuple):
    """A ProvisioningRequest, and the PodTemplate that it names."""

    request: Manifest
    template: Manifest
    """Without its owner, which is the request."""


class CapacityNews(NamedTuple):
    """What to write now."""

    missing: tuple[CapacityAsk, ...] = ()
    gone: tuple[ProvisioningRequest, ...] = ()


def capacity_news(cluster: Cluster, tables: Tables, policy: CapacityPolicy, now: datetime) -> CapacityNews:
    """The requests to make and to take back; nothing where they are not served. Jobs that come first in the queue ask
    first, MOST_REQUESTS at a time."""
    if not cluster.serves_provisioning_requests:
        return CapacityNews()
    gone: list[ProvisioningRequest] = []
    kept: set[str] = set()
    for found in cluster.provisioning_requests:
        job = cluster.jobs.get(found.job)
        if job is None or found.is_going or job.metadata.uid != found.job_uid:
            continue
        is_spent = found.is_over and over_at(found.answered, ASKED_AGAIN, now) <= now
        if is_spent or not waits_for_nodes(job) or class_of(job, policy) != found.class_name:
            gone.append(found)
        else:
            kept.add(found.job_uid)
    missing: list[CapacityAsk] = []
    left = MOST_REQUESTS - len(kept)
    taken = kept | {each.job_uid for each in gone}
    for job in _in_order(cluster, policy, now):
        if left <= 0:
            break
        if job.metadata.uid in taken:
            continue
        left -= 1  # also for one that no node would help: each costs a search
        shape = gang_shape(job, cluster, policy.node_groups, tables)
        if shape is not None:
            missing.append(_ask(job, shape, class_of(job, policy)))
    return CapacityNews(tuple(missing), tuple(gone))


def class_of(job: TrainingJob, policy: CapacityPolicy) -> str:
    """The class by which a job asks: its own word, or its administrator's; NEVER for one that does not ask."""
    return job.metadata.annotations.get(PROVISIONING_CLASS_ANNOTATION) or policy.provisioning_class


def waits_for_nodes(job: TrainingJob) -> bool:
    """Whether more nodes may end the job's wait."""
    pending = job.status.pending
    is_for_nodes = pending is not None and pending.reason in _FOR_NODES and job.status.placement is None
    return is_for_nodes and not (job.spec.suspend or is_finished(job) or job.metadata.deletion_timestamp is not None)


def _in_order(cluster: Cluster, policy: CapacityPolicy, now: datetime) -> Sequence[TrainingJob]:
    """Jobs that may ask now, in the order of the queue."""
    found: Iterable[TrainingJob] = (
        job
        for job in cluster.jobs.values()
        if waits_for_nodes(job)
        and class_of(job, policy) != NEVER
        and job.metadata.uid
        and is_whole(job)
        and job.status.pending is not None
        and _asks_from(job, job.status.pending) <= now
    )
    return sorted(found, key=lambda job: (-cluster.priority(job), job.metadata.creation_timestamp or "", job.key))


def _asks_from(job: TrainingJob, pending: Pending) -> datetime:
    """When a job that waits asks. One that may start with fewer GPUs asks once it could have: while it runs with them,
    nothing is asked for it, and what was asked before is taken back."""
    ready = moment(pending.since) + ASKED_AFTER
    if job.spec.elastic is None or job.spec.elastic.min_gpus == job.spec.gpus:
        return ready
    return max(ready, moment(pending.queued_since or pending.since) + WAITS_FOR_ALL + ASKED_AFTER)


def _ask(job: TrainingJob, shape: GangShape, class_name: str) -> CapacityAsk:
    told = f"{job.metadata.uid}/{job.metadata.generation}/{shape.pods}x{shape.gpus_each}/{class_name}"
    name = f"{job.metadata.name}-capacity-{sha256(told.encode()).hexdigest()[:8]}"
    namespace = job.key.namespace
    owner = {
        "apiVersion": API_VERSION,
        "kind": TRAINING_JOB,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
    }
    request = {
        "apiVersion": f"{AUTOSCALING_GROUP}/{AUTOSCALING_VERSION}",
        "kind": PROVISIONING_REQUEST,
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
        "spec": {
            "provisioningClassName": class_name,
            "podSets": [{"podTemplateRef": {"name": name}, "count": shape.pods}],
        },
    }
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "template": {"metadata": {}, "spec": _pod_spec(job, shape)},
    }
    return CapacityAsk(request, template)


def _pod_spec(job: TrainingJob, shape: GangShape) -> dict[str, Any]:
    """What an autoscaler's simulation of the scheduler reads of a Pod of the gang."""
    spec = job.spec.template.spec
    amounts = {key: f"{amount}m" if key == CPU else str(amount) for key, amount in needs(spec) if key != "pods"}
    gpus = {shape.resource: str(shape.gpus_each)}
    resources = {"requests": {**amounts, **gpus}, "limits": gpus}
    image = next((each.get("image") for each in spec.get("containers") or () if isinstance(each, dict)), None)
    tolerations = [each for each in spec.get("tolerations") or () if each != GPU_TOLERATION]
    chosen = {field: spec[field] for field in ("nodeSelector", "affinity", "runtimeClassName") if spec.get(field)}
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "trainer", "image": image or "none", "resources": resources}],
        "tolerations": [*tolerations, GPU_TOLERATION],
        **chosen,
    }
