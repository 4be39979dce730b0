"""The nearest changes of waiting jobs, searched while there is nothing to decide: one question at a time.

A result stays as long as the job waits for the same reason. It is searched again after ten minutes if the cluster has
changed: a status does not follow every move of a cluster that many others use. The number of inquiries in ten minutes
is bounded, and namespaces take turns, so a namespace with many questions waits behind itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from closeknit.api.names import JobKey
from closeknit.api.reasons import PendingReason
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.own_mistake import OwnMistake, guarded
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.verdict import Wait
from closeknit.placement.gang.cache import Tables
from closeknit.placement.suggestions.changes import Inquiry, inquiry
from closeknit.scheduling.queue.entries import QueueEntry, RequestShape, Schedule, ShapeRefusal

STANDS = timedelta(minutes=10)
MANY_INQUIRIES = 64  # in that time; of up to 0.85 s each on 5,000 nodes, less than a minute of a core
NODES_PER_STEP = 512  # one question on a large cluster, many on a small one: some ten milliseconds


@dataclass(frozen=True, slots=True)
class Advice:
    """The nearest changes of one shape."""

    reason: PendingReason | None
    """Its reason to wait at that time."""
    changes: tuple[str, ...]
    found_at: datetime
    scene: Cluster | None
    """Its scene; None once the shape was refused on another, so that old ones are released."""


class _Asked(NamedTuple):
    """The current inquiry."""

    job: JobKey
    shape: RequestShape
    reason: PendingReason | None
    scene: Cluster
    inquiry: Inquiry


class _Begun(NamedTuple):
    """An inquiry of the last ten minutes."""

    at: datetime
    namespace: str


class Advisor:
    """Asks for waiting jobs, one shape after the other; used only by one decision's worker."""

    def __init__(self) -> None:
        self.told: Mapping[RequestShape, Advice] = {}
        """What was found so far; another mapping whenever something was."""
        self.mistake: tuple[JobKey, Exception] | None = None
        """What broke the inquiry of the last step, by a mistake of ours, and a job that it was for."""
        self._asked: _Asked | None = None
        self._begun: list[_Begun] = []
        self._served: dict[str, None] = {}
        """Namespaces of jobs, the one whose turn was last at the end."""

    def step(self, schedule: Schedule, tables: Tables, now: datetime) -> bool:
        """Asks some more questions, as many as take the time of one on a large cluster. Returns whether others may be
        asked now."""
        self.mistake = None
        if self._asked is None:
            self._asked = self._next(schedule, tables, now)
        asked = self._asked
        if asked is None:
            return False
        changes = guarded(_asked_on, asked.inquiry, max(1, NODES_PER_STEP // max(1, len(asked.scene.nodes))))
        if changes is None:
            return True
        if isinstance(changes, OwnMistake):
            self.mistake, changes = (asked.job, changes.error), ()
        kept = {
            shape: advice if advice.scene is answer.scene else replace(advice, scene=None)
            for shape, answer in schedule.refused.items()
            if (advice := self.told.get(shape)) is not None
        }
        self.told = {**kept, asked.shape: Advice(asked.reason, changes, now, asked.scene)}
        self._asked = None
        return True

    def due_at(self, schedule: Schedule, now: datetime) -> datetime | None:
        """When to ask again though nothing changes, after a step without further questions: inquiries may be made
        again, or a result is old. None for never."""
        if len(self._begun) >= MANY_INQUIRIES:
            return self._begun[0].at + STANDS
        known = ((answer, self._known(shape, answer)) for shape, answer in schedule.refused.items())
        old = (each.found_at + STANDS for answer, each in known if each is not None and each.scene is not answer.scene)
        return min((moment for moment in old if now < moment), default=None)

    def _next(self, schedule: Schedule, tables: Tables, now: datetime) -> _Asked | None:
        """The next inquiry; None where every result is current, or enough was asked lately.

        A namespace with fewer inquiries lately comes before others, a shape that nothing is known of before one whose
        advice is old, then the namespace whose turn is longest ago, its oldest advice, and the queue.
        """
        self._begun = [each for each in self._begun if is_between(each.at, now, each.at + STANDS)]
        if len(self._begun) >= MANY_INQUIRIES:
            return None
        due = {shape: answer for shape, answer in schedule.refused.items() if not self._is_current(shape, answer, now)}
        waiting = (entry for entry in schedule.entries if entry.shape in due and isinstance(entry.verdict, Wait))
        entry = self._first(waiting, due)
        if entry is None or entry.shape is None:
            return None
        shape, namespace = entry.shape, entry.key.namespace
        self._begun.append(_Begun(now, namespace))
        there = {each.key.namespace for each in schedule.entries}
        self._served = {each: None for each in self._served if each in there and each != namespace}
        self._served[namespace] = None
        answer = due[shape]
        reason, scene = answer.wait.refusal.reason, answer.scene
        return _Asked(entry.key, shape, reason, scene, inquiry(scene, shape.request, tables))

    def _first(self, waiting: Iterable[QueueEntry], due: Mapping[RequestShape, ShapeRefusal]) -> QueueEntry | None:
        """The shape whose turn it is, for jobs in queue order."""
        lately = Counter(each.namespace for each in self._begun)
        served = {namespace: turn for turn, namespace in enumerate(self._served)}

        def turn(entry: QueueEntry) -> tuple[int, bool, int, float]:
            assert entry.shape is not None  # noqa: S101 - one of those that are due, for the type checker
            known, namespace = self._known(entry.shape, due[entry.shape]), entry.key.namespace
            found_at_s = 0.0 if known is None else known.found_at.timestamp()
            return lately[namespace], known is not None, served.get(namespace, -1), found_at_s

        return min(waiting, key=turn, default=None)

    def _known(self, shape: RequestShape, answer: ShapeRefusal) -> Advice | None:
        """The result for the current reason of the shape's refusal."""
        known = self.told.get(shape)
        return known if known is not None and known.reason == answer.wait.refusal.reason else None

    def _is_current(self, shape: RequestShape, answer: ShapeRefusal, now: datetime) -> bool:
        known = self._known(shape, answer)
        if known is None:
            return False
        return known.scene is answer.scene or is_between(known.found_at, now, known.found_at + STANDS)


def _asked_on(asked: Inquiry, questions: int) -> tuple[str, ...] | None:
    """Asks so many more questions; the messages of the results, None while there are more questions."""
    try:
        for _ in range(questions):
            next(asked)
    except StopIteration as over:
        return tuple(map(str, over.value))
    return None
