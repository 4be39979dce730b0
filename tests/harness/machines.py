"""What a kubelet, NVIDIA's device plugin and its DRA driver would register for a machine, from the agent's profiles.

A `profile` is the name of a machine profile, or the path of a dump file. The agent simulates the same machine from the
same name, so that GPU uuids, addresses and counts agree with what it publishes.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from closeknit.agent.discovery.readings.pci import address
from closeknit.agent.discovery.readings.readings import GpuReading, Readings
from closeknit.agent.discovery.simulated.profile import NO_FAULTS, Faults
from closeknit.agent.discovery.simulated.simulation import gpu_uuid, readings_of
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.names import GPU_DRA_DRIVER, GPU_RESOURCE, MIG_DEVICE_CLASS, NIC_DRA_DRIVER

AGENT_NAMESPACE = "closeknit-system"
OTHER_TEAM = "team-b"
AGENT_SERVICE_ACCOUNT = "closeknit-agent"
RDMA_RESOURCE = "rdma/hca"  # as an admin would call it in k8s-rdma-shared-dev-plugin's configuration
# Of no weight in any decision, but a GPU server's size.
NODE_SIZE = {"cpu": "128", "memory": "2Ti", "pods": "110"}


def readings(name: str, profile: str | Path, faults: Faults = NO_FAULTS) -> Readings:
    """What the agent of node `name` reads."""
    if isinstance(profile, Path):
        return RecordedSource(profile).read()
    return readings_of(load_profile(profile), name, faults)


def node_object(
    name: str, profile: str | Path, *, plugin: bool, labels: dict[str, str] | None = None, rdma: int = 0
) -> dict[str, Any]:
    """A kwok Node; `plugin`: NVIDIA's device plugin offers its GPUs. `rdma`: so many shares of its NICs are offered."""
    resources = dict(NODE_SIZE)
    if plugin:
        resources[GPU_RESOURCE] = str(len(_working(readings(name, profile))))
    if rdma:
        resources[RDMA_RESOURCE] = str(rdma)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"} | (labels or {}),
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "pretended"}],
        },
    }


def resource_slices(name: str, profile: str | Path) -> list[dict[str, Any]]:
    """The ResourceSlices that NVIDIA's DRA driver (release 25.12 and later) publishes for the node's GPUs."""
    machine = readings(name, profile)
    paths = {device.address: device.path for device in machine.pci}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{GPU_DRA_DRIVER}"},
            "spec": {
                "driver": GPU_DRA_DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [_device(gpu, machine, paths) for gpu in _working(machine)],
            },
        }
    ]


def device_class() -> dict[str, Any]:
    """NVIDIA's DeviceClass for whole GPUs."""
    expression = f"device.driver == '{GPU_DRA_DRIVER}' && device.attributes['{GPU_DRA_DRIVER}'].type == 'gpu'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": GPU_DRA_DRIVER},
        "spec": {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": GPU_RESOURCE},
    }


def mig_class() -> dict[str, Any]:
    """NVIDIA's DeviceClass for MIG devices."""
    expression = f"device.driver == '{GPU_DRA_DRIVER}' && device.attributes['{GPU_DRA_DRIVER}'].type == 'mig'"
    return _class(MIG_DEVICE_CLASS, expression)


def nic_class() -> dict[str, Any]:
    """DRANET's DeviceClass, as its documentation has it."""
    return _class("dranet", f'device.driver == "{NIC_DRA_DRIVER}"')


def nic_device(address: str) -> str:
    """How DRANET calls a NIC that has this PCI address."""
    return f"pci-{address.replace(':', '-').replace('.', '-')}"


def _class(name: str, expression: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def notebook(node: str, indexes: Collection[int]) -> list[dict[str, Any]]:
    """Somebody's Pod, in the namespace OTHER_TEAM, and its claim on exactly these GPUs of a simulated machine."""
    uuids = ", ".join(f"'{gpu_uuid(node, index)}'" for index in indexes)
    chosen = {"cel": {"expression": f"device.attributes['{GPU_DRA_DRIVER}'].uuid in [{uuids}]"}}
    exactly = {"deviceClassName": GPU_DRA_DRIVER, "count": len(indexes), "selectors": [chosen]}
    metadata = {"name": f"notebook-{node}", "namespace": OTHER_TEAM}
    container = {"name": "notebook", "image": "notebook", "resources": {"claims": [{"name": "gpus"}]}}
    claims = [{"name": "gpus", "resourceClaimName": metadata["name"]}]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": metadata,
            "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"resourceClaims": claims, "containers": [container]},
        },
    ]


def agent_pod(node: str) -> dict[str, Any]:
    """The agent's Pod on a node, as its DaemonSet would make it: tokens bound to it carry the node's name and uid.

    `LocalCluster.service_account_kubeconfig(AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, pod=…)` then logs in as that agent.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": agent_pod_name(node), "namespace": AGENT_NAMESPACE},
        "spec": {
            "nodeName": node,
            "serviceAccountName": AGENT_SERVICE_ACCOUNT,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "agent", "image": "closeknit-agent"}],
        },
    }


def agent_pod_name(node: str) -> str:
    """Name of the agent's Pod on a node."""
    return f"closeknit-agent-{node}"


def _working(machine: Readings) -> list[GpuReading]:
    return [gpu for gpu in machine.gpus if "handle" not in gpu.errors]


def _device(gpu: GpuReading, machine: Readings, paths: dict[str, str]) -> dict[str, Any]:
    place = address(gpu.bus_id)
    assert place is not None and gpu.compute_capability is not None and machine.driver_version is not None
    major, minor = gpu.compute_capability
    root = re.match(r"/sys/devices/(pci[0-9a-f:]+)/", paths[place])
    assert root is not None
    return {
        "name": f"gpu-{gpu.minor}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": gpu.uuid},
            "productName": {"string": gpu.name},
            "cudaComputeCapability": {"version": f"{major}.{minor}.0"},
            "driverVersion": {"version": _semantic_version(machine.driver_version)},
            "resource.kubernetes.io/pciBusID": {"string": place},
            "resource.kubernetes.io/pcieRoot": {"string": root[1]},
        },
        "capacity": {"memory": {"value": f"{(gpu.memory_bytes or 0) // 2**20}Mi"}},
    }


def _semantic_version(version: str) -> str:
    """580.159.04 -> 580.159.4: the API server takes no leading zeros."""
    return ".".join(str(int(part)) for part in version.split("."))
