"""An admitted Workload, and what it adds to the Pods of its job: where they may run, and what they tolerate."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from closeknit.api.names import GROUP, KUEUE_GROUP
from closeknit.api.objects import TrainingJob
from closeknit.api.text.opaque import short
from closeknit.api.trainingjob import PackedTemplate, PodTemplate, TrainingJobSpec
from closeknit.cluster.kueue.flavors import ResourceFlavor
from closeknit.cluster.kueue.pod_sets import pod_counts
from closeknit.cluster.kueue.workload import KueueToleration, Workload

# A template is packed again for each job that gets one; jobs of one queue have few.
_KNOWN_TEMPLATES = 256


@dataclass(frozen=True, slots=True)
class Admission:
    """What Kueue adds to the Pods of a job."""

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[KueueToleration, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    contradiction: str = ""
    """Why no Pod can be made with it, and what to do; empty where it can."""

    @property
    def adds_nothing(self) -> bool:
        """Whether the Pods are as the template has them."""
        return not (self.node_selector or self.tolerations or self.labels or self.annotations)


@dataclass(slots=True)
class _Draft:
    selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[KueueToleration] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    contradiction: str = ""

    def add(self, what: str, there: dict[str, str], more: Mapping[str, str] | None) -> None:
        """Takes more of these; two that differ are a contradiction."""
        for key, value in sorted((more or {}).items()):
            if there.setdefault(key, value) != value and not self.contradiction:
                self.contradiction = f"{what} asks for {short(key)}={short(value)}, and another for {short(there[key])}"

    def tolerate(self, more: tuple[KueueToleration, ...]) -> None:
        """Takes those that are not there yet."""
        self.tolerations += [each for each in more if each not in self.tolerations]


def admission(workload: Workload, spec: TrainingJobSpec, flavors: Mapping[str, ResourceFlavor]) -> Admission:
    """What an admitted Workload adds to the Pods of its job, all pod sets alike: a gang's servers run beside its
    workers."""
    draft = _Draft()
    for assignment in workload.assignments:
        for name in assignment.flavors:
            flavor = flavors.get(name)
            if flavor is None:
                draft.contradiction = draft.contradiction or (
                    f"its Workload {workload.name} is admitted with ResourceFlavor {short(name)}, which is not there; "
                    "have an administrator create it again, or delete the Workload, so that Kueue admits it again"
                )
                continue
            draft.add(f"ResourceFlavor {short(name)}", draft.selector, dict(flavor.node_labels))
            draft.tolerate(flavor.tolerations)
    for check in workload.checks:
        for update in check.pod_set_updates or ():
            said = f"admission check {short(check.name)}"
            draft.add(said, draft.selector, update.node_selector)
            draft.add(said, draft.labels, _unreserved(update.labels))
            draft.add(said, draft.annotations, _unreserved(update.annotations))
            draft.tolerate(tuple(update.tolerations or ()))
    short_of = _short_of(workload, spec)
    return Admission(
        tuple(sorted(draft.selector.items())),
        tuple(draft.tolerations),
        tuple(sorted(draft.labels.items())),
        tuple(sorted(draft.annotations.items())),
        draft.contradiction or short_of or _contradicted(draft.selector, spec),
    )


def as_admitted(job: TrainingJob, workload: Workload | None, flavors: Mapping[str, ResourceFlavor]) -> TrainingJob:
    """The job with what its admitted Workload adds to its Pods; the same object where that is nothing."""
    if workload is None or not workload.is_admitted or job.spec.template.is_dropped:
        return job
    added = admission(workload, job.spec, flavors)
    if added.adds_nothing or added.contradiction:
        return job
    template = _with(job.spec.template, added)
    if template == job.spec.template:
        return job
    return job.model_copy(update={"spec": job.spec.model_copy(update={"template": template})})


def _unreserved(entries: Mapping[str, str] | None) -> dict[str, str]:
    """Without those that steer closeknit, or Kueue, which would queue each Pod a second time."""
    prefixes = (GROUP, KUEUE_GROUP)
    return {
        key: value
        for key, value in (entries or {}).items()
        if not any(key.partition("/")[0] in {each} or key.partition("/")[0].endswith(f".{each}") for each in prefixes)
    }


def _short_of(workload: Workload, spec: TrainingJobSpec) -> str:
    """Why the admitted Pods are not those that the job needs; empty where they are."""
    wanted = pod_counts(spec)
    for assignment in workload.assignments:
        count = wanted.get(assignment.pod_set)
        if assignment.count is not None and count is not None and assignment.count < count:
            return (
                f"its Workload {workload.name} is admitted with {assignment.count} of the {count} Pods of pod set "
                f"{short(assignment.pod_set)}, and a gang needs all of them; delete the Workload, so that Kueue admits "
                "it again"
            )
    return ""


def _contradicted(selector: Mapping[str, str], spec: TrainingJobSpec) -> str:
    """Why the template's own node selector rules out the nodes that Kueue chose; empty where it does not."""
    own = spec.template.spec.get("nodeSelector")
    for key, value in sorted(selector.items()):
        if isinstance(own, dict) and key in own and own[key] != value:
            return (
                f"Kueue admitted it for nodes with {short(key)}={short(value)}, and spec.template.spec.nodeSelector "
                f"asks for {short(str(own[key]))}; change one of them"
            )
    return ""


@lru_cache(maxsize=_KNOWN_TEMPLATES)
def _with(template: PackedTemplate, added: Admission) -> PackedTemplate:
    read = template.read()
    spec: dict[str, Any] = dict(read.spec)
    selector, own = spec.get("nodeSelector") or {}, spec.get("tolerations") or []
    if not (isinstance(selector, dict) and isinstance(own, list)):
        return template  # launch refuses it
    if added.node_selector:
        spec["nodeSelector"] = {**selector, **dict(added.node_selector)}
    more = [each for each in msgspec.to_builtins(added.tolerations) if each not in own]
    if more:
        spec["tolerations"] = [*own, *more]
    metadata = read.metadata.model_copy(
        update={
            "labels": {**dict(added.labels), **read.metadata.labels},
            "annotations": {**dict(added.annotations), **read.metadata.annotations},
        }
    )
    return PackedTemplate.of(PodTemplate.model_construct(metadata=metadata, spec=spec))
