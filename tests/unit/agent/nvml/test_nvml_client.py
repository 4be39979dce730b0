"""A driver that hangs or crashes: it costs a process, and of the machine one GPU's facts."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from closeknit.agent.discovery.readings.carried_gpus import remembered
from closeknit.agent.discovery.readings.dump import encode
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.agent.nvml.nvml_client import MAX_HELD, WITHOUT_CUDA, NoAnswer, NvmlClient
from closeknit.agent.nvml.nvml_messages import AskGpu, AskSurvey
from closeknit.agent.sources import hardware
from closeknit.agent.sources.hardware import HardwareSource
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method
from closeknit.api.nodetopology_status import Health

MACHINE = readings_of(load_profile("hgx-a100-4"), "node-1")
START_S = 60.0  # of a process, on a machine that others use
NAME, COUNT = "nvmlDeviceGetName", "nvmlDeviceGetCount_v2"


class NvmlClients:
    """NvmlClients to one machine, each with faults of its own; all are closed in the end."""

    def __init__(self, folder: Path) -> None:
        self._dump = folder / "dump.json"
        self._dump.write_bytes(encode(MACHINE))
        self.opened: list[NvmlClient] = []

    def __call__(self, *faults: str) -> NvmlClient:
        self.opened.append(NvmlClient((sys.executable, "-m", "harness.nvml_driver", str(self._dump), *faults)))
        return self.opened[-1]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlClients]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setattr(hardware, "OPEN_S", START_S)
    monkeypatch.setattr(hardware, "ANSWER_S", 2.0)
    clients = NvmlClients(tmp_path)
    yield clients
    for each in clients.opened:
        each.close()


def readings(client: NvmlClient, root: Path) -> Readings:
    return HardwareSource(root, client).read()


def test_nvml_does_not_load_the_library_of_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would where it finds one: here an empty one comes first."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (tmp_path / "libcuda.so.1").write_bytes(Path(sys.executable).resolve().read_bytes()[:4096])
    said = tmp_path / "said"
    program = f"""
import ctypes, pathlib
try:
    ctypes.CDLL("libcuda.so.1")
except OSError as error:
    pathlib.Path({str(said)!r}).write_text(str(error))
