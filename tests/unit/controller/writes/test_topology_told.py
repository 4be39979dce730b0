"""The operator writes what it found of ClusterTopologies, and of silent agents: what is news, and nothing at rest."""

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import pytest

from closeknit.controller import process as module
from closeknit.controller.process import Process, ended
from closeknit.controller.writes.resources import CLUSTER_TOPOLOGIES, EVENTS
from closeknit.kube.api import JsonObject, Key
from closeknit.kube.errors import Conflict, Forbidden
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.runtime.address import Address
from faults.fault import Fault, Refuse
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.manifests import cluster_topology, node, node_topology
from scenarios.operated import NODE_TOPOLOGIES, add, set_status

SETTLED = 25  # looks at the cluster
NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOLD_S", 0.01)


def site(*silent: str, nodes: int = 4) -> Store:
    store = Store(history=10_000)
    for number in range(1, nodes + 1):
        name = f"gpu-{number:02d}"
        add(store, node(name, labels={"net.example/rack": f"r{number % 2}"}))
        beat = NOW - timedelta(hours=1) if name in silent else NOW
        add(store, node_topology(name, heartbeatTime=timestamp(beat)))
    return store


def told(store: Store, until: Callable[[], bool], faults: Iterable[Fault] = ()) -> int:
    """Writes while nothing changes any more; the operator runs until something is so, and a while longer."""

    async def operated() -> int:
        thresholds, switch_s = gc.get_threshold(), sys.getswitchinterval()
        process = Process(MemoryApi(store, faults), Address.parse("127.0.0.1:0"), None, now=lambda: NOW)
        task = asyncio.create_task(process.run())
        try:
            async with asyncio.timeout(60):
                while not until():
                    assert not task.done(), task.result()
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            before = store.rv
            await asyncio.sleep(0.01 * SETTLED)
            return store.rv - before
        finally:
            await ended(task)
            gc.unfreeze()
            gc.set_threshold(*thresholds)
            sys.setswitchinterval(switch_s)

    return asyncio.run(operated())


def status(store: Store, name: str = "default") -> JsonObject:
    found: JsonObject = store.get(CLUSTER_TOPOLOGIES, Key("", name)).get("status", {})
    return found


def test_what_was_found_is_written_once() -> None:
    store = site()
    add(store, cluster_topology("rack"))
    add(store, cluster_topology("rack", name="main"))
    assert told(store, lambda: bool(status(store) and status(store, "main"))) == 0
    assert status(store)["levels"] == [
        {"name": "rack", "domains": 2, "gpus": 32, "freeGpus": 32},
        {"name": "host", "domains": 4, "gpus": 32, "freeGpus": 32},
    ]
    assert [each["reason"] for each in status(store)["conditions"]] == ["AllReport", "AllOffered", "InUse"]
    assert [each["reason"] for each in status(store, "main")["conditions"]] == ["NotUsed"]


def test_a_write_that_is_refused_is_sent_again() -> None:
    store = site()
    add(store, cluster_topology("rack"))
    conflict = Fault(Refuse(Conflict("somebody was quicker", code=409)), "put_status", CLUSTER_TOPOLOGIES, nth=1)
    assert told(store, lambda: bool(status(store)), [conflict]) == 0


def test_without_the_right_to_write_it_the_operator_goes_on() -> None:
    store = site()
    add(store, cluster_topology("rack"))
    refused = 0

    def count(_: object) -> bool:
        nonlocal refused
        refused += 1
        return True

    ends = [{"job": "team-b/old", "reason": "NodeLost", "ended": f"2026-11-{day}T10:00:00Z"} for day in (20, 24)]
    set_status(store, NODE_TOPOLOGIES, Key("", "gpu-01"), heartbeatTime=timestamp(NOW), runEnds=ends)
    answer = Refuse(Forbidden("no", code=403))
    forbidden = Fault(answer, "put_status", CLUSTER_TOPOLOGIES, when=count)
    lemons = Fault(answer, "json_patch", NODE_TOPOLOGIES, when=count)
    assert told(store, lambda: refused > 5, [forbidden, lemons]) == 0


def test_each_silent_agent_has_one_event_and_some_every_time() -> None:
    store = site(*(f"gpu-{number:02d}" for number in range(1, 41)), nodes=50)

    def events() -> list[JsonObject]:
        return store.objects(EVENTS)

    assert told(store, lambda: len(events()) == 40) == 0
    assert {each["regarding"]["name"] for each in events()} == {f"gpu-{number:02d}" for number in range(1, 41)}
    (event,) = [each for each in events() if each["regarding"]["name"] == "gpu-07"]
    assert (event["metadata"]["namespace"], event["reason"], event["type"]) == ("default", "AgentStale", "Warning")
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "gpu-07", "uid": "gpu-07"}
    assert told(store, lambda: True) == 0  # a new process makes none of them again
    set_status(store, NODE_TOPOLOGIES, Key("", "gpu-07"), heartbeatTime=timestamp(NOW - timedelta(minutes=30)))
    assert told(store, lambda: len(events()) == 41) == 0


def test_a_lemon_is_stored_with_its_node_told_once_and_taken_back() -> None:
    store = site(nodes=2)
    key, beat = Key("", "gpu-01"), timestamp(NOW)
    ends = [{"job": "team-b/old", "reason": "NodeLost", "ended": f"2026-11-{day}T10:00:00Z"} for day in (10, 20, 24)]
    set_status(store, NODE_TOPOLOGIES, key, heartbeatTime=beat, runEnds=ends)

    def found() -> JsonObject:
        return store.get(NODE_TOPOLOGIES, key)["status"]  # type: ignore[no-any-return]

    assert told(store, lambda: "lemon" in found()) == 0
    assert (found()["runEnds"], found()["lemon"]["since"]) == (ends[1:], "2026-11-24T10:00:00Z")
    assert found()["heartbeatTime"] == beat, "the rest is the agent's"
    (event,) = store.objects(EVENTS)
    assert (event["regarding"]["name"], event["reason"]) == ("gpu-01", "Lemon")
    annotate = {"op": "add", "path": "/metadata/annotations", "value": {"closeknit.dev/lemon-cleared": beat}}
    store.json_patch(NODE_TOPOLOGIES, key, [annotate])
    assert told(store, lambda: "lemon" not in found()) == 0
    assert (found(), len(store.objects(EVENTS))) == ({"heartbeatTime": beat}, 1)


def test_a_mistake_in_it_is_counted_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def mistaken(*_: object) -> None:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError

    monkeypatch.setattr(module, "topology_news", mistaken)
    assert told(site(), lambda: calls > 2) == 0
