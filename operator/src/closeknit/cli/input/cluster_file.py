"""Manifests as the objects that decisions are made from; what one object alone makes wrong is refused here."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from closeknit.api.names import CLUSTER_TOPOLOGY, GROUP, NODE_TOPOLOGY, TRAINING_JOB
from closeknit.api.objects import ClusterTopology, NodeTopology, TrainingJob
from closeknit.cli.input import strict
from closeknit.cli.input.bad_input import BadInput
from closeknit.cli.input.manifest import Manifest, Way, manifests
from closeknit.cli.input.pod_spec import LIFTED, fault, not_admitted
from closeknit.cluster.objects.agent_report import AgentReport, moment, report
from closeknit.cluster.objects.node_objects import Node
from closeknit.cluster.store.watched_kinds import KINDS, ClusterObject, from_document, key_of
from closeknit.launch.template import check_template
from closeknit.machine.checks import InvalidTopology, check
from closeknit.placement.values.sentences import listed

_VERSIONS = {(kind.group, kind.kind): kind.versions for kind in KINDS}
_MOST_KINDS = 3  # are named of a file that has others than the one that is expected
NO_MACHINES = (
    "has no Node and no NodeTopology, so that it tells of no GPU; `closeknit plan --help` has the command that writes "
    "such a file, by somebody who may list them"
)
_OUR_KINDS = (CLUSTER_TOPOLOGY, NODE_TOPOLOGY, TRAINING_JOB)


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A cluster as somebody dumped it."""

    objects: list[ClusterObject]
    lifted: frozenset[str]
    """Namespaces in which an administrator lets templates be anything, as far as Namespaces are there."""


def cluster_file(file: Path) -> ClusterFile:
    """The objects of a cluster's file, kinds that no decision looks at left out. Raises BadInput, also for one without
    any machine: what is left of a dump by somebody who may not list them would look like a cluster without GPUs.

    The template of a stored job is left to the loop, as in a cluster: only that job waits for it.
    """
    found: list[ClusterObject] = []
    lifted: set[str] = set()
    seen: dict[tuple[str, tuple[str, str]], Manifest] = {}
    for manifest in manifests(file):
        labels = manifest.body["metadata"].get("labels")
        if manifest.kind == "Namespace" and isinstance(labels, dict) and labels.get(LIFTED) == "true":
            lifted.add(manifest.body["metadata"]["name"])
        entry = _object(manifest)
        if entry is None:
            continue
        first = seen.setdefault((manifest.kind, key_of(entry)), manifest)
        if first is not manifest:
            raise manifest.bad((), f"is there twice, first in line {first.line}")
        found.append(entry)
    if not any(isinstance(entry, Node | AgentReport) for entry in found):
        raise BadInput(file, None, "", NO_MACHINES)
    return ClusterFile(found, frozenset(lifted))


@dataclass(frozen=True, slots=True)
class JobFile:
    """A TrainingJob as somebody wrote it."""

    job: TrainingJob
    manifest: Manifest

    def inside(self, namespace: str) -> "JobFile":
        """The same in this namespace, where the file names none. Raises BadInput where it names another, as kubectl."""
        own = self.job.metadata.namespace
        if own not in (None, namespace):
            words = f"is {own!r}, and --namespace is {namespace!r}; give one of them"
            raise self.manifest.bad(("metadata", "namespace"), words)
        metadata = self.job.metadata.model_copy(update={"namespace": namespace})
        return JobFile(self.job.model_copy(update={"metadata": metadata}), self.manifest)

    def check_admitted(self, lifted: Collection[str]) -> None:
        """Raises BadInput for what closeknit's own admission refuses; `lifted` are the namespaces where an
        administrator lets templates be anything."""
        for way, template in _templates(self.manifest):
            found = not_admitted(template, is_lifted=self.job.key.namespace in lifted)
            if found is not None:
                raise self.manifest.bad((*way, *found[0]), found[1])


def training_job(file: Path, namespace: str | None = None) -> JobFile:
    """The one TrainingJob of a file, in this namespace where it names none. Raises BadInput, as kubectl also where it
    names another, and for what an API server would refuse in its Pods."""
    there = manifests(file)
    jobs = [manifest for manifest in there if manifest.kind == TRAINING_JOB]
    if len(jobs) != 1:
        found = str(len(jobs)) if jobs else _kinds(there)
        first = jobs[1].line if jobs else there[0].line if there else None
        raise BadInput(file, first, "", f"expected one TrainingJob, found {found}")
    return training_job_of(jobs[0], namespace)


