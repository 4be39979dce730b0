"""TrainingJobs as they are read, and unreadable ones.

Labels and annotations of a job are not kept: no decision reads them, and they may have 256 KiB. Its templates
are packed as they come, and one that comes again, with another job or with the job's next status, is the very same.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from pydantic import ValidationError

from closeknit.api.names import PROVISIONING_CLASS_ANNOTATION, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, JobKey
from closeknit.api.objects import ObjectMeta, TrainingJob
from closeknit.api.text.nesting import MAX_DEPTH, is_deeper, shallow
from closeknit.api.trainingjob import MAX_TEMPLATE_BYTES, PackedTemplate, PodTemplate
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.booking.readable_parts import readable_parts
from closeknit.cluster.objects.agent_report import first_fault
from closeknit.cluster.objects.meta import WireStruct


def weight_bytes(job: TrainingJob) -> int:
    """Memory of a job's templates, or what they would take if they were not dropped."""
    servers = job.spec.parameter_servers
    return job.spec.template.weight_bytes + (servers.template.weight_bytes if servers is not None else 0)


def is_whole(job: TrainingJob) -> bool:
    """Whether its templates are in memory, and not only at the API server."""
    return not job.spec.template.is_dropped


def without_templates(job: TrainingJob) -> TrainingJob:
    """The job without its templates, which stay at the API server."""
    templates = {_TEMPLATE: job.spec.template.dropped()}
    if job.spec.parameter_servers is not None:
        templates[f"{_SERVERS}.{_TEMPLATE}"] = job.spec.parameter_servers.template.dropped()
    return _with(job, templates)


@dataclass(frozen=True, slots=True)
class InvalidJob:
    """A TrainingJob whose spec does not parse: it gets a refusal, and keeps its booking."""

    metadata: ObjectMeta
    error: str
    """The fault, with the field's name."""
    status: TrainingJobStatus
    """The stored one, or what can be read of it."""
    is_status_read: bool = True
    """Whether it is the stored one; an unreadable one is never overwritten."""

    @property
    def key(self) -> JobKey:
        """Namespace and name."""
        return JobKey(self.metadata.namespace or "default", self.metadata.name)


class _Labels(msgspec.Struct, frozen=True, omit_defaults=True):
    """Those that decisions read; people put many more on their jobs."""

    queue: str | None = msgspec.field(default=None, name=QUEUE_LABEL)
    queue_priority: str | None = msgspec.field(default=None, name=QUEUE_PRIORITY_LABEL)


class _Annotations(msgspec.Struct, frozen=True, omit_defaults=True):
    """Likewise."""

    provisioning_class: str | None = msgspec.field(default=None, name=PROVISIONING_CLASS_ANNOTATION)


class _Metadata(WireStruct, frozen=True, omit_defaults=True):
    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: _Labels | None = None
    annotations: _Annotations | None = None


class _Head(WireStruct, frozen=True):
    metadata: _Metadata


