"""When what is heard wakes the loop, and when it is worked out what kind of machine is new."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from closeknit.api.objects import TrainingJob
from closeknit.cluster.objects.silence import NODE_LEASES, POLL_S, Quiet
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.controller.watched_cluster import UNHURRIED_S, WatchedCluster
from closeknit.kube.api import Key, Resource
from closeknit.kube.errors import Forbidden
from closeknit.placement.gpusets import search_cost
from closeknit.placement.gpusets.best_first import BestFirstSets
from closeknit.scheduling import warm_up
from faults import virtual_time
from faults.fault import Call
from faults.store import Store
from harness.inline_worker import InlineWorker
from scenarios.manifests import pod, training_job, worker
from scenarios.operated import BEGIN, MortalApi, Operator, add
from scenarios.story import plugin_node

LEASES = Resource("coordination.k8s.io", "v1", "leases")


def wakings(workers: int, *others: dict[str, Any], is_assumed: bool) -> list[float]:
    """Seconds after which the loop is woken: of one job come so many Pods, a tenth of a second apart, then others'."""
    store = Store()
    stored = add(store, training_job())
    job = from_document(stored)
    assert isinstance(job, TrainingJob)
    own = [worker(index=index, job_uid=stored["metadata"]["uid"]) for index in range(workers)]
    woken: list[float] = []

    async def story() -> None:
        time = asyncio.get_running_loop().time
        watched = WatchedCluster(MortalApi(store), lambda: woken.append(time()))
        running = asyncio.create_task(watched.run())
        await watched.synced()
        await asyncio.sleep(1)
        if is_assumed:
            watched.assume(job)
        woken.clear()
        began = time()
        for manifest in (*own, *others):
            add(store, manifest)
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        woken[:] = [moment - began for moment in woken]

    virtual_time.run(story())
    return woken


def test_pods_of_a_job_that_is_being_written_wake_the_loop_a_second_later_and_once() -> None:
    assert wakings(5, is_assumed=True) == [pytest.approx(UNHURRIED_S, abs=0.1)]


def test_pods_of_any_other_job_wake_it_at_once() -> None:
    woken = wakings(5, is_assumed=False)
    assert len(woken) >= 5
    assert woken[0] < 0.1


def test_a_pod_of_somebody_else_among_them_wakes_it_at_once() -> None:
    first, *_ = wakings(3, pod("notebook"), is_assumed=True)
    assert first == pytest.approx(0.3, abs=0.05)


def test_what_jobs_ask_of_a_machine_too_dear_to_search_whole_is_worked_out_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, steps = Store(), list[BestFirstSets]()

    def learn(sets: BestFirstSets) -> bool:
        steps.append(sets)
        return len(steps) < 4

    monkeypatch.setattr(search_cost, "MACHINE_STEPS", 0)
    monkeypatch.setattr(BestFirstSets, "learn", learn)
    for manifest in plugin_node("gpu-1"):
        add(store, manifest)
    operator = Operator(MortalApi(store))

    async def story() -> None:
        running = asyncio.create_task(operator.run())
        await asyncio.sleep(5)
        assert len(steps) == 4, "and then no more"
        add(store, pod("notebook"))
        await asyncio.sleep(5)
        assert len(steps) == 4, "nothing of the GPUs has changed"
        for manifest in plugin_node("gpu-2"):
            add(store, manifest)
        await asyncio.sleep(5)
        assert len(steps) == 5
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())


def test_a_kind_of_machine_is_worked_out_before_anything_else_changes() -> None:
    store = Store()
    for manifest in plugin_node("gpu-1"):
        add(store, manifest)
    operator = Operator(MortalApi(store))

    async def story() -> None:
        running = asyncio.create_task(operator.run())
        await asyncio.sleep(5)
        assert operator.loop.cycles == 1
        assert not operator.watched.has_new_machine
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())


def test_what_waiting_jobs_ask_is_worked_out_before_anything_comes_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the decision in which it does works out nothing."""
    store = Store()
    for manifest in plugin_node("gpu-1"):
        add(store, manifest)
    for name in ("first", "second"):
        add(store, training_job(name, spec={"gpus": 8}))
    operator, asked = Operator(MortalApi(store)), list[int]()
    monkeypatch.setattr(warm_up, "ideal_gb_s", lambda _, request, __: asked.append(request.gpus))

    async def story() -> None:
        running = asyncio.create_task(operator.run())
        await asyncio.sleep(60)
        assert set(asked) == {8}
        add(store, training_job("third", spec={"gpus": 7}))
        await asyncio.sleep(60)
        assert set(asked) == {7, 8}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())


def test_which_kubelets_are_silent_is_taken_from_lists_of_leases() -> None:
    """Renewals are no events; the steps of a silence, and its end, are."""
    store = Store()
    for name in ("gpu-1", "gpu-2"):
        for manifest in plugin_node(name):
            add(store, manifest)
        body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": name}}
        store.create(LEASES, {**body, "spec": {"renewTime": "0"}}, namespace=NODE_LEASES)
    seen: list[tuple[int, Quiet | None]] = []

    async def story() -> None:
        woken = 0

        def wake() -> None:
            nonlocal woken
            woken += 1

        watched = WatchedCluster(MortalApi(store), wake)
        running = asyncio.create_task(watched.run())
        await watched.synced()
        await asyncio.sleep(1)
        woken = 0
        for second in range(60):
            for name in ("gpu-1", "gpu-2") if second >= 50 else ("gpu-1",):
                lease = store.get(LEASES, Key(NODE_LEASES, name))
                store.update(LEASES, Key(NODE_LEASES, name), lease | {"spec": {"renewTime": str(second)}})
            await asyncio.sleep(1)
            cluster = await watched.look(InlineWorker(), BEGIN)
            silence = cluster.nodes["gpu-2"].silence
            quiet = None if silence is None else silence.quiet
            if not seen or seen[-1][1] is not quiet:
                seen.append((second, quiet))
            assert cluster.nodes["gpu-1"].silence is None
        assert woken == 4
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())
    assert [quiet for _, quiet in seen] == [None, *Quiet, None]
    assert [second for second, _ in seen] == pytest.approx([0, 15, 20, 40, 51], abs=POLL_S)


class _Forbidding(MortalApi):
    """Without the right to list Leases."""

    async def _before(self, call: Call) -> Sequence[Any]:
        if call.resource == LEASES:
            raise Forbidden("leases is forbidden", code=403, reason="Forbidden")
        return await super()._before(call)


def test_without_the_right_to_list_leases_it_sees_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    add(store, plugin_node("gpu-1")[0])

    async def story() -> None:
        watched = WatchedCluster(_Forbidding(store), lambda: None)
        running = asyncio.create_task(watched.run())
        await watched.synced()
        await asyncio.sleep(60)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())
    assert [record.message for record in caplog.records] == ["Leases of nodes cannot be listed"]
