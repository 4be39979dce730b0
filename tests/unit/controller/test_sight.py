"""When what is heard wakes the loop, and when it is worked out what kind of machine is new."""

import asyncio
from typing import Any

import pytest

from closeknit.api.objects import TrainingJob
from closeknit.cluster.store.kinds import from_document
from closeknit.controller.sight import UNHURRIED_S, Sight
from closeknit.placement.gpusets import search_cost
from closeknit.placement.gpusets.best_first import BestFirstSets
from faults import virtual_time
from faults.store import Store
from scenarios.manifests import pod, training_job, worker
from scenarios.operated import MortalApi, Operator, add
from scenarios.story import plugin_node


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
        sight = Sight(MortalApi(store), lambda: woken.append(time()))
        running = asyncio.create_task(sight.run())
        await sight.synced()
        await asyncio.sleep(1)
        if is_assumed:
            sight.assume(job)
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
        assert not operator.sight.has_new_machine
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())
