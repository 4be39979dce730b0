"""Which agents fall silent when: heartbeats by the minute, so that time costs only the agents whose time comes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from immutables import Map

from closeknit.cluster.immutable.table import EMPTY

STALE_AFTER = timedelta(minutes=15)  # three missed heartbeats of 5 minutes
SKEW = timedelta(minutes=2)  # by which clocks may differ; what lies further ahead counts as the moment it was seen
_MINUTE_S = 60


class Ahead(NamedTuple):
    """A heartbeat of the future."""

    claimed: datetime
    seen: datetime
    """When it was met first: the only moment at which the agent is known to have lived."""


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """The last heartbeat of each node's agent."""

    minutes: Map[int, Map[str, datetime]] = EMPTY
    """Minute since 1970 -> node -> heartbeat."""
    ahead: Map[str, Ahead] = field(default=EMPTY, compare=False)
    """Node -> its heartbeat, where that lies in the future."""

    def after(self, moves: Iterable[tuple[str, datetime | None, datetime | None]]) -> Self:
        """The heartbeats after those of some nodes went from one moment to another."""
        minutes = self.minutes.mutate()
        for node, before, now in moves:
            if before is not None and (now is None or _minute(now) != _minute(before)):
                rest = minutes[_minute(before)].delete(node)
                if rest:
                    minutes[_minute(before)] = rest
                else:
                    del minutes[_minute(before)]
            if now is not None:
                minutes[_minute(now)] = minutes.get(_minute(now), Map()).set(node, now)
        return type(self)(minutes.finish(), self.ahead)

    def between(self, first: datetime | None, last: datetime) -> list[str]:
        """Nodes whose heartbeat lies in the minutes from `first`, None for the oldest, up to `last`."""
        end = _minute(last)
        start = _minute(first) if first is not None else min(self.minutes, default=end)
        if end - start < len(self.minutes):
            found = [minute for minute in range(start, end + 1) if minute in self.minutes]
        else:
            found = [minute for minute in self.minutes if start <= minute <= end]
        return [node for minute in found for node in self.minutes[minute]]

    def at(self, now: datetime, heartbeats: Callable[[str], datetime | None]) -> Self:
        """The same with those of the future as seen at this moment, unless they were seen before.

        `heartbeats` gives the last one of each node.
        """
        first = _minute(now + SKEW)
        late = [name for minute in self.minutes if minute >= first for name in self.minutes[minute]]
        ahead = {name: entry for name, entry in self.ahead.items() if heartbeats(name) == entry.claimed}
        for name in late:
            claimed = heartbeats(name)
            if name not in ahead and claimed is not None and claimed > now + SKEW:
                ahead[name] = Ahead(claimed, now)
        return self if ahead == dict(self.ahead.items()) else replace(self, ahead=Map(ahead))

    def sign_of_life(self, name: str, heartbeat: datetime | None, now: datetime) -> datetime | None:
        """When an agent is known to have lived last."""
        entry = self.ahead.get(name)
        is_ahead = entry is not None and entry.claimed == heartbeat and entry.claimed > now + SKEW
        return entry.seen if entry is not None and is_ahead else heartbeat

    def is_stale(self, name: str, heartbeat: datetime | None, now: datetime | None) -> bool:
        """Whether an agent has been silent too long; one that never gave a heartbeat is not stale."""
        if now is None or heartbeat is None:
            return False
        lived = self.sign_of_life(name, heartbeat, now)
        return lived is not None and now - lived > STALE_AFTER

    def newest(self, until: datetime) -> datetime | None:
        """The newest heartbeat that is not after a moment."""
        beats = (beat for minute in self.minutes.values() for beat in minute.values())
        return max((beat for beat in beats if beat <= until), default=None)


def _minute(moment: datetime) -> int:
    return int(moment.timestamp() // _MINUTE_S)
