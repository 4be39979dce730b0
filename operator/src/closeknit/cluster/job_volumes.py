"""Volumes of a job's Pods: whether the Pods can be scheduled at all, and on which nodes.

Every Pod of a gang has the same template, so that a claim it names is the claim of all of them, while an ephemeral
volume becomes a claim of each. How many volumes a node can attach, and whether there is storage left, stay the
scheduler's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple, TypeVar

import msgspec

from closeknit.api.affinity import NodeAffinity, NodeRequirement, Operator, Term
from closeknit.api.text.opaque import short
from closeknit.api.trainingjob import PodTemplate, TrainingJobSpec
from closeknit.cluster.booking.booking import names
from closeknit.cluster.immutable.table import Index, Reader, Table
from closeknit.cluster.objects.storage import (
    ONE_NODE,
    ONE_POD,
    ClaimSpec,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    any_of,
    claim_to_be,
)
from closeknit.cluster.store.table_definitions import (
    FREE_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    VOLUMES_MEANT_FOR,
)

K = TypeVar("K", bound=Any)
V = TypeVar("V")
F = TypeVar("F", bound=Any)
M = TypeVar("M")

CLAIMS = frozenset({"persistentVolumeClaim", "ephemeral"})  # kinds of volumes that are claims
MOST_VOLUMES = 64  # of one template that are looked at; people write a handful
# Disks of one class, a claim may have any of them. Of more only the scheduler knows which nodes have one left.
MOST_FREE = 4096
MOST_CHOICES = 8  # of a shared claim: zones of a region
_SAID_TERMS = 3  # of an affinity, in words


class ClaimVolume(NamedTuple):
    """A volume of a template that is a claim."""

    claim: str
    """The claim's name; empty for an ephemeral volume, where each Pod makes a claim."""
    volume: str
    """The volume's name in the template."""
    to_be: PersistentVolumeClaim | None = None
    """That claim."""


class VolumeReach(NamedTuple):
    """The nodes where a Pod can have one of its volumes."""

    what: str
    """The claim, and the source of the limit."""
    nodes: NodeAffinity


class Awaited(NamedTuple):
    """A claim that waits for its volume to be made."""

    claim: str
    node: str
    """For which the scheduler has asked."""
    outlives_pod: bool
    """Whether it stays, and its volume is made, if the Pod goes."""


class _Seen(NamedTuple):
    """The objects that were read."""

    kept: tuple[tuple[Table[Any, Any], Any, Any], ...] = ()
    filed: tuple[tuple[Index[Any, Any, Any, Any], Any, tuple[Any, ...]], ...] = ()
    classes: object = None
    """All StorageClasses, where they were looked through for the default one."""


@dataclass(frozen=True)  # no slots: what follows from it is kept on its objects
class Volumes:
    """The present state of one job's volumes."""

    unavailable: str | None = None
    """Why no Pod of it can be scheduled on any node, and what to do; None where one may be."""
    reach: tuple[VolumeReach, ...] = ()
    """A node must meet all."""
    being_made: tuple[str, ...] = ()
    """Claims whose volume the first Pod requested from a provisioner: until it exists the scheduler puts no Pod on
    another node. It is made whether that Pod waits or not."""
    choices: tuple[NodeAffinity, ...] = ()
    """For an unbound claim that all Pods share: the nodes of each volume that it may get. The Pods must lie in one of
    these."""
    one_pod: tuple[str, ...] = ()
    """Claims that only one Pod may use."""
    one_node: tuple[str, ...] = ()
    """Claims whose volume attaches to one node at a time, if it attaches at all."""
    seen: _Seen = field(default=_Seen(), compare=False, repr=False)

    def stands(self, reader: Reader) -> bool:
        """Whether another check would read the same objects."""
        seen = self.seen
        return (
            all(reader.all(table).get(key) is value for table, key, value in seen.kept)
            and all(reader.under(index, key) is value for index, key, value in seen.filed)
            and (seen.classes is None or reader.all(STORAGE_CLASSES) is seen.classes)
        )

    @cached_property
    def required(self) -> frozenset[NodeAffinity]:
        """All requirements for a node."""
        return frozenset(each.nodes for each in self.reach)

    @property
    def words(self) -> str:
        """The nodes to which they limit the job, for people; empty without a limit."""
        return "; ".join(f"{each.what} {_said(each.nodes)}" for each in self.reach)


