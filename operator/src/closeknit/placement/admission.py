"""Whether the Pods of a job may run on a node at all, by the rules of kube-scheduler."""

from collections.abc import Mapping

from closeknit.api.affinity import NodeAffinity, Operator, Requirement, Term
from closeknit.api.toleration import GPU_TOLERATION
from closeknit.cluster.node import NodeView, Taint
from closeknit.placement.request import Request, Toleration, toleration

_USUAL = toleration(GPU_TOLERATION)
_MOST_INT64 = (1 << 63) - 1
_LONGEST_VALUE = 63  # characters of a label's value, which has no sign


def admits(view: NodeView, request: Request) -> bool:
    """Whether the job's Pods may run on a node: its selection, its tolerations, and what it avoids."""
    return (
        view.name not in request.avoided
        and selected(view.name, view.labels, request)
        and not untolerated(view.taints, request)
    )


def selected(name: str, labels: Mapping[str, str], request: Request) -> bool:
    """Whether a node of this name and these labels is one that the job selects: node selector and node affinity."""
    if any(labels.get(key) != value for key, value in request.node_selector):
        return False
    return request.affinity is None or _meets(name, labels, request.affinity)


def untolerated(taints: tuple[Taint, ...], request: Request) -> tuple[Taint, ...]:
    """Those taints that the job's Pods do not tolerate."""
    tolerations = tolerated(request)
    return tuple(taint for taint in taints if not any(_tolerates(entry, taint) for entry in tolerations))


def tolerated(request: Request) -> tuple[Toleration, ...]:
    """What the job's Pods tolerate: the place of every toleration that is not the user's own."""
    return (*request.tolerations, _USUAL)


def _meets(name: str, labels: Mapping[str, str], affinity: NodeAffinity) -> bool:
    return any(_meets_term(name, labels, term) for term in affinity.terms)


def _meets_term(name: str, labels: Mapping[str, str], term: Term) -> bool:
    return all(_holds(each, labels.get(each.key)) for each in term.labels) and all(
        _holds(each, name) for each in term.names
    )


def _holds(requirement: Requirement, value: str | None) -> bool:
    """Whether a value meets a requirement; None where the node has none."""
    match requirement.operator:
        case Operator.IN:
            return value in requirement.values
        case Operator.NOT_IN:
            return value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
        case Operator.GREATER | Operator.LESS as operator:
            (asked,) = requirement.values
            bound, number = _int64(asked), _int64(value or "")
            if bound is None or number is None:
                return False
            return number > bound if operator is Operator.GREATER else number < bound


def _int64(text: str) -> int | None:
    """The number as Go's ParseInt reads it; None where it is none, or does not fit into 64 bits."""
    if len(text) > _LONGEST_VALUE or not text.isascii() or not text.isdecimal():
        return None
    number = int(text)
    return number if number <= _MOST_INT64 else None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """The rule of Kubernetes: an empty key with Exists tolerates everything, an empty effect every effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
