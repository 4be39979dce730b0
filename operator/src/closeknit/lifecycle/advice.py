"""The nearest changes of jobs that wait, found while there is nothing to decide: a question at a time.

What was found is told for as long as the job waits for the same reason, and found anew every ten minutes where the
cluster has changed since: so that a status does not follow every move of a cluster that many others use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from closeknit.api.names import PendingReason
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.asked import Answer, Schedule, Shape
from closeknit.placement.nearest import Inquiry, inquiry
from closeknit.placement.tables import Tables

MANY_ADVISED = 64  # shapes, those that have waited longest without news first
STANDS = timedelta(minutes=10)
NODES_PER_STEP = 512  # one question on a large cluster, many on a small one: some ten milliseconds


@dataclass(frozen=True, slots=True)
class Advice:
    """What was found for one shape."""

    reason: PendingReason | None
    """What it waited for then."""
    changes: tuple[str, ...]
    found_at: datetime
    scene: Cluster


class Advisor:
    """Asks on behalf of those that wait, one shape after the other; used by one decision's worker alone."""

    def __init__(self) -> None:
        self.told: Mapping[Shape, Advice] = {}
        """What was found so far; another mapping whenever something was."""
        self._asked: tuple[Shape, PendingReason | None, Cluster, Inquiry] | None = None

    def step(self, schedule: Schedule, tables: Tables, now: datetime) -> bool:
        """Some questions more, as many as take the time of one on a large cluster. Whether there are others left."""
        if self._asked is None:
            found = self._next(schedule, now)
            if found is None:
                return False
            shape, answer = found
            asked = inquiry(answer.scene, shape.request, tables)
            self._asked = shape, answer.wait.refusal.reason, answer.scene, asked
        shape, reason, scene, asked = self._asked
        changes: tuple[str, ...] = ()
        try:
            for _ in range(max(1, NODES_PER_STEP // max(1, len(scene.nodes)))):
                next(asked)
        except StopIteration as over:
            changes = tuple(map(str, over.value))
        except Exception:  # one shape must not keep all others from being told
            changes = ()
        else:
            return True
        kept = {known: advice for known, advice in self.told.items() if known in schedule.refused}
        self.told = {**kept, shape: Advice(reason, changes, now, scene)}
        self._asked = None
        return True

    def _next(self, schedule: Schedule, now: datetime) -> tuple[Shape, Answer] | None:
        """The first shape that nothing current is known of."""
        for shape, answer in list(schedule.refused.items())[:MANY_ADVISED]:
            known = self.told.get(shape)
            if known is None or known.reason != answer.wait.refusal.reason:
                return shape, answer
            if now - known.found_at >= STANDS and known.scene is not answer.scene:
                return shape, answer
        return None