NO_VOLUMES = Volumes()


def sources(template: Mapping[str, Any]) -> tuple[ClaimVolume, ...]:
    """The claims among the volumes of a Pod's spec, each once. Unreadable volumes are skipped here; launch refuses
    them."""
    found: dict[str, ClaimVolume] = {}
    volumes = template.get("volumes")
    for entry in volumes if isinstance(volumes, list) else ():
        source = _source(entry) if isinstance(entry, dict) else None
        if source is not None:
            found.setdefault(source.claim or f"/{source.volume}", source)
        if len(found) == MOST_VOLUMES:
            break
    return tuple(found.values())


def _sources_of(template: PodTemplate) -> tuple[ClaimVolume, ...]:
    return sources(template.spec)


def volumes_of(spec: TrainingJobSpec, namespace: str, reader: Reader) -> Volumes:
    """The state of the volumes of a job in this namespace. Parameter servers run on the workers' nodes, so their
    volumes limit every node."""
    servers = spec.parameter_servers
    found = spec.template.once(_sources_of)
    if servers is not None:
        found = tuple(dict.fromkeys((*found, *servers.template.once(_sources_of))))
    if not found:
        return NO_VOLUMES
    looked = _Look(namespace, reader)
    for source in found:
        looked.at(source)
    return Volumes(
        unavailable=looked.unavailable,
        reach=tuple(looked.reach),
        being_made=tuple(looked.being_made),
        choices=looked.choices,
        one_pod=tuple(looked.one_pod),
        one_node=tuple(looked.one_node),
        seen=_Seen(tuple(looked.kept), tuple(looked.filed), looked.all_classes),
    )


def awaited(template: Mapping[str, Any], namespace: str, pod: str, reader: Reader) -> Awaited | None:
    """The first claim of a Pod with a template whose volume was requested from a provisioner; None where none waits."""
    for source in sources(template):
        name = source.claim or f"{pod}-{source.volume}"  # as Kubernetes calls what it makes of an ephemeral volume
        claim = reader.all(VOLUME_CLAIMS).get((namespace, name))
        if claim is not None and claim.selected_node and not claim.is_bound:
            return Awaited(name, claim.selected_node, bool(source.claim))
    return None


def _source(entry: Mapping[str, Any]) -> ClaimVolume | None:
    name = entry.get("name")
    title = name if isinstance(name, str) else ""
    named = entry.get("persistentVolumeClaim")
    if isinstance(named, dict):
        claim = named.get("claimName")
        return ClaimVolume(claim, title) if isinstance(claim, str) and claim else None
    ephemeral = entry.get("ephemeral")
    template = ephemeral.get("volumeClaimTemplate") if isinstance(ephemeral, dict) else None
    spec = template.get("spec") if isinstance(template, dict) else None
    try:
        return ClaimVolume("", title, claim_to_be(msgspec.convert(spec, ClaimSpec))) if isinstance(spec, dict) else None
    except msgspec.ValidationError:
        return None


