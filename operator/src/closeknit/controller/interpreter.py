"""How the interpreter is shared between the event loop and the thread that decides."""

import gc
import sys

# A thread that computes hands over the interpreter so often: once whenever the event loop has waited for something. On
# two busy cores, during a decision of 6 s, a timer of 50 ms came 26 ms late (p99) instead of 32 at Python's 5 ms.
SWITCH_S = 0.001
# Objects made between collections of the youngest generation, how many of those to one of the middle one, and of those
# to one of everything, which is never: a collection of all that 5,000 nodes and 2,000 jobs are (290,000 objects) stops
# every thread for 260 ms. Values that nothing refers to go at once; what the younger generations see are the few cycles
# that tasks and exceptions make. On 5,000 nodes a collection of 20,000 stops a decision for 8 to 60 ms, for each refers
# to ten others; one of 5,000 for 8 ms at most. The middle generation takes 50 to 90 ms, after each 400,000 objects.
YOUNG, MIDDLE, OLD = 5_000, 80, 1_000_000


def share_the_interpreter() -> None:
    """Has the threads take turns in short steps."""
    sys.setswitchinterval(SWITCH_S)


def freeze_heap() -> None:
    """Takes all that there is, which is the cluster, out of the garbage collector's watched, and has it come seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
