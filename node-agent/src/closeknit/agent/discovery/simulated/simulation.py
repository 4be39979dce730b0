"""Every reading of a simulated machine, derived from its profile.

Deriving all readings from one value is what keeps them from contradicting each other: a link, its remote end, the
peer's view of it and the P2P status of the pair come from the same line of the profile.
"""

import hashlib
from itertools import combinations

from closeknit.agent.discovery.machine.nvlink import P2P_OK, dashed
from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.readings import (
    FabricReading,
    GpuReading,
    KernelReading,
    LinkReading,
    MigDeviceReading,
    PairReading,
    PciReading,
    RdmaPortReading,
    RdmaReading,
    Readings,
)
from closeknit.agent.discovery.simulated.places import Places, card_uuid
from closeknit.agent.discovery.simulated.profile import NO_FAULTS, Faults, Profile, ProfileError
from closeknit.agent.discovery.simulated.wires import SimulatedLinkEnd, check, down, wires

P2P_GPU_NOT_SUPPORTED, P2P_TOPOLOGY_NOT_SUPPORTED, P2P_NOT_SUPPORTED = 2, 3, 5  # nvmlGpuP2PStatus_t
PASSTHROUGH = 1  # NVML's virtualization mode of a guest
HIDDEN_BUS_ID = "FFFFFFFF:FF:FF.0"
CPU_BUS_ID = "00000006:00:00.0"  # where POWER9 shows its end of a link; nothing reads it
MIG_SLICES = 7  # of the smallest profile, 1g, one GPU gives so many, each with an eighth of the memory
DISPLAY_NAME = "NVIDIA DGX Display"


def gpu_uuid(node: str, index: int) -> str:
    """The uuid of a simulated GPU: the same for one node in every run, different on every other node."""
    return "GPU-" + _uuid(f"closeknit simulated GPU {index} of {node}")


def readings_of(profile: Profile, node: str, faults: Faults = NO_FAULTS) -> Readings:
    """What the agent would read on this machine. Raises ProfileError for a fault of what it does not have."""
    places = Places(profile)
    check(profile, places, faults)
    found = wires(profile.nvlink, places)
    broken = down(found, faults)
    dead = set(faults.dead_gpus)
    gpus = [
        GpuReading(index=index, errors={"handle": "GpuIsLost"})
        if index in dead
        else _display(node, index, places)
        if index in places.displays
        else _gpu(
            profile,
            node,
            index,
            places,
            [_link(profile, wire, places, is_down=(index, wire.link) in broken) for wire in found[index]],
            has_mig=index in faults.mig_gpus,
        )
        for index in range(len(places.gpus))
    ]
    switches = [switch for number, switch in enumerate(places.switches) if number not in faults.lost_switches]
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
        pci=tuple(
            sorted(
                (*places.gpus, *places.nics.values(), *places.dma_functions.values(), *switches),
                key=lambda device: device.address,
            )
        ),
        rdma=tuple(_rdma(profile, name, place, faults) for name, place in places.nics.items()),
        kernel=KernelReading(
            nvidia_version=f"NVRM version: {version}  {profile.driver_version}  Release Build",
            has_peer_memory=bool(places.nics),
            rdma_netns_mode="Y" if places.nics else None,
            kernel_release="6.8.0",
            cpu_model=profile.cpu_model,
            has_hypervisor=profile.virtual,
            product_name=profile.machine,
            memlock_bytes=-1,
        ),
    )


def _link(profile: Profile, wire: SimulatedLinkEnd, places: Places, *, is_down: bool) -> LinkReading:
    model = profile.nvlink
    assert model is not None  # noqa: S101 -- a wire comes from it
    if is_down:
        unreadable = dict.fromkeys(("remote_type", "remote_bus_id", "version", "speed_mb_s"), "NotSupported")
        return LinkReading(link=wire.link, p2p=True, state=0, errors=unreadable)
    if wire.peer is not None:
        remote_type, bus_id = 0, _bus_id(places.gpus[wire.peer].address)
    elif wire.leads_to_cpu:
        remote_type, bus_id = 1, CPU_BUS_ID
    else:
        remote_type = 2
        bus_id = HIDDEN_BUS_ID if model.hidden else _bus_id(places.switches[wire.switch or 0].address)
    return LinkReading(
        link=wire.link,
        p2p=True,
        state=1,
        remote_type=remote_type,
        remote_bus_id=bus_id,
        version=model.version,
        speed_mb_s=model.speed_mb_s,
    )


