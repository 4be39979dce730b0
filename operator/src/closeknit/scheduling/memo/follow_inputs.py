"""A followed job without a write, with the inputs of that result, so that it is not followed again in vain."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.job_volumes import NO_VOLUMES
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.store.difference import difference
from closeknit.lifecycle.health.slow_path import may_detour
from closeknit.lifecycle.verdict import Keep
from closeknit.scheduling.queue.entries import QueueEntry


@dataclass(frozen=True, slots=True, eq=False)
class SceneChanges:
    """What besides the jobs themselves has changed since the decision before: compared once, for thousands of jobs."""

    cluster: Cluster
    before: Cluster | None
    """The cluster of the decision before, with the same joining the nodes; None without one."""
    moved: frozenset[str]
    """The nodes with another view; none where there is nothing to compare with."""
    are_claims_same: bool
    are_volumes_same: bool
    are_reports_same: bool
    """Of the GPUs that Pods have got."""

    @classmethod
    def of(cls, cluster: Cluster, before: Cluster | None) -> "SceneChanges":
        """Of this cluster; `before` is that of the decision before."""
        if before is None:
            return cls(cluster, None, frozenset(), False, False, False)
        changed = difference(before.nodes, cluster.nodes)
        return cls(
            cluster,
            before,
            frozenset([*changed.stored, *changed.gone]),
            are_claims_same=cluster.claims is before.claims,
            are_volumes_same=cluster.has_volumes_like(before),
            are_reports_same=cluster.devices.is_same(before.devices),
        )

    @property
    def are_none(self) -> bool:
        """Whether all of this is as it was."""
        is_same = self.are_claims_same and self.are_volumes_same and self.are_reports_same
        return self.before is not None and is_same and not self.moved


@dataclass(frozen=True, slots=True, eq=False)
class FollowInputs:
    """The inputs that `follow` read for one job besides its QueueEntry, which stands for job, Pods, answers and
    verdict."""

    claims: tuple[ResourceClaim, ...] = ()
    nodes: tuple[str, ...] = ()
    """The booked nodes, or those of Pods that are left of a job that waits."""
    views: tuple[NodeView | None, ...] = ()
    """Of these nodes."""
    is_unverified: bool = False
    """Whether claims and kubelets may report news of its Pods' GPUs."""
    is_watched: bool = False
    """Whether the paths of its data may be news."""
    wake_at: datetime | None = None
    """When to follow it again though nothing has changed."""
    is_quiet: bool = False
    """Whether it certainly stands while no claim, no node and no report of GPUs has changed."""
    since: datetime | None = None
    """For a waiting job: since when its message is the same, written or not."""

    def stands(self, entry: QueueEntry, changes: SceneChanges, now: datetime) -> bool:
        """Whether following the job now would read the same as in the decision before."""
        if self.wake_at is not None and self.wake_at <= now:
            return False
        cluster, before = changes.cluster, changes.before
        if before is None or not changes.moved.isdisjoint(self.nodes):
            nodes = cluster.nodes
            if any(nodes.get(name) is not view for name, view in zip(self.nodes, self.views, strict=True)):
                return False
        if not isinstance(entry.verdict, Keep):
            return True
        if not changes.are_claims_same and cluster.claims_of(entry.key) != self.claims:
            return False
        if not changes.are_volumes_same and _waits_for_volumes(entry):
            return False
        if not (self.is_unverified or self.is_watched):
            return True
        if before is None:
            return False
        if changes.are_reports_same:
            return True
        if self.is_unverified and _told(entry, cluster) != _told(entry, before):
            return False
        return not self.is_watched or all(
            cluster.devices.reports_like(before.devices, share.node) for share in entry.verdict.booking.shares
        )


def _nodes(entry: QueueEntry) -> Iterator[str]:
    """Names of the nodes that matter to it."""
    if isinstance(entry.verdict, Keep):
        return (share.node for share in entry.verdict.booking.shares)
    return (pod.node for pod in entry.pods)


def _waits_for_volumes(entry: QueueEntry) -> bool:
    """Whether claims may yet be bound for its Pods."""
    return entry.volumes is not NO_VOLUMES and any(not pod.node for pod in entry.pods)


def unchanged(
    entry: QueueEntry, cluster: Cluster, wake_at: datetime | None, since: datetime | None = None
) -> FollowInputs:
    """The job's inputs now."""
    nodes = tuple(_nodes(entry))
    views = tuple(map(cluster.nodes.get, nodes))
    if not isinstance(entry.verdict, Keep):
        return FollowInputs(nodes=nodes, views=views, wake_at=wake_at, is_quiet=wake_at is None, since=since)
    shares = entry.verdict.booking.shares
    is_unverified = bool(entry.pods) and not all(share.is_verified for share in shares)
    is_watched = bool(entry.pods) and may_detour(entry.job.spec, shares)
    return FollowInputs(
        cluster.claims_of(entry.key), nodes, views, is_unverified, is_watched, wake_at, is_quiet=wake_at is None
    )


def _told(entry: QueueEntry, cluster: Cluster) -> tuple[tuple[str | None, ...] | None, ...]:
    """What claims and kubelets report of the Pods' GPUs."""
    claims = {claim.key: claim for claim in cluster.claims_of(entry.key)}
    found: list[tuple[str | None, ...] | None] = []
    for pod in entry.pods:
        claim = claims.get(pod.key)
        found.append(cluster.devices.reported(pod) if claim is None else cluster.devices.claimed(claim))
    return tuple(found)
