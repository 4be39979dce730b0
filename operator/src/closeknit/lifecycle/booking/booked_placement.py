"""A placement as a job has it booked: the shares of its nodes, and what the status says of them."""

from collections.abc import Sequence

from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import MAX_WARNINGS, EnvironmentStatus, PlacementStatus, TrainingJobStatus
from closeknit.cluster.booking.booking import (
    AwaitedAttempt,
    Booking,
    BookingShare,
    encoded,
    encoded_awaits,
    encoded_spares,
    gpu_digest,
    server_share,
)
from closeknit.cluster.booking.parameter_servers import dealt
from closeknit.launch.environment.environment import Environment
from closeknit.lifecycle.status.conditions import stated
from closeknit.placement.values.placement import Placement, Share


def assumed(job: TrainingJob, placement: Placement, awaited: Sequence[AwaitedAttempt] = ()) -> TrainingJob:
    """The job for the decisions about others: it holds this already, though others may have it until they are gone."""
    placed_at = placement_status(job, placement).model_copy(update={"awaits": encoded_awaits(awaited)})
    status = TrainingJobStatus(attempt=job.status.attempt or 1, placement=placed_at, cost=job.status.cost)
    return job.model_copy(update={"status": status})


def booking_of(job: TrainingJob, placement: Placement, number: int) -> Booking:
    """What the attempt of this number holds there."""
    return Booking(job.metadata.uid or "", number, shares_of(job, placement))


def shares_of(job: TrainingJob, placement: Placement) -> tuple[BookingShare, ...]:
    """The shares of the ranks in their order, then those of the parameter servers."""
    servers, nodes = servers_of(job), [share.node for share in placement.shares]
    served = dealt(servers, len(nodes)) if servers else ()
    return tuple(map(booked_share, placement.shares)) + tuple(
        server_share(nodes[rank], index) for index, rank in enumerate(served)
    )


def servers_of(job: TrainingJob) -> int:
    """The number of its parameter servers."""
    return job.spec.parameter_servers.replicas if job.spec.parameter_servers is not None else 0


def booked_share(share: Share) -> BookingShare:
    """A share of a placement as it is booked."""
    return BookingShare(
        node=share.node,
        gpus=share.gpus,
        first_rank=share.first_rank,
        binding=share.binding,
        nics=share.nics,
        rdma_resource=share.rdma_resource,
        topology_generation=share.topology_generation,
        gpu_digest="" if share.mig_device else gpu_digest(share.uuids),
        mig_device=share.mig_device,
    )


def placement_status(job: TrainingJob, placement: Placement) -> PlacementStatus:
    """The placement for the status of the job, whose attempt begins with it."""
    told = encoded(shares_of(job, placement))
    gpus = sum(len(share.gpus) for share in placement.shares)
    return PlacementStatus(
        node_count=len(placement.shares),
        gpus=gpus if gpus < job.spec.gpus else None,
        nodes=told.nodes,
        packed=told.packed,
        parameter_servers=told.parameter_servers,
        spares=encoded_spares(tuple(map(booked_share, placement.spares))),
        levels=dict(placement.levels) or None,
        predicted_bus_bandwidth_gb_s=_rounded(placement.predicted_bus_bandwidth_gb_s),
        ideal_bus_bandwidth_gb_s=_rounded(placement.ideal_bus_bandwidth_gb_s),
        limited_by=stated(placement.limited_by) or None,
        ended_at_budget=placement.ended_at_budget or None,
    )


def _rounded(bandwidth_gb_s: float | None) -> float | None:
    """One decimal, for a printer column formats nothing."""
    return None if bandwidth_gb_s is None else round(bandwidth_gb_s, 1)


def environment_status(found: Environment) -> EnvironmentStatus | None:
    """The effect of the user's settings, and the version of NCCL by which it is told; None without any."""
    warnings, version = [str(each) for each in found.warnings], found.gang.nccl_version
    if len(warnings) > MAX_WARNINGS:
        warnings[MAX_WARNINGS - 1 :] = [f"and {len(warnings) - MAX_WARNINGS + 1} more"]
    if not (found.skipped or warnings or version):
        return None
    return EnvironmentStatus(
        skipped=list(found.skipped),
        warnings=[stated(each) for each in warnings],
        nccl_version=None if version is None else str(version),
    )
