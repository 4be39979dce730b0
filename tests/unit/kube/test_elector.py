"""Electors over an in-memory API server whose messages are late or lost, while processes are stopped, killed and told
to end. Their clocks begin anywhere and run fast or slow by a twentieth. The oracle has the true clock.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from closeknit.kube.api import Key
from closeknit.kube.elector import Elector, LeaseLost
from closeknit.kube.errors import Unavailable
from closeknit.kube.lease import LEASES
from faults import virtual_time
from faults.fault import Call, Delay, Fault, LoseReply, Refuse
from faults.memory_api import MemoryApi
from faults.store import Store

NAME = Key("system", "leader")
TROUBLE_S = 300.0
ONE_LEADS_WITHIN_S = 20.0
LATEST_S = 12.0  # a message on its way: longer than a request is waited for, and than a reign may go unrenewed


class Net(MemoryApi):
    """Messages take their time both ways, or get lost. A request arrives also where nobody waits for it any more."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        super().__init__(store)
        self.is_bad = True
        self.under_way: set[asyncio.Task[Any]] = set()
        self.stopped_until = 0.0
        self._chance = chance

    async def _do(self, call: Call, act: Callable[[], Any]) -> Any:
        self.calls.append(call)
        await self._awake()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._travel(act, answer))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        result = await answer
        await self._awake()
        return result

    async def _travel(self, act: Callable[[], Any], answer: "asyncio.Future[Any]") -> None:
        await asyncio.sleep(self._time_s())
        is_lost = self.is_bad and self._chance.random() < 0.1
        try:
            result = None if is_lost else act()
        except Exception as error:  # what the server answers
            result = error
        await asyncio.sleep(self._time_s())
        if is_lost or (self.is_bad and self._chance.random() < 0.1):
            result = Unavailable("lost")
        if answer.done():
            return
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    async def _awake(self) -> None:
        """Waits while the process is stopped."""
        await asyncio.sleep(max(0.0, self.stopped_until - asyncio.get_running_loop().time()))

    def _time_s(self) -> float:
        if not self.is_bad or self._chance.random() < 0.7:
            return 0.005
        return self._chance.uniform(0.0, self._chance.choice([0.5, 3.0, LATEST_S]))


