"""Where the devices of a profile hang: PCI addresses and paths, numbered depth first as firmware does."""

from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.readings import PciReading
from closeknit.agent.discovery.simulated.profile import DISPLAY, GPU, HostBridge, Profile, ProfileError, Slot

NVSWITCH_DEVICE_ID = "0x22a3"  # any of NVSwitch's ids would do: nothing reads it


class Places:
    """PCI addresses and paths of a profile's devices: buses are numbered depth first, as firmware does."""

    def __init__(self, profile: Profile) -> None:
        self.gpus: list[PciReading] = []
        self.displays: set[int] = set()  # those among the GPUs that only drive a screen
        self.nics: dict[str, PciReading] = {}
        self.switches: list[PciReading] = []
        self._next_bus: dict[int, int] = {}
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
        elif isinstance(slot, str):
            self.nics[slot] = _device(above, address, "0x15b3", "0x1021", "0x020700", bridge.numa)
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
