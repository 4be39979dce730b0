"""A job that gets GPUs: the booking is stored, and then its children are made."""

from collections.abc import Sequence

from closeknit.api.names import INDEX_LABEL, EventAction, EventReason, service_name
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import PlacementStatus, TrainingJobStatus
from closeknit.cluster.booking import Booking, Share, encoded, names
from closeknit.launch.children import children
from closeknit.launch.environment import environment
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.pod import pod, pods
from closeknit.lifecycle import statuses
from closeknit.lifecycle.gangs import Lost, gang
from closeknit.lifecycle.plan import Action, Create, Delete, Plan
from closeknit.lifecycle.subject import Subject
from closeknit.placement.placement import Placement


def assumed(job: TrainingJob, placement: Placement) -> TrainingJob:
    """The job as the decisions about others are to see it: it holds this already."""
    status = TrainingJobStatus(attempt=job.status.attempt or 1, placement=_placement_status(placement))
    return job.model_copy(update={"status": status})


def book(subject: Subject, placement: Placement) -> Plan:
    """The booking of the placement, and all that the attempt has."""
    job, number = subject.job, subject.attempt
    booked = _placement_status(placement)
    booking = Booking(job.metadata.uid or "", number, _shares(placement))
    ipc_lock = subject.asks_for_ipc_lock
    made = gang(job, booking, subject.cluster, ipc_lock=ipc_lock)
    if isinstance(made, Lost):  # placement chose from this very cluster
        raise RuntimeError(made.message)  # noqa: TRY004 - no matter of types
    status = statuses.booked(
        job,
        subject.now,
        booked,
        attempt=number,
        epoch=subject.epoch,
        skipped=environment(made, 0).skipped,
        ipc_lock_refused=made.uses_rdma and not ipc_lock,
    )
    return subject.plan(
        status,
        probes=_probes(subject, made),
        actions=(*create_others(made), *create_pods(made, range(len(made.members)))),
        notice=subject.notice(EventReason.PLACED, _told(placement, booked), action=EventAction.PLACE),
        adds_ipc_lock=made.uses_rdma and ipc_lock,
    )


def create_pods(gang: Gang, indexes: Sequence[int]) -> tuple[Create, ...]:
    """The Pods of these node ranks."""
    return tuple(Create(manifest) for manifest in pods(gang, indexes))


def create_others(gang: Gang) -> tuple[Action, ...]:
    """What the attempt has beside its Pods, its Service first; the Service of the attempt before goes."""
    before = service_name(gang.job.metadata.name, gang.attempt - 1)
    made = tuple(Create(manifest) for manifest in children(gang))
    return (*made, Delete("Service", before)) if gang.attempt > 1 else made


def _shares(placement: Placement) -> tuple[Share, ...]:
    return tuple(
        Share(
            node=share.node,
            gpus=share.gpus,
            first_rank=share.first_rank,
            binding=share.binding,
            nics=share.nics,
            rdma_resource=share.rdma_resource,
            topology_generation=share.topology_generation,
        )
        for share in placement.shares
    )


def _placement_status(placement: Placement) -> PlacementStatus:
    return PlacementStatus(
        node_count=len(placement.shares),
        nodes=encoded(_shares(placement)),
        levels=dict(placement.levels) or None,
        predicted_bus_bandwidth_gb_s=_rounded(placement.predicted_bus_bandwidth_gb_s),
        ideal_bus_bandwidth_gb_s=_rounded(placement.ideal_bus_bandwidth_gb_s),
        limited_by=placement.limited_by or None,
    )


def _rounded(bandwidth_gb_s: float | None) -> float | None:
    """One decimal, for a printer column formats nothing."""
    return None if bandwidth_gb_s is None else round(bandwidth_gb_s, 1)


def _probes(subject: Subject, gang: Gang) -> tuple[Manifest, ...]:
    """What is asked before the booking: one Pod before the first, and whatever was refused the last time."""
    probes = [pod(gang, 0)] if not subject.job.status.attempts else []
    rejection = subject.answers.rejection
    if rejection is not None:
        again = _as_now(rejection.manifest, gang)
        if _name(again) not in [_name(probe) for probe in probes]:
            probes.append(again)
    return tuple(probes)


def _as_now(refused: Manifest, gang: Gang) -> Manifest:
    """What was refused as it would be made now: the priority class, or what a policy admits, may have changed."""
    if refused["kind"] != "Pod":
        return refused
    index = int(refused["metadata"]["labels"][INDEX_LABEL])
    return pod(gang, index if index < len(gang.members) else 0)


def _name(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _told(placement: Placement, booked: PlacementStatus) -> str:
    gpus = sum(len(share.gpus) for share in placement.shares)
    bandwidth = booked.predicted_bus_bandwidth_gb_s
    predicted = "" if bandwidth is None else f", {bandwidth:g} GB/s predicted"
    return f"{gpus} GPUs on {names([share.node for share in placement.shares])}{predicted}"
