"""The objects behind a Cluster, and what of them concerns each node. Draft is the next version while it is made.

A version shares every table that did not change with the one before it; a table that did is copied once per batch
(docs/decisions/0003-the-cluster-value.md has the figures).
"""

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from operator import itemgetter
from typing import Any, Generic, TypeVar

from closeknit.api.names import DEFAULT_CLUSTER_TOPOLOGY, JobKey, Role, child_name
from closeknit.api.objects import ClusterTopology, TrainingJob
from closeknit.cluster.booking import Booking, booking
from closeknit.cluster.dra import ResourceClaim, ResourceSlice
from closeknit.cluster.holders import Held
from closeknit.cluster.job import InvalidJob
from closeknit.cluster.kinds import Change, ObjectKey, Source, pod_source
from closeknit.cluster.levels import Levels, Place
from closeknit.cluster.objects import Node, PriorityClass
from closeknit.cluster.pod import Pod
from closeknit.cluster.pool import Pools, pools
from closeknit.cluster.report import AgentReport, same_machine
from closeknit.cluster.view import STALE_AFTER, Sources

K = TypeVar("K", bound=Any)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Tables:
    """All objects, by ascending key but for Pods and claims, and indexes over them. Shared read-only by versions."""

    topology: ClusterTopology | None = None
    nodes: dict[str, Node] = field(default_factory=dict)
    reports: dict[str, AgentReport] = field(default_factory=dict)
    slices: dict[str, ResourceSlice] = field(default_factory=dict)
    pods: dict[ObjectKey, Pod] = field(default_factory=dict)
    hidden_pods: dict[ObjectKey, Pod] = field(default_factory=dict)
    """Others' Pods under a name that a Pod of ours has, too: the two streams of Pods are not in step."""
    claims: dict[ObjectKey, ResourceClaim] = field(default_factory=dict)
    jobs: dict[JobKey, TrainingJob] = field(default_factory=dict)
    invalid_jobs: dict[JobKey, InvalidJob] = field(default_factory=dict)
    priorities: dict[str, PriorityClass] = field(default_factory=dict)
    # Indexes: each value is sorted, and no key has an empty one.
    bookings: dict[JobKey, Booking] = field(default_factory=dict)
    booked_on: dict[str, tuple[tuple[JobKey, int], ...]] = field(default_factory=dict)
    """Node -> (job, position in its placement)."""
    pods_on: dict[str, tuple[ObjectKey, ...]] = field(default_factory=dict)
    """Node -> live Pods bound to it."""
    pods_of: dict[JobKey, tuple[ObjectKey, ...]] = field(default_factory=dict)
    """Job -> Pods that it owns."""
    claims_of: dict[JobKey, tuple[ObjectKey, ...]] = field(default_factory=dict)
    """Job -> claims that bear its label."""
    slices_on: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pool_slices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    claims_in: dict[str, tuple[ObjectKey, ...]] = field(default_factory=dict)
    """Pool -> claims that hold devices of it."""
    levels: Levels = field(default_factory=Levels)
    next_stale: datetime | None = None
    """No agent that is not stale yet becomes so before this moment; None: none ever will."""

    @property
    def nodes_are_known(self) -> bool:
        """Whether the input holds Nodes at all."""
        return bool(self.nodes)

    def names(self) -> list[str]:
        """Names of all nodes, ascending."""
        return sorted(self.nodes.keys() | self.reports.keys())

    def places(self) -> Iterator[Place]:
        """What the levels are read from, in no order."""
        yield from map(self.place, self.nodes)
        yield from map(self.place, self.reports.keys() - self.nodes.keys())

    def place(self, name: str) -> Place:
        """What the levels are read from at one node."""
        node, report = self.nodes.get(name), self.reports.get(name)
        return Place(node.labels if node else {}, report.machine.nvlink_domain if report and report.machine else None)

    def pools_on(self, name: str) -> Pools:
        """What the slices of one node say."""
        return pools(self.slices[key] for key in self.slices_on.get(name, ()))

    def sources(self, name: str) -> Sources | None:
        """Everything that speaks of one node; None where there is neither Node nor NodeTopology."""
        node, report = self.nodes.get(name), self.reports.get(name)
        if node is None and report is None:
            return None
        found = self.pools_on(name)
        claims = {key for pool, _ in found.uuids for key in self.claims_in.get(pool, ())}
        return Sources(
            name=name,
            node=node,
            report=report,
            pools=found,
            pods=tuple(self.pods[key] for key in self.pods_on.get(name, ())),
            claims=tuple(self.claims[key] for key in sorted(claims)),
            bookings=tuple(self._held(job, index) for job, index in self.booked_on.get(name, ())),
        )

    def _held(self, job: JobKey, index: int) -> Held:
        booked = self.bookings[job]
        return Held(job, booked.shares[index], self.worker(job, booked, index))

    def worker(self, job: JobKey, booked: Booking, index: int) -> Pod | None:
        """The Pod that stands for one share of a booking; a namesake of another owner does not."""
        pod = self.pods.get((job.namespace, child_name(job.name, booked.attempt, Role.WORKER, index)))
        owner = pod.job_owner if pod else None
        if pod is None or owner is None or pod.job != job or pod.index != index:
            return None
        return None if owner.uid and booked.uid and owner.uid != booked.uid else pod


