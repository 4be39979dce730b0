"""What is wrong with each GPU: on which no job should start, and which work worse than they should. Pure."""

from collections.abc import Iterator, Mapping, Set

from closeknit.agent.discovery.health import xids
from closeknit.agent.discovery.health.driver import CRASHED, HUNG
from closeknit.agent.discovery.health.history import GpuHistory, History, is_foreign
from closeknit.agent.discovery.machine import nvlink
from closeknit.agent.discovery.readings.readings import FabricReading, GpuReading, HealthReading, Readings
from closeknit.api.nodetopology_status import GpuStatus, Health
from closeknit.api.reasons import GpuReason

UNHEALTHY_FABRIC = (2, 3)  # NVML's fabric health summary: unhealthy, limited capacity
MAX_REASONS = 16  # of a GPU's status
SILENT: Mapping[str, GpuReason] = {
    "GpuIsLost": GpuReason.GPU_LOST,
    HUNG: GpuReason.GPU_HUNG,
    CRASHED: GpuReason.DRIVER_CRASHED,
}

Ailment = tuple[Health, str]


def ailing_gpus(readings: Readings, switched: bool, course: History, held: Set[str] | None = None) -> list[GpuStatus]:
    """The GPUs that are not healthy, with reasons; also those that could not be located.

    `held`: uuids that the kubelet gave to Pods; None where it did not answer.
    """
    found = []
    for gpu in sorted(readings.gpus, key=lambda gpu: gpu.index):
        ailments = list(_ailments(gpu, readings, switched, course.gpus.get(gpu.uuid or "", GpuHistory()), held))
        if ailments:
            is_unhealthy = any(state is Health.UNHEALTHY for state, _ in ailments)
            ailments.sort(key=lambda ailment: ailment[0] is not Health.UNHEALTHY)  # stable: the worst first
            found.append(
                GpuStatus(
                    index=gpu.index,
                    state=Health.UNHEALTHY if is_unhealthy else Health.DEGRADED,
                    reasons=[reason for _, reason in ailments][:MAX_REASONS],
                )
            )
    return found


def _ailments(
    gpu: GpuReading, readings: Readings, switched: bool, course: GpuHistory, held: Set[str] | None
) -> Iterator[Ailment]:
    if "handle" in gpu.errors:
        error = gpu.errors["handle"]
        yield Health.UNHEALTHY, SILENT.get(error, error)
    elif switched:
        cut_off = nvlink.is_cut_off(readings.gpus) and not nvlink.has_mig(gpu)
        if cut_off or nvlink.fabric_ready(gpu, readings.pairs) is False:
            yield Health.UNHEALTHY, GpuReason.FABRIC_NOT_READY  # CUDA does not even start there
        elif gpu.fabric is not None and _is_unhealthy(gpu.fabric):
            yield Health.DEGRADED, GpuReason.FABRIC_UNHEALTHY
    if gpu.mig_mode is not None and gpu.mig_mode[0] != gpu.mig_mode[1]:
        yield Health.UNHEALTHY, GpuReason.MIG_MODE_PENDING  # it needs a reset before it has the mode that was asked for
    for xid in sorted(course.xids):
        yield Health.DEGRADED if xid in xids.MILD_XIDS else Health.UNHEALTHY, xids.reason(xid)
    if gpu.health is not None:
        yield from _of_counters(gpu.health)
    if course.has_link_errors:
        yield Health.DEGRADED, GpuReason.NVLINK_ERRORS
    for reason, slowdown in sorted(course.slowdowns.items()):
        if slowdown.lasts:
            yield Health.DEGRADED, reason
    if is_foreign(gpu, held):
        yield Health.DEGRADED, GpuReason.FOREIGN_PROCESS


def _of_counters(health: HealthReading) -> Iterator[Ailment]:
    if health.recovery_action:  # the driver's own verdict: reset, restart, or drain it first
        yield Health.UNHEALTHY, GpuReason.RECOVERY_NEEDED
    if health.rows_failed:
        yield Health.UNHEALTHY, GpuReason.ROW_REMAP_FAILED
    if health.rows_pending:
        yield Health.DEGRADED, GpuReason.ROW_REMAP_PENDING
    if health.uncorrected_ecc:  # its memory was put aside; where that is not enough, an XID or the two above say so
        yield Health.DEGRADED, GpuReason.UNCORRECTED_ECC


def _is_unhealthy(fabric: FabricReading) -> bool:
    """By the summary of the newest drivers, else by the mask: two bits for each of four questions, then one of four."""
    if fabric.health_summary:
        return fabric.health_summary in UNHEALTHY_FABRIC
    mask = fabric.health_mask or 0
    is_degraded = any((mask >> shift) & 0x3 == 1 for shift in (0, 4))  # bandwidth, route; the others are recoveries
    return is_degraded or (mask >> 8) & 0xF > 1  # a configuration that is not right
