"""Manifests as the objects that decisions are made from; what one object alone makes wrong is refused here."""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
from pydantic import ValidationError

from closeknit.api.names import API_VERSION, CLUSTER_TOPOLOGY, GROUP, NODE_TOPOLOGY, TRAINING_JOB
from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.objects import ClusterTopology, NodeTopology, TrainingJob
from closeknit.api.trainingjob import JOB_NAME_MAX_LENGTH, JOB_NAME_PATTERN
from closeknit.api.wire import FieldError, Wire
from closeknit.cli.bad_input import BadInput
from closeknit.cli.manifest import Manifest, Step, manifests
from closeknit.cluster.kinds import ClusterObject, from_document
from closeknit.launch.template import check_template
from closeknit.machine.graph import InvalidTopology, machine

_OURS: dict[str, type[Wire]] = {
    TRAINING_JOB: TrainingJob,
    NODE_TOPOLOGY: NodeTopology,
    CLUSTER_TOPOLOGY: ClusterTopology,
}
_TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")


def cluster_objects(file: Path) -> list[ClusterObject]:
    """The objects of a cluster's file, other kinds left out. Raises BadInput."""
    found = (_object(manifest) for manifest in manifests(file))
    return [each for each in found if each is not None]


def training_job(file: Path) -> TrainingJob:
    """The one TrainingJob of a file. Raises BadInput."""
    jobs = [manifest for manifest in manifests(file) if manifest.kind == TRAINING_JOB]
    if len(jobs) != 1:
        raise BadInput(file, None, "", f"expected one TrainingJob, found {len(jobs)}")
    _check_ours(jobs[0])
    job = TrainingJob.parse(jobs[0].body)
    if words := check_template(job):
        path = re.match(r"spec\.[\w.\[\]-]*[\w\]]", words)
        raise jobs[0].bad(_steps(path[0]) if path else ("spec", "template"), words)
    return job


def _object(manifest: Manifest) -> ClusterObject | None:
    _check_ours(manifest)
    try:
        return from_document(manifest.body)
    except msgspec.ValidationError as error:
        words, _, path = str(error).partition(" - at `$")
        raise manifest.bad(_steps(path.rstrip("`")), words) from None
    except ValidationError as error:
        raise _refusal(manifest, error, ()) from None


def _check_ours(manifest: Manifest) -> None:
    """Refuses what an API server with our CRDs would refuse, and a topology that contradicts itself."""
    group = str(manifest.body["apiVersion"]).partition("/")[0]
    model = _OURS.get(manifest.kind) if group == GROUP or manifest.kind in _OURS else None
    if model is None:
        return
    if manifest.body["apiVersion"] != API_VERSION:
        raise manifest.bad(("apiVersion",), f"is {manifest.body['apiVersion']}, expected {API_VERSION}")
    for key in manifest.body:
        if key not in _TOP_LEVEL:
            raise manifest.bad((key,), f"unknown field; a {manifest.kind} has {', '.join(_TOP_LEVEL)}")
    for part in ("spec", "status"):
        field = model.model_fields[part]
        annotation = field.annotation
        if part not in manifest.body and not field.is_required():
            continue
        if not isinstance(annotation, type) or not issubclass(annotation, Wire):
            raise TypeError(f"{model.__name__}.{part} is no wire type")
        try:
            value = annotation.parse_strictly(manifest.body.get(part))
        except ValidationError as error:
            raise _refusal(manifest, error, (part,)) from None
        if isinstance(value, NodeTopologySpec):
            _check_machine(manifest, value)
    if manifest.kind == TRAINING_JOB:
        _check_name(manifest)


def _check_machine(manifest: Manifest, spec: NodeTopologySpec) -> None:
    try:
        machine(spec)
    except InvalidTopology as error:
        raise manifest.bad(("spec", *_steps(error.field)), error.message) from None


def _check_name(manifest: Manifest) -> None:
    name = str(manifest.body["metadata"]["name"])
    if len(name) > JOB_NAME_MAX_LENGTH or not re.match(JOB_NAME_PATTERN, name):
        raise manifest.bad(
            ("metadata", "name"),
            f"is {name!r}; a TrainingJob's name has at most {JOB_NAME_MAX_LENGTH} lower-case letters, digits and "
            "dashes, and starts with a letter",
        )


def _refusal(manifest: Manifest, error: ValidationError, above: tuple[Step, ...]) -> BadInput:
    """The first mistake that pydantic found, in our words."""
    fault = error.errors(include_url=False, include_input=True)[0]
    field = (*above, *fault["loc"])
    rule = fault.get("ctx", {}).get("error")
    if isinstance(rule, FieldError):
        return manifest.bad((*field, *_steps(rule.field)), rule.message)
    if fault["type"] == "extra_forbidden":
        return manifest.bad(field, "unknown field")
    if fault["type"] == "missing":
        return manifest.bad(field, "is required")
    words = fault["msg"].removeprefix("Input ").removeprefix("Value error, ")
    found = fault["input"]
    shown = f"is {found!r}; " if isinstance(found, str | int | float) else ""
    return manifest.bad(field, shown + words)


def _steps(path: str) -> tuple[Step, ...]:
    """The keys of a path such as pcie.levels[2]."""
    words: Iterable[tuple[str, str]] = re.findall(r"\[(\d+)\]|([^.\[\]]+)", path)
    return tuple(int(index) if index else name for index, name in words)
