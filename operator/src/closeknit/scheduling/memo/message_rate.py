"""The rate of messages to waiting jobs: new reasons at once, everything else at a bounded rate.

One job that comes or goes may change the words of all that wait: hundreds of useless writes that delay its Pods. So
only a few words that have just changed are written: first those that the job never had, then the oldest; the namespaces
take turns. Words that still stand a minute later are lasting, and are written one after the other until all are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.writes.plan import Plan, Telling
from closeknit.scheduling.queue.entries import QueueEntry

# A write of words costs the API server and the operator some 5 ms of CPU, and comes back to every watch with the whole
# job. The gang of another job that comes or goes takes some ten writes itself, which these do not outnumber.
CHANGED_WRITES = 10
CHANGED_WITHIN = timedelta(minutes=1)
CHANGED_WRITES_OF_ONE = 8
"""Of one namespace, so that no queue takes them all."""
LASTING_AFTER = timedelta(minutes=1)
LASTING_WRITES = 10
LASTING_WITHIN = timedelta(seconds=10)  # 600 jobs in ten minutes


@dataclass(frozen=True, slots=True)
class ToldWords:
    """A written message."""

    at: datetime
    namespace: str
    writes: int
    are_lasting: bool


@dataclass(frozen=True, slots=True)
class WantedWords:
    """A message to write."""

    entry: QueueEntry
    plan: Plan
    """With its importance and its Event; the status may be made once it may be written."""
    since: datetime
    """Since when it is the one to write."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """The messages to write now, and the others."""

    entries: tuple[QueueEntry, ...]
    """The jobs with a message to write now."""
    later: tuple[tuple[QueueEntry, datetime], ...]
    """The others, with when to come back to them."""
    told: tuple[ToldWords, ...]
    """The written messages from now on."""


def allot(wanted: Sequence[WantedWords], told: Sequence[ToldWords], now: datetime) -> Allotment:
    """The messages to write now; `told` are those of before."""
    recent = [each for each in told if is_between(each.at, now, each.at + CHANGED_WITHIN)]
    room = _Room(recent, now)
    entries: list[QueueEntry] = []
    later: list[tuple[QueueEntry, datetime]] = []
    for each in _in_turn(wanted):
        namespace, writes = each.entry.key.namespace, 1 + (each.plan.notice is not None)
        if room.takes_changed(namespace, writes):
            are_lasting = False
        elif now - each.since >= LASTING_AFTER and room.takes_lasting(writes):
            are_lasting = True
        else:
            later.append((each.entry, room.comes_up_at(each.since, len(later))))
            continue
        entries.append(each.entry)
        recent.append(ToldWords(now, namespace, writes, are_lasting))
    return Allotment(tuple(entries), tuple(later), tuple(recent))


class _Room:
    """The rest of the rate at one moment."""

    def __init__(self, recent: Iterable[ToldWords], now: datetime) -> None:
        self._now = now
        changed = [each for each in recent if not each.are_lasting]
        self._freed_at = min((each.at + CHANGED_WITHIN for each in changed), default=now + CHANGED_WITHIN)
        self._changed = sum(each.writes for each in changed)
        self._of_one = Counter[str]()
        for each in changed:
            self._of_one[each.namespace] += each.writes
        self._lasting = sum(each.writes for each in recent if each.are_lasting and now < each.at + LASTING_WITHIN)

    def takes_changed(self, namespace: str, writes: int) -> bool:
        """Takes words that have just changed, where there is room for them."""
        of_one = self._of_one[namespace] + writes
        if self._changed + writes > CHANGED_WRITES or of_one > CHANGED_WRITES_OF_ONE:
            return False
        self._changed += writes
        self._of_one[namespace] = of_one
        return True

    def takes_lasting(self, writes: int) -> bool:
        """Takes words that have stood for a while, where there is room for them."""
        if self._lasting + writes > LASTING_WRITES:
            return False
        self._lasting += writes
        return True

    def comes_up_at(self, since: datetime, ahead: int) -> datetime:
        """The earliest time with room for a message of that age, with so many others ahead."""
        turns = ahead // LASTING_WRITES
        lasting = max(since + LASTING_AFTER, self._now + LASTING_WITHIN) + turns * LASTING_WITHIN
        return min(self._freed_at + turns * CHANGED_WITHIN, lasting)


def _in_turn(wanted: Sequence[WantedWords]) -> Iterator[WantedWords]:
    """The first of each namespace, then the second of each, and so on."""
    ranks = Counter[str]()
    dealt: list[tuple[int, WantedWords]] = []
    for each in sorted(wanted, key=_urgency):
        namespace = each.entry.key.namespace
        dealt.append((ranks[namespace], each))
        ranks[namespace] += 1
    return (each for _, each in sorted(dealt, key=lambda pair: pair[0]))


def _urgency(wanted: WantedWords) -> tuple[bool, float, object]:
    """News in the queue's order, then the oldest message."""
    is_news = wanted.plan.telling is Telling.NEWS
    told_at = wanted.entry.answers.told_at
    return not is_news, 0.0 if is_news or told_at is None else told_at.timestamp(), wanted.entry.place