def training_job_of(manifest: Manifest, namespace: str | None = None) -> JobFile:
    """The same of a manifest. Raises BadInput."""
    _check_version(manifest, GROUP)
    job = _training_job(manifest)
    if refused := check_template(job):
        path, _, message = refused.partition(" ")  # as every MalformedError begins
        raise manifest.bad(strict.steps(path), message)
    for way, template in _templates(manifest):
        if (wrong := fault(template)) is not None:
            raise manifest.bad((*way, *wrong[0]), wrong[1])
    written = JobFile(job, manifest)
    return written if namespace is None else written.inside(namespace)


def _templates(manifest: Manifest) -> Iterator[tuple[Way, Mapping[str, Any]]]:
    """Each Pod template of a job, as kubectl would send it, with the way to it."""
    spec = manifest.body["spec"]
    servers = spec.get("parameterServers") or {}
    for way, template in ((("spec", "template"), spec.get("template")),
                          (("spec", "parameterServers", "template"), servers.get("template"))):  # fmt: skip
        if isinstance(template, dict):
            yield way, _as_sent(template)


def _as_sent(value: Any) -> Any:
    """The same with every key a string: a key of YAML may be a number or a boolean, which kubectl sends as its word.
    The depth is bounded before."""
    if isinstance(value, list):
        return [_as_sent(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {str(key).lower() if isinstance(key, bool) else str(key): _as_sent(each) for key, each in value.items()}


def _kinds(there: Sequence[Manifest]) -> str:
    """What a file has, by kind, the first few: `2 of kind Service and a Deployment`."""
    counts = Counter(manifest.kind for manifest in there)
    words = [
        f"{number} of kind {kind}" if number > 1 else f"{'an' if kind[:1] in 'AEIOU' else 'a'} {kind}"
        for kind, number in counts.most_common(_MOST_KINDS)
    ]
    more = [f"{len(counts) - _MOST_KINDS} other kinds"] if len(counts) > _MOST_KINDS else []
    return listed([*words, *more], "and") or "no object at all"


def _object(manifest: Manifest) -> ClusterObject | None:
    group = manifest.api_version.rpartition("/")[0]
    if (group, manifest.kind) not in _VERSIONS:
        if group == GROUP:
            raise manifest.bad(("kind",), f"is {manifest.kind!r}; allowed: {', '.join(_OUR_KINDS)}")
        return None
    _check_version(manifest, group)
    if group != GROUP:
        return _foreign(manifest)
    if manifest.kind == TRAINING_JOB:
        return _training_job(manifest)
    if manifest.kind == NODE_TOPOLOGY:
        return report(_node_topology(manifest))
    return strict.read(manifest, ClusterTopology)


def _check_version(manifest: Manifest, group: str) -> None:
    expected = [f"{group}/{version}" if group else version for version in _VERSIONS[group, manifest.kind]]
    if manifest.api_version not in expected:
        raise manifest.bad(("apiVersion",), f"is {manifest.api_version!r}; expected {' or '.join(expected)}")


def _foreign(manifest: Manifest) -> ClusterObject | None:
    try:
        return from_document(manifest.body)
    except msgspec.ValidationError as error:
        words, _, path = str(error).partition(" - at `")
        raise manifest.bad(strict.steps(path.partition("$")[2].rstrip("`")), words) from None


def _training_job(manifest: Manifest) -> TrainingJob:
    job = strict.read(manifest, TrainingJob)
    _check_time(manifest, ("metadata", "creationTimestamp"), job.metadata.creation_timestamp)
    return job


def node_topologies(file: Path) -> list[NodeTopology]:
    """The NodeTopologies of a file, in its order, one at least; other objects are left out. Raises BadInput."""
    found: dict[str, Manifest] = {}
    there = manifests(file)
    for manifest in there:
        if manifest.kind != NODE_TOPOLOGY or not manifest.api_version.startswith(f"{GROUP}/"):
            continue
        first = found.setdefault(manifest.title, manifest)
        if first is not manifest:
            raise manifest.bad((), f"is there twice, first in line {first.line}")
        _check_version(manifest, GROUP)
    if not found:
        raise BadInput(file, None, "", f"expected a NodeTopology, found {_kinds(there)}")
    return [_node_topology(manifest) for manifest in found.values()]


def _node_topology(manifest: Manifest) -> NodeTopology:
    topology = strict.read(manifest, NodeTopology)
    _check_time(manifest, ("status", "heartbeatTime"), topology.status.heartbeat_time)
    try:
        check(topology.spec)
    except InvalidTopology as error:
        raise manifest.bad(("spec", *strict.steps(error.field)), error.message) from None
    return topology


def _check_time(manifest: Manifest, field: Way, text: str | None) -> None:
    if text is not None and moment(text) is None:
        raise manifest.bad(field, f"is {text!r}; expected a time such as 2026-11-21T12:00:00Z")
