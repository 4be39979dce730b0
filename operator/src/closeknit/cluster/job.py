"""TrainingJobs as they are read, and those that cannot be."""

from dataclasses import dataclass

import msgspec
from pydantic import ValidationError

from closeknit.api.names import JobKey
from closeknit.api.nesting import MAX_DEPTH, is_deeper, shallow
from closeknit.api.objects import ObjectMeta, TrainingJob
from closeknit.api.trainingjob import MAX_TEMPLATE_BYTES
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


class _Template(WireStruct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _Spec(WireStruct, frozen=True):
    template: _Template = _Template()


class _SpecOnly(WireStruct, frozen=True):
    spec: _Spec = _Spec()


_decode_spec = msgspec.json.Decoder(_SpecOnly).decode


def job_from_json(document: bytes) -> TrainingJob | InvalidJob:
    """The job of a TrainingJob's JSON. Raises ValueError for one that is no JSON, or has no metadata to know it by."""
    if (size := _template_bytes(document)) > MAX_TEMPLATE_BYTES:
        # Refused before it is read: 1.5 MB of lists in lists keep the event loop for most of a second, at each write.
        return _invalid(
            document,
            f"spec.template.spec has {size} bytes as JSON, more than {MAX_TEMPLATE_BYTES}; "
            "move what is large into a ConfigMap",
        )
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


def _template_bytes(document: bytes) -> int:
    """How large the template's spec is at least; 0 where that is no matter, or cannot be read.

    An API server writes `<`, `>` and `&` as six bytes each, and whoever judges a template (launch) as one.
    """
    if len(document) <= MAX_TEMPLATE_BYTES:
        return 0
    try:
        spec = bytes(_decode_spec(document).spec.template.spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return len(spec) - 5 * spec.count(b"\\u00")


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
