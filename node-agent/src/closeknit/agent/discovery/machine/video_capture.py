"""Video capture cards that can write into GPU memory (GPUDirect Video), concluded from the PCI tree. Pure.

A vendor that lists GPUDirect for its cards is all that PCI tells: whether this card's driver was built with it is not.
"""

from collections.abc import Mapping, Sequence

from closeknit.agent.discovery.machine import pcie_levels
from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.plausible import possible
from closeknit.agent.discovery.readings.readings import PciReading, Readings
from closeknit.api.nodetopology import MAX_CAPTURE_DEVICES, CaptureDevice

# Ids: the PCI ID Repository (pci-ids.ucw.cz), 2026-08. Whose cards: NVIDIA's partners for GPUDirect for Video (AJA,
# Blackmagic, Deltacast, DVS and Matrox, announced at NAB 2011), and BitFlow by its own pages; Magewell and YUAN are
# taken as such, unverified. Bluefish444 is a partner, too, but its id is in no list.
CAPTURE_VENDORS: Mapping[str, str] = {
    "0xf1d0": "AJA",
    "0xbdbd": "Blackmagic",
    "0x1b66": "Deltacast",
    "0x1a55": "DVS",
    "0x102b": "Matrox",
    "0x1cd7": "Magewell",
    "0x12ab": "YUAN",
    "0x118d": "BitFlow",
}
# Multimedia video and other multimedia controllers. The rest is no capture: the audio of a card that counts already,
# the bridge that some cards have on board, and Matrox's graphics in the management processor of half of all servers.
VIDEO_CLASSES = ("0x0400", "0x0480")


def is_capture(device: PciReading) -> bool:
    """Whether this function is a capture card of a vendor whose cards reach GPU memory."""
    return device.vendor in CAPTURE_VENDORS and (device.device_class or "").startswith(VIDEO_CLASSES)


def capture_devices(readings: Readings, gpus: Sequence[PciReading | None]) -> list[CaptureDevice]:
    """The cards by address, with their PCIe level to each GPU in the order of `gpus`; as many as the object holds."""
    cards = [device for device in readings.pci if is_capture(device) and pci.is_address(device.address)]
    return [
        possible(
            CaptureDevice,
            pci_address=device.address,
            product=f"{CAPTURE_VENDORS[device.vendor or '']} {(device.device or '').removeprefix('0x')}".strip(),
            gpu_levels=pcie_levels.to_gpus(device, gpus),
        )
        for device in sorted(cards, key=lambda device: device.address)[:MAX_CAPTURE_DEVICES]
    ]
