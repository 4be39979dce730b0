"""Where the devices of a profile hang: PCI addresses and paths, numbered depth first as firmware does."""

import hashlib

from msgspec.structs import replace

from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.readings import PciReading
from closeknit.agent.discovery.simulated.profile import (
    DISPLAY,
    DMA_SUFFIX,
    GPU,
    HostBridge,
    Profile,
    ProfileError,
    Slot,
)

CONNECTX = {7: "0x1021", 8: "0x1023"}
DMA_CLASS = "0x088000"  # other system peripheral; nothing reads it
NVSWITCH_DEVICE_ID = "0x22a3"  # any of NVSwitch's ids would do: nothing reads it


def card_uuid(nic: str) -> str:
    """What all functions of a NIC's card have in their vital product data."""
    return hashlib.sha256(f"closeknit simulated card of {nic}".encode()).hexdigest()[:32]


class Places:
    """PCI addresses and paths of a profile's devices: buses are numbered depth first, as firmware does."""

    def __init__(self, profile: Profile) -> None:
        self.gpus: list[PciReading] = []
        self.displays: set[int] = set()  # those among the GPUs that only drive a screen
        self.nics: dict[str, PciReading] = {}
        self.dma_functions: dict[str, PciReading] = {}  # by the name of their NIC
        self.switches: list[PciReading] = []
        self._next_bus: dict[int, int] = {}
        self._nic_device = CONNECTX[profile.nic.connectx if profile.nic is not None else 7]
        for bridge in profile.host_bridges:
            root_bus = self._bus(bridge.domain)
            root = f"/sys/devices/pci{bridge.domain:04x}:{root_bus:02x}"
            for number, slot in enumerate(bridge.ports):
                port = f"{bridge.domain:04x}:{root_bus:02x}:{number + 1:02x}.0"
                if profile.virtual:
                    self._hang(slot, root, port, bridge)
                else:
                    self._place(slot, f"{root}/{port}", bridge)
        if profile.nvlink is not None and not profile.nvlink.hidden:
            domain = profile.host_bridges[-1].domain
            for _ in range(profile.nvlink.switches):
                bus = self._bus(domain)
                path = f"/sys/devices/pci{domain:04x}:{bus:02x}"
                address = f"{domain:04x}:{self._bus(domain):02x}:00.0"
                self.switches.append(
                    _device(path, address, pci.NVIDIA_VENDOR, NVSWITCH_DEVICE_ID, pci.NVSWITCH_CLASS, -1)
                )

    def _place(self, slot: Slot, above: str, bridge: HostBridge) -> None:
        bus = self._bus(bridge.domain)
        if isinstance(slot, list):
            upstream = f"{above}/{bridge.domain:04x}:{bus:02x}:00.0"
            inside = self._bus(bridge.domain)
            for number, below in enumerate(slot):
                self._place(below, f"{upstream}/{bridge.domain:04x}:{inside:02x}:{number:02x}.0", bridge)
        else:
            self._hang(slot, above, f"{bridge.domain:04x}:{bus:02x}:00.0", bridge)

    def _hang(self, slot: Slot, above: str, address: str, bridge: HostBridge) -> None:
        if slot in (GPU, DISPLAY):
            device_class = "0x030200" if slot == GPU else "0x030000"
            if slot == DISPLAY:
                self.displays.add(len(self.gpus))
            self.gpus.append(_device(above, address, pci.NVIDIA_VENDOR, "0x2335", device_class, bridge.numa))
        elif isinstance(slot, str) and slot.endswith(DMA_SUFFIX):
            function = _device(above, address, pci.MELLANOX_VENDOR, pci.DMA_FUNCTION, DMA_CLASS, bridge.numa)
            name = slot.removesuffix(DMA_SUFFIX)
            self.dma_functions[name] = replace(function, card_uuid=card_uuid(name))
        elif isinstance(slot, str):
            self.nics[slot] = _device(above, address, pci.MELLANOX_VENDOR, self._nic_device, "0x020700", bridge.numa)
        else:
            raise ProfileError("a virtual machine's devices hang straight on their root: its tree has no switches")

    def _bus(self, domain: int) -> int:
        bus = self._next_bus.get(domain, 0)
        self._next_bus[domain] = bus + 1
        return bus


def _device(above: str, address: str, vendor: str, device: str, device_class: str, numa: int) -> PciReading:
    return PciReading(
        address=address,
        path=f"{above}/{address}",
        vendor=vendor,
        device=device,
        device_class=device_class,
        numa_node=numa,
    )
