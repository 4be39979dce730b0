"""TrainingJobs as they are read, and those that cannot be."""

from dataclasses import dataclass

import msgspec
from pydantic import ValidationError

from closeknit.api.names import JobKey
from closeknit.api.nesting import MAX_DEPTH, is_deeper, shallow
from closeknit.api.objects import ObjectMeta, TrainingJob
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.meta import Metadata, WireStruct
from closeknit.cluster.report import first_fault


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


class _Head(WireStruct, frozen=True):
    metadata: Metadata


class _StatusOnly(WireStruct, frozen=True):
    status: msgspec.Raw = msgspec.Raw(b"{}")


def job_from_json(document: bytes) -> TrainingJob | InvalidJob:
    """The job of a TrainingJob's JSON. Raises ValueError for one that is no JSON, or has no metadata to know it by."""
    if is_deeper(document):
        return _invalid(shallow(document), f"it is nested deeper than {MAX_DEPTH} levels")
    try:
        return TrainingJob.model_validate_json(document)
    except ValidationError as error:
        return _invalid(document, first_fault(error))


def job_from_builtins(document: object) -> TrainingJob | InvalidJob:
    """The job of a TrainingJob as plain dicts and lists of an answer. Raises as `job_from_json`."""
    return job_from_json(msgspec.json.encode(document))


def _invalid(document: bytes, error: str) -> InvalidJob:
    head = msgspec.json.decode(document, type=_Head).metadata
    status = bytes(msgspec.json.decode(document, type=_StatusOnly).status)
    read = _status(status)
    return InvalidJob(_metadata(head), error, read or TrainingJobStatus(), read is not None)


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
