"""The mistakes of NVIDIA's binding that the door steps around, each shown to be one."""

import ctypes

import msgspec
import pynvml
import pytest

from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.nvml.gpu_static import P2P_READ
from closeknit.agent.nvml.nvml_messages import framed
from closeknit.agent.nvml.nvml_session import NvmlSession
from closeknit.agent.sources.simulated import load_profile
from harness.nvml_fields import VALUE_MEMBERS
from harness.nvml_library import NvmlLibrary

replace = msgspec.structs.replace
MACHINE = readings_of(load_profile("hgx-h200"), "node-1")


def opened(library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch) -> NvmlSession:
    library.install(monkeypatch)
    session = NvmlSession()
    session.survey()
    return session


def test_the_index_of_reading_over_p2p_is_a_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(NvmlLibrary(MACHINE), monkeypatch)
    one, other = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    with pytest.raises((TypeError, ctypes.ArgumentError)):
        pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_READ)
    assert pynvml.NVML_P2P_CAPS_INDEX_READ[0] == P2P_READ
    assert session.pairs(0, (1,))[0].p2p_read == 0


def test_an_error_of_the_binding_is_no_key_and_equals_no_text() -> None:
    error = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(TypeError):
        hash(error)
    with pytest.raises(AttributeError):
        assert error == "GpuIsLost"


def test_the_module_id_of_a_gpu_that_has_none_is_not_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (replace(MACHINE.gpus[0], module_id=5), replace(MACHINE.gpus[1], module_id=None))
    session = opened(NvmlLibrary(replace(MACHINE, gpus=gpus)), monkeypatch)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetModuleId(handle) is pynvml.nvmlDeviceGetModuleId(handle)  # one number for all calls
    assert [session.gpu(index).module_id for index in (0, 1)] == [5, None]
    assert session.gpu(1).errors["module_id"] == "NotSupported"


@pytest.mark.parametrize("kind", range(len(VALUE_MEMBERS)), ids=VALUE_MEMBERS)
def test_a_field_is_read_as_the_kind_that_it_has(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(MACHINE)
    library.value_type = kind
    assert opened(library, monkeypatch).gpu(0).links[0].speed_mb_s == MACHINE.gpus[0].links[0].speed_mb_s


def test_a_field_of_a_kind_that_nobody_knows_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(MACHINE)
    library.value_type = 7
    link = opened(library, monkeypatch).gpu(0).links[0]
    assert (link.speed_mb_s, link.errors["speed_mb_s"]) == (None, "UnknownValueType")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_field_that_is_no_number_is_absent(number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(MACHINE)
    library.value_type = 0
    session = opened(library, monkeypatch)
    monkeypatch.setattr(library, "_field", lambda *_: (0, number))
    reading = session.gpu(0)
    assert (reading.links[0].speed_mb_s, reading.links[0].errors["speed_mb_s"]) == (None, "NotANumber")
    assert framed(reading)


def test_a_gpu_that_may_not_be_opened_is_counted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = replace(MACHINE.gpus[1], errors={"handle": "NoPermission"})
    machine = replace(MACHINE, gpus=(MACHINE.gpus[0], closed, *MACHINE.gpus[2:]))
    session = opened(NvmlLibrary(machine), monkeypatch)
    assert session.survey().gpus == 8
    assert session.gpu(1).errors == {"handle": "NoPermission"}


def test_more_links_than_the_binding_has_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    links = tuple(replace(MACHINE.gpus[0].links[0], link=number) for number in range(36))
    machine: Readings = replace(MACHINE, gpus=(replace(MACHINE.gpus[0], links=links), *MACHINE.gpus[1:]))
    assert len(opened(NvmlLibrary(machine), monkeypatch).gpu(0).links) == 36


def test_one_wrong_answer_is_not_the_end_of_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(MACHINE)
    session = opened(library, monkeypatch)
    before = library.calls
    whole = session.gpu(0)
    for call in range(1, library.calls - before):  # the first one gives the handle
        library.failing = (library.calls + call, 2)  # INVALID_ARGUMENT, as beyond the last link
        assert len(session.gpu(0).links) == len(whole.links)
