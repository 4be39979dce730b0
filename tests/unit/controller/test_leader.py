"""One of several operators leads: what the others do meanwhile, and what a leader does that leads no longer. In memory,
on a virtual clock, but for the process itself.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from closeknit.cluster.store.watched_kinds import Stream
from closeknit.controller.leader.fenced_api import DRAIN_S, FencedApi
from closeknit.controller.leader.leadership import LEASE_NAME, Election
from closeknit.controller.process import Process, ended
from closeknit.controller.vitals import OperatorVitals
from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.api import JsonObject, Key
from closeknit.kube.errors import Forbidden
from closeknit.kube.lease import LEASES
from closeknit.runtime.address import Address
from faults import virtual_time
from faults.fault import Call, Delay, Fault, HoldEvents, Refuse
from faults.kinds import CONFIG_MAPS
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.manifests import node, training_job
from scenarios.operated import MortalApi, Operator, add, run_pods, set_status
from scenarios.story import plugin_node

NAMESPACE = "closeknit-system"
LEASE = Key(NAMESPACE, LEASE_NAME)
WRITES = ("create", "json_patch", "apply", "put_status", "delete")


def a_store(*jobs: str, nodes: int = 1) -> Store:
    """Jobs that each take a node."""
    store = Store(history=100_000)
    for number in range(nodes):
        for manifest in plugin_node(f"gpu-{number}"):
            add(store, manifest)
    for job in jobs:
        add(store, training_job(job, spec={"gpus": 8}))
    return store


def status(store: Store, job: str) -> JsonObject:
    found: JsonObject = store.get(TRAINING_JOBS, Key("team-b", job)).get("status", {})
    return found


def writes(api: MemoryApi) -> list[Call]:
    return [call for call in api.calls if call.verb in WRITES and call.resource != LEASES]


@asynccontextmanager
async def replica(store: Store, name: str, *faults: Fault) -> AsyncIterator[tuple[Operator, MortalApi]]:
    api = MortalApi(store, faults)
    operator = Operator(api, election=Election(NAMESPACE, name))
    running = asyncio.create_task(operator.run())
    try:
        yield operator, api
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def release(operator: Operator) -> None:
    """As a process does that is told to end."""
    await operator.fence.drain()
    assert operator.fence.is_drained
    await operator.leadership.release()


def test_a_standby_follows_and_learns_and_decides_and_writes_nothing() -> None:
    async def story() -> None:
        store = a_store("a")
        async with replica(store, "first") as (first, _):
            await asyncio.sleep(1)
            async with replica(store, "second") as (second, api):
                await asyncio.sleep(1)
                add(store, training_job("b", spec={"gpus": 8}))
                await asyncio.sleep(400)  # longer than a resync
                assert (first.loop.cycles > 0, second.loop.cycles) == (True, 0)
                assert writes(api) == []
                assert not second.loop.begun.is_set()
                vitals = OperatorVitals(second.watched, second.leadership, second.loop)
                assert (vitals.faults(), vitals.gaps()) == ([], [])
                assert {job.name for job in second.watched.cluster.jobs} == {"a", "b"}
                assert not second.watched.has_new_machine, "the machine is known before it takes over"

    virtual_time.run(story())


def test_it_is_not_ready_before_the_lease_could_be_read_and_says_why() -> None:
    async def story() -> None:
        refused = Fault(Refuse(Forbidden("no right to it", code=403)), "get", LEASES)
        async with replica(a_store("a"), "first", refused) as (operator, api):
            await asyncio.sleep(60)
            vitals = OperatorVitals(operator.watched, operator.leadership, operator.loop)
            assert vitals.gaps() == [f"the Lease {NAMESPACE}/{LEASE_NAME} was not read yet: no right to it"]
            assert (vitals.faults(), writes(api)) == ([], [])

    virtual_time.run(story())


def test_a_successor_sees_what_was_written_a_moment_before_though_its_streams_lag() -> None:
    """The streams that would tell it of the booking and of its Pod stall for five minutes."""

    async def story() -> None:
        store = a_store()
        tells = [
            Fault(HoldEvents(300.0, lambda event: b'"placement"' in event.document), "watch", TRAINING_JOBS, nth=1),
            Fault(HoldEvents(300.0), "watch", PODS, nth=1),
        ]
        async with replica(store, "first") as (first, _), replica(store, "second", *tells) as (second, api):
            await asyncio.sleep(20)
            assert (first.loop.begun.is_set(), second.loop.begun.is_set()) == (True, False)
            add(store, training_job("a", spec={"gpus": 8}))
            await asyncio.sleep(2)
            assert status(store, "a")["placement"]
            (seen,) = second.watched.cluster.jobs.values()
            assert seen.status.placement is None
            await release(first)
            for _ in range(20):  # a decision runs in a thread, beside the clock of the test
                await asyncio.sleep(1)
                if second.loop.cycles:
                    break
            assert second.loop.cycles > 0
            assert [job.status.placement is None for job in second.watched.cluster.jobs.values()] == [False]
            await asyncio.sleep(20)
            assert writes(api) == []
            run_pods(store)
            await asyncio.sleep(20)
            assert status(store, "a")["state"] == "Running"

    virtual_time.run(story())


@pytest.mark.parametrize("is_elected", [True, False])
def test_nothing_is_written_of_a_job_with_an_epoch_below_its_own(is_elected: bool) -> None:
    """The Lease was deleted once, or another one led meanwhile: our own epoch rises first."""

    async def story() -> None:
        store = a_store("a", nodes=2)
        async with replica(store, "first") if is_elected else alone(store) as (operator, _):
            await asyncio.sleep(1)
            assert status(store, "a")["epoch"] == operator.leadership.epoch == 1
            set_status(store, TRAINING_JOBS, Key("team-b", "a"), epoch=7)
            told_with: list[int] = []

            def note() -> None:
                if status(store, "a")["state"] == "Running":
                    told_with.append(operator.leadership.epoch)

            store.listeners.append(note)
            run_pods(store)  # there is something to tell
            await asyncio.sleep(10)
            assert told_with and set(told_with) == {8}
            add(store, training_job("b", spec={"gpus": 8}))
            await asyncio.sleep(10)
            assert status(store, "b")["epoch"] == 8
            if is_elected:
                assert store.get(LEASES, LEASE)["spec"]["leaseTransitions"] == 8

    virtual_time.run(story())


@asynccontextmanager
async def alone(store: Store) -> AsyncIterator[tuple[Operator, MortalApi]]:
    api = MortalApi(store)
    operator = Operator(api)
    running = asyncio.create_task(operator.run())
    try:
        yield operator, api
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_write_that_waited_while_the_process_was_stopped_is_not_sent() -> None:
    async def story() -> None:
        store, holds = Store(), [True]
        api = MemoryApi(store)
        fence = FencedApi(api, lambda: holds[0])
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        await fence.create(CONFIG_MAPS, body, namespace="n")
        holds[0] = False
        uid = store.get(CONFIG_MAPS, Key("n", "a"))["metadata"]["uid"]
        other = {**body, "metadata": {"name": "b"}}
        version = {"name": "a", "resourceVersion": "1"}
        calls: Sequence[Any] = (
            fence.create(CONFIG_MAPS, other, namespace="n"),
            fence.make(CONFIG_MAPS, other, namespace="n"),
            fence.json_patch(CONFIG_MAPS, "a", [{"op": "add", "path": "/data", "value": {}}], namespace="n"),
            fence.apply(CONFIG_MAPS, "a", body, field_manager="m", namespace="n"),
            fence.put_status(CONFIG_MAPS, "a", {**body, "metadata": version}, namespace="n"),
            fence.delete(CONFIG_MAPS, "a", uid=uid, namespace="n"),
        )
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(100)
        assert [task.done() for task in tasks] == [False] * len(calls)
        assert len(api.calls) == 1
        assert (await fence.get(CONFIG_MAPS, "a", namespace="n"))["metadata"]["uid"] == uid
        for task in tasks:
            task.cancel()

    virtual_time.run(story())


@pytest.mark.parametrize(("delay_s", "is_drained"), [(DRAIN_S - 1, True), (DRAIN_S + 1, False)])
def test_writes_that_are_under_way_end_before_the_lease_is_given_back(delay_s: float, is_drained: bool) -> None:
    async def story() -> None:
        store = Store()
        fence = FencedApi(MemoryApi(store, [Fault(Delay(delay_s), "create", nth=1)]), lambda: True)

        def create(name: str) -> "asyncio.Task[Any]":
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            return asyncio.create_task(fence.create(CONFIG_MAPS, body, namespace="n"))

        first = create("a")
        await asyncio.sleep(0.01)
        assert not fence.is_drained
        draining = asyncio.create_task(fence.drain())
        await asyncio.sleep(0.01)
        second = create("b")
        await draining
        assert (fence.is_drained, first.done(), second.done()) == (is_drained, is_drained, False)
        await asyncio.sleep(10)
        assert [each["metadata"]["name"] for each in store.objects(CONFIG_MAPS)] == ["a"]
        second.cancel()

    virtual_time.run(story())


def test_a_pod_that_an_old_leader_makes_too_late_is_removed() -> None:
    """Its request was on the way while the next leader ended that attempt."""

    async def story() -> None:
        store = a_store("a", nodes=2)
        async with replica(store, "first"):
            await asyncio.sleep(1)
            run_pods(store)
            (pod,) = store.objects(PODS)
            await asyncio.sleep(1)
            store.delete(PODS, Key("team-b", pod["metadata"]["name"]))
            await asyncio.sleep(60)
            run_pods(store)
            await asyncio.sleep(60)
            assert status(store, "a")["attempt"] == 2
            late = {field: pod[field] for field in ("apiVersion", "kind", "spec")}
            metadata = {name: pod["metadata"][name] for name in ("name", "labels", "annotations", "ownerReferences")}
            store.create(PODS, {**late, "metadata": metadata}, namespace="team-b")
            await asyncio.sleep(60)
            assert [each["metadata"]["labels"]["closeknit.dev/attempt"] for each in store.objects(PODS)] == ["2"]

    virtual_time.run(story())


def broken(_: object) -> None:
    raise RuntimeError("a mistake of ours")


async def led(store: Store, lost: list[str], how: str) -> float:
    """A process leads, and then is told to end, breaks, or its Lease is seized. What its metric says in the end."""
    address = Address.parse("127.0.0.1:0")
    process = Process(MemoryApi(store), address, None, Election(NAMESPACE, "first"), on_lost=lost.append)
    task = asyncio.create_task(process.run())
    async with asyncio.timeout(30):
        await process.loop.begun.wait()
    assert process.metrics.registry.get_sample_value("closeknit_leader_status") == 1
    if how == "told":
        await process.drain()
        await ended(task)
    elif how == "broken":
        process.watched.reflectors[Stream.NODES]._on_events = broken
        add(store, node("gpu-9"))
        async with asyncio.timeout(30):
            await asyncio.wait({task})
        assert task.exception() is not None
    else:
        store.json_patch(LEASES, LEASE, [{"op": "replace", "path": "/spec/holderIdentity", "value": "other"}])
        async with asyncio.timeout(30):
            await asyncio.wait({task})
        assert task.exception() is not None
    leads = process.metrics.registry.get_sample_value("closeknit_leader_status")
    assert leads is not None
    return leads


@pytest.mark.parametrize(
    ("how", "holder", "lost"),
    [("told", "", []), ("broken", "", []), ("seized", "other", ["other holds the Lease"])],
)
def test_a_process_that_ends_gives_the_lease_back_and_one_that_lost_it_ends(
    how: str, holder: str, lost: list[str]
) -> None:
    store, found = a_store("a"), list[str]()
    thresholds, switch_s = gc.get_threshold(), sys.getswitchinterval()
    try:
        assert asyncio.run(led(store, found, how)) == 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(switch_s)
    assert (store.get(LEASES, LEASE)["spec"]["holderIdentity"], found) == (holder, lost)
