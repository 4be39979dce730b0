"""Pods, in the few kept fields: all of ours, and only what others hold."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from sys import intern

import msgspec

from closeknit.api.names import (
    BARRIER_CONTAINER,
    GPU_RESOURCE,
    JOB_LABEL,
    MIG_RESOURCE_PREFIX,
    SETTINGS_ANNOTATION,
    SHARED_GPU_RESOURCE,
    SIDECAR_CONTAINER,
    SIZE_ANNOTATION,
    ChildName,
    JobKey,
    child_named,
)
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.capacity.placeholder import Placeholder, placeholder_owner
from closeknit.cluster.objects.meta import ForeignCondition, Metadata, Owner, WireStruct
from closeknit.cluster.objects.pod_requests import (
    CPU,
    MEMORY,
    Amounts,
    ContainerGiven,
    Given,
    Needs,
    PodResourceSpec,
    limits,
    requests,
)
from closeknit.cluster.pods.pin import WireAffinity, pin

TOLD_CODE = 78  # of the gang's sidecar, as in closeknit.sidecar.gang.settings
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
MOST_ILL = (
    64  # devices of one Pod that are called unhealthy; a node has 16 GPUs at most, and some dozens of MIG devices
)
UUIDS = ("GPU-", "MIG-")  # what uuids begin with; a device plugin may number its devices instead
_LONGEST_GRACE_S = 10**9  # of whatever number, so that moments can be told by it
KEPT_WORDS = 1000  # of a Pod's own message
KEPT_SETTINGS = 64
MOST_CLAIMS = 256  # as many Pods may share one claim; no cluster has a tenth of it
# What the lifecycle reads; a Pod's other conditions change often and mean nothing to it.
DISRUPTION_TARGET = "DisruptionTarget"
KEPT_CONDITIONS = frozenset({"PodScheduled", "Ready", DISRUPTION_TARGET})
# The kubelet's reason of a container that it has ended to start all of the Pod's again, as a rule of one says.
_RESTARTED = "RestartingAllContainers"


DEFAULT_GRACE_S = 30  # Kubernetes' terminationGracePeriodSeconds
# The least that activeDeadlineSeconds may be. A kubelet that finds a Pod active for longer ends its containers with
# their grace period and calls it Failed (DeadlineExceeded); the Pod stays, and what it has said.
STOPPED_AFTER_S = 1


class ContainerState(msgspec.Struct, frozen=True):
    """One container's state: exactly one of exit_code, waiting_reason and running is set, or none yet."""

    name: str
    init: bool = False
    running: bool = False
    exit_code: int | None = None
    """For a terminated container."""
    reason: str = ""
    """Why it terminated, for example OOMKilled, or why it waits, for example ImagePullBackOff."""
    message: str = ""
    waiting: bool = False
    ended: str = ""
    """When it terminated, by its node's clock."""
    began: str = ""
    """When a terminated one was started, by the same clock."""
    is_ready: bool = False
    """Of the gang's sidecar alone: whether its probe passes."""
    said: str = ""
    """Of the gang's sidecar: its words when it ended to say something, and was started again."""


