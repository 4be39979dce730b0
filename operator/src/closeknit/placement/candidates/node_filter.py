"""kube-scheduler's rules for whether a job's Pods may run on a node at all."""

from collections.abc import Mapping

from closeknit.api.affinity import NodeAffinity, holds
from closeknit.api.toleration import GPU_TOLERATION
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.taints_and_faults import Taint
from closeknit.placement.values.request import Request, Toleration, toleration

_USUAL = toleration(GPU_TOLERATION)
# What Kubernetes itself says of a node's state: cordoned, short of disk or memory, out of service.
_OF_STATE = "node.kubernetes.io/"


def admits(view: NodeView, request: Request) -> bool:
    """Whether the job's Pods may run on a node: its selection, its tolerations, and what it avoids."""
    return (
        view.name not in request.avoided
        and selected(view.name, view.labels, request)
        and not untolerated(view.taints, request)
    )


def selected(name: str, labels: Mapping[str, str], request: Request) -> bool:
    """Whether the job selects a node of this name and these labels, with all its volumes."""
    return is_chosen(name, labels, request) and in_reach(name, labels, request)


def is_chosen(name: str, labels: Mapping[str, str], request: Request) -> bool:
    """Whether the job's template selects it: by node selector and node affinity."""
    if any(labels.get(key) != value for key, value in request.node_selector):
        return False
    return request.affinity is None or meets(name, labels, request.affinity)


def in_reach(name: str, labels: Mapping[str, str], request: Request) -> bool:
    """Whether the job's Pods can have their volumes on it."""
    return all(meets(name, labels, each) for each in request.volumes)


def untolerated(taints: tuple[Taint, ...], request: Request) -> tuple[Taint, ...]:
    """Those taints that the job's Pods do not tolerate."""
    tolerations = tolerated(request)
    return tuple(taint for taint in taints if not any(_tolerates(entry, taint) for entry in tolerations))


def tolerated(request: Request) -> tuple[Toleration, ...]:
    """The Pods' tolerations: the one place for those that are not the user's own."""
    return (*request.tolerations, _USUAL)


def is_kept(spare_for: str, request: Request) -> bool:
    """Whether a node is kept from the job, as a spare one of this queue; of no queue, if that is empty."""
    return bool(spare_for) and spare_for not in request.spare_queues


def meets(name: str, labels: Mapping[str, str], affinity: NodeAffinity) -> bool:
    """Whether an affinity accepts a node of this name and these labels."""
    for term in affinity.terms:
        for each in term.labels:
            if not holds(each, labels.get(each.key)):
                break
        else:
            if all(holds(each, name) for each in term.names):
                return True
    return False


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """The rule of Kubernetes: an empty key with Exists tolerates everything, an empty effect every effect. But for what
    it says of a node's state: who tolerates all taints means those of administrators, and a gang that goes where it was
    drained from is evicted, placed there, and evicted again."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists" and not taint.key.startswith(_OF_STATE)
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
