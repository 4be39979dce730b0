"""How a GPU is, through the real binding; and when the GPUs are read again."""

from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest

from closeknit.agent.discovery.health.history import History, followed
from closeknit.agent.discovery.readings.carried_gpus import remembered
from closeknit.agent.discovery.readings.readings import GpuReading, HealthReading, Readings, XidReading
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.nvml import gpu_state as nvml_health
from closeknit.agent.nvml.gpu_refresh import has_failed
from closeknit.agent.nvml.nvml_client import NoAnswer
from closeknit.agent.nvml.nvml_messages import AskGpu, AskPulse
from closeknit.agent.nvml.nvml_session import NvmlSession
from closeknit.agent.sources import hardware
from closeknit.agent.sources.hardware import HardwareSource
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method
from harness.nvml_driver import InProcess
from harness.nvml_library import CODES, NvmlLibrary

replace = msgspec.structs.replace
WELL = HealthReading(
    recovery_action=0, rows_pending=False, rows_failed=False, uncorrected_ecc=0, clocks_event_reasons=1, link_errors=0
)
ILL = HealthReading(
    recovery_action=2, rows_pending=True, rows_failed=True, uncorrected_ecc=3, clocks_event_reasons=64, link_errors=9
)


@pytest.fixture(autouse=True)
def _is_in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which sees its own processes alone."""
    monkeypatch.setattr(nvml_health, "_sees_all_processes", lambda: False)


def machine(profile: str = "hgx-h200", **first: Any) -> Readings:
    whole = readings_of(load_profile(profile), "node-1")
    gpus = [replace(gpu, health=WELL) for gpu in whole.gpus]
    return replace(whole, gpus=(replace(gpus[0], **first), *gpus[1:]))


def links(count: int) -> tuple[int, ...]:
    return tuple(range(count))


@pytest.mark.parametrize(
    ("profile", "count"), [("hgx-h200", 18), ("gb200-tray", 18), ("hgx-a100-8", 12), ("pcie-8", 0)]
)
def test_a_pulse(profile: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = machine(profile, health=ILL)
    NvmlLibrary(readings).install(monkeypatch)
    session = NvmlSession()
    session.survey()
    pulse = session.pulse(0, links(count), counts=True)
    gpu = readings.gpus[0]
    assert (pulse.uuid, pulse.fabric, pulse.links) == (gpu.uuid, gpu.fabric, (1,) * count)
    assert pulse.health == (ILL if count else replace(ILL, link_errors=None))


def test_what_a_driver_does_not_know_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ("nvmlDeviceGetRemappedRows", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetFieldValues")
    NvmlLibrary(machine(health=ILL), missing=missing).install(monkeypatch)
    health = NvmlSession().pulse(0, links(2), counts=True).health
    assert health.errors == dict.fromkeys(["rows_failed", "recovery_action"], "FunctionNotFound")
    assert (health.rows_failed, health.recovery_action, health.link_errors) == (None, None, None)
    assert health.clocks_event_reasons == 64  # by its older name


def test_processes_are_read_where_the_hosts_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    NvmlLibrary(machine(health=replace(ILL, pids=(30, 7)))).install(monkeypatch)
    monkeypatch.setattr(nvml_health, "_sees_all_processes", lambda: True)
    assert NvmlSession().pulse(0, (), counts=True).health.pids == (7, 30)
    assert NvmlSession().pulse(1, (), counts=True).health.pids is None  # NVML does not say
    monkeypatch.setattr(nvml_health, "_sees_all_processes", lambda: False)
    assert NvmlSession().pulse(0, (), counts=True).health.pids is None


def test_xids_are_told_once_and_only_of_gpus_that_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = machine()
    library = NvmlLibrary(readings)
    library.install(monkeypatch)
    session = NvmlSession()
    session.survey()
    library.events = [(0, 13), (2, 79)]
    assert session._events.since_last_asked() == ()  # nobody listened
    for index in (0, 1, 0):
        session.gpu(index)
    session.pulse(2, (), counts=True)
    assert library.watched == [0, 1, 2]
    told = session._events.since_last_asked()
    assert told == (XidReading(xid=13, uuid=readings.gpus[0].uuid), XidReading(xid=79, uuid=readings.gpus[2].uuid))
    assert session._events.since_last_asked() == ()
    library.events = [(0, 79)] * 100
    assert [len(session._events.since_last_asked()) for _ in range(3)] == [64, 36, 0]


def test_a_set_of_events_that_fails_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(machine())
    library.install(monkeypatch)
    session = NvmlSession()
    session.pulse(0, (), counts=True)
    library.event_error = 999
    assert session._events.since_last_asked() == ()
    library.event_error = 10
    session.pulse(0, (), counts=True)
    library.events = [(0, 79)]
    assert [event.xid for event in session._events.since_last_asked()] == [79]


class Clock:
    """The clock of the source under test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(hardware, "monotonic", lambda: self.now)


def asked(driver: InProcess, kind: type) -> int:
    count = sum(isinstance(question, kind) for question in driver.asked)
    driver.asked.clear()
    return count


