"""The door to NVML, through NVIDIA's real binding, above a library that answers from known readings."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.readings.readings import (
    FabricReading,
    GpuReading,
    MigDeviceReading,
    PairReading,
    Readings,
)
from closeknit.agent.discovery.simulated.profile import Faults, LinkFault
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.nvml.nvml_session import NvmlSession
from closeknit.agent.sources.hardware import HardwareSource
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.agent.sources.simulated import load_profile, profile_names
from harness.nvml_driver import InProcess
from harness.nvml_library import NvmlLibrary

DUMP = Path(__file__).parents[3] / "fixtures" / "dumps" / "hgx-h200-8gpu-vm.json"
replace = msgspec.structs.replace


def read(library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch) -> tuple[list[GpuReading], list[PairReading]]:
    library.install(monkeypatch)
    session = NvmlSession()
    gpus = [session.gpu(index) for index in range(session.survey().gpus)]
    answered = [gpu.index for gpu in gpus if "handle" not in gpu.errors]
    pairs = [session.pairs(index, tuple(other for other in answered if other > index)) for index in answered]
    return gpus, [pair for found in pairs for pair in found]


def without_errors(value: Any) -> Any:
    """The readings as plain objects, less what says why something is absent."""
    match msgspec.to_builtins(value):
        case dict() as fields:
            return {key: without_errors(field) for key, field in fields.items() if key != "errors"}
        case list() as items:
            return [without_errors(item) for item in items]
        case plain:
            return plain


def test_the_recorded_machine_is_read_as_it_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedSource(DUMP).read()
    gpus, pairs = read(NvmlLibrary(recorded), monkeypatch)
    assert tuple(gpus) == recorded.gpus
    assert tuple(pairs) == recorded.pairs


@pytest.mark.parametrize("profile", profile_names())
def test_a_machine_of_a_profile_is_read_as_its_profile_says(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = readings_of(load_profile(profile), "node-1")
    gpus, pairs = read(NvmlLibrary(simulated), monkeypatch)
    assert without_errors(gpus) == without_errors(list(simulated.gpus))
    assert pairs == list(simulated.pairs)


def test_faults_are_read_with_their_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(dead_gpus=(2,), links_down=(LinkFault(0, 2),))
    simulated = readings_of(load_profile("dgx1-v100"), "node-1", faults)
    gpus, pairs = read(NvmlLibrary(simulated), monkeypatch)
    assert gpus[2] == GpuReading(index=2, errors={"handle": "GpuIsLost"})
    assert [gpu.links for gpu in gpus] == [gpu.links for gpu in simulated.gpus]
    assert pairs == list(simulated.pairs)


def test_speeds_of_drivers_that_have_a_field_for_each_link(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = readings_of(load_profile("hgx-a100-8"), "node-1")
    gpus, _ = read(NvmlLibrary(simulated, old_speeds=True), monkeypatch)
    assert [gpu.links for gpu in gpus] == [gpu.links for gpu in simulated.gpus]


def test_sleep_is_seen_on_hopper_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = readings_of(load_profile("hgx-h200"), "node-1")
    asleep = tuple(replace(link, state=2) for link in whole.gpus[0].links)
    machine = replace(whole, gpus=(replace(whole.gpus[0], links=asleep), *whole.gpus[1:]))
    gpus, _ = read(NvmlLibrary(machine), monkeypatch)
    assert {link.state for link in gpus[0].links} == {2}


def one_gpu(**facts: Any) -> Readings:
    whole = readings_of(load_profile("hgx-h200"), "node-1")
    return Readings(gpus=(replace(whole.gpus[0], **facts),), driver_version="580.1", cuda_version=13000)


RACK = FabricReading(state=3, status=0, cluster_uuid="01" * 16, clique_id=7, health_mask=5, health_summary=1)


@pytest.mark.parametrize(
    ("version", "missing", "expected"),
    [
        pytest.param(3, (), RACK, id="a driver that knows version 3"),
        pytest.param(2, (), replace(RACK, health_summary=None), id="a driver that refuses version 3"),
        pytest.param(
            1,
            ("nvmlDeviceGetGpuFabricInfoV",),
            replace(RACK, health_mask=None, health_summary=None),
            id="a driver with the first call alone",
        ),
        pytest.param(1, ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"), None, id="a driver without any"),
    ],
)
def test_fabric(
    version: int, missing: tuple[str, ...], expected: FabricReading | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((gpu,), _) = read(NvmlLibrary(one_gpu(fabric=RACK), fabric_version=version, missing=missing), monkeypatch)
    assert gpu.fabric == expected
    assert gpu.errors.get("fabric") == (None if expected else "FunctionNotFound")


def test_mig_devices_and_the_holes_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = tuple(MigDeviceReading(uuid=f"MIG-{n}", name="NVIDIA H200 MIG 1g.18gb", memory_mib=16384) for n in "ab")
    ((gpu,), _) = read(NvmlLibrary(one_gpu(mig_mode=(1, 1), mig_devices=devices)), monkeypatch)
    assert gpu.mig_devices == devices


def test_c2c(monkeypatch: pytest.MonkeyPatch) -> None:
    ((gpu,), _) = read(NvmlLibrary(one_gpu(c2c_links=10, c2c_link_mb_s=44712)), monkeypatch)
    assert (gpu.c2c_links, gpu.c2c_link_mb_s) == (10, 44712)


def test_a_remote_name_that_is_no_text_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = one_gpu()
    garbage = replace(whole.gpus[0].links[0], remote_bus_id="\xff\xfe")
    machine = replace(whole, gpus=(replace(whole.gpus[0], links=(garbage,)),))
    ((gpu,), _) = read(NvmlLibrary(machine), monkeypatch)
    assert gpu.links == (replace(garbage, remote_bus_id=None, errors={"remote_bus_id": "NotText"}),)


def test_a_function_that_an_old_driver_lacks_is_an_absent_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    library = NvmlLibrary(one_gpu(), missing=("nvmlDeviceGetArchitecture", "nvmlDeviceGetModuleId"))
    ((gpu,), _) = read(library, monkeypatch)
    assert gpu.architecture is None
    assert {gpu.errors[name] for name in ("architecture", "module_id")} == {"FunctionNotFound"}


@pytest.mark.parametrize("calls", [1, 5, 30])
def test_a_gpu_that_is_lost_while_it_is_read_costs_only_its_own_facts(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = readings_of(load_profile("hgx-a100-4"), "node-1")
    gpus, pairs = read(NvmlLibrary(simulated, lost_after={1: calls}), monkeypatch)
    assert gpus[1].errors["handle"] == "GpuIsLost"
    assert gpus[1].bus_id == simulated.gpus[1].bus_id  # the first fact that is asked for
    assert [(pair.a, pair.b) for pair in pairs] == [(0, 2), (0, 3), (2, 3)]
    assert without_errors([gpus[0], *gpus[2:]]) == without_errors([simulated.gpus[0], *simulated.gpus[2:]])


def test_the_driver_is_opened_once_and_anew_after_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = readings_of(load_profile("pcie-8"), "node-1")
    library = NvmlLibrary(simulated)
    library.install(monkeypatch)
    source = HardwareSource(tmp_path, InProcess())
    assert source.read().driver_version == simulated.driver_version
    assert library.sessions == 1
    NvmlLibrary(simulated, missing=("nvmlDeviceGetCount_v2",)).install(monkeypatch)
    assert source.read().errors["gpus"] == "FunctionNotFound"
    library.install(monkeypatch)
    assert len(source.read().gpus) == 8
    assert library.sessions == 2
