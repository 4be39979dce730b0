"""Which agents fall silent when: heartbeats by the minute, so that time costs only the agents whose time comes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from immutables import Map

from closeknit.cluster.table import EMPTY

_MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class Beats:
    """The last heartbeat of each node's agent."""

    minutes: Map[int, Map[str, datetime]] = EMPTY
    """Minute since 1970 -> node -> heartbeat."""

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
        return type(self)(minutes.finish())

    def between(self, first: datetime | None, last: datetime) -> list[str]:
        """Nodes whose heartbeat lies in the minutes from `first`, None for the oldest, up to `last`."""
        end = _minute(last)
        start = _minute(first) if first is not None else min(self.minutes, default=end)
        if end - start < len(self.minutes):
            found = [minute for minute in range(start, end + 1) if minute in self.minutes]
        else:
            found = [minute for minute in self.minutes if start <= minute <= end]
        return [node for minute in found for node in self.minutes[minute]]

    @property
    def newest(self) -> datetime | None:
        """The newest heartbeat of all."""
        return max(self.minutes[max(self.minutes)].values()) if self.minutes else None


def _minute(moment: datetime) -> int:
    return int(moment.timestamp() // _MINUTE_S)
