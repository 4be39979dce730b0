"""PersistentVolumeClaims, PersistentVolumes and StorageClasses, in the few fields that decide where a Pod can run.

The rules are those of kube-scheduler's plugins VolumeBinding and VolumeZone and of k8s.io/component-helpers
(storage/volume), as of 1.36.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product
from sys import intern
from typing import Any, NamedTuple

import msgspec

from closeknit.api.affinity import (
    MOST_REQUIREMENTS,
    NodeAffinity,
    NodeRequirement,
    Operator,
    Term,
    holds,
    label_requirement,
)
from closeknit.api.text.opaque import MalformedError
from closeknit.api.text.quantity import quantity
from closeknit.cluster.objects.meta import Metadata, Quantities, WireStruct

NO_PROVISIONER = (
    "kubernetes.io/no-provisioner"  # of a class whose volumes somebody makes by hand, local disks above all
)
ONE_POD = "ReadWriteOncePod"
ONE_NODE = "ReadWriteOnce"
_LONGEST = 64  # characters of a quantity; the API server prints 20 at most
_KNOWN_AFFINITIES = 4096  # volumes of one zone say the same
# Labels of a volume that keep it to some nodes, each with the label of a node that means the same where it lacks the
# first (VolumeZone).
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_ZONE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
    _ZONE: _ZONE,
    _REGION: _REGION,
}
_BETWEEN_ZONES = "__"  # in the value of such a label


class ClaimRequest(NamedTuple):
    """An unbound claim's request for a volume."""

    size_bytes: int = 0
    modes: frozenset[str] = frozenset()
    is_block: bool = False
    attributes_class: str = ""
    selector: tuple[NodeRequirement, ...] = ()
    """Of the volume's labels."""


class Free(NamedTuple):
    """An unclaimed volume's offer to a claim."""

    size_bytes: int = 0
    modes: frozenset[str] = frozenset()
    is_block: bool = False
    attributes_class: str = ""
    labels: Mapping[str, str] = {}

    def suits(self, wanted: ClaimRequest) -> bool:
        """Whether a claim may get it."""
        return (
            self.size_bytes >= wanted.size_bytes
            and self.modes >= wanted.modes
            and self.is_block is wanted.is_block
            and self.attributes_class == wanted.attributes_class
            and all(holds(each, self.labels.get(each.key)) for each in wanted.selector)
        )