class Pod(msgspec.Struct, frozen=True, dict=True):
    """A Pod of ours, or one that holds GPUs or claims, or a name that a child of ours may need.

    Of others' Pods only the first block is kept. What is read of a child's labels and owners is worked out once: every
    decision asks it of every Pod of a gang.
    """

    namespace: str
    name: str
    uid: str = ""
    node: str = ""
    """Its node once it is bound; empty before."""
    phase: str = ""
    requests: Amounts = {}
    """Its use of its node, as the scheduler counts it, GPUs of the device plugin included."""
    claims: tuple[str, ...] = ()
    """Names of its ResourceClaims, those of templates included once they exist."""
    priority: int = 0
    owners: tuple[Owner, ...] = ()
    labels: Mapping[str, str] = {}  # ours only
    devices: tuple[str, ...] = ()
    """UUIDs of its GPUs and MIG devices from a device plugin, by the kubelet in its status, ascending; all that it
    requests, or none."""

    ill_devices: tuple[str, ...] = ()
    """Devices that its kubelet calls unhealthy, by the word of their driver or plugin, ascending: a plugin's by uuid, a
    claim's as `driver/pool/device` (KEP-4680)."""
    pinned: str = ""  # node that a child of ours is made for
    limits: Amounts = {}
    """The CPUs, memory and storage that it may use at most, as quotas count them."""
    priority_class: str = ""
    has_deadline: bool = False
    """Whether it may be active only for so long."""
    is_stopped: bool = False
    """Whether its kubelet must end it, and keep it with its logs: it may be active for STOPPED_AFTER_S."""
    is_forced: bool = False
    """Whether somebody has deleted it by force: what is still there of it is held by finalizers."""
    grace_s: int = DEFAULT_GRACE_S
    """Time for its containers to end."""
    resource_version: str = ""
    created: str = ""  # by the API server's clock
    deletion_timestamp: str | None = None
    conditions: tuple[ForeignCondition, ...] = ()  # PodScheduled, Ready and DisruptionTarget, by type
    containers: tuple[ContainerState, ...] = ()  # init containers first
    settings: str = ""
    """Digest of what its containers are told; empty where it does not restart in place."""
    size: str = ""
    """Of its gang, as it is told it; empty where it cannot grow in place, and of all but node rank 0's."""
    reason: str = ""
    """The kubelet's reason for the phase of the whole Pod: Evicted, OutOfcpu, …"""
    message: str = ""
    """The kubelet's message about it, its first thousand characters."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def place(self) -> str:
        """Its node, or the one that it is made for and may be bound to any moment, perhaps unseen."""
        return self.node or self.pinned

    @property
    def is_live(self) -> bool:
        """Whether it still holds resources; a Pod being deleted does."""
        return self.phase not in FINISHED_PHASES

    @property
    def has_begun(self) -> bool:
        """Whether one of its containers runs or has ended, so it may have written logs."""
        return any(container.running or container.exit_code is not None for container in self.containers)

    @property
    def is_done(self) -> bool:
        """Whether all its containers have ended well: its kubelet ends what supports them and calls it Succeeded."""
        codes = [each.exit_code for each in self.containers if not each.init]
        return bool(codes) and not any(code is None or code for code in codes)

    @property
    def gpu_count(self) -> int:
        """GPUs of the device plugin that it requests, shared ones among them."""
        return self.requests.get(GPU_RESOURCE, 0) + self.requests.get(SHARED_GPU_RESOURCE, 0)

    @property
    def devices_asked(self) -> Amounts:
        """Its requests to a device plugin for GPUs, by resource."""
        return {name: amount for name, amount in self.requests.items() if _is_gpu(name)}

    @property
    def mig_count(self) -> int:
        """MIG devices of the device plugin that it requests, of all profiles."""
        return sum(amount for name, amount in self.requests.items() if name.startswith(MIG_RESOURCE_PREFIX))

    @cached_property
    def job(self) -> JobKey | None:
        """The TrainingJob that owns it; None for a Pod with only our label."""
        owner = self.job_owner
        return JobKey(self.namespace, owner.name) if owner else None

    @cached_property
    def job_owner(self) -> Owner | None:
        """Its ownerReference to the TrainingJob that its label names."""
        name = self.labels.get(JOB_LABEL)
        if name is None:
            return None
        return next((owner for owner in self.owners if owner.is_training_job and owner.name == name), None)

    @cached_property
    def job_uids(self) -> tuple[str, ...]:
        """Uids of the TrainingJobs that own it."""
        return tuple(owner.uid for owner in self.owners if owner.is_training_job)

    @cached_property
    def child(self) -> ChildName | None:
        """Its role for the job that owns it, by its name; None for a name of no child."""
        owner, child = self.job_owner, child_named(self.name)
        return child if owner is not None and child is not None and child.job == owner.name else None

    @property
    def attempt(self) -> int | None:
        """Attempt of a child of ours."""
        return self.child.attempt if self.child is not None else None

    @property
    def index(self) -> int | None:
        """Index of a child of ours within its role."""
        return self.child.index if self.child is not None else None

    def is_made_for(self, node: str, gpus: int, binding: Binding, *, mig: str = "") -> bool:
        """Whether it asks for so many GPUs in this way, or for a MIG device by the resource `mig`, and is on no
        other node. A Pod's requests never change, so one with others is not the Pod made for them, whatever its name
        and its owner."""
        if self.node not in {"", node}:
            return False
        if binding is Binding.DRA:
            return self.name in self.claims
        return self.requests.get(mig, 0) > 0 if mig else self.gpu_count >= gpus

    def condition(self, kind: str) -> ForeignCondition | None:
        """The condition of this type, None without one."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def container(self, name: str) -> ContainerState | None:
        """The state of one of its containers, without init containers; None if its kubelet reports none."""
        return next((each for each in self.containers if each.name == name and not each.init), None)

    @property
    def restarts_in_place(self) -> bool:
        """Whether its containers start again after an error of its trainer: it has the gang's sidecar."""
        return any(container.init and container.name == BARRIER_CONTAINER for container in self.containers)

    def by_trainer(self, name: str) -> "Pod":
        """The Pod in the phase of its trainer's container, once that has ended for good: other containers are no ranks.
        One that Kubernetes ends has not succeeded even if its trainer says so afterwards: a stopped program may end
        with 0. An error is no end where all containers may start again after it: that is the Pod's phase to say. The
        same object if the trainer says nothing else."""
        trainer = self.container(name)
        if trainer is None or trainer.exit_code is None or trainer.reason == _RESTARTED:
            return self
        if trainer.exit_code != 0 and self.restarts_in_place:
            return self
        phase = "Failed"
        if trainer.exit_code == 0:
            is_told_to_stop = self.deletion_timestamp is not None or bool(self.reason) or self._is_disrupted(trainer)
            phase = self.phase if is_told_to_stop else "Succeeded"
        return self if phase == self.phase else msgspec.structs.replace(self, phase=phase)

    def _is_disrupted(self, trainer: ContainerState) -> bool:
        """Whether Kubernetes had marked the Pod when its trainer ended. Both are whole seconds, by two clocks."""
        mark = self.condition(DISRUPTION_TARGET)
        return mark is not None and mark.status == "True" and not trainer.ended < (mark.last_transition_time or "")


