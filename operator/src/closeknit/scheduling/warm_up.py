"""What a decision is about to ask for the first time, asked while there is nothing to decide.

The best of a shape in an empty cluster, what its jobs wait for while they are patient, and who holds the GPUs that it
may take are worked out once for each version of that cluster. For the 48 shapes of tests/bench/queue_depth.py on 5,000
nodes that takes 96 ms of CPU, 47 for the first (two cores, 2026-11-27), which would be part of the decision in which
something comes free for many of them.
"""

from dataclasses import replace

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.forest.domain import Domain
from closeknit.lifecycle.own_mistake import guarded
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.refusals.ideal import ideal_gb_s
from closeknit.placement.values.request import Request
from closeknit.scheduling.queue.entries import QueueEntry, RequestShape, Schedule
from closeknit.scheduling.reservation.patience import patient

MOST = 256  # shapes of the first jobs: at the mean of these 48, 1.3 ms, a third of a second in all


class WarmUp:
    """Asks for the shapes of waiting jobs, one after the other; used by one decision's worker alone."""

    def __init__(self) -> None:
        self._empty: Domain | None = None
        self._entries: tuple[QueueEntry, ...] = ()
        """Of the last decision."""
        self._left: list[RequestShape] = []
        self._warm: frozenset[RequestShape] = frozenset()

    def is_left(self, schedule: Schedule) -> bool:
        """Whether there is a shape that nothing was asked of on this version of the empty cluster."""
        empty = schedule.cluster.forest.empty
        if empty is not self._empty:
            self._empty, self._entries, self._warm = empty, (), frozenset()
        if schedule.entries is not self._entries:
            self._entries = schedule.entries
            shapes = [*dict.fromkeys(entry.shape for entry in schedule.entries if entry.shape is not None)][:MOST]
            self._left = [shape for shape in shapes if shape not in self._warm][::-1]
            self._warm = self._warm.intersection(shapes)
        return bool(self._left)

    def step(self, schedule: Schedule, tables: Tables) -> None:
        """Asks for one shape, where one is left. The answers are not kept, and `tables` has what they rest on. A
        mistake of ours is told by the decision that asks the same."""
        if self.is_left(schedule):
            shape = self._left.pop()
            self._warm |= {shape}
            guarded(_ask, schedule.cluster, shape.request, tables)


def _ask(cluster: Cluster, asked: Request, tables: Tables) -> None:
    tables.ground(cluster, asked).holders(cluster.nodes)  # later words count only the nodes that have changed
    ideal_gb_s(cluster, asked, tables)
    waiting = asked if asked.patient_level is not None else patient(asked, cluster, tables)
    if waiting is not None:
        ideal_gb_s(cluster, replace(waiting, required_level=waiting.patient_level), tables)
        place(cluster, waiting, tables)
