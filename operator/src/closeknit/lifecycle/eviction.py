"""The end of an attempt that makes room for a job of higher priority, or whose quota Kueue takes back."""

from closeknit.api.names import EndReason, EventAction, JobKey, service_name
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.remains import remains
from closeknit.lifecycle.attempt.subject import deletions
from closeknit.lifecycle.health.ending import succeeded
from closeknit.lifecycle.status import statuses
from closeknit.lifecycle.writes.plan import Delete, Plan


def evict(attempt: Attempt, by: JobKey) -> Plan:
    """The attempt ends, uncharged: its Pods get their grace period, and the job waits again with its age. One that is
    over already is over."""
    subject = attempt.subject
    # Readers of a job learn no names of other namespaces.
    whom = str(by) if by.namespace == subject.job.key.namespace else "a job of another namespace"
    message = (
        f"makes room for {whom}, which has a higher priority; the job keeps its age, is not charged for this, and "
        "starts again as soon as there is room for it"
    )
    return _ended(attempt, EndReason.PREEMPTED, message, EventAction.PREEMPT)


def evict_by_kueue(attempt: Attempt, message: str) -> Plan:
    """The same, until Kueue admits the job again."""
    return _ended(attempt, EndReason.EVICTED_BY_KUEUE, message, EventAction.SUSPEND)


def _ended(attempt: Attempt, reason: EndReason, message: str, action: EventAction) -> Plan:
    if attempt.is_over:
        return succeeded(attempt)
    subject = attempt.subject
    status = statuses.restarting(subject.job, subject.now, reason, message, again=None)
    foreign = deletions(attempt.replaced)
    gone = {each.name for each in foreign}
    left = (each for each in remains(subject, subject.attempt, ended=subject.now).actions if each.name not in gone)
    service = Delete("Service", service_name(subject.job.metadata.name, subject.attempt))
    notice = subject.notice(reason, message, action=action, warning=True)
    return subject.plan(status, actions=(*foreign, *left, service), notice=notice)
