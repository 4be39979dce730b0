"""The shares of a gang that stay where they are when it loses others, and which of them are lost."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import Holder, HolderKind
from closeknit.lifecycle.attempt.avoided_nodes import AvoidedNodes, avoided_nodes
from closeknit.lifecycle.attempt.launched_gang import uuids
from closeknit.placement.candidates.node_filter import admits
from closeknit.placement.replacement_nodes import not_replaced
from closeknit.placement.values.request import NOBODY, request


def fitness(
    job: TrainingJob, cluster: Cluster, now: datetime, away: AvoidedNodes | None = None
) -> Callable[[BookingShare], bool]:
    """Whether the GPUs of a share have no other holder, and their node is fit for a new Pod of the job. `away` is what
    it avoids, where that is known."""
    asked = request(job.key, job.spec, cluster.volumes_of(job).required)
    ours = {None, Holder(HolderKind.JOB, job.key.namespace, job.key.name)}
    avoided = avoided_nodes(job, cluster, now) if away is None else away

    def is_fit(share: BookingShare) -> bool:
        view = cluster.nodes.get(share.node)
        if view is None or view.exclusion is not None or share.node in avoided.nodes or not admits(view, asked):
            return False
        if not avoided.devices.get(share.node, frozenset()).isdisjoint(uuids(view, share) or ()):
            return False
        if share.mig_device:
            has = next((device for device in view.mig if device.uuid == share.mig_device), None)
            return has is not None and has.fault is None and has.holder in ours
        return all(index in view.usable and view.holders.get(index) in ours for index in share.gpus)

    return is_fit


def marked(
    job: TrainingJob,
    shares: Sequence[BookingShare],
    cluster: Cluster,
    now: datetime,
    failed: frozenset[str] = frozenset(),
) -> tuple[BookingShare, ...]:
    """The shares for the next attempt: lost are those that were, those on `failed` nodes, and those that are no longer
    fit. Servers go where the worker of their node goes. The same objects where nothing is new."""
    is_fit = fitness(job, cluster, now)
    lost = {
        share.node
        for share in shares
        if share.server is None
        and (share.lost or share.node in failed or not is_fit(share) or _has_changed(share, cluster))
    }
    return tuple(
        share if share.lost == (share.node in lost) else replace(share, lost=share.node in lost) for share in shares
    )


def _has_changed(share: BookingShare, cluster: Cluster) -> bool:
    """Whether the booked indexes no longer hold."""
    view = cluster.nodes.get(share.node)
    return view is None or uuids(view, share) is None


def kept(
    job: TrainingJob,
    shares: Sequence[BookingShare],
    cluster: Cluster,
    now: datetime,
    failed: frozenset[str] = frozenset(),
) -> tuple[BookingShare, ...] | None:
    """The shares that the next attempt holds at once, with those marked that are lost; None where none is lost, or none
    is left and no spare, of its own or of its queue."""
    fresh = [replace(share, actual=None if share.server is None else share.actual, succeeded=False) for share in shares]
    found = marked(job, fresh, cluster, now, failed)
    placement = job.status.placement
    has_spares = placement is not None and bool(placement.spares or job.spec.queue in cluster.queue_spares)
    is_left = has_spares or not all(share.lost for share in found if share.server is None)
    return found if is_left and any(share.lost for share in found) else None


def placed_as_a_whole(job: TrainingJob, shares: Sequence[BookingShare], cluster: Cluster) -> str:
    """Why the gang gets no other nodes in place of its lost ones alone; empty where it does."""
    return not_replaced(cluster, request(NOBODY, job.spec, cluster.volumes_of(job).required), shares) or ""
