"""Readings of the PCI tree."""

import re
from pathlib import Path

from closeknit.agent.discovery.machine.video_capture import CAPTURE_VENDORS
from closeknit.agent.discovery.readings.pci import DMA_FUNCTION, MELLANOX_VENDOR, NVIDIA_VENDOR
from closeknit.agent.discovery.readings.readings import PciReading
from closeknit.agent.sysfs.folder import MAX_ERRORS, Folder, root_folder
from closeknit.agent.sysfs.vital_product_data import card_uuid, vital_product_data

DEVICES = "sys/bus/pci/devices"
NETWORK_CLASS = "0x02"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def pci_devices(root: Path, errors: dict[str, str]) -> tuple[PciReading, ...]:
    """NVIDIA's devices, network cards with their DMA functions, and capture cards, by address."""
    top = root_folder(root, errors)
    found = []
    for name in top.names(DEVICES, "pci"):
        if not ADDRESS.fullmatch(name):
            continue
        quiet = top.with_errors()
        entry = quiet.folder(f"{DEVICES}/{name}", "pci")
        entry = None if entry is None else entry.with_errors()
        reading = None if entry is None else _device(name, entry)
        if reading is not None:
            found.append(reading)
        elif word := next(iter((quiet if entry is None else entry).errors.values()), None):
            # It may be one of ours: its class is unknown.
            errors |= {f"pci/{name}": word} if len(errors) < MAX_ERRORS - 1 else {"pci": "TooMany"}
    return tuple(found)


def _device(address: str, entry: Folder) -> PciReading | None:
    vendor = entry.text("vendor", "vendor")
    device_class = entry.text("class", "device_class")
    is_network = (device_class or "").startswith(NETWORK_CLASS)
    is_listed = is_network or vendor in (NVIDIA_VENDOR, *CAPTURE_VENDORS)
    device = entry.text("device", "device") if is_listed or vendor == MELLANOX_VENDOR else None
    is_dma = vendor == MELLANOX_VENDOR and device == DMA_FUNCTION
    if not (is_listed or is_dma):
        return None
    vital = vital_product_data(entry, "card_uuid") if is_dma else None
    return PciReading(
        address=address,
        path=entry.inside,
        vendor=vendor,
        device=device,
        device_class=device_class,
        numa_node=entry.number("numa_node", "numa_node"),
        # Only what is no part of PCI Express lacks the file; NVML tells the width of a GPU.
        max_link_width=entry.number("max_link_width", "max_link_width") if is_network else None,
        card_uuid=None if vital is None else card_uuid(vital),
        errors=entry.errors,
    )
