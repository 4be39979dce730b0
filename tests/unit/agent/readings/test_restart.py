"""An agent that starts again knows the XIDs that the one before it has published, for as long as they hold."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.health.xids import xid_of
from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.discovery.readings.byte_counters import NO_TRAFFIC, ByteCounters
from closeknit.agent.discovery.readings.readings import HealthReading, Readings, XidReading
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.node_agent import Agent
from closeknit.agent.publish import NODE_TOPOLOGIES, NODES, Publisher
from closeknit.agent.sources.simulated import load_profile
from closeknit.agent.sysfs.folder import root_folder
from closeknit.api.nodetopology import Method
from closeknit.kube.errors import Unavailable
from faults import virtual_time
from faults.fault import Fault, LoseReply, Refuse
from faults.memory_api import MemoryApi
from faults.store import Store

replace = msgspec.structs.replace
MACHINE = readings_of(load_profile("hgx-h200"), "node-1")
UUID = MACHINE.gpus[0].uuid
XID79 = (0, "Unhealthy", ["XID79"])
WANTED = (0, "Unhealthy", ["XID79", "RecoveryNeeded"])


def machine(*, boot: str | None = "b", load: int | None = 7, action: int | None = 0, **facts: Any) -> Readings:
    """The machine under this load of the driver, which wants this to be done to every GPU."""
    gpus = tuple(replace(gpu, health=HealthReading(recovery_action=action)) for gpu in MACHINE.gpus)
    kernel = replace(MACHINE.kernel, boot_id=boot, nvidia_load=load)
    return replace(MACHINE, **{"gpus": gpus, "kernel": kernel, **facts})


def struck(readings: Readings) -> Readings:
    gpus = (replace(readings.gpus[0], health=HealthReading(recovery_action=None)), *readings.gpus[1:])
    return replace(readings, gpus=gpus, xids=(XidReading(xid=79, uuid=UUID), XidReading(xid=13, uuid=UUID)))


class Playing:
    """Reads these, and the last one from then on."""

    method = Method.NVML

    def __init__(self, *readings: Readings) -> None:
        self.readings = list(readings)

    def read(self) -> Readings:
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]

    def live(self) -> tuple[LiveGpu, ...]:
        return ()

    def traffic(self, gpus: Sequence[str]) -> ByteCounters:  # noqa: ARG002 -- it is the protocol's
        return NO_TRAFFIC


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(function: Any) -> Any:
        return function()

    monkeypatch.setattr(asyncio, "to_thread", call)


async def lived(store: Store, *readings: Readings, faults: Sequence[Fault] = ()) -> list[tuple[int, str, list[str]]]:
    """What is published of GPUs at the end of an agent that read these."""
    api = MemoryApi(store, list(faults))
    publisher = Publisher(api, "node-1", agent_version="0.1.0")
    running = asyncio.create_task(Agent("node-1", Playing(*readings), publisher, interval_s=5.0).run())
    await asyncio.sleep(120)
    running.cancel()
    status = (await MemoryApi(store).get(NODE_TOPOLOGIES, "node-1"))["status"]
    return [(gpu["index"], gpu["state"], gpu["reasons"]) for gpu in status["gpus"]]


async def node() -> Store:
    store = Store()
    await MemoryApi(store).create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    return store


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(machine(), [XID79], id="a Pod that was replaced"),
        pytest.param(machine(boot=None, load=None), [XID79], id="nobody knows whether it is another load"),
        pytest.param(machine(boot="c"), [], id="the machine was started again"),
        pytest.param(machine(load=8), [], id="the driver was loaded again"),
        pytest.param(machine(driver_version="999.1"), [], id="another driver"),
        pytest.param(machine(gpus=MACHINE.gpus[1:]), [], id="the GPU is gone"),
    ],
)
def test_an_xid_outlives_its_agent_until_it_is_over(after: Readings, expected: list[Any]) -> None:
    async def main() -> None:
        store = await node()
        assert await lived(store, machine(), struck(machine())) == [XID79]
        assert await lived(store, after) == expected

    virtual_time.run(main())


def test_a_gpu_that_was_reset_between_two_agents_is_well() -> None:
    async def main() -> None:
        store = await node()
        wants = machine(action=1)
        reasons = await lived(store, replace(wants, xids=struck(wants).xids))
        assert reasons[0] == WANTED
        assert (await lived(store, wants))[0] == WANTED
        assert await lived(store, machine()) == []

    virtual_time.run(main())


def test_an_xid_stays_published_while_no_gpu_can_be_read() -> None:
    blind = machine(gpus=(), pairs=(), driver_version=None, errors={"driver": "Hung"})

    async def main() -> None:
        store = await node()
        assert await lived(store, machine(), struck(machine())) == [XID79]
        assert await lived(store, blind) == [XID79]
        assert await lived(store, machine()) == [XID79]
        unloaded = replace(blind, kernel=replace(blind.kernel, nvidia_load=None), errors={"driver": "DriverNotLoaded"})
        assert await lived(store, unloaded) == [XID79]
        assert await lived(store, machine(load=8)) == []

    virtual_time.run(main())


def test_an_xid_of_the_first_reading_outlives_an_api_server_that_does_not_answer() -> None:
    async def main() -> None:
        store = await node()
        faults = [Fault(Refuse(Unavailable("later")), "get", nth=1), Fault(LoseReply(), "get", nth=2)]
        assert await lived(store, struck(machine()), machine(), faults=faults) == [XID79]

    virtual_time.run(main())


def test_a_driver_that_is_loaded_anew_under_an_agent_ends_its_xids() -> None:
    async def main() -> None:
        store = await node()
        assert await lived(store, struck(machine()), machine(load=8)) == []

    virtual_time.run(main())


@pytest.mark.parametrize(
    ("reason", "xid"),
    [
        ("XID79", 79),
        ("XID13", None),
        ("XID0", None),
        ("XID79x", None),
        ("XID\u0667\u0669", None),
        ("XID9999999", None),
        ("", None),
    ],
)
def test_which_reasons_are_xids(reason: str, xid: int | None) -> None:
    assert xid_of(reason) == xid


def test_a_load_of_the_driver_is_told_by_its_inode(tmp_path: Path) -> None:
    errors: dict[str, str] = {}
    top = root_folder(tmp_path, errors)
    assert top.inode("sys/module/nvidia", "nvidia_load") is None and errors == {"nvidia_load": "ENOENT"}
    module = tmp_path / "sys/module/nvidia"
    module.mkdir(parents=True)
    assert top.inode("sys/module/nvidia", "nvidia_load") == module.stat().st_ino
