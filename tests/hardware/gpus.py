"""The GPUs of this machine, as the stand-in for NVIDIA's drivers is told of them (harness/go-node/gpus)."""

import os
import re
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from closeknit.agent.discovery.simulated.simulation import gpu_uuid

# Multicast can put GPUs that others share out of service: it stays off in every process.
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
COMMON_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
PROC = Path("/proc/driver/nvidia/gpus")
PRETENDED_PROFILE, PRETENDED_GPUS = "hgx-h100-4", 4


@dataclass(frozen=True, slots=True)
class RealGpu:
    """One GPU."""

    uuid: str
    minor: int
    """The N of /dev/nvidiaN."""
    pci: str
    """As sysfs writes it."""
    product: str
    memory_mib: int
    node: str
    """Its device node on this machine."""


def real_gpus() -> list[RealGpu]:
    """Those that nvidia-smi lists, in its order, which is that of their PCI addresses."""
    query = ["nvidia-smi", "--query-gpu=uuid,pci.bus_id,name,memory.total", "--format=csv,noheader,nounits"]
    said = subprocess.run(query, check=True, capture_output=True, text=True, timeout=60).stdout
    found = []
    for line in said.splitlines():
        uuid, bus_id, product, memory = (part.strip() for part in line.split(","))
        pci = bus_id.lower()[-12:]  # nvidia-smi prints a domain of eight digits, sysfs one of four
        minor = re.search(r"^Device Minor:\s*(\d+)", (PROC / pci / "information").read_text(), re.MULTILINE)
        assert minor is not None, f"{PROC / pci} has no minor number"
        found.append(RealGpu(uuid, int(minor[1]), pci, product, int(memory), f"/dev/nvidia{minor[1]}"))
    return found


def pretended_gpus(node: str, folder: Path) -> list[RealGpu]:
    """Those of the machine that the agent simulates on this node; their device nodes are so many /dev/null."""
    folder.mkdir(exist_ok=True)
    found = []
    for index in range(PRETENDED_GPUS):
        path = folder / f"nvidia{index}"
        if not path.exists():
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        found.append(RealGpu(gpu_uuid(node, index), index, f"0000:{index:02x}:00.0", "pretended", 80 << 10, str(path)))
    return found


def machine(gpus: Sequence[RealGpu], mounts: Mapping[str, Path], environment: Mapping[str, str]) -> dict[str, Any]:
    """What the stand-in reads; `mounts`: what a container with a GPU sees, and where that is here."""
    return {
        "gpus": [
            {
                "uuid": gpu.uuid,
                "minor": gpu.minor,
                "product": gpu.product,
                "memoryMiB": gpu.memory_mib,
                "pciBusID": gpu.pci,
                "deviceNodes": [
                    {"path": f"/dev/nvidia{gpu.minor}", "hostPath": gpu.node, "permissions": "rw"},
                ],
            }
            for gpu in gpus
        ],
        "deviceNodes": [{"path": node, "permissions": "rw"} for node in COMMON_NODES if Path(node).exists()],
        "mounts": [{"hostPath": str(folder), "containerPath": seen} for seen, folder in mounts.items()],
        "env": [f"{name}={value}" for name, value in {**environment, **WITHOUT_MULTICAST}.items()],
    }
