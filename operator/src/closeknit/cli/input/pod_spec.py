"""What an API server, or closeknit's own admission, would refuse of a Pod template, as far as the template alone tells.

Field names and types are those of the Kubernetes client's models (pod_fields.json). What is checked beyond them is what
people get wrong: images, names, quantities, mounts, words of a closed list.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from closeknit.api.text.quantity import quantity
from closeknit.cli.input.manifest import Way
from closeknit.cli.input.strict import shown

Fault = tuple[Way, str]
"""Where something is wrong below the template, and what is allowed there."""

LIFTED = "closeknit.dev/unrestricted-templates"  # the label of a namespace whose templates may be anything
_MOST_SHOWN = 12  # fields of a type; of more, only what is alike is told

# What the policy of helm/closeknit/templates/admission/_admitted.tpl has: a test compares them.
POD_FIELDS = frozenset({
    "containers", "initContainers", "volumes", "restartPolicy", "terminationGracePeriodSeconds", "imagePullSecrets",
    "securityContext", "tolerations", "nodeSelector", "serviceAccountName", "automountServiceAccountToken",
    "enableServiceLinks", "dnsPolicy", "dnsConfig", "runtimeClassName", "hostUsers", "shareProcessNamespace",
    "activeDeadlineSeconds", "affinity", "resources",
})  # fmt: skip
VOLUME_FIELDS = frozenset({
    "name", "emptyDir", "configMap", "secret", "persistentVolumeClaim", "projected", "downwardAPI", "ephemeral",
    "image",
})  # fmt: skip
# Other fields that it takes at these values.
_SPARED: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), (False,)),
    **dict.fromkeys(("hostname", "subdomain", "nodeName", "priorityClassName"), ("",)),
    "schedulerName": ("", "default-scheduler"),
}
_RESERVED_LABEL = re.compile(r"([a-z0-9.-]*[.])?(closeknit[.]dev|kueue[.]x-k8s[.]io|kubernetes[.]io|k8s[.]io)/")
_RESERVED_ANNOTATION = re.compile(r"([a-z0-9.-]*[.])?(closeknit[.]dev|kubernetes[.]io|k8s[.]io)/")
_SPARED_ANNOTATIONS = frozenset({
    "cluster-autoscaler.kubernetes.io/safe-to-evict", "kubernetes.io/egress-bandwidth",
    "kubernetes.io/ingress-bandwidth",
})  # fmt: skip

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_WORDS: Mapping[tuple[str, str], Sequence[str]] = {
    ("Container", "imagePullPolicy"): ("Always", "IfNotPresent", "Never"),
    ("Container", "terminationMessagePolicy"): ("File", "FallbackToLogsOnError"),
    ("ContainerPort", "protocol"): ("TCP", "UDP", "SCTP"),
    ("PodSpec", "dnsPolicy"): ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    ("Toleration", "operator"): ("Exists", "Equal", "Lt", "Gt"),
    ("Toleration", "effect"): ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    ("SeccompProfile", "type"): ("RuntimeDefault", "Unconfined", "Localhost"),
    ("NodeSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
}  # fmt: skip


def fault(template: Mapping[str, Any]) -> Fault | None:
    """The first mistake that an API server would refuse in the Pods of a template; None where none is found."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return None  # of another type, which `check_template` tells
    return (
        next(_of_metadata(template.get("metadata")), None)
        or next(_of_type(spec, "PodSpec", ("spec",)), None)
        or next(_of_pod(spec), None)
    )


def not_admitted(template: Mapping[str, Any], *, is_lifted: bool) -> Fault | None:
    """The first thing that closeknit's own admission refuses; None where it refuses nothing. `fault` has found none.
    Reserved prefixes it refuses also where an administrator has lifted the rest."""
    reserved = next(_reserved(template.get("metadata") or {}), None)
    return reserved or (None if is_lifted else next(_forbidden(template["spec"]), None))


@cache
def _fields() -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("pod_fields.json").read_text())
    return found


def _of_type(value: Any, kind: str, way: Way) -> Iterator[Fault]:
    """What is of another type than `kind` says, as in pod_fields.json."""
    kind = kind.rstrip("*")
    if value is None or kind == "object":
        return
    if kind.startswith(("List[", "Dict[")):
        inner = kind[5:-1].removeprefix("str, ")
        if kind.startswith("List["):
            if not isinstance(value, list):
                yield way, f"{shown(value)}; should be a list"
                return
            entries: Sequence[tuple[int | str, Any]] = list(enumerate(value))
        else:
            if not isinstance(value, dict):
                yield way, f"{shown(value)}; should be an object"
                return
            entries = list(value.items())
        for key, each in entries:
            yield from _of_type(each, inner, (*way, key))
    elif kind in _SCALARS:
        if wrong := _SCALARS[kind](value):
            yield way, wrong
    elif not isinstance(value, dict):
        yield way, f"{shown(value)}; should be an object"
    else:
        yield from _of_object(value, kind, way)


