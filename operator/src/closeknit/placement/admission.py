"""Whether the Pods of a job may run on a node at all, by the rules of kube-scheduler."""

from collections.abc import Mapping

from closeknit.api.affinity import NodeAffinity, Operator, Requirement, int64
from closeknit.api.toleration import GPU_TOLERATION
from closeknit.cluster.node import NodeView, Taint
from closeknit.placement.request import Request, Toleration, toleration

# Every node is asked, and a member of an enum is found several times as quickly by a name of its own.
_IN, _NOT_IN, _GREATER = Operator.IN, Operator.NOT_IN, Operator.GREATER
_EXISTS, _DOES_NOT_EXIST = Operator.EXISTS, Operator.DOES_NOT_EXIST
_USUAL = toleration(GPU_TOLERATION)


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
    for term in affinity.terms:
        for each in term.labels:
            if not _holds(each, labels.get(each.key)):
                break
        else:
            if all(_holds(each, name) for each in term.names):
                return True
    return False


def _holds(requirement: Requirement, value: str | None) -> bool:
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


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """The rule of Kubernetes: an empty key with Exists tolerates everything, an empty effect every effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
