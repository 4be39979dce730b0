"""What the stand-in for NVIDIA's device plugin and DRA driver (harness/go-node/gpus) is told of a node's GPUs."""

from typing import Any

from harness.machines import readings


def pretended(node: str, profile: str) -> dict[str, Any]:
    """The GPUs that the agent of `node` simulates from this profile, by the same uuids and minor numbers.

    A container sees those that it got as /dev/nvidia<minor>; what is behind each is the machine's /dev/null.
    """
    return {
        "gpus": [
            {
                "uuid": gpu.uuid,
                "minor": gpu.minor,
                "product": gpu.name,
                "memoryMiB": (gpu.memory_bytes or 0) >> 20,
                "deviceNodes": [{"path": f"/dev/nvidia{gpu.minor}", "hostPath": "/dev/null"}],
            }
            for gpu in readings(node, profile).gpus
        ]
    }


def uuids(machine: dict[str, Any]) -> list[str]:
    """Of these GPUs, in their order."""
    return [gpu["uuid"] for gpu in machine["gpus"]]
