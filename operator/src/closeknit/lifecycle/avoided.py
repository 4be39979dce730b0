"""Nodes that did not take a Pod of a job: the job goes elsewhere for a while.

All of it is read from the ended attempts in the job's status, so that a restart of the operator forgets none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Attempt, UnfitNode
from closeknit.cluster.booking import names
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.exposure import exposure
from closeknit.cluster.node import NodeView
from closeknit.cluster.pod import Pod
from closeknit.lifecycle.children import is_own
from closeknit.lifecycle.conditions import moment, timestamp
from closeknit.lifecycle.pauses import is_between, lingers_from

# What a scheduler or a kubelet lacks on a node is most often what other Pods hold, and they come and go; nobody tells
# us, so that the node is tried again at the pace of people.
AVOIDED_FOR = timedelta(minutes=10)
KEPT_NODES = 16  # of one attempt, as the schema bounds them
_TOLD_ATTEMPTS = 2  # in the words of a refusal
_NEVER = datetime.max.replace(tzinfo=UTC)


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
        stuck = _overdue(job, attempt.number, ended, cluster)
        same = [each.name for each in attempt.unfit if each.name not in known and _is_same(each, cluster, stuck)]
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


def unfit(nodes: Iterable[str], job: TrainingJob, cluster: Cluster, now: datetime) -> list[UnfitNode] | None:
    """The nodes as they are now, to be stored with the job's attempt that ends by them; None where there are none."""
    views = (cluster.nodes.get(name) for name in sorted(set(nodes)))
    stuck = _overdue(job, job.status.attempt or 1, moment(timestamp(now)), cluster)
    found = [UnfitNode(name=view.name, state=_state(view, stuck)) for view in views if view is not None]
    return found[:KEPT_NODES] or None


def _overdue(job: TrainingJob, attempt: int, ended: datetime, cluster: Cluster) -> tuple[Pod, ...]:
    """Own Pods that were there longer than they should have been when this attempt ended, and still are: those of
    attempts before it, and its own whose grace period was long over."""
    return tuple(
        pod
        for pod in cluster.pods_of(job.key)
        if is_own(pod, job)
        and pod.is_live
        and (
            (pod.attempt or 0) < attempt
            or (
                pod.attempt == attempt
                and pod.deletion_timestamp is not None
                and lingers_from(pod.deletion_timestamp, _NEVER) <= ended
            )
        )
    )


def _is_same(unfit: UnfitNode, cluster: Cluster, stuck: Iterable[Pod]) -> bool:
    view = cluster.nodes.get(unfit.name)
    return view is not None and _state(view, stuck) == unfit.state


def _state(view: NodeView, stuck: Iterable[Pod]) -> str:
    """What of a node people and agents change, and which Pods are `stuck` there. What else Pods hold is left out: our
    own leave it with the attempt."""
    plugin = view.plugin and (view.plugin.allocatable, view.plugin.capacity, view.plugin.shared)
    offered = (view.allocatable or {}).items()  # which of these a Pod would be given depends on what others hold
    rdma = sorted(name for name, amount in offered if amount and exposure(name))
    rdma += view.rdma.functions if view.rdma else ()
    rdma += [] if view.nics is None else [view.nics.resource, *view.nics.addresses.values()]
    held_by = sorted(pod.name for pod in stuck if pod.node in {"", view.name})  # one that is nowhere was meant for it
    facts = (
        sorted(view.labels.items()),
        [(taint.key, taint.value, taint.effect) for taint in view.taints],
        view.exclusion and (view.exclusion.reason.value, view.exclusion.since),
        view.topology_generation,
        [(index, fault.kind.value) for index, fault in view.unusable.items()],
        view.dra,
        plugin,
        rdma,
        held_by,
    )
    return sha256(repr(facts).encode()).hexdigest()[:16]
