"""How often the loop decides while changes pour in."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import Cluster
from closeknit.controller.in_flight import PLANS_AT_ONCE
from closeknit.controller.loop import LONGEST_REST_S
from closeknit.controller.writes.resources import TRAINING_JOBS
from closeknit.kube.api import Key
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import Decision, decide
from closeknit.scheduling.memo.memory import Memory
from faults import virtual_time
from faults.fault import Call
from faults.store import Store
from scenarios.manifests import pod, training_job
from scenarios.operated import BEGIN, MortalApi, Operator, add, end_job, lived
from scenarios.story import plugin_node

T = TypeVar("T")
EVERY_S = 0.005


class SlowWorker:
    """Takes so long for everything."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s = takes_s
        self.worked_s = 0.0

    async def run(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(self.takes_s)
        self.worked_s += self.takes_s
        return work()


def worked_s(takes_s: float, for_s: float) -> float:
    """Seconds of work while Pods come all the time."""
    store, worker = Store(), SlowWorker(takes_s)
    for manifest in plugin_node("gpu-1"):
        add(store, manifest)
    operator = Operator(MortalApi(store), worker)

    async def story() -> float:
        running = asyncio.create_task(operator.run())
        await asyncio.sleep(5)
        before = worker.worked_s
        for number in range(round(for_s / EVERY_S)):
            add(store, pod(f"other-{number}", node="gpu-1"))
            await asyncio.sleep(EVERY_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return worker.worked_s - before

    return virtual_time.run(story())


def test_decisions_take_a_twenty_fifth_of_the_time_while_changes_pour_in() -> None:
    assert 0.03 < worked_s(takes_s=0.004, for_s=4) / 4 < 0.05


def test_decisions_that_take_long_are_not_put_off_for_long() -> None:
    takes_s = 1.0  # a look and a decision take two of them
    assert worked_s(takes_s, for_s=9) >= 9 * 2 * takes_s / (2 * takes_s + LONGEST_REST_S) - 2 * takes_s


def test_a_decision_that_is_always_to_be_made_again_at_once_is_made_four_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def again(cluster: Cluster, tables: Tables, memory: Memory, now: datetime) -> Decision:
        made = decide(cluster, tables, memory, now)
        return replace(made, wake_at=now) if now >= BEGIN + timedelta(seconds=5) else made

    monkeypatch.setattr("closeknit.controller.loop.decide", again)
    store = Store()
    for manifest in plugin_node("gpu-1"):
        add(store, manifest)
    operator = Operator(MortalApi(store), SlowWorker(0.01))

    async def story() -> int:
        await asyncio.sleep(5)  # it has nothing to learn any more
        add(store, pod("other", node="gpu-1"))
        await asyncio.sleep(1)
        before = operator.loop.cycles
        await asyncio.sleep(10)
        return operator.loop.cycles - before

    assert 30 < lived(operator, story) <= 10 / LONGEST_REST_S


def test_decisions_follow_each_other_while_each_leaves_jobs_for_the_next() -> None:
    """With the rest between them sixty jobs that fit took four seconds. A look and a decision take 40 ms here."""
    store = Store()
    for number in range(8):
        for manifest in plugin_node(f"gpu-{number}"):
            add(store, manifest)
    operator = Operator(MortalApi(store), SlowWorker(0.02))

    async def story() -> int:
        running = asyncio.create_task(operator.run())
        await asyncio.sleep(5)
        for number in range(60):
            add(store, training_job(f"train-{number:02d}", spec={"gpus": 1}))
        await asyncio.sleep(1.5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return sum(job.status.placement is not None for job in operator.watched.cluster.jobs.values())

    assert virtual_time.run(story()) == 60


class Undone(MortalApi):
    """Somebody else empties the status of one job as soon as it is stored."""

    def __init__(self, store: Store, job: Key) -> None:
        super().__init__(store)
        self._job = job
        self.is_on = True
        self.stored = 0

    async def _do(self, call: Call, act: Callable[[], Any]) -> Any:
        answer = await super()._do(call, act)
        if call.verb == "put_status" and call.key == self._job and self.is_on:
            self.stored += 1
            self.store.update(TRAINING_JOBS, self._job, answer | {"status": {}}, subresource="status")
        return answer


def test_a_job_whose_status_is_undone_each_time_is_written_to_once_a_second_and_others_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    for manifest in plugin_node("gpu-1"):
        add(store, manifest)
    api = Undone(store, Key("team-b", "undone"))
    operator = Operator(api)

    def is_placed(name: str) -> bool:
        return operator.watched.cluster.jobs[JobKey("team-b", name)].status.placement is not None

    async def story() -> None:
        running = asyncio.create_task(operator.run())
        add(store, training_job("undone", spec={"gpus": 1}))
        await asyncio.sleep(120)
        assert PLANS_AT_ONCE < api.stored <= PLANS_AT_ONCE + 121
        add(store, training_job("other", spec={"gpus": 7}))
        await asyncio.sleep(2)
        assert is_placed("other")
        end_job(store, Key("team-b", "other"))
        api.is_on = False
        await asyncio.sleep(10)
        assert is_placed("undone")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(story())
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "30 writes of one job in a row did not settle it" in str(record.exc_info)
    assert operator.metrics.broken_decisions._value.get() == 1