class PersistentVolumeClaim(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim, or the future one of a template's ephemeral volume."""

    namespace: str
    name: str
    uid: str = ""
    storage_class: str = ""
    """Empty where it names none."""
    volume: str = ""
    """The name of its PersistentVolume."""
    is_bound: bool = False
    """Whether it is bound for good, so that only the volume counts."""
    is_lost: bool = False
    is_going: bool = False
    """Whether it is being deleted."""
    selected_node: str = ""
    """The node for which the scheduler requested a volume from its provisioner."""
    modes: frozenset[str] = frozenset()
    wanted: ClaimRequest | None = None
    """None for a bound one."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class PersistentVolume(msgspec.Struct, frozen=True):
    """A PersistentVolume."""

    name: str
    storage_class: str = ""
    reach: NodeAffinity | None = None
    """The nodes where Pods can use it; None: all."""
    modes: frozenset[str] = frozenset()
    claimed_by: tuple[str, str, str] | None = None
    """Namespace, name and uid of its bound or reserved claim; the uid may be empty."""
    free: Free | None = None
    """Its offer to a claim; None if it is bound or gone."""


class StorageClass(msgspec.Struct, frozen=True):
    """A StorageClass."""

    name: str
    provisioner: str = ""
    waits: bool = False
    """Whether its claims are bound once a Pod with them is scheduled (WaitForFirstConsumer)."""
    allowed: NodeAffinity | None = None
    """The nodes for which it makes volumes; None: all."""
    is_default: bool = False
    created: str = ""

    @property
    def provisions(self) -> bool:
        """Whether volumes are made for its claims."""
        return self.provisioner not in {"", NO_PROVISIONER}


class _Annotations(msgspec.Struct, frozen=True):
    bind_completed: str | None = msgspec.field(default=None, name="pv.kubernetes.io/bind-completed")
    selected_node: str | None = msgspec.field(default=None, name="volume.kubernetes.io/selected-node")
    storage_class: str | None = msgspec.field(default=None, name="volume.beta.kubernetes.io/storage-class")
    is_default: str | None = msgspec.field(default=None, name="storageclass.kubernetes.io/is-default-class")


_NO_ANNOTATIONS = _Annotations()


class _Metadata(Metadata, frozen=True):
    annotations: _Annotations | None = None


class _Resources(WireStruct, frozen=True):
    requests: Quantities | None = None


class _LabelSelector(WireStruct, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[dict[str, Any]] | None = None


class ClaimSpec(WireStruct, frozen=True):
    """spec of a PersistentVolumeClaim, and of the template of one."""

    storage_class_name: str | None = None
    volume_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: _Resources | None = None
    selector: _LabelSelector | None = None


class _Phase(WireStruct, frozen=True):
    phase: str | None = None


class WirePersistentVolumeClaim(WireStruct, frozen=True):
    """A PersistentVolumeClaim on the wire."""

    metadata: _Metadata
    spec: ClaimSpec | None = None
    status: _Phase | None = None


class _NodeSelectorTerm(WireStruct, frozen=True):
    match_expressions: list[dict[str, Any]] | None = None
    match_fields: list[dict[str, Any]] | None = None


class _NodeSelector(WireStruct, frozen=True):
    node_selector_terms: list[_NodeSelectorTerm] | None = None


class _VolumeNodeAffinity(WireStruct, frozen=True):
    required: _NodeSelector | None = None


class _ClaimReference(WireStruct, frozen=True):
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class _VolumeSpec(WireStruct, frozen=True):
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    access_modes: list[str] | None = None
    capacity: Quantities | None = None
    claim_ref: _ClaimReference | None = None
    node_affinity: _VolumeNodeAffinity | None = None


class WirePersistentVolume(WireStruct, frozen=True):
    """A PersistentVolume on the wire."""

    metadata: _Metadata
    spec: _VolumeSpec | None = None
    status: _Phase | None = None


class _TopologyRequirement(WireStruct, frozen=True):
    key: str
    values: list[str] | None = None


class _TopologyTerm(WireStruct, frozen=True):
    match_label_expressions: list[_TopologyRequirement] | None = None


class WireStorageClass(WireStruct, frozen=True):
    """A StorageClass on the wire."""

    metadata: _Metadata
    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[_TopologyTerm] | None = None


def claim(wire: WirePersistentVolumeClaim) -> PersistentVolumeClaim:
    """The kept claim."""
    metadata, spec = wire.metadata, wire.spec or ClaimSpec()
    annotations = metadata.annotations or _NO_ANNOTATIONS
    is_bound = bool(spec.volume_name) and annotations.bind_completed is not None
    return PersistentVolumeClaim(
        namespace=metadata.namespace or "default",
        name=metadata.name,
        uid=metadata.uid or "",
        storage_class=_class(annotations, spec.storage_class_name),
        volume=spec.volume_name or "",
        is_bound=is_bound,
        is_lost=wire.status is not None and wire.status.phase == "Lost",
        is_going=metadata.deletion_timestamp is not None,
        selected_node=annotations.selected_node or "",
        modes=_modes(spec.access_modes),
        wanted=None if is_bound else _wanted(spec),
    )


def claim_to_be(spec: ClaimSpec) -> PersistentVolumeClaim:
    """The claim that Kubernetes makes for each Pod's ephemeral volume."""
    return PersistentVolumeClaim(
        "", "", storage_class=spec.storage_class_name or "", modes=_modes(spec.access_modes), wanted=_wanted(spec)
    )


def volume(wire: WirePersistentVolume) -> PersistentVolume:
    """The volume that is kept."""
    metadata, spec = wire.metadata, wire.spec or _VolumeSpec()
    reference, phase = spec.claim_ref, wire.status.phase if wire.status else None
    labels = metadata.labels or {}
    is_free = metadata.deletion_timestamp is None and phase in {None, "", "Pending", "Available"}
    modes = _modes(spec.access_modes)
    return PersistentVolume(
        name=metadata.name,
        storage_class=_class(metadata.annotations or _NO_ANNOTATIONS, spec.storage_class_name),
        reach=_reach(spec.node_affinity, labels),
        modes=modes,
        claimed_by=(reference.namespace or "", reference.name or "", reference.uid or "") if reference else None,
        free=Free(
            _bytes(spec.capacity),
            modes,
            spec.volume_mode == "Block",
            spec.volume_attributes_class_name or "",
            labels,
        )
        if is_free
        else None,
    )


def storage_class(wire: WireStorageClass) -> StorageClass:
    """The class that is kept."""
    annotations = wire.metadata.annotations or _NO_ANNOTATIONS
    return StorageClass(
        name=wire.metadata.name,
        provisioner=wire.provisioner or "",
        waits=wire.volume_binding_mode == "WaitForFirstConsumer",
        allowed=_allowed(wire.allowed_topologies),
        is_default=annotations.is_default == "true",
        created=wire.metadata.creation_timestamp or "",
    )


def any_of(affinities: Iterable[NodeAffinity]) -> NodeAffinity:
    """The requirement to meet one of these. Values of one label become one list: a disk of each of 5,000 hosts is one
    requirement."""
    values: dict[str, set[str]] = {}
    others: dict[Term, None] = {}
    for affinity in affinities:
        for term in affinity.terms:
            if len(term.labels) == 1 and not term.names and term.labels[0].operator is Operator.IN:
                values.setdefault(term.labels[0].key, set()).update(term.labels[0].values)
            else:
                others[term] = None
    merged = [Term((NodeRequirement(key, Operator.IN, frozenset(values[key])),), ()) for key in sorted(values)]
    return NodeAffinity((*merged, *others))


def _class(annotations: _Annotations, named: str | None) -> str:
    """The class by the old annotation first, as in Kubernetes."""
    return intern(annotations.storage_class if annotations.storage_class is not None else named or "")


@lru_cache(maxsize=64)
def _set_of(modes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(modes)


def _modes(modes: list[str] | None) -> frozenset[str]:
    return _set_of(tuple(modes or ()))


def _wanted(spec: ClaimSpec) -> ClaimRequest:
    return ClaimRequest(
        _bytes(spec.resources.requests if spec.resources else None),
        _modes(spec.access_modes),
        spec.volume_mode == "Block",
        spec.volume_attributes_class_name or "",
        _selector(spec.selector),
    )


def _bytes(quantities: Quantities | None) -> int:
    """How much storage; 0 for text that is no quantity."""
    try:
        word = str((quantities or {}).get("storage") or 0)
        return int(quantity(word)) if len(word) <= _LONGEST else 0
    except ValueError:  # a number of thousands of digits is one, too
        return 0


def _selector(selector: _LabelSelector | None) -> tuple[NodeRequirement, ...]:
    """The selector. An unreadable one counts as selecting everything: the scheduler decides."""
    if selector is None:
        return ()
    exact = [
        NodeRequirement(key, Operator.IN, frozenset((value,))) for key, value in (selector.match_labels or {}).items()
    ]
    try:
        others = [label_requirement(entry, "matchExpressions") for entry in selector.match_expressions or ()]
    except MalformedError:
        return ()
    found = (*sorted(exact), *others)
    return found if len(found) <= MOST_REQUIREMENTS else ()


def _reach(affinity: _VolumeNodeAffinity | None, labels: Mapping[str, str]) -> NodeAffinity | None:
    """The nodes of a volume: by its affinity, and by its zone's labels. None for every node, and for too large an
    affinity: then the scheduler decides."""
    required = affinity.required if affinity else None
    both = [each for each in (_of_terms(required) if required else None, _of_zones(labels)) if each is not None]
    terms = tuple(
        Term(tuple(label for term in combined for label in term.labels), ())
        for combined in product(*(each.terms for each in both))
    )
    if not both or sum(len(term.labels) for term in terms) > MOST_REQUIREMENTS:
        return None
    return _shared(NodeAffinity(terms))


@lru_cache(maxsize=_KNOWN_AFFINITIES)
def _shared(affinity: NodeAffinity) -> NodeAffinity:
    """One object for all equal ones."""
    return affinity


def _of_terms(required: _NodeSelector) -> NodeAffinity | None:
    """The nodes of these terms. The scheduler reads only a node's labels: matchFields of a volume hold everywhere, an
    empty or unreadable term nowhere. None if a term holds everywhere."""
    terms: list[Term] = []
    for term in required.node_selector_terms or ():
        try:
            found = tuple(label_requirement(each, "matchExpressions") for each in term.match_expressions or ())
        except MalformedError:
            continue
        if found:
            terms.append(Term(found, ()))
        elif term.match_fields:
            return None
    return NodeAffinity(tuple(terms))


def _of_zones(labels: Mapping[str, str]) -> NodeAffinity | None:
    """The nodes of a volume's labels of zone or region: nodes with these, and nodes without any."""
    kept: list[tuple[Term, ...]] = []
    for key, modern in _ZONE_LABELS.items():
        values = frozenset(zone.strip() for zone in labels.get(key, "").split(_BETWEEN_ZONES))
        if "" in values:  # absent, or what Kubernetes leaves out, too
            continue
        alternatives: list[tuple[NodeRequirement, ...]] = [(NodeRequirement(key, Operator.IN, values),)]
        if modern != key:
            lacks = NodeRequirement(key, Operator.DOES_NOT_EXIST, frozenset())
            alternatives.append((lacks, NodeRequirement(modern, Operator.IN, values)))
        kept.append(tuple(Term(each, ()) for each in alternatives))
    if not kept:
        return None
    nowhere = Term(tuple(NodeRequirement(key, Operator.DOES_NOT_EXIST, frozenset()) for key in _ZONE_LABELS), ())
    inside = (Term(tuple(label for term in combined for label in term.labels), ()) for combined in product(*kept))
    return NodeAffinity((*inside, nowhere))


def _allowed(topologies: list[_TopologyTerm] | None) -> NodeAffinity | None:
    """The allowed nodes. An empty term allows nothing, an empty list everything. None for too large a list."""
    if not topologies:
        return None
    terms = [
        Term(tuple(NodeRequirement(each.key, Operator.IN, frozenset(each.values or ())) for each in expressions), ())
        for term in topologies
        if (expressions := term.match_label_expressions)
    ]
    if sum(len(term.labels) for term in terms) > MOST_REQUIREMENTS:
        return None
    return NodeAffinity(tuple(terms))
