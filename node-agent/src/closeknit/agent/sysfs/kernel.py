"""Readings of the kernel's, the firmware's and the drivers' own files."""

import re
import resource
from pathlib import Path

from closeknit.agent.discovery.readings.readings import CpuReading, KernelReading
from closeknit.agent.sysfs.folder import Folder, root_folder
from closeknit.agent.sysfs.kubelet_config import policies

# Any of these means that NICs can reach GPU memory through peer memory: the test that NCCL makes.
PEER_MEMORY_FILES = (
    "sys/kernel/mm/memory_peers/nv_mem/version",
    "sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "sys/module/nvidia_peermem/version",
)
CPUS = "sys/devices/system/cpu"
CPU_HEAD_BYTES = 1 << 14  # the first CPU takes less than 2 KB; to print all of them takes the kernel milliseconds
IMEX_CHANNELS = b"nvidia-caps-imex-channels"


def kernel(root: Path) -> KernelReading:
    """What is the same for all devices. The limit of locked memory is this process's own."""
    top = root_folder(root, {})
    cpus = (top.head("proc/cpuinfo", "cpu", CPU_HEAD_BYTES) or b"").decode(errors="replace")
    flags = _line(cpus, "flags")
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    devices = top.content("proc/devices", "has_imex_channels", CPU_HEAD_BYTES)
    version = top.head("proc/driver/nvidia/version", "nvidia_version", 1024)
    storage = top.has("proc/driver/nvidia-fs/version", "nvidia_fs_version")
    told = policies(top)
    return KernelReading(
        boot_id=top.text("proc/sys/kernel/random/boot_id", "boot_id"),
        nvidia_load=top.inode("sys/module/nvidia", "nvidia_load"),
        nvidia_version=None if version is None else version.decode(errors="replace").partition("\n")[0] or None,
        nvidia_fs_version=top.text("proc/driver/nvidia-fs/version", "nvidia_fs_version") if storage else None,
        has_peer_memory=_any(top, PEER_MEMORY_FILES, "has_peer_memory"),
        rdma_netns_mode=top.text("sys/module/ib_core/parameters/netns_mode", "rdma_netns_mode"),
        kernel_release=top.text("proc/sys/kernel/osrelease", "kernel_release"),
        cpu_model=_line(cpus, "model name"),
        cpu=_cpu(cpus, top.with_errors()),
        has_hypervisor=None if flags is None else "hypervisor" in flags.split(),
        system_vendor=top.text("sys/class/dmi/id/sys_vendor", "system_vendor"),
        product_name=top.text("sys/class/dmi/id/product_name", "product_name"),
        memlock_bytes=-1 if limit == resource.RLIM_INFINITY else limit,
        has_imex_channels=None if devices is None else IMEX_CHANNELS in devices,
        topology_manager_policy=told.get("topology_manager_policy"),
        cpu_manager_policy=told.get("cpu_manager_policy"),
        memory_manager_policy=told.get("memory_manager_policy"),
        errors=top.errors,
    )


def _any(top: Folder, files: tuple[str, ...], fact: str) -> bool | None:
    """Whether one of the files is there; None if none is and one of them cannot be asked for."""
    found = [top.has(file, fact) for file in files]
    if True in found:
        top.errors.pop(fact, None)
        return True
    return None if None in found else False


def _cpu(lines: str, top: Folder) -> CpuReading:
    return CpuReading(
        vendor=_line(lines, "vendor_id"),
        family=_number(_line(lines, "cpu family")),
        model=_number(_line(lines, "model")),
        implementer=_line(lines, "CPU implementer"),
        part=_line(lines, "CPU part"),
        power=_line(lines, "cpu"),
        sockets=_sockets(top),
        errors=top.errors,
    )


def _sockets(top: Folder) -> int | None:
    """How many sockets have a CPU that is on; None where none says which it is in, or one cannot be read."""
    quiet = top.with_errors()  # a CPU that is off has no such file
    found = set()
    for name in top.names(CPUS, "sockets"):
        if re.fullmatch("cpu[0-9]+", name):
            socket = quiet.number(f"{CPUS}/{name}/topology/physical_package_id", "sockets")
            if quiet.errors.get("sockets", "ENOENT") != "ENOENT":
                top.errors["sockets"] = quiet.errors["sockets"]
                return None
            if socket is not None and socket >= 0:  # virtual machines on Arm print -1
                found.add(socket)
    if not found:
        top.errors.setdefault("sockets", quiet.errors.get("sockets", "NotTold"))
        return None
    return len(found)


def _line(lines: str, name: str) -> str | None:
    """What /proc/cpuinfo prints under this name of the first CPU."""
    found = re.search(rf"^{re.escape(name)}[ \t]*:[ \t]*(.+)$", lines, re.MULTILINE)
    text = found[1].strip() if found else ""
    return text if text and text.isprintable() and len(text) < CPU_HEAD_BYTES else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None
