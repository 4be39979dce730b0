"""One life: the world is disturbed for a while, left in peace, and looked at."""

import asyncio
import logging
from dataclasses import dataclass

from faults import virtual_time
from lives.growing import ABOUT_S
from lives.peace import complaints
from lives.weather import SUNSHINE
from lives.world import World

TROUBLE_S = (120.0, 1500.0)
"""How long it is disturbed."""
REST_S = 2400.0  # so long nobody writes anything once all is well; a job waits half an hour for one machine
PATIENCE_S = 6 * 3600.0  # and this is how long that may take to come
STEP_S = 5.0
SHOWN = 120  # of the last events


@dataclass(frozen=True)
class Outcome:
    """What came of a life."""

    seed: int
    faults: tuple[str, ...]
    """What was wrong; empty where nothing was."""
    digest: str
    """Of everything that happened."""
    told: str
    """The last events, for people."""
    seconds: float
    """How long it lasted, in its own time."""
    deaths: int
    writes: int
    grown: int
    """Growths in place that came about."""
    taken_back: int
    """Those that were refused after they were booked."""

    def __str__(self) -> str:
        wrong = "\n".join(f"  {fault}" for fault in self.faults)
        return f"life {self.seed} went wrong after {self.seconds:.0f} s:\n{wrong}\nwhat happened last:\n{self.told}"


def live(seed: int, *, grows: bool = False) -> Outcome:
    """The life of this seed; the same each time. `grows`: of a job that grows in its Pods."""
    return virtual_time.run(_life(seed, grows=grows))


class _Listener(logging.Handler):
    """Hears what the operator has to say of itself."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Hands it on."""
        self._world.take(record)


async def _life(seed: int, *, grows: bool) -> Outcome:
    world = World(seed, grows=grows)
    operator = asyncio.create_task(world.operate())
    log, listener = logging.getLogger("closeknit"), _Listener(world)
    log.addHandler(listener)
    weather = asyncio.create_task(world.change_weather())
    try:
        faults = await _troubled(world, operator, ABOUT_S if grows else TROUBLE_S)
        if not faults:
            weather.cancel()
            faults = await _in_peace(world, operator)
    finally:
        log.removeHandler(listener)
        world.kill("with its world")
        for task in (operator, weather):
            task.cancel()
        await asyncio.gather(operator, weather, return_exceptions=True)
    told = world.chronicle.last(SHOWN)
    return Outcome(
        seed,
        tuple(faults),
        world.chronicle.digest,
        told,
        world.time,
        world.weather.deaths,
        len(world.weather.writes),
        world.invariants.grown,
        world.invariants.taken_back,
    )


async def _troubled(world: World, operator: "asyncio.Task[None]", lasts_s: tuple[float, float]) -> list[str]:
    until = world.people.chance.uniform(*lasts_s)
    world.people.begin(until)
    while world.time < until and not world.faults():
        await asyncio.sleep(STEP_S)
        if operator.done():
            operator.result()
    return world.faults()


async def _in_peace(world: World, operator: "asyncio.Task[None]") -> list[str]:
    world.weather.climate = SUNSHINE
    world.note("peace", "from now on nobody disturbs any more")
    world.people.leave()
    world.end_streams()
    began = world.time
    while world.time - max(began, world.weather.last_write_at) < REST_S:
        await asyncio.sleep(STEP_S)
        if operator.done():
            operator.result()
        if world.faults():
            return world.faults()
        if world.time - began > PATIENCE_S:
            last = "\n    ".join(world.weather.writes[-12:])
            return [f"the operator still writes after {PATIENCE_S:.0f} s:\n    {last}", *complaints(world)]
    return list(complaints(world))