class Processes:
    """Some candidates, each started again when it has ended, and what the oracle saw of them."""

    def __init__(self, seed: int, count: int) -> None:
        self.store = Store()
        self.chance = random.Random(seed)  # noqa: S311 - to be repeated
        self.nets = [Net(self.store, random.Random(f"{seed}/{each}")) for each in range(count)]  # noqa: S311
        self.electors: list[Elector | None] = [None] * count
        self.runs: list[asyncio.Task[None] | None] = [None] * count
        self.reigns: list[int] = []
        self.wrong: list[str] = []
        self.is_bad = True

    def leaders(self) -> list[Elector]:
        return [each for each in self.electors if each is not None and each.holds]

    async def live(self, index: int) -> None:
        """One process after the other."""
        loop, number = asyncio.get_running_loop(), 0
        while True:
            number += 1
            offset, rate = self.chance.uniform(-1e6, 1e6), self.chance.uniform(0.95, 1.05)
            elector = self.electors[index] = Elector(
                self.nets[index],
                *NAME,
                f"{index}-{number}",
                lambda: 0,
                lambda _: None,
                clock=lambda offset=offset, rate=rate: offset + rate * loop.time(),  # type: ignore[misc]
            )
            run = self.runs[index] = asyncio.create_task(elector.run())
            try:
                await asyncio.wait({run})
            finally:
                run.cancel()
            self.electors[index] = None
            await asyncio.sleep(self.chance.uniform(0.1, 10.0) if self.is_bad else 0.1)

    async def hurt(self) -> None:
        """Stops, kills, and tells processes to end."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.chance.uniform(1.0, 20.0))
            index = self.chance.randrange(len(self.nets))
            elector, run = self.electors[index], self.runs[index]
            match self.chance.choice(["stop", "kill", "tell", "label"]):
                case "stop":
                    self.nets[index].stopped_until = loop.time() + self.chance.choice([3.0, 12.0, 60.0])
                case "kill" if run is not None:
                    self.electors[index] = None
                    run.cancel()
                case "tell" if run is not None and elector is not None:
                    run.cancel()
                    await elector.release()
                case "label" if self.store.objects(LEASES):
                    label = {"op": "add", "path": "/metadata/labels", "value": {"at": str(loop.time())}}
                    self.store.json_patch(LEASES, NAME, [label])

    async def look(self) -> None:
        """The oracle."""
        while True:
            leaders = self.leaders()
            if len(leaders) > 1:
                self.wrong.append(f"{len(leaders)} lead at {asyncio.get_running_loop().time():.2f}")
            for each in leaders:
                if not self.reigns or each.epoch != self.reigns[-1]:
                    self.reigns.append(each.epoch)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def tasks(*works: Any) -> AsyncIterator[None]:
    running = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(400 if metafunc.config.getoption("--long") else 10))


def test_never_do_two_lead_and_after_all_trouble_one_does_within_20_s(seed: int) -> None:
    async def story() -> Processes:
        all_ = Processes(seed, count=2 + seed % 2)
        async with tasks(all_.look(), *(all_.live(index) for index in range(len(all_.nets)))):
            async with tasks(all_.hurt()):
                await asyncio.sleep(TROUBLE_S)
            all_.is_bad = False
            for net in all_.nets:
                net.is_bad, net.stopped_until = False, 0.0
            # What is still on its way may keep a Lease alive whose holder is dead.
            await asyncio.gather(*(task for net in all_.nets for task in net.under_way))
            await asyncio.sleep(ONE_LEADS_WITHIN_S)
            assert len(all_.leaders()) == 1
            leader = all_.leaders()[0]
            await asyncio.sleep(60)
            assert all_.leaders() == [leader], "a leader that is well stays"
        return all_

    seen = virtual_time.run(story())
    assert not seen.wrong
    assert len(seen.reigns) > 3, "the story has hardly any takeovers"
    assert seen.reigns == sorted(set(seen.reigns)), "an epoch came twice, or after a higher one"


def elector(store: Store, identity: str, *faults: Fault, highest: int = 0, lost: list[str] | None = None) -> Elector:
    ends = [] if lost is None else lost
    clock = asyncio.get_running_loop().time
    return Elector(MemoryApi(store, faults), *NAME, identity, lambda: highest, ends.append, clock=clock)


def spec(store: Store) -> Any:
    return store.get(LEASES, NAME)["spec"]


def test_a_lease_is_released_also_while_a_renewal_is_under_way() -> None:
    """SIGTERM comes at any moment, and nobody waits for the renewal's answer."""

    class Slow(MemoryApi):
        async def json_patch(self, *words: Any, **options: Any) -> Any:
            answer = await super().json_patch(*words, **options)
            stored.set()
            await asyncio.sleep(0.5)
            return answer

    stored = asyncio.Event()

    async def story() -> str:
        store = Store()
        first = Elector(Slow(store), *NAME, "a", lambda: 0, lambda _: None, clock=asyncio.get_running_loop().time)
        run = asyncio.create_task(first.run())
        await first.leads.wait()
        stored.clear()
        await stored.wait()
        run.cancel()
        await first.release()
        return str(spec(store)["holderIdentity"])

    assert virtual_time.run(story()) == ""


