"""Whether the Pods of a job may run on a node at all, by the rules of kube-scheduler."""

from collections.abc import Mapping

from closeknit.api.toleration import GPU_TOLERATION
from closeknit.cluster.node import NodeView, Taint
from closeknit.placement.request import Request, Toleration, toleration

_USUAL = toleration(GPU_TOLERATION)


def admits(view: NodeView, request: Request) -> bool:
    """Whether the job's Pods may run on a node: its node selector and tolerations."""
    return selected(view.labels, request) and not untolerated(view.taints, request)


def selected(labels: Mapping[str, str], request: Request) -> bool:
    """Whether a node of these labels is one that the job selects."""
    return all(labels.get(key) == value for key, value in request.node_selector)


def untolerated(taints: tuple[Taint, ...], request: Request) -> tuple[Taint, ...]:
    """Those taints that the job's Pods do not tolerate."""
    tolerations = tolerated(request)
    return tuple(taint for taint in taints if not any(_tolerates(entry, taint) for entry in tolerations))


def tolerated(request: Request) -> tuple[Toleration, ...]:
    """What the job's Pods tolerate: the place of every toleration that is not the user's own."""
    return (*request.tolerations, _USUAL)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """The rule of Kubernetes: an empty key with Exists tolerates everything, an empty effect every effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
