"""The objects behind a Cluster, filed by all keys in use. A version shares what did not change."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Self, TypeVar

from immutables import Map

from closeknit.api.names import DEFAULT_CLUSTER_TOPOLOGY, NIC_DRA_DRIVER
from closeknit.api.objects import ClusterTopology, TrainingJob
from closeknit.cluster.immutable.heartbeats import Heartbeats
from closeknit.cluster.immutable.interning import Examples
from closeknit.cluster.immutable.table import EMPTY, Index, Table
from closeknit.cluster.network.census import Census, LabelledLevels
from closeknit.cluster.network.levels import Place
from closeknit.cluster.node.holders import BookedShare
from closeknit.cluster.node.lent_spares import without_lent
from closeknit.cluster.node.other_pods import OtherPods
from closeknit.cluster.node.slice_pools import NO_POOLS, slice_pools
from closeknit.cluster.node.users import GpuUser, gpu_user, gpu_user_to_come
from closeknit.cluster.node.view import NicFacts, NodeFacts, place
from closeknit.cluster.objects.dra import DeviceTaintRule, tainted
from closeknit.cluster.objects.dranet import nic_pools
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.table_definitions import (
    ANY_POOL,
    BOOKED_ON,
    BOOKINGS,
    CLAIMS,
    CLAIMS_IN,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES_ON,
    INVALID_JOBS,
    JOBS,
    LIVE_PODS_ON,
    MADE_FOR,
    NIC_SLICES_ON,
    NICS_CLAIMED_IN,
    NODES,
    PODS,
    REPORTS,
    SILENCES,
    SLICES_ON,
    TOPOLOGIES,
)

K = TypeVar("K", bound=Any)
V = TypeVar("V")
F = TypeVar("F", bound=Any)
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class ObjectTables:
    """All objects by their tables and indexes, and the counts over them. Shared read-only by versions."""

    kept: Mapping[Table[Any, Any], Map[Any, Any]] = field(default_factory=dict)
    filed: Mapping[Index[Any, Any, Any, Any], Map[Any, tuple[Any, ...]]] = field(default_factory=dict)
    census: Census = field(default_factory=Census)
    beats: Heartbeats = field(default_factory=Heartbeats)
    examples: Examples = field(default_factory=Examples)
    lodgings: OtherPods = field(default_factory=OtherPods)
    volumes_are_known: bool = True
    """Whether the input has every claim of the cluster."""

    def all(self, table: Table[K, V]) -> Map[K, V]:
        """A table's entries; the same object as long as nothing in it has changed."""
        return self.kept.get(table, EMPTY)

    def under(self, index: Index[Any, Any, F, M], key: F) -> tuple[M, ...]:
        """An index's entries under one key, in order; the same object as long as none has changed."""
        return self.filed.get(index, EMPTY).get(key, ())

    @property
    def topology(self) -> ClusterTopology | None:
        """The ClusterTopology that counts."""
        return self.all(TOPOLOGIES).get(DEFAULT_CLUSTER_TOPOLOGY)

    @property
    def functions(self) -> frozenset[str]:
        """Resources of SR-IOV functions, as the ClusterTopology declares them."""
        topology = self.topology
        return frozenset(each.resource for each in topology.spec.fabric.sriov_networks) if topology else frozenset()

    @property
    def given_levels(self) -> LabelledLevels:
        """Levels that the ClusterTopology lists; none to find them by labels."""
        topology = self.topology
        return tuple((level.name, level.node_label) for level in topology.spec.levels) if topology else ()

    @property
    def nodes_are_known(self) -> bool:
        """Whether the input holds Nodes at all."""
        return bool(self.all(NODES))

    def names(self) -> Iterator[str]:
        """Names of all nodes, in no order."""
        nodes = self.all(NODES)
        yield from nodes
        yield from (name for name in self.all(REPORTS) if name not in nodes)

    def place(self, name: str) -> Place | None:
        """The inputs of the levels for one node; None for an unknown node."""
        node, report = self.all(NODES).get(name), self.all(REPORTS).get(name)
        return None if node is None and report is None else place(node, report)

    def places(self) -> Iterator[Place]:
        """The inputs of the levels for all nodes, without order."""
        return (place for name in self.names() if (place := self.place(name)) is not None)

    def facts(self, name: str, now: datetime | None) -> NodeFacts | None:
        """All facts about one node; None without a Node and a NodeTopology."""
        node, report = self.all(NODES).get(name), self.all(REPORTS).get(name)
        if node is None and report is None:
            return None
        slices = self.under(SLICES_ON, name)
        found = slice_pools(slices, self._taint_rules({part.pool for part in slices})) if slices else NO_POOLS
        claims = {
            claim.key: claim for pool, _ in {**found.uuids, **found.mig_uuids} for claim in self.under(CLAIMS_IN, pool)
        }
        return NodeFacts(
            name=name,
            node=node,
            report=report,
            pools=found,
            pods=self._pods(name),
            unclaimed=tuple(pod for pod in self.under(LIVE_PODS_ON, name) if self._is_unclaimed(pod)),
            lodged=self.lodgings.on(name),
            claimable=frozenset([found.resource for found in self.all(DEVICE_CLASSES).values() if found.resource]),
            functions=self.functions,
            claims=tuple(claims[key] for key in sorted(claims)),
            nics=self._nics(name),
            lived=self.silent_since(name, now),
            silence=self.all(SILENCES).get(name),
            bookings=tuple((share, self._worker(share)) for share in without_lent(self.under(BOOKED_ON, name))),
        )

    def _nics(self, name: str) -> NicFacts | None:
        slices = self.under(NIC_SLICES_ON, name)
        if not slices:
            return None
        rules = self._taint_rules({part.pool for part in slices})
        found = nic_pools(slices, lambda *device: tainted(rules, NIC_DRA_DRIVER, *device) is not None)
        claims = {claim.key: claim for pool, _ in found.devices for claim in self.under(NICS_CLAIMED_IN, pool)}
        classes = (each.name for each in self.all(DEVICE_CLASSES).values() if each.has_nics)
        return NicFacts(found, min(classes, default=None), tuple(claims[key] for key in sorted(claims)))

    def _taint_rules(self, pools: set[str]) -> tuple[DeviceTaintRule, ...]:
        """Those that may taint devices of these pools."""
        found = [rule for pool in (ANY_POOL, *sorted(pools)) for rule in self.under(DEVICE_TAINT_RULES_ON, pool)]
        return tuple(sorted(found, key=attrgetter("key", "name")))

    def at(self, now: datetime) -> Self:
        """The same with heartbeats of the future as seen at this moment."""
        beats = self.beats.at(now, self.heartbeat)
        return self if beats is self.beats else replace(self, beats=beats)

    def heartbeat(self, name: str) -> datetime | None:
        """The last heartbeat of a node's agent, by the agent's clock."""
        report = self.all(REPORTS).get(name)
        return report.heartbeat if report else None

    def is_stale(self, name: str, now: datetime | None) -> bool:
        """Whether the agent of a node has been silent too long."""
        return self.beats.is_stale(name, self.heartbeat(name), now)

    def silent_since(self, name: str, now: datetime | None) -> datetime | None:
        """The last heartbeat of an agent that has been silent too long; None for any other."""
        if now is None or not self.is_stale(name, now):
            return None
        return self.beats.sign_of_life(name, self.heartbeat(name), now)

    def _pods(self, name: str) -> tuple[Pod, ...]:
        """Live Pods on a node, and leftover ones made for it, by key."""
        bound = self.under(LIVE_PODS_ON, name)
        left = [pod for pod in self.under(MADE_FOR, name) if self._is_left(pod)]
        return tuple(sorted((*bound, *left), key=attrgetter("key"))) if left else bound

    def takers(self, name: str) -> tuple[GpuUser, ...]:
        """Users of a node's resources except Lodgers."""
        to_come = (share for share in without_lent(self.under(BOOKED_ON, name)) if self._worker(share) is None)
        return (*map(gpu_user, self._pods(name)), *map(gpu_user_to_come, to_come))

    def without_pods(self, name: str) -> tuple[BookedShare, ...]:
        """The shares that are booked on a node and have no bound Pod there."""
        return tuple(share for share in self.under(BOOKED_ON, name) if self._worker(share) is None)

    def _worker(self, share: BookedShare) -> Pod | None:
        """The bound Pod of a share; None without one yet."""
        pod = self.all(PODS).get(share.pod_key)
        return pod if pod is not None and pod.node and share.is_of(pod) else None

    def _is_unclaimed(self, pod: Pod) -> bool:
        """Whether a bound Pod was left by an ended attempt or by a job that is gone, and has GPUs by a claim that is
        not seen allocated: the scheduler allocates before it binds, so the stream of claims is late. Pods that only
        look like this are deleted, by us or by the garbage collector."""
        owner, key = pod.job_owner, pod.job
        if pod.name not in pod.claims or owner is None or key is None or pod.attempt is None:
            return False
        claim = self.all(CLAIMS).get(pod.key)
        if (claim is not None and claim.devices) or key in self.all(INVALID_JOBS):
            return False
        job = self.all(JOBS).get(key)
        return job is None or not owner.is_job(job.metadata.uid) or pod.attempt <= self._last_ended(job)

    def _is_left(self, pod: Pod) -> bool:
        """Whether a Pod that is not seen bound was left by an ended attempt of an existing job, by its uid, and may be
        bound any moment, or the stream is late. The scheduler binds no Pod that is being deleted. Pods that only look
        like those of an unreadable or deleted job would never be deleted, so they do not count."""
        owner, key = pod.job_owner, pod.job
        if owner is None or key is None or pod.attempt is None or pod.deletion_timestamp is not None:
            return False
        job = self.all(JOBS).get(key)
        if job is None or not owner.is_job(job.metadata.uid) or job.metadata.deletion_timestamp is not None:
            return False
        return pod.attempt <= self._last_ended(job)

    def _last_ended(self, job: TrainingJob) -> int:
        """The last of its attempts that has ended."""
        booked = self.all(BOOKINGS).get(job.key)
        return (job.status.attempt or 1) if booked is None else booked.booking.attempt - 1
