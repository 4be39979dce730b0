"""Pods of ended attempts: stopped, kept for their logs, and removed.

Another rank than the first to fail often says why a gang failed, and a Pod's log goes with the Pod. So running Pods are
not deleted: their kubelets end them, which frees their GPUs as soon. Those of the last attempt stay until the next one
has ended, and for a day at most.

A Pod that is deleted on a dead node stays until its kubelet confirms it, and nothing waits for it. It is deleted by
force only where the administrator wants that (--force-delete-pods): of its containers it says what nobody knows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from closeknit.api.reasons import EndReason, ExclusionReason, PendingReason
from closeknit.cluster.objects.silence import Quiet
from closeknit.cluster.pods.pod import DISRUPTION_TARGET, Pod
from closeknit.lifecycle.attempt.subject import Subject
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pauses import LINGERS_AFTER, is_between, lingers_from
from closeknit.lifecycle.writes.plan import Delete, Stop

KEPT_FOR = timedelta(days=1)  # who is told in the evening looks in the morning
# Of attempts that end for a job of higher priority, or for the owner of lent spare nodes.
MAKES_ROOM = frozenset({EndReason.PREEMPTED, EndReason.SHRUNK})
LOOKS_AGAIN = timedelta(seconds=30)  # whether a silent node is dead by now; Kubernetes takes 50 s to say so


@dataclass(frozen=True, slots=True)
class Remains:
    """What to do about them."""

    actions: tuple[Delete | Stop, ...] = ()
    until: datetime | None = None
    """When there is more to do though nothing has changed."""


def remains(
    subject: Subject,
    last: int,
    *,
    ended: datetime | None = None,
    reason: EndReason | None = None,
    is_over: bool = False,
) -> Remains:
    """What to do about Pods of attempts up to `last`, the last ended one: at the moment `ended` and for this reason, or
    as the status says. A job that `is_over` keeps those of its last attempt as long as it exists."""
    moments = {attempt.number: moment(attempt.ended) for attempt in subject.job.status.attempts}
    made_room = {attempt.number for attempt in subject.job.status.attempts if attempt.reason in MAKES_ROOM}
    if ended is not None:
        moments[last] = ended
    if reason in MAKES_ROOM:
        made_room.add(last)
    actions: list[Delete | Stop] = []
    dues: list[datetime] = []
    for pod in subject.children.own:
        if pod.attempt is not None and pod.attempt > last:
            continue
        match _next(subject, pod, moments.get(pod.attempt or 0), is_kept=pod.attempt == last, is_over=is_over):
            case datetime() as due:
                dues.append(due)
            case Delete() | Stop() as action:
                is_marked = pod.condition(DISRUPTION_TARGET) is not None
                is_preempted = pod.is_live and pod.attempt in made_room and not is_marked
                actions.append(replace(action, is_preempted=True) if is_preempted else action)
    return Remains(tuple(actions), min(dues, default=None))


def _next(
    subject: Subject, pod: Pod, ended: datetime | None, *, is_kept: bool, is_over: bool
) -> Delete | Stop | datetime | None:
    """What to do about a Pod whose attempt ended then; a moment: nothing until then; None: nothing."""
    if pod.deletion_timestamp is not None:
        return _removal(subject, pod)
    if is_over and is_kept and not pod.is_live:
        return None
    delete = Delete("Pod", pod.name, pod.uid)
    if ended is None or not pod.has_begun:
        return delete  # it is too old, or has said nothing
    if pod.is_live and not _may_be_stopped(subject, pod):
        return delete
    if pod.is_live and not (pod.is_stopped or pod.is_done):  # asked of one that is done, it would be told as Failed
        return Stop(pod.name, pod.uid)
    if pod.is_live:
        due = ended + timedelta(seconds=pod.grace_s) + LINGERS_AFTER
    elif is_over or not is_kept or _may_be_counted(subject):
        return delete
    else:
        due = ended + KEPT_FOR
    return due if is_between(ended, subject.now, due) else delete


def removals(subject: Subject, pods: Iterable[Pod]) -> Remains:
    """What to do about Pods that are deleted and do not go, beside those of `remains`."""
    found = [_removal(subject, pod) for pod in pods if pod.deletion_timestamp is not None]
    dues = [each for each in found if isinstance(each, datetime)]
    return Remains(tuple(each for each in found if isinstance(each, Delete)), min(dues, default=None))


def _removal(subject: Subject, pod: Pod) -> Delete | datetime | None:
    """What to do about a Pod that is deleted: it is removed by force, where that is wanted, once its grace period is
    over and its node dead, as two say who judge apart from each other: a Node that is not Ready by its kubelet's own
    word runs its Pods. Kubernetes itself removes those of nodes that are gone, or have the taint out-of-service."""
    view = subject.cluster.nodes.get(pod.node)
    is_wanted = subject.cluster.force_deletes and pod.is_live and not pod.is_forced
    if not is_wanted or view is None or not view.is_there or view.silence is None:
        return None
    due = lingers_from(pod.deletion_timestamp, subject.now)
    if subject.now < due:
        return due
    if view.silence.quiet is not Quiet.LONG or not (view.is_unheard or view.is_out_of_service):
        return subject.now + LOOKS_AGAIN
    return Delete("Pod", pod.name, pod.uid, is_forced=True)


def _may_be_stopped(subject: Subject, pod: Pod) -> bool:
    """Whether its kubelet can stop it, and the API server lets us ask."""
    view = subject.cluster.nodes.get(pod.node)
    is_there = view is not None and (view.exclusion is None or view.exclusion.reason is not ExclusionReason.NOT_READY)
    return is_there and not subject.answers.stop_refused


def _may_be_counted(subject: Subject) -> bool:
    """Whether finished Pods may keep the next ones out: a quota counts them, or the job waits for one."""
    pending = subject.job.status.pending
    waits = pending is not None and pending.reason == PendingReason.QUOTA_EXCEEDED
    return subject.answers.are_pods_counted or waits
