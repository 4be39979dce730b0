"""Kueue's Workloads of TrainingJobs, in the few fields that decide who may start (kueue.x-k8s.io/v1beta2)."""

from collections.abc import Sequence
from hashlib import sha1
from typing import Any

import msgspec

from closeknit.api.names import GROUP, TRAINING_JOB, JobKey
from closeknit.cluster.kueue.pod_sets import digest
from closeknit.cluster.objects.meta import Metadata, WireStruct

KUEUE_VERSION = "v1beta2"  # the only one that Kueue 0.20 serves; it is there since 0.15
WORKLOAD = "Workload"
# Bounds of Kueue's own schema; of an object with more the rest is not looked at.
_MOST_CONDITIONS, _MOST_CHECKS, _MOST_POD_SETS, _MOST_ENTRIES = 16, 8, 18, 16
_HASH_LENGTH = 5


class KueueCondition(WireStruct, frozen=True):
    """One entry of status.conditions, whole, so that it can be written back."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None
    observed_generation: int | None = None


class KueueToleration(WireStruct, frozen=True, omit_defaults=True):
    """A toleration that Kueue adds to Pods."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class PodSetUpdate(WireStruct, frozen=True):
    """What an admission check adds to the Pods of a pod set."""

    name: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[KueueToleration] | None = None


class AdmissionCheck(WireStruct, frozen=True):
    """The state of one admission check."""

    name: str
    state: str = ""
    message: str = ""
    pod_set_updates: list[PodSetUpdate] | None = None


class Assignment(msgspec.Struct, frozen=True):
    """What a pod set was admitted with."""

    pod_set: str
    count: int | None
    flavors: tuple[str, ...]
    """Names of ResourceFlavors, in order."""


class Workload(msgspec.Struct, frozen=True):
    """A Workload that a TrainingJob owns."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    is_going: bool
    """Whether it is being deleted."""
    job: JobKey
    job_uid: str
    queue: str
    """The LocalQueue."""
    is_active: bool
    """False: somebody has deactivated it, and Kueue evicts it."""
    priority_class: tuple[str, str]
    """Group and name of the class that its priority is of; empty without one."""
    priority: int | None
    demand: str
    """Digest of its pod sets, as `pod_sets.digest` makes it."""
    cluster_queue: str = ""
    assignments: tuple[Assignment, ...] = ()
    checks: tuple[AdmissionCheck, ...] = ()
    conditions: tuple[KueueCondition, ...] = ()

    def condition(self, kind: str) -> KueueCondition | None:
        """Its condition of this type."""
        return next((each for each in self.conditions if each.type == kind), None)

    def says(self, kind: str) -> bool:
        """Whether its condition of this type is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def is_admitted(self) -> bool:
        """Whether its job may hold GPUs."""
        return self.says("Admitted") and not (self.is_going or self.says("Evicted") or self.says("Finished"))


class _PriorityClassRef(WireStruct, frozen=True):
    group: str = ""
    name: str = ""


class _WireSpec(WireStruct, frozen=True):
    pod_sets: list[dict[str, Any]] | None = None
    queue_name: str | None = None
    priority_class_ref: _PriorityClassRef | None = None
    priority: int | None = None
    active: bool | None = None


class _WireAssignment(WireStruct, frozen=True):
    name: str
    flavors: dict[str, str] | None = None
    count: int | None = None


class _WireAdmission(WireStruct, frozen=True):
    cluster_queue: str = ""
    pod_set_assignments: list[_WireAssignment] | None = None


class _WireStatus(WireStruct, frozen=True):
    conditions: list[KueueCondition] | None = None
    admission: _WireAdmission | None = None
    admission_checks: list[AdmissionCheck] | None = None


class WireWorkload(WireStruct, frozen=True):
    """A Workload on the wire."""

    metadata: Metadata
    spec: _WireSpec | None = None
    status: _WireStatus | None = None


def workload(wire: WireWorkload) -> Workload | None:
    """The kept Workload; None for one of another owner, which most are."""
    metadata = wire.metadata
    owner = next((each for each in metadata.owners if each.controller and each.is_training_job), None)
    if owner is None:
        return None
    spec, status = wire.spec or _WireSpec(), wire.status or _WireStatus()
    admission, ref = status.admission or _WireAdmission(), spec.priority_class_ref
    return Workload(
        namespace=metadata.namespace or "",
        name=metadata.name,
        uid=metadata.uid or "",
        resource_version=metadata.resource_version or "",
        generation=metadata.generation or 0,
        is_going=metadata.deletion_timestamp is not None,
        job=JobKey(metadata.namespace or "", owner.name),
        job_uid=owner.uid,
        queue=spec.queue_name or "",
        is_active=spec.active is not False,
        priority_class=(ref.group, ref.name) if ref is not None else ("", ""),
        priority=spec.priority,
        demand=digest((spec.pod_sets or ())[: _MOST_POD_SETS + 1]),
        cluster_queue=admission.cluster_queue,
        assignments=tuple(
            Assignment(
                each.name,
                each.count,
                tuple(sorted(set((each.flavors or {}).values()))[:_MOST_ENTRIES]),
            )
            for each in (admission.pod_set_assignments or ())[:_MOST_POD_SETS]
        ),
        checks=tuple((status.admission_checks or ())[:_MOST_CHECKS]),
        conditions=tuple((status.conditions or ())[:_MOST_CONDITIONS]),
    )


def workload_name(job: str, uid: str) -> str:
    """Name of the Workload of a job, made as Kueue makes it of its own jobs: at most 12 + 40 + 6 characters."""
    told = f"{TRAINING_JOB}\n{GROUP}\n{job}\n{uid}"
    return f"{TRAINING_JOB.lower()}-{job}-{sha1(told.encode()).hexdigest()[:_HASH_LENGTH]}"  # noqa: S324 - a name


def own(workloads: Sequence[Workload], job: str, uid: str | None) -> Workload | None:
    """The one Workload of a job that counts among those that name it as their owner: that of its uid and name."""
    if not workloads or not uid:
        return None
    name = workload_name(job, uid)
    return next((each for each in workloads if each.job_uid == uid and each.name == name), None)