class ByKey(Mapping[K, V]):  # noqa: PLW1641 - no hash, as a dict has none
    """A table that is large and hardly ever walked: looked up as it is, and sorted by whoever walks it."""

    __slots__ = ("_table",)

    def __init__(self, table: dict[K, V]) -> None:
        self._table = table

    def __getitem__(self, key: K) -> V:
        return self._table[key]

    def __contains__(self, key: object) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[K]:
        return iter(sorted(self._table))

    def __len__(self) -> int:
        return len(self._table)

    def __eq__(self, other: object) -> bool:
        return self._table == (other._table if isinstance(other, ByKey) else other)

    def __repr__(self) -> str:
        return repr(dict(self))


class _Writable(Generic[K, V]):
    """One table of the draft: the old one until the first write, then a copy."""

    def __init__(self, old: dict[K, V]) -> None:
        self._old = old
        self._new: dict[K, V] | None = None
        self._added: list[K] = []

    @property
    def now(self) -> dict[K, V]:
        """The table as it stands."""
        return self._old if self._new is None else self._new

    def put(self, key: K, value: V | None) -> V | None:
        """Sets or, with None, removes one entry. Gives what was there before."""
        before = self.now.get(key)
        if before is None and value is None:
            return None
        if self._new is None:
            self._new = self._old.copy()
        if value is None:
            del self._new[key]
        else:
            if before is None:
                self._added.append(key)
            self._new[key] = value
        return before

    def done(self) -> dict[K, V]:
        """The finished table, by ascending key."""
        if self._new is not None and self._added:
            return in_order(self._new, self._added)
        return self.now


class _Index(_Writable[K, tuple[Any, ...]]):
    """A table from a key to the sorted members that concern it. Looked up by key only, and so kept in no order."""

    def move(self, member: Any, before: Iterable[K], after: Iterable[K]) -> None:
        """Takes a member out of the entries `before` and puts it into those of `after`."""
        old, new = set(before), set(after)
        for key in old - new:
            rest = tuple(other for other in self.now[key] if other != member)
            self.put(key, rest or None)
        for key in new - old:
            self.put(key, tuple(sorted((*self.now.get(key, ()), member))))

    def done(self) -> dict[K, tuple[Any, ...]]:
        return self.now


def in_order(table: dict[K, V], added: Iterable[K]) -> dict[K, V]:
    """The table by ascending key, where only the keys of `added` that it still has are out of place; takes those out
    of `table`. Half the cost of sorting everything again for each new one."""
    fresh = sorted({key: table.pop(key) for key in added if key in table}.items(), key=itemgetter(0))
    keys = list(table)
    rest = iter(table.items())
    ordered: dict[K, V] = {}
    taken = 0
    for key, value in fresh:
        position = bisect(keys, key)
        ordered.update(islice(rest, position - taken))
        ordered[key] = value
        taken = position
    ordered.update(rest)
    return ordered


