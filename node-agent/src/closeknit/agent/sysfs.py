"""Readings of sysfs, procfs and this process's limits, below any root folder."""

import errno
import re
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from closeknit.agent.discovery.pci import NVIDIA_VENDOR
from closeknit.agent.discovery.readings import KernelReading, PciReading, RdmaPortReading, RdmaReading

NETWORK_CLASS = "0x02"
# Any of these means that NICs can reach GPU memory through peer memory: the test that NCCL makes.
PEER_MEMORY_FILES = (
    "sys/kernel/mm/memory_peers/nv_mem/version",
    "sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "sys/module/nvidia_peermem/version",
)
SWITCH_MANAGEMENT = b"SW_MNG"  # in the vital product data of the HCAs that manage NVSwitches

_T = TypeVar("_T")


def pci_devices(root: Path) -> tuple[PciReading, ...]:
    """NVIDIA's devices and all network cards, by address."""
    found = []
    for entry in _entries(root / "sys/bus/pci/devices"):
        errors: dict[str, str] = {}
        vendor = _text(entry / "vendor", errors, "vendor")
        device_class = _text(entry / "class", errors, "device_class")
        if vendor != NVIDIA_VENDOR and not (device_class or "").startswith(NETWORK_CLASS):
            continue
        numa = _text(entry / "numa_node", errors, "numa_node")
        found.append(
            PciReading(
                address=entry.name,
                path=_inside(entry, root),
                vendor=vendor,
                device=_text(entry / "device", errors, "device"),
                device_class=device_class,
                numa_node=int(numa) if numa is not None and re.fullmatch(r"-?\d+", numa) else None,
                errors=errors,
            )
        )
    return tuple(found)


def rdma_devices(root: Path) -> tuple[RdmaReading, ...]:
    """The devices of /sys/class/infiniband, by name."""
    found = []
    for entry in _entries(root / "sys/class/infiniband"):
        errors: dict[str, str] = {}
        function = (entry / "device").resolve()
        is_pci = re.fullmatch(r"[0-9a-f:.]+", function.name) is not None
        driver = (function / "driver").resolve()
        vital = _read((function / "vpd").read_bytes, errors, "is_switch_management")
        found.append(
            RdmaReading(
                name=entry.name,
                address=function.name if is_pci else None,
                node_type=_text(entry / "node_type", errors, "node_type"),
                driver=driver.name if driver.name != "driver" else None,
                netdevs=tuple(net.name for net in _entries(function / "net")),
                is_virtual_function=(function / "physfn").exists(),
                is_switch_management=None if vital is None else SWITCH_MANAGEMENT in vital,
                ports=tuple(_port(port) for port in _entries(entry / "ports") if port.name.isdigit()),
                errors=errors,
            )
        )
    return tuple(found)


def kernel(root: Path) -> KernelReading:
    """Files of the kernel, firmware and drivers. The limit of locked memory is this process's own."""
    errors: dict[str, str] = {}
    cpus = _read(lambda: (root / "proc/cpuinfo").read_text(errors="replace"), errors, "cpu_model") or ""
    model = re.search(r"^model name\s*:\s*(.+)$", cpus, re.MULTILINE)
    flags = re.search(r"^flags\s*:(.*)$", cpus, re.MULTILINE)
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    nvidia = _text(root / "proc/driver/nvidia/version", errors, "nvidia_version")
    storage = _text(root / "proc/driver/nvidia-fs/version", errors, "nvidia_fs_version")
    if errors.get("nvidia_fs_version") == "ENOENT":
        del errors["nvidia_fs_version"]  # that it is not loaded is a fact
    return KernelReading(
        nvidia_version=nvidia.splitlines()[0] if nvidia else None,
        nvidia_fs_version=storage,
        has_peer_memory=any((root / file).exists() for file in PEER_MEMORY_FILES),
        rdma_netns_mode=_text(root / "sys/module/ib_core/parameters/netns_mode", errors, "rdma_netns_mode"),
        kernel_release=_text(root / "proc/sys/kernel/osrelease", errors, "kernel_release"),
        cpu_model=model[1].strip() if model else None,
        has_hypervisor="hypervisor" in flags[1].split() if flags else None,
        system_vendor=_text(root / "sys/class/dmi/id/sys_vendor", errors, "system_vendor"),
        product_name=_text(root / "sys/class/dmi/id/product_name", errors, "product_name"),
        memlock_bytes=-1 if limit == resource.RLIM_INFINITY else limit,
        errors=errors,
    )


def _port(folder: Path) -> RdmaPortReading:
    errors: dict[str, str] = {}
    return RdmaPortReading(
        port=int(folder.name),
        state=_text(folder / "state", errors, "state"),
        link_layer=_text(folder / "link_layer", errors, "link_layer"),
        rate=_text(folder / "rate", errors, "rate"),
        errors=errors,
    )


def _entries(folder: Path) -> Iterator[Path]:
    """What is in a folder, by name; nothing where there is no such folder."""
    try:
        yield from sorted(folder.iterdir())
    except OSError:
        return


def _text(file: Path, errors: dict[str, str], name: str) -> str | None:
    text = _read(lambda: file.read_text(errors="replace"), errors, name)
    return text.strip() if text is not None else None


def _read(read: Callable[[], _T], errors: dict[str, str], name: str) -> _T | None:
    try:
        return read()
    except OSError as error:
        errors[name] = errno.errorcode.get(error.errno or 0, type(error).__name__)
        return None


def _inside(entry: Path, root: Path) -> str:
    """The resolved path as it is called inside of `root`."""
    return "/" + str(entry.resolve().relative_to(root.resolve()))
