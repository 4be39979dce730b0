"""What a gang asks of the quotas of its namespace, after whom, and when their counts may be old."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import chain

from closeknit.api.names import JobKey
from closeknit.api.reasons import ConditionType
from closeknit.cluster.booking.booking import AwaitedAttempt, Booking
from closeknit.cluster.pods.pod import DEFAULT_GRACE_S, Pod
from closeknit.lifecycle.attempt import creation
from closeknit.lifecycle.attempt.launched_gang import Lost, gang
from closeknit.lifecycle.attempt.subject import Subject
from closeknit.lifecycle.status.conditions import found as condition
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pauses import is_between, lingers_from
from closeknit.lifecycle.writes.quota_demand import QuotaDemand, given_back, quota_demand

# A quota's count follows the end of a Pod within a second on a quiet control plane; on a busy one that may take longer.
COUNTED_FOR = timedelta(seconds=30)
# A Pod on a dead node is no longer counted once its grace period is over, but no event says so: the quota is counted
# again every five minutes (--resource-quota-sync-period of the controller manager).
RECOUNTED_WITHIN = timedelta(minutes=5) + COUNTED_FOR


def after_others(demand: QuotaDemand, subject: Subject, going: Iterable[Pod]) -> QuotaDemand:
    """The demand once these Pods are gone, which make room for it, and after the jobs of its namespace that are no less
    important, and for which others make room now: else that would be in vain. Their Pods that are there are counted."""
    job, cluster = subject.job, subject.cluster
    there = {pod.key: pod for pod in going}
    first: list[QuotaDemand] = []
    for key, awaited in cluster.awaiting.items():
        other, held = cluster.jobs[key], cluster.booking_of(key)
        is_first = key.namespace == job.key.namespace and cluster.priority(other) >= cluster.priority(job)
        if key == job.key or not is_first or held is None:
            continue
        made = gang(other, held, cluster, ipc_lock=False)
        if isinstance(made, Lost):  # it is told so itself
            continue
        first.append(quota_demand(creation.whole(made, with_others=True).manifests, may_be_counted=False))
        there |= {pod.key: pod for pod in (*making_room(subject, awaited), *cluster.pods_of(key))}
    return replace(demand, given_back=given_back(there.values(), subject.now), first=tuple(first))


def making_room(subject: Subject, awaited: Iterable[AwaitedAttempt]) -> Iterator[Pod]:
    """The Pods of the job's namespace that go for it."""
    going = (each for each in awaited if each.job.namespace == subject.job.key.namespace and not each.moves)
    return chain.from_iterable(subject.cluster.pods_of(each.job) for each in going)


def may_be_counted(subject: Subject) -> bool:
    """Whether quotas may still count Pods of the last attempt: then too little left is checked again rather than
    refused."""
    ended = [moment(attempt.ended) for attempt in subject.job.status.attempts[-1:]]
    is_late = any(is_between(since, subject.now, since + COUNTED_FOR) for since in ended)
    is_late = is_late or _is_room_being_made(subject) or _has_just_got_room(subject)
    # One on a dead node is counted until somebody removes it, and then it is the quota that the job lacks.
    going = (pod.deletion_timestamp for pod in subject.children.before(subject.attempt))
    return is_late or any(told is None or subject.now < lingers_from(told, subject.now) for told in going)


def _has_just_got_room(subject: Subject) -> bool:
    """Whether it was booked just now, after others had been told to make room for it."""
    booked = condition(subject.job.status.conditions, ConditionType.PLACED)
    if subject.answers.room_made_at is None or booked is None or booked.status != "True":
        return False
    since = moment(booked.last_transition_time)
    return is_between(since, subject.now, since + COUNTED_FOR)


def _is_room_being_made(subject: Subject) -> bool:
    """Whether quotas may still count Pods in the job's namespace that make room for it."""
    placement = subject.job.status.placement
    for each in placement.awaits or () if placement is not None else ():
        key = JobKey(each.namespace, each.name)
        job = subject.cluster.jobs.get(key) if each.namespace == subject.job.key.namespace else None
        for ended in job.status.attempts if job is not None else ():
            if ended.number == each.attempt:
                grace_s = max((pod.grace_s for pod in subject.cluster.pods_of(key)), default=DEFAULT_GRACE_S)
                since = moment(ended.ended)
                if is_between(since, subject.now, since + timedelta(seconds=grace_s) + COUNTED_FOR):
                    return True
    return False


def are_outlived_counted(subject: Subject, held: Booking) -> bool:
    """Whether quotas may still count Pods whose place others take: to refuse these would end the Pods that stay."""
    return any(
        pod.is_live
        and (
            pod.deletion_timestamp is None
            or subject.now < lingers_from(pod.deletion_timestamp, subject.now) + RECOUNTED_WITHIN
        )
        for pod in subject.children.outlived(held)
    )
