"""Nodes that did not take a Pod of a job: the job goes elsewhere for a while.

All of it is read from the ended attempts in the job's status, so that a restart of the operator forgets none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Attempt, UnfitNode
from closeknit.cluster.booking import names
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.exposure import exposure
from closeknit.cluster.node import NodeView
from closeknit.lifecycle.conditions import moment, timestamp
from closeknit.lifecycle.pauses import is_between

# What a scheduler or a kubelet lacks on a node is most often what other Pods hold, and they come and go; nobody tells
# us, so that the node is tried again at the pace of people.
AVOIDED_FOR = timedelta(minutes=10)
KEPT_NODES = 16  # of one attempt, as the schema bounds them
_TOLD_ATTEMPTS = 2  # in the words of a refusal


@dataclass(frozen=True, slots=True)
class Avoided:
    """The nodes that a job does not go to now."""

    nodes: frozenset[str] = frozenset()
    until: datetime | None = None
    """When the first of them may be taken again though it has not changed."""
    words: str = ""
    """Which they are, why, and until when, for people."""


NOWHERE = Avoided()


def avoided(job: TrainingJob, cluster: Cluster, now: datetime) -> Avoided:
    """The nodes that the job avoids now: they refused a Pod of it lately, and are what they were then."""
    found: list[tuple[Attempt, datetime, list[str]]] = []
    for attempt in reversed(job.status.attempts):
        if not attempt.unfit:
            continue
        ended = moment(attempt.ended)
        until = ended + AVOIDED_FOR
        if not is_between(ended, now, until):
            continue
        known = {name for *_, others in found for name in others}
        same = [unfit.name for unfit in attempt.unfit if unfit.name not in known and _is_same(unfit, cluster)]
        if same:
            found.append((attempt, until, same))
    if not found:
        return NOWHERE
    return Avoided(
        nodes=frozenset(name for *_, same in found for name in same),
        until=min(until for _, until, _ in found),
        words="; ".join(
            f"{names(same)} {'is' if len(same) == 1 else 'are'} avoided until {timestamp(until)}"
            f" since attempt {attempt.number} ended there: {attempt.message or attempt.reason}"
            for attempt, until, same in found[:_TOLD_ATTEMPTS]
        ),
    )


def unfit(nodes: Iterable[str], cluster: Cluster) -> list[UnfitNode] | None:
    """The nodes as they are now, to be stored with the attempt that ended by them; None where there are none."""
    views = (cluster.nodes.get(name) for name in sorted(set(nodes)))
    found = [UnfitNode(name=view.name, state=_state(view)) for view in views if view is not None]
    return found[:KEPT_NODES] or None


def _is_same(unfit: UnfitNode, cluster: Cluster) -> bool:
    view = cluster.nodes.get(unfit.name)
    return view is not None and _state(view) == unfit.state


def _state(view: NodeView) -> str:
    """What of a node people and agents change. What Pods hold is left out: our own leave it with the attempt."""
    plugin = view.plugin and (view.plugin.allocatable, view.plugin.capacity, view.plugin.shared)
    offered = (view.allocatable or {}).items()  # which of these a Pod would be given depends on what others hold
    rdma = sorted(name for name, amount in offered if amount and exposure(name))
    facts = (
        sorted(view.labels.items()),
        [(taint.key, taint.value, taint.effect) for taint in view.taints],
        view.exclusion and (view.exclusion.reason.value, view.exclusion.since),
        view.topology_generation,
        [(index, fault.kind.value) for index, fault in view.unusable.items()],
        view.dra,
        plugin,
        rdma,
    )
    return sha256(repr(facts).encode()).hexdigest()[:16]
