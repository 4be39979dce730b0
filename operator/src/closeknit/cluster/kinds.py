"""What is read from an API server or from files, and how: one table for the operator's reflectors and the CLI's reader.

A Secret is never among it. Services are not read either: a foreign one under a name of ours shows when ours is created.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from closeknit.api.names import CLUSTER_TOPOLOGY, GROUP, JOB_LABEL, NODE_TOPOLOGY, TRAINING_JOB, VERSION
from closeknit.api.objects import ClusterTopology, TrainingJob
from closeknit.cluster.dra import (
    ResourceClaim,
    ResourceSlice,
    WireResourceClaim,
    WireResourceSlice,
    resource_claim,
    resource_slice,
)
from closeknit.cluster.job import InvalidJob, job_from_builtins, job_from_json
from closeknit.cluster.objects import Node, PriorityClass, WireNode, WirePriorityClass, node, priority_class
from closeknit.cluster.pod import Pod, WirePod, pod
from closeknit.cluster.report import AgentReport, report_from_builtins, report_from_json

ClusterObject = (
    Node
    | AgentReport
    | ClusterTopology
    | TrainingJob
    | InvalidJob
    | Pod
    | ResourceSlice
    | ResourceClaim
    | PriorityClass
)
ObjectKey = tuple[str, str]
"""Namespace, empty for cluster-scoped kinds, and name."""

Decoded = TypeVar("Decoded")
Kept = TypeVar("Kept")


class Source(StrEnum):
    """One stream of objects. Pods come in two: ours to their end, because how they end is what the lifecycle wants to
    know, and others' only while they live, because a Pod that leaves a field selector shows its old state."""

    NODES = "nodes"
    NODE_TOPOLOGIES = "nodetopologies"
    CLUSTER_TOPOLOGIES = "clustertopologies"
    TRAINING_JOBS = "trainingjobs"
    CHILD_PODS = "child-pods"
    OTHER_PODS = "other-pods"
    RESOURCE_SLICES = "resourceslices"
    RESOURCE_CLAIMS = "resourceclaims"
    PRIORITY_CLASSES = "priorityclasses"


@dataclass(frozen=True, slots=True)
class Kind:
    """One stream: where its objects are, and what is kept of each."""

    source: Source
    group: str  # empty for the core group
    version: str
    plural: str
    kind: str
    namespaced: bool
    decode: Callable[[bytes], ClusterObject | None]
    """Object of one JSON document; None for one of no interest. Raises for a document that cannot be read at all."""
    convert: Callable[[object], ClusterObject | None]
    """The same of plain dicts and lists."""
    field_selector: str | None = None
    label_selector: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One object is now as given; None: it is gone. What it was before does not matter."""

    source: Source
    key: ObjectKey
    new: ClusterObject | None


def _struct(
    wire: type[Decoded], keep: Callable[[Decoded], ClusterObject | None]
) -> tuple[Callable[[bytes], ClusterObject | None], Callable[[object], ClusterObject | None]]:
    decoder = msgspec.json.Decoder(wire)

    def decode(document: bytes) -> ClusterObject | None:
        return keep(decoder.decode(document))

    def convert(document: object) -> ClusterObject | None:
        return keep(msgspec.convert(document, wire))

    return decode, convert


_NODE = _struct(WireNode, node)
_POD = _struct(WirePod, pod)
_SLICE = _struct(WireResourceSlice, resource_slice)
_CLAIM = _struct(WireResourceClaim, resource_claim)
_PRIORITY = _struct(WirePriorityClass, priority_class)
_DRA = "resource.k8s.io"

KINDS: tuple[Kind, ...] = (
    Kind(Source.NODES, "", "v1", "nodes", "Node", False, *_NODE),
    Kind(
        Source.NODE_TOPOLOGIES,
        GROUP,
        VERSION,
        "nodetopologies",
        NODE_TOPOLOGY,
        False,
        report_from_json,
        report_from_builtins,
    ),
    Kind(
        Source.CLUSTER_TOPOLOGIES,
        GROUP,
        VERSION,
        "clustertopologies",
        CLUSTER_TOPOLOGY,
        False,
        ClusterTopology.model_validate_json,
        ClusterTopology.parse,
    ),
    Kind(Source.TRAINING_JOBS, GROUP, VERSION, "trainingjobs", TRAINING_JOB, True, job_from_json, job_from_builtins),
    Kind(Source.CHILD_PODS, "", "v1", "pods", "Pod", True, *_POD, label_selector=JOB_LABEL),
    Kind(
        Source.OTHER_PODS,
        "",
        "v1",
        "pods",
        "Pod",
        True,
        *_POD,
        field_selector="status.phase!=Succeeded,status.phase!=Failed",
        label_selector=f"!{JOB_LABEL}",
    ),
    Kind(Source.RESOURCE_SLICES, _DRA, "v1", "resourceslices", "ResourceSlice", False, *_SLICE),
    Kind(Source.RESOURCE_CLAIMS, _DRA, "v1", "resourceclaims", "ResourceClaim", True, *_CLAIM),
    Kind(Source.PRIORITY_CLASSES, "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, *_PRIORITY),
)

_BY_KIND = {(entry.group, entry.kind): entry for entry in KINDS}


def from_document(document: Mapping[str, Any]) -> ClusterObject | None:
    """The object of one manifest as plain dicts and lists, by its apiVersion and kind; None for one of no interest,
    other kinds included. Raises msgspec.ValidationError or pydantic.ValidationError for a shape that cannot be read."""
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    kind = _BY_KIND.get((group, str(document.get("kind", ""))))
    return kind.convert(document) if kind else None


def change(new: ClusterObject) -> Change:
    """The change that an object found in a list or file stands for."""
    return Change(_source(new), key_of(new), new)


def key_of(value: ClusterObject) -> ObjectKey:
    """Namespace and name."""
    match value:
        case Pod() | ResourceClaim():
            return value.key
        case TrainingJob() | InvalidJob():
            return value.key.namespace, value.key.name
        case ClusterTopology():
            return "", value.metadata.name
        case _:
            return "", value.name


def _source(value: ClusterObject) -> Source:
    match value:
        case Node():
            return Source.NODES
        case AgentReport():
            return Source.NODE_TOPOLOGIES
        case ClusterTopology():
            return Source.CLUSTER_TOPOLOGIES
        case TrainingJob() | InvalidJob():
            return Source.TRAINING_JOBS
        case Pod():
            return pod_source(value)
        case ResourceSlice():
            return Source.RESOURCE_SLICES
        case ResourceClaim():
            return Source.RESOURCE_CLAIMS
        case PriorityClass():
            return Source.PRIORITY_CLASSES


def pod_source(value: Pod) -> Source:
    """The stream that a Pod comes from: the label decides, as in the selectors."""
    return Source.CHILD_PODS if JOB_LABEL in value.labels else Source.OTHER_PODS
