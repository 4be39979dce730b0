"""Messages of refusals, renewed at a bounded rate: they cost many times more than the refusal."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from closeknit.lifecycle.own_mistake import OwnMistake, guarded
from closeknit.lifecycle.verdict import Refusal, Wait, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import NoFit
from closeknit.scheduling.memo.advice import Advice
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.entries import QueueEntry, RequestShape, Schedule, ShapeRefusal

# One decision finds words again that walk so many nodes in all: every refusal of a small cluster, one of a large one.
NODES_PER_DECISION = 4096
# The others follow second by second while nothing changes, and every ten seconds while something always does.
AGAIN = timedelta(seconds=1)
OVERDUE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Renewal:
    """The refusals of a walk in their newest words."""

    refused: dict[RequestShape, ShapeRefusal]
    """The longest unrenewed first."""
    told: Mapping[RequestShape, ShapeRefusal]
    """As the walk left them; the very same where no words are others."""
    renewed_at: datetime | None
    wake_at: datetime | None
    """When the next messages are due; None where all describe the current Cluster."""

    def worded(self, entries: list[QueueEntry]) -> list[QueueEntry]:
        """The walk's entries with their refusals in these words."""
        return entries if self.told is self.refused else [self._worded(entry) for entry in entries]

    def _worded(self, entry: QueueEntry) -> QueueEntry:
        if entry.shape is None or entry.shape not in self.told or entry.verdict is not self.told[entry.shape].wait:
            return entry
        wait = self.refused[entry.shape].wait
        return entry if wait is entry.verdict else replace(entry, verdict=wait)


def wait_for(answer: NoFit) -> Wait:
    """The verdict for placement's refusal."""
    return Wait(Refusal(WaitCause.NO_FIT, answer.reason, answer.message))


def renewed(
    told: Mapping[RequestShape, ShapeRefusal],
    last: Schedule,
    tables: Tables,
    memory: Memory,
    now: datetime,
    *,
    is_quiet: bool,
    is_trial: bool,
) -> Renewal:
    """The refusals of a walk with as many renewed words as one decision may find, and with the present advice.

    None is found while a booking is on trial: every job that waits would be told of it, and a moment later of its end.
    """
    refused = {**{shape: told[shape] for shape in last.refused if shape in told}, **told}
    stale = [shape for shape, answer in refused.items() if answer.told_of is not answer.scene]
    affordable = 0 if is_trial or not stale else NODES_PER_DECISION // max(1, len(refused[stale[0]].scene.nodes))
    if not is_trial and affordable < len(stale):
        is_due = is_quiet or last.renewed_at is None or now - last.renewed_at >= OVERDUE
        affordable = max(1, affordable) if is_due else 0
    for shape in stale[:affordable]:
        answer = refused.pop(shape)
        refused[shape] = replace(answer, told_of=answer.scene, wait=_asked(answer, shape, tables))
    refused |= _advised(refused, memory.advice)
    is_same = all(refused[shape].wait is answer.wait for shape, answer in told.items())
    return Renewal(
        refused,
        refused if is_same else told,
        now if affordable and stale else last.renewed_at,
        now + AGAIN if affordable < len(stale) else None,
    )


def _advised(
    refused: Mapping[RequestShape, ShapeRefusal], advice: Mapping[RequestShape, Advice]
) -> dict[RequestShape, ShapeRefusal]:
    """The refusals with other nearest changes than before: those found for this reason."""
    found: dict[RequestShape, ShapeRefusal] = {}
    for shape, known in advice.items():
        answer = refused.get(shape)
        refusal = answer and answer.wait.refusal
        if answer and refusal and known.reason == refusal.reason and known.changes != refusal.nearest:
            found[shape] = replace(answer, wait=Wait(replace(refusal, nearest=known.changes)))
    return found


def _asked(answer: ShapeRefusal, shape: RequestShape, tables: Tables) -> Wait:
    """The refusal of the shape now; the same object without news."""
    fresh = guarded(place, answer.scene, shape.request, tables)
    if isinstance(fresh, OwnMistake):
        return Wait(Refusal(WaitCause.MISTAKE, error=fresh.error))
    before = answer.wait.refusal
    if not isinstance(fresh, NoFit) or (fresh.reason, fresh.message) == (before.reason, before.message):
        return answer.wait
    found = wait_for(fresh)
    return Wait(replace(found.refusal, nearest=before.nearest)) if fresh.reason == before.reason else found
