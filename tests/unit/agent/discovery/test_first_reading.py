"""One call that fails just when an agent begins, and remembers nothing, does not change what it publishes either."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from closeknit.agent.discovery.readings.carried_gpus import remembered
from closeknit.agent.discovery.readings.readings import DriverReading
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import Discovery, discover
from closeknit.agent.sources.hardware import HardwareSource
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method
from harness.nvml_driver import InProcess
from harness.nvml_library import CODES, NvmlLibrary

MACHINE = readings_of(load_profile("rtx3090-2"), "node-1")


def first(library: NvmlLibrary, root: Path, monkeypatch: pytest.MonkeyPatch) -> Discovery:
    library.install(monkeypatch)
    return discover(HardwareSource(root, InProcess()).read(), Method.NVML)


def test_whichever_call_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(MACHINE)
    whole = first(library, tmp_path, monkeypatch)
    assert library.calls > 2 * 8 * 5  # links, each with its facts
    blind = []
    for call in range(library.calls):
        library = NvmlLibrary(MACHINE)
        library.failing = (call, CODES["Unknown"])
        found = first(library, tmp_path, monkeypatch)
        if found.is_blind:
            blind.append(call)
        else:
            assert found.spec == whole.spec, f"call {call}"
    assert len(blind) <= 2  # where the driver does not open or count, what is published stays as it is


def test_what_always_fails_is_asked_twice_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NvmlLibrary(MACHINE, missing=["nvmlDeviceGetName"]).install(monkeypatch)
    driver = InProcess()
    HardwareSource(tmp_path, driver).read()
    absent = len(driver.asked)  # a driver that has no such call has answered
    library = NvmlLibrary(MACHINE)
    library.install(monkeypatch)
    monkeypatch.setattr(library, "_nvmlDeviceGetName", lambda *_: CODES["Unknown"], raising=False)
    driver = InProcess()
    HardwareSource(tmp_path, driver).read()
    assert len(driver.asked) == absent + len(MACHINE.gpus)


def test_a_driver_that_does_not_count_its_gpus_has_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(MACHINE)
    library.install(monkeypatch)
    monkeypatch.setattr(library, "_nvmlDeviceGetCount_v2", lambda *_: CODES["Unknown"], raising=False)
    found = HardwareSource(tmp_path, InProcess()).read()
    assert (found.gpus, found.errors["gpus"]) == ((), "Unknown")
    assert (found.driver_version, found.cuda_version) == (MACHINE.driver_version, MACHINE.cuda_version)


@pytest.mark.parametrize("fact", DriverReading.__struct_fields__)
def test_each_fact_of_the_driver_is_asked_for_and_remembered(
    fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    NvmlLibrary(MACHINE).install(monkeypatch)
    found = HardwareSource(tmp_path, InProcess()).read()
    assert getattr(found, fact) == getattr(MACHINE, fact) is not None
    unread = replace(found, **{fact: None}, errors={fact: "Unknown"})
    assert getattr(remembered(found, unread), fact) == getattr(MACHINE, fact)
