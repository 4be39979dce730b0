"""What has happened to the GPUs of a machine, over many readings: XIDs, and what lasts or comes too often. Pure.

A course is folded from one reading after the other: NVML tells an XID once, and only its listener remembers it.
So a restarted agent takes up the XIDs that the one before it has published.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from closeknit.agent.discovery.health import driver
from closeknit.agent.discovery.health.xids import APPLICATION_XIDS, xid_of
from closeknit.agent.discovery.readings.readings import GpuReading, Readings
from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.api.reasons import GpuReason

LASTS_S = 60.0  # a slowdown that shows in every reading for so long is no moment of high load; and so long it is over
LINK_WINDOW_S = 600.0
# Trainings of links that a GPU may have in the window: one comes with a cable or a reset, a bad link has them in rows.
MAX_LINK_ERRORS = 4
MAX_SAMPLES = 128  # of a counter that moves with every reading, the window's 600 s and more
# Bits of nvmlClocksEventReasons that are not the work of a job's own load or of somebody's limit.
SLOWDOWNS: Mapping[GpuReason, int] = {
    GpuReason.THERMAL_SLOWDOWN: 0x20 | 0x40,  # by software, by hardware
    GpuReason.POWER_BRAKE: 0x80,  # from outside: the power supply
}


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A slowdown that was seen: first and last, in seconds of the agent's clock; `lasts` once it was seen for long."""

    first: float
    last: float
    lasts: bool


@dataclass(frozen=True, slots=True)
class GpuHistory:
    """What has happened to one GPU."""

    xids: frozenset[int] = frozenset()
    needs_recovery: bool = False  # by the driver's own word, when it was last read
    slowdowns: Mapping[GpuReason, Slowdown] = field(default_factory=dict)
    link_errors: tuple[tuple[float, int], ...] = ()  # when the counter had which value, each once, oldest first

    @property
    def has_link_errors(self) -> bool:
        """Whether more links were retrained than is normal."""
        return bool(self.link_errors) and self.link_errors[-1][1] - self.link_errors[0][1] > MAX_LINK_ERRORS


@dataclass(frozen=True, slots=True)
class History:
    """What has happened to the GPUs, by uuid, under one driver."""

    driver_version: str | None = None
    gpus: Mapping[str, GpuHistory] = field(default_factory=dict)
    load: str | None = None
    """Of the driver, as in `driver.load`."""


def recalled(course: History, spec: NodeTopologySpec, status: NodeTopologyStatus) -> History:
    """The course with the XIDs that were published before this agent began, of the same load of the driver.

    Where it is not known whether it is the same, it is taken to be: a good GPU that is left out costs less than a job
    on one that is dying. What is wrong still shows in the readings, so that nothing but XIDs is taken up, and whether
    the driver wanted a reset: that it no longer does ends them.
    """
    version = spec.source.driver_version
    if _differ(course.load, status.driver_load) or _differ(course.driver_version, version):
        return course
    uuids = {gpu.index: gpu.uuid for gpu in spec.gpus}
    gpus = dict(course.gpus)
    for gpu in status.gpus:
        uuid = uuids.get(gpu.index)
        xids = frozenset(xid for reason in gpu.reasons if (xid := xid_of(reason)) is not None)
        if uuid is not None and xids:
            before = gpus.get(uuid, GpuHistory())
            wanted = before.needs_recovery or GpuReason.RECOVERY_NEEDED in gpu.reasons
            gpus[uuid] = replace(before, xids=before.xids | xids, needs_recovery=wanted)
    return History(course.driver_version or version, gpus, course.load or status.driver_load)


def followed(course: History, readings: Readings, now_s: float) -> History:
    """The course after one more reading.

    XIDs stay until the driver is reloaded, by a restart of the machine too, until another driver answers, or until
    the driver, which wanted the GPU to be reset, no longer does.
    """
    driver_version, load = readings.driver_version, driver.load(readings)
    if _differ(course.driver_version, driver_version) or _differ(course.load, load):
        course = History()
    gpus = dict(course.gpus)
    for event in readings.xids:
        struck = [event.uuid] if event.uuid is not None else [gpu.uuid for gpu in readings.gpus]  # it is unknown which
        for uuid in struck:
            if uuid is not None and event.xid not in APPLICATION_XIDS:
                before = gpus.get(uuid, GpuHistory())
                gpus[uuid] = replace(before, xids=before.xids | {event.xid})
    for gpu in readings.gpus:
        if gpu.uuid is not None and gpu.health is not None:
            gpus[gpu.uuid] = _followed(gpus.get(gpu.uuid, GpuHistory()), gpu, now_s)
    return History(
        driver_version or course.driver_version,
        {uuid: gpu for uuid, gpu in gpus.items() if gpu != GpuHistory()},
        load or course.load,
    )


def is_foreign(gpu: GpuReading, held: Set[str] | None) -> bool | None:
    """Whether programs compute on a GPU that no Pod holds; None where that cannot be told: by a list of processes that
    could not be read, nor of a GPU with a MIG device that has no known uuid and may be the one that is held.

    `held`: uuids of GPUs and MIG devices that the kubelet gave away; None where it did not answer.
    """
    if held is None or gpu.uuid is None or gpu.health is None or gpu.health.pids is None:
        return None
    if "handle" in gpu.errors or "pids" in gpu.health.errors:  # what is remembered may have ended
        return None
    if held & {gpu.uuid, *(device.uuid for device in gpu.mig_devices)} or not gpu.health.pids:
        return False
    return None if any(device.uuid is None for device in gpu.mig_devices) else True


def _differ(one: str | None, other: str | None) -> bool:
    """Whether both are known, and are not the same."""
    return one is not None and other is not None and one != other


def _followed(course: GpuHistory, gpu: GpuReading, now_s: float) -> GpuHistory:
    health = gpu.health
    assert health is not None  # noqa: S101 -- by its caller
    needs_recovery = course.needs_recovery if health.recovery_action is None else health.recovery_action != 0
    is_recovered = course.needs_recovery and not needs_recovery
    slowdowns = dict(course.slowdowns)
    if health.clocks_event_reasons is not None:
        for reason, bits in SLOWDOWNS.items():
            now = _slowdown(slowdowns.pop(reason, None), bool(health.clocks_event_reasons & bits), now_s)
            if now is not None:
                slowdowns[reason] = now
    return GpuHistory(
        xids=frozenset() if is_recovered else course.xids,
        needs_recovery=needs_recovery,
        slowdowns=slowdowns,
        link_errors=_link_errors(course.link_errors, health.link_errors, now_s),
    )


def _slowdown(before: Slowdown | None, is_there: bool, now_s: float) -> Slowdown | None:
    if is_there:
        first = now_s if before is None else before.first
        return Slowdown(first, now_s, now_s - first >= LASTS_S or (before is not None and before.lasts))
    # One that lasted is over when it was away for long; any other one at once.
    return before if before is not None and before.lasts and now_s - before.last < LASTS_S else None


def _link_errors(
    samples: tuple[tuple[float, int], ...], count: int | None, now_s: float
) -> tuple[tuple[float, int], ...]:
    """The values within the window, and the one that it began with."""
    if count is not None:
        if samples and count < samples[-1][1]:
            samples = ()  # the GPU was reset
        if not samples or count != samples[-1][1]:
            samples = (*samples, (now_s, count))
    while len(samples) > 1 and (samples[1][0] < now_s - LINK_WINDOW_S or len(samples) > MAX_SAMPLES):
        samples = samples[1:]
    return samples
