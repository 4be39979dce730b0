"""Programs on a GPU that no Pod holds: seen by the agent as soon as it may be said, and never said of a Pod's own."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.health.history import is_foreign
from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.discovery.readings.byte_counters import NO_TRAFFIC, ByteCounters
from closeknit.agent.discovery.readings.readings import HealthReading, MigDeviceReading, Readings
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.usage.allocations import AllocationReason, Grant, Unanswered
from closeknit.agent.kubelet.kubelet_source import KubeletSource
from closeknit.agent.node_agent import Agent
from closeknit.agent.nvml import gpu_state
from closeknit.agent.publish import Publisher
from closeknit.agent.sources.hardware import HardwareSource
from closeknit.agent.sources.simulated import load_profile
from closeknit.api.nodetopology import Method
from faults.memory_api import MemoryApi
from harness.nvml_driver import InProcess
from harness.nvml_library import NvmlLibrary

replace = msgspec.structs.replace
MACHINE = readings_of(load_profile("hgx-h200"), "node-1")
UUID = MACHINE.gpus[0].uuid or ""
BUSY = Unanswered(AllocationReason.KUBELET_BUSY, "busy")


def with_pids(*pids: int, **facts: Any) -> Readings:
    """The machine with these programs on its first GPU."""
    health = HealthReading(pids=pids)
    return replace(MACHINE, gpus=(replace(MACHINE.gpus[0], health=health, **facts), *MACHINE.gpus[1:]))


class Played:
    """A machine and its kubelet, as the test sets them."""

    method = Method.NVML

    def __init__(self) -> None:
        self.readings = with_pids()
        self.answer: Sequence[Grant] | Unanswered = []

    def read(self) -> Readings:
        return self.readings

    def live(self) -> tuple[LiveGpu, ...]:
        return ()

    def traffic(self, gpus: Sequence[str]) -> ByteCounters:  # noqa: ARG002 -- it is the protocol's
        return NO_TRAFFIC

    async def list(self) -> Sequence[Grant] | Unanswered:
        return self.answer


@pytest.fixture
def played() -> Played:
    return Played()


Step = tuple[Readings, Sequence[Grant] | Unanswered]


def reported(played: Played, *steps: Step) -> list[list[str]]:
    """The reasons of the first GPU after each of these readings and answers."""

    async def nothing() -> dict[Any, str]:
        return {}

    async def main() -> list[list[str]]:
        publisher = Publisher(MemoryApi(), "node-1", agent_version=None)
        agent = Agent("node-1", played, publisher, interval_s=5, kubelet=KubeletSource(played, nothing))
        found = []
        for played.readings, played.answer in steps:
            discovery = await agent._discovery()
            found.append([reason for gpu in discovery.gpus for reason in gpu.reasons])
        return found

    return asyncio.run(main())


HELD = [Grant("team", "rank-0", "trainer", (("nvidia.com/gpu", UUID),))]


def test_a_program_that_no_pod_brought_is_seen_at_once_and_so_is_its_end(played: Played) -> None:
    steps: list[Step] = [(with_pids(), []), (with_pids(17), []), (with_pids(17), []), (with_pids(), [])]
    assert reported(played, *steps) == [[], ["ForeignProcess"], ["ForeignProcess"], []]


def test_a_pods_own_program_is_not_foreign_while_the_pod_comes_and_goes(played: Played) -> None:
    # It ended between the reading of the GPUs and the kubelet's answer.
    steps: list[Step] = [(with_pids(), []), (with_pids(17), HELD), (with_pids(17), []), (with_pids(), [])]
    assert reported(played, *steps) == [[], [], [], []]


def test_a_program_that_outlives_its_pod_is_foreign(played: Played) -> None:
    steps: list[Step] = [(with_pids(17), HELD), (with_pids(17), []), (with_pids(17), [])]
    assert reported(played, *steps) == [[], [], ["ForeignProcess"]]


def test_who_holds_a_gpu_is_not_told_by_an_old_answer(played: Played) -> None:
    # The Pod started after it.
    assert reported(played, (with_pids(), []), (with_pids(17), BUSY), (with_pids(17), HELD)) == [[], [], []]


def test_a_list_of_programs_that_is_only_remembered_tells_nothing(played: Played) -> None:
    failed = replace(with_pids().gpus[0], health=HealthReading(errors={"pids": "Unknown"}))
    lost = replace(MACHINE.gpus[0], health=None, errors={"handle": "Hung"})
    unread = [replace(MACHINE, gpus=(gpu, *MACHINE.gpus[1:])) for gpu in (failed, lost)]
    steps: list[Step] = [(with_pids(17), HELD), (unread[0], []), (unread[0], []), (unread[1], []), (unread[1], [])]
    assert reported(played, *steps) == [[], [], [], ["GPUHung"], ["GPUHung"]]


def test_a_mig_device_without_a_uuid_may_be_the_one_that_is_held() -> None:
    named = MigDeviceReading(uuid="MIG-a")
    whole = with_pids(17, mig_devices=(named,)).gpus[0]
    assert is_foreign(whole, {"MIG-a"}) is False
    assert is_foreign(whole, {"MIG-b"}) is True
    torn = with_pids(17, mig_devices=(named, MigDeviceReading(errors={"uuid": "Unknown"}))).gpus[0]
    assert is_foreign(torn, {"MIG-a"}) is False
    assert is_foreign(torn, {"MIG-b"}) is None


@pytest.mark.parametrize("initial", [True, False])
def test_without_the_hosts_process_namespace_nobody_is_foreign(
    initial: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_state, "_sees_all_processes", lambda: initial)
    NvmlLibrary(with_pids(17)).install(monkeypatch)
    read = HardwareSource(tmp_path, InProcess()).read().gpus[0]
    assert read.health is not None and read.health.pids == ((17,) if initial else None)
    assert is_foreign(read, set()) is (True if initial else None)
