"""A gang of which not all Pods run: a node or the scheduler keeps one from it, and the attempt is to end by that.

Nothing is remembered for it: since when it is so is told by the objects themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from closeknit.api.names import GPU_RESOURCE, MIG_RESOURCE_PREFIX, EndReason, ExclusionReason
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.booking import Share
from closeknit.cluster.node import NodeView
from closeknit.cluster.pod import Pod
from closeknit.lifecycle.attempt import Attempt
from closeknit.lifecycle.children import own_claim
from closeknit.lifecycle.ending import end
from closeknit.lifecycle.freed import freed
from closeknit.lifecycle.pauses import lingers_from, over_at
from closeknit.lifecycle.plan import Plan
from closeknit.lifecycle.unjudged import ENDED_AFTER, own_cause, since
from closeknit.placement.admission import admits, untolerated
from closeknit.placement.request import Request, request

# A rank that cannot be scheduled so long has lost its GPUs: the scheduler sees a device that was just freed within
# 0.05 s (measured on Kubernetes 1.36).
TAKEN_AFTER = timedelta(seconds=2)
# What else a scheduler lacks (CPU, a port, a neighbour) may be on its way out with another Pod's grace period of 30 s.
REFUSED_AFTER = timedelta(seconds=30)
# A kubelet that is restarted says NotReady for some ten seconds, and starts what is bound to it all the same.
SILENT_AFTER = timedelta(seconds=30)

# The scheduler's words for claims that find devices taken, and for a device plugin that has too few left.
_CLAIMS_TAKEN = "cannot allocate all claims"
_GPUS_TAKEN = (f"Insufficient {GPU_RESOURCE}", f"Insufficient {MIG_RESOURCE_PREFIX}")
_BEYOND = frozenset({"Running", "Succeeded", "Failed"})  # phases of a Pod that its node has taken
_REFUSALS = frozenset({"Unschedulable", "SchedulerError"})  # a Pod with gates of the user's own is not refused


@dataclass(frozen=True, slots=True)
class _Hindrance:
    """What keeps the Pod of one node rank from running."""

    reason: EndReason
    message: str
    node: str
    until: datetime | None = None
    """Until when it may mend by itself; None: it will not."""
    is_of_node: bool = True
    """Whether it may be otherwise on another node."""


def stuck(attempt: Attempt) -> Plan | datetime | None:
    """The end of an attempt that is stuck, or the moment when it will be one; None where nothing holds up a Pod."""
    now = attempt.subject.now
    hindrances = _hindrances(attempt)
    over = [each for each in hindrances if each.until is None or now >= each.until]
    if not over:
        return min((each.until for each in hindrances if each.until is not None), default=None)
    first = over[0]
    alike = [each for each in hindrances if each.reason is first.reason]
    more = f" ({len(alike) - 1} more Pods likewise)" if len(alike) > 1 else ""
    return end(attempt, first.reason, f"{first.message}{more}", unfit=_unseen(attempt, [*over, *alike]))


def _hindrances(attempt: Attempt) -> list[_Hindrance]:
    """What keeps Pods from running, by node rank; what no waiting will mend comes first."""
    waiting = [
        index
        for index, pod in enumerate(attempt.pods)
        if pod is None or pod.phase not in _BEYOND or pod.deletion_timestamp is not None
    ]
    if not waiting:
        return []
    job = attempt.subject.job
    asked = request(job.key, job.spec)
    found = [each for index in waiting if (each := _hindrance(attempt, index, asked)) is not None]
    return sorted(found, key=lambda each: each.until is not None)


def _hindrance(attempt: Attempt, index: int, asked: Request) -> _Hindrance | None:
    pod, share = attempt.pods[index], attempt.booking.shares[index]
    if share.succeeded or (pod is not None and pod.phase == "Succeeded"):
        return None
    view = attempt.subject.cluster.nodes.get(share.node)
    if view is None:
        return _Hindrance(EndReason.NODE_CHANGED, f"node {share.node} is no longer there", share.node)
    if pod is not None and pod.node:
        return _silent(attempt, pod, view) if pod.deletion_timestamp is None else _lingering(attempt, pod, view)
    # Nothing has begun here, and the scheduler would refuse the Pod for the same reason: nothing is gained by waiting.
    if words := _unfit(view, asked):
        return _Hindrance(EndReason.NODE_CHANGED, f"node {view.name} takes no new Pod of the job: {words}", view.name)
    if pod is None:
        return None
    if pod.deletion_timestamp is not None:
        return _lingering(attempt, pod, view)
    return _refused(attempt, pod, view.name) or _ignored(attempt, pod, index)


def _silent(attempt: Attempt, pod: Pod, view: NodeView) -> _Hindrance | None:
    """A bound Pod that nobody starts, or ends: its node is not Ready."""
    if view.exclusion is None or view.exclusion.reason is not ExclusionReason.NOT_READY:
        return None
    why = "has not started" if pod.deletion_timestamp is None else "is deleted and not gone"
    message = f"Pod {pod.name} {why}, and its node {view.name} is not ready: {view.exclusion.message}"
    until = over_at(view.exclusion.since, SILENT_AFTER, attempt.subject.now)
    return _Hindrance(EndReason.NODE_CHANGED, message, view.name, until)


def _lingering(attempt: Attempt, pod: Pod, view: NodeView) -> _Hindrance:
    """A Pod that somebody deleted, and that does not go: nothing can be made under its name."""
    until = lingers_from(pod.deletion_timestamp, attempt.subject.now)
    silent = _silent(attempt, pod, view) if pod.node else None
    if silent is not None and (silent.until is None or silent.until <= until):
        return silent  # nobody there heeds the grace period
    message = f"Pod {pod.name} was deleted before the gang ran, and is not gone; the job starts again"
    return _Hindrance(EndReason.CHILD_DELETED, message, view.name, until)


def _unfit(view: NodeView, asked: Request) -> str | None:
    """Why no new Pod of the job may go to a node, as a clause."""
    if view.exclusion is not None:
        return view.exclusion.message
    if taints := untolerated(view.taints, asked):
        return f"it has the taint {taints[0].key}:{taints[0].effect}, which the job does not tolerate"
    return None if admits(view, asked) else "the job's template does not select it any more"


def _refused(attempt: Attempt, pod: Pod, node: str) -> _Hindrance | None:
    """A Pod that the scheduler has not bound, and says why."""
    condition = pod.condition("PodScheduled")
    if condition is None or condition.status != "False" or condition.reason not in _REFUSALS:
        return None
    words, began, now = condition.message or "no reason given", condition.last_transition_time, attempt.subject.now
    if _are_gpus_taken(attempt, pod, words):
        message = f"Pod {pod.name} lost GPUs of node {node} to somebody else ({words}); the job is placed anew"
        return _Hindrance(EndReason.GPU_TAKEN, message, node, over_at(began, TAKEN_AFTER, now))
    message = f"Pod {pod.name} cannot be scheduled on node {node}: {words}"
    return _Hindrance(EndReason.UNSCHEDULABLE, message, node, over_at(began, REFUSED_AFTER, now))


def _ignored(attempt: Attempt, pod: Pod, index: int) -> _Hindrance | None:
    """A Pod that no scheduler looks at, by the template's own cause."""
    cause = own_cause(attempt)
    began = None if cause is None else since(attempt, index)
    if began is None:
        return None
    message = f"no scheduler has looked at Pod {pod.name} for {ENDED_AFTER.total_seconds():.0f} s: {cause}"
    node = attempt.booking.shares[index].node
    return _Hindrance(EndReason.UNSCHEDULABLE, message, node, began + ENDED_AFTER, is_of_node=False)


