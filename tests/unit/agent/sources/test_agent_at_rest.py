"""What agents ask of the API server while nothing changes, when they start together, and when it comes back."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from closeknit.agent import node_agent as module
from closeknit.agent.discovery.simulated.profile import Faults
from closeknit.agent.node_agent import LOOK_S, START_SPREAD_S, Agent
from closeknit.agent.publish import NODE_TOPOLOGIES, NODES, Publisher
from closeknit.agent.sources.simulated import SimulatedSource, load_profile
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import TooManyRequests, Unavailable
from faults import virtual_time
from faults.memory_api import MemoryApi
from faults.store import Store

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PROFILE = load_profile("pcie-8")


class Clock:
    """The wall clock of the machine, which somebody may set."""

    set_by = timedelta()

    @classmethod
    def now(cls, zone: Any) -> datetime:
        return NOON.astimezone(zone) + timedelta(seconds=asyncio.get_running_loop().time()) + cls.set_by


@pytest.fixture(autouse=True)
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(function: Callable[[], Any]) -> Any:
        return function()

    monkeypatch.setattr(Clock, "set_by", timedelta())
    monkeypatch.setattr(module, "datetime", Clock)
    monkeypatch.setattr(asyncio, "to_thread", at_once)


class Watched(MemoryApi):
    """Notes when it was asked, and may be out of order."""

    def __init__(self, store: Store, asked: list[tuple[float, str]]) -> None:
        super().__init__(store)
        self.asked = asked
        self.answers_after_s: Callable[[float], float] = lambda _: 0.0
        self.outage: Callable[[float], Exception | None] = lambda _: None

    async def _do(self, call: Any, work: Any) -> Any:
        at = asyncio.get_running_loop().time()
        # The memory keeps no managedFields, by which an agent sees that its labels are all there.
        if (call.verb, call.resource) != ("apply", NODES) or at <= START_SPREAD_S:
            self.asked.append((at, call.verb))
        if seconds := self.answers_after_s(at):
            await asyncio.sleep(seconds)
        if (error := self.outage(at)) is not None:
            raise error
        return await super()._do(call, work)


async def with_nodes(count: int) -> tuple[list[tuple[float, str]], list[Watched]]:
    """What the agents of so many nodes ask and when, and the API server as each sees it."""
    store = Store()
    for number in range(count):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}}
        await MemoryApi(store).create(NODES, node)
    asked: list[tuple[float, str]] = []
    return asked, [Watched(store, asked) for _ in range(count)]


async def play(apis: Sequence[Watched], seconds: float, seed: int = 1, interval_s: float = 5.0) -> None:
    chance = random.Random(seed).random  # noqa: S311
    backoff = Backoff(1.0, 60.0, chance)
    agents = [
        Agent(
            f"node-{number}",
            SimulatedSource(PROFILE, f"node-{number}"),
            Publisher(api, f"node-{number}", agent_version="0.1.0"),
            interval_s=interval_s,
            backoff=backoff,
            chance=chance,
        )
        for number, api in enumerate(apis)
    ]
    tasks = [asyncio.create_task(each.run()) for each in agents]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    assert {type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)} == {asyncio.CancelledError}


def test_a_quiet_hour_is_a_look_a_minute_and_heartbeats() -> None:
    async def main() -> None:
        asked, apis = await with_nodes(1)
        await play(apis, 10)
        assert Counter(verb for _, verb in asked) == {"get": 3, "apply": 3}
        asked.clear()
        await play(apis, 3600)
        verbs = Counter(verb for _, verb in asked)
        assert 8 <= verbs["apply"] <= 12  # heartbeats, 5 to 7 min apart
        beats = [at for at, verb in asked if verb == "apply"]
        pauses = [after - before for before, after in pairwise(beats)]
        assert min(pauses) >= 300 and max(pauses) <= 300 + 2 * LOOK_S
        # A look reads the NodeTopology, a heartbeat the Node beside it, of which somebody may have taken our labels.
        looks = verbs["get"] - verbs["apply"]
        assert 3600 / (2 * LOOK_S) <= looks <= 3600 / LOOK_S + 2
        assert verbs.keys() == {"get", "apply"}

    virtual_time.run(main())


def test_the_cadence_of_looks_is_not_that_of_readings() -> None:
    async def main() -> None:
        asked, apis = await with_nodes(1)
        await play(apis, 600, interval_s=0.5)
        assert len(asked) < 25

    virtual_time.run(main())


def test_what_was_deleted_by_hand_is_there_again_within_two_minutes() -> None:
    async def main() -> None:
        _, apis = await with_nodes(1)
        running = asyncio.create_task(play(apis, 400))
        await asyncio.sleep(100)
        stored = await apis[0].get(NODE_TOPOLOGIES, "node-0")
        await MemoryApi(apis[0].store).delete(NODE_TOPOLOGIES, "node-0", uid=stored["metadata"]["uid"])
        await asyncio.sleep(2 * LOOK_S + 5)
        assert (await apis[0].get(NODE_TOPOLOGIES, "node-0"))["spec"] == stored["spec"]
        await running

    virtual_time.run(main())


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(hours=-1), timedelta(hours=1), timedelta(days=400)])
def test_a_clock_that_jumps_costs_one_heartbeat(jump: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        asked, apis = await with_nodes(1)
        running = asyncio.create_task(play(apis, 1000))
        await asyncio.sleep(100)
        asked.clear()
        monkeypatch.setattr(Clock, "set_by", jump)
        await asyncio.sleep(130)
        assert [verb for _, verb in asked].count("apply") == 1
        topology = await apis[0].get(NODE_TOPOLOGIES, "node-0")
        beat = datetime.fromisoformat(topology["status"]["heartbeatTime"].replace("Z", "+00:00"))
        assert abs(beat - Clock.now(UTC)) < timedelta(seconds=130)
        await running

    virtual_time.run(main())


def test_a_change_is_published_at_the_next_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        _, apis = await with_nodes(1)
        source = SimulatedSource(PROFILE, "node-0")
        publisher = Publisher(apis[0], "node-0", agent_version=None)
        running = asyncio.create_task(Agent("node-0", source, publisher, interval_s=5).run())
        await asyncio.sleep(20)
        broken = SimulatedSource(PROFILE, "node-0", Faults(dead_gpus=(1,)))
        monkeypatch.setattr(source, "read", broken.read)
        await asyncio.sleep(5.1)
        status = (await apis[0].get(NODE_TOPOLOGIES, "node-0"))["status"]
        assert [gpu["index"] for gpu in status["gpus"]] == [1]
        running.cancel()

    virtual_time.run(main())


def busiest(asked: Sequence[tuple[float, str]], since: float = 0.0) -> int:
    """Requests in the busiest second."""
    return max(Counter(int(at) for at, _ in asked if at >= since).values())


def test_agents_that_start_together_are_no_herd() -> None:
    async def main() -> None:
        asked, apis = await with_nodes(60)
        await play(apis, 600)
        assert max(at for at, verb in asked[: 60 * 5]) <= START_SPREAD_S
        assert busiest(asked) <= 60 * 5 * 0.7
        # And drift apart: 60 looks in 90 s, some with a heartbeat.
        assert busiest(asked, since=300) <= 18

    virtual_time.run(main())


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(Unavailable("connection refused"), id="nobody answers"),
        pytest.param(TooManyRequests("too many requests", code=429, retry_after_s=1.0), id="too many ask"),
        pytest.param(Unavailable("starting", code=503, retry_after_s=30.0), id="asked to come back"),
    ],
)
def test_agents_come_back_from_an_outage_spread(refusal: Exception) -> None:
    """The API server is away from before they start until after five minutes: all have failed as often as it gets."""

    async def main() -> None:
        asked, apis = await with_nodes(60)
        for api in apis:
            api.outage = lambda at: refusal if at < 300 else None
        await play(apis, 600)
        # Ten failures in a row at most, and one an agent and half a minute after that.
        assert len([at for at, _ in asked if at < 300]) <= 60 * 14
        # All are back within two minutes; a herd would be 300 requests in one second.
        assert busiest(asked, since=300) <= 40
        stored = MemoryApi(apis[0].store)
        assert len((await stored.list(NODE_TOPOLOGIES)).items) == 60

    virtual_time.run(main())


def test_a_crowd_that_waited_in_vain_comes_back_spread() -> None:
    """An API server that is too busy to answer: all give up together after half a minute."""

    async def main() -> None:
        asked, apis = await with_nodes(60)
        for api in apis:
            api.answers_after_s = lambda at: 30.0 if at < 25 else 0.0
            api.outage = lambda at: Unavailable("no answer") if at < 25 else None
        await play(apis, 100)
        assert busiest(asked, since=25) <= 60 * 5 / 8

    virtual_time.run(main())


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    async def main() -> None:
        asked, apis = await with_nodes(50)
        for api in apis:
            api.outage = lambda at: TooManyRequests("later", retry_after_s=40.0) if at < 30 else None
        await play(apis, 120)
        first = [at for at, _ in asked if at < START_SPREAD_S]
        assert len(first) == 50
        assert min(at for at, _ in asked if at > START_SPREAD_S) >= min(first) + 40.0

    virtual_time.run(main())
