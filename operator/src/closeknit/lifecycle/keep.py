"""A job that holds GPUs: its children are made, released together, and looked after."""

from closeknit.api.names import GPU_RESOURCE, ConditionReason, EndReason
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.pod import Pod
from closeknit.lifecycle import statuses
from closeknit.lifecycle.attempt import Attempt
from closeknit.lifecycle.book import create_others, create_pods
from closeknit.lifecycle.children import own_claim
from closeknit.lifecycle.ending import child_deleted, end, failed, node_changed, succeeded
from closeknit.lifecycle.gangs import Lost
from closeknit.lifecycle.pauses import is_between, restart_at
from closeknit.lifecycle.plan import Delete, Plan
from closeknit.lifecycle.release import LOST_AFTER, release
from closeknit.lifecycle.subject import deletions, seconds_until
from closeknit.lifecycle.verification import verified

# The scheduler's words for a claim that finds its devices taken, and for a device plugin that has too few left.
_TAKEN_WORDS = ("cannot allocate all claims", f"Insufficient {GPU_RESOURCE}")


def keep(attempt: Attempt, *, is_fit: bool) -> Plan:
    """The next step of a booked job. `is_fit`: another attempt could be given the same GPUs."""
    subject = attempt.subject
    if attempt.has_begun and (attempt.missing or attempt.ending):
        return child_deleted(attempt, is_fit=is_fit)
    if any(pod.phase == "Failed" for pod in attempt.present):
        return failed(attempt)
    if not attempt.missing and all(pod.phase == "Succeeded" for pod in attempt.present):
        return succeeded(attempt)
    old = deletions(subject.children.before(attempt.booking.attempt))
    if attempt.missing or attempt.ending:
        return _complete(attempt, old)
    if attempt.is_released_whole:
        return _watch(attempt, old)
    if subject.children.before(attempt.booking.attempt):
        return subject.plan(actions=old)  # those that go still hold the GPUs
    return release(attempt)


def _complete(attempt: Attempt, old: tuple[Delete, ...]) -> Plan:
    """Makes what is missing before the release."""
    subject = attempt.subject
    ready = restart_at(subject.job.status, subject.now)
    if ready is not None:
        return subject.plan(actions=old, wake_after_s=seconds_until(ready, subject.now))
    gang = attempt.gang()
    if isinstance(gang, Lost):
        return node_changed(attempt, gang)
    service = create_others(gang) if subject.answers.service_of != subject.attempt else ()
    return subject.plan(actions=(*old, *service, *create_pods(gang, attempt.missing)))


def _watch(attempt: Attempt, old: tuple[Delete, ...]) -> Plan:
    """Looks after a gang that is released as a whole."""
    subject = attempt.subject
    stuck = next((pod for pod in attempt.present if _unschedulable(pod) is not None), None)
    if stuck is not None:
        return _stuck(attempt, stuck, old)
    if any(_is_unseen_yet(subject.cluster, pod) for pod in attempt.present):
        return subject.plan(actions=old)
    shares, result = verified(subject.cluster, attempt.booking.shares, attempt.present)
    if all(pod.phase in {"Running", "Succeeded"} for pod in attempt.present):
        return subject.plan(statuses.running(subject.job, subject.now, shares, result), actions=old)
    if result.status is False:
        return subject.plan(statuses.verified(subject.job, subject.now, shares, result), actions=old)
    return subject.plan(actions=old)


def _is_unseen_yet(cluster: Cluster, pod: Pod) -> bool:
    """Whether the Pod was given GPUs that are about to be seen: a claim is allocated before its Pod is bound.

    Waiting for it saves a status that would say less.
    """
    claim = own_claim(cluster, pod)
    return bool(pod.node) and pod.is_live and claim is not None and not claim.allocated


def _stuck(attempt: Attempt, pod: Pod, old: tuple[Delete, ...]) -> Plan:
    """A released rank that the scheduler cannot place: its GPUs were taken, or its node lacks something else."""
    subject = attempt.subject
    released_at = subject.answers.released_at
    if released_at is not None and is_between(released_at, subject.now, released_at + LOST_AFTER):
        return subject.plan(actions=old, wake_after_s=seconds_until(released_at + LOST_AFTER, subject.now))
    words = _unschedulable(pod) or ""
    node = attempt.booking.shares[attempt.pods.index(pod)].node
    allocated = own_claim(subject.cluster, pod)
    if any(said in words for said in _TAKEN_WORDS) and not (allocated is not None and allocated.allocated):
        message = f"Pod {pod.name} lost GPUs of node {node} to somebody else ({words}); the job is placed anew"
        return end(attempt, EndReason.GPU_TAKEN, message)
    message = f"Pod {pod.name} cannot be scheduled on node {node}: {words}"
    status = statuses.starting(subject.job, subject.now, ConditionReason.UNSCHEDULABLE, message)
    return subject.plan(status, actions=old)


def _unschedulable(pod: Pod) -> str | None:
    """The scheduler's words, None for a Pod that it has not given up."""
    condition = pod.condition("PodScheduled")
    if condition is None or condition.status != "False" or condition.reason != "Unschedulable":
        return None
    return condition.message or "no reason given"
