"""Whatever breaks is published within 10 s, at the chart's cadence and at the worst moment: just after a reading."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeknit.agent import node_agent as module
from closeknit.agent.discovery.readings.readings import HealthReading, Readings
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.main import READING_S
from closeknit.agent.node_agent import START_SPREAD_S, Agent
from closeknit.agent.nvml.nvml_client import KILL_S, NoAnswer
from closeknit.agent.publish import NODE_TOPOLOGIES, NODES, Publisher
from closeknit.agent.sources import hardware
from closeknit.agent.sources.hardware import ANSWER_S, HardwareSource
from closeknit.agent.sources.simulated import load_profile
from faults import virtual_time
from faults.memory_api import MemoryApi
from harness.nvml_driver import InProcess
from harness.nvml_library import NvmlLibrary
from harness.sysfs_tree import HostBridge, Machine, Tree, nic, write

replace = msgspec.structs.replace
MACHINE = readings_of(load_profile("hgx-h200"), "node-1")
BAR_S, FIRST_S = 10.0, 5.0
OPEN_S = 0.45  # the longest first reading of four H200 (docs/measurements/2026-11-22-agent-on-h200.md)
WRITES_S = 0.3  # three writes of an API server that is not idle


def first(**facts: Any) -> Readings:
    return replace(MACHINE, gpus=(replace(MACHINE.gpus[0], **facts), *MACHINE.gpus[1:]))


LINKS = MACHINE.gpus[0].links
FABRIC = MACHINE.gpus[0].fabric
assert FABRIC is not None
FAULTS = {
    "a link": first(links=(*LINKS[:3], replace(LINKS[3], state=0), *LINKS[4:])),
    "the fabric": first(fabric=replace(FABRIC, state=2)),
    "the fabric's health": first(fabric=replace(FABRIC, health_summary=2)),
    "a reset that is wanted": first(health=HealthReading(recovery_action=1)),
    "a row that cannot be replaced": first(health=HealthReading(rows_failed=True, rows_pending=False)),
    "errors of memory": first(health=HealthReading(uncorrected_ecc=1)),
}


class Driver(InProcess):
    """Answers at once, but for a GPU that hangs, which costs the whole deadline and the process."""

    hangs: int | None = None
    spent_s = 0.0

    def ask(self, question: Any, deadline_s: float) -> Any:
        if self.hangs is not None and getattr(question, "index", None) == self.hangs:
            self.spent_s += deadline_s + KILL_S
            raise NoAnswer("Hung")
        return super().ask(question, deadline_s)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], None]], tuple[float, Any]]:
    """Lets a machine run, breaks it just after a reading, and says after how long what was published."""
    tree = Tree(tmp_path, Machine([HostBridge(0, [nic("mlx5_0")])]))
    driver = Driver()

    async def in_a_thread(function: Callable[[], Any]) -> Any:
        found = function()
        spent_s, driver.spent_s = driver.spent_s, 0.0
        await asyncio.sleep(spent_s)
        readings.append(asyncio.get_running_loop().time())
        return found

    readings: list[float] = []
    monkeypatch.setattr(asyncio, "to_thread", in_a_thread)
    for each in (hardware, module):
        monkeypatch.setattr(each, "monotonic", lambda: asyncio.get_running_loop().time())

    def play(breaks: Callable[[Any], None]) -> tuple[float, Any]:
        async def main() -> tuple[float, Any]:
            loop = asyncio.get_running_loop()
            api = MemoryApi()
            await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
            publisher = Publisher(api, "node-1", agent_version=None)
            source = HardwareSource(tmp_path, driver)
            agent = Agent("node-1", source, publisher, interval_s=READING_S, chance=lambda: 1.0)
            NvmlLibrary(MACHINE).install(monkeypatch)
            running = asyncio.create_task(agent.run())
            while agent.gaps():  # noqa: ASYNC110 -- the agent has no event for it
                await asyncio.sleep(0.01)
            assert loop.time() + OPEN_S + WRITES_S < FIRST_S
            await asyncio.sleep(30)
            count = len(readings)
            while len(readings) == count:  # noqa: ASYNC110 -- nor has a thread
                await asyncio.sleep(0.01)
            before, began = (await api.get(NODE_TOPOLOGIES, "node-1"))["status"], loop.time()
            breaks((driver, tree))
            while (status := (await api.get(NODE_TOPOLOGIES, "node-1"))["status"]) == before:
                assert loop.time() - began < 60, "it is never told"
                await asyncio.sleep(0.01)
            took_s = loop.time() - began + WRITES_S
            running.cancel()
            return took_s, status

        return virtual_time.run(main())

    return play


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_gpu_says_of_itself(fault: str, played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    took_s, status = played(lambda _: NvmlLibrary(FAULTS[fault]).install(monkeypatch))
    assert READING_S - 0.1 < took_s < BAR_S  # no sooner than that: the moment was the worst
    assert status["linksDown"] or [gpu["index"] for gpu in status["gpus"]] == [0]


def test_an_xid(played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def strike(_: Any) -> None:
        library = NvmlLibrary(MACHINE)
        library.watched, library.events = [0], [(0, 79)]
        library.install(monkeypatch)

    took_s, status = played(strike)
    assert took_s < BAR_S and status["gpus"][0]["reasons"] == ["XID79"]


def test_a_gpu_that_is_lost(played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    took_s, status = played(lambda _: NvmlLibrary(MACHINE, lost_after={5: 0}).install(monkeypatch))
    assert took_s < BAR_S and status["gpus"] == [{"index": 5, "state": "Unhealthy", "reasons": ["GPULost"]}]


def test_a_gpu_that_hangs(played: Any) -> None:
    def hang(parts: Any) -> None:
        parts[0].hangs = 5

    took_s, status = played(hang)
    assert ANSWER_S + READING_S < took_s < BAR_S
    assert status["gpus"] == [{"index": 5, "state": "Unhealthy", "reasons": ["GPUHung"]}]


def test_a_nic_that_goes_down(played: Any) -> None:
    def unplug(parts: Any) -> None:
        write(parts[1].functions["mlx5_0"] / "infiniband/mlx5_0/ports/1/state", "1: DOWN\n")

    took_s, status = played(unplug)
    assert took_s < BAR_S and status["nics"] == [{"name": "mlx5_0", "state": "Down", "reasons": ["PortDown"]}]


def test_a_start_leaves_time_to_read_and_write() -> None:
    assert START_SPREAD_S + OPEN_S + WRITES_S < FIRST_S
