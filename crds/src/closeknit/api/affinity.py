"""The required node affinity of a Pod template, read by the API server's own rules.

What it means for a node is kube-scheduler's (closeknit.placement.candidates.node_filter); here is what it says. Volumes
bear the same (closeknit.cluster.objects.storage).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from sys import intern
from typing import Any, NamedTuple

from closeknit.api.text.opaque import MalformedError, found, list_at, object_at, objects_at

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAME_FIELD = "metadata.name"  # the one field of a Node that matchFields may name
# Each is asked of every node whenever a node comes or a label changes: 64 of 5,000 nodes take 0.1 s. People write a
# handful; a list of nodes is the values of one.
MOST_REQUIREMENTS = 64

# Syntax of label keys and values and of node names: k8s.io/apimachinery, validation.
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN_LENGTH = 253
_KEY = re.compile(rf"((?P<prefix>{_SUBDOMAIN})/)?{_NAME}", re.ASCII)
_VALUE = re.compile(rf"({_NAME})?", re.ASCII)
_VALUE_LENGTH = 63
_MOST_INT64 = (1 << 63) - 1
_NODE_NAME = re.compile(_SUBDOMAIN, re.ASCII)


class Operator(StrEnum):
    """How the values of a requirement are meant."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


# Every node is asked, and a member of an enum is found several times as quickly by a name of its own.
_IN, _NOT_IN, _GREATER = Operator.IN, Operator.NOT_IN, Operator.GREATER
_EXISTS, _DOES_NOT_EXIST = Operator.EXISTS, Operator.DOES_NOT_EXIST


class NodeRequirement(NamedTuple):
    """What is required of one label, or of the node's name."""

    key: str
    operator: Operator
    values: frozenset[str]
    bound: int | None = None
    """Of Gt and Lt the one value; None where it is no number, so that no node meets it."""


class Term(NamedTuple):
    """A node must meet all of a term."""

    labels: tuple[NodeRequirement, ...]
    names: tuple[NodeRequirement, ...]
    """Of the node's name."""


@dataclass(frozen=True, slots=True)
class NodeAffinity:
    """A node must meet one of the terms; none does where there is no term."""

    terms: tuple[Term, ...]
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        return self._hash


def required_node_affinity(spec: dict[str, Any], path: str) -> NodeAffinity | None:
    """The required node affinity of a Pod's spec, which lies at this path; None where it has none.

    Raises MalformedError for what the API server refuses, and for more than a decision can look at.
    """
    affinity = object_at(spec, "affinity", path)
    nodes = object_at(affinity, "nodeAffinity", f"{path}.affinity")
    required = object_at(nodes, REQUIRED, f"{path}.affinity.nodeAffinity")
    if nodes.get(REQUIRED) is None:
        return None
    path = f"{path}.affinity.nodeAffinity.{REQUIRED}"
    given = objects_at(required, "nodeSelectorTerms", path)
    if not given:
        raise MalformedError(f"{path}.nodeSelectorTerms has no term; give it one, or remove the rule")
    terms = []
    count = 0
    for index, term in enumerate(given):
        at = f"{path}.nodeSelectorTerms[{index}]"
        labels = [label_requirement(entry, where) for where, entry in _requirements(term, "matchExpressions", at)]
        names = [_of_name(entry, where) for where, entry in _requirements(term, "matchFields", at)]
        count += len(labels) + len(names)
        if labels or names:  # an empty term selects no node
            terms.append(Term(tuple(labels), tuple(names)))
    if count > MOST_REQUIREMENTS:
        raise MalformedError(
            f"{path} has {count} requirements, and at most {MOST_REQUIREMENTS} are looked at; name many nodes in the "
            "values of one, or give them a label"
        )
    return NodeAffinity(tuple(terms))


def holds(requirement: NodeRequirement, value: str | None) -> bool:
    """Whether a value meets a requirement; None where the node has none."""
    _, operator, values, bound = requirement
    if operator is _IN:
        return value in values
    if operator is _NOT_IN:
        return value not in values
    if operator is _EXISTS:
        return value is not None
    if operator is _DOES_NOT_EXIST:
        return value is None
    number = None if bound is None or value is None else int64(value)
    if bound is None or number is None:
        return False
    return number > bound if operator is _GREATER else number < bound


def is_label_value(text: str) -> bool:
    """Whether the API server takes a text as the value of a label, and it is not empty."""
    return bool(text) and _VALUE.fullmatch(text) is not None


def int64(value: str) -> int | None:
    """The number that a label's value is to kube-scheduler, which has no sign; None where it is none."""
    if len(value) > _VALUE_LENGTH or not value.isascii() or not value.isdecimal():
        return None
    number = int(value)
    return number if number <= _MOST_INT64 else None


def _requirements(term: dict[str, Any], field: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((f"{path}.{field}[{index}]", entry) for index, entry in enumerate(objects_at(term, field, path)))


def label_requirement(entry: dict[str, Any], path: str) -> NodeRequirement:
    """What one entry of matchExpressions requires of a label. Raises MalformedError for what the API server refuses."""
    key, operator, values = _read(entry, path, tuple(Operator))
    match = _KEY.fullmatch(key)
    if match is None or len(match["prefix"] or "") > _SUBDOMAIN_LENGTH:
        raise MalformedError(f"{path}.key is {found(key)}; it must be the key of a label")
    match operator:
        case Operator.IN | Operator.NOT_IN if not values:
            raise MalformedError(f"{path}.values is empty; {operator} needs one or more")
        case Operator.EXISTS | Operator.DOES_NOT_EXIST if values:
            raise MalformedError(f"{path}.values has {len(values)}; {operator} takes none")
        case Operator.GREATER | Operator.LESS if len(values) != 1:
            raise MalformedError(f"{path}.values has {len(values)}; {operator} needs exactly one")
    for index, value in enumerate(values):
        if not _VALUE.fullmatch(value):
            raise MalformedError(f"{path}.values[{index}] is {found(value)}; it must be the value of a label")
    is_bound = operator in (Operator.GREATER, Operator.LESS)
    return NodeRequirement(key, operator, frozenset(map(intern, values)), int64(values[0]) if is_bound else None)


def _of_name(entry: dict[str, Any], path: str) -> NodeRequirement:
    key, operator, values = _read(entry, path, (Operator.IN, Operator.NOT_IN))
    if key != NAME_FIELD:
        raise MalformedError(f"{path}.key is {found(key)}; the only field of a node is {NAME_FIELD}")
    if len(values) != 1:
        raise MalformedError(f"{path}.values has {len(values)}; a field takes exactly one")
    if not _NODE_NAME.fullmatch(values[0]) or len(values[0]) > _SUBDOMAIN_LENGTH:
        raise MalformedError(f"{path}.values[0] is {found(values[0])}; it must be the name of a node")
    return NodeRequirement(
        key, operator, frozenset(map(intern, values))
    )  # a node's name is there once for all that name it


def _read(entry: dict[str, Any], path: str, operators: tuple[Operator, ...]) -> tuple[str, Operator, list[str]]:
    key, operator = entry.get("key"), entry.get("operator")
    if not isinstance(key, str):
        raise MalformedError(f"{path}.key is {found(key)}; it must be a string")
    if operator not in operators:
        raise MalformedError(
            f"{path}.operator is {found(operator)}; it must be {', '.join(operators[:-1])} or {operators[-1]}"
        )
    values = list_at(entry, "values", path)
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise MalformedError(f"{path}.values[{index}] is {found(value)}; write it as a string, in quotes")
    return key, Operator(operator), values
