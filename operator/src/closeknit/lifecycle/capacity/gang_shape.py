"""The shape in which a gang asks for nodes: Pods of so many GPUs, one to a node, and which nodes could hold them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

import msgspec

from closeknit.api.names import GPU_RESOURCE
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.placement.candidates.node_filter import admits
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place
from closeknit.placement.values.request import NOBODY, Request, request

MOST_PATTERNS = 8  # kinds of nodes that are tried for one job, those with the most nodes first
MOST_NODES = 1024  # of one gang that are asked for; a larger one is asked for by hand
_COPY = "closeknit-copy-"  # no node is called so


class NodeGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an administrator says of a node group, of which no node may be there."""

    name: str
    gpus: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    product: str = ""
    labels: dict[str, str] = {}


def node_groups(text: str) -> tuple[NodeGroup, ...]:
    """Those of a JSON list. Raises ValueError."""
    return tuple(msgspec.json.decode(text, type=list[NodeGroup]))


class GangShape(NamedTuple):
    """Pods that ask for a gang's nodes."""

    pods: int
    gpus_each: int
    like: str
    """A node of that kind, or the node group's name."""
    resource: str = GPU_RESOURCE
    may_share: bool = False
    """Whether such a node has room for two of them, of which each is to have its own."""


def gang_shape(job: TrainingJob, cluster: Cluster, groups: Sequence[NodeGroup], tables: Tables) -> GangShape | None:
    """The shape in which nodes would come that hold the gang; None where none of the known kinds would."""
    asked = request(NOBODY, job.spec, cluster.volumes_of(job).required)
    if asked.mig is not None:
        return None
    for pattern in _patterns(cluster, asked):
        assert pattern.machine is not None  # noqa: S101 - of a pattern, for the type checker
        each = _gpus_each(asked, len(pattern.usable))
        if each is None or asked.gpus // each > MOST_NODES:
            continue
        copies = [_copy(pattern, number) for number in range(asked.gpus // each)]
        if can_place(cluster.with_nodes(copies), asked, tables):
            resource = pattern.plugin.resource if pattern.plugin is not None else GPU_RESOURCE
            return GangShape(len(copies), each, pattern.name, resource, 2 * each <= len(pattern.usable))
    for group in groups:
        each = _gpus_each(asked, group.gpus)
        if each is not None and asked.gpus // each <= MOST_NODES and _suits(group, asked):
            return GangShape(asked.gpus // each, each, group.name, may_share=2 * each <= group.gpus)
    return None


def _patterns(cluster: Cluster, asked: Request) -> Iterator[NodeView]:
    """One node of each kind that is or was there with GPUs, and that the job's Pods may run on."""
    kinds: dict[object, list[NodeView]] = {}
    for view in cluster.nodes.values():
        if (
            view.machine is not None
            and view.plugin is not None
            and view.usable
            and not view.spare_for
            and admits(view, asked)
        ):
            key = (view.machine.topology_class, view.domains[:-1], tuple(view.taints))
            kinds.setdefault(key, []).append(view)
    order = sorted((-len(alike), min(each.name for each in alike)) for alike in kinds.values())
    yield from (cluster.nodes[name] for _, name in order[:MOST_PATTERNS])


def _gpus_each(asked: Request, most: int) -> int | None:
    """GPUs of each Pod on nodes of so many: as many as divide the gang; None where the job's own word is more."""
    if asked.gpus_per_node is not None:
        return asked.gpus_per_node if asked.gpus_per_node <= most else None
    fitting = (each for each in range(min(most, asked.gpus), 0, -1) if asked.gpus % each == 0)
    return next(fitting, None)


def _suits(group: NodeGroup, asked: Request) -> bool:
    """Whether a node of the group is one that the job selects, as far as its administrator has told of it."""
    if asked.products and group.product not in asked.products:
        return False
    return all(group.labels.get(key) == value for key, value in asked.node_selector)


def _copy(pattern: NodeView, number: int) -> NodeView:
    """An empty, healthy node like this one."""
    name = f"{_COPY}{number}"
    view = pattern.freed(tuple(pattern.holders))
    parent = "/".join(filter(None, pattern.domains[-2:-1]))
    return replace(
        view,
        name=name,
        domains=(*pattern.domains[:-1], f"{parent}/{name}" if parent else name),
        exclusion=None,
        unnamed={},
        spare=pattern.allocatable,
        plugin=view.plugin and replace(view.plugin, requested=0, unnamed=0),
    )