"""
    with pytest.raises(NoAnswer):
        NvmlClient((sys.executable, "-c", program)).ask(AskSurvey(), START_S)
    assert f"{WITHOUT_CUDA}/libcuda.so.1: file too short" in said.read_text()


def test_what_comes_through_the_process_is_what_the_driver_said(client: NvmlClients, tmp_path: Path) -> None:
    read = readings(client(), tmp_path)
    assert [gpu.uuid for gpu in read.gpus] == [gpu.uuid for gpu in MACHINE.gpus]
    assert [gpu.links for gpu in read.gpus] == [gpu.links for gpu in MACHINE.gpus]
    assert read.pairs == MACHINE.pairs


@pytest.mark.parametrize(
    ("what", "error", "reason"), [("hang", "Hung", "GPUHung"), ("crash", "Crashed", "DriverCrashed")]
)
def test_a_gpu_on_which_a_call_does_not_return_costs_only_its_own_facts(
    what: str, error: str, reason: str, client: NvmlClients, tmp_path: Path
) -> None:
    whole = readings(client(), tmp_path)
    source = HardwareSource(tmp_path, client(f"{NAME}:1:{what}"))
    read = source.read()
    assert [gpu.errors.get("handle") for gpu in read.gpus] == [None, error, None, None]
    assert [(pair.a, pair.b) for pair in read.pairs] == [(0, 2), (0, 3), (2, 3)]
    found = discover(remembered(whole, read), Method.NVML)
    assert found.spec == discover(whole, Method.NVML).spec
    assert [(gpu.index, gpu.state, gpu.reasons) for gpu in found.gpus] == [(1, Health.UNHEALTHY, [reason])]
    assert found.findings[0].message == f"read: 3 GPUs; not GPU 1 ({error})."

    worker = client.opened[1]._worker
    assert source.read().gpus[1].errors == {"handle": error}
    assert client.opened[1]._worker is worker  # it is left alone: asking it would have cost the process again


def test_a_gpu_that_hangs_later_is_told_before_the_driver_is_opened_again(client: NvmlClients, tmp_path: Path) -> None:
    file = tmp_path / "hangs"
    ours = client(f"nvmlDeviceGetTotalEccErrors:1:hang@{file}")
    source = HardwareSource(tmp_path, ours)
    whole = source.read()
    file.touch()
    told = source.read()
    assert not ours.is_open
    assert [gpu.errors.get("handle") for gpu in told.gpus] == [None, "Hung", None, None]
    assert [told.gpus[index] for index in (0, 2, 3)] == [whole.gpus[index] for index in (0, 2, 3)]
    after = source.read()
    assert ours.is_open
    assert after.gpus == told.gpus


def test_more_than_one_gpu_that_hangs_is_a_driver_that_does_until_they_are_left_alone(
    client: NvmlClients, tmp_path: Path
) -> None:
    source = HardwareSource(tmp_path, client(f"{NAME}:1:hang", f"{NAME}:2:hang"))
    first = source.read()
    assert (first.errors["driver"], first.suspect) == ("Hung", 2)
    assert [gpu.errors.get("handle") for gpu in source.read().gpus] == [None, "Hung", "Hung", None]


def test_a_gpu_that_answers_again_is_heard(
    client: NvmlClients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "SILENT_S", (0.0, 0.0))
    file = tmp_path / "hangs"
    file.touch()
    source = HardwareSource(tmp_path, client(f"{NAME}:1:hang@{file}"))
    assert source.read().gpus[1].errors == {"handle": "Hung"}
    file.unlink()
    assert source.read().gpus[1].uuid == MACHINE.gpus[1].uuid


def test_a_driver_that_hangs_as_a_whole_is_a_reading(
    client: NvmlClients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "OPEN_S", 2.0)
    read = readings(client("nvmlInitWithFlags:-:hang"), tmp_path)
    assert (read.gpus, read.errors["driver"]) == ((), "Hung")
    assert discover(read, Method.NVML).findings[0].reason == "DriverHung"


def test_the_gpu_after_which_nothing_answers_is_named(client: NvmlClients, tmp_path: Path) -> None:
    file = tmp_path / "hangs"
    client(f"{NAME}:2:hang", f"{COUNT}:-:crash@{file}")

    class Between:
        """The driver gets worse when GPU 2 hangs."""

        @property
        def is_open(self) -> bool:
            return client.opened[0].is_open

        def ask(self, question: object, deadline_s: float) -> object:
            if question == AskGpu(2):
                file.touch()
            return client.opened[0].ask(question, START_S if question == AskSurvey() else deadline_s)  # type: ignore[arg-type]

    source = HardwareSource(tmp_path, Between())  # type: ignore[arg-type]
    read = source.read()
    assert (read.suspect, read.errors["driver"]) == (2, "Crashed")
    message = discover(remembered(MACHINE, read), Method.NVML).findings[0].message
    assert message.endswith("It stopped to answer when GPU 2 was asked.")


def test_processes_that_cannot_be_killed_are_few(client: NvmlClients, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = client("nvmlInitWithFlags:-:hang")
    started: list[int] = []
    kill = subprocess.Popen.kill
    monkeypatch.setattr(subprocess.Popen, "kill", lambda self: started.append(self.pid))  # held in the kernel
    for _ in range(MAX_HELD):
        with pytest.raises(NoAnswer, match="Hung"):
            hangs.ask(AskSurvey(), 0.2)
    with pytest.raises(NoAnswer, match="Hung"):
        hangs.ask(AskSurvey(), 0.2)
    assert len(started) == MAX_HELD
    monkeypatch.setattr(subprocess.Popen, "kill", kill)
    for pid in started:
        os.kill(pid, signal.SIGKILL)  # the driver lets them go
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(NoAnswer, match="Hung"):
        hangs.ask(AskSurvey(), 0.2)
    assert not hangs.is_open
    hangs._held.clear()


def test_a_program_that_is_no_worker_is_a_crash(client: NvmlClients) -> None:
    for command in (["false"], ["echo", "hello, is anybody there?"], ["cat"]):
        with pytest.raises(NoAnswer, match="Crashed"):
            NvmlClient(command).ask(AskSurvey(), 5.0)
    assert client().ask(AskSurvey(), START_S).gpus == 4


def test_the_process_holds_nothing_that_it_does_not_need() -> None:
    heavy = "{'pydantic', 'asyncio', 'kubernetes', 'aiohttp', 'typer'}"
    program = f"import sys, closeknit.agent.nvml.nvml_worker; sys.exit(str({heavy} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr == "set()\n"  # pydantic alone is 9 MB


def test_the_agent_itself_does_not_hold_nvmls_binding() -> None:
    program = "import sys, closeknit.agent.sources.hardware; sys.exit(str({'pynvml'} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr == "set()\n"  # 12 MB
