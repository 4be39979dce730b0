"""The event loop goes on while a decision takes long: probes are answered, watches read, and its lag is measured."""

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from closeknit.api.names import JobKey
from closeknit.cluster.store.watched_kinds import Stream
from closeknit.controller import loop as scheduling
from closeknit.controller.process import Process, ended
from closeknit.controller.vitals import LONGEST_DECISION_S
from closeknit.runtime.address import Address
from closeknit.scheduling.decision import Decision, decide
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.manifests import training_job
from scenarios.operated import add
from scenarios.story import plugin_node

DECISION_S = 1.0


def long_decision(*arguments: Any) -> Decision:
    """One that computes all the time, as a search does."""
    until = time.monotonic() + DECISION_S
    while time.monotonic() < until:
        sum(range(100))
    return decide(*arguments)


@asynccontextmanager
async def a_process(store: Store) -> AsyncIterator[Process]:
    thresholds, switch_s = gc.get_threshold(), sys.getswitchinterval()
    process = Process(MemoryApi(store), Address.parse("127.0.0.1:0"), None)
    task = asyncio.create_task(process.run())
    try:
        async with asyncio.timeout(30):
            while process.loop.deciding_since is None:  # noqa: ASYNC110 - nobody would set an event
                await asyncio.sleep(0.01)
        yield process
    finally:
        await ended(task)
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(switch_s)


def a_store() -> Store:
    store = Store()
    for manifest in [*plugin_node("gpu-1"), training_job("a", spec={"gpus": 8})]:
        add(store, manifest)
    return store


async def answered(process: Process) -> tuple[list[float], str]:
    """Seconds that each probe took while the first decision ran, and then what /metrics says of the lag."""
    took: list[float] = []
    base = f"http://127.0.0.1:{process.web.port}"
    async with aiohttp.ClientSession() as client:
        while process.loop.deciding_since is not None:
            began = time.monotonic()
            async with client.get(f"{base}/healthz") as answer:
                assert (answer.status, await answer.text()) == (200, "ok")
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.02)
        async with client.get(f"{base}/metrics") as answer:
            return took, await answer.text()


@pytest.mark.alone
def test_probes_are_answered_while_a_decision_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "decide", long_decision)

    async def probed() -> tuple[list[float], str]:
        async with a_process(a_store()) as process:
            return await answered(process)

    took, metrics = asyncio.run(probed())
    assert len(took) >= 10
    assert max(took) < DECISION_S / 2, "a probe waited for the decision"
    (count,) = (line for line in metrics.splitlines() if line.startswith("closeknit_event_loop_lag_seconds_count"))
    assert float(count.split()[1]) >= 10


def test_what_changes_meanwhile_is_read_and_then_decided_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "decide", long_decision)
    store = a_store()

    async def story() -> bool:
        async with a_process(store) as process:
            add(store, training_job("b", spec={"gpus": 16}))
            await asyncio.sleep(DECISION_S / 4)
            seen = process.watched.reflectors[Stream.TRAINING_JOBS].objects
            is_read = len(seen) == 2 and process.loop.deciding_since is not None
            async with asyncio.timeout(30):
                while JobKey("team-b", "b") not in process.watched.cluster.jobs:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.05)
            return is_read

    assert asyncio.run(story())


def test_a_decision_that_never_ends_is_a_fault_and_a_long_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "decide", long_decision)

    async def faults() -> tuple[list[str], list[str]]:
        async with a_process(a_store()) as process:
            now = process.vitals.faults()
            process.loop.deciding_since = asyncio.get_running_loop().time() - LONGEST_DECISION_S - 1
            return now, process.vitals.faults()

    now, then = asyncio.run(faults())
    assert now == []
    assert [fault.partition(" for ")[0] for fault in then] == ["one decision"]
