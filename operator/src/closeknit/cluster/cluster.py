"""The Cluster: everything a decision is made from, as one value that follows the API server batch by batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, Self

from closeknit.api.clustertopology import Fabric
from closeknit.api.names import HOST_LEVEL, JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.dra import ResourceClaim
from closeknit.cluster.forest import Forest
from closeknit.cluster.job import InvalidJob
from closeknit.cluster.kinds import Change, ClusterObject, ObjectKey, change
from closeknit.cluster.levels import levels
from closeknit.cluster.node import NodeView
from closeknit.cluster.pod import Pod
from closeknit.cluster.pool import pools
from closeknit.cluster.tables import ByKey, Draft, Tables, in_order
from closeknit.cluster.view import STALE_AFTER, is_stale, node_view


class Grown(NamedTuple):
    """A forest and the nodes that it was grown from."""

    nodes: Mapping[str, NodeView] = MappingProxyType({})
    forest: Forest = Forest()


@dataclass(frozen=True, slots=True)
class Cluster:
    """One moment of a cluster. Every mapping is in ascending order of its keys and read-only.

    Two are equal when a decision sees the same in both; a Cluster that followed any sequence of changes is equal to
    one built from the objects that are left.
    """

    levels: tuple[str, ...] = (HOST_LEVEL,)
    """Names of the network's levels, outermost first; the last is host. NodeView.domains is in the same order."""
    fabric: Fabric = field(default_factory=Fabric)
    """What the site says of its network."""
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    """Every node that has a Node or a NodeTopology, the excluded ones included."""
    jobs: Mapping[JobKey, TrainingJob] = field(default_factory=dict)
    invalid_jobs: Mapping[JobKey, InvalidJob] = field(default_factory=dict)
    """TrainingJobs whose spec does not parse."""
    pods: Mapping[ObjectKey, Pod] = field(default_factory=lambda: ByKey({}))
    """Pods that bear our label, finished ones included, and live ones that hold GPUs or claims."""
    claims: Mapping[ObjectKey, ResourceClaim] = field(default_factory=lambda: ByKey({}))
    """Claims that bear our label, and those that hold GPUs."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Value of each PriorityClass."""
    default_priority: int = 0
    """Of a job that names none."""
    now: datetime | None = field(default=None, compare=False)
    """The moment that staleness was judged at; None: no agent is stale."""
    _tables: Tables = field(default_factory=Tables, compare=False, repr=False)
    _grown: Grown = field(default_factory=Grown, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self._grown.nodes is not self.nodes or self._grown.forest.levels != self.levels:
            made = Grown(self.nodes, Forest.of(self.levels, self.nodes.values()))
            object.__setattr__(self, "_grown", made)

    @property
    def forest(self) -> Forest:
        """The nodes as placement counts them."""
        return self._grown.forest

    @classmethod
    def empty(cls) -> Self:
        """A cluster with nothing in it."""
        return cls()

    def after(self, changes: Iterable[Change]) -> "Cluster":
        """The cluster after these changes, in their order; it shares what they do not touch."""
        draft = Draft(self._tables)
        for one in changes:
            draft.take(one)
        tables = draft.done()
        found = tables.levels
        if draft.places_moved:
            found = levels(tables.topology, tables.places())
        touched = draft.touched
        if found != tables.levels or tables.nodes_are_known != self._tables.nodes_are_known:
            tables = replace(tables, levels=found)
            touched = touched.union(tables.names())
        return self._with(tables, touched, self.now)

    def with_job(self, job: TrainingJob) -> "Cluster":
        """The cluster with this job as given, so that the next decision sees its booking."""
        return self.after((change(job),))

    def at(self, now: datetime) -> "Cluster":
        """The cluster as judged at this moment: nodes whose agent has been silent for 15 min are excluded.

        Costs nothing while no agent's time has come. `now` bears a time zone.
        """
        tables = self._tables
        is_forward = self.now is None or self.now <= now
        if is_forward and (tables.next_stale is None or now <= tables.next_stale):
            return self if now == self.now else replace(self, now=now)
        reports = tables.reports.values()
        touched = [entry.name for entry in reports if is_stale(entry, now) != is_stale(entry, self.now)]
        fresh = [entry.heartbeat for entry in reports if entry.heartbeat and not is_stale(entry, now)]
        tables = replace(tables, next_stale=min(fresh) + STALE_AFTER if fresh else None)
        return self._with(tables, touched, now)

    def priority(self, job: TrainingJob) -> int:
        """The job's priority; that of an unknown class is the default one."""
        return self.priorities.get(job.spec.priority_class_name or "", self.default_priority)

    def pods_of(self, job: JobKey) -> tuple[Pod, ...]:
        """Pods that a TrainingJob of this name owns, of all attempts, by name; one of another uid may be among them."""
        return tuple(self.pods[key] for key in self._tables.pods_of.get(job, ()))

    def claims_of(self, job: JobKey) -> tuple[ResourceClaim, ...]:
        """Claims that bear this job's label, of all attempts, by name."""
        return tuple(self.claims[key] for key in self._tables.claims_of.get(job, ()))

    def claimed_uuids(self, claim: ResourceClaim) -> tuple[str | None, ...]:
        """UUID of each GPU that the claim holds, in the order of its allocation; None where no slice tells."""
        tables = self._tables
        uuids: dict[tuple[str, str], str] = {}
        for pool in sorted({pool for pool, _ in claim.devices}):
            uuids.update(pools(tables.slices[name] for name in tables.pool_slices.get(pool, ())).uuids)
        return tuple(uuids.get(device) for device in claim.devices)

    def reported_uuids(self, pod: Pod) -> tuple[str, ...] | None:
        """UUIDs of the devices that the kubelet gave to the Pod, ascending; None where its node's agent names none."""
        report = self._tables.reports.get(pod.node)
        found = {
            device
            for entry in (report.allocations if report else None) or ()
            if (entry.namespace, entry.pod) == pod.key and (not entry.pod_uid or entry.pod_uid == pod.uid)
            for device in entry.devices
        }
        return tuple(sorted(found)) or None

    @property
    def newest_heartbeat(self) -> datetime | None:
        """The newest sign of life of any agent: what stands for now where there is no clock."""
        return max((entry.heartbeat for entry in self._tables.reports.values() if entry.heartbeat), default=None)

    def _with(self, tables: Tables, touched: Iterable[str], now: datetime | None) -> "Cluster":
        old = self._tables
        priorities, default_priority = self.priorities, self.default_priority
        if tables.priorities is not old.priorities:
            priorities = {name: entry.value for name, entry in tables.priorities.items()}
            # Of several global defaults the lowest holds, as the Priority admission plugin has it.
            default_priority = min(
                (entry.value for entry in tables.priorities.values() if entry.global_default), default=0
            )
        nodes = self._views(tables, touched, now)
        forest = self.forest
        if tables.levels.names != self.levels:
            forest = Forest.of(tables.levels.names, nodes.values())
        elif nodes is not self.nodes:
            forest = forest.after((self.nodes.get(name), nodes.get(name)) for name in touched)
        return Cluster(
            levels=tables.levels.names,
            fabric=tables.topology.spec.fabric if tables.topology else Fabric(),
            nodes=nodes,
            jobs=tables.jobs,
            invalid_jobs=tables.invalid_jobs,
            pods=self.pods if tables.pods is old.pods else ByKey(tables.pods),
            claims=self.claims if tables.claims is old.claims else ByKey(tables.claims),
            priorities=priorities,
            default_priority=default_priority,
            now=now,
            _tables=tables,
            _grown=Grown(nodes, forest),
        )

    def _views(self, tables: Tables, touched: Iterable[str], now: datetime | None) -> Mapping[str, NodeView]:
        nodes: dict[str, NodeView] | None = None
        added: list[str] = []
        for name in touched:
            sources = tables.sources(name)
            view = (
                node_view(
                    sources,
                    tables.levels.domains(name, tables.place(name)),
                    nodes_are_known=tables.nodes_are_known,
                    now=now,
                )
                if sources
                else None
            )
            before = self.nodes.get(name)
            if view == before:
                continue
            if nodes is None:
                nodes = dict(self.nodes)
            if view is None:
                del nodes[name]
            else:
                if before is None:
                    added.append(name)
                nodes[name] = view
        if nodes is None:
            return self.nodes
        return in_order(nodes, added) if added else nodes


def build(objects: Iterable[ClusterObject]) -> Cluster:
    """The cluster of these objects; of two of one kind and name the later counts."""
    return Cluster.empty().after(map(change, objects))
