"""Kubernetes objects for tests, as `kubectl get -o yaml` prints them, in as few words as a table of cases needs.

Names follow the pattern of real clusters; uuids of GPUs are `GPU-<node>-<index>`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]

CREATED = "2026-11-21T09:00:00Z"


def uuids(node: str, *indexes: int) -> list[str]:
    return [f"GPU-{node}-{index}" for index in indexes]


def node(
    name: str = "gpu-1",
    *,
    gpus: int | None = 8,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    ready: str = "True",
    **spec: Any,
) -> Manifest:
    """A Node whose device plugin offers `gpus`; None: it has no device plugin. `spec` takes taints, unschedulable."""
    plugin = {} if gpus is None else {"nvidia.com/gpu": str(gpus)}
    quantities = {"cpu": "128", "memory": "1056Gi", "pods": "110", **plugin, **(allocatable or {})}
    reason = "KubeletReady" if ready == "True" else "NodeStatusUnknown"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": quantities,
            "capacity": quantities,
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready, "reason": reason, "lastHeartbeatTime": CREATED},
            ],
        },
    }


def node_topology(name: str = "gpu-1", *, count: int = 8, generation: int = 4, **status: Any) -> Manifest:
    """A machine of `count` GPUs that nothing joins. `status` takes heartbeatTime, gpus, nics, allocations, …"""
    return {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "NodeTopology",
        "metadata": {"name": name, "generation": generation},
        "spec": {
            "source": {"method": "Simulated"},
            "gpus": [
                {"index": index, "uuid": uuid, "pciAddress": f"0000:{16 + index:02x}:00.0", "product": "NVIDIA-H200"}
                for index, uuid in enumerate(uuids(name, *range(count)))
            ],
        },
        "status": status,
    }


def mig_uuids(node: str, gpu: int, count: int = 7) -> list[str]:
    return [f"MIG-{node}-{gpu}-{number}" for number in range(count)]


def cut(topology: Manifest, gpu: int, profile: str = "1g.18gb", count: int = 7) -> Manifest:
    """The machine with one GPU cut into MIG devices of 16 GiB, beside those that it is cut into already."""
    name, gpus = topology["metadata"]["name"], list(topology["spec"]["gpus"])
    before = gpus[gpu].get("mig", {}).get("devices", [])
    uuids = mig_uuids(name, gpu, len(before) + count)[len(before) :]
    devices = [{"uuid": uuid, "profile": profile, "memoryBytes": 16 << 30} for uuid in uuids]
    gpus[gpu] = {**gpus[gpu], "mig": {"mode": "Enabled", "devices": [*before, *devices]}}
    return {**topology, "spec": {**topology["spec"], "gpus": gpus}}


def mig_slice(node: str = "gpu-1", gpu: int = 0, count: int = 7) -> Manifest:
    """The slice of a node all of whose devices are of one GPU, as NVIDIA's driver names those that were cut before."""
    part = resource_slice(node, range(count))
    for number, device in enumerate(part["spec"]["devices"]):
        device["name"] = f"gpu-{gpu}-mig-1g.18gb-19-{number}"
        device["attributes"] |= {
            "type": {"string": "mig"},
            "uuid": {"string": mig_uuids(node, gpu, count)[number]},
            "parentUUID": {"string": f"GPU-{node}-{gpu}"},
            "profile": {"string": "1g.18gb"},
        }
    return part


def allocation(namespace: str, pod: str, devices: Sequence[str], uid: str | None = None) -> Manifest:
    """One entry of NodeTopology.status.allocations."""
    entry = {"namespace": namespace, "pod": pod, "container": "main", "devices": list(devices)}
    return {**entry, "podUID": uid} if uid else entry


def pod(
    name: str = "notebook",
    *,
    namespace: str = "ml",
    node: str | None = "gpu-1",
    requests: Mapping[str, str] | None = None,
    phase: str = "Running",
    uid: str | None = None,
    claims: Sequence[str] = (),
) -> Manifest:
    """Somebody's Pod; it asks for one GPU of the device plugin where nothing else is said."""
    wanted = {"nvidia.com/gpu": "1"} if requests is None else dict(requests)
    spec: Manifest = {"containers": [{"name": "main", "resources": {"requests": wanted, "limits": wanted}}]}
    if node is not None:
        spec["nodeName"] = node
    if claims:
        spec["resourceClaims"] = [{"name": f"gpus-{claim}", "resourceClaimName": claim} for claim in claims]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-of-{name}"},
        "spec": spec,
        "status": {"phase": phase},
    }