class _Look:
    """One check of a job's volumes, in the order of its template: the first unavailable one counts."""

    def __init__(self, namespace: str, reader: Reader) -> None:
        self.unavailable: str | None = None
        self.reach: list[VolumeReach] = []
        self.being_made: list[str] = []
        self.choices: tuple[NodeAffinity, ...] = ()
        self.one_pod: list[str] = []
        self.one_node: list[str] = []
        self.kept: list[tuple[Table[Any, Any], Any, Any]] = []
        self.filed: list[tuple[Index[Any, Any, Any, Any], Any, tuple[Any, ...]]] = []
        self.all_classes: object = None
        self._namespace = namespace
        self._reader = reader

    def at(self, source: ClaimVolume) -> None:
        """Checks one more."""
        if source.to_be is not None:
            self._look_at_class(source, source.to_be)
            return
        claim = self._kept(VOLUME_CLAIMS, (self._namespace, source.claim))
        title = _titled(source.claim)
        if claim is None:
            self._miss(f"{title} is not there: create it in namespace {self._namespace}")
        elif claim.is_going:
            self._miss(f"{title} is being deleted: create it again once it is gone")
        elif claim.is_lost:
            self._miss(f"{title} has lost its volume {short(claim.volume)}: bring that back, or create the claim again")
        elif claim.is_bound:
            self._look_at_volume(claim, title)
        else:
            self._look_at_class(source, claim)
        if claim is not None and ONE_POD in claim.modes:
            self.one_pod.append(source.claim)

    def _kept(self, table: Table[K, V], key: K) -> V | None:
        found = self._reader.all(table).get(key)
        self.kept.append((table, key, found))
        return found

    def _filed(self, index: Index[Any, Any, F, M], key: F) -> tuple[M, ...]:
        found = self._reader.under(index, key)
        self.filed.append((index, key, found))
        return found

    def _miss(self, words: str) -> None:
        if self.unavailable is None:
            self.unavailable = words

    def _look_at_volume(self, claim: PersistentVolumeClaim, title: str) -> None:
        volume = self._kept(VOLUMES, claim.volume)
        if volume is None:
            self._miss(
                f"{title} is bound to PersistentVolume {short(claim.volume)}, which is not there: bring that back, or "
                "create the claim again"
            )
            return
        if volume.reach is not None:
            self.reach.append(VolumeReach(f"{title} (PersistentVolume {short(volume.name)})", volume.reach))
        if _is_of_one_node(volume.modes):
            self.one_node.append(claim.name)

    def _look_at_class(self, source: ClaimVolume, claim: PersistentVolumeClaim) -> None:
        """A claim without a volume: which provisioner gives it one, and when."""
        title = _titled(source.claim) if source.claim else f"the ephemeral volume {short(source.volume)}"
        found = self._class_of(source, claim, title)
        if found is None:
            return
        if not found.waits or claim.volume:
            self._look_at_binding(source, claim, found, title)
            return
        if source.claim and _is_of_one_node(claim.modes):
            self.one_node.append(source.claim)
        if claim.selected_node:
            self.being_made.append(source.claim)
            self._miss(
                f"{title} waits for its volume, which {short(found.provisioner)} is to make for node "
                f"{short(claim.selected_node)}: kubectl describe pvc {short(claim.name)} tells how far that is"
            )
            return
        self._look_for_volumes(source, claim, found, title)

    def _class_of(self, source: ClaimVolume, claim: PersistentVolumeClaim, title: str) -> StorageClass | None:
        if claim.storage_class:
            found = self._kept(STORAGE_CLASSES, claim.storage_class)
            if found is None:
                self._miss(
                    f"{title} is not bound, and its StorageClass {short(claim.storage_class)} is not there: create "
                    "that, or name another one"
                )
            return found
        if source.claim:
            self._miss(
                f"{title} is not bound, and names no StorageClass: make a PersistentVolume for it, or create it again "
                "with a StorageClass"
            )
            return None
        # Kubernetes takes the default one that was made last.
        classes = self._reader.all(STORAGE_CLASSES)
        self.all_classes = classes
        defaults = [each for each in classes.values() if each.is_default]
        return max(defaults, key=lambda each: (each.created, each.name), default=None)

    def _look_at_binding(
        self, source: ClaimVolume, claim: PersistentVolumeClaim, found: StorageClass, title: str
    ) -> None:
        """A claim bound without waiting for a Pod: an existing one should be bound by now."""
        if source.claim:
            volume = f" to PersistentVolume {short(claim.volume)}" if claim.volume else ""
            maker = f" by {short(found.provisioner)}" if found.provisions and not claim.volume else ""
            self._miss(
                f"{title} is not bound{volume} yet, as StorageClass {short(found.name)} has it before any Pod runs"
                f"{maker}: kubectl describe pvc {short(claim.name)} tells what is missing"
            )
        elif found.provisions and found.allowed is not None:
            self.reach.append(VolumeReach(f"{title} (StorageClass {short(found.name)})", found.allowed))

    def _look_for_volumes(
        self, source: ClaimVolume, claim: PersistentVolumeClaim, found: StorageClass, title: str
    ) -> None:
        """A claim bound to an existing volume, or to one made where its first Pod runs."""
        volumes = self._volumes_for(claim)
        if volumes is None or (found.provisions and found.allowed is None):
            return
        what = f"{title} (StorageClass {short(found.name)})"
        if not volumes and not found.provisions:
            self._miss(
                f"{title} is not bound, and StorageClass {short(found.name)} has no free PersistentVolume that suits "
                "it: make one, or free one"
            )
            return
        allowed = found.allowed if found.provisions else None
        known = [volume.reach for volume in volumes if volume.reach is not None]
        if len(known) == len(volumes):
            self.reach.append(VolumeReach(what, any_of(known if allowed is None else [*known, allowed])))
            if source.claim and not self.choices:
                self.choices = _choices(known, allowed)

    def _volumes_for(self, claim: PersistentVolumeClaim) -> tuple[PersistentVolume, ...] | None:
        """The volumes that it may be bound to; None where there are too many to look at."""
        wanted = claim.wanted
        if wanted is None:
            return ()
        meant = [
            volume
            for volume in (self._filed(VOLUMES_MEANT_FOR, claim.key) if claim.name else ())
            if volume.claimed_by is not None and volume.claimed_by[2] in {"", claim.uid}
        ]
        there = meant or self._filed(FREE_VOLUMES, claim.storage_class)
        if len(there) > MOST_FREE:
            return None
        return tuple(volume for volume in there if volume.free is not None and volume.free.suits(wanted))


