"""How an attempt ends, and with it the job or not."""

from collections.abc import Sequence
from dataclasses import replace

from closeknit.api.names import EndReason, EventAction, service_name
from closeknit.cluster.booking import Share
from closeknit.cluster.pod import Pod
from closeknit.lifecycle import statuses
from closeknit.lifecycle.attempt import Attempt
from closeknit.lifecycle.gangs import Lost
from closeknit.lifecycle.plan import Delete, Plan
from closeknit.lifecycle.subject import deletions


def end(attempt: Attempt, reason: EndReason, message: str, *, again: Sequence[Share] | None = None) -> Plan:
    """The attempt ends uncharged, its Pods go, and the next one follows, on the shares of `again` if there are any."""
    subject = attempt.subject
    status = statuses.restarting(subject.job, subject.now, reason, message, again=again)
    service = Delete("Service", service_name(subject.job.metadata.name, subject.attempt))
    notice = subject.notice(reason, message, action=EventAction.RESTART, warning=True)
    return subject.plan(status, actions=(*deletions(subject.children.live), service), notice=notice)


def node_changed(attempt: Attempt, lost: Lost) -> Plan:
    """A booked node is no longer what was booked, and nothing has run yet."""
    return end(attempt, EndReason.NODE_CHANGED, lost.message)


def child_deleted(attempt: Attempt, *, is_fit: bool) -> Plan:
    """A Pod is gone, or going, before it was over: the job starts again, where it was if that `is_fit`."""
    job = attempt.subject.job
    gone = [f"{job.metadata.name}-a{attempt.booking.attempt} rank {index}" for index in attempt.missing]
    who = ", ".join([*(f"Pod {pod.name}" for pod in attempt.ending), *gone][:4])
    message = f"{who} was deleted before it was over; the job starts again"
    again = None
    if is_fit and not isinstance(attempt.gang(), Lost):
        again = [replace(share, actual=None) for share in attempt.booking.shares]
    return end(attempt, EndReason.CHILD_DELETED, message, again=again)


def succeeded(attempt: Attempt) -> Plan:
    """Every Pod has succeeded, and so has the job."""
    subject = attempt.subject
    message = f"all {len(attempt.pods)} Pods ended with exit code 0"
    status = statuses.finished(subject.job, subject.now, EndReason.SUCCEEDED, message, succeeded=True)
    return subject.plan(status, notice=subject.notice(EndReason.SUCCEEDED, message, action=EventAction.FINISH))


def failed(attempt: Attempt) -> Plan:
    """A Pod has failed, and so has the job."""
    subject = attempt.subject
    pods = [pod for pod in attempt.present if pod.phase == "Failed"]
    message = _end_of(pods[0])
    if len(pods) > 1:
        message += f"; {len(pods) - 1} more failed"
    status = statuses.finished(subject.job, subject.now, EndReason.POD_FAILED, message, succeeded=False)
    notice = subject.notice(EndReason.POD_FAILED, message, action=EventAction.FINISH, warning=True)
    return subject.plan(status, actions=deletions(subject.children.live), notice=notice)


def _end_of(pod: Pod) -> str:
    """How a Pod failed: what the kubelet knows of its containers."""
    for container in pod.containers:
        if container.exit_code:
            why = f" ({container.reason})" if container.reason not in {"", "Error"} else ""
            said = f": {container.message.strip()}" if container.message.strip() else ""
            where = f"Pod {pod.name} on node {pod.node}"
            return f"container {container.name} of {where} ended with exit code {container.exit_code}{why}{said}"
    return f"Pod {pod.name} on node {pod.node or '(none)'} failed before a container ended"
