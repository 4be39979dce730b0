"""A machine that cannot be read says why by a closed reason, and what to do."""

import msgspec
import pytest

from closeknit.agent.discovery.readings.readings import GpuReading, Readings
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.nvml.nvml_session import NvmlSession
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method
from closeknit.api.reasons import ReadyReason
from harness.nvml_library import NvmlLibrary

MACHINE = readings_of(load_profile("hgx-a100-4"), "node-1")


def silent(*errors: str) -> Readings:
    return Readings(gpus=tuple(GpuReading(index=i, errors={"handle": error}) for i, error in enumerate(errors)))


@pytest.mark.parametrize(
    ("readings", "reason", "words"),
    [
        (Readings(errors={"driver": "LibraryNotFound"}), "DriverNotFound", "libnvidia-ml.so.1 is not installed"),
        (Readings(errors={"driver": "DriverNotLoaded"}), "DriverNotLoaded", "load them"),
        (Readings(errors={"driver": "LibRmVersionMismatch"}), "DriverMismatch", "drain the node and restart it"),
        (Readings(errors={"driver": "NoPermission"}), "PermissionDenied", "may not open"),
        (Readings(errors={"driver": "GpuNotFound"}), "NoGPU", "lspci"),
        (Readings(errors={"gpus": "Memory"}), "OutOfMemory", "got no memory"),
        (Readings(errors={"gpus": "InsufficientResources"}), "OutOfMemory", "got no memory"),
        (Readings(errors={"driver": "Hung"}), "DriverHung", "does not answer"),
        (Readings(errors={"driver": "Crashed"}), "DriverFailed", "ended the process"),
        (Readings(errors={"driver": "Unknown"}), "DriverFailed", "(Unknown)"),
        (Readings(), "NoGPU", "has no GPU"),
        (silent("NoPermission", "NoPermission"), "PermissionDenied", "may not open"),
        (silent("GpuIsLost", "GpuIsLost"), "NoGPUAnswers", "None of 2 GPUs answers (GpuIsLost)"),
        (silent("GpuIsLost"), "NoGPUAnswers", "The one GPU does not answer (GpuIsLost)"),
        (silent("GpuIsLost", "Hung"), "NoGPUAnswers", "(GpuIsLost, Hung)"),
    ],
)
def test_not_ready(readings: Readings, reason: str, words: str) -> None:
    found = discover(readings, Method.NVML)
    ready = found.findings[0]
    assert (ready.status, ready.reason, found.is_blind) == ("False", reason, True)
    assert words in ready.message
    assert ReadyReason(ready.reason)


def test_one_gpu_that_answers_makes_a_machine() -> None:
    readings = msgspec.structs.replace(MACHINE, gpus=(*silent("GpuIsLost", "GpuIsLost").gpus, *MACHINE.gpus[2:]))
    found = discover(readings, Method.NVML)
    assert (found.findings[0].status, found.findings[0].reason, found.is_blind) == ("True", "PartlyRead", False)


@pytest.mark.parametrize("code", [4, 9, 12, 18, 20, 999])
def test_a_driver_that_does_not_open_is_tried_again(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(MACHINE)
    library.install(monkeypatch)
    library.failing = (0, code)
    session = NvmlSession()
    failed = session.survey()
    assert (failed.gpus, list(failed.errors)) == (0, ["driver"])
    assert discover(Readings(errors=failed.errors), Method.NVML).findings[0].status == "False"
    assert session.survey().gpus == 4
