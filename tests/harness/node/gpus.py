"""What the stand-in for NVIDIA's device plugin and DRA driver, and DRANET, (harness/go-node/gpus) is told of a node.

A container sees a GPU that it got as /dev/nvidia<minor>, a MIG device as /dev/nvidia-caps/nvidia-cap<number>, a NIC as
/dev/infiniband/uverbs<number>; what is behind each is the machine's /dev/null.
"""

from typing import Any

from closeknit.agent.discovery.readings.pci import address
from closeknit.agent.discovery.simulated.profile import NO_FAULTS, Faults
from closeknit.api.names import NIC_DRA_DRIVER
from closeknit.cluster.node.mig_devices import mig_resource
from harness.machines import nic_device, readings


def pretended(node: str, profile: str, faults: Faults = NO_FAULTS) -> dict[str, Any]:
    """The GPUs that the agent of `node` simulates from this profile, by the same uuids and minor numbers; none that is
    cut into MIG devices."""
    machine = readings(node, profile, faults)
    numa = {device.address: device.numa_node for device in machine.pci}
    return {
        "gpus": [
            {
                "uuid": gpu.uuid,
                "minor": gpu.minor,
                "numaNode": numa.get(address(gpu.bus_id) or ""),
                "product": gpu.name,
                "memoryMiB": (gpu.memory_bytes or 0) >> 20,
                "deviceNodes": _nodes(f"/dev/nvidia{gpu.minor}"),
            }
            for gpu in machine.gpus
            if not gpu.mig_devices
        ]
    }


def pretended_mig(node: str, profile: str, faults: Faults, kind: str) -> dict[str, Any]:
    """The MIG devices that it simulates, all of this `kind`, each numbered in its order."""
    found = [(gpu, device) for gpu in readings(node, profile, faults).gpus for device in gpu.mig_devices]
    return {
        "resource": mig_resource(kind),
        "gpus": [
            {
                "uuid": device.uuid,
                "name": f"gpu-{gpu.minor}-mig-{number}",
                "attributes": {"type": "mig", "uuid": device.uuid, "parentUUID": gpu.uuid, "profile": kind},
                "deviceNodes": _nodes(f"/dev/nvidia-caps/nvidia-cap{number}"),
            }
            for number, (gpu, device) in enumerate(found)
        ],
    }


def pretended_nics(node: str, profile: str) -> dict[str, Any]:
    """The RDMA NICs that it simulates, as DRANET offers them, each numbered in its order."""
    return {
        "driver": NIC_DRA_DRIVER,
        "resource": f"{NIC_DRA_DRIVER}/nic",  # the kind of its CDI devices
        "gpus": [
            {
                "uuid": nic.address,
                "name": nic_device(nic.address),
                "attributes": {"pciAddress": nic.address, "rdma": True, "rdmaDevice": nic.name},
                "deviceNodes": _nodes(f"/dev/infiniband/uverbs{number}"),
            }
            for number, nic in enumerate(readings(node, profile).rdma)
            if nic.address is not None
        ],
    }


def uuids(machine: dict[str, Any]) -> list[str]:
    """Of these GPUs, in their order."""
    return [gpu["uuid"] for gpu in machine["gpus"]]


def _nodes(path: str) -> list[dict[str, str]]:
    return [{"path": path, "hostPath": "/dev/null"}]