def told(pod: Manifest, *resources: tuple[str, Sequence[str]]) -> Manifest:
    """The Pod with what the kubelet says of its container in its status: names of resources with their devices."""
    given = [{"name": name, "resources": [{"resourceID": each} for each in ids]} for name, ids in resources]
    status = {**pod["status"], "containerStatuses": [{"name": "main", "allocatedResourcesStatus": given}]}
    return {**pod, "status": status}


def worker(
    job: str = "train",
    index: int = 0,
    *,
    attempt: int = 1,
    gpus: Sequence[str] = (),
    namespace: str = "team-b",
    job_uid: str | None = None,
    pin: str | None = None,
    **others: Any,
) -> Manifest:
    """A worker Pod of a TrainingJob, as the operator makes it; `gpus` are the uuids of its annotation, and so many it
    asks for, or one, where nothing else is said."""
    others = {"requests": {"nvidia.com/gpu": str(len(gpus) or 1)}, **others}
    made = pod(f"{job}-a{attempt}-worker-{index:05d}", namespace=namespace, **others)
    made["metadata"]["labels"] = {
        "closeknit.dev/job": job,
        "closeknit.dev/attempt": str(attempt),
        "closeknit.dev/role": "worker",
        "closeknit.dev/index": str(index),
    }
    made["metadata"]["ownerReferences"] = [owner(job, uid=job_uid or f"uid-of-{job}")]
    if gpus:
        made["metadata"]["annotations"] = {"closeknit.dev/gpus": ",".join(gpus)}
    if pin:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pin]}]}
        required = {"nodeSelectorTerms": [term]}
        made["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return made


def owner(job: str, *, uid: str) -> Manifest:
    return {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": job,
        "uid": uid,
        "controller": True,
    }


def training_job(
    name: str = "train", *, namespace: str = "team-b", spec: Mapping[str, Any] | None = None, **status: Any
) -> Manifest:
    template = {"spec": {"containers": [{"name": "trainer", "image": "registry.example/train:1"}]}}
    return {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "creationTimestamp": CREATED},
        "spec": {"gpus": 2, "template": template, **(spec or {})},
        "status": status,
    }


def booked(
    *shares: tuple[str, Sequence[int]],
    binding: str = "WholeNode",
    nics: Sequence[str] = (),
    rdma_resource: str = "rdma/hca",
) -> Manifest:
    """The placement of a job's status: (node, GPU indexes) of each share."""
    nodes = []
    first = 0
    for position, (name, gpus) in enumerate(shares):
        share: Manifest = {
            "name": name,
            "gpus": list(gpus),
            "ranks": f"{first}-{first + len(gpus) - 1}",
            "binding": binding,
            "topologyGeneration": 4,
        }
        if position == 0:
            share["nics"] = list(nics)
            if nics:
                share["rdmaResource"] = rdma_resource
        nodes.append(share)
        first += len(gpus)
    return {"nodeCount": len(nodes), "nodes": nodes}


def condition(kind: str, status: str = "True", reason: str = "Because") -> Manifest:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": CREATED}


def resource_slice(
    node: str = "gpu-1",
    indexes: Sequence[int] = range(8),
    *,
    generation: int = 1,
    part: int = 0,
    count: int = 1,
    driver: str = "gpu.nvidia.com",
    devices: Mapping[int, Manifest] | None = None,
) -> Manifest:
    """One slice of a node's pool; `devices` adds fields (taints, …) to some of its devices, by index."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}-{generation}-{part}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
            "devices": [
                {
                    "name": f"gpu-{index}",
                    "attributes": {
                        "type": {"string": "gpu"},
                        "uuid": {"string": f"GPU-{node}-{index}"},
                        "driverVersion": {"version": "580.126.9"},
                    },
                    "capacity": {"memory": {"value": "141Gi"}},
                    **(devices or {}).get(index, {}),
                }
                for index in indexes
            ],
        },
    }


def nic_slice(
    node: str = "gpu-1",
    addresses: Sequence[str] = (),
    *,
    generation: int = 1,
    part: int = 0,
    count: int = 1,
    devices: Mapping[int, Manifest] | None = None,
) -> Manifest:
    """DRANET's slice of a node: the interface that everybody has, and an RDMA NIC `nic-<row>` for each PCI address."""
    lone = {"name": "net-eth0", "attributes": {"dra.net/ifName": {"string": "eth0"}, "dra.net/rdma": {"bool": False}}}
    nics = [
        {
            "name": f"nic-{row}",
            "attributes": {"dra.net/pciAddress": {"string": address}, "dra.net/rdma": {"bool": True}},
            **(devices or {}).get(row, {}),
        }
        for row, address in enumerate(addresses)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-dra.net-{generation}-{part}"},
        "spec": {
            "driver": "dra.net",
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
            "devices": [lone, *nics],
        },
    }


