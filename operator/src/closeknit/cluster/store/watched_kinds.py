"""Every kind of object that is watched: where it is, its decoder, and which tables of table_definitions.py keep it.

A new kind is one entry; the operator's reflectors and the CLI's reader go by them. Tests hold two other places to this
table: the operator's rights (RBAC) in the chart, and what a snapshot keeps.

A Secret is never among them. Services are not read either: a foreign one under a name of ours shows when ours is
created.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from closeknit.api.names import CLUSTER_TOPOLOGY, GROUP, JOB_LABEL, KUEUE_GROUP, NODE_TOPOLOGY, TRAINING_JOB, VERSION
from closeknit.api.objects import ClusterTopology, TrainingJob
from closeknit.cluster.booking.job import InvalidJob, job_from_builtins, job_from_json
from closeknit.cluster.capacity.placeholder import CapacityRefusal, FirstAsk, Placeholder
from closeknit.cluster.capacity.provisioning import (
    AUTOSCALING_GROUP,
    AUTOSCALING_VERSION,
    PROVISIONING_REQUEST,
    ProvisioningRequest,
    WireProvisioningRequest,
    provisioning_request,
)
from closeknit.cluster.immutable.table import ObjectKey, Table
from closeknit.cluster.kueue.flavors import (
    ResourceFlavor,
    ServedKind,
    WireResourceFlavor,
    WireWorkloadPriorityClass,
    WorkloadPriorityClass,
    resource_flavor,
    workload_priority_class,
)
from closeknit.cluster.kueue.workload import KUEUE_VERSION, WORKLOAD, WireWorkload, Workload, workload
from closeknit.cluster.objects.agent_report import AgentReport, report_from_builtins, report_from_json
from closeknit.cluster.objects.dra import (
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
    WireDeviceTaintRule,
    WireResourceClaim,
    WireResourceSlice,
    device_taint_rule,
    resource_claim,
    resource_slice,
)
from closeknit.cluster.objects.dranet import NicSlice
from closeknit.cluster.objects.node_objects import (
    DeviceClass,
    Node,
    PriorityClass,
    WireDeviceClass,
    WireNode,
    WirePriorityClass,
    device_class,
    node,
    priority_class,
)
from closeknit.cluster.objects.silence import Silence
from closeknit.cluster.objects.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    WirePersistentVolume,
    WirePersistentVolumeClaim,
    WireStorageClass,
    claim,
    storage_class,
    volume,
)
from closeknit.cluster.pods.pod import Lodger, Pod, WirePod, pod
from closeknit.cluster.store.table_definitions import (
    ALLOCATIONS,
    AWAITING,
    BLAMED,
    BOOKINGS,
    CAPACITY_NOTES,
    CLAIMS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    INVALID_JOBS,
    JOBS,
    LODGERS,
    NIC_SLICES,
    NODES,
    PLACEHOLDERS,
    PODS,
    PRIORITIES,
    PROVISIONING,
    REPORTS,
    RESOURCE_FLAVORS,
    RUN_ENDS,
    SERVED,
    SILENCES,
    SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    VOLUME_CLAIMS,
    VOLUMES,
    WORKLOAD_PRIORITIES,
    WORKLOADS,
)

ClusterObject = (
    Node
    | AgentReport
    | ClusterTopology
    | TrainingJob
    | InvalidJob
    | Pod
    | Lodger
    | ResourceSlice
    | NicSlice
    | ResourceClaim
    | PriorityClass
    | DeviceClass
    | DeviceTaintRule
    | PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | Workload
    | ResourceFlavor
    | WorkloadPriorityClass
    | ProvisioningRequest
    | Placeholder
    | CapacityRefusal
    | FirstAsk
    | ServedKind
    | Silence
)
Decoded = TypeVar("Decoded")


class Stream(StrEnum):
    """One stream of objects. Pods have two: ours to their end, because the lifecycle needs to know how they end, and
    others' only while they live, because a Pod that leaves a field selector shows its old state."""

    NODES = "nodes"
    NODE_TOPOLOGIES = "nodetopologies"
    CLUSTER_TOPOLOGIES = "clustertopologies"
    TRAINING_JOBS = "trainingjobs"
    CHILD_PODS = "child-pods"
    OTHER_PODS = "other-pods"
    RESOURCE_SLICES = "resourceslices"
    RESOURCE_CLAIMS = "resourceclaims"
    PRIORITY_CLASSES = "priorityclasses"
    DEVICE_CLASSES = "deviceclasses"
    DEVICE_TAINT_RULES = "devicetaintrules"
    PERSISTENT_VOLUME_CLAIMS = "persistentvolumeclaims"
    PERSISTENT_VOLUMES = "persistentvolumes"
    STORAGE_CLASSES = "storageclasses"
    WORKLOADS = "workloads"
    RESOURCE_FLAVORS = "resourceflavors"
    WORKLOAD_PRIORITY_CLASSES = "workloadpriorityclasses"
    PROVISIONING_REQUESTS = "provisioningrequests"
    SERVED = "served"
    """No stream of the API server: what the answers to lists of the kinds that it need not serve come to."""
    SILENCES = "silences"
    """No stream of the API server: what the lists of Leases come to."""
    CAPACITY_NOTES = "capacity-notes"
    """No stream of the API server: what it answered where nodes were asked for in vain."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One stream: where its objects are, and what is kept of each."""

    stream: Stream
    group: str  # empty for the core group
    version: str
    plural: str
    kind: str
    namespaced: bool
    decode: Callable[[bytes], ClusterObject | None]
    """Object of one JSON document; None for an irrelevant one. Raises for an unreadable document."""
    convert: Callable[[object], ClusterObject | None]
    """The same of plain dicts and lists."""
    key: Callable[[Any], ObjectKey]
    holds: tuple[type, ...]
    """Types of its objects."""
    tables: tuple[Table[Any, Any], ...]
    field_selector: str | None = None
    label_selector: str | None = None
    older_versions: tuple[str, ...] = ()
    """For a kind that a cluster may not serve, newest first; the first served one is read."""
    may_be_unserved: bool = False
    """Whether a cluster need not serve it: then nothing of it is there."""

    @property
    def versions(self) -> tuple[str, ...]:
        """All readable versions, newest first."""
        return (self.version, *self.older_versions)


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """The new state of one object; None: it is gone. Its old state does not matter."""

    stream: Stream
    key: ObjectKey
    new: ClusterObject | None


