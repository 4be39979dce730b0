"""The way between the operator and the API server, and the operator's own health: what goes wrong, and how often."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS, SERVICES
from closeknit.kube.api import JsonObject, Resource
from closeknit.kube.errors import ApiError, Conflict, TooManyRequests, Unavailable
from faults.fault import WRITES, Call, EndStream, HoldEvents
from lives.api_server import ApiServer
from scenarios.operated import MortalApi

T = TypeVar("T")

MOST_CALLS = 1500
"""Of the operator in one minute: five times what the busiest of a hundred lives had."""


@dataclass
class Climate:
    """How probable each fault is, for one call; all of them are 0 when the sun shines."""

    refused: float = 0.0
    """503, 429, or a conflict for a compare-and-swap; nothing happens."""
    unanswered: float = 0.0
    """The write is carried out, or lost on its way: its caller hears of a lost connection either way."""
    slow: float = 0.0
    late_stream: float = 0.0
    """Of a watch: it stalls before each event, and ends after some."""
    death: float = 0.0
    """Of a write: the process dies before or after it is carried out."""
    outage: Resource | None = None
    """Whose webhook is down: none of these can be made."""


SUNSHINE = Climate()


def stormy(chance: random.Random) -> Climate:
    """Some weather."""
    return Climate(
        refused=chance.choice([0.0, 0.02, 0.1]),
        unanswered=chance.choice([0.0, 0.02, 0.1]),
        slow=chance.choice([0.0, 0.1, 0.3]),
        late_stream=chance.choice([0.0, 0.3, 0.8]),
        death=chance.choice([0.0, 0.01, 0.05]),
        outage=chance.choice([None, None, None, PODS, RESOURCE_CLAIMS, SERVICES]),
    )


class Weather:
    """What all connections of a life have in common: the climate changes while they last."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.climate = SUNSHINE
        self.last_write_at = 0.0
        """When the operator last sent one, answered or not."""
        self.writes: list[str] = []
        """What they were, in words."""
        self.deaths = 0
        self.haste: list[str] = []
        """Minutes with too many calls: what is asked again and again without a pause."""
        self._minute, self._calls = 0, Counter[str]()

    def count(self, call: Call, at: float) -> None:
        """Notes a call."""
        if int(at // 60) != self._minute:
            self._minute, self._calls = int(at // 60), Counter[str]()
        self._calls[f"{call.verb} {call.resource}"] += 1
        if self._calls.total() == MOST_CALLS:
            self.haste.append(f"{MOST_CALLS} calls in the minute from {60 * self._minute} s on: {self._calls}")


class Connection(MortalApi):
    """One process's door to the API server, in this weather."""

    def __init__(self, server: ApiServer, weather: Weather, note: Callable[[str, str], None]) -> None:
        super().__init__(server)
        self._server = server
        self._weather = weather
        self._note = note
        self._is_question = False

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """See `Api.create`; a dry run is no write, nor is a review."""
        self._is_question = (
            dry_run or "name" not in body["metadata"]
        )  # what comes next, in the same step of the loop, is the call itself
        return await super().create(resource, body, namespace=namespace, dry_run=dry_run)

    async def _before(self, call: Call) -> Sequence[Any]:
        weather, chance = self._weather, self._weather.chance
        weather.count(call, asyncio.get_running_loop().time())
        climate = weather.climate
        self.calls.clear()
        if call.verb in WRITES and not self._is_question:
            weather.last_write_at = asyncio.get_running_loop().time()
            weather.writes.append(f"{weather.last_write_at:9.3f}  {call.verb} {call.resource} {call.key}")
        self._is_question = False
        if chance.random() < climate.slow:
            await asyncio.sleep(chance.choice([0.05, 0.5, 3.0]))
        if chance.random() < climate.refused or (call.verb == "create" and call.resource == climate.outage):
            raise self._refusal(call)
        if call.verb == "watch" and chance.random() < climate.late_stream:
            return [HoldEvents(chance.choice([0.02, 0.2, 1.0])), EndStream(chance.randint(1, 30))]
        return []

    async def _do(self, call: Call, act: Callable[[], T]) -> T:
        chance, climate = self._weather.chance, self._weather.climate
        is_write = call.verb in WRITES
        is_unanswered = is_write and chance.random() < climate.unanswered
        is_lost = is_unanswered and chance.random() < 0.3
        is_last = is_write and not self.dead.is_set() and chance.random() < climate.death
        dies_before = is_last and chance.random() < 0.5

        def acted() -> T:
            if dies_before:
                self.die(f"before {call.verb} {call.resource} {call.key}")
            if dies_before or is_lost:
                raise _no_answer()
            before, self._server.actor = self._server.actor, "operator"
            try:
                return act()
            finally:
                self._server.actor = before
                if is_last:
                    self.die(f"after {call.verb} {call.resource} {call.key}")

        try:
            result: T = await super()._do(call, acted)
        except ApiError:
            if self.dead.is_set():
                await asyncio.Event().wait()
            raise
        if is_unanswered:
            self._note("weather", f"no answer to {call.verb} {call.resource} {call.key}")
            raise _no_answer()
        return result

    def die(self, words: str) -> None:
        """The process is no more."""
        if not self.dead.is_set():
            self._weather.deaths += 1
            self._note("weather", f"the operator dies {words}")
            self.dead.set()

    def _refusal(self, call: Call) -> ApiError:
        chance = self._weather.chance
        if call.resource == self._weather.climate.outage:
            words = 'Internal error occurred: failed calling webhook "example": context deadline exceeded'
            return Unavailable(words, code=500, reason="InternalError")
        if call.verb == "put_status" and chance.random() < 0.4:
            return Conflict("the object has been modified", code=409, reason="Conflict")
        if chance.random() < 0.5:
            return TooManyRequests("too many requests", code=429, retry_after_s=chance.choice([None, 1, 5, 40]))
        return Unavailable("the server is currently unable to handle the request", code=503)


def _no_answer() -> ApiError:
    return Unavailable("no answer from the API server: connection reset after the request was sent")
