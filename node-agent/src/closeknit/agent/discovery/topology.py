"""What a NodeTopology says of the machine that was read. Pure; nothing is guessed: an unreadable fact is absent."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from closeknit.agent.discovery.health import driver
from closeknit.agent.discovery.health.gpu_health import ailing_gpus
from closeknit.agent.discovery.health.history import History
from closeknit.agent.discovery.health.machine_health import MachineFinding, findings
from closeknit.agent.discovery.machine import cpu_models, nvlink, pcie_levels, switches
from closeknit.agent.discovery.machine.capabilities import capabilities
from closeknit.agent.discovery.machine.contradictions import cliques, contradiction
from closeknit.agent.discovery.machine.nics import could_look, nics, statuses
from closeknit.agent.discovery.machine.video_capture import capture_devices
from closeknit.agent.discovery.machine.virtualization import virtualized
from closeknit.agent.discovery.readings import pci
from closeknit.agent.discovery.readings.plausible import countable, possible, possible_if_whole
from closeknit.agent.discovery.readings.readings import GpuReading, MigDeviceReading, PciReading, Readings
from closeknit.api.nodetopology import (
    C2C,
    Confidence,
    Gpu,
    KernelModule,
    Method,
    Mig,
    MigDevice,
    MigMode,
    NodeTopologySpec,
    Nvlink,
    Pcie,
    Provenance,
)
from closeknit.api.nodetopology_status import Allocation, GpuStatus, LinkDown, NicStatus
from closeknit.machine.product import product

# NVML_DEVICE_ARCH_*
ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers
# NVML numbers it among the GPUs of a DGX Station; it drives the screen, and no job may get it.
DISPLAY_ADAPTERS = ("NVIDIA DGX Display", "DGX Display")
MAX_FACT_LENGTH = 63  # of a short string on the wire


@dataclass(frozen=True, slots=True)
class Discovery:
    """What is published about one machine."""

    spec: NodeTopologySpec
    gpus: tuple[GpuStatus, ...]  # those not healthy
    nics: tuple[NicStatus, ...]
    links_down: tuple[LinkDown, ...]
    findings: tuple[MachineFinding, ...]
    driver_load: str | None = None
    is_blind: bool = False
    """Whether no GPU could be read, so that what is published of the hardware is better than this spec."""
    allocations: tuple[Allocation, ...] | None = None  # not of readings, but of the kubelet


def discover(
    readings: Readings,
    method: Method,
    course: History = History(),  # noqa: B008 -- it is frozen
    held: Set[str] | None = None,
) -> Discovery:
    """The machine that these readings describe; every list of its spec is in the order of `gpus`, by NVML index.

    `course`: what has happened to its GPUs until now. `held`: uuids of GPUs that Pods hold; None if unknown.
    """
    located = _located(readings)
    gpus = [gpu for gpu, _ in located]
    devices = {device.address: device for device in readings.pci}
    places = [devices.get(address) for _, address in located]
    lost = {gpu.index for gpu in readings.gpus if "handle" in gpu.errors}
    has_switches = switches.evidence(gpus, readings.pci, virtualized(readings)) is not None
    links, links_down = nvlink.nvlink(gpus, readings.pci, lost, has_switches=has_switches)
    found_nics = nics(readings, places)
    spec = NodeTopologySpec(
        source=_source(readings, method, gpus, places),
        gpus=[_gpu(gpu, address, devices.get(address), links) for gpu, address in located],
        nvlink=links,
        pcie=Pcie(
            levels=pcie_levels.between_gpus(readings, gpus, places),
            cpu_model=_short(cpu_models.model(readings.kernel), 128),
            inter_socket_gb_s=cpu_models.inter_socket_gb_s(readings.kernel.cpu),
        ),
        nics=found_nics if could_look(readings) else None,
        capture_devices=capture_devices(readings, places),
        capabilities=capabilities(readings),
    )
    ailing = ailing_gpus(readings, links.switched, course, held)
    return Discovery(
        spec=spec,
        gpus=tuple(ailing),
        nics=statuses(readings, found_nics),
        links_down=tuple(links_down),
        findings=findings(readings, spec, ailing),
        driver_load=driver.load(readings),
        is_blind=driver.failure(readings) is not None,
    )


def _located(readings: Readings) -> list[tuple[GpuReading, str]]:
    """The GPUs whose PCI address is known, by NVML index.

    A GPU that NVML has lost is still in the PCI tree. Its address is known if exactly as many GPUs there are unclaimed
    as NVML has lost; else it is left out, and the condition Ready names it.
    """
    known = {gpu.index: address for gpu in readings.gpus if (address := pci.address(gpu.bus_id)) is not None}
    lost = sorted(gpu.index for gpu in readings.gpus if gpu.index not in known)
    unclaimed = sorted(
        device.address
        for device in readings.pci
        if device.vendor == pci.NVIDIA_VENDOR
        and (device.device_class or "").startswith(DISPLAY_CLASSES)
        and device.address not in known.values()
    )
    if len(lost) == len(unclaimed):
        known |= dict(zip(lost, unclaimed, strict=True))  # NVML numbers GPUs in the order of their addresses
    by_index = sorted(readings.gpus, key=lambda gpu: gpu.index)
    return [(gpu, known[gpu.index]) for gpu in by_index if gpu.index in known and gpu.name not in DISPLAY_ADAPTERS]


def _gpu(gpu: GpuReading, address: str, place: PciReading | None, node: Nvlink) -> Gpu:
    generation, bandwidth = nvlink.generation(gpu), nvlink.link_bandwidth_gb_s(gpu)
    capability = gpu.compute_capability
    return possible(
        Gpu,
        index=gpu.index,
        uuid=gpu.uuid,
        minor=gpu.minor,
        pci_address=address,
        product=product(gpu.name),
        architecture=ARCHITECTURES.get(gpu.architecture) if gpu.architecture is not None else None,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        memory_bytes=countable(gpu.memory_bytes),
        numa_node=pci.numa_node(place),
        mig=_mig(gpu),
        nvlink_generation=generation if generation != node.generation else None,
        link_bandwidth_gb_s=bandwidth if bandwidth != node.link_bandwidth_gb_s else None,
        pcie_generation=gpu.max_pcie_generation,
        pcie_width=gpu.max_pcie_width,
        c2c=_c2c(gpu),
    )


def _mig(gpu: GpuReading) -> Mig | None:
    if gpu.mig_mode is None:
        return None
    devices = [device for reading in gpu.mig_devices if (device := _mig_device(reading)) is not None]
    return Mig(mode=MigMode.ENABLED if gpu.mig_mode[0] else MigMode.DISABLED, devices=devices)


def _mig_device(reading: MigDeviceReading) -> MigDevice | None:
    """The device if NVML named both its uuid and its profile: `NVIDIA H200 MIG 1g.18gb`."""
    _, found, profile = (reading.name or "").rpartition(" MIG ")
    if reading.uuid is None or not found:
        return None
    memory = reading.memory_mib * 2**20 if reading.memory_mib is not None else None
    return possible_if_whole(MigDevice, uuid=reading.uuid, profile=profile, memory_bytes=countable(memory))


def _c2c(gpu: GpuReading) -> C2C | None:
    if not gpu.c2c_links:
        return None
    bandwidth = gpu.c2c_links * gpu.c2c_link_mb_s / 1000 if gpu.c2c_link_mb_s else None
    return possible_if_whole(C2C, links=gpu.c2c_links, bandwidth_gb_s=bandwidth)


def _source(
    readings: Readings, method: Method, gpus: Sequence[GpuReading], places: Sequence[PciReading | None]
) -> Provenance:
    kernel = readings.kernel
    module = kernel.nvidia_version
    cuda = readings.cuda_version
    is_virtual = virtualized(readings)
    return Provenance(
        method=method,
        driver_version=_short(readings.driver_version),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda is not None and cuda > 0 else None,
        kernel_module=_kernel_module(module),
        machine=_short(" ".join(filter(None, (kernel.system_vendor, kernel.product_name))), 128),
        virtualized=is_virtual,
        pcie_confidence=pcie_levels.confidence(readings, is_virtual, gpus, places),
        topology_confidence=_topology_confidence(readings),
    )


def _topology_confidence(readings: Readings) -> Confidence | None:
    if not readings.gpus:
        return None
    is_divided = (
        len(cliques(readings.gpus)) > 1
    )  # no field has this: the GPUs of a spec are all behind the same switches
    is_doubtful = is_divided or contradiction(readings.gpus, readings.pci) is not None
    return Confidence.LOW if is_doubtful else Confidence.HIGH


def _kernel_module(version: str | None) -> KernelModule | None:
    if version is None:
        return None
    return KernelModule.OPEN if "Open Kernel Module" in version else KernelModule.PROPRIETARY


def _short(text: str | None, length: int = MAX_FACT_LENGTH) -> str | None:
    return text[:length] if text else None
