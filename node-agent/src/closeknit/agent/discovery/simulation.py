"""Every reading of a simulated machine, derived from its profile.

Deriving all readings from one value is what keeps them from contradicting each other: a link, its remote end, the
peer's view of it and the P2P status of the pair come from the same line of the profile.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from closeknit.agent.discovery import pci
from closeknit.agent.discovery.nvlink import P2P_OK, dashed
from closeknit.agent.discovery.profile import GPU, NO_FAULTS, Faults, HostBridge, Profile, ProfileError, Slot
from closeknit.agent.discovery.readings import (
    FabricReading,
    GpuReading,
    KernelReading,
    LinkReading,
    PairReading,
    PciReading,
    RdmaPortReading,
    RdmaReading,
    Readings,
)

P2P_NOT_SUPPORTED, P2P_TOPOLOGY_NOT_SUPPORTED = 5, 3  # nvmlGpuP2PStatus_t
HIDDEN_BUS_ID = "FFFFFFFF:FF:FF.0"
NVSWITCH_DEVICE_ID = "0x22a3"  # any of NVSwitch's ids would do: nothing reads it


def gpu_uuid(node: str, index: int) -> str:
    """The uuid of a simulated GPU: the same for one node in every run, different on every other node."""
    digest = hashlib.sha256(f"closeknit simulated GPU {index} of {node}".encode()).hexdigest()
    return "GPU-" + dashed(digest[:32])


def readings_of(profile: Profile, node: str, faults: Faults = NO_FAULTS) -> Readings:
    """What the agent would read on this machine. Raises ProfileError for a fault that names no GPU or link of it."""
    places = _Places(profile)
    wires = _wires(profile)
    dead = set(faults.dead_gpus)
    down = _both_ends(wires, faults, len(places.gpus))
    gpus = [
        GpuReading(index=index, errors={"handle": "GpuIsLost"})
        if index in dead
        else _gpu(profile, node, index, places, [_link(profile, wire, places, down, dead) for wire in wires[index]])
        for index in range(len(places.gpus))
    ]
    version = "NVIDIA UNIX Open Kernel Module for x86_64" if profile.open_kernel_module else "NVIDIA UNIX x86_64"
    return Readings(
        driver_version=profile.driver_version,
        cuda_version=profile.cuda_version,
        gpus=tuple(gpus),
        pairs=tuple(
            _pair(profile, a, b, places)
            for a, b in combinations(range(len(gpus)), 2)
            if a not in dead and b not in dead
        ),
        pci=tuple(sorted((*places.gpus, *places.nics.values(), *places.switches), key=lambda device: device.address)),
        rdma=tuple(_rdma(profile, name, place) for name, place in places.nics.items()),
        kernel=KernelReading(
            nvidia_version=f"NVRM version: {version}  {profile.driver_version}  Release Build",
            has_peer_memory=bool(places.nics),
            rdma_netns_mode="Y" if places.nics else None,
            kernel_release="6.8.0",
            cpu_model=profile.cpu_model,
            has_hypervisor=False,
            product_name=profile.machine,
            memlock_bytes=-1,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Wire:
    """One end of a link: its number on its GPU, and the GPU and link, or the switch, at the other end."""

    gpu: int
    link: int
    peer: int | None = None
    peer_link: int | None = None
    switch: int | None = None


def _wires(profile: Profile) -> list[list[_Wire]]:
    """Per GPU, the ends of its links, numbered in the order of their peers."""
    count = sum(_count_gpus(bridge.ports) for bridge in profile.host_bridges)
    model = profile.nvlink
    if model is None:
        return [[] for _ in range(count)]
    if model.switches:
        return [
            [_Wire(gpu, link, switch=link % model.switches) for link in range(model.links_per_gpu)]
            for gpu in range(count)
        ]
    wires: list[list[_Wire]] = [[] for _ in range(count)]
    for a, b in sorted(tuple(int(end) for end in pair.split("-")) for pair in model.pairs):
        for _ in range(model.pairs[f"{a}-{b}"]):
            here, there = len(wires[a]), len(wires[b])
            wires[a].append(_Wire(a, here, peer=b, peer_link=there))
            wires[b].append(_Wire(b, there, peer=a, peer_link=here))
    return wires


def _both_ends(wires: Sequence[Sequence[_Wire]], faults: Faults, count: int) -> set[tuple[int, int]]:
    """(GPU, link) of both ends of every broken link."""
    for index in faults.dead_gpus:
        if not 0 <= index < count:
            raise ProfileError(f"fault deadGPUs names GPU {index}; the machine has GPUs 0 to {count - 1}")
    down = set()
    for fault in faults.links_down:
        if not 0 <= fault.gpu < count or not 0 <= fault.link < len(wires[fault.gpu]):
            raise ProfileError(f"fault linksDown names link {fault.link} of GPU {fault.gpu}; there is no such link")
        wire = wires[fault.gpu][fault.link]
        down.add((wire.gpu, wire.link))
        if wire.peer is not None and wire.peer_link is not None:
            down.add((wire.peer, wire.peer_link))
    return down


def _link(profile: Profile, wire: _Wire, places: "_Places", down: set[tuple[int, int]], dead: set[int]) -> LinkReading:
    model = profile.nvlink
    assert model is not None  # noqa: S101 -- a wire comes from it
    if (wire.gpu, wire.link) in down or wire.peer in dead:
        unreadable = dict.fromkeys(("remote_type", "remote_bus_id", "version", "speed_mb_s"), "NotSupported")
        return LinkReading(link=wire.link, p2p=True, state=0, errors=unreadable)
    if wire.peer is not None:
        bus_id = _bus_id(places.gpus[wire.peer].address)
    else:
        bus_id = HIDDEN_BUS_ID if model.hidden else _bus_id(places.switches[wire.switch or 0].address)
    return LinkReading(
        link=wire.link,
        p2p=True,
        state=1,
        remote_type=0 if wire.peer is not None else 2,
        remote_bus_id=bus_id,
        version=model.version,
        speed_mb_s=model.speed_mb_s,
    )


def _gpu(profile: Profile, node: str, index: int, places: "_Places", links: list[LinkReading]) -> GpuReading:
    model = profile.gpu
    return GpuReading(
        index=index,
        uuid=gpu_uuid(node, index),
        name=model.name,
        bus_id=_bus_id(places.gpus[index].address),
        minor=index,
        architecture=model.architecture,
        compute_capability=model.compute_capability,
        memory_bytes=model.memory_mib * 2**20,
        max_pcie_generation=model.pcie_generation,
        max_pcie_width=model.pcie_width,
        virtualization_mode=0,
        mig_mode=(0, 0) if model.mig else None,
        fabric=_fabric(profile),
        links=tuple(links),
        errors={} if model.mig else {"mig_mode": "NotSupported"},
    )


def _fabric(profile: Profile) -> FabricReading | None:
    kind = profile.nvlink.fabric if profile.nvlink else "none"
    if kind == "none":
        return None
    uuid = hashlib.sha256(b"closeknit simulated NVLink domain").hexdigest()[:32] if kind == "rack" else "0" * 32
    clique = 1 if kind == "rack" else 0
    return FabricReading(state=3, status=0, cluster_uuid=uuid, clique_id=clique, health_mask=0, health_summary=1)


def _pair(profile: Profile, a: int, b: int, places: "_Places") -> PairReading:
    model = profile.nvlink
    joined = model is not None and (bool(model.switches) or f"{a}-{b}" in model.pairs)
    found = pci.level(places.gpus[a], places.gpus[b])
    ancestor = {name: number for number, name in pci.NVML_LEVELS.items()}[found or "SYS"]
    return PairReading(
        a=a,
        b=b,
        common_ancestor=ancestor,
        p2p_nvlink=P2P_OK if joined else P2P_NOT_SUPPORTED,
        p2p_read=P2P_OK if joined or found != "SYS" else P2P_TOPOLOGY_NOT_SUPPORTED,
    )


def _rdma(profile: Profile, name: str, place: PciReading) -> RdmaReading:
    if profile.nic is None:
        raise ProfileError(f"profile {profile.name}: its PCIe tree has {name}, but there is no section nic")
    port = RdmaPortReading(port=1, state="4: ACTIVE", link_layer=profile.nic.link_layer, rate=profile.nic.rate)
    number = name.rpartition("_")[2]
    netdev = f"ib{number}" if profile.nic.link_layer == "InfiniBand" else f"eth{number}"
    return RdmaReading(
        name=name,
        address=place.address,
        node_type="1: CA",
        driver="mlx5_core",
        netdevs=(netdev,),
        is_switch_management=False,
        ports=(port,),
    )


class _Places:
    """PCI addresses and paths of a profile's devices: buses are numbered depth first, as firmware does."""

    def __init__(self, profile: Profile) -> None:
        self.gpus: list[PciReading] = []
        self.nics: dict[str, PciReading] = {}
        self.switches: list[PciReading] = []
        self._next_bus: dict[int, int] = {}
        for bridge in profile.host_bridges:
            root_bus = self._bus(bridge.domain)
            root = f"/sys/devices/pci{bridge.domain:04x}:{root_bus:02x}"
            for number, slot in enumerate(bridge.ports):
                self._place(slot, f"{root}/{bridge.domain:04x}:{root_bus:02x}:{number + 1:02x}.0", bridge)
        if profile.nvlink is not None and not profile.nvlink.hidden:
            domain = profile.host_bridges[-1].domain
            for _ in range(profile.nvlink.switches):
                bus = self._bus(domain)
                path = f"/sys/devices/pci{domain:04x}:{bus:02x}"
                place = self._bus(domain)
                switch = _device(path, domain, place, pci.NVIDIA_VENDOR, NVSWITCH_DEVICE_ID, pci.NVSWITCH_CLASS, -1)
                self.switches.append(switch)

    def _place(self, slot: Slot, above: str, bridge: HostBridge) -> None:
        bus = self._bus(bridge.domain)
        if isinstance(slot, list):
            upstream = f"{above}/{bridge.domain:04x}:{bus:02x}:00.0"
            inside = self._bus(bridge.domain)
            for number, below in enumerate(slot):
                self._place(below, f"{upstream}/{bridge.domain:04x}:{inside:02x}:{number:02x}.0", bridge)
        elif slot == GPU:
            self.gpus.append(_device(above, bridge.domain, bus, pci.NVIDIA_VENDOR, "0x2335", "0x030200", bridge.numa))
        else:
            self.nics[slot] = _device(above, bridge.domain, bus, "0x15b3", "0x1021", "0x020700", bridge.numa)

    def _bus(self, domain: int) -> int:
        bus = self._next_bus.get(domain, 0)
        self._next_bus[domain] = bus + 1
        return bus


def _device(above: str, domain: int, bus: int, vendor: str, device: str, device_class: str, numa: int) -> PciReading:
    address = f"{domain:04x}:{bus:02x}:00.0"
    return PciReading(
        address=address,
        path=f"{above}/{address}",
        vendor=vendor,
        device=device,
        device_class=device_class,
        numa_node=numa,
    )


def _count_gpus(slots: Sequence[Slot]) -> int:
    return sum(_count_gpus(slot) if isinstance(slot, list) else slot == GPU for slot in slots)


def _bus_id(address: str) -> str:
    """How NVML prints a sysfs address: 0000:1a:00.0 -> 00000000:1A:00.0."""
    domain, _, rest = address.partition(":")
    return f"{int(domain, 16):08X}:{rest.upper()}"