def nic_claim(name: str, *results: tuple[str, int], namespace: str = "ml") -> Manifest:
    """A claim that was given (node, row) of DRANET's NICs."""
    claim = resource_claim(name, *results, namespace=namespace, driver="dra.net")
    for given in claim["status"]["allocation"]["devices"]["results"]:
        given["device"] = given["device"].replace("gpu", "nic")
    return claim


def resource_claim(
    name: str = "notebook-gpus",
    *results: tuple[str, int],
    namespace: str = "ml",
    job: str | None = None,
    admin: bool = False,
    driver: str = "gpu.nvidia.com",
) -> Manifest:
    """A claim that was given (node, index); without any it waits."""
    metadata: Manifest = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
    if job:
        metadata["labels"] = {"closeknit.dev/job": job}
    given = [
        {"request": "gpus", "driver": driver, "pool": node, "device": f"gpu-{index}", "adminAccess": admin or None}
        for node, index in results
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        "status": {"allocation": {"devices": {"results": given}}} if given else {},
    }


def priority_class(name: str, value: int, *, is_default: bool = False, preempts: bool = True) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": is_default,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
    }


def device_class(name: str, resource: str | None = None, *, selectors: Sequence[str] = ()) -> Manifest:
    """One that stands for an extended resource, too, where that is given."""
    cel = {"selectors": [{"cel": {"expression": each}} for each in selectors]} if selectors else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {**({"extendedResourceName": resource} if resource else {}), **cel},
    }


def device_taint_rule(
    name: str = "broken", *, effect: str = "NoSchedule", version: str = "v1", **selector: Any
) -> Manifest:
    """One that taints the devices of these: driver, pool, device."""
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": effect}},
    }


def storage_class(
    name: str = "fast", *, waits: bool = True, provisioner: str = "disk.example.com", zones: Sequence[str] = ()
) -> Manifest:
    """One whose claims wait for their first Pod; with zones: one that makes volumes in these alone."""
    terms = [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": list(zones)}]}]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        **({"allowedTopologies": terms} if zones else {}),
    }


def volume_claim(
    name: str = "data",
    *,
    volume: str = "",
    bound: bool = True,
    storage_class: str | None = "fast",
    mode: str = "ReadWriteMany",
    selected_node: str = "",
    namespace: str = "team-b",
    phase: str = "",
) -> Manifest:
    """A PersistentVolumeClaim: bound where it names a volume, unless that is still to come."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume and bound else {}
    if selected_node:
        annotations["volume.kubernetes.io/selected-node"] = selected_node
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "annotations": annotations},
        "spec": {
            "accessModes": [mode],
            "resources": {"requests": {"storage": "10Gi"}},
            **({"storageClassName": storage_class} if storage_class is not None else {}),
            **({"volumeName": volume} if volume else {}),
        },
        "status": {"phase": phase or ("Bound" if annotations else "Pending")},
    }


def volume(
    name: str = "pv-1",
    *,
    claim: str | None = "data",
    hosts: Sequence[str] = (),
    zones: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    storage_class: str = "fast",
    mode: str = "ReadWriteMany",
    size: str = "10Gi",
) -> Manifest:
    """A PersistentVolume: of a claim of team-b, or free; for these hosts or zones alone."""
    wanted = [("kubernetes.io/hostname", hosts), ("topology.kubernetes.io/zone", zones)]
    expressions = [{"key": key, "operator": "In", "values": list(values)} for key, values in wanted if values]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}
    reference = {"claimRef": {"namespace": "team-b", "name": claim, "uid": f"uid-of-{claim}"}} if claim else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "accessModes": [mode],
            "capacity": {"storage": size},
            "storageClassName": storage_class,
            **(affinity if expressions else {}),
            **reference,
        },
        "status": {"phase": "Bound" if claim else "Available"},
    }


def claiming(*claims: str, ephemeral: Mapping[str, Any] | None = None) -> Manifest:
    """A template whose Pods use these claims, and one that is made for each Pod."""
    volumes: list[Manifest] = [
        {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims)
    ]
    if ephemeral is not None:
        volumes.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": dict(ephemeral)}}})
    container = {"name": "trainer", "image": "registry.example/train:1"}
    return {"spec": {"containers": [container], "volumes": volumes}}


def cluster_topology(*levels: str, name: str = "default", **spec: Any) -> Manifest:
    """Levels outermost first, each read from a node label of its own name under `net.example/`."""
    return {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "ClusterTopology",
        "metadata": {"name": name},
        "spec": {"levels": [{"name": level, "nodeLabel": f"net.example/{level}"} for level in levels], **spec},
    }
