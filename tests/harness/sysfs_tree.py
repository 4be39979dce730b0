"""sysfs and procfs of a machine, built below a folder from a short description, laid out as Linux does.

A machine is its host bridges. What hangs at a host bridge is a list of slots, each below a root port of its own: a
device, or a list, which is a PCIe switch with the slots below it. Buses are numbered depth first, as firmware does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device."""

    link_layer: str = "InfiniBand"
    rate: str = "400 Gb/sec (4X NDR)"
    state: str = "4: ACTIVE"
    gids: tuple[tuple[str, str], ...] = ()
    """Type and network interface of each GID."""


@dataclass(frozen=True)
class Rdma:
    """One RDMA device."""

    name: str
    ports: tuple[Port, ...] = (Port(),)
    node_type: str = "1: CA"
    driver: str = "mlx5_core"
    board_id: str | None = "MT_0000000838"
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Device:
    """One PCI function, and the RDMA device that it carries; `functions` more follow it on the same card."""

    vendor: str
    device: str
    device_class: str
    rdma: Rdma | None = None
    netdevs: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    functions: tuple["Device", ...] = ()
    vpd: bytes | None = None
    """Its vital product data, which only root may read."""


Slot = Device | Sequence["Slot"]


@dataclass(frozen=True)
class HostBridge:
    """One PCI root and what hangs below each of its ports."""

    numa: int  # -1 where the firmware does not say
    slots: Sequence[Slot]
    domain: int = 0
    bus: int | None = None
    is_flat: bool = False  # no root ports: every device stands on the root bus, as a hypervisor may show it
    above: str = ""  # folders between /sys/devices and the root, as Hyper-V has them


@dataclass(frozen=True)
class Machine:
    """One machine."""

    bridges: Sequence[HostBridge]
    cpu: str = (
        "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: fpu\n"
    )
    sockets: int = 2
    files: Mapping[str, str] = field(default_factory=dict)


GPU = Device("0x10de", "0x2330", "0x030200")


def nic(
    name: str,
    ports: tuple[Port, ...] = (Port(),),
    board_id: str = "MT_0000000838",
    device: str = "0x1021",
    netdevs: tuple[str, ...] | None = None,
    lanes: int = 16,
) -> Device:
    """A ConnectX-7, with one InfiniBand port unless it is told otherwise."""
    rdma = Rdma(name, ports, board_id=board_id)
    interfaces = (f"ib{name.rpartition('_')[2]}",) if netdevs is None else netdevs
    return Device("0x15b3", device, "0x020700", rdma, interfaces, {"max_link_width": str(lanes)})


def vital_product_data(card_uuid: str, name: str = "NVIDIA ConnectX-8 SuperNIC") -> bytes:
    """What a ConnectX has in them: its name, its parts and serial number, and as V3 what all its functions share."""
    fields = (("PN", "C8280Z"), ("SN", "MT2500000001"), ("V3", card_uuid), ("VA", "MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0"))
    parts = b"".join(keyword.encode() + bytes([len(value)]) + value.encode() for keyword, value in fields)
    items = ((0x82, name.encode()), (0x90, parts))
    return b"".join(bytes([tag]) + len(item).to_bytes(2, "little") + item for tag, item in items) + b"\x78"