def _are_gpus_taken(attempt: Attempt, pod: Pod, words: str) -> bool:
    """Whether it says that GPUs are missing, and those of our own claim are. A scheduler allocates all claims of a Pod
    or none, and does not say which it cannot: beside another claim nobody has taken anything for sure."""
    claim = own_claim(attempt.subject.cluster, pod)
    if claim is not None and claim.allocated:
        return False
    is_plugins = any(taken in words for taken in _GPUS_TAKEN)
    return is_plugins or (_CLAIMS_TAKEN in words and all(name == pod.name for name in pod.claims))


def _unseen(attempt: Attempt, hindrances: Sequence[_Hindrance]) -> list[str]:
    """Nodes of which nobody but the Pods that were refused there tells that they are unfit.

    Where a node is excluded, or somebody is seen to hold the GPUs, placement sees it. GPUs that the scheduler finds
    taken by nobody we know (a preemption's nominee, a device that an admin has tainted) are bad luck once.
    """
    avoided = {EndReason.UNSCHEDULABLE, EndReason.CHILD_DELETED}
    refused = [each.node for each in hindrances if each.reason in avoided and each.is_of_node]
    taken = {each.node for each in hindrances if each.reason is EndReason.GPU_TAKEN}
    job, cluster = attempt.subject.job, attempt.subject.cluster
    before = [ended.reason for ended in job.status.attempts[-1:]]
    if not taken or before != [EndReason.GPU_TAKEN]:
        return refused
    unbooked = cluster.with_job(job.model_copy(update={"status": TrainingJobStatus()}))
    left = freed(job, attempt.subject.children.own, unbooked).nodes
    wanted = {share.node: share for share in attempt.booking.shares if share.node in taken}
    return [*refused, *(node for node, share in wanted.items() if _are_free(left[node], share))]


def _are_free(view: NodeView, share: Share) -> bool:
    if share.mig_device:
        return any(device.is_free for device in view.mig if device.uuid == share.mig_device)
    gpus = len(share.gpus)
    return view.free_gpus >= gpus and (view.plugin is None or view.plugin.free >= gpus)