def _display(node: str, index: int, places: Places) -> GpuReading:
    """What little is known of a GPU that only drives a screen."""
    bus_id = _bus_id(places.gpus[index].address)
    return GpuReading(index=index, uuid=gpu_uuid(node, index), name=DISPLAY_NAME, bus_id=bus_id, minor=index)


def _gpu(
    profile: Profile, node: str, index: int, places: Places, links: list[LinkReading], *, has_mig: bool
) -> GpuReading:
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
        virtualization_mode=PASSTHROUGH if profile.virtual else 0,
        mig_mode=(int(has_mig), int(has_mig)) if model.mig else None,
        mig_devices=_mig_devices(profile, node, index) if has_mig else (),
        c2c_links=profile.c2c.links if profile.c2c else None,
        c2c_link_mb_s=profile.c2c.speed_mb_s if profile.c2c else None,
        fabric=_fabric(profile),
        links=tuple(links),
        errors={} if model.mig else {"mig_mode": "NotSupported"},
    )


def _mig_devices(profile: Profile, node: str, index: int) -> tuple[MigDeviceReading, ...]:
    """As many of the smallest devices as the GPU gives."""
    memory_mib = profile.gpu.memory_mib // (MIG_SLICES + 1)
    name = f"{profile.gpu.name} MIG 1g.{-(-memory_mib // 1024)}gb"
    return tuple(
        MigDeviceReading(
            uuid="MIG-" + _uuid(f"closeknit simulated MIG device {number} of GPU {index} of {node}"),
            name=name,
            memory_mib=memory_mib,
        )
        for number in range(MIG_SLICES)
    )


def _fabric(profile: Profile) -> FabricReading | None:
    kind = profile.nvlink.fabric if profile.nvlink else "none"
    if kind == "none":
        return None
    uuid = hashlib.sha256(b"closeknit simulated NVLink domain").hexdigest()[:32] if kind == "rack" else "0" * 32
    clique = 1 if kind == "rack" else 0
    return FabricReading(state=3, status=0, cluster_uuid=uuid, clique_id=clique, health_mask=0, health_summary=1)


def _pair(profile: Profile, a: int, b: int, places: Places) -> PairReading:
    model = profile.nvlink
    shows = a in places.displays or b in places.displays
    joined = model is not None and not shows and (bool(model.switches) or f"{a}-{b}" in model.pairs)
    found = pci.level(places.gpus[a], places.gpus[b])
    ancestor = {name: number for number, name in pci.NVML_LEVELS.items()}[found or "SYS"]
    return PairReading(
        a=a,
        b=b,
        common_ancestor=ancestor,
        p2p_nvlink=P2P_OK if joined else P2P_NOT_SUPPORTED,
        p2p_read=P2P_OK if joined or (profile.peers and found != "SYS") else _unread(profile),
    )


def _unread(profile: Profile) -> int:
    return P2P_TOPOLOGY_NOT_SUPPORTED if profile.peers else P2P_GPU_NOT_SUPPORTED


def _rdma(profile: Profile, name: str, place: PciReading, faults: Faults) -> RdmaReading:
    if profile.nic is None:
        raise ProfileError(f"profile {profile.name}: its PCIe tree has {name}, but there is no section nic")
    state = "1: DOWN" if name in faults.nics_down else "4: ACTIVE"
    port = RdmaPortReading(port=1, state=state, link_layer=profile.nic.link_layer, rate=profile.nic.rate)
    number = name.rpartition("_")[2]
    netdev = f"ib{number}" if profile.nic.link_layer == "InfiniBand" else f"eth{number}"
    is_efa = profile.nic.driver == "efa"
    return RdmaReading(
        name=name,
        address=place.address,
        node_type="7: unspecified" if is_efa else "1: CA",
        driver=profile.nic.driver,
        netdevs=() if is_efa else (netdev,),
        is_switch_management=profile.nvlink is not None and name in profile.nvlink.management,
        card_uuid=card_uuid(name) if profile.nic.driver == "mlx5_core" else None,
        ports=(port,),
    )


def _bus_id(address: str) -> str:
    """How NVML prints a sysfs address: 0000:1a:00.0 -> 00000000:1A:00.0."""
    domain, _, rest = address.partition(":")
    return f"{int(domain, 16):08X}:{rest.upper()}"


def _uuid(words: str) -> str:
    return dashed(hashlib.sha256(words.encode()).hexdigest()[:32])
