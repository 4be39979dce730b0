"""Other names for all that somebody has named, the same for the same, in the order of the true ones.

The order decides between equals, so that a decision on the snapshot is the one on the cluster.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from closeknit.api.names import (
    BARRIER_CONTAINER,
    DEFAULT_CLUSTER_TOPOLOGY,
    DEFAULT_NAMESPACE,
    JOB_LABEL,
    SIDECAR_CONTAINER,
    SPARE_FOR_LABEL,
    TRAINER_CONTAINER,
    child_name,
    child_named,
)
from closeknit.cluster.network.levels import SCHEMES

# Kinds whose names are taken for what they are, for closeknit and its drivers know them by these.
_KNOWN_KINDS = ("DeviceClass", "ClusterTopology")
_NOUNS = {
    "Node": "node",
    "NodeTopology": "node",
    "TrainingJob": "job",
    "Pod": "pod",
    "ResourceSlice": "slice",
    "ResourceClaim": "claim",
    "PriorityClass": "priority",
    "DeviceTaintRule": "rule",
    "PersistentVolumeClaim": "volume-claim",
    "PersistentVolume": "volume",
    "StorageClass": "storage",
}
_RESERVED = {DEFAULT_NAMESPACE, DEFAULT_CLUSTER_TOPOLOGY, TRAINER_CONTAINER, SIDECAR_CONTAINER, BARRIER_CONTAINER}
_UUID = re.compile(r"(GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Label keys that say what a machine is, not what somebody calls it; the values of all others are names.
_PUBLIC = re.compile(
    r"(nvidia\.com|closeknit\.dev|feature\.node\.kubernetes\.io|node\.kubernetes\.io|cloud\.google\.com)/(?!gke-nodepool$).*"
    r"|(beta\.)?kubernetes\.io/(arch|os)|accelerator|metadata\.name"
)
# Keys that closeknit, or Kubernetes, reads by what they are called; their values are names.
_READ = frozenset(key for scheme in SCHEMES for key in scheme.keys) | {
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
}
_LABELS = ("labels", "nodeSelector", "matchLabels")
_ABOUT_A_KEY = {"operator", "values", "effect"}
# Fields whose strings are amounts or words of a driver, whatever somebody has called so.
_AMOUNTS = ("requests", "limits", "allocatable", "capacity")
_ATTRIBUTE = "string"
# Lists whose entries have a name for their own object alone, or that of an object that is no part of a snapshot.
_INNER = {
    "containers": "container",
    "initContainers": "container",
    "containerStatuses": "container",
    "initContainerStatuses": "container",
    "volumes": "pod-volume",
    "claims": "pod-claim",
    "resourceClaims": "pod-claim",
    "resourceClaimStatuses": "pod-claim",
    "ownerReferences": "owner",
}
# Fields with the name of an object that may be no part of it.
_REFERENCES = ("queue", "resourceClaimName", "claimName", "priorityClassName", "storageClassName", "volumeName")


class Pseudonyms:
    """Those of one snapshot."""

    def __init__(self, objects: Iterable[Mapping[str, Any]]) -> None:
        bodies = list(objects)
        self._names: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._inner: dict[str, dict[str, str]] = {}
        """Noun -> names that hold only in fields of that noun."""
        named: dict[str, set[str]] = {"ns": set()}
        for body in bodies:
            metadata = body["metadata"]
            named["ns"].add(str(metadata.get("namespace") or DEFAULT_NAMESPACE))
            if body["kind"] not in _KNOWN_KINDS:
                named.setdefault(_NOUNS.get(body["kind"], "object"), set()).add(str(metadata["name"]))
        for noun, names in named.items():
            self._number(noun, names - _RESERVED)
        for name in sorted(named.get("pod", set()) | named.get("claim", set())):
            child = child_named(name)
            if child is not None and child.job in self._names:
                job = self._names[child.job]
                self._names[name] = child_name(job, child.attempt, child.role, child.index, child.replacement)
        keys, values, queues = set[str](), set[str](), set[str]()
        for body in bodies:
            for key, value in _labels(body):
                if key == SPARE_FOR_LABEL:
                    queues.add(value)
                elif not _PUBLIC.fullmatch(key):
                    keys |= {key} - _READ
                    values.add(value)
        self._keys = {key: f"label-{number}.example.com/name" for number, key in enumerate(sorted(keys), 1)}
        hidden = sorted(values - self._names.keys() - {"", "true", "false"})
        self._values = {value: f"value-{number:05}" for number, value in enumerate(hidden, 1)}
        jobs = [body.get("spec") for body in bodies if body["kind"] == "TrainingJob"]
        queues.update(str(spec["queue"]) for spec in jobs if isinstance(spec, Mapping) and "queue" in spec)
        for queue in sorted(queues):
            self._inner_name("queue", queue)

    def _number(self, noun: str, names: set[str]) -> None:
        for number, name in enumerate(sorted(names), 1):
            self._names.setdefault(name, f"{noun}-{number:05}")

    def of(self, value: Any, field: str = "") -> Any:
        """The same with other names."""
        if isinstance(value, Mapping):
            if field in _LABELS:
                return {self.key(key): self._label(key, each) for key, each in value.items()}
            if field in _AMOUNTS and not any(isinstance(each, Mapping | list) for each in value.values()):
                return dict(value)
            if _is_about_a_key(value):
                return {name: self._expression(value["key"], name, each) for name, each in value.items()}
            return {name: self.of(each, name) for name, each in value.items()}
        if isinstance(value, list):
            noun = _INNER.get(field)
            return [self.of(each, field) if noun is None else self._entry(each, field, noun) for each in value]
        if not isinstance(value, str):
            return value
        if field == _ATTRIBUTE:
            return _UUID.sub(_other_uuid, value)
        if field in _REFERENCES:
            return self._names.get(value) or self._inner_name("queue" if field == "queue" else "unlisted", value)
        if field in ("nodeLabel", "key"):
            return self.key(value)
        return self.name(value)

    def key(self, key: str) -> str:
        """That of a label's or taint's key."""
        return self._keys.get(key, key)

    def name(self, words: str) -> str:
        """That of a name, of some with slashes, or of a uuid; other words as they are."""
        found = self._names.get(words)
        if found is not None:
            return found
        if "/" in words and all(part in self._names for part in words.split("/")):
            return "/".join(map(self.name, words.split("/")))
        return _UUID.sub(_other_uuid, words)

    def _entry(self, value: Any, field: str, noun: str) -> Any:
        found = self.of(value, field)
        if isinstance(found, dict) and isinstance(name := value.get("name"), str):
            known = self._names.get(name) if noun == "owner" else None
            found["name"] = known or self._inner_name(noun, name)
        return found

    def _inner_name(self, noun: str, name: str) -> str:
        known = self._inner.setdefault(noun, {})
        return name if name in ("", *_RESERVED) else known.setdefault(name, f"{noun}-{len(known) + 1:05}")

    def _label(self, key: str, value: Any) -> Any:
        if key == JOB_LABEL and isinstance(value, str):  # of a Pod whose job may be gone
            return self._names.get(value) or self._inner_name("unlisted", value)
        if key == SPARE_FOR_LABEL and isinstance(value, str):
            return self._names.get(value) or self._inner_name("queue", value)
        if _PUBLIC.fullmatch(key) or not isinstance(value, str):
            return self.name(value) if isinstance(value, str) else value
        return self._names.get(value) or self._values.get(value, value)

    def _expression(self, key: str, name: str, value: Any) -> Any:
        if name == "key":
            return self.key(value)
        if name == "values" and isinstance(value, list):
            return [self._label(key, each) for each in value]
        return self._label(key, value) if name == "value" else value


def _is_about_a_key(value: Mapping[str, Any]) -> bool:
    """Whether it is a taint, a toleration, or a term of an affinity or a StorageClass."""
    return isinstance(value.get("key"), str) and not _ABOUT_A_KEY.isdisjoint(value)


def _labels(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Every key and value of labels, selectors and taints."""
    if isinstance(value, Mapping):
        if field in _LABELS:
            yield from ((key, str(each)) for key, each in value.items())
            return
        if _is_about_a_key(value):
            told = value.get("values") or [value.get("value") or ""]
            yield from ((value["key"], str(each)) for each in told)
        if isinstance(value.get("nodeLabel"), str):
            yield value["nodeLabel"], ""
        for name, each in value.items():
            yield from _labels(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from _labels(each, field)


def _other_uuid(found: re.Match[str]) -> str:
    """Of the same form; nobody can find the true one by it."""
    digest = sha256(f"closeknit snapshot {found[0]}".encode()).hexdigest()
    shape = f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    return f"{found[1] or ''}{shape}"