def write(file: Path, text: str) -> None:
    """A file and the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


class Tree:
    """The files of one machine below `root`; `gpus` are the addresses of its GPUs in the order of the description."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self.root = root
        self.gpus: list[str] = []
        self.functions: dict[str, Path] = {}
        self._buses: dict[int, int] = {}
        for bridge in machine.bridges:
            self._bridge(bridge)
        write(root / "proc/cpuinfo", "processor\t: 0\n" + machine.cpu + "\nprocessor\t: 1\n" + machine.cpu)
        for number in range(machine.sockets):
            write(root / f"sys/devices/system/cpu/cpu{number}/topology/physical_package_id", f"{number}\n")
        for name, text in machine.files.items():
            write(root / name, text)

    def _bridge(self, bridge: HostBridge) -> None:
        bus = self._bus(bridge.domain, bridge.bus)
        root = self.root / "sys/devices" / bridge.above / f"pci{bridge.domain:04x}:{bus:02x}"
        for number, slot in enumerate(bridge.slots):
            if bridge.is_flat and isinstance(slot, Device):
                self._device(slot, root, f"{bridge.domain:04x}:{bus:02x}:{number:02x}", bridge.numa)
            else:
                self._slot(slot, root / f"{bridge.domain:04x}:{bus:02x}:{number + 1:02x}.0", bridge)

    def _slot(self, slot: Slot, above: Path, bridge: HostBridge) -> None:
        bus = self._bus(bridge.domain)
        if isinstance(slot, Device):
            self._device(slot, above, f"{bridge.domain:04x}:{bus:02x}:00", bridge.numa)
            return
        inside = self._bus(bridge.domain)
        upstream = above / f"{bridge.domain:04x}:{bus:02x}:00.0"
        for number, below in enumerate(slot):
            self._slot(below, upstream / f"{bridge.domain:04x}:{inside:02x}:{number:02x}.0", bridge)

    def _bus(self, domain: int, wanted: int | None = None) -> int:
        bus = self._buses.get(domain, 0) if wanted is None else wanted
        self._buses[domain] = bus + 1
        return bus

    def _device(self, device: Device, above: Path, card: str, numa: int) -> None:
        for number, function in enumerate((device, *device.functions)):
            self._function(function, above / f"{card}.{number}", numa)

    def _function(self, device: Device, folder: Path, numa: int) -> None:
        if device.vendor == GPU.vendor and device.device_class.startswith("0x03"):
            self.gpus.append(folder.name)
        texts = {"vendor": device.vendor, "device": device.device, "class": device.device_class, "numa_node": str(numa)}
        for name, text in (texts | dict(device.files)).items():
            write(folder / name, f"{text}\n")
        if device.vpd is not None:
            (folder / "vpd").write_bytes(device.vpd)
        self._link(self.root / "sys/bus/pci/devices" / folder.name, folder)
        for netdev in device.netdevs:
            write(folder / "net" / netdev / "dev_port", "0\n")
        if device.rdma is not None:
            self.functions[device.rdma.name] = folder
            self.rdma(device.rdma, folder)

    def rdma(self, rdma: Rdma, parent: Path) -> Path:
        """The RDMA device of the device in the folder `parent`; the name of the folder may be that of any bus."""
        driver = self.root / "sys/bus/pci/drivers" / rdma.driver
        driver.mkdir(parents=True, exist_ok=True)
        if not (parent / "driver").exists():
            self._link(parent / "driver", driver)
        folder = parent / "infiniband" / rdma.name
        write(folder / "node_type", f"{rdma.node_type}\n")
        if rdma.board_id is not None:
            write(folder / "board_id", f"{rdma.board_id}\n")
        for name, text in rdma.files.items():
            write(folder / name, text)
        self._link(folder / "device", parent)
        for number, port in enumerate(rdma.ports, 1):
            at = folder / "ports" / str(number)
            for name, text in (("state", port.state), ("link_layer", port.link_layer), ("rate", port.rate)):
                write(at / name, f"{text}\n")
            for index in range(4):
                write(at / "gids" / str(index), "0000:0000:0000:0000:0000:0000:0000:0000\n")
            for index, (kind, netdev) in enumerate(port.gids):
                write(at / "gids" / str(index), "fe80:0000:0000:0000:0000:0000:0000:0001\n")
                write(at / "gid_attrs/types" / str(index), f"{kind}\n")
                write(at / "gid_attrs/ndevs" / str(index), f"{netdev}\n")
        self._link(self.root / "sys/class/infiniband" / rdma.name, folder)
        return folder

    def _link(self, link: Path, to: Path) -> None:
        """A link that climbs to the folder that both are in, as those of sysfs do."""
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(_climb(link.parent, to))


def _climb(start: Path, to: Path) -> Path:
    shared = next(parent for parent in (start, *start.parents) if parent in (to, *to.parents))
    return Path(*[".."] * len(start.relative_to(shared).parts), to.relative_to(shared))
