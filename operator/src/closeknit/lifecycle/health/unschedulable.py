"""A gang whose Pods do not all run: a node or the scheduler blocks one, and the attempt is to end by that.

Nothing is remembered for it: the objects themselves say since when.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from closeknit.api.reasons import EndReason, ExclusionReason
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.booking.booking import BookingShare
from closeknit.cluster.job_volumes import Volumes
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.pods.symptoms import Symptom, of_pod, of_scheduler
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.avoided_nodes import Unfit
from closeknit.lifecycle.attempt.own_gpus import with_own_gpus_free
from closeknit.lifecycle.attempt.own_pods import own_claim
from closeknit.lifecycle.health.attempt_end import end, gpus_or_node, is_cordoned, whole
from closeknit.lifecycle.health.unscheduled import own_cause, since, volume_awaited, volume_words
from closeknit.lifecycle.status.blame import IGNORED_FOR_ITS_OWN_AFTER, NOT_READY_AFTER, TABLE, Follows, end_reason
from closeknit.lifecycle.status.pauses import later, lingers_from, over_at
from closeknit.lifecycle.transitions.ends import EndFacts
from closeknit.lifecycle.writes.plan import Plan
from closeknit.placement.candidates.node_filter import admits, in_reach, untolerated
from closeknit.placement.values.request import Request, request
from closeknit.placement.values.sentences import count

_BEYOND = frozenset({"Running", "Succeeded", "Failed"})  # phases of a Pod that its node has taken
_REFUSALS = frozenset({"Unschedulable", "SchedulerError"})  # a Pod with gates of the user's own is not refused


@dataclass(frozen=True, slots=True)
class _Hindrance:
    """An obstacle that keeps the Pod of one node rank from running."""

    reason: EndReason
    message: str
    node: str
    until: datetime | None = None
    """Until when it may clear by itself; None: it will not."""
    is_of_node: bool = True
    """Whether another node may do better."""
    since: datetime | None = None
    """When it began, where that is known."""


def unschedulable(attempt: Attempt) -> Plan | datetime | None:
    """The end of a blocked attempt, or the moment when it will be blocked; None where no obstacle exists."""
    now = attempt.subject.now
    hindrances = _hindrances(attempt)
    over = [each for each in hindrances if each.until is None or now >= each.until]
    if not over:
        return min((each.until for each in hindrances if each.until is not None), default=None)
    first = over[0]
    alike = [each for each in hindrances if each.reason is first.reason]
    more = f" ({count(len(alike) - 1, 'more Pod')} likewise)" if len(alike) > 1 else ""
    unfit, facts = _unseen(attempt, [*over, *alike]), EndFacts(fault=first.since)
    return end(attempt, first.reason, f"{first.message}{more}", unfit=unfit, facts=facts)


def _hindrances(attempt: Attempt) -> list[_Hindrance]:
    """Obstacles by node rank; those that no waiting clears come first."""
    waiting = [
        index
        for index, pod in enumerate(attempt.pods)
        if pod is None or pod.phase not in _BEYOND or pod.deletion_timestamp is not None
    ]
    if not waiting:
        return []
    job = attempt.subject.job
    volumes = attempt.subject.cluster.volumes_of(job)
    asked = request(job.key, job.spec, volumes.required)
    found = [each for index in waiting if (each := _hindrance(attempt, index, asked, volumes)) is not None]
    return sorted(found, key=lambda each: each.until is not None)


def _hindrance(attempt: Attempt, index: int, asked: Request, volumes: Volumes) -> _Hindrance | None:
    pod, share = attempt.pods[index], attempt.booking.shares[index]
    if share.succeeded or (pod is not None and pod.phase == "Succeeded"):
        return None
    view = attempt.subject.cluster.nodes.get(share.node)
    if view is None:
        return _Hindrance(EndReason.NODE_CHANGED, f"node {share.node} is no longer there", share.node)
    if pod is not None and pod.node:
        return _silent(attempt, pod, view) if pod.deletion_timestamp is None else _lingering(attempt, pod, view)
    # Nothing has begun here, and the scheduler would refuse the Pod for the same reason: nothing is gained by waiting.
    if words := _unfit(view, asked, volumes):
        return _Hindrance(EndReason.NODE_CHANGED, f"node {view.name} takes no new Pod of the job: {words}", view.name)
    if pod is None:
        return None
    if pod.deletion_timestamp is not None:
        return _lingering(attempt, pod, view)
    return (
        _refused(attempt, pod, view.name, volumes) or _volumeless(attempt, pod, index) or _ignored(attempt, pod, index)
    )


def _silent(attempt: Attempt, pod: Pod, view: NodeView) -> _Hindrance | None:
    """A bound Pod that no kubelet starts, or ends: its node is not Ready."""
    if view.exclusion is None or view.exclusion.reason is not ExclusionReason.NOT_READY:
        return None
    why = "has not started" if pod.deletion_timestamp is None else "is deleted and not gone"
    message = f"Pod {pod.name} {why}, and its node {view.name} is not ready: {view.exclusion.message}"
    until = over_at(view.exclusion.since, NOT_READY_AFTER, attempt.subject.now)
    began = later(view.exclusion.since or "", None, attempt.subject.now)
    return _Hindrance(EndReason.NODE_CHANGED, message, view.name, until, since=began)


def _lingering(attempt: Attempt, pod: Pod, view: NodeView) -> _Hindrance:
    """A deleted Pod that stays: nothing can be made under its name."""
    until = lingers_from(pod.deletion_timestamp, attempt.subject.now)
    silent = _silent(attempt, pod, view) if pod.node else None
    if silent is not None and (silent.until is None or silent.until <= until):
        return silent  # no kubelet there heeds the grace period
    mark = of_pod(pod, None)
    if is_cordoned(view) or (mark is not None and mark.symptom is Symptom.DISRUPTED):
        message = f"Pod {pod.name} was evicted from node {view.name} before the gang ran, and is not gone"
        return _Hindrance(EndReason.DISRUPTED, f"{message}; the job starts again", view.name, until)
    message = f"Pod {pod.name} was deleted before the gang ran, and is not gone; the job starts again"
    return _Hindrance(EndReason.CHILD_DELETED, message, view.name, until)


def _unfit(view: NodeView, asked: Request, volumes: Volumes) -> str | None:
    """Why no new Pod of the job may go to a node, as a clause."""
    if view.exclusion is not None:
        return view.exclusion.message
    if taints := untolerated(view.taints, asked):
        return f"it has the taint {taints[0].key}:{taints[0].effect}, which the job does not tolerate"
    if not in_reach(view.name, view.labels, asked):
        return f"its volumes are out of reach there: {volumes.words}"
    return None if admits(view, asked) else "the job's template does not select it any more"


def _refused(attempt: Attempt, pod: Pod, node: str, volumes: Volumes) -> _Hindrance | None:
    """A Pod that the scheduler has refused, with its reason."""
    condition = pod.condition("PodScheduled")
    if condition is None or condition.status != "False" or condition.reason not in _REFUSALS:
        return None
    said = of_scheduler(condition.message or "")
    words = condition.message or "no reason given"
    symptom = _of_volumes(_of_own_claim(attempt, pod, said.symptom), volumes)
    row = TABLE[symptom]
    until = over_at(condition.last_transition_time, row.after, attempt.subject.now)
    if row.reason is EndReason.GPU_TAKEN:
        message = f"Pod {pod.name} lost GPUs of node {node} to somebody else ({words}); the job is placed again"
    elif row.follows is Follows.WAIT:
        message = f"Pod {pod.name} waits for an object: {words}; it is tried again from time to time"
    else:
        message = f"Pod {pod.name} cannot be scheduled on node {node}: {words}"
    is_of_node = row.follows is not Follows.WAIT
    began = later(condition.last_transition_time or "", None, attempt.subject.now)
    return _Hindrance(end_reason(symptom), message, node, until, is_of_node=is_of_node, since=began)


def _volumeless(attempt: Attempt, pod: Pod, index: int) -> _Hindrance | None:
    """A Pod whose scheduler waits silently for a requested volume."""
    awaited, began = volume_awaited(attempt, index), since(attempt, index)
    if awaited is None or began is None or not awaited.outlives_pod:
        return None
    row, node = TABLE[Symptom.VOLUME_BEING_MADE], attempt.booking.shares[index].node
    reason = end_reason(Symptom.VOLUME_BEING_MADE)
    return _Hindrance(reason, volume_words(pod, awaited), node, began + row.after, is_of_node=False, since=began)


def _ignored(attempt: Attempt, pod: Pod, index: int) -> _Hindrance | None:
    """A Pod that no scheduler looks at, by the template's own cause."""
    cause = own_cause(attempt, index)
    began = None if cause is None else since(attempt, index)
    if began is None:
        return None
    seconds = IGNORED_FOR_ITS_OWN_AFTER.total_seconds()
    message = f"no scheduler has looked at Pod {pod.name} for {seconds:.0f} s: {cause}"
    node = attempt.booking.shares[index].node
    until = began + IGNORED_FOR_ITS_OWN_AFTER
    return _Hindrance(EndReason.UNSCHEDULABLE, message, node, until, is_of_node=False, since=began)