def test_what_gpus_are_is_read_rarely_and_how_they_are_always(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, driver, readings = Clock(monkeypatch), InProcess(), machine()
    NvmlLibrary(readings).install(monkeypatch)
    source = HardwareSource(tmp_path, driver)
    first = source.read()
    assert first.gpus[0].health == replace(WELL, errors={})
    driver.asked.clear()
    for _ in range(5):
        assert source.read() == first
        assert [type(question) for question in driver.asked].count(AskPulse) == 8
        assert asked(driver, AskGpu) == 0
    clock.now += 300
    assert source.read() == first
    assert asked(driver, AskGpu) == 8


def test_what_takes_long_is_counted_rarely_and_kept_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, driver = Clock(monkeypatch), InProcess()
    NvmlLibrary(machine()).install(monkeypatch)
    source = HardwareSource(tmp_path, driver)
    source.read()
    NvmlLibrary(machine(health=ILL)).install(monkeypatch)
    early = source.read().gpus[0].health
    assert early is not None
    assert (early.link_errors, early.rows_failed, early.uncorrected_ecc) == (0, True, ILL.uncorrected_ecc)
    clock.now += hardware.COUNT_S
    assert source.read().gpus[0].health == replace(ILL, errors={})
    driver.asked.clear()
    for _ in range(5):
        assert source.read().gpus[0].health == replace(ILL, errors={})
    assert {question.counts for question in driver.asked if isinstance(question, AskPulse)} == {False}


def test_errors_of_links_are_told_of_all_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum that lacks a link falls, and rises again with it: five errors that nobody made."""
    clock = Clock(monkeypatch)
    library = NvmlLibrary(machine(health=replace(WELL, link_errors=9)))
    library.install(monkeypatch)
    source = HardwareSource(tmp_path, InProcess())
    last: Readings | None = None
    course = History()
    for unread, expected in ((None, 9), (0, 9), (None, 9)):
        library.unread_link = unread
        last = remembered(last, source.read())
        course = followed(course, last, clock.now)
        assert last.gpus[0].health is not None and last.gpus[0].health.link_errors == expected
        assert (last.gpus[0].health.errors.get("link_errors") is None) == (unread is None)
        source.read()
        clock.now += hardware.COUNT_S
    assert not any(gpu.has_link_errors for gpu in course.gpus.values())


@pytest.mark.parametrize("change", ["uuid", "driver", "count"])
def test_another_machine_is_read_at_once(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    before = machine()
    after = {
        "uuid": machine(uuid="GPU-other"),
        "driver": replace(before, driver_version="999.1"),
        "count": replace(before, gpus=before.gpus[:7]),
    }[change]
    NvmlLibrary(before).install(monkeypatch)
    source = HardwareSource(tmp_path, InProcess())
    source.read()
    NvmlLibrary(after).install(monkeypatch)
    now = source.read()
    assert (now.driver_version, [gpu.uuid for gpu in now.gpus]) == (after.driver_version, [g.uuid for g in after.gpus])


class Restless(NvmlLibrary):
    """The first GPU has another uuid each time it is asked."""

    count = 0

    def _nvmlDeviceGetUUID(self, handle: Any, text: Any, length: Any) -> int:  # noqa: N802
        code = super()._nvmlDeviceGetUUID(handle, text, length)
        if text.value.decode() == machine().gpus[0].uuid:
            self.count += 1
            text.value = f"GPU-{self.count}".encode()
        return code


@pytest.mark.parametrize("is_known", [False, True])
def test_a_uuid_that_changes_makes_no_new_machine_each_time(
    is_known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each other spec would be a new generation of the NodeTopology, and cost the gangs there their places."""
    Clock(monkeypatch)
    source, last = HardwareSource(tmp_path, InProcess()), None
    if is_known:
        NvmlLibrary(machine()).install(monkeypatch)
        last = remembered(None, source.read())
    Restless(machine()).install(monkeypatch)
    found = []
    for _ in range(4):
        last = remembered(last, source.read())
        found.append(discover(last, Method.NVML))
    assert len({each.spec.gpus[0].uuid for each in found}) == 1
    assert found[0].spec == found[-1].spec
    assert found[0].spec.gpus[0].uuid == (machine().gpus[0].uuid if is_known else None)
    assert found[-1].findings[0].message.endswith("NVML contradicts itself: GPU 0 tells of a uuid that changes")


def test_links_fabric_and_xids_are_those_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    before = machine()
    NvmlLibrary(before).install(monkeypatch)
    source = HardwareSource(tmp_path, InProcess())
    first = source.read()
    gpu = before.gpus[0]
    assert gpu.fabric is not None
    dead = replace(gpu.links[3], state=0)
    after = machine(links=(*gpu.links[:3], dead, *gpu.links[4:]), fabric=replace(gpu.fabric, state=2), health=ILL)
    library = NvmlLibrary(after)
    library.install(monkeypatch)
    library.watched, library.events = [0], [(0, 79)]
    now = source.read()
    assert [link.link for link in now.gpus[0].links if link.state == 0] == [3]
    assert now.gpus[0].fabric == after.gpus[0].fabric
    uncounted = replace(ILL, link_errors=0)  # which is counted later
    assert (now.gpus[0].health, [event.xid for event in now.xids]) == (uncounted, [79])
    NvmlLibrary(before).install(monkeypatch)
    assert source.read() == first  # recovery is seen, too


def test_a_gpu_that_is_lost_is_told_at_once_and_so_is_its_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    NvmlLibrary(machine()).install(monkeypatch)
    source = HardwareSource(tmp_path, InProcess())
    first = source.read()
    NvmlLibrary(machine(), lost_after={1: 0}).install(monkeypatch)
    lost = source.read().gpus[1]
    assert (lost.errors["handle"], lost.uuid) == ("GpuIsLost", machine().gpus[1].uuid)
    NvmlLibrary(machine()).install(monkeypatch)
    clock.now += 5
    assert source.read() == first


class Hangs(InProcess):
    """A driver on which some GPUs do not answer."""

    def __init__(self, *gpus: int) -> None:
        super().__init__()
        self.gpus = gpus

    def ask(self, question: Any, deadline_s: float) -> Any:
        if getattr(question, "index", None) in self.gpus:
            self.asked.append(question)
            raise NoAnswer("Hung")
        return super().ask(question, deadline_s)


def test_of_gpus_that_hang_one_is_asked_again_at_a_time_and_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, driver = Clock(monkeypatch), Hangs()
    NvmlLibrary(machine()).install(monkeypatch)
    source = HardwareSource(tmp_path, driver)
    source.read()
    asked_again = []
    for gpus in ((1,), (1, 2)):
        driver.gpus = gpus
        source.read()
    for second in range(0, 1000, 5):
        clock.now = 2000.0 + second
        driver.asked.clear()
        read = source.read()
        assert [gpu.index for gpu in read.gpus if gpu.errors.get("handle") == "Hung"] == [1, 2]
        indexes = [getattr(question, "index", None) for question in driver.asked]
        asked_again += [(second, index) for index in indexes if index in (1, 2)]
    assert asked_again == [(0, 1), (5, 2), (120, 1), (125, 2), (360, 1), (365, 2), (840, 1), (845, 2)]
    driver.gpus = ()
    clock.now += 1000
    source.read()
    clock.now += 35
    assert [gpu.errors.get("handle") for gpu in source.read().gpus] == [None] * 8


def test_what_failed_is_asked_again_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, driver = Clock(monkeypatch), InProcess()
    NvmlLibrary(machine(name=None, errors={"name": "Unknown"})).install(monkeypatch)
    source = HardwareSource(tmp_path, driver)
    assert source.read().gpus[0].errors == {"name": "Unknown"} | dict.fromkeys(
        ["c2c_links", "module_id"], "NotSupported"
    )
    NvmlLibrary(machine()).install(monkeypatch)
    clock.now += 5
    assert source.read().gpus[0].name is None
    clock.now += 25
    assert source.read().gpus[0].name == machine().gpus[0].name
    driver.asked.clear()
    clock.now += 60
    source.read()
    assert asked(driver, AskGpu) == 0  # what is not supported is no failure


@pytest.mark.parametrize("code", ["Unknown", "GpuIsLost", "InvalidArgument"])
def test_one_call_that_fails_makes_no_gpu_ill(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it is of those of a reading; where the second one fails, too, the first reading tells."""
    library = NvmlLibrary(machine("rtx3090-2"))
    library.install(monkeypatch)
    source = HardwareSource(tmp_path, InProcess())
    source.read()
    before = library.calls
    whole = source.read()
    for call in range(library.calls - before):
        library.failing = (library.calls + call, CODES[code])
        found = source.read()
        assert not found.errors.keys() & {"driver", "gpus"}, call
        assert not [gpu for gpu in found.gpus if "handle" in gpu.errors], call
        assert remembered(whole, found).gpus[0].uuid == whole.gpus[0].uuid
    library.failing = None
    lost = replace(machine("rtx3090-2"), gpus=tuple(GpuReading(index, errors={"handle": code}) for index in range(2)))
    NvmlLibrary(lost).install(monkeypatch)
    assert [gpu.errors["handle"] for gpu in source.read().gpus] == [code, code]


def test_an_architecture_that_the_driver_does_not_know_is_none_and_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = machine("rtx3090-2")
    unknown = replace(known, gpus=tuple(replace(gpu, architecture=0xFFFFFFFF) for gpu in known.gpus))
    NvmlLibrary(unknown).install(monkeypatch)
    read = HardwareSource(tmp_path, InProcess()).read()
    assert [gpu.architecture for gpu in read.gpus] == [None, None]
    assert not any(map(has_failed, read.gpus))
    assert [gpu.architecture for gpu in remembered(known, read).gpus] == [gpu.architecture for gpu in known.gpus]


def test_more_gpus_than_any_machine_has_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(machine())
    library.install(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2**32 - 1)
    assert NvmlSession().survey().errors["gpus"] == "NotANumber"
