"""The next ObjectTables after a batch of changes, and the nodes whose views may change."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from immutables import Map

from closeknit.api.names import JobKey
from closeknit.cluster.immutable.heartbeats import STALE_AFTER
from closeknit.cluster.immutable.interning import Examples
from closeknit.cluster.immutable.table import EMPTY, Index, ObjectKey, Table
from closeknit.cluster.kueue.admission import as_admitted
from closeknit.cluster.kueue.workload import own
from closeknit.cluster.network.levels import Place
from closeknit.cluster.objects.agent_report import AgentReport, settled
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.difference import TableChanges, felt
from closeknit.cluster.store.object_store import ObjectTables
from closeknit.cluster.store.table_definitions import (
    CLAIMS,
    CLAIMS_OF,
    HIDDEN_PODS,
    JOBS,
    LODGERS,
    NODES,
    PODS,
    PODS_OF,
    REPORTS,
    RESOURCE_FLAVORS,
    SUBMITTED,
    WORKLOADS,
    WORKLOADS_OF,
)
from closeknit.cluster.store.watched_kinds import BY_STREAM, ObjectChange, Stream, pod_stream

ENTRIES = 8
"""Entries that are written while one view is derived, ten and a hundred microseconds."""

_Said = dict[ObjectKey, Any]
"""The last change of each object of a stream; None: it is gone."""


@dataclass(slots=True)
class _Draft:
    """The parts of the next ObjectTables under construction."""

    kept: dict[Table[Any, Any], Map[Any, Any]]
    filed: dict[Index[Any, Any, Any, Any], Map[Any, tuple[Any, ...]]]
    moved: dict[Table[Any, Any], Mapping[Any, tuple[Any, Any]]] = field(default_factory=dict)
    """Key -> (before, now) of each change."""
    felt: dict[Table[Any, Any], Collection[Any]] = field(default_factory=dict)
    """Keys of changes that matter to a node's view."""
    touched: set[str] = field(default_factory=set)

    def put(self, table: Table[Any, Any], values: Mapping[Any, Any]) -> None:
        """Sets or, with None, removes entries of a table, and files them again. Equal values stay the same object."""
        old = self.kept.get(table, EMPTY)
        moved: dict[Any, tuple[Any, Any]] = {}
        for key, now in values.items():
            before = old.get(key)
            if now is not before and now != before:
                moved[key] = (before, now)
        if not moved:
            return
        self.moved[table] = moved
        self.felt[table] = matter = felt(table, moved)
        self.kept[table] = _written(old, {key: now for key, (_, now) in moved.items()})
        if table.is_by_node:
            self.touched.update(matter)
        for index in table.indexes:
            self._file(index, moved, matter)

    def take(self, table: Table[Any, Any], changes: TableChanges[ObjectTables]) -> None:
        """Takes a whole table of the version now, in place of that of the version before."""
        moved, matter = changes.entries(table)
        self.moved[table], self.felt[table] = moved, matter
        self.kept[table] = changes.now.all(table)
        if table.is_by_node:
            self.touched.update(matter)
        for index in table.indexes:
            self.filed[index] = changes.now.filed.get(index, EMPTY)
            if index.is_by_node:
                states = ((key, state) for key in matter for state in moved[key])
                self.touched.update(place for each in states for place, _ in _members(index, *each))

    def _file(
        self, index: Index[Any, Any, Any, Any], moved: Mapping[Any, tuple[Any, Any]], matter: Collection[Any]
    ) -> None:
        old = self.filed.get(index, EMPTY)
        drawers: dict[Any, tuple[list[Any], list[Any]]] = {}  # key -> (what its members are sorted by, members)
        for key, (before, now) in moved.items():
            was, to_be = _members(index, key, before), _members(index, key, now)
            for where in {**was, **to_be}:
                member = to_be.get(where)
                if member == was.get(where):
                    continue
                place, order = where
                if place not in drawers:
                    there = old.get(place, ())
                    drawers[place] = ([index.order(one) for one in there], list(there))
                _move(*drawers[place], order, member)
                if index.is_by_node and key in matter:
                    self.touched.add(place)
        if drawers:
            self.filed[index] = _written(old, {place: tuple(there) or None for place, (_, there) in drawers.items()})

    def touch(self, tables: ObjectTables) -> None:
        """Adds the nodes that other objects reach, by the tables that this draft has become."""
        for table, matter in self.felt.items():
            for key in matter:
                for state in self.moved[table][key]:
                    if state is not None:
                        self.touched.update(table.touches(tables, state))


