"""What blocks the event loop is seen by how late a task is woken."""

import asyncio
from time import sleep

from closeknit.runtime.responsive import LAG_EVERY_S, measure_lag
from faults import virtual_time


def test_a_loop_at_rest_is_never_late() -> None:
    seen: list[float] = []

    async def story() -> None:
        probe = asyncio.create_task(measure_lag(seen.append))
        await asyncio.sleep(100.5 * LAG_EVERY_S)
        probe.cancel()

    virtual_time.run(story())
    assert len(seen) == 100
    assert max(seen) < 1e-6


def test_whoever_blocks_the_loop_is_seen() -> None:
    seen: list[float] = []

    async def story() -> None:
        probe = asyncio.create_task(measure_lag(seen.append))
        await asyncio.sleep(LAG_EVERY_S / 2)
        sleep(5 * LAG_EVERY_S)  # noqa: ASYNC251 -- this is the fault
        await asyncio.sleep(LAG_EVERY_S / 2)
        probe.cancel()

    asyncio.run(story())
    assert max(seen) >= 4 * LAG_EVERY_S