def _of_own_claim(attempt: Attempt, pod: Pod, symptom: Symptom) -> Symptom:
    """GPUS_TAKEN if our own claim must be the cause, NOT_SCHEDULED if it is allocated; else the symptom. A scheduler
    allocates all claims of a Pod or none, and does not say which one fails."""
    if symptom not in {Symptom.GPUS_TAKEN, Symptom.CLAIMS_NOT_ALLOCATED}:
        return symptom
    claim = own_claim(attempt.subject.cluster, pod)
    if claim is not None and claim.allocated:
        return Symptom.NOT_SCHEDULED
    is_ours = symptom is Symptom.GPUS_TAKEN or all(name == pod.name for name in pod.claims)
    return Symptom.GPUS_TAKEN if is_ours else symptom


def _of_volumes(symptom: Symptom, volumes: Volumes) -> Symptom:
    """VOLUME_BEING_MADE if a volume is being made for one of the gang's nodes: until then the scheduler puts no Pod
    with that claim on the others. Else the symptom."""
    is_making = symptom is Symptom.VOLUME_ELSEWHERE and volumes.being_made
    return Symptom.VOLUME_BEING_MADE if is_making else symptom


def _unseen(attempt: Attempt, hindrances: Sequence[_Hindrance]) -> Unfit:
    """Nodes, or their GPUs, that only the Pods refused there show to be unfit.

    Where a node is excluded, or somebody is seen to hold the GPUs, placement sees it. GPUs that the scheduler finds
    taken by an unknown holder (a preemption's nominee, a device that an admin has tainted) are bad luck once. Then the
    node's other GPUs are tried where claims say which, and the node is left where a device plugin chooses.
    """
    avoided = {EndReason.UNSCHEDULABLE, EndReason.CHILD_DELETED, EndReason.DISRUPTED}
    refused = whole(each.node for each in hindrances if each.reason in avoided and each.is_of_node)
    taken = {each.node for each in hindrances if each.reason is EndReason.GPU_TAKEN}
    job, cluster = attempt.subject.job, attempt.subject.cluster
    before = [ended.reason for ended in job.status.attempts[-1:]]
    if not taken or before != [EndReason.GPU_TAKEN]:
        return refused
    unbooked = cluster.with_job(job.model_copy(update={"status": TrainingJobStatus()}))
    left = with_own_gpus_free(job, attempt.subject.children.own, unbooked).nodes
    wanted = {share.node: share for share in attempt.booking.shares if share.node in taken}
    free = {node: share for node, share in wanted.items() if _are_free(left[node], share)}
    return {**{node: gpus_or_node(attempt, share) for node, share in free.items()}, **refused}


def _are_free(view: NodeView, share: BookingShare) -> bool:
    if share.mig_device:
        return any(device.is_free for device in view.mig if device.uuid == share.mig_device)
    gpus = len(share.gpus)
    return view.free_gpus >= gpus and (view.plugin is None or view.plugin.free >= gpus)
