"""The nodes of a cluster as placement counts them: alike nodes as one group, in the tree of the network's domains.

Two nodes are of one group when placement computes the same from both; what is left of a node are its name, its place
and its labels. The tree is persistent: a version shares with the one before it every domain that an event leaves alone.

    levels   block   rack   host
    root ── b1 ── b1/r1   8 free of hgx-h200: gpu-01 gpu-02; 3 free: gpu-03
         │     └─ b1/r2   8 free of hgx-h200: gpu-04
         └ 8 free of hgx-h200: gpu-05, which bears no label and may stand anywhere: a domain of its own
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from closeknit.api.names import HOST_LEVEL, ExclusionReason
from closeknit.cluster.node import NodeView, PluginOffer, Taint
from closeknit.machine.graph import Machine


@dataclass(frozen=True, slots=True)
class MachineKind:
    """Machines that differ in names and addresses alone."""

    topology_class: str
    products: tuple[str | None, ...]
    """Of each GPU, by position."""
    memory_bytes: tuple[int | None, ...]
    mig: int
    """Mask of the positions that are split by MIG."""
    machine: Machine = field(compare=False, repr=False)
    """One of them."""


@dataclass(frozen=True, slots=True)
class Group:
    """Everything of a node that placement computes with, but for its name, its place and its labels."""

    kind: MachineKind | None
    """None exactly where the node has no valid NodeTopology."""
    free: int
    """Mask of the positions that are usable and that nobody holds."""
    faults: tuple[tuple[int, str], ...]
    """(NVML index, why) of each GPU that is not usable, in short."""
    dra: bool
    plugin: PluginOffer | None
    has_rdma: bool
    """Whether the node offers RDMA NICs to Pods at all."""
    is_rdma_free: bool
    """Whether one Pod more can have them."""
    taints: tuple[Taint, ...]
    excluded: ExclusionReason | None
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        facts = (self.kind, self.free, self.faults, self.plugin, self.taints, self.excluded)
        object.__setattr__(self, "_hash", hash(facts))

    def __hash__(self) -> int:
        return self._hash

    @property
    def emptied(self) -> Group | None:
        """The group of these nodes in an empty, healthy copy of the cluster; None for nodes without GPUs."""
        if self.kind is None or not self.kind.products:
            return None
        every = (1 << len(self.kind.products)) - 1
        return Group(
            kind=self.kind,
            free=every & ~self.kind.mig,
            faults=(),
            dra=True,
            plugin=None,
            has_rdma=self.has_rdma,
            is_rdma_free=self.has_rdma,
            taints=self.taints,
            excluded=None,
        )


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain of one level, or the root of all; shared read-only between versions."""

    counts: Mapping[Group, int]
    """How many nodes of each group are in it, at any depth."""
    children: Mapping[str, Domain]
    """Domains of the next level, in no order."""
    hosts: Mapping[Group, tuple[str, ...]]
    """Nodes right below, ascending: in a domain of the innermost level all of its nodes, elsewhere those without a
    domain at the next level, each of which counts as a domain of its own."""

    def members(self) -> Iterator[tuple[Group, tuple[str, ...]]]:
        """(group, nodes of it that stand together) of the whole domain, in no order."""
        yield from self.hosts.items()
        for child in self.children.values():
            yield from child.members()


NOTHING = Domain({}, {}, {})


class _Move(NamedTuple):
    """A node that comes (1) into the group at the end of a path, or leaves it (-1)."""

    path: tuple[str, ...]
    group: Group
    name: str
    by: int


@dataclass(frozen=True, slots=True)
class Forest:
    """All nodes of a cluster as groups in its domains: as they are, and as they were if nobody used them."""

    levels: tuple[str, ...] = (HOST_LEVEL,)
    """Outermost first; the last is host."""
    now: Domain = NOTHING
    empty: Domain = NOTHING
    """Of an empty, healthy copy of the cluster; the same object while machines, taints and domains stay."""
    labels: object = field(default_factory=object, compare=False, repr=False)
    """Says nothing by itself; the same object while no node comes or goes and no label of any node changes."""
    _known: Mapping[Group, Group] = field(default_factory=dict, compare=False, repr=False)
    """The one object that stands for each group of `now` and `empty`, so that equal groups are found by identity."""

    @staticmethod
    def of(levels: tuple[str, ...], views: Iterable[NodeView]) -> Forest:
        """The forest of these nodes, whose domains are those of the levels."""
        return Forest(levels).after((None, view) for view in views)

    def after(self, pairs: Iterable[tuple[NodeView | None, NodeView | None]]) -> Forest:
        """The forest after nodes have changed, given as (old view, new view), None where there is none.

        Gives itself where nothing has changed that placement reads. When the levels change a forest is made anew.
        """
        now: list[_Move] = []
        empty: list[_Move] = []
        known: dict[Group, Group] = {}
        are_labels_moved = False
        for old, new in pairs:
            before, after = _standing(old), _standing(new)
            if before != after:
                _move(now, before, after, self._known, known)
                _move(empty, _emptied(before), _emptied(after), self._known, known)
            if old is None or new is None or (old.labels is not new.labels and old.labels != new.labels):
                are_labels_moved = True
        if not (now or are_labels_moved):
            return self
        forest = replace(self, now=_moved(self.now, now, 0), empty=_moved(self.empty, empty, 0))
        if are_labels_moved:
            forest = replace(forest, labels=object())
        return replace(forest, _known=_pruned(self._known, known, forest))

    def only(self, names: frozenset[str]) -> Forest:
        """The forest of these nodes alone."""
        return replace(self, now=_only(self.now, names), empty=_only(self.empty, names))


