"""What keeps the event loop responsive beside a thread that computes, and the measure of it."""

import asyncio
import gc
import sys
from collections.abc import Callable

LAG_EVERY_S = 0.05
# The interpreter is handed over so often. A decision holds it whenever the event loop wakes, once per wait; at Python's
# default of 5 ms, a write of ten waits takes 50 ms longer.
SWITCH_S = 0.001
# Objects allocated between collections of the youngest generation, and how many of those between ones of the middle
# one. Python's 700 collects the youngest some hundred times in one decision, for hardly anything in it is a cycle.
YOUNG, MIDDLE, OLD = 20_000, 20, 1_000_000


async def measure_lag(observe: Callable[[float], None]) -> None:
    """Observes for ever how much later than asked a timer comes, in seconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_EVERY_S
        await asyncio.sleep(LAG_EVERY_S)
        observe(max(0.0, loop.time() - due))


def share_the_interpreter() -> None:
    """Has the threads take turns in short steps."""
    sys.setswitchinterval(SWITCH_S)


def freeze_heap() -> None:
    """Takes all that there is, which is the cluster, out of the garbage collector's sight, and has it come seldom.

    A collection of everything stops every thread for as long as it takes to walk the heap.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