class Lodger(msgspec.Struct, frozen=True, gc=False):
    """Another's bound Pod without GPUs and claims: only its resources there matter.

    A cluster may have ten on every node, so that CPU and memory stand apart: pairs in tuples weigh three times as much.
    """

    namespace: str
    name: str
    node: str
    cpu: int = 0
    """Thousandths of a core; this and the rest as the scheduler counts them."""
    memory: int = 0
    """Bytes."""
    others: Needs = ()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class _PodClaim(WireStruct, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class _PodSpec(PodResourceSpec, frozen=True):
    node_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    resource_claims: list[_PodClaim] | None = None
    affinity: WireAffinity | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None


class _Terminated(WireStruct, frozen=True):
    exit_code: int = 0
    reason: str | None = None
    message: str | None = None
    finished_at: str | None = None
    started_at: str | None = None


class _Waiting(WireStruct, frozen=True):
    reason: str | None = None
    message: str | None = None


class _Running(WireStruct, frozen=True):
    pass


class _State(WireStruct, frozen=True):
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None
    running: _Running | None = None


class _ResourceHealth(WireStruct, frozen=True):
    resource_id: str = msgspec.field(default="", name="resourceID")
    health: str = ""


class _ResourceStatus(WireStruct, frozen=True):
    name: str = ""
    resources: list[_ResourceHealth] | None = None


class _ContainerStatus(ContainerGiven, frozen=True):
    state: _State | None = None
    last_state: _State | None = None
    allocated_resources_status: list[_ResourceStatus] | None = None
    ready: bool | None = None


class _ExtendedResourceClaim(WireStruct, frozen=True):
    resource_claim_name: str | None = None


class _PodStatus(Given, frozen=True):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: list[ForeignCondition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    resource_claim_statuses: list[_PodClaim] | None = None
    extended_resource_claim_status: _ExtendedResourceClaim | None = None


class _Annotations(msgspec.Struct, frozen=True):
    settings: str | None = msgspec.field(default=None, name=SETTINGS_ANNOTATION)
    size: str | None = msgspec.field(default=None, name=SIZE_ANNOTATION)


class _PodMetadata(Metadata, frozen=True):
    annotations: _Annotations | None = None


class WirePod(WireStruct, frozen=True):
    """A Pod on the wire."""

    metadata: _PodMetadata
    spec: _PodSpec | None = None
    status: _PodStatus | None = None


def pod(wire: WirePod) -> Pod | Lodger | Placeholder | None:
    """The kept Pod. Another's without a GPU, a claim and a child's name is a Lodger, or None if it holds nothing
    either: it is not bound to a node, or finished. A placeholder holds nothing of the node that it is on."""
    metadata = wire.metadata
    spec = wire.spec or _PodSpec()
    status = wire.status or _PodStatus()
    owners = metadata.owners
    ours = bool(metadata.labels and JOB_LABEL in metadata.labels) or any(owner.is_training_job for owner in owners)
    phase = status.phase or ""
    containers = [*(status.init_container_statuses or ()), *(status.container_statuses or ())]
    taken = requests(spec, status, containers, status.conditions or ())
    if (asking := placeholder_owner(metadata, spec.priority)) is not None:
        return None if phase in FINISHED_PHASES else _placeholder(wire, *asking, taken)
    if not ours and phase in FINISHED_PHASES:
        return None
    claims = _claims(spec, status)
    namespace = metadata.namespace or "default"
    if not (ours or claims or any(_is_gpu(name) for name in taken) or child_named(metadata.name) is not None):
        return _lodger(intern(namespace), metadata.name, intern(spec.node_name), taken) if spec.node_name else None
    others = Pod(
        namespace=namespace,
        name=metadata.name,
        uid=metadata.uid or "",
        node=spec.node_name or "",
        phase=phase,
        requests=taken,
        claims=claims,
        priority=spec.priority or 0,
        owners=owners,
        labels=metadata.our_labels,
        devices=_devices(containers, taken),
    )
    if not ours:
        return others
    return msgspec.structs.replace(
        others,
        ill_devices=_ill_devices(containers),
        pinned=pin(spec.affinity) if others.job_owner is not None else "",
        limits=limits(spec),
        priority_class=intern(spec.priority_class_name or ""),
        has_deadline=spec.active_deadline_seconds is not None,
        is_stopped=spec.active_deadline_seconds == STOPPED_AFTER_S,
        grace_s=_grace_s(spec),
        resource_version=metadata.resource_version or "",
        created=metadata.creation_timestamp or "",
        deletion_timestamp=metadata.deletion_timestamp,
        is_forced=metadata.deletion_timestamp is not None and metadata.deletion_grace_period_seconds == 0,
        conditions=tuple(
            sorted(
                (condition for condition in status.conditions or () if condition.type in KEPT_CONDITIONS),
                key=lambda condition: condition.type,
            )
        ),
        containers=(
            *(_state(entry, init=True) for entry in status.init_container_statuses or ()),
            *(_state(entry, init=False) for entry in status.container_statuses or ()),
        ),
        settings=((metadata.annotations and metadata.annotations.settings) or "")[:KEPT_SETTINGS],
        size=((metadata.annotations and metadata.annotations.size) or "")[:KEPT_SETTINGS],
        reason=status.reason or "",
        message=(status.message or "")[:KEPT_WORDS],
    )


def _placeholder(wire: WirePod, job: JobKey, job_uid: str, taken: Amounts) -> Placeholder:
    metadata, spec = wire.metadata, wire.spec or _PodSpec()
    asked = {name: amount for name, amount in taken.items() if _is_gpu(name)}
    return Placeholder(
        namespace=job.namespace,
        name=metadata.name,
        uid=metadata.uid or "",
        job=job,
        job_uid=job_uid,
        resource=min(asked, default=""),
        gpus=sum(asked.values()),
        created=metadata.creation_timestamp or "",
        node=spec.node_name or "",
        is_going=metadata.deletion_timestamp is not None,
    )


def _grace_s(spec: _PodSpec) -> int:
    grace_s = spec.termination_grace_period_seconds
    return DEFAULT_GRACE_S if grace_s is None else max(0, min(grace_s, _LONGEST_GRACE_S))


def _lodger(namespace: str, name: str, node: str, taken: dict[str, int]) -> Lodger:
    cpu, memory = taken.pop(CPU, 0), taken.pop(MEMORY, 0)
    return Lodger(namespace, name, node, cpu, memory, tuple(taken.items()))


def _is_gpu(resource: str) -> bool:
    return resource.startswith((GPU_RESOURCE, MIG_RESOURCE_PREFIX))  # gpu.shared and MIG slices included


def _devices(containers: Sequence[_ContainerStatus], taken: Amounts) -> tuple[str, ...]:
    """The kubelet's devices of these containers by the device plugin, if as many as requested.

    Another number is a kubelet that has not told all, a plugin that does not name its devices by uuid, or a lie.
    """
    asked = sum(amount for name, amount in taken.items() if _is_told(name))
    if not asked:
        return ()
    found = {
        device.resource_id.partition("::")[0]  # a shared GPU's replica is called `<uuid>::<n>`
        for container in containers
        for resource in container.allocated_resources_status or ()
        if _is_told(resource.name)
        for device in resource.resources or ()
    }
    return tuple(sorted(found)) if len(found) == asked and all(device.startswith(UUIDS) for device in found) else ()


def _ill_devices(containers: Sequence[_ContainerStatus]) -> tuple[str, ...]:
    found = {
        device.resource_id.partition("::")[0]
        for container in containers
        for resource in container.allocated_resources_status or ()
        for device in resource.resources or ()
        if device.health == "Unhealthy"
    }
    return tuple(sorted(found)[:MOST_ILL])


def _is_told(resource: str) -> bool:
    return resource == GPU_RESOURCE or resource.startswith(MIG_RESOURCE_PREFIX)


def _claims(spec: _PodSpec, status: _PodStatus) -> tuple[str, ...]:
    named = [claim.resource_claim_name for claim in spec.resource_claims or ()]
    made = [claim.resource_claim_name for claim in status.resource_claim_statuses or ()]
    extended = status.extended_resource_claim_status
    found = {name for name in (*named, *made, extended and extended.resource_claim_name) if name}
    return tuple(sorted(found)[:MOST_CLAIMS])


def _state(status: _ContainerStatus, *, init: bool) -> ContainerState:
    found = _now(status, init=init)
    last = None if status.last_state is None else status.last_state.terminated
    if last is None or status.name != SIDECAR_CONTAINER or last.exit_code != TOLD_CODE:
        return found
    return msgspec.structs.replace(found, said=(last.message or "")[:KEPT_WORDS])


def _now(status: _ContainerStatus, *, init: bool) -> ContainerState:
    state = status.state or _State()
    if state.terminated:
        ended = state.terminated
        return ContainerState(
            status.name,
            init,
            exit_code=ended.exit_code,
            reason=ended.reason or "",
            message=ended.message or "",
            ended=ended.finished_at or "",
            began=ended.started_at or "",
        )
    if state.waiting:
        waiting = state.waiting
        return ContainerState(
            status.name, init, waiting=True, reason=waiting.reason or "", message=waiting.message or ""
        )
    is_ready = status.name == SIDECAR_CONTAINER and status.ready is True
    return ContainerState(status.name, init, running=state.running is not None, is_ready=is_ready)
