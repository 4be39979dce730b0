"""Nodes for placement: alike nodes as one group, in the tree of the network's domains.

Two nodes are of one group when placement computes the same from both; what is left of a node are its name, its place,
its labels and what it has besides GPUs. The tree is persistent: a version shares with the one before it every domain
that an event leaves alone.

    levels   block   rack   host
    root ── b1 ── b1/r1   8 free of hgx-h200: gpu-01 gpu-02; 3 free: gpu-03
         │     └─ b1/r2   8 free of hgx-h200: gpu-04
         └ 8 free of hgx-h200: gpu-05, which bears no label and may stand anywhere: a domain of its own
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from immutables import Map

from closeknit.api.names import HOST_LEVEL
from closeknit.cluster.forest.domain import NOTHING, Domain, Move, moved, only
from closeknit.cluster.forest.group import Group, MachineKind, group_of
from closeknit.cluster.immutable.table import EMPTY
from closeknit.cluster.node.node import MigDevices, MigView, NodeView
from closeknit.cluster.objects.pod_requests import Amounts


@dataclass(frozen=True, slots=True)
class Forest:
    """All nodes of a cluster as groups in its domains: as they are, and as if unused."""

    levels: tuple[str, ...] = (HOST_LEVEL,)
    """Outermost first; the last is host."""
    now: Domain = NOTHING
    empty: Domain = NOTHING
    """An empty, healthy copy of the cluster; the same object while machines, taints, domains and the Nodes' resources
    stay."""
    labels: object = field(default_factory=object, compare=False, repr=False)
    """A version of the labels; the same object while no node comes or goes and no label of any node changes."""
    mig: Map[str, MigDevices] = EMPTY
    """The MIG devices of each node with some."""
    spares: Map[str, frozenset[str]] = EMPTY
    """The spare nodes of each queue with some."""
    _known: Mapping[Group, Group] = field(default_factory=dict, compare=False, repr=False)
    """The one object for each group of `now` and `empty`, so that equal groups are identical."""

    @staticmethod
    def of(levels: tuple[str, ...], views: Iterable[NodeView]) -> Forest:
        """The forest of these nodes, in the domains of the levels."""
        return Forest(levels).after((None, view) for view in views)

    def after(self, pairs: Iterable[tuple[NodeView | None, NodeView | None]]) -> Forest:
        """The forest after changes of nodes, given as (old view, new view), None for a missing one.

        Gives itself where nothing has changed that placement reads. When the levels change a new forest is made.
        """
        now: list[Move] = []
        empty: list[Move] = []
        known: dict[Group, Group] = {}
        are_labels_moved = False
        mig: dict[str, tuple[MigView, ...]] = {}
        left, kept = dict[str, set[str]](), dict[str, set[str]]()
        for old, new in pairs:
            before = _standing(old)
            is_same_machine = old is not None and new is not None and old.machine is new.machine
            after = _standing(new, before.group.kind if before and is_same_machine else None)
            _move(now, before, after, self._known, known)
            if not _are_alike_empty(before, after):
                _move(empty, _emptied(before), _emptied(after), self._known, known)
            if old is None or new is None or (old.labels is not new.labels and old.labels != new.labels):
                are_labels_moved = True
            devices = () if new is None else new.mig
            if (old.spare_for if old else "") != (new.spare_for if new else ""):
                for view, by_queue in ((old, left), (new, kept)):
                    if view is not None and view.spare_for:
                        by_queue.setdefault(view.spare_for, set()).add(view.name)
            if (view := new or old) is not None and devices != (() if old is None else old.mig):
                mig[view.name] = devices
        if not (now or empty or are_labels_moved or mig):
            return self
        tree, emptied = moved(self.now, now), moved(self.empty, empty)
        return Forest(
            levels=self.levels,
            now=tree,
            empty=emptied,
            labels=object() if are_labels_moved else self.labels,
            mig=_with(self.mig, mig) if mig else self.mig,
            spares=_with_spares(self.spares, left, kept) if left or kept else self.spares,
            _known=_pruned(self._known, known, tree, emptied),
        )

    @property
    def free_gpus(self) -> int:
        """How many GPUs are free on all nodes, excluded ones included: no gang can get more."""
        return sum(group.free.bit_count() * nodes for group, nodes in self.now.counts.items())

    def free_gpus_in(self, level: str) -> dict[str, int]:
        """How many GPUs are free in each domain of a level, excluded nodes included: no gang in it can get more. A node
        without one is a domain of its own, by its name, as all are at the level host."""
        found: dict[str, int] = {}

        def count(name: str, domain: Domain, below: int) -> None:
            if not below:
                found[name] = sum(group.free.bit_count() * nodes for group, nodes in domain.counts.items())
                return
            for group, names in domain.hosts.items():
                found.update(dict.fromkeys(names, group.free.bit_count()))
            for child, inside in domain.children.items():
                count(child, inside, below - 1)

        count("", self.now, self.levels.index(level) + 1)
        return found

    def only(self, names: frozenset[str]) -> Forest:
        """The forest of only these nodes."""
        return replace(self, now=only(self.now, names), empty=only(self.empty, names))


def _with(known: Map[str, MigDevices], new: Mapping[str, tuple[MigView, ...]]) -> Map[str, MigDevices]:
    """With the values of these nodes, and none for a node without."""
    changed = known.mutate()
    for name, devices in new.items():
        if devices:
            changed[name] = MigDevices(devices)
        else:
            changed.pop(name, None)
    return changed.finish()


def _with_spares(
    known: Map[str, frozenset[str]], left: Mapping[str, set[str]], kept: Mapping[str, set[str]]
) -> Map[str, frozenset[str]]:
    """Without the nodes that were spare ones of a queue, and with those that are."""
    changed = known.mutate()
    for queue in {**left, **kept}:
        names = known.get(queue, frozenset()).difference(left.get(queue, ())).union(kept.get(queue, ()))
        if names:
            changed[queue] = names
        else:
            changed.pop(queue, None)
    return changed.finish()


class _Standing(NamedTuple):
    """The place where a node is counted."""

    name: str
    path: tuple[str, ...]
    group: Group
    spare: Amounts | None
    allocatable: Amounts | None


def _standing(view: NodeView | None, kind: MachineKind | None = None) -> _Standing | None:
    """`kind`: of its machine, where that is known."""
    if view is None:
        return None
    outer = view.domains[:-1]
    path = outer[: outer.index(None)] if None in outer else outer
    domains = tuple(domain for domain in path if domain is not None)
    return _Standing(view.name, domains, group_of(view, kind), view.spare, view.allocatable)


def _are_alike_empty(before: _Standing | None, after: _Standing | None) -> bool:
    """Whether a node is equal in an empty copy of the cluster, as while Pods come and go: the inputs of `_emptied`
    are."""
    return (
        before is not None
        and after is not None
        and before.path == after.path
        and before.group.kind == after.group.kind
        and before.group.exposure is after.group.exposure
        and before.group.functions == after.group.functions
        and before.group.nics_unoffered == after.group.nics_unoffered
        and before.group.taints == after.group.taints
        and before.group.spare_for == after.group.spare_for
        and before.allocatable == after.allocatable
    )


def _emptied(standing: _Standing | None) -> _Standing | None:
    group = standing.group.emptied if standing else None
    return standing._replace(group=group, spare=standing.allocatable) if standing and group else None


def _move(
    moves: list[Move],
    before: _Standing | None,
    after: _Standing | None,
    known: Mapping[Group, Group],
    new: dict[Group, Group],
) -> None:
    if before and after and before.path == after.path and before.group == after.group:
        if before.spare != after.spare:
            moves.append(Move(after.path, after.group, after.name, 0, after.spare))
        return
    if before:
        moves.append(Move(before.path, before.group, before.name, -1, None))
    if after:
        group = known.get(after.group) or new.setdefault(after.group, after.group)
        moves.append(Move(after.path, group, after.name, 1, after.spare))


def _pruned(old: Mapping[Group, Group], new: dict[Group, Group], *trees: Domain) -> Mapping[Group, Group]:
    """The known groups, without those of no node once they are many."""
    if not new:
        return old
    known = {**old, **new}
    if len(known) <= 2 * sum(len(tree.counts) for tree in trees):
        return known
    return {group: group for tree in trees for group in tree.counts}
