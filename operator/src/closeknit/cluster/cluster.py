"""The Cluster: all inputs of a decision, as one value that follows the API server batch by batch."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, Self

from immutables import Map

from closeknit.api.clustertopology import Fabric
from closeknit.api.names import GPU_RESOURCE, HOST_LEVEL, IMEX_CHANNELS, JobKey
from closeknit.api.nodetopology_status import RunEnd
from closeknit.api.objects import ClusterTopology, TrainingJob
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.booking.booking import AwaitedAttempt, Booking
from closeknit.cluster.booking.job import InvalidJob, is_whole
from closeknit.cluster.forest.forest import Forest
from closeknit.cluster.immutable.heartbeats import STALE_AFTER
from closeknit.cluster.immutable.table import EMPTY, ObjectKey
from closeknit.cluster.job_volumes import NO_VOLUMES, Awaited, Volumes, awaited, volumes_of
from closeknit.cluster.kueue_objects import KueueObjects
from closeknit.cluster.network.levels import Levels
from closeknit.cluster.node.lent_spares import borrowers, owners
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.node.users import GpuUser
from closeknit.cluster.node.view import node_view
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.objects.node_objects import DeviceClass
from closeknit.cluster.objects.pod_requests import Amounts
from closeknit.cluster.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.reported_devices import ReportedDevices
from closeknit.cluster.requested_capacity import RequestedCapacity
from closeknit.cluster.store.difference import TableChanges, difference
from closeknit.cluster.store.next_version import after, following
from closeknit.cluster.store.object_store import ObjectTables
from closeknit.cluster.store.table_definitions import (
    AWAITING,
    BLAMED_ON,
    BOOKED_ON,
    BOOKINGS,
    CLAIMS,
    CLAIMS_OF,
    DEVICE_CLASSES,
    INVALID_JOBS,
    JOBS,
    PODS,
    PODS_OF,
    PRIORITIES,
    REPORTS,
    RUN_ENDS,
    STORAGE_CLASSES,
    TOPOLOGIES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from closeknit.cluster.store.watched_kinds import ClusterObject, ObjectChange, change

_Pairs = list[tuple[NodeView | None, NodeView | None]]


class NodeRecord(NamedTuple):
    """What is known against a node."""

    report: AgentReport
    """With the runs that ended by it, as they are stored with it."""
    blamed: tuple[RunEnd, ...]
    """Those that jobs tell of."""


@dataclass(frozen=True, slots=True)
class _Grown:
    """A forest, and its inputs."""

    levels: tuple[str, ...]
    nodes: Mapping[str, NodeView]
    forest: Forest


@dataclass(frozen=True, slots=True)
class Cluster:
    """One moment of a cluster. Every mapping is read-only, without order, and the same object as long as nothing in it
    changes.

    Two are equal when a decision sees the same in both; a Cluster that followed any sequence of changes is equal to
    one built from the objects that are left.
    """

    levels: tuple[str, ...] = (HOST_LEVEL,)
    """Names of the network's levels, outermost first; the last is host. NodeView.domains is in the same order."""
    fabric: Fabric = field(default_factory=Fabric)
    """The site's description of its network."""
    nodes: Mapping[str, NodeView] = EMPTY
    """Every node with a Node or a NodeTopology, excluded ones included."""
    jobs: Mapping[JobKey, TrainingJob] = EMPTY
    invalid_jobs: Mapping[JobKey, InvalidJob] = EMPTY
    """TrainingJobs whose spec does not parse."""
    pods: Mapping[ObjectKey, Pod] = EMPTY
    """Pods with our label, finished ones included, and live ones that hold GPUs or claims."""
    claims: Mapping[ObjectKey, ResourceClaim] = EMPTY
    """Claims with a name that a child may need, and those that hold GPUs."""
    priorities: Mapping[str, int] = EMPTY
    """Value of each PriorityClass."""
    default_priority: int = 0
    """For a job without a class."""
    meek: frozenset[str] = frozenset()
    """PriorityClasses with the preemptionPolicy Never; the empty name stands for jobs without a class."""
    imex_with: frozenset[Binding] = frozenset()
    """Bindings with which Pods can also have an IMEX channel, for NVLink between nodes: none without NVIDIA's driver
    for ComputeDomains."""
    sidecar_image: str = ""
    """Image of the sidecar of gangs that restart in place, as the operator is told; empty for none."""
    force_deletes: bool = False
    """Whether Pods on dead nodes are deleted by force, as the operator is told."""
    volume_claims: Mapping[ObjectKey, PersistentVolumeClaim] = EMPTY
    volumes: Mapping[str, PersistentVolume] = EMPTY
    storage_classes: Mapping[str, StorageClass] = EMPTY
    now: datetime | None = field(default=None, compare=False)
    """The moment for staleness; None: no agent is stale."""
    devices: ReportedDevices = field(init=False, compare=False, repr=False)
    kueue: KueueObjects = field(init=False, compare=False, repr=False)
    capacity: RequestedCapacity = field(init=False, compare=False, repr=False)
    _tables: ObjectTables = field(default_factory=ObjectTables, compare=False, repr=False)
    _grown: _Grown | None = field(default=None, compare=False, repr=False)
    _is_supposed: bool = field(default=False, compare=False, repr=False)
    """Whether some of its nodes have other views than its objects give."""
    _withheld: Mapping[str, frozenset[str]] = field(default=EMPTY, compare=False, repr=False)
    """GPUs and MIG devices that count as if they could not be given out, uuids by node."""

    def __post_init__(self) -> None:
        """Grows the forest of a Cluster made of `nodes`, or with replaced nodes."""
        object.__setattr__(self, "devices", ReportedDevices(self._tables))
        object.__setattr__(self, "kueue", KueueObjects(self._tables))
        object.__setattr__(self, "capacity", RequestedCapacity(self._tables))
        grown = self._grown
        if grown is None or grown.nodes is not self.nodes or grown.levels != self.levels:
            grown = _Grown(self.levels, self.nodes, Forest.of(self.levels, self.nodes.values()))
            object.__setattr__(self, "_grown", grown)
            object.__setattr__(self, "_is_supposed", bool(self.nodes))

    @classmethod
    def empty(cls, sidecar_image: str = "", *, force_deletes: bool = False) -> Self:
        """A cluster without objects."""
        return cls(sidecar_image=sidecar_image, force_deletes=force_deletes)

    def after(self, changes: Iterable[ObjectChange]) -> "Cluster":
        """The cluster after these changes, in their order; it shares the rest."""
        old = self._tables
        tables, touched = after(old, changes, self.now)
        if tables is old:
            return self
        levels = tables.census.levels
        if (
            levels != old.census.levels
            or tables.nodes_are_known != old.nodes_are_known
            or (tables.topology is not old.topology and tables.functions != old.functions)
        ):
            touched.update(tables.names())
        return self._with(tables, levels, touched, self.now)

    def since(self, before: "Cluster") -> "ClusterChanges":
        """What has changed from an earlier version to this one."""
        nodes = difference(before.nodes, self.nodes)
        moved = frozenset([*nodes.stored, *nodes.gone])
        return ClusterChanges(before, self, moved, TableChanges(before._tables, self._tables))

    def following(self, changes: "ClusterChanges", jobs: Collection[JobKey], *, at_most: int) -> "Cluster | None":
        """This cluster after these changes; None where it has to be made of the version now, and where more than
        `at_most` nodes would have to be looked at again. These jobs, their Pods and their claims are in it as they are
        now.

        It is the version before without what some jobs hold. For a job that has changed itself, or its Pods or claims,
        the changes count: it holds again what it holds now.
        """
        before, now = changes.before, changes.now
        if before._is_supposed or now._is_supposed or self._is_supposed:
            return None
        old, new = before._tables, now._tables
        if old.census.levels != new.census.levels or old.nodes_are_known != new.nodes_are_known:
            return None
        if (old.topology is not new.topology and old.functions != new.functions) or now.now is None:
            return None
        there = self.at(now.now)
        found = following(there._tables, changes.tables, jobs, now.now, at_most=at_most)
        if found is None:
            return None
        tables, touched = found
        return there._with(tables, tables.census.levels, touched, now.now)

    def with_job(self, job: TrainingJob) -> "Cluster":
        """The cluster with this job as given, so that the next decision sees its booking."""
        return self.after((change(job),))

    def at(self, now: datetime) -> "Cluster":
        """The cluster at this moment: nodes whose agent has been silent for 15 min are excluded.

        Looks only at agents whose time may have come, or, with a clock that was set back, gone. `now` bears a time
        zone.
        """
        if now == self.now:
            return self
        last = now if self.now is None else max(now, self.now)
        first = None if self.now is None else min(now, self.now) - STALE_AFTER
        old, tables = self._tables, self._tables.at(now)
        names = {*tables.beats.between(first, last - STALE_AFTER), *old.beats.ahead, *tables.beats.ahead}
        touched = [name for name in names if tables.is_stale(name, now) != old.is_stale(name, self.now)]
        if not touched:
            return replace(self, now=now, _tables=tables)
        return self._with(tables, tables.census.levels, touched, now)

    def freed(self, gpus: Mapping[str, Iterable[int]], room: Mapping[str, Amounts] = EMPTY) -> "Cluster":
        """The cluster as if these GPUs, by node, were free, and so much more of other resources: for what-if questions.
        The Pods of a GPU's holder are gone from its node."""
        pairs: _Pairs = []
        for name in sorted({*gpus, *room}):
            view, freed = self.nodes[name], tuple(gpus.get(name, ()))
            more = dict(room.get(name, ()))
            gone = {view.holders[gpu] for gpu in freed if gpu in view.holders}
            for taker in self.takers(name) if view.spare is not None and gone else ():
                if taker.is_of(gone):
                    for resource, amount in taker.amounts.items():
                        more[resource] = more.get(resource, 0) + amount
            pairs.append((view, view.freed(freed, more)))
        return self._with_views(pairs)

    def without(self, devices: Mapping[str, Collection[str]]) -> "Cluster":
        """The cluster as if these GPUs and MIG devices, uuids by node, could not be given out, also after changes; the
        same object without any."""
        views = ((self.nodes.get(name), uuids) for name, uuids in sorted(devices.items()))
        pairs: _Pairs = [(view, view.without(uuids)) for view, uuids in views if view is not None]
        if not pairs:
            return self
        withheld = {name: self._withheld.get(name, frozenset()).union(uuids) for name, uuids in devices.items()}
        return replace(self._with_views(pairs), _withheld={**self._withheld, **withheld})

    def takers(self, node: str) -> tuple[GpuUser, ...]:
        """Users of a node's resources except Lodgers: Pods, and shares booked for coming Pods, in order."""
        return self._tables.takers(node)

    def is_same(self, other: "Cluster") -> bool:
        """Whether no decision can see a difference except the moment: parts that are neither identical nor cheaply
        equal count as different."""
        return (
            self.joins_like(other)
            and self.nodes is other.nodes
            and self.jobs is other.jobs
            and self.invalid_jobs is other.invalid_jobs
            and self.pods is other.pods
            and self.claims is other.claims
            and self.priorities is other.priorities
            and self.default_priority == other.default_priority
            and self.meek == other.meek
            and self.devices.is_same(other.devices)
            and self.has_volumes_like(other)
            and self.kueue.is_same(other.kueue)
            and self.capacity.is_same(other.capacity)
        )

    def joins_like(self, other: "Cluster") -> bool:
        """Whether the same joins the nodes: levels, the site's description of its network, and IMEX channels."""
        return (
            self.levels == other.levels
            and (self.fabric is other.fabric or self.fabric == other.fabric)
            and self.imex_with == other.imex_with
        )

    def priority(self, job: TrainingJob) -> int:
        """The job's priority; that of an unknown class is the default one."""
        return self.priorities.get(job.spec.priority_class_name or "", self.default_priority)

    def may_preempt(self, job: TrainingJob) -> bool:
        """Whether its PriorityClass lets it end jobs of lower priority."""
        name = job.spec.priority_class_name or ""
        return (name if name in self.priorities else "") not in self.meek

    def pods_of(self, job: JobKey) -> tuple[Pod, ...]:
        """Pods owned by a TrainingJob of this name, of all attempts, by name; some may have another uid.

        The very same tuple as long as none of them changes.
        """
        return self._tables.under(PODS_OF, job)

    @property
    def pods_by_job(self) -> Mapping[JobKey, tuple[Pod, ...]]:
        """`pods_of` for every job with Pods, to walk all jobs."""
        found: Mapping[JobKey, tuple[Pod, ...]] = self._tables.filed.get(PODS_OF, EMPTY)
        return found

    def booking_of(self, job: JobKey) -> Booking | None:
        """The job's booking by its status; None without one. The same object as long as the job is."""
        booked = self._tables.all(BOOKINGS).get(job)
        return None if booked is None else booked.booking

    @property
    def awaiting(self) -> Mapping[JobKey, tuple[AwaitedAttempt, ...]]:
        """The jobs that hold GPUs for the moment when the Pods of others are gone, and those others. The same object as
        long as nothing in it changes."""
        return self._tables.all(AWAITING)

    def borrowers_of(self, owner: JobKey) -> tuple[JobKey, ...]:
        """Jobs that are booked on GPUs of its spares, by namespace and name."""
        held = self.booking_of(owner)
        nodes = () if held is None else dict.fromkeys(share.node for share in held.spares)
        return tuple(sorted({job for node in nodes for job in borrowers(owner, self._tables.under(BOOKED_ON, node))}))

    @property
    def usable_free_gpus(self) -> int:
        """How many GPUs are to give out on the nodes that take jobs, spare nodes included."""
        return sum(view.free_gpus for view in self.nodes.values() if view.exclusion is None)

    @property
    def queue_spares(self) -> Mapping[str, frozenset[str]]:
        """The spare nodes of each queue with some."""
        return self.forest.spares

    def booked_there(self, nodes: Iterable[str]) -> frozenset[JobKey]:
        """The jobs that are booked on some of these nodes, but for those that only have spares there."""
        under = self._tables.under
        return frozenset(share.job for node in nodes for share in under(BOOKED_ON, node) if not share.is_spare)

    def lenders_of(self, borrower: JobKey, node: str, gpus: Collection[int]) -> tuple[JobKey, ...]:
        """Jobs with spares to which these GPUs belong, by namespace and name: a job that has them has them lent."""
        return tuple(sorted(set(owners(borrower, gpus, self._tables.under(BOOKED_ON, node)))))

    def claims_of(self, job: JobKey) -> tuple[ResourceClaim, ...]:
        """Claims under names of this job's children, of all attempts and makers, by name; the same tuple as long as
        none changes."""
        return self._tables.under(CLAIMS_OF, job)

    def has_volumes_like(self, other: "Cluster") -> bool:
        """Whether `volumes_of` certainly returns the same for the same jobs."""
        return (
            self.volume_claims is other.volume_claims
            and self.volumes is other.volumes
            and self.storage_classes is other.storage_classes
        )

    def volumes_of(self, job: TrainingJob) -> Volumes:
        """The present state of a job's volumes; empty where the input has no claims, or the templates were dropped."""
        tables = self._tables
        is_told = tables.volumes_are_known and is_whole(job)
        return volumes_of(job.spec, job.key.namespace, tables) if is_told else NO_VOLUMES

    @property
    def volumes_are_known(self) -> bool:
        """Whether the input has claims."""
        return self._tables.volumes_are_known

    def volumes_stand(self, volumes: Volumes) -> bool:
        """Whether `volumes_of` certainly returns this again for the same job."""
        return volumes.stands(self._tables)

    def volume_awaited(self, pod: Pod, template: Mapping[str, Any]) -> Awaited | None:
        """The first claim of a Pod with this spec that waits for its volume to be made; None without one."""
        return awaited(template, pod.namespace, pod.name, self._tables)

    def with_nodes(self, views: Iterable[NodeView]) -> "Cluster":
        """The cluster as if these nodes were there, too: for what-if questions."""
        return self._with_views([(None, view) for view in views])

    @property
    def topologies(self) -> Mapping[str, ClusterTopology]:
        """All ClusterTopologies by name; `levels` and `fabric` follow from the one that counts."""
        return self._tables.all(TOPOLOGIES)

    def newest_heartbeat(self, until: datetime) -> datetime | None:
        """The newest heartbeat of any agent up to a moment: `now` for recorded objects."""
        return self._tables.beats.newest(until)

    def records(self) -> Iterator[NodeRecord]:
        """What is known against each node by which a run has ended, in no order. One that has no NodeTopology has
        none."""
        tables, reports = self._tables, self._tables.all(REPORTS)
        blamed: Mapping[str, tuple[RunEnd, ...]] = tables.filed.get(BLAMED_ON, EMPTY)
        for name in {**tables.all(RUN_ENDS), **blamed}:
            if (report := reports.get(name)) is not None:
                yield NodeRecord(report, blamed.get(name, ()))

    @property
    def forest(self) -> Forest:
        """Groups of nodes for placement; every event updates them."""
        grown = self._grown
        assert grown is not None  # noqa: S101 - __post_init__ sees to it, for the type checker
        return grown.forest

    def _with_views(self, pairs: _Pairs) -> "Cluster":
        """The cluster with the new view of each pair in place of the old one, for what-if questions."""
        nodes = Map(self.nodes).update({view.name: view for _, view in pairs if view is not None})
        grown = _Grown(self.levels, nodes, self.forest.after(pairs))
        return replace(self, nodes=nodes, _grown=grown, _is_supposed=True)

    def _with(self, tables: ObjectTables, levels: Levels, touched: Iterable[str], now: datetime | None) -> "Cluster":
        old = self._tables
        priorities, default_priority, meek = self.priorities, self.default_priority, self.meek
        if tables.all(PRIORITIES) is not old.all(PRIORITIES):
            classes = tables.all(PRIORITIES)
            priorities = Map({name: entry.value for name, entry in classes.items()})
            # Of several global defaults the lowest holds, as the Priority admission plugin has it.
            defaults = (each for each in classes.values() if each.global_default)
            default = min(defaults, key=attrgetter("value", "name"), default=None)
            default_priority = 0 if default is None else default.value
            meek = frozenset(each.name for each in classes.values() if not each.preempts)
            meek |= {""} if default is not None and not default.preempts else frozenset()
        fabric = self.fabric
        if tables.topology is not old.topology:
            given = tables.topology.spec.fabric if tables.topology else Fabric()
            fabric = fabric if given == fabric else given  # its status alone may be another
        nodes, pairs = self._views(tables, levels, touched, now)
        names = levels.names
        grown = self._grown
        if names != self.levels:
            grown = _Grown(names, nodes, Forest.of(names, nodes.values()))
        elif nodes is not self.nodes:
            grown = _Grown(names, nodes, self.forest.after(pairs))
        return Cluster(
            levels=names,
            fabric=fabric,
            nodes=nodes,
            jobs=tables.all(JOBS),
            invalid_jobs=tables.all(INVALID_JOBS),
            pods=tables.all(PODS),
            claims=tables.all(CLAIMS),
            priorities=priorities,
            default_priority=default_priority,
            meek=meek,
            imex_with=_imex_with(tables.all(DEVICE_CLASSES)),
            sidecar_image=self.sidecar_image,
            force_deletes=self.force_deletes,
            volume_claims=tables.all(VOLUME_CLAIMS),
            volumes=tables.all(VOLUMES),
            storage_classes=tables.all(STORAGE_CLASSES),
            now=now,
            _tables=tables,
            _grown=grown,
            _is_supposed=self._is_supposed,
            _withheld=self._withheld,
        )

    def _views(
        self, tables: ObjectTables, levels: Levels, touched: Iterable[str], now: datetime | None
    ) -> tuple[Mapping[str, NodeView], _Pairs]:
        """The views of all nodes, and the old and new view of each changed one."""
        nodes = self.nodes if isinstance(self.nodes, Map) else Map(self.nodes)
        pairs: _Pairs = []
        changed = nodes.mutate()
        for name in sorted(touched):
            facts = tables.facts(name, now)
            view: NodeView | None = None
            if facts is not None:
                domains = levels.domains(name, facts.place)
                view = node_view(facts, domains, nodes_are_known=tables.nodes_are_known)
                view = view.without(self._withheld[name]) if name in self._withheld else view
            before = nodes.get(name)
            if view == before:
                continue
            pairs.append((before, view))
            if view is None:
                del changed[name]
            else:
                changed[name] = view
        return (changed.finish(), pairs) if pairs else (self.nodes, pairs)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChanges:
    """What differs between two versions of a cluster."""

    before: Cluster
    now: Cluster
    nodes: frozenset[str]
    """Whose views are other objects, or gone."""
    tables: TableChanges[ObjectTables]


def _imex_with(classes: Mapping[str, DeviceClass]) -> frozenset[Binding]:
    """Where a DeviceClass stands for the device plugin's GPUs, the scheduler of Kubernetes 1.36 binds no Pod that asks
    the plugin for some and has a claim of another kind ("nil or empty request mappings")."""
    if IMEX_CHANNELS not in classes:
        return frozenset()
    is_twofold = any(found.resource == GPU_RESOURCE for found in classes.values())
    return frozenset({Binding.DRA}) if is_twofold else frozenset(Binding)


def build(
    objects: Iterable[ClusterObject],
    *,
    volumes_are_known: bool = True,
    sidecar_image: str = "",
    force_deletes: bool = False,
) -> Cluster:
    """The cluster of these objects; of two with one kind and name the later counts. `volumes_are_known` is whether they
    include every claim; otherwise claims are unknown."""
    tables = ObjectTables(volumes_are_known=volumes_are_known)
    return Cluster(sidecar_image=sidecar_image, force_deletes=force_deletes, _tables=tables).after(map(change, objects))