def _struct(
    wire: type[Decoded], keep: Callable[[Decoded], ClusterObject | None]
) -> tuple[Callable[[bytes], ClusterObject | None], Callable[[object], ClusterObject | None]]:
    decoder = msgspec.json.Decoder(wire)

    def decode(document: bytes) -> ClusterObject | None:
        return keep(decoder.decode(document))

    def convert(document: object) -> ClusterObject | None:
        return keep(msgspec.convert(document, wire))

    return decode, convert


def _named(
    value: Node
    | AgentReport
    | ResourceSlice
    | NicSlice
    | PriorityClass
    | DeviceClass
    | DeviceTaintRule
    | PersistentVolume
    | StorageClass
    | ResourceFlavor
    | WorkloadPriorityClass
    | ServedKind
    | Silence,
) -> ObjectKey:
    return "", value.name


def _keyed(value: Pod | Lodger | Placeholder | ResourceClaim | PersistentVolumeClaim) -> ObjectKey:
    return value.key


_DRA = "resource.k8s.io"
_POD = (*_struct(WirePod, pod), _keyed)

KINDS: tuple[Kind, ...] = (
    Kind(Stream.NODES, "", "v1", "nodes", "Node", False, *_struct(WireNode, node), _named, (Node,), (NODES,)),
    Kind(
        Stream.NODE_TOPOLOGIES,
        GROUP,
        VERSION,
        "nodetopologies",
        NODE_TOPOLOGY,
        False,
        report_from_json,
        report_from_builtins,
        _named,
        (AgentReport,),
        (REPORTS, ALLOCATIONS, RUN_ENDS),
    ),
    Kind(
        Stream.CLUSTER_TOPOLOGIES,
        GROUP,
        VERSION,
        "clustertopologies",
        CLUSTER_TOPOLOGY,
        False,
        ClusterTopology.model_validate_json,
        ClusterTopology.parse,
        lambda topology: ("", topology.metadata.name),
        (ClusterTopology,),
        (TOPOLOGIES,),
    ),
    Kind(
        Stream.TRAINING_JOBS,
        GROUP,
        VERSION,
        "trainingjobs",
        TRAINING_JOB,
        True,
        job_from_json,
        job_from_builtins,
        lambda job: (job.key.namespace, job.key.name),
        (TrainingJob, InvalidJob),
        (JOBS, INVALID_JOBS, BOOKINGS, AWAITING, BLAMED),
    ),
    Kind(Stream.CHILD_PODS, "", "v1", "pods", "Pod", True, *_POD, (Pod,), (PODS,), label_selector=JOB_LABEL),
    Kind(
        Stream.OTHER_PODS,
        "",
        "v1",
        "pods",
        "Pod",
        True,
        *_POD,
        (Pod, Lodger, Placeholder),
        (PODS, LODGERS, PLACEHOLDERS),
        field_selector="status.phase!=Succeeded,status.phase!=Failed",
        label_selector=f"!{JOB_LABEL}",
    ),
    Kind(
        Stream.RESOURCE_SLICES,
        _DRA,
        "v1",
        "resourceslices",
        "ResourceSlice",
        False,
        *_struct(WireResourceSlice, resource_slice),
        _named,
        (ResourceSlice, NicSlice),
        (SLICES, NIC_SLICES),
    ),
    Kind(
        Stream.RESOURCE_CLAIMS,
        _DRA,
        "v1",
        "resourceclaims",
        "ResourceClaim",
        True,
        *_struct(WireResourceClaim, resource_claim),
        _keyed,
        (ResourceClaim,),
        (CLAIMS,),
    ),
    Kind(
        Stream.PRIORITY_CLASSES,
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        False,
        *_struct(WirePriorityClass, priority_class),
        _named,
        (PriorityClass,),
        (PRIORITIES,),
    ),
    Kind(
        Stream.DEVICE_CLASSES,
        _DRA,
        "v1",
        "deviceclasses",
        "DeviceClass",
        False,
        *_struct(WireDeviceClass, device_class),
        _named,
        (DeviceClass,),
        (DEVICE_CLASSES,),
    ),
    Kind(
        Stream.DEVICE_TAINT_RULES,
        _DRA,
        "v1",
        "devicetaintrules",
        "DeviceTaintRule",
        False,
        *_struct(WireDeviceTaintRule, device_taint_rule),
        _named,
        (DeviceTaintRule,),
        (DEVICE_TAINT_RULES,),
        # Beta in Kubernetes 1.36, alpha before, and off in both unless an admin turns it on.
        older_versions=("v1beta2", "v1alpha3"),
        may_be_unserved=True,
    ),
    Kind(
        Stream.PERSISTENT_VOLUME_CLAIMS,
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        True,
        *_struct(WirePersistentVolumeClaim, claim),
        _keyed,
        (PersistentVolumeClaim,),
        (VOLUME_CLAIMS,),
    ),
    Kind(
        Stream.PERSISTENT_VOLUMES,
        "",
        "v1",
        "persistentvolumes",
        "PersistentVolume",
        False,
        *_struct(WirePersistentVolume, volume),
        _named,
        (PersistentVolume,),
        (VOLUMES,),
    ),
    Kind(
        Stream.STORAGE_CLASSES,
        "storage.k8s.io",
        "v1",
        "storageclasses",
        "StorageClass",
        False,
        *_struct(WireStorageClass, storage_class),
        _named,
        (StorageClass,),
        (STORAGE_CLASSES,),
    ),
    Kind(
        Stream.WORKLOADS,
        KUEUE_GROUP,
        KUEUE_VERSION,
        "workloads",
        WORKLOAD,
        True,
        *_struct(WireWorkload, workload),
        lambda value: (value.namespace, value.name),
        (Workload,),
        (WORKLOADS,),
        may_be_unserved=True,
    ),
    Kind(
        Stream.RESOURCE_FLAVORS,
        KUEUE_GROUP,
        KUEUE_VERSION,
        "resourceflavors",
        "ResourceFlavor",
        False,
        *_struct(WireResourceFlavor, resource_flavor),
        _named,
        (ResourceFlavor,),
        (RESOURCE_FLAVORS,),
        may_be_unserved=True,
    ),
    Kind(
        Stream.WORKLOAD_PRIORITY_CLASSES,
        KUEUE_GROUP,
        KUEUE_VERSION,
        "workloadpriorityclasses",
        "WorkloadPriorityClass",
        False,
        *_struct(WireWorkloadPriorityClass, workload_priority_class),
        _named,
        (WorkloadPriorityClass,),
        (WORKLOAD_PRIORITIES,),
        may_be_unserved=True,
    ),
    Kind(
        Stream.PROVISIONING_REQUESTS,
        AUTOSCALING_GROUP,
        AUTOSCALING_VERSION,
        "provisioningrequests",
        PROVISIONING_REQUEST,
        True,
        *_struct(WireProvisioningRequest, provisioning_request),
        lambda value: (value.namespace, value.name),
        (ProvisioningRequest,),
        (PROVISIONING,),
        may_be_unserved=True,
    ),
)
_SERVED = Kind(
    Stream.SERVED,
    "",
    "v1",
    "apiresources",
    "APIResource",
    False,
    *_struct(ServedKind, lambda served: served),
    _named,
    (ServedKind,),
    (SERVED,),
)
_CAPACITY_NOTES = Kind(
    Stream.CAPACITY_NOTES,
    "",
    "v1",
    "capacitynotes",
    "CapacityNote",
    True,
    *_struct(CapacityRefusal, lambda refusal: refusal),
    lambda note: tuple(note.job),
    (CapacityRefusal, FirstAsk),
    (CAPACITY_NOTES,),
)
_SILENCES = Kind(
    Stream.SILENCES,
    "coordination.k8s.io",
    "v1",
    "leases",
    "Lease",
    True,
    *_struct(Silence, lambda silence: silence),
    _named,
    (Silence,),
    (SILENCES,),
)
_OWN = (_SERVED, _SILENCES, _CAPACITY_NOTES)  # of no stream of the API server
BY_STREAM: Mapping[Stream, Kind] = {entry.stream: entry for entry in (*KINDS, *_OWN)}
_BY_KIND = {(entry.group, entry.kind): entry for entry in KINDS}
_BY_TYPE = {held: entry for entry in (*KINDS, *_OWN) for held in entry.holds}


def from_document(document: Mapping[str, Any]) -> ClusterObject | None:
    """The object of one manifest as plain dicts and lists, by its apiVersion and kind; None for an irrelevant one,
    other kinds included. Raises msgspec.ValidationError or pydantic.ValidationError for an unreadable shape."""
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    kind = _BY_KIND.get((group, str(document.get("kind", ""))))
    return kind.convert(document) if kind else None


def change(new: ClusterObject) -> ObjectChange:
    """The change for an object from a list or file."""
    stream = pod_stream(new) if isinstance(new, Pod) else _BY_TYPE[type(new)].stream
    return ObjectChange(stream, key_of(new), new)


def key_of(value: ClusterObject) -> ObjectKey:
    """Namespace and name."""
    return _BY_TYPE[type(value)].key(value)


def pod_stream(value: Pod) -> Stream:
    """The stream of a Pod: the label decides, as in the selectors."""
    return Stream.CHILD_PODS if JOB_LABEL in value.labels else Stream.OTHER_PODS