def after(old: ObjectTables, changes: Iterable[ObjectChange], now: datetime | None) -> tuple[ObjectTables, set[str]]:
    """The ObjectTables after these changes, in their order, and the nodes whose views may change. At the moment `now`
    agents count as silent.

    The Tables are the very same where the changes say nothing new.
    """
    said: dict[Stream, _Said] = {}
    for change in changes:
        said.setdefault(change.stream, {})[change.key] = change.new
    draft = _Draft(dict(old.kept), dict(old.filed))
    examples = old.examples
    if Stream.NODE_TOPOLOGIES in said:
        examples = _with_shared_parts(old, said[Stream.NODE_TOPOLOGIES])
    entries = _values(old, said)
    jobs = entries.pop(JOBS, {})
    for table, values in entries.items():
        draft.put(table, values)
    for table, values in _admitted(draft, jobs).items():
        draft.put(table, values)
    if not draft.moved:
        return old, set()
    tables = replace(old, kept=draft.kept, filed=draft.filed, examples=examples)
    draft.touch(tables)
    reports = draft.moved.get(REPORTS, {})
    if reports:
        beats = ((name, before and before.heartbeat, now and now.heartbeat) for name, (before, now) in reports.items())
        tables = replace(tables, beats=old.beats.after(beats))
        draft.touched.update(_roused(old, tables, reports, now))
    if lodgers := draft.moved.get(LODGERS):
        tables = replace(tables, lodgings=old.lodgings.after(lodgers.values()))
    places: list[tuple[Place | None, Place | None]] = [
        (old.place(name), tables.place(name)) for name in {**draft.moved.get(NODES, {}), **reports}
    ]
    census = old.census.after(tables.given_levels, places, tables.places)
    return tables if census is old.census else replace(tables, census=census), draft.touched


def following(
    other: ObjectTables, changes: TableChanges[ObjectTables], jobs: Collection[JobKey], now: datetime, *, at_most: int
) -> tuple[ObjectTables, set[str]] | None:
    """`other` after these changes, and the nodes whose views may change; None where that is not known, and where it is
    more work than to look at so many nodes again. These jobs, their Pods and their claims are in it as they are now.

    `other` is the version before after changes of jobs, of Pods with our label and of claims. Where it has another
    entry than that, for other jobs than these, and there is a new one now, it gets the new one.
    """
    before, new = changes.before, changes.now
    if new.all(HIDDEN_PODS) is not before.all(HIDDEN_PODS):
        return None  # which of two Pods of one name counts rests on both streams
    pods = [pod.key for job in jobs for pod in new.under(PODS_OF, job)]
    claims = [claim.key for job in jobs for claim in new.under(CLAIMS_OF, job)]
    own: dict[Table[Any, Any], Collection[Any]] = {PODS: pods, HIDDEN_PODS: pods, CLAIMS: claims}
    own |= dict.fromkeys(BY_STREAM[Stream.TRAINING_JOBS].tables, jobs) | {SUBMITTED: jobs}
    draft = _Draft(dict(other.kept), dict(other.filed))
    for table in {**before.kept, **new.kept, **own}:
        keys, there = changes.of(table), new.all(table)
        if other.all(table) is before.all(table) and not own.get(table):
            draft.take(table, changes)
        elif len(keys) > ENTRIES * at_most:
            return None
        else:
            draft.put(table, {key: there.get(key) for key in {*keys, *own.get(table, ())}})
    tables = replace(new, kept=draft.kept, filed=draft.filed)
    draft.touch(tables)
    draft.touched.update(_roused(other, tables, draft.moved.get(REPORTS, {}), now))
    return (tables, draft.touched) if len(draft.touched) <= at_most else None


