"""The operator's metrics say how scattered free GPUs are, and a mistake in them ends nothing."""

import asyncio
import gc
import sys

import pytest

from closeknit.controller import process as module
from closeknit.controller.process import Process, ended
from closeknit.runtime.address import Address
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.operated import add
from scenarios.story import dra_node


async def value(name: str, **labels: str) -> float:
    """Of a metric of an operator that sees one node, once it is shown; the operator is still running then."""
    store = Store()
    for manifest in dra_node("gpu-1"):
        add(store, manifest)
    thresholds, switch_s = gc.get_threshold(), sys.getswitchinterval()
    process = Process(MemoryApi(store), Address.parse("127.0.0.1:0"), None)
    task = asyncio.create_task(process.run())
    try:
        async with asyncio.timeout(60):
            while not (found := process.metrics.registry.get_sample_value(name, labels)):
                assert not task.done()
                await asyncio.sleep(0.01)
        return found
    finally:
        await ended(task)
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(switch_s)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRAGMENTATION_S", 0.01)


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("closeknit_largest_gang_gpus", {"level": ""}, 8),
        ("closeknit_largest_gang_gpus", {"level": "host"}, 8),
        ("closeknit_free_islands", {"size": "1"}, 8),
    ],
)
def test_it_is_shown(name: str, labels: dict[str, str], expected: float) -> None:
    assert asyncio.run(value(name, **labels)) == expected


def test_a_mistake_in_it_is_counted_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "fragmentation", mistaken)
    assert asyncio.run(value("closeknit_broken_decisions_total")) >= 1
