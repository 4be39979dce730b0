"""Live values: read when somebody looks, at most once a second, and absent where the driver does not say them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.exposition import generate_latest

from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.discovery.readings.byte_counters import NO_TRAFFIC, ByteCounters
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.metrics import GpuMetrics
from closeknit.agent.node_agent import LONGEST_READING_S, Agent
from closeknit.agent.nvml.nvml_client import NoAnswer
from closeknit.agent.nvml.nvml_messages import AskLive
from closeknit.agent.sources.hardware import HardwareSource
from closeknit.agent.sources.simulated import SimulatedSource, load_profile
from closeknit.api.nodetopology import Method
from harness.nvml_driver import InProcess
from harness.nvml_library import NvmlLibrary

MACHINE = readings_of(load_profile("pcie-8"), "node-1")


class Gpus:
    """A source of live values alone."""

    method = Method.NVML

    def __init__(self, *gpus: LiveGpu) -> None:
        self.gpus: Sequence[LiveGpu] = gpus
        self.asked = 0

    def read(self) -> Readings:
        raise NotImplementedError

    def live(self) -> Sequence[LiveGpu]:
        self.asked += 1
        return self.gpus

    def traffic(self, gpus: Sequence[str]) -> ByteCounters:  # noqa: ARG002 -- it is the protocol's
        return NO_TRAFFIC


def shown(metrics: GpuMetrics) -> list[str]:
    """What is said of single GPUs."""
    return [
        line for line in generate_latest(metrics.registry).decode().splitlines() if line.startswith("closeknit_gpu_")
    ]


def test_four_values_of_each_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NvmlLibrary(MACHINE).install(monkeypatch)
    source = HardwareSource(tmp_path, InProcess())
    metrics = GpuMetrics(source)
    asyncio.run(metrics.refresh())
    assert shown(metrics) == []  # nobody knows the GPUs yet
    source.read()
    metrics = GpuMetrics(source)
    asyncio.run(metrics.refresh())
    lines = shown(metrics)
    assert len(lines) == 4 * 8
    uuid = MACHINE.gpus[3].uuid
    assert [line for line in lines if 'gpu="3"' in line] == [
        f'closeknit_gpu_utilization_ratio{{gpu="3",uuid="{uuid}"}} 0.97',
        f'closeknit_gpu_memory_used_bytes{{gpu="3",uuid="{uuid}"}} 5.36870912e+09',
        f'closeknit_gpu_temperature_celsius{{gpu="3",uuid="{uuid}"}} 54.0',
        f'closeknit_gpu_power_watts{{gpu="3",uuid="{uuid}"}} 412.5',
    ]


def test_what_the_driver_does_not_say_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sliced = msgspec.structs.replace(MACHINE.gpus[0], mig_mode=(1, 1), memory_bytes=None, errors={})
    NvmlLibrary(msgspec.structs.replace(MACHINE, gpus=(sliced,)), missing=("nvmlDeviceGetPowerUsage",)).install(
        monkeypatch
    )
    source = HardwareSource(tmp_path, InProcess())
    source.read()
    assert source.live() == (LiveGpu(index=0, uuid=sliced.uuid, temperature_celsius=54),)


def test_a_gpu_that_does_not_answer_ends_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NvmlLibrary(MACHINE).install(monkeypatch)

    class Hanging(InProcess):
        def ask(self, question: Any, deadline_s: float) -> Any:
            if question == AskLive(2):
                raise NoAnswer("Hung")
            return super().ask(question, deadline_s)

    source = HardwareSource(tmp_path, Hanging())
    source.read()
    assert [gpu.index for gpu in source.live()] == [0, 1]


def test_however_many_look_the_driver_is_asked_once_a_second() -> None:
    source = Gpus(LiveGpu(index=0, temperature_celsius=50), LiveGpu(index=1, temperature_celsius=51))

    async def main() -> None:
        metrics = GpuMetrics(source)
        await asyncio.gather(*(metrics.refresh() for _ in range(20)))
        assert source.asked == 1
        assert len(shown(metrics)) == 2
        source.gpus = source.gpus[:1]
        await asyncio.sleep(1.1)
        await metrics.refresh()
        assert source.asked == 2
        assert shown(metrics) == ['closeknit_gpu_temperature_celsius{gpu="0",uuid=""} 50.0']  # the other one is gone

    asyncio.run(main())


def test_a_simulated_gpu_is_at_rest() -> None:
    source = SimulatedSource(load_profile("pcie-8"), "node-1")
    source.read()
    metrics = GpuMetrics(source)
    asyncio.run(metrics.refresh())
    assert [line.split()[-1] for line in shown(metrics) if 'gpu="3"' in line] == ["0.0", "0.0", "30.0", "75.0"]


def test_an_agent_says_how_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute:
        async def published(self) -> None:
            return None

        async def publish(self, *_: Any) -> list[str]:
            return []

    async def main() -> None:
        publisher: Any = Mute()
        agent = Agent("node-1", SimulatedSource(load_profile("pcie-8"), "node-1"), publisher, interval_s=5)
        assert (agent.faults(), agent.gaps()) == ([], ["nothing has been published yet"])
        running = asyncio.create_task(agent.run())
        while agent.gaps() and not running.done():  # noqa: ASYNC110 -- the agent has no event for it
            await asyncio.sleep(0.01)
        assert not agent.gaps()
        assert agent.gpus() == {"Healthy": 8, "Degraded": 0, "Unhealthy": 0}
        running.cancel()
        now = agent._heard_at + LONGEST_READING_S
        monkeypatch.setattr("closeknit.agent.node_agent.monotonic", lambda: now)
        assert agent.faults() == []
        monkeypatch.setattr("closeknit.agent.node_agent.monotonic", lambda: now + 1)
        assert agent.faults() == ["no reading has begun for 601 s"]

    asyncio.run(main())
