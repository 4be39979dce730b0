"""Where a job that runs would go on with as many GPUs as it has."""

from dataclasses import replace

from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import PlacementStatus
from closeknit.cluster.booking.booking import Booking
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.attempt.own_pods import taken
from closeknit.lifecycle.booking.cannot_start import too_large, too_many
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import NOBODY, request
from closeknit.scheduling.policy.admit import chosen
from closeknit.scheduling.policy.policy_context import Walk


def elsewhere(job: TrainingJob, held: Booking, cluster: Cluster, walk: Walk) -> Placement | None:
    """Its placement in a cluster in which it holds nothing; None without one that is as fast, spans no more domains,
    delays no job that room is kept for, and could be made there."""
    stored = job.status.placement
    away, volumes = avoided_nodes(job, cluster, walk.now), cluster.volumes_of(job)
    there = cluster.without(away.devices)
    asked = replace(request(NOBODY, job.spec, volumes.required), gpus=held.gpus, avoided=away.nodes)
    found = walk.questions.placed(asked, there)
    if found is None or stored is None:
        return None
    best = chosen(asked, found, volumes.choices, there, walk)
    if not is_as_good(best, stored) or not walk.reserving.makes_room_for(job, best):
        return None
    if taken(job, held.attempt + 1, len(best.shares), cluster) is not None:
        return None
    return best if too_many(job, best, volumes) is None and too_large(job, best, there) is None else None


def is_as_good(found: Placement, had: PlacementStatus) -> bool:
    """Whether a placement is as fast as the one before, and spans no more domains."""
    before, after = had.predicted_bus_bandwidth_gb_s, found.predicted_bus_bandwidth_gb_s
    if before is not None and (after is None or round(after, 1) < before):
        return False
    levels = had.levels or {}
    return all(spans <= levels.get(level, spans) for level, spans in found.levels)
