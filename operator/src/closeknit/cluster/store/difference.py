"""What differs between two versions of one table of immutable values."""

from collections.abc import Collection, Mapping
from itertools import chain, compress, repeat
from operator import is_not
from typing import Any, Generic, NamedTuple, TypeVar

from immutables import Map

from closeknit.cluster.immutable.table import Reader, Table

# Versions of the jobs are compared by five rooms of one decision, and those of the nodes by three.
_KEPT = 4

K = TypeVar("K")
V = TypeVar("V", bound=Reader)


class Difference(NamedTuple, Generic[K]):
    """Keys of a table by what became of them."""

    stored: Collection[K] = ()
    """With a new value, or new."""
    gone: Collection[K] = ()


class _Recent:
    """The last pairs of tables that cannot change, with what differs. They hold their tables, so that no other one gets
    the identity of such a table; and they are replaced as a whole, so that threads may compare at once."""

    pairs: tuple[tuple[Any, Any, Difference[Any]], ...] = ()


_RECENT = _Recent()


def difference(before: Mapping[K, Any], now: Mapping[K, Any]) -> Difference[K]:
    """The keys whose values are other objects.

    It costs 35 ns for each value (3,000 jobs, one of them stored, on one core): two versions of one table iterate alike
    but where keys were added or removed, so that values are compared side by side first.
    """
    if now is before:
        return Difference()
    if not (isinstance(before, Map) and isinstance(now, Map)):
        return _compared(before, now)
    recent = _RECENT.pairs
    for was, there, known in recent:
        if was is before and there is now:
            return known
    found = _compared(before, now)
    _RECENT.pairs = (*recent[1 - _KEPT :], (before, now, found))
    return found


def _compared(before: Mapping[K, Any], now: Mapping[K, Any]) -> Difference[K]:
    aside = compress(now, map(is_not, now.values(), chain(before.values(), repeat(before))))
    stored = [key for key in aside if before.get(key) is not now[key]]
    added = sum(key not in before for key in stored)
    gone = [key for key in before if key not in now] if len(before) + added != len(now) else ()
    return Difference(stored, gone)


def felt(table: Table[Any, Any], moved: Mapping[Any, tuple[Any, Any]]) -> set[Any]:
    """Those of the changes that matter to a node's view."""
    return {
        key
        for key, (before, now) in moved.items()
        if before is None or now is None or not table.looks_alike(before, now)
    }


class EntryChanges(NamedTuple):
    """What differs between two versions of one table."""

    moved: Mapping[Any, tuple[Any, Any]]
    """Key -> (before, now) of each change."""
    felt: Collection[Any]
    """Keys of changes that matter to a node's view."""


class TableChanges(Generic[V]):
    """What differs between two versions of all tables. Each table is compared once, when it is asked for first."""

    def __init__(self, before: V, now: V) -> None:
        self.before = before
        self.now = now
        self._known: dict[Table[Any, Any], list[Any]] = {}
        self._entries: dict[Table[Any, Any], EntryChanges] = {}

    def of(self, table: Table[K, Any]) -> list[K]:
        """The keys whose values are other objects, or gone."""
        if table not in self._known:
            found = difference(self.before.all(table), self.now.all(table))
            self._known[table] = [*found.stored, *found.gone]
        return self._known[table]

    def entries(self, table: Table[Any, Any]) -> EntryChanges:
        """The changes of its entries."""
        if table not in self._entries:
            old, there = self.before.all(table), self.now.all(table)
            moved = {key: (old.get(key), there.get(key)) for key in self.of(table)}
            self._entries[table] = EntryChanges(moved, felt(table, moved))
        return self._entries[table]
