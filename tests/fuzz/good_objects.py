"""One good object or more of every kind that the operator reads."""

import copy
import json
from typing import Any

from closeknit.api.names import QUEUE_LABEL
from closeknit.cluster.kueue.workload import workload_name
from closeknit.cluster.store.watched_kinds import KINDS, Stream
from harness.big_cluster import objects
from harness.machines import notebook

Object = dict[str, Any]
MOMENT = "2026-11-21T12:00:00Z"
JOB: Object = {
    "apiVersion": "closeknit.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "train", "namespace": "ml", "generation": 1, "creationTimestamp": MOMENT},
    "spec": {
        "gpus": 8,
        "framework": "PyTorch",
        "parallelism": {"tensor": 4},
        "topology": {"nvlink": "Preferred", "fabric": {"preferred": "rack", "patience": "10m"}},
        "gpu": {"products": ["NVIDIA-H200"], "binding": "Auto"},
        "network": {"rdma": "Preferred"},
        "queue": "research",
        "priorityClassName": "high",
        "restart": {"limit": 5},
        "template": {
            "metadata": {"labels": {"team": "a"}},
            "spec": {"containers": [{"name": "trainer", "image": "i", "env": [{"name": "A", "value": "b"}]}]},
        },
    },
}
SHARE: Object = {
    "name": "gpu-0000",
    "gpus": list(range(8)),
    "ranks": "0-7",
    "binding": "WholeNode",
    "topologyGeneration": 1,
    "actual": "Unknown",
}
BOOKED: Object = JOB | {
    "metadata": {**JOB["metadata"], "name": "booked"},
    "status": {
        "state": "Running",
        "attempt": 1,
        "epoch": 1,
        "conditions": [{"type": "Placed", "status": "True", "reason": "Booked", "lastTransitionTime": MOMENT}],
        "placement": {"nodeCount": 1, "nodes": [SHARE]},
    },
}
CHILD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "booked-a1-worker-00000",
        "namespace": "ml",
        "labels": {
            "closeknit.dev/job": "booked",
            "closeknit.dev/attempt": "1",
            "closeknit.dev/role": "worker",
            "closeknit.dev/index": "00000",
        },
        "annotations": {"closeknit.dev/gpus": "GPU-0,GPU-1"},
        "ownerReferences": [
            {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "name": "booked", "uid": "uid-booked"}
        ],
    },
    "spec": {
        "nodeName": "gpu-0000",
        "containers": [{"name": "trainer", "resources": {"requests": {"nvidia.com/gpu": "8", "cpu": "4"}}}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"name": "trainer", "state": {"running": {"startedAt": MOMENT}}}],
    },
}
PRIORITY: Object = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
    "globalDefault": False,
}


DEVICE_CLASS: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "fpga"},
    "spec": {"extendedResourceName": "example.com/fpga", "selectors": [{"cel": {"expression": "true"}}]},
}


TAINT_RULE: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "broken"},
    "spec": {
        "deviceSelector": {"driver": "gpu.nvidia.com", "pool": "gpu-0001", "device": "gpu-0"},
        "taint": {"key": "example.com/broken", "effect": "NoSchedule", "timeAdded": MOMENT},
    },
}
STORAGE: tuple[Object, ...] = (
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data",
            "namespace": "ml",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "gpu-0000"},
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "fast",
            "volumeName": "pv-1",
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "10Gi"}},
            "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
        },
        "status": {"phase": "Bound"},
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv-1", "labels": {"topology.kubernetes.io/zone": "a__b"}},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "10Gi"},
            "storageClassName": "fast",
            "claimRef": {"namespace": "ml", "name": "data", "uid": "uid-data"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["x"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
                    ]
                }
            },
        },
        "status": {"phase": "Available"},
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
    },
)


QUEUED: Object = JOB | {
    "metadata": {**JOB["metadata"], "name": "queued", "labels": {QUEUE_LABEL: "research"}},
}
OWNED_BY_QUEUED: Object = {
    "namespace": "ml",
    "ownerReferences": [
        {
            "apiVersion": "closeknit.dev/v1alpha1",
            "kind": "TrainingJob",
            "name": "queued",
            "uid": "uid-queued",
            "controller": True,
        }
    ],
}
OF_OTHERS: tuple[Object, ...] = (
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {**OWNED_BY_QUEUED, "name": workload_name("queued", "uid-queued"), "generation": 1},
        "spec": {
            "queueName": "research",
            "active": True,
            "priority": 7,
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"},
            "podSets": [{"name": "workers", "count": 8, "template": {"spec": {"containers": [{"name": "trainer"}]}}}],
        },
        "status": {
            "conditions": [
                {"type": kind, "status": "True", "reason": kind, "message": "m", "lastTransitionTime": MOMENT}
                for kind in ("QuotaReserved", "Admitted")
            ],
            "admission": {
                "clusterQueue": "gpus",
                "podSetAssignments": [{"name": "workers", "count": 8, "flavors": {"nvidia.com/gpu": "h200"}}],
            },
            "admissionChecks": [
                {
                    "name": "capacity",
                    "state": "Ready",
                    "message": "",
                    "podSetUpdates": [
                        {
                            "name": "workers",
                            "labels": {"a": "b"},
                            "annotations": {"c": "d"},
                            "nodeSelector": {"pool": "h200"},
                            "tolerations": [{"key": "pool", "operator": "Exists"}],
                        }
                    ],
                }
            ],
        },
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "h200"},
        "spec": {"nodeLabels": {"pool": "h200"}, "tolerations": [{"key": "pool", "operator": "Exists"}]},
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 7,
    },
    {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {**OWNED_BY_QUEUED, "name": "queued-capacity-1", "creationTimestamp": MOMENT},
        "spec": {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"},
        "status": {
            "conditions": [
                {"type": "Failed", "status": "True", "reason": "F", "message": "no", "lastTransitionTime": MOMENT}
            ]
        },
    },
)


def _claim() -> Object:
    claim = notebook("gpu-0001", [0, 1])[0]
    device = {"request": "gpus", "driver": "gpu.nvidia.com", "pool": "gpu-0001", "device": "gpu-0"}
    claim["spec"]["devices"]["config"] = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {"a": [1]}}}]
    claim["status"] = {
        "allocation": {"devices": {"results": [device]}},
        "reservedFor": [{"resource": "pods", "name": "notebook-gpu-0001", "uid": "u"}],
    }
    return claim


def good_objects() -> dict[Stream, list[Object]]:
    """By stream; each with what an API server sets."""
    found: dict[Stream, list[Object]] = {kind.stream: [] for kind in KINDS}
    for each in [
        *objects(2),
        JOB,
        BOOKED,
        CHILD,
        PRIORITY,
        DEVICE_CLASS,
        TAINT_RULE,
        *STORAGE,
        _claim(),
        QUEUED,
        *OF_OTHERS,
    ]:
        stream = next(kind.stream for kind in KINDS if kind.kind == each["kind"])
        if each["kind"] == "Pod":
            stream = Stream.CHILD_PODS if each is CHILD else Stream.OTHER_PODS
        new = copy.deepcopy(each)
        new["metadata"] = {"uid": f"uid-{each['metadata']['name']}", "resourceVersion": "5", **new["metadata"]}
        found[stream].append(json.loads(json.dumps(new)))
    return found
