"""What can be said of the machine as a whole: its conditions. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from closeknit.agent.discovery.health.driver import failure
from closeknit.agent.discovery.machine import nvlink, switches
from closeknit.agent.discovery.machine.contradictions import cliques, contradiction
from closeknit.agent.discovery.machine.virtualization import virtualized
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.api.nodetopology import NodeTopologySpec, Support
from closeknit.api.nodetopology_status import GpuStatus
from closeknit.api.reasons import GpuReason, MachineConditionType, ReadyReason


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """A condition without its times, which only the writer knows."""

    type: MachineConditionType
    status: str  # True, False or Unknown
    reason: str
    message: str


def findings(readings: Readings, spec: NodeTopologySpec, ailing: Sequence[GpuStatus]) -> tuple[MachineFinding, ...]:
    """Every condition that can be told of this machine, Ready first."""
    found = [_ready(readings, spec), _fabric_ready(readings, spec, ailing), _gpu_direct_rdma_ready(spec)]
    return tuple(finding for finding in found if finding is not None)


def _ready(readings: Readings, spec: NodeTopologySpec) -> MachineFinding:
    kind = MachineConditionType.READY
    lost = [gpu for gpu in readings.gpus if "handle" in gpu.errors]
    failed = failure(readings)
    if failed is not None:
        return MachineFinding(kind, "False", failed.reason, failed.message)
    wrong = contradiction(readings.gpus, readings.pci)
    doubt = f"NVML contradicts itself: {wrong}" if wrong else ""
    if not lost:
        ports = "no word of RDMA ports" if spec.nics is None else _count(len(spec.nics), "RDMA port")
        found = f"{_count(len(spec.gpus), 'GPU')} and {ports}"
        return MachineFinding(kind, "True", ReadyReason.READ, f"read: {found}{doubt and f'; {doubt}'}")
    words = ", ".join(f"{gpu.index} ({gpu.errors['handle']})" for gpu in sorted(lost, key=lambda gpu: gpu.index))
    listed = {gpu.index for gpu in spec.gpus}
    missing = [str(gpu.index) for gpu in lost if gpu.index not in listed]
    place = f" Where GPU {', '.join(missing)} sits is not known, so it is not listed." if missing else ""
    read = len(readings.gpus) - len(lost)
    told = f"read: {_count(read, 'GPU')}; not GPU {words}.{place}{doubt and f' {doubt}'}"
    return MachineFinding(kind, "True", ReadyReason.PARTLY_READ, told)


def _fabric_ready(readings: Readings, spec: NodeTopologySpec, ailing: Sequence[GpuStatus]) -> MachineFinding | None:
    kind = MachineConditionType.FABRIC_READY
    ready = [nvlink.fabric_ready(gpu, readings.pairs) for gpu in readings.gpus if "handle" not in gpu.errors]
    if spec.nvlink.switched and nvlink.is_cut_off(readings.gpus):
        why = switches.evidence(readings.gpus, readings.pci, virtualized(readings)) or "they were up"
        message = f"Not one NVLink is up, though {why}; see the kernel's log for SXid lines, and the fabric manager."
        return MachineFinding(kind, "False", GpuReason.FABRIC_NOT_READY, message)
    if spec.nvlink.switched and False in ready:
        without = ", ".join(str(gpu.index) for gpu in ailing if GpuReason.FABRIC_NOT_READY in gpu.reasons)
        message = f"NVSwitches do not join GPU {without}; is the fabric manager running?"
        return MachineFinding(kind, "False", GpuReason.FABRIC_NOT_READY, message)
    parts = cliques(readings.gpus)
    if spec.nvlink.switched and len(parts) > 1:
        apart = " and ".join(f"GPU {', '.join(map(str, indexes))}" for indexes in parts)
        message = f"NVSwitches do not join {apart}: the fabric manager has them in different cliques."
        return MachineFinding(kind, "False", GpuReason.FABRIC_NOT_READY, message)
    if spec.nvlink.switched and True in ready:
        return MachineFinding(kind, "True", "FabricReady", "The NVSwitches join all GPUs that were read.")
    return None


def _gpu_direct_rdma_ready(spec: NodeTopologySpec) -> MachineFinding | None:
    support = spec.capabilities.gpu_direct_rdma
    if not spec.nics or not spec.gpus or support is None:
        return None
    status = {Support.SUPPORTED: "True", Support.LIKELY: "Unknown", Support.UNSUPPORTED: "False"}[support]
    message = {
        Support.SUPPORTED: "nvidia_peermem is loaded.",
        Support.LIKELY: "The open kernel module on this kernel exports DMA-BUF; only a transfer can prove it.",
        Support.UNSUPPORTED: "Neither nvidia_peermem nor an open kernel module with DMA-BUF is loaded.",
    }[support]
    return MachineFinding(MachineConditionType.GPU_DIRECT_RDMA_READY, status, f"GPUDirectRDMA{support.value}", message)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
