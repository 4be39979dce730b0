"""Which nodes of a gang are dead, by evidence: what is silent, and what still speaks for them.

A node that Kubernetes calls not Ready while its ranks go on is a blip, and blips are far more common than deaths: no
gang is ended for one sign alone. TABLE is closed: each row is what is seen, and what follows; the first that holds
decides.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from closeknit.cluster.node.node import OUT_OF_SERVICE, NodeView
from closeknit.cluster.objects.silence import Quiet
from closeknit.cluster.pods.gang_runs import GangLink, gang_link
from closeknit.lifecycle.attempt.attempt import Attempt


class NodeState(StrEnum):
    """What the evidence says of a node that a gang is booked on."""

    ALIVE = "Alive"
    BLIP = "Blip"  # something is silent, and something else speaks: nothing follows
    SILENT = "Silent"  # not decided yet
    DEAD = "Dead"  # the gang goes on without it


class Evidence(NamedTuple):
    """What is seen of one node."""

    is_there: bool
    """Whether there is a Node."""
    is_out_of_service: bool
    """Whether an administrator has said so."""
    is_ready: bool
    """Whether the Node's Ready condition is True."""
    quiet: Quiet | None
    """How long neither the kubelet nor the agent has been heard; None while they are."""
    link: GangLink


class EvidenceRow(NamedTuple):
    """What is seen, and what follows."""

    holds: Callable[[Evidence], bool]
    state: NodeState
    words: str
    """Of what is seen, as a clause about the node."""


TABLE: tuple[EvidenceRow, ...] = (
    EvidenceRow(lambda seen: not seen.is_there, NodeState.DEAD, "is no longer there"),
    EvidenceRow(lambda seen: seen.is_out_of_service, NodeState.DEAD, f"has the taint {OUT_OF_SERVICE}"),
    EvidenceRow(lambda seen: seen.quiet is None and seen.is_ready, NodeState.ALIVE, "is well"),
    EvidenceRow(lambda seen: seen.quiet is None, NodeState.BLIP, "is not Ready, and its kubelet is heard"),
    EvidenceRow(lambda seen: seen.link is GangLink.WHOLE, NodeState.BLIP, "is silent, and its ranks are heard"),
    EvidenceRow(lambda seen: seen.quiet is Quiet.OVERDUE, NodeState.SILENT, "has missed a renewal of its Lease"),
    EvidenceRow(
        lambda seen: seen.link is GangLink.BROKEN,
        NodeState.DEAD,
        f"is silent: for {Quiet.SILENT:d} s its kubelet has not renewed its Lease, and neither its agent nor its ranks "
        "are heard",
    ),
    EvidenceRow(
        lambda seen: seen.link is GangLink.WAITING and seen.quiet is not Quiet.OVERDUE,
        NodeState.DEAD,
        f"is silent: for {Quiet.SILENT:d} s its kubelet has not renewed its Lease, its agent is not heard, and the "
        "other Pods wait for its Pod to begin again",
    ),
    # Nothing tells of the ranks. Then two who judge apart from each other must agree, and Kubernetes takes 50 s for it.
    EvidenceRow(
        lambda seen: seen.quiet is Quiet.LONG and not seen.is_ready,
        NodeState.DEAD,
        f"is silent: for {Quiet.LONG:d} s its kubelet has not renewed its Lease, its agent is not heard, and it is not "
        "Ready",
    ),
    EvidenceRow(lambda _: True, NodeState.SILENT, "is silent, and nothing tells of its ranks"),
)


def judged(seen: Evidence) -> EvidenceRow:
    """What follows from the evidence."""
    return next(row for row in TABLE if row.holds(seen))


def evidence(view: NodeView | None, link: GangLink) -> Evidence:
    """What is seen of a node whose gang says this of itself."""
    if view is None:
        return Evidence(False, False, False, None, link)
    quiet = None if view.silence is None else view.silence.quiet
    return Evidence(view.is_there, view.is_out_of_service, view.is_ready, quiet, link)


def dead_nodes(attempt: Attempt) -> dict[str, str]:
    """The dead nodes of the gang, each with the words about it: those of bound Pods whose ranks have not succeeded."""
    nodes, found = attempt.subject.cluster.nodes, dict[str, str]()
    for share, pod in zip(attempt.shares, attempt.pods, strict=True):
        is_there = attempt.has_run or (pod is not None and bool(pod.node))
        if share.succeeded or not is_there or share.node in found:
            continue
        view = nodes.get(share.node)
        if view is not None and view.silence is None and view.is_there and not view.taints:  # as a rule
            continue
        row = judged(evidence(view, _link(attempt)))
        if row.state is NodeState.DEAD:
            found[share.node] = f"node {share.node} {row.words}"
    return found


def _link(attempt: Attempt) -> GangLink:
    """What the first teller whose kubelet is heard says of the gang; unknown while a Pod that it misses may not have
    started yet."""
    nodes = attempt.subject.cluster.nodes

    def is_heard(name: str) -> bool:
        view = nodes.get(name)
        return view is not None and view.is_there and view.silence is None

    link = gang_link(attempt.present, attempt.booking.workers, is_heard)
    is_known = attempt.has_run if link is GangLink.WAITING else link is not GangLink.BROKEN or attempt.runs
    return link if is_known else GangLink.UNKNOWN