def _values(old: ObjectTables, said: Mapping[Stream, _Said]) -> dict[Table[Any, Any], dict[Any, Any]]:
    """The new entries of each table. If both streams know a Pod, ours counts."""
    values: dict[Table[Any, Any], dict[Any, Any]] = {}
    for stream, words in said.items():
        for table in BY_STREAM[stream].tables:
            if table is not PODS:
                values[table] = {table.key(key): None if new is None else table.of(new) for key, new in words.items()}
    shown: dict[ObjectKey, Pod | None] = {}
    hidden: dict[ObjectKey, Pod | None] = {}
    ours, others = said.get(Stream.CHILD_PODS, {}), said.get(Stream.OTHER_PODS, {})
    others = {key: PODS.of(new) for key, new in others.items()}
    for key in {**ours, **others}:
        known = [pod for pod in (old.all(PODS).get(key), old.all(HIDDEN_PODS).get(key)) if pod is not None]
        states = {pod_stream(pod): pod for pod in known}
        our, other = ours.get(key, states.get(Stream.CHILD_PODS)), others.get(key, states.get(Stream.OTHER_PODS))
        shown[key] = our or other
        hidden[key] = other if our else None
    return {**values, PODS: shown, HIDDEN_PODS: hidden}


def _admitted(draft: _Draft, said: dict[Any, Any]) -> dict[Table[Any, Any], dict[Any, Any]]:
    """The entries of jobs as Kueue admits them, of those that are said, and of those of which Kueue says something
    new."""
    workloads, submitted = draft.kept.get(WORKLOADS, EMPTY), draft.kept.get(SUBMITTED, EMPTY)
    states = [state for pair in draft.moved.get(WORKLOADS, {}).values() for state in pair if state is not None]
    if RESOURCE_FLAVORS in draft.moved:
        states += workloads.values()
    if not (workloads or states or submitted):
        return {JOBS: said} if said else {}
    jobs = dict(said)
    there = draft.kept.get(JOBS, EMPTY)
    for key in {state.job for state in states} - jobs.keys():
        if (job := submitted.get(key) or there.get(key)) is not None:
            jobs[key] = job
    filed, flavors = draft.filed.get(WORKLOADS_OF, EMPTY), draft.kept.get(RESOURCE_FLAVORS, EMPTY)
    raw: dict[Any, Any] = {}
    for key, job in jobs.items():
        raw[key] = None
        if job is not None and (found := own(filed.get(key, ()), job.metadata.name, job.metadata.uid)) is not None:
            jobs[key] = as_admitted(job, found, flavors)
            raw[key] = job if jobs[key] is not job else None
    return {JOBS: jobs, SUBMITTED: raw}


def _with_shared_parts(old: ObjectTables, reports: _Said) -> Examples:
    """Replaces the given reports by equal ones that share equal parts with earlier ones and with machines of their
    class; returns the new examples of the classes."""
    examples = old.examples
    for (_, name), new in reports.items():
        before: AgentReport | None = old.all(REPORTS).get(name)
        now: AgentReport | None = None
        if new is not None:
            now = settled(new, before)
            if now.machine is not None and (before is None or now.machine is not before.machine):
                now = replace(now, machine=examples.like(now.machine))
            reports["", name] = now
        machines = (before.machine if before else None, now.machine if now else None)
        if machines[0] is not machines[1]:
            examples = examples.after((machines,))
    return examples


def _roused(
    old: ObjectTables, new: ObjectTables, reports: Mapping[str, tuple[AgentReport | None, ...]], now: datetime | None
) -> list[str]:
    """The nodes of these reports whose agents have fallen silent, or speak again, by what they said."""
    if now is None:
        return []
    first, ahead = now - STALE_AFTER, {*old.beats.ahead, *new.beats.ahead}
    return [
        name
        for name, states in reports.items()
        if (name in ahead or not all(each and each.heartbeat and each.heartbeat >= first for each in states))
        and old.silent_since(name, now) != new.silent_since(name, now)
    ]


def _members(index: Index[Any, Any, Any, Any], key: Any, value: Any) -> dict[tuple[Any, Any], Any]:
    """An object's entries, by their key and place."""
    return {} if value is None else {(place, index.order(one)): one for place, one in index.files(key, value)}


def _move(orders: list[Any], members: list[Any], order: Any, member: Any) -> None:
    """Puts a member into a sorted list in place of the one with its order, or, with None, removes that."""
    position = bisect_left(orders, order)
    there = slice(position, position + (position < len(orders) and orders[position] == order))
    orders[there] = [] if member is None else [order]
    members[there] = [] if member is None else [member]


def _written(old: Map[Any, Any], values: Mapping[Any, Any]) -> Map[Any, Any]:
    new = old.mutate()
    for key, value in values.items():
        if value is not None:
            new[key] = value
        elif key in new:
            del new[key]
    return new.finish()
