"""How the interpreter is shared between the event loop and the thread that decides."""

import gc
import sys

# A thread that computes hands over the interpreter so often: once whenever the event loop has waited for something. On
# two busy cores, during a decision of 6 s, a timer of 50 ms came 26 ms late (p99) instead of 32 at Python's 5 ms.
SWITCH_S = 0.001
# Objects made between collections of the youngest generation, how many of those to one of the middle one, and of those
# to one of everything, which is never: a collection of all that 5,000 nodes and 2,000 jobs are (290,000 objects) stops
# every thread for 260 ms. Values that nothing refers to go at once; what the younger generations see are the few cycles
# that tasks and exceptions make. On 5,000 nodes, to collect 20,000 takes 15 to 50 ms of one decision in
# sixty, for each refers to ten others; to collect 5,000 takes 4 to 8 ms. The middle generation takes 50 to 90 ms, and
# comes after 400,000 objects.
YOUNG, MIDDLE, OLD = 5_000, 80, 1_000_000


def share_the_interpreter() -> None:
    """Has the threads take turns in short steps."""
    sys.setswitchinterval(SWITCH_S)


def freeze_heap() -> None:
    """Takes all that there is, which is the cluster, out of the garbage collector's watched, and has it come seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
