"""Whether the event loop is responsive: blocking code delays watches, writes, health and the Lease."""

import asyncio
from collections.abc import Callable
from typing import NoReturn

# Often enough to meet a block of 50 ms, which is what the loop may be late by; 20 wake-ups a second cost a thousandth
# of a core.
LAG_EVERY_S = 0.05


async def measure_lag(observe: Callable[[float], object]) -> NoReturn:
    """Tells `observe` again and again by how many seconds this task was woken too late. Ends when cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_EVERY_S
        await asyncio.sleep(LAG_EVERY_S)
        observe(max(0.0, loop.time() - due))