class _Standing(NamedTuple):
    """Where a node is counted."""

    name: str
    path: tuple[str, ...]
    group: Group


def group_of(view: NodeView) -> Group:
    """The group of a node."""
    machine = view.machine
    at = {gpu.index: 1 << position for position, gpu in enumerate(machine.gpus)} if machine else {}
    return Group(
        kind=_kind(machine) if machine else None,
        free=sum(at.get(index, 0) for index in view.free),
        faults=tuple((index, fault.summary) for index, fault in sorted(view.unusable.items()) if index in at),
        dra=view.dra,
        plugin=view.plugin,
        has_rdma=view.rdma is not None,
        is_rdma_free=view.rdma is not None and view.rdma.free >= 1,
        taints=view.taints,
        excluded=view.exclusion.reason if view.exclusion else None,
    )


def _kind(machine: Machine) -> MachineKind:
    return MachineKind(
        topology_class=machine.topology_class,
        products=tuple(gpu.product for gpu in machine.gpus),
        memory_bytes=tuple(gpu.memory_bytes for gpu in machine.gpus),
        mig=sum(1 << position for position, gpu in enumerate(machine.gpus) if gpu.mig_enabled),
        machine=machine,
    )


def _standing(view: NodeView | None) -> _Standing | None:
    if view is None:
        return None
    outer = view.domains[:-1]
    path = outer[: outer.index(None)] if None in outer else outer
    return _Standing(view.name, tuple(domain for domain in path if domain is not None), group_of(view))


def _emptied(standing: _Standing | None) -> _Standing | None:
    group = standing.group.emptied if standing else None
    return standing._replace(group=group) if standing and group else None


def _move(
    moves: list[_Move],
    before: _Standing | None,
    after: _Standing | None,
    known: Mapping[Group, Group],
    new: dict[Group, Group],
) -> None:
    if before == after:
        return
    if before:
        moves.append(_Move(before.path, before.group, before.name, -1))
    if after:
        group = known.get(after.group) or new.setdefault(after.group, after.group)
        moves.append(_Move(after.path, group, after.name, 1))


def _pruned(old: Mapping[Group, Group], new: dict[Group, Group], forest: Forest) -> Mapping[Group, Group]:
    """The known groups, less those of which no node is left once they are many."""
    if not new:
        return old
    known = {**old, **new}
    there = forest.now.counts.keys() | forest.empty.counts.keys()
    return known if len(known) <= 2 * len(there) else {group: group for group in there}


def _moved(domain: Domain, moves: list[_Move], depth: int) -> Domain:
    """The domain after nodes have come and gone below it."""
    if not moves:
        return domain
    counts = dict(domain.counts)
    inside: dict[str, list[_Move]] = {}
    here: dict[Group, list[_Move]] = {}
    for move in moves:
        counts[move.group] = counts.get(move.group, 0) + move.by
        if len(move.path) > depth:
            inside.setdefault(move.path[depth], []).append(move)
        else:
            here.setdefault(move.group, []).append(move)
    for group in {move.group for move in moves if move.by < 0}:
        if not counts.get(group, 1):
            del counts[group]
    children, hosts = domain.children, domain.hosts
    if inside:
        children = dict(children)
        for name, found in inside.items():
            children[name] = _moved(children.get(name, NOTHING), found, depth + 1)
            if not children[name].counts:
                del children[name]
    if here:
        hosts = dict(hosts)
        for group, comers in here.items():
            hosts[group] = _names(hosts.get(group, ()), comers)
            if not hosts[group]:
                del hosts[group]
    return Domain(counts, children, hosts)


def _names(names: tuple[str, ...], moves: list[_Move]) -> tuple[str, ...]:
    if len(moves) == 1:  # by slices: one leaf may hold every node of the cluster
        at = bisect_left(names, moves[0].name)
        return (*names[:at], moves[0].name, *names[at:]) if moves[0].by > 0 else names[:at] + names[at + 1 :]
    gone = {move.name for move in moves if move.by < 0}
    come = {move.name for move in moves if move.by > 0}
    return tuple(sorted(({*names} - gone) | come))


def _only(domain: Domain, names: frozenset[str]) -> Domain:
    hosts = {group: kept for group, members in domain.hosts.items()
             if (kept := tuple(name for name in members if name in names))}  # fmt: skip
    children = {name: left for name, child in domain.children.items() if (left := _only(child, names)).counts}
    counts = {group: len(kept) for group, kept in hosts.items()}
    for child in children.values():
        for group, number in child.counts.items():
            counts[group] = counts.get(group, 0) + number
    return Domain(counts, children, hosts)
