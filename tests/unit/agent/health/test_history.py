"""What happened to a GPU, what lasts, what comes too often, and when each is over."""

from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.health.gpu_health import MAX_REASONS, ailing_gpus
from closeknit.agent.discovery.health.history import History, followed, is_foreign
from closeknit.agent.discovery.readings.readings import FabricReading, GpuReading, HealthReading, Readings, XidReading
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method
from closeknit.api.nodetopology_status import Health
from closeknit.api.reasons import GpuReason

replace = msgspec.structs.replace
MACHINE = readings_of(load_profile("hgx-h200"), "node-1")
UUID = MACHINE.gpus[0].uuid
THERMAL, POWER_CAP = 0x40, 0x4


def machine(*xids: XidReading, **health: Any) -> Readings:
    """The machine with the first GPU in this state."""
    return replace(
        MACHINE, gpus=(replace(MACHINE.gpus[0], health=HealthReading(**health)), *MACHINE.gpus[1:]), xids=xids
    )


def xid(number: int) -> XidReading:
    return XidReading(xid=number, uuid=UUID)


def after(*readings: Readings, every_s: float = 5.0) -> History:
    course = History()
    for number, reading in enumerate(readings):
        course = followed(course, reading, number * every_s)
    return course


def told(course: History, readings: Readings = MACHINE) -> list[tuple[int, Health, list[str]]]:
    return [(gpu.index, gpu.state, gpu.reasons) for gpu in discover(readings, Method.NVML, course).gpus]


def test_an_xid_stays() -> None:
    course = after(machine(xid(79)), MACHINE, MACHINE)
    assert told(course) == [(0, Health.UNHEALTHY, ["XID79"])]


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109])  # by NVIDIA's own list
def test_an_xid_that_a_program_causes_says_nothing_of_its_gpu(number: int) -> None:
    assert told(after(machine(xid(number)))) == []


@pytest.mark.parametrize("number", [63, 92, 94])
def test_an_xid_that_can_wait_for_its_reset(number: int) -> None:
    assert told(after(machine(xid(number)))) == [(0, Health.DEGRADED, [f"XID{number}"])]


@pytest.mark.parametrize("number", [48, 79, 95, 119, 99999])
def test_any_other_xid_takes_the_gpu_away(number: int) -> None:
    assert told(after(machine(xid(number)))) == [(0, Health.UNHEALTHY, [f"XID{number}"])]


def test_an_xid_of_nobody_knows_which_gpu_is_everybodys() -> None:
    assert len(told(after(machine(XidReading(xid=74, errors={"uuid": "GpuIsLost"}))))) == 8


def test_the_worst_reason_comes_first_and_there_are_not_too_many() -> None:
    course = after(machine(xid(63), *(xid(number) for number in range(110, 140))))
    ((_, state, reasons),) = told(course)
    assert (state, reasons[0], len(reasons)) == (Health.UNHEALTHY, "XID110", MAX_REASONS)


def test_xids_are_over_when_the_driver_no_longer_asks_for_a_recovery() -> None:
    struck = after(machine(xid(79), recovery_action=0), machine(recovery_action=1))
    assert told(struck, machine(recovery_action=1)) == [(0, Health.UNHEALTHY, ["XID79", "RecoveryNeeded"])]
    assert told(followed(struck, machine(recovery_action=None), 20)) == [(0, Health.UNHEALTHY, ["XID79"])]  # unread
    assert told(followed(struck, machine(recovery_action=0), 20)) == []
    assert told(after(machine(xid(79), recovery_action=0), machine(recovery_action=0))) != []  # it never asked


def test_xids_are_over_under_another_driver() -> None:
    struck = after(machine(xid(79)))
    assert told(followed(struck, replace(MACHINE, driver_version=None), 5)) != []
    assert told(followed(struck, replace(MACHINE, driver_version="999.1"), 5)) == []


@pytest.mark.parametrize(
    ("health", "state", "reason"),
    [
        (HealthReading(recovery_action=2), Health.UNHEALTHY, "RecoveryNeeded"),
        (HealthReading(rows_failed=True, rows_pending=False), Health.UNHEALTHY, "RowRemapFailed"),
        (HealthReading(rows_failed=False, rows_pending=True), Health.DEGRADED, "RowRemapPending"),
        (HealthReading(uncorrected_ecc=1), Health.DEGRADED, "UncorrectedECC"),
    ],
)
def test_counters_and_states(health: HealthReading, state: Health, reason: str) -> None:
    ill = replace(MACHINE, gpus=(replace(MACHINE.gpus[0], health=health), *MACHINE.gpus[1:]))
    assert told(History(), ill) == [(0, state, [reason])]
    assert GpuReason(reason)
    assert told(History(), MACHINE) == []  # and over with the state