class _Document(WireStruct, frozen=True):
    metadata: _Metadata
    spec: dict[str, msgspec.Raw]
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _StatusOnly(WireStruct, frozen=True):
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Template(WireStruct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _Spec(WireStruct, frozen=True):
    template: _Template = _Template()


class _SpecOnly(WireStruct, frozen=True):
    spec: _Spec = _Spec()


_decode_spec = msgspec.json.Decoder(_SpecOnly).decode
_decode_parts = msgspec.json.Decoder(_Document).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_TEMPLATE, _SERVERS = "template", "parameterServers"
_PLACEHOLDER = msgspec.Raw(b'{"spec":{}}')
_read_before: WeakValueDictionary[bytes, PackedTemplate] = WeakValueDictionary()
"""By the hash of the text: a few hundred bytes for each template in use."""
_packed_before: WeakValueDictionary[bytes, PackedTemplate] = WeakValueDictionary()
"""By content, in any spelling."""


def job_from_json(document: bytes) -> TrainingJob | InvalidJob:
    """The job of a TrainingJob's JSON. Raises ValueError for invalid JSON, or without metadata to identify it."""
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
        return _job(document)
    except _UnreadableError as error:
        return _invalid(document, str(error))
    except ValidationError as error:
        return _invalid(document, first_fault(error))


def job_from_builtins(document: object) -> TrainingJob | InvalidJob:
    """The job of a TrainingJob as plain dicts and lists of an answer. Raises as `job_from_json`."""
    return job_from_json(msgspec.json.encode(document))


class _UnreadableError(Exception):
    """The fault of a template."""


def _job(document: bytes) -> TrainingJob:
    """The job, of whose templates no more is made than bytes. Raises ValidationError or _UnreadableError."""
    try:
        parts = _decode_parts(document)
        spec, servers = dict(parts.spec), None
        if (found := spec.get(_SERVERS)) is not None and bytes(found) != b"null":
            servers = _decode_members(found)
    except _UNREADABLE:
        return TrainingJob.model_validate_json(document)
    templates: dict[str, msgspec.Raw] = {}
    for holder, path in ((spec, _TEMPLATE), (servers, f"{_SERVERS}.{_TEMPLATE}")):
        if holder is not None and _TEMPLATE in holder:
            templates[path], holder[_TEMPLATE] = holder[_TEMPLATE], _PLACEHOLDER
    if servers is not None:
        spec[_SERVERS] = msgspec.Raw(_encode(servers))
    job = TrainingJob.model_validate_json(_encode({"metadata": parts.metadata, "spec": spec, "status": parts.status}))
    return _with(job, {path: _template(bytes(template), f"spec.{path}") for path, template in templates.items()})


def _with(job: TrainingJob, templates: dict[str, PackedTemplate]) -> TrainingJob:
    changes: dict[str, Any] = {_TEMPLATE: templates[_TEMPLATE]}
    servers = templates.get(f"{_SERVERS}.{_TEMPLATE}")
    if servers is not None and job.spec.parameter_servers is not None:
        changes["parameter_servers"] = job.spec.parameter_servers.model_copy(update={_TEMPLATE: servers})
    return job.model_copy(update={"spec": job.spec.model_copy(update=changes)})


def _template(document: bytes, path: str) -> PackedTemplate:
    """The template of its JSON, the same for the same. Raises _UnreadableError."""
    key = sha256(document).digest()
    known = _read_before.get(key)
    if known is None:
        try:
            read = PackedTemplate.of(_pod_template(document))
        except ValidationError as error:
            raise _UnreadableError(first_fault(error, path)) from None
        known = _read_before[key] = _packed_before.setdefault(read.packed, read)
    return known


def _pod_template(document: bytes) -> PodTemplate:
    """The template, whose spec may be any object: to have a model look at each of its members takes six times as long.
    Raises ValidationError."""
    try:
        parts = _decode_members(document)
        spec = _decode_object(parts.pop("spec"))
        rest = PodTemplate.model_validate_json(_encode({**parts, "spec": {}}))
    except (*_UNREADABLE, KeyError):
        return PodTemplate.model_validate_json(document)
    return rest.model_copy(update={"spec": spec})


def _invalid(document: bytes, error: str) -> InvalidJob:
    head = msgspec.json.decode(document, type=_Head).metadata
    status = bytes(msgspec.json.decode(document, type=_StatusOnly).status)
    read = _status(status)
    parts = TrainingJobStatus() if read is not None else readable_parts(status) or TrainingJobStatus()
    return InvalidJob(_metadata(head), error, read or parts, read is not None)


def _template_bytes(document: bytes) -> int:
    """The least size of the template's spec; 0 where it does not matter, or cannot be read.

    An API server writes `<`, `>` and `&` as six bytes each, and the check of a template (launch) as one.
    """
    if len(document) <= MAX_TEMPLATE_BYTES:
        return 0
    try:
        spec = bytes(_decode_spec(document).spec.template.spec)
    except _UNREADABLE:
        return 0
    return len(spec) - 5 * spec.count(b"\\u00")


def _metadata(head: _Metadata) -> ObjectMeta:
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
    """The status, None where it cannot be read."""
    try:
        return TrainingJobStatus.model_validate_json(document)
    except ValidationError:
        return None