def test_a_released_lease_is_taken_within_a_second_and_a_dead_leaders_within_16() -> None:
    async def story() -> tuple[float, float]:
        store, time = Store(), asyncio.get_running_loop().time
        first, second, third = (elector(store, name, highest=41) for name in ("a", "b", "c"))
        async with tasks(first.run()):
            await first.leads.wait()
            async with tasks(second.run(), third.run()):
                await asyncio.sleep(30)
                assert (first.epoch, spec(store)["leaseTransitions"], spec(store)["holderIdentity"]) == (42, 42, "a")
                assert not second.leads.is_set() and not third.leads.is_set()
                await first.release()
                released = time()
                await asyncio.wait(
                    [asyncio.create_task(each.leads.wait()) for each in (second, third)],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                taken_s = time() - released
                leader, standby = (second, third) if second.holds else (third, second)
                assert leader.epoch == 43
            # Both are dead now, and a new one begins.
            fourth = elector(store, "d")
            died = time()
            async with tasks(fourth.run()):
                await fourth.leads.wait()
                assert not standby.leads.is_set()
                return taken_s, time() - died

    released_s, dead_s = virtual_time.run(story())
    assert released_s < 1
    assert 15 <= dead_s < 16


def test_who_cannot_renew_is_lost_at_the_deadline_and_not_at_the_next_answer() -> None:
    """Counted from the begin of the write that took the Lease: its answer took 2 s."""

    async def story() -> None:
        store, lost = Store(), list[str]()
        leader = elector(store, "a", Fault(Delay(2.0), "create"), Fault(Delay(1e6), "json_patch"), lost=lost)
        running = asyncio.create_task(leader.run())
        await leader.leads.wait()
        await asyncio.sleep(7.9)
        assert leader.holds and not lost
        await asyncio.sleep(0.2)
        assert not leader.holds and len(lost) == 1
        await asyncio.sleep(5)
        assert isinstance(running.exception(), LeaseLost)

    virtual_time.run(story())


def test_answers_that_get_lost_cost_no_reign() -> None:
    async def story() -> None:
        store = Store()
        faults = [Fault(LoseReply(), "json_patch", nth=number) for number in (1, 3, 4)]
        leader = elector(store, "a", Fault(LoseReply(), "create"), *faults)
        async with tasks(leader.run()):
            await asyncio.sleep(60)
            assert leader.holds and spec(store)["holderIdentity"] == "a"

    virtual_time.run(story())


def test_an_api_server_that_is_away_for_less_than_the_deadline_costs_no_reign() -> None:
    async def story() -> None:
        store, away = Store(), list[bool]()
        down = Fault(Refuse(Unavailable("down", code=503)), when=lambda _: bool(away))
        leader = elector(store, "a", down)
        async with tasks(leader.run()):
            await asyncio.sleep(30)
            away.append(True)
            await asyncio.sleep(7)
            away.clear()
            await asyncio.sleep(30)
            assert leader.holds and leader.epoch == 1

    virtual_time.run(story())


def test_a_lease_that_somebody_deletes_or_seizes() -> None:
    async def story() -> None:
        store, lost = Store(), list[str]()
        leader, standby = elector(store, "a", lost=lost), elector(store, "b")
        async with tasks(leader.run(), standby.run()):
            await asyncio.sleep(5)
            store.delete(LEASES, NAME)
            await asyncio.sleep(5)
            assert leader.holds and not standby.leads.is_set() and spec(store)["leaseTransitions"] == leader.epoch
            store.json_patch(LEASES, NAME, [{"op": "replace", "path": "/spec/holderIdentity", "value": "x"}])
            await asyncio.sleep(3)
            assert not leader.holds and lost == ["x holds the Lease"]

    virtual_time.run(story())


def test_a_reign_gets_a_higher_epoch_than_one_that_somebody_has_booked_with() -> None:
    async def story() -> None:
        store = Store()
        leader = elector(store, "a")
        async with tasks(leader.run()):
            await leader.leads.wait()
            leader.raise_above(7)
            await asyncio.sleep(0.1)
            assert (leader.epoch, spec(store)["leaseTransitions"]) == (8, 8)
            await asyncio.sleep(30)
            assert (leader.epoch, spec(store)["leaseTransitions"]) == (8, 8)

    virtual_time.run(story())
