"""Manifests as the objects that decisions are made from; what one object alone makes wrong is refused here."""

from pathlib import Path

import msgspec

from closeknit.api.names import CLUSTER_TOPOLOGY, GROUP, NODE_TOPOLOGY, TRAINING_JOB
from closeknit.api.objects import ClusterTopology, NodeTopology, TrainingJob
from closeknit.cli import strict
from closeknit.cli.bad_input import BadInput
from closeknit.cli.manifest import Manifest, Way, manifests
from closeknit.cluster.kinds import KINDS, ClusterObject, from_document, key_of
from closeknit.cluster.report import AgentReport, moment, report
from closeknit.launch.template import check_template
from closeknit.machine.checks import InvalidTopology, check

_VERSIONS = {(kind.group, kind.kind): kind.versions for kind in KINDS}
_OUR_KINDS = (CLUSTER_TOPOLOGY, NODE_TOPOLOGY, TRAINING_JOB)


def cluster_objects(file: Path) -> list[ClusterObject]:
    """The objects of a cluster's file, kinds that no decision looks at left out. Raises BadInput.

    The template of a stored job is left to the loop, as in a cluster: only that job waits for it.
    """
    found: list[ClusterObject] = []
    seen: dict[tuple[str, tuple[str, str]], Manifest] = {}
    for manifest in manifests(file):
        entry = _object(manifest)
        if entry is None:
            continue
        first = seen.setdefault((manifest.kind, key_of(entry)), manifest)
        if first is not manifest:
            raise manifest.bad((), f"is there twice, first in line {first.line}")
        found.append(entry)
    return found


def training_job(file: Path) -> TrainingJob:
    """The one TrainingJob of a file. Raises BadInput."""
    jobs = [manifest for manifest in manifests(file) if manifest.kind == TRAINING_JOB]
    if len(jobs) != 1:
        words = f"expected one TrainingJob, found {len(jobs) or 'none'}"
        raise BadInput(file, jobs[1].line if jobs else None, "", words)
    manifest = jobs[0]
    _check_version(manifest, GROUP)
    job = _training_job(manifest)
    if refused := check_template(job):
        path, _, message = refused.partition(" ")  # as every MalformedError begins
        raise manifest.bad(strict.steps(path), message)
    return job


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
        return _agent_report(manifest)
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
    """The NodeTopologies of a file, in its order; other objects are left out. Raises BadInput."""
    found: dict[str, Manifest] = {}
    for manifest in manifests(file):
        if manifest.kind != NODE_TOPOLOGY or not manifest.api_version.startswith(f"{GROUP}/"):
            continue
        first = found.setdefault(manifest.title, manifest)
        if first is not manifest:
            raise manifest.bad((), f"is there twice, first in line {first.line}")
        _check_version(manifest, GROUP)
    return [_node_topology(manifest) for manifest in found.values()]


def _agent_report(manifest: Manifest) -> AgentReport:
    return report(_node_topology(manifest))


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
