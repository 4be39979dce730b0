"""Checks before placement, in order; the first that fails is the reason to wait."""

from collections.abc import Sequence
from datetime import datetime

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.cluster.booking.job import is_whole
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.job_volumes import Volumes
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.template import check_template
from closeknit.lifecycle.attempt.own_pods import is_own
from closeknit.lifecycle.status.pauses import is_between, lingers_from, restart_at
from closeknit.lifecycle.status.stored_job import is_finished
from closeknit.lifecycle.verdict import Refusal, Wait, WaitCause
from closeknit.lifecycle.writes.answers import Answers
from closeknit.lifecycle.writes.denial_words import SYSTEM_NAMESPACE
from closeknit.lifecycle.writes.refusals import Refusing, Rejection
from closeknit.scheduling.memo.template_memory import needs_templates
from closeknit.scheduling.policy import supported
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.queue.entries import UNREAD, Case, Outcome
from closeknit.scheduling.queue.room import Room

_SYSTEM_NAMESPACES = "kube-"  # how their names begin; in the operator's own its policy refuses


def gate(
    job: TrainingJob,
    pods: Sequence[Pod],
    answers: Answers,
    cluster: Cluster,
    now: datetime,
    volumes: Volumes,
    *,
    is_booked: bool,
) -> Refusal | None:
    """Why the job may not have GPUs now, or must give up those it has; None to let placement decide.

    `pods` are those that a TrainingJob of its name owns. Of the cluster it looks at their nodes alone.
    """
    if job.metadata.deletion_timestamp is not None:
        return Refusal(WaitCause.BEING_DELETED)
    if is_finished(job):
        return Refusal(WaitCause.OVER)
    if job.spec.suspend:
        return Refusal(WaitCause.SUSPENDED)
    if is_booked:
        return _rejected_child(job, answers)
    if (taken := _number_taken(job, pods, cluster, now)) is not None:
        return taken
    if job.key.namespace.startswith(_SYSTEM_NAMESPACES):
        return Refusal(WaitCause.REFUSED, PendingReason.NAMESPACE_NOT_SERVED, SYSTEM_NAMESPACE)
    if words := supported.refusal(job.spec):
        return Refusal(WaitCause.REFUSED, PendingReason.NOT_SUPPORTED, words)
    if words := check_template(job):
        return Refusal(WaitCause.REFUSED, PendingReason.TEMPLATE_INVALID, words)
    if volumes.unavailable is not None:
        words = f"{volumes.unavailable}; it holds nothing, and starts as soon as that is mended"
        return Refusal(WaitCause.REFUSED, PendingReason.VOLUME_UNAVAILABLE, words)
    if (rejection := standing(job, answers, now)) is not None:
        return Refusal(WaitCause.REFUSED, rejection.reason, rejection.message, until=rejection.retry_at)
    ready = restart_at(job.status, now)
    if ready is not None:
        return Refusal(WaitCause.PAUSE, until=ready)
    return None


def _number_taken(job: TrainingJob, pods: Sequence[Pod], cluster: Cluster, now: datetime) -> Refusal | None:
    """Why the next attempt cannot begin with its number yet, or ever; None where it can."""
    number = job.status.attempt or 1
    if job.status.last_ended >= number:  # somebody has taken its end out of its conditions
        return Refusal(WaitCause.NUMBER_HELD)
    names = in_the_way(job, pods)
    if not names:
        return None
    held = [pod for pod in names if pod.attempt == number and pod.deletion_timestamp is not None]
    until = min((_never_confirmed_from(pod, cluster, now) for pod in held), default=None)
    if until is not None and now >= until:
        return Refusal(WaitCause.NUMBER_HELD)
    return Refusal(WaitCause.LEFTOVERS, until=until)


def in_the_way(job: TrainingJob, pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Own Pods with a name that the next attempt needs, and those of later attempts that are not deleted yet.

    Other older Pods block nothing here: what they hold is theirs until they are gone, and so free for this job.
    """
    attempt = job.status.attempt or 1
    return tuple(
        pod
        for pod in pods
        if is_own(pod, job)
        and (pod.attempt == attempt or ((pod.attempt or 0) > attempt and pod.deletion_timestamp is None))
    )


def _never_confirmed_from(pod: Pod, cluster: Cluster, now: datetime) -> datetime:
    """When a Pod that is being deleted counts as stuck: at once where its node's kubelet may never confirm it."""
    view = cluster.nodes.get(pod.node)
    is_silent = bool(pod.node) and (view is None or view.exclusion is not None)
    return now if is_silent else lingers_from(pod.deletion_timestamp, now)


def _rejected_child(job: TrainingJob, answers: Answers) -> Refusal | None:
    """The refusal of a child of the current attempt: all of it is removed."""
    rejection = answers.rejection
    if rejection is None or rejection.of is not Refusing.CHILD or rejection.attempt != (job.status.attempt or 1):
        return None
    return Refusal(WaitCause.REFUSED, rejection.reason, rejection.message)


def standing(job: TrainingJob, answers: Answers, now: datetime) -> Rejection | None:
    """The rejection of this spec for as long as the job is not tried again; after a change of it that is at once."""
    rejection = answers.rejection
    if rejection is None or rejection.generation != job.metadata.generation:
        return None
    return rejection if is_between(rejection.at, now, rejection.retry_at) else None


def gated(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The wait of a job that may have nothing now, or must give up what it has."""
    if case.known is not None and case.known.shape is not None:
        return None  # it was asked with the very same, and came past this
    is_booked = room.cluster.booking_of(case.key) is not None
    refusal = gate(case.job, case.pods, case.answers, room.cluster, walk.now, case.volumes, is_booked=is_booked)
    if refusal is None:
        return None
    is_settled = refusal.cause not in {WaitCause.LEFTOVERS, WaitCause.NUMBER_HELD}  # their nodes may die, and recover
    return Outcome(Wait(refusal), until=refusal.until, is_settled=is_settled)


def put_aside(case: Case, _room: Room, walk: Walk) -> Outcome | None:
    """The wait of a job that has lost its turn: the obstacle to its last write may last."""
    if case.key not in walk.memory.put_aside:
        return None
    return Outcome(Wait(Refusal(WaitCause.PUT_ASIDE)), is_settled=False)


def readable(case: Case, _room: Room, walk: Walk) -> Outcome | None:
    """A job whose templates are not kept: it waits behind those of its namespace that are, or is read again."""
    if (words := walk.beyond.get(case.key)) is not None:
        return Outcome(Wait(Refusal(WaitCause.REFUSED, PendingReason.QUOTA_EXCEEDED, words)))
    return None if is_whole(case.job) or not needs_templates(case.job) else Outcome(UNREAD, is_settled=False)