def _of_object(value: Mapping[str, Any], kind: str, way: Way) -> Iterator[Fault]:
    known = _fields()[kind]
    for field, each in value.items():
        if field not in known:
            yield (*way, field), f"unknown field; {_instead(str(field), known)}"
            continue
        words = _WORDS.get((kind, field))
        if words and each not in (None, "", *words):
            yield (*way, field), f"{shown(each)}; should be {', '.join(words[:-1])} or {words[-1]}"
        yield from _of_type(each, known[field], (*way, field))
    for field, each_kind in known.items():
        if each_kind.endswith("*") and value.get(field) in (None, ""):
            yield (*way, field), "is required"


def _instead(field: str, known: Mapping[str, str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    alike = get_close_matches(field, known, n=1)
    if alike:
        return f"did you mean {alike[0]}?"
    more = ", …" if len(known) > _MOST_SHOWN else ""
    return f"allowed: {', '.join(sorted(known)[:_MOST_SHOWN])}{more}"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"{shown(value)}; write it as a string, in quotes"


def _integer(value: Any) -> str | None:
    return None if isinstance(value, int) and not isinstance(value, bool) else f"{shown(value)}; should be an integer"


def _boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"{shown(value)}; should be true or false"


def _quantity(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return f"{shown(value)}; should be a quantity such as 8, 500m, 80Gi or 1.5T"
    try:
        quantity(value)
    except ValueError as error:
        return f"is no quantity: {error}"
    return None


_SCALARS: Mapping[str, Callable[[Any], str | None]] = {
    "str": _text, "datetime": _text, "int": _integer, "bool": _boolean, "quantity": _quantity, "float": _quantity,
}  # fmt: skip


def _of_metadata(metadata: Any) -> Iterator[Fault]:
    found = metadata if isinstance(metadata, dict) else {}
    for field in ("labels", "annotations"):
        for key, value in (found.get(field) or {}).items():
            if not _KEY.fullmatch(str(key)):
                yield ("metadata", field, key), "is no key of a label or annotation, such as example.com/team"
            if field == "labels" and isinstance(value, str) and not _VALUE.fullmatch(value):
                yield ("metadata", field, key), f"{shown(value)}; a label has at most 63 letters, digits, -, _ and ."


def _of_pod(spec: Mapping[str, Any]) -> Iterator[Fault]:
    """Of a PodSpec whose fields and types are right."""
    volumes: set[str] = set()
    for number, volume in enumerate(spec.get("volumes") or []):
        way: Way = ("spec", "volumes", number)
        yield from _name(volume["name"], way, volumes)
        sources = [field for field, value in volume.items() if field != "name" and value is not None]
        if len(sources) > 1:  # without any it is an emptyDir
            yield way, f"has {' and '.join(sources)}; a volume has one of them"
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or []):
            yield from _of_container(container, ("spec", field, number), names, volumes)
    for key, value in (spec.get("nodeSelector") or {}).items():
        if not _KEY.fullmatch(str(key)) or not _VALUE.fullmatch(str(value)):
            yield ("spec", "nodeSelector", key), f"{shown(value)}; key and value are those of a label"
    for field, least in (("terminationGracePeriodSeconds", 0), ("activeDeadlineSeconds", 1)):
        if (seconds := spec.get(field)) is not None and seconds < least:
            yield ("spec", field), f"is {seconds}; should be {least} at least"


def _of_container(container: Mapping[str, Any], way: Way, names: set[str], volumes: set[str]) -> Iterator[Fault]:
    yield from _name(container["name"], way, names)
    image = container.get("image")
    if not image:
        yield (*way, "image"), "is required: a container has an image"
    elif image != image.strip():
        yield (*way, "image"), f"{shown(image)}; has blanks around it"
    yield from _of_resources(container.get("resources") or {}, (*way, "resources"))
    for number, entry in enumerate(container.get("env") or []):
        if "=" in entry["name"]:
            yield (*way, "env", number, "name"), f"{shown(entry['name'])}; a variable's name has no ="
        if entry.get("value") and entry.get("valueFrom"):
            yield (*way, "env", number), "has both value and valueFrom; give it one of them"
    for number, port in enumerate(container.get("ports") or []):
        if not 0 < port["containerPort"] < 1 << 16:
            yield (*way, "ports", number, "containerPort"), f"is {port['containerPort']}; should be 1 to 65535"
    paths: set[str] = set()
    for number, mount in enumerate(container.get("volumeMounts") or []):
        if mount["name"] not in volumes:
            there = f"the template has {', '.join(sorted(volumes))}" if volumes else "the template has none"
            yield (*way, "volumeMounts", number, "name"), f"is {mount['name']!r}, and no volume has that name; {there}"
        if mount["mountPath"] in paths or ":" in mount["mountPath"]:
            words = "; each path is mounted once, and has no colon"
            yield (*way, "volumeMounts", number, "mountPath"), f"{shown(mount['mountPath'])}{words}"
        paths.add(mount["mountPath"])


def _of_resources(resources: Mapping[str, Any], way: Way) -> Iterator[Fault]:
    amounts = {field: _amounts(resources.get(field)) for field in ("limits", "requests")}
    limits = amounts["limits"]
    for field, named in amounts.items():
        for name, amount in named.items():
            at = (*way, field, name)
            if name not in _NATIVE and not name.startswith("hugepages-"):
                if "/" not in name or not _KEY.fullmatch(name):
                    yield at, f"is no resource; there are {', '.join(_NATIVE)}, and others as example.com/fpga"
                elif quantity(amount) % 1:
                    yield at, f"is {amount}; of such a resource there are whole numbers alone"
            if field == "limits":
                continue
            limit = limits.get(name)
            if name not in _NATIVE and (limit is None or quantity(limit) != quantity(amount)):
                yield at, f"is {amount}, and its limit {limit if limit is not None else 'is not set'}; give both alike"
            elif limit is not None and quantity(amount) > quantity(limit):
                yield at, f"is {amount}, above its limit of {limit}"


def _amounts(quantities: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What is asked for by resource; an API server reads a null as 0."""
    return {name: 0 if amount is None else amount for name, amount in (quantities or {}).items()}


def _name(name: str, way: Way, taken: set[str]) -> Iterator[Fault]:
    if not _LABEL.fullmatch(name):
        yield (*way, "name"), f"{shown(name)}; should be at most 63 lower-case letters, digits and dashes"
    if name in taken:
        yield (*way, "name"), f"{shown(name)}, and so is another one's"
    taken.add(name)


def _reserved(metadata: Mapping[str, Any]) -> Iterator[Fault]:
    for key in metadata.get("labels") or {}:
        if _RESERVED_LABEL.match(key) and not key.startswith("app.kubernetes.io/"):
            yield ("metadata", "labels", key), "has a reserved prefix; leave it out"
    for key in metadata.get("annotations") or {}:
        if _RESERVED_ANNOTATION.match(key) and key not in _SPARED_ANNOTATIONS:
            yield ("metadata", "annotations", key), "has a reserved prefix; leave it out"


def _forbidden(spec: Mapping[str, Any]) -> Iterator[Fault]:
    for field, value in spec.items():
        if value is not None and field not in POD_FIELDS and value not in _SPARED.get(field, ()):
            yield ("spec", field), _words()
    for field, value in (spec.get("affinity") or {}).items():
        if value is not None and field != "nodeAffinity":
            yield ("spec", "affinity", field), _words()
    for number, volume in enumerate(spec.get("volumes") or []):
        for field, value in volume.items():
            if value is not None and field not in VOLUME_FIELDS:
                yield ("spec", "volumes", number, field), _words()
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or []):
            yield from _forbidden_in(container, ("spec", field, number))


def _forbidden_in(container: Mapping[str, Any], way: Way) -> Iterator[Fault]:
    security = container.get("securityContext") or {}
    at = (*way, "securityContext")
    for field in ("privileged", "allowPrivilegeEscalation"):
        if security.get(field):
            yield (*at, field), _words()
    if security.get("procMount") not in (None, "Default"):
        yield (*at, "procMount"), _words()
    for number, capability in enumerate((security.get("capabilities") or {}).get("add") or []):
        if capability != "IPC_LOCK":
            yield (*at, "capabilities", "add", number), _words()
    for number, port in enumerate(container.get("ports") or []):
        if port.get("hostPort"):
            yield (*way, "ports", number, "hostPort"), _words()


def _words() -> str:
    return (
        "is not allowed in a TrainingJob template; leave it out, or have an administrator label the namespace "
        f"{LIFTED}=true, and put the Namespace into the file of the cluster"
    )
