"""PCI addresses and distances. Pure."""

import re
from collections.abc import Mapping

from closeknit.agent.discovery.readings.readings import PciReading

_BUS_ID = re.compile(r"^([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])$")
_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_ROOT = re.compile(r"^pci[0-9a-f]{4,8}:[0-9a-f]{2}$")

NVIDIA_VENDOR = "0x10de"
MELLANOX_VENDOR = "0x15b3"
NVSWITCH_CLASS = "0x068000"
DMA_FUNCTION = "0x2100"  # of a ConnectX-8, beside its NIC: Data Direct (the kernel's mlx5_ib, data_direct.c)
# nvmlGpuTopologyLevel_t -> what nvidia-smi topo -m prints for it
NVML_LEVELS: Mapping[int, str] = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


def address(bus_id: str | None) -> str | None:
    """The sysfs address of an NVML bus id, 00000000:1A:00.0 -> 0000:1a:00.0; None for what names no device.

    NVML prints the domain with eight digits, sysfs with at least four. A hidden remote end is FFFFFFFF:FF:FF.0, empty,
    or garbage.
    """
    match = _BUS_ID.match(bus_id or "")
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    if domain == 0xFFFFFFFF or device > 31:  # a bus has 32 devices
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def is_address(text: str) -> bool:
    """Whether sysfs could call a device so."""
    return _ADDRESS.match(text) is not None


def card(address: str | None) -> str:
    """What the functions of one card have in common: 0000:1a:00.1 -> 0000:1a:00."""
    return (address or "").partition(".")[0]


def level(a: PciReading, b: PciReading) -> str | None:
    """PCIe distance of two devices as nvidia-smi prints it; None where a path names no root, or both name one place.

    PIX: at most one bridge (one switch) between them; PXB: several; PHB: through the host bridge; NODE: host bridges of
    one NUMA node; SYS: anything farther, or NUMA nodes unknown.
    """
    chain_a, chain_b = _chain(a.path), _chain(b.path)
    if chain_a is None or chain_b is None:
        return None
    (root_a, below_a), (root_b, below_b) = chain_a, chain_b
    if root_a != root_b:
        node = numa_node(a)
        return "NODE" if node is not None and node == numa_node(b) else "SYS"
    if below_a == below_b:
        return None
    shared = 0
    while shared < min(len(below_a), len(below_b)) and below_a[shared] == below_b[shared]:
        shared += 1
    if shared == 0:
        return "PHB"
    return "PIX" if max(len(below_a), len(below_b)) - shared - 1 <= 1 else "PXB"


def is_flat(device: PciReading) -> bool:
    """Whether the device hangs at a root bus with no bridge above it, as hypervisors present passed-through devices."""
    chain = _chain(device.path)
    return chain is not None and len(chain[1]) <= 1


def is_dma_function(device: PciReading) -> bool:
    """Whether it is the function through which a ConnectX-8 reaches a GPU's memory."""
    return device.vendor == MELLANOX_VENDOR and device.device == DMA_FUNCTION


def _chain(path: str) -> tuple[str, list[str]] | None:
    """The innermost PCI root of a sysfs path, and the addresses below it, outermost first."""
    parts = path.strip("/").split("/")
    roots = [position for position, part in enumerate(parts) if _ROOT.match(part)]
    if not roots:
        return None
    below = []
    for part in parts[roots[-1] + 1 :]:
        if not _ADDRESS.match(part):
            break
        below.append(part)
    return parts[roots[-1]], below


def numa_node(device: PciReading | None) -> int | None:
    """The device's NUMA node; None where the firmware does not say, which the kernel prints as -1."""
    return device.numa_node if device is not None and device.numa_node is not None and device.numa_node >= 0 else None
