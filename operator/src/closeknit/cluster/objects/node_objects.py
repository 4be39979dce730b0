"""Kept fields of Nodes, PriorityClasses and DeviceClasses."""

from collections.abc import Mapping
from sys import intern

import msgspec

from closeknit.api.names import GPU_RESOURCE, IMEX_CHANNELS, MIG_RESOURCE_PREFIX
from closeknit.cluster.objects.dranet import selects_nics
from closeknit.cluster.objects.meta import ForeignCondition, Metadata, Quantities, WireStruct
from closeknit.cluster.objects.pod_requests import Amounts, amounts
from closeknit.cluster.objects.taints_and_faults import Taint

_OF_PLUGIN = (GPU_RESOURCE, MIG_RESOURCE_PREFIX)
# What a kubelet with this gate declares (KEP-5532; beta and on in Kubernetes 1.36). Kubelets are never newer than their
# API server, so that it knows the rules, too.
RESTARTS_IN_PLACE = "RestartAllContainersOnContainerExits"
UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")  # what `kubectl cordon` adds


class Node(msgspec.Struct, frozen=True):
    """A Node."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    """Those that keep Pods away, sorted; a cordoned node always has one."""
    not_ready: str | None = None
    """Why the node is not Ready, as a clause; None if it is."""
    not_ready_since: str | None = None
    """When its Ready condition last changed; None if it is Ready, or without a time."""
    is_unheard: bool = False
    """Whether its Ready condition is Unknown: Kubernetes has not heard its kubelet. One that is False the kubelet has
    said itself, and its Pods run on."""
    allocatable: Amounts = {}
    """The amounts for Pods, of every resource that the scheduler counts."""
    capacity: Amounts = {}
    """Only a device plugin's GPUs and MIG devices: its unhealthy ones are missing from the allocatable amounts."""
    restarts_in_place: bool = False
    """Whether its kubelet declares that it starts all containers of a Pod again by a rule of one of them."""


class PriorityClass(msgspec.Struct, frozen=True):
    """A PriorityClass."""

    name: str
    value: int = 0
    global_default: bool = False
    preempts: bool = True
    """Whether what has it may end what has less: not with the preemptionPolicy Never."""


class DeviceClass(msgspec.Struct, frozen=True):
    """A relevant DeviceClass: one for an extended resource, for which the scheduler makes a claim where no Node counts
    it; that of NVIDIA's driver for ComputeDomains; and those of all RDMA NICs of DRANET."""

    name: str
    resource: str = ""
    """Empty without one."""
    has_nics: bool = False
    """Whether it includes every RDMA NIC of DRANET, and nothing of another driver."""


class _WireTaint(WireStruct, frozen=True):
    key: str
    effect: str
    value: str | None = None


class _WireNodeSpec(WireStruct, frozen=True):
    taints: list[_WireTaint] | None = None
    unschedulable: bool | None = None


class _WireNodeStatus(WireStruct, frozen=True):
    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: list[ForeignCondition] | None = None
    declared_features: list[str] | None = None


class WireNode(WireStruct, frozen=True):
    """A Node on the wire."""

    metadata: Metadata
    spec: _WireNodeSpec | None = None
    status: _WireNodeStatus | None = None


class WirePriorityClass(WireStruct, frozen=True):
    """A PriorityClass on the wire."""

    metadata: Metadata
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class _WireCel(WireStruct, frozen=True):
    expression: str = ""


class _WireSelector(WireStruct, frozen=True):
    cel: _WireCel | None = None


class _WireDeviceClassSpec(WireStruct, frozen=True):
    extended_resource_name: str | None = None
    selectors: list[_WireSelector] | None = None


class WireDeviceClass(WireStruct, frozen=True):
    """A DeviceClass on the wire."""

    metadata: Metadata
    spec: _WireDeviceClassSpec | None = None


def node(wire: WireNode) -> Node:
    """The kept Node. Label texts are interned: 5,000 nodes repeat the same few."""
    spec = wire.spec or _WireNodeSpec()
    status = wire.status or _WireNodeStatus()
    capacity = status.capacity or {}
    taints = {
        Taint(taint.key, taint.value or "", taint.effect)
        for taint in spec.taints or ()
        if taint.effect in {"NoSchedule", "NoExecute"}
    }
    ready = next((condition for condition in status.conditions or () if condition.type == "Ready"), None)
    not_ready = _not_ready(ready)
    if spec.unschedulable and not any(taint.key == UNSCHEDULABLE_TAINT.key for taint in taints):
        taints.add(UNSCHEDULABLE_TAINT)
    return Node(
        name=wire.metadata.name,
        labels={intern(key): intern(value) for key, value in sorted((wire.metadata.labels or {}).items())},
        taints=tuple(sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect))),
        not_ready=not_ready,
        not_ready_since=ready.last_transition_time if ready is not None and not_ready is not None else None,
        is_unheard=ready is not None and ready.status == "Unknown",
        allocatable=amounts(status.allocatable),
        capacity=amounts({name: amount for name, amount in capacity.items() if name.startswith(_OF_PLUGIN)}),
        restarts_in_place=RESTARTS_IN_PLACE in (status.declared_features or ()),
    )


def _not_ready(condition: ForeignCondition | None) -> str | None:
    if condition is None:
        return "the Node has no Ready condition"
    if condition.status == "True":
        return None
    return f"the Node's Ready condition is {condition.status}" + (f" ({condition.reason})" if condition.reason else "")


def priority_class(wire: WirePriorityClass) -> PriorityClass:
    """The kept PriorityClass."""
    return PriorityClass(
        wire.metadata.name, wire.value, bool(wire.global_default), preempts=wire.preemption_policy != "Never"
    )


def device_class(wire: WireDeviceClass) -> DeviceClass | None:
    """The kept DeviceClass; None for an irrelevant one."""
    spec = wire.spec or _WireDeviceClassSpec()
    resource = spec.extended_resource_name or ""
    has_nics = selects_nics(each.cel.expression if each.cel else "" for each in spec.selectors or ())
    is_kept = bool(resource) or has_nics or wire.metadata.name == IMEX_CHANNELS
    return DeviceClass(wire.metadata.name, intern(resource), has_nics) if is_kept else None