@pytest.mark.parametrize(
    ("bits", "reason"), [(0x20, "ThermalSlowdown"), (THERMAL, "ThermalSlowdown"), (0x80 | POWER_CAP, "PowerBrake")]
)
def test_a_slowdown_counts_when_it_lasts_and_is_over_when_it_was_away(bits: int, reason: str) -> None:
    slow, fine = machine(clocks_event_reasons=bits), machine(clocks_event_reasons=POWER_CAP | 1)
    assert told(after(*[slow] * 12)) == []  # 55 s
    lasting = after(*[slow] * 13)
    assert told(lasting) == [(0, Health.DEGRADED, [reason])]
    assert told(followed(lasting, fine, 100)) == [(0, Health.DEGRADED, [reason])]
    assert told(followed(lasting, fine, 120)) == []
    assert told(after(*[slow, fine] * 30)) == []  # now and then


def test_links_that_are_trained_anew_too_often() -> None:
    often = after(*(machine(link_errors=count) for count in (100, 101, 102, 103, 105)))
    assert told(often) == [(0, Health.DEGRADED, ["NVLinkErrors"])]
    assert told(after(*(machine(link_errors=count) for count in (100, 101, 102, 103, 104)))) == []
    assert told(followed(often, machine(link_errors=105), 621)) == []  # ten minutes after the last
    assert told(followed(often, machine(link_errors=0), 30)) == []  # a reset
    ill_after_reset = after(*(machine(link_errors=count) for count in (100, 0, 5)))
    assert told(ill_after_reset) == [(0, Health.DEGRADED, ["NVLinkErrors"])]
    slowly = after(*(machine(link_errors=count) for count in range(40)), every_s=200)
    assert told(slowly) == []
    always = after(*(machine(link_errors=count) for count in range(0, 8000, 8)), every_s=0.1)
    assert len(always.gpus[UUID or ""].link_errors) <= 128


def test_a_healthy_machine_has_no_course() -> None:
    well = machine(recovery_action=0, clocks_event_reasons=1)
    assert after(well, well).gpus == {}


@pytest.mark.parametrize(
    ("summary", "mask", "reasons"),
    [
        (1, 0b01, []),  # the summary knows better
        (2, None, ["FabricUnhealthy"]),
        (3, None, ["FabricUnhealthy"]),
        (None, 0b01, ["FabricUnhealthy"]),  # degraded bandwidth
        (None, 0b10, []),  # not degraded
        (None, 0b01_00_00, ["FabricUnhealthy"]),  # unhealthy route
        (0, 5 << 8, ["FabricUnhealthy"]),  # too few NVLinks
        (None, 1 << 8, []),  # no wrong configuration
        (None, None, []),
    ],
)
def test_the_fabrics_word(summary: int | None, mask: int | None, reasons: list[str]) -> None:
    fabric = FabricReading(
        state=3, status=0, cluster_uuid="0" * 32, clique_id=0, health_mask=mask, health_summary=summary
    )
    gpu = replace(MACHINE.gpus[0], fabric=fabric)
    found = ailing_gpus(replace(MACHINE, gpus=(gpu,)), switched=True, course=History())
    assert [reason for each in found for reason in each.reasons] == reasons


@pytest.mark.parametrize(
    ("pids", "held", "expected"),
    [
        ((17,), set(), True),
        ((17,), {UUID}, False),
        ((), set(), False),
        (None, set(), None),
        ((17,), None, None),
    ],
)
def test_a_process_that_no_pod_holds(
    pids: tuple[int, ...] | None, held: set[str] | None, expected: bool | None
) -> None:
    gpu: GpuReading = machine(pids=pids).gpus[0]
    assert is_foreign(gpu, held) is expected
    found = ailing_gpus(replace(MACHINE, gpus=(gpu,)), switched=False, course=History(), held=held)
    assert [each.reasons for each in found] == ([["ForeignProcess"]] if expected else [])
