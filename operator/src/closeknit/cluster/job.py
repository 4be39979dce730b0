"""What TrainingJobs hold: the booking in a job's status, and jobs that cannot be read."""

from dataclasses import dataclass

import msgspec
from pydantic import ValidationError

from closeknit.api.names import ConditionType, JobKey
from closeknit.api.objects import ObjectMeta, TrainingJob
from closeknit.api.trainingjob_status import Binding, PlacementStatus, TrainingJobStatus
from closeknit.cluster.meta import Metadata, WireStruct
from closeknit.cluster.report import first_fault

# A job in one of these states holds nothing by its booking; what its Pods still hold, they hold by themselves.
RELEASED = frozenset({ConditionType.SUCCEEDED, ConditionType.FAILED, ConditionType.SUSPENDED})


@dataclass(frozen=True, slots=True)
class InvalidJob:
    """A TrainingJob whose spec does not parse: it gets a refusal, and keeps what it had booked."""

    metadata: ObjectMeta
    error: str
    """What is wrong, with the field's name."""
    status: TrainingJobStatus
    is_status_read: bool = True
    """Whether `status` is what is stored; one that cannot be read is never written over."""

    @property
    def key(self) -> JobKey:
        """Namespace and name."""
        return JobKey(self.metadata.namespace or "default", self.metadata.name)


@dataclass(frozen=True, slots=True)
class Booked:
    """What a booking holds on one node."""

    node: str
    index: int
    """Position in the placement, which is the index of the worker Pod."""
    gpus: tuple[int, ...]
    binding: Binding
    rdma: bool
    """Whether its Pod requests the node's RDMA resource."""


@dataclass(frozen=True, slots=True)
class Booking:
    """What a job's status holds now."""

    uid: str
    attempt: int
    shares: tuple[Booked, ...]


def booking(job: TrainingJob | InvalidJob) -> Booking | None:
    """What the job holds by its status: the placement of an attempt that has not ended; None where it holds nothing."""
    status = job.status
    if status.placement is None or not status.placement.nodes:
        return None
    if any(condition.type in RELEASED and condition.status == "True" for condition in status.conditions):
        return None
    attempt = status.attempt or 1
    if any(ended.number == attempt for ended in status.attempts):
        return None
    return Booking(job.metadata.uid or "", attempt, _shares(status.placement))


def _shares(placement: PlacementStatus) -> tuple[Booked, ...]:
    shares = []
    rdma = False
    for index, assignment in enumerate(placement.nodes):
        if assignment.nics is not None:  # absent: as the node before
            rdma = bool(assignment.nics)
        shares.append(Booked(assignment.name, index, tuple(assignment.gpus), assignment.binding, rdma))
    return tuple(shares)


class _Head(WireStruct, frozen=True):
    metadata: Metadata


class _StatusOnly(WireStruct, frozen=True):
    status: msgspec.Raw = msgspec.Raw(b"{}")


def job_from_json(document: bytes) -> TrainingJob | InvalidJob:
    """The job of a TrainingJob's JSON. Only one without a name raises (msgspec.ValidationError)."""
    try:
        return TrainingJob.model_validate_json(document)
    except ValidationError as error:
        head = msgspec.json.decode(document, type=_Head).metadata
        status = bytes(msgspec.json.decode(document, type=_StatusOnly).status)
        read = _status(status)
        return InvalidJob(_metadata(head), first_fault(error), read or TrainingJobStatus(), read is not None)


def job_from_builtins(document: object) -> TrainingJob | InvalidJob:
    """The job of a TrainingJob as plain dicts and lists. Only one without a name raises."""
    return job_from_json(msgspec.json.encode(document))


def _metadata(head: Metadata) -> ObjectMeta:
    return ObjectMeta(
        name=head.name,
        namespace=head.namespace,
        uid=head.uid,
        resource_version=head.resource_version,
        generation=head.generation or 1,
        creation_timestamp=head.creation_timestamp,
        deletion_timestamp=head.deletion_timestamp,
    )


def _status(document: bytes) -> TrainingJobStatus | None:
    """The status, None where it cannot be read; the job's Pods then still hold what they hold."""
    try:
        return TrainingJobStatus.model_validate_json(document)
    except ValidationError:
        return None