def _choices(volumes: Iterable[NodeAffinity], allowed: NodeAffinity | None) -> tuple[NodeAffinity, ...]:
    """The nodes of each volume that a claim may get: existing ones, and one made in a topology that its class allows.
    None where there is no choice, or too much of it."""
    found = dict.fromkeys(volumes)
    for term in allowed.terms if allowed is not None else ():
        for values in product(*(sorted(label.values) for label in term.labels)):
            labels = tuple(_only(label, value) for label, value in zip(term.labels, values, strict=True))
            found[NodeAffinity((Term(labels, ()),))] = None
            if len(found) > MOST_CHOICES:
                return ()
    return tuple(found) if 1 < len(found) <= MOST_CHOICES else ()


def _only(label: NodeRequirement, value: str) -> NodeRequirement:
    return NodeRequirement(label.key, label.operator, frozenset((value,)))


def _is_of_one_node(modes: frozenset[str]) -> bool:
    """Whether the volume attaches to one node at a time (the attach-detach controller's isMultiAttachForbidden)."""
    return bool(modes) and modes <= {ONE_NODE, ONE_POD}


def _titled(claim: str) -> str:
    return f"PersistentVolumeClaim {short(claim)}"


def _said(affinity: NodeAffinity) -> str:
    """`is only on nodes whose kubernetes.io/hostname is gpu-07`, for people."""
    terms = [term for term in affinity.terms if {each.operator for each in term.labels} != {Operator.DOES_NOT_EXIST}]
    told = ", or ".join(" and ".join(map(_meant, term.labels)) for term in terms[:_SAID_TERMS])
    more = f", or {len(terms) - _SAID_TERMS} more terms" if len(terms) > _SAID_TERMS else ""
    return f"is only on nodes whose {told}{more}" if told else "is on no node"


def _meant(requirement: NodeRequirement) -> str:
    values = names(sorted(requirement.values))
    match requirement.operator:
        case Operator.IN:
            return f"{requirement.key} is {values}"
        case Operator.NOT_IN:
            return f"{requirement.key} is not {values}"
        case Operator.EXISTS:
            return f"{requirement.key} exists"
        case Operator.DOES_NOT_EXIST:
            return f"{requirement.key} does not exist"
        case Operator.GREATER:
            return f"{requirement.key} is above {values}"
        case Operator.LESS:
            return f"{requirement.key} is below {values}"
