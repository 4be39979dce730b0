"""Kueue's ResourceFlavors and WorkloadPriorityClasses, and whether the cluster serves any of Kueue."""

import msgspec

from closeknit.cluster.kueue.workload import KueueToleration
from closeknit.cluster.objects.meta import Metadata, WireStruct

_MOST_ENTRIES = 8  # of labels and of tolerations: Kueue's own bound


class ResourceFlavor(msgspec.Struct, frozen=True):
    """A ResourceFlavor: the nodes that a quota is of."""

    name: str
    node_labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[KueueToleration, ...] = ()


class WorkloadPriorityClass(msgspec.Struct, frozen=True):
    """A WorkloadPriorityClass: a priority in Kueue's queues alone."""

    name: str
    value: int = 0


class ServedKind(msgspec.Struct, frozen=True):
    """A kind that a cluster need not serve, and that the operator reads of it."""

    name: str
    """Its plural."""


class _WireFlavorSpec(WireStruct, frozen=True):
    node_labels: dict[str, str] | None = None
    tolerations: list[KueueToleration] | None = None


class WireResourceFlavor(WireStruct, frozen=True):
    """A ResourceFlavor on the wire."""

    metadata: Metadata
    spec: _WireFlavorSpec | None = None


class WireWorkloadPriorityClass(WireStruct, frozen=True):
    """A WorkloadPriorityClass on the wire."""

    metadata: Metadata
    value: int = 0


def resource_flavor(wire: WireResourceFlavor) -> ResourceFlavor:
    """The kept flavour."""
    spec = wire.spec or _WireFlavorSpec()
    labels = sorted((spec.node_labels or {}).items())[:_MOST_ENTRIES]
    return ResourceFlavor(wire.metadata.name, tuple(labels), tuple((spec.tolerations or ())[:_MOST_ENTRIES]))


def workload_priority_class(wire: WireWorkloadPriorityClass) -> WorkloadPriorityClass:
    """The kept class."""
    return WorkloadPriorityClass(wire.metadata.name, wire.value)
