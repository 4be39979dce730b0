"""What a snapshot keeps of each object: the fields that decisions read, and no words of anybody.

A field that is not listed here stays out: commands, variables, images, annotations, messages, addresses, handles of
volumes. `...` keeps what stands below as it is.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from closeknit.api.names import PLACEHOLDER_LABEL
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import PlacementStatus
from closeknit.cluster.booking.booking import assignments
from closeknit.cluster.capacity.placeholder import Placeholder
from closeknit.cluster.store.watched_kinds import from_document

Shape = Mapping[str, Any]
"""Field -> what is kept below it: a shape, also of each entry of a list, or `...` for all of it."""

_METADATA: Shape = {
    "name": ...,
    "namespace": ...,
    "uid": ...,
    "labels": ...,
    "generation": ...,
    "creationTimestamp": ...,
    "deletionTimestamp": ...,
    "ownerReferences": {"apiVersion": ..., "kind": ..., "name": ..., "uid": ..., "controller": ...},
}
_CONDITIONS: Shape = {"type": ..., "status": ..., "reason": ..., "lastTransitionTime": ..., "observedGeneration": ...}
_STATE: Shape = {
    "running": {"startedAt": ...},
    "waiting": {"reason": ...},
    "terminated": {"exitCode": ..., "reason": ..., "startedAt": ..., "finishedAt": ...},
}
_CONTAINERS: Shape = {"name": ..., "resources": ..., "restartPolicy": ...}
_STATUSES: Shape = {"name": ..., "state": _STATE, "ready": ..., "restartCount": ...}
_POD_SPEC: Shape = {
    "nodeName": ...,
    "restartPolicy": ...,
    "priority": ...,
    "priorityClassName": ...,
    "nodeSelector": ...,
    "affinity": {"nodeAffinity": ...},
    "tolerations": ...,
    "containers": _CONTAINERS,
    "initContainers": _CONTAINERS,
    "resourceClaims": ...,
    "overhead": ...,
    "activeDeadlineSeconds": ...,
    "terminationGracePeriodSeconds": ...,
    "volumes": {"name": ..., "persistentVolumeClaim": ...},
}
_PENDING: Shape = {"reason": ..., "since": ..., "queuedSince": ..., "estimatedStart": ..., "reservedSince": ...}
_ATTEMPTS: Shape = {
    "number": ...,
    "reason": ...,
    "charged": ...,
    "ended": ...,
    "inPlace": ...,
    "ran": ...,
    "phases": ...,
    "unfit": ...,
    "blamed": ...,
}
_PLACEMENT_FREE = ("message", "gpuDigest", "limitedBy")
SHAPES: Mapping[str, Shape | None] = {
    "Node": {
        "spec": {"taints": ..., "unschedulable": ...},
        "status": {"allocatable": ..., "capacity": ..., "conditions": _CONDITIONS, "declaredFeatures": ...},
    },
    "NodeTopology": {
        "spec": ...,
        "status": {
            "conditions": _CONDITIONS,
            "heartbeatTime": ...,
            "agentVersion": ...,
            "driverLoad": ...,
            "gpus": ...,
            "nics": ...,
            "linksDown": ...,
            "allocations": ...,
        },
    },
    "ClusterTopology": {"spec": ..., "status": {"conditions": _CONDITIONS}},
    "TrainingJob": {
        "spec": ...,
        "status": {
            "observedGeneration": ...,
            "state": ...,
            "reason": ...,
            "restarts": ...,
            "conditions": _CONDITIONS,
            "attempt": ...,
            "attempts": _ATTEMPTS,
            "charges": ...,
            "startTime": ...,
            "cost": ...,
            "epoch": ...,
            "placement": ...,
            "pending": _PENDING,
            "patientUntil": ...,
            "queuedSince": ...,
        },
    },
    "Pod": {
        "spec": _POD_SPEC,
        "status": {
            "phase": ...,
            "reason": ...,
            "conditions": _CONDITIONS,
            "containerStatuses": _STATUSES,
            "initContainerStatuses": _STATUSES,
            "resourceClaimStatuses": ...,
        },
    },
    "ResourceSlice": {"spec": ...},
    "ResourceClaim": {"spec": {"devices": ...}, "status": {"allocation": ..., "reservedFor": ...}},
    "PriorityClass": {"value": ..., "globalDefault": ...},
    "DeviceClass": {"spec": ...},
    "DeviceTaintRule": {"spec": ...},
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ..., "storageClassName": ..., "volumeName": ..., "volumeMode": ...},
        "status": {"phase": ...},
    },
    "PersistentVolume": {
        "spec": {"accessModes": ..., "storageClassName": ..., "nodeAffinity": ..., "claimRef": ...},
        "status": {"phase": ...},
    },
    "StorageClass": {"provisioner": ..., "volumeBindingMode": ..., "allowedTopologies": ...},
    # Whose quota it is that a job waits for, and what was asked of an autoscaler, are other people's words. Placement
    # reads neither.
    "Workload": None,
    "ResourceFlavor": None,
    "WorkloadPriorityClass": None,
    "ProvisioningRequest": None,
}
"""None for a kind that stays out."""
_NO_WORDS = "-"  # where the schema wants a message


def kept(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The object with what is kept of it; None for a kind that no decision reads, and for placeholder Pods, which hold
    nothing: under another name one would be a Pod that holds GPUs."""
    shape = SHAPES.get(str(body.get("kind")))
    if shape is None:
        return None
    found: dict[str, Any] = _inside(body, {"apiVersion": ..., "kind": ..., "metadata": _METADATA, **shape})
    if found["kind"] == TrainingJob.__name__:
        _job(found)
    return None if _is_placeholder(found) else found


def _is_placeholder(body: Mapping[str, Any]) -> bool:
    labels = body["metadata"].get("labels")
    if not (body["kind"] == "Pod" and isinstance(labels, Mapping) and PLACEHOLDER_LABEL in labels):
        return False
    try:
        return isinstance(from_document(body), Placeholder)
    except msgspec.ValidationError:
        return False


def _inside(value: Any, shape: Any) -> Any:
    if shape is ...:
        return value
    if isinstance(value, list):
        return [_inside(each, shape) for each in value]
    if not isinstance(value, Mapping):
        return {}
    return {name: _inside(value[name], below) for name, below in shape.items() if value.get(name) is not None}


def _job(body: dict[str, Any]) -> None:
    """Its templates are other people's Pods, and its booking may be in columns, in which no name can be found."""
    spec = dict(body.get("spec") or {})
    holders = [spec]
    if isinstance(servers := spec.get("parameterServers"), dict):
        spec["parameterServers"] = servers = dict(servers)
        holders.append(servers)
    for holder in holders:
        template = holder.get("template")
        inner = template.get("spec") if isinstance(template, dict) else None
        holder["template"] = {"spec": _inside(inner or {}, _POD_SPEC)}
        for container in holder["template"]["spec"].get("containers", []):
            container["image"] = "image"
    body["spec"] = spec
    status = body.get("status") or {}
    if (pending := status.get("pending")) is not None:
        pending["message"] = _NO_WORDS
    if (placement := status.get("placement")) is not None:
        nodes = [node.wire() for node in assignments(PlacementStatus.parse(placement))]
        told = {name: value for name, value in placement.items() if name not in (*_PLACEMENT_FREE, "packed")}
        status["placement"] = {**told, "nodes": [_without(node) for node in nodes]}


def _without(node: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in node.items() if name not in _PLACEMENT_FREE}