class Draft:
    """The next Tables while changes are taken in, and which nodes they touch."""

    def __init__(self, old: Tables) -> None:
        self.touched: set[str] = set()
        """Nodes whose view may differ."""
        self.places_moved = False
        """Whether something changed that the levels are read from."""
        self._topology = old.topology
        self._next_stale = old.next_stale
        self._levels = old.levels
        self._nodes = _Writable(old.nodes)
        self._reports = _Writable(old.reports)
        self._slices = _Writable(old.slices)
        self._pods = _Writable(old.pods)
        self._hidden_pods = _Writable(old.hidden_pods)
        self._claims = _Writable(old.claims)
        self._jobs = _Writable(old.jobs)
        self._invalid_jobs = _Writable(old.invalid_jobs)
        self._priorities = _Writable(old.priorities)
        self._bookings = _Writable(old.bookings)
        self._booked_on = _Index(old.booked_on)
        self._pods_on = _Index(old.pods_on)
        self._pods_of = _Index(old.pods_of)
        self._claims_of = _Index(old.claims_of)
        self._slices_on = _Index(old.slices_on)
        self._pool_slices = _Index(old.pool_slices)
        self._claims_in = _Index(old.claims_in)
        self._take: dict[Source, Callable[[ObjectKey, Any], None]] = {
            Source.NODES: self._take_node,
            Source.NODE_TOPOLOGIES: self._take_report,
            Source.CLUSTER_TOPOLOGIES: self._take_topology,
            Source.TRAINING_JOBS: self._take_job,
            Source.CHILD_PODS: self._take_child_pod,
            Source.OTHER_PODS: self._take_other_pod,
            Source.RESOURCE_SLICES: self._take_slice,
            Source.RESOURCE_CLAIMS: self._take_claim,
            Source.PRIORITY_CLASSES: self._take_priority,
        }

    def take(self, change: Change) -> None:
        """Takes one change in."""
        self._take[change.source](change.key, change.new)

    def done(self) -> Tables:
        """The next Tables, its levels still the old ones."""
        return Tables(
            topology=self._topology,
            nodes=self._nodes.done(),
            reports=self._reports.done(),
            slices=self._slices.done(),
            pods=self._pods.now,
            hidden_pods=self._hidden_pods.now,
            claims=self._claims.now,
            jobs=self._jobs.done(),
            invalid_jobs=self._invalid_jobs.done(),
            priorities=self._priorities.done(),
            bookings=self._bookings.now,
            booked_on=self._booked_on.done(),
            pods_on=self._pods_on.done(),
            pods_of=self._pods_of.done(),
            claims_of=self._claims_of.done(),
            slices_on=self._slices_on.done(),
            pool_slices=self._pool_slices.done(),
            claims_in=self._claims_in.done(),
            levels=self._levels,
            next_stale=self._next_stale,
        )

    def _take_node(self, key: ObjectKey, new: Node | None) -> None:
        name = key[1]
        old = self._nodes.put(name, new)
        self.touched.add(name)
        if old is None or new is None or old.labels != new.labels:
            self.places_moved = True

    def _take_report(self, key: ObjectKey, new: AgentReport | None) -> None:
        name = key[1]
        before = self._reports.now.get(name)
        new = same_machine(new, before) if new else None
        self._reports.put(name, new)
        self.touched.add(name)
        if _nvlink_domain(before) != _nvlink_domain(new):
            self.places_moved = True
        if new and new.heartbeat:
            stale = new.heartbeat + STALE_AFTER
            self._next_stale = stale if self._next_stale is None else min(self._next_stale, stale)

    def _take_topology(self, key: ObjectKey, new: ClusterTopology | None) -> None:
        if key[1] == DEFAULT_CLUSTER_TOPOLOGY:
            self._topology = new
            self.places_moved = True

    def _take_job(self, key: ObjectKey, new: TrainingJob | InvalidJob | None) -> None:
        job = JobKey(*key)
        self._jobs.put(job, new if isinstance(new, TrainingJob) else None)
        self._invalid_jobs.put(job, new if isinstance(new, InvalidJob) else None)
        now = booking(new) if new else None
        before = self._bookings.now.get(job)
        if now == before:
            return
        self._bookings.put(job, now)
        old_shares = {(share.node, index) for index, share in enumerate(before.shares)} if before else set()
        new_shares = {(share.node, index) for index, share in enumerate(now.shares)} if now else set()
        for node, index in old_shares - new_shares:
            self._booked_on.move((job, index), (node,), ())
        for node, index in new_shares - old_shares:
            self._booked_on.move((job, index), (), (node,))
        self.touched.update(node for node, _ in old_shares | new_shares)

    def _take_other_pod(self, key: ObjectKey, new: Pod | None) -> None:
        shown = self._pods.now.get(key)
        if shown is not None and pod_source(shown) is Source.CHILD_PODS:
            self._hidden_pods.put(key, new)
        else:
            self._show_pod(key, new)

    def _take_child_pod(self, key: ObjectKey, new: Pod | None) -> None:
        shown = self._pods.now.get(key)
        if new is not None:
            if shown is not None and pod_source(shown) is Source.OTHER_PODS:
                self._hidden_pods.put(key, shown)
            self._show_pod(key, new)
        elif shown is not None and pod_source(shown) is Source.CHILD_PODS:
            self._show_pod(key, self._hidden_pods.put(key, None))

    def _show_pod(self, key: ObjectKey, new: Pod | None) -> None:
        before = self._pods.put(key, new)
        self._pods_on.move(key, _bound(before), _bound(new))
        self._pods_of.move(key, _owned(before), _owned(new))
        for pod in (before, new):
            if pod is not None:
                self.touched.update(_bound(pod))
                self.touched.update(self._booked_node(pod))

    def _booked_node(self, pod: Pod) -> tuple[str, ...]:
        """The node on which a Pod stands for a share of its job's booking."""
        booked = self._bookings.now.get(pod.job) if pod.job else None
        index = pod.index
        if booked is None or index is None or index >= len(booked.shares):
            return ()
        return (booked.shares[index].node,)

    def _take_slice(self, key: ObjectKey, new: ResourceSlice | None) -> None:
        name = key[1]
        before = self._slices.put(name, new)
        self._slices_on.move(name, _node_of(before), _node_of(new))
        self._pool_slices.move(name, _pool_of(before), _pool_of(new))
        self.touched.update((*_node_of(before), *_node_of(new)))

    def _take_claim(self, key: ObjectKey, new: ResourceClaim | None) -> None:
        before = self._claims.put(key, new)
        self._claims_in.move(key, _claimed_pools(before), _claimed_pools(new))
        self._claims_of.move(key, _labelled(before), _labelled(new))
        for pool in {*_claimed_pools(before), *_claimed_pools(new)}:
            for name in self._pool_slices.now.get(pool, ()):
                self.touched.add(self._slices.now[name].node)

    def _take_priority(self, key: ObjectKey, new: PriorityClass | None) -> None:
        self._priorities.put(key[1], new)


def _nvlink_domain(report: AgentReport | None) -> str | None:
    return report.machine.nvlink_domain if report and report.machine else None


def _bound(pod: Pod | None) -> tuple[str, ...]:
    return (pod.node,) if pod is not None and pod.node and pod.is_live else ()


def _owned(pod: Pod | None) -> tuple[JobKey, ...]:
    return (pod.job,) if pod is not None and pod.job is not None else ()


def _node_of(entry: ResourceSlice | None) -> tuple[str, ...]:
    return (entry.node,) if entry is not None else ()


def _pool_of(entry: ResourceSlice | None) -> tuple[str, ...]:
    return (entry.pool,) if entry is not None else ()


def _claimed_pools(claim: ResourceClaim | None) -> tuple[str, ...]:
    return tuple(pool for pool, _ in claim.devices) if claim is not None else ()


def _labelled(claim: ResourceClaim | None) -> tuple[JobKey, ...]:
    return (claim.job,) if claim is not None and claim.job is not None else ()
