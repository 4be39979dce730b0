"""What keeps the event loop responsive beside a thread that computes, and the measure of it."""

import asyncio
import gc
import sys
from collections.abc import Callable

LAG_EVERY_S = 0.05
# A thread that computes hands over the interpreter so often: once whenever the event loop has waited for something. On
# two busy cores, during a decision of 6 s, a timer of 50 ms came 26 ms late (p99) instead of 32 at Python's 5 ms.
SWITCH_S = 0.001
# Objects made between collections of the youngest generation, how many of those to one of the middle one, and of those
# to one of everything, which is never: a collection of all that 5,000 nodes and 2,000 jobs are (290,000 objects) stops
# every thread for 260 ms. Values that nothing refers to go at once; what the younger generations see are the few cycles
# that tasks and exceptions make.
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
    """Takes all that there is, which is the cluster, out of the garbage collector's sight, and has it come seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
