"""How an attempt ends, and with it the job or not."""

from collections.abc import Sequence
from dataclasses import replace

from closeknit.api.names import EndReason, EventAction, Role, service_name
from closeknit.cluster.booking import Share
from closeknit.cluster.dra import ResourceClaim
from closeknit.cluster.pod import Pod
from closeknit.launch.nccl import NVLS
from closeknit.launch.remedy import Remedy
from closeknit.lifecycle import avoided, statuses
from closeknit.lifecycle.attempt import Attempt
from closeknit.lifecycle.gangs import Lost
from closeknit.lifecycle.obstacles import Obstacle, told
from closeknit.lifecycle.plan import Delete, Plan
from closeknit.lifecycle.remedies import called_for, end_reason
from closeknit.lifecycle.shortcoming import Shortcoming, shortcoming
from closeknit.lifecycle.subject import deletions

DISRUPTION = "DisruptionTarget"  # the condition by which Kubernetes marks a Pod before it ends it
_OF_THE_JOB = ("DeadlineExceeded",)  # template.spec.activeDeadlineSeconds


def end(
    attempt: Attempt,
    reason: EndReason,
    message: str,
    *,
    again: Sequence[Share] | None = None,
    unfit: Sequence[str] = (),
    lacks: Shortcoming | None = None,
) -> Plan:
    """The attempt ends uncharged, its Pods go, and the next one follows: on the shares of `again` if there are any, for
    a while not on the nodes of `unfit`."""
    subject = attempt.subject
    seen = avoided.unfit(unfit, subject.job, subject.cluster, subject.now)
    status = statuses.restarting(subject.job, subject.now, reason, message, again=again, unfit=seen, lacks=lacks)
    service = Delete("Service", service_name(subject.job.metadata.name, subject.attempt))
    notice = subject.notice(reason, message, action=EventAction.RESTART, warning=True)
    return subject.plan(status, actions=(*deletions(subject.children.own), service), notice=notice)


def node_changed(attempt: Attempt, lost: Lost) -> Plan:
    """A booked node is no longer what was booked, and nothing has run yet."""
    return end(attempt, EndReason.NODE_CHANGED, lost.message)


def claim_stays(attempt: Attempt, claim: ResourceClaim) -> Plan:
    """GPUs that are booked are those of a Pod that is gone and that shared its claim: they are not free with it."""
    users = [name for name in claim.reserved_for if name != claim.name]
    message = f"Pod {users[0]} uses ResourceClaim {claim.name}, and with it GPUs that are booked; the job starts again"
    return end(attempt, EndReason.GPU_TAKEN, message)


def left_behind(attempt: Attempt, stays: Sequence[Obstacle]) -> Plan:
    """What is left of an attempt before does not go: a finalizer, a process that ignores its end, a kubelet that
    hangs. Its nodes are somebody else's for a while."""
    nodes = sorted({each.node for each in stays if each.node})
    message = f"{told(stays)}; that takes too long, and the job is placed anew"
    return end(attempt, EndReason.GPU_TAKEN, message, unfit=nodes)


def is_disrupted(pod: Pod) -> bool:
    """Whether Kubernetes itself ends the Pod. A rank that fails because another one was disrupted bears no mark."""
    condition = pod.condition(DISRUPTION)
    return condition is not None and condition.status == "True" and pod.phase != "Succeeded"


def is_refused(pod: Pod) -> bool:
    """Whether the kubelet did not take the Pod: it failed for a reason of its own, and no container of it has begun."""
    has_begun = any(container.running or container.exit_code is not None for container in pod.containers)
    return pod.phase == "Failed" and bool(pod.node) and pod.reason not in {"", *_OF_THE_JOB} and not has_begun


def child_deleted(attempt: Attempt, *, is_fit: bool) -> Plan:
    """A Pod is gone, or going, before it was over: the job starts again, where it was if that `is_fit`."""
    if others := [pod for pod in attempt.present if is_disrupted(pod)]:
        return disrupted(attempt, others)
    if others := [pod for pod in attempt.present if is_refused(pod)]:
        return refused(attempt, others)  # else the next attempt would take the same nodes
    job = attempt.subject.job
    name = f"{job.metadata.name}-a{attempt.booking.attempt}"
    missing = ((position, attempt.booking.shares[position].server) for position in attempt.missing)
    gone = [f"{name} rank {rank}" if server is None else f"{name} server {server}" for rank, server in missing]
    who = ", ".join([*(f"Pod {pod.name}" for pod in attempt.ending), *gone][:4])
    message = f"{who} was deleted before it was over; the job starts again"
    again = None
    if is_fit and not isinstance(attempt.gang(), Lost):
        again = [replace(share, actual=None, succeeded=False) for share in attempt.booking.shares]
    return end(attempt, EndReason.CHILD_DELETED, message, again=again)


def replaced(attempt: Attempt) -> Plan:
    """Somebody made a Pod in the place of one of ours. With it the job would keep GPUs that it does not ask for, past
    every quota."""
    pod = attempt.replaced[0]
    message = f"Pod {pod.name} is not the one that was made: it does not ask for the booked GPUs, or is elsewhere"
    return end(attempt, EndReason.CHILD_DELETED, f"{message}; the job starts again")


def succeeded(attempt: Attempt) -> Plan:
    """Every Pod has succeeded, or the one that the others serve, and so has the job."""
    subject = attempt.subject
    workers = attempt.booking.workers
    message = f"all {len(attempt.pods)} Pods ended with exit code 0"
    if not all(share.succeeded for share in attempt.shares[:workers]):
        first = attempt.shares[0 if attempt.shares[0].succeeded else workers]
        who = "launcher" if first.server is None else "chief"
        message = f"the {who} on node {first.node} ended with exit code 0"
    elif workers < len(attempt.shares):
        message = f"all {workers} workers ended with exit code 0"
    status = statuses.finished(subject.job, subject.now, EndReason.SUCCEEDED, message, succeeded=True)
    return subject.plan(status, notice=subject.notice(EndReason.SUCCEEDED, message, action=EventAction.FINISH))


def disrupted(attempt: Attempt, pods: Sequence[Pod]) -> Plan:
    """Pods were ended by a drain, a taint, a shutdown of their node, a preemption: the job starts again."""
    condition = pods[0].condition(DISRUPTION)
    why = (condition.message or condition.reason or "") if condition is not None else ""
    where = f" of node {pods[0].node}" if pods[0].node else ""
    message = f"Pod {pods[0].name}{where} was disrupted{f': {why}' if why else ''}; the job starts again"
    return end(attempt, EndReason.DISRUPTED, message)


def refused(attempt: Attempt, pods: Sequence[Pod]) -> Plan:
    """Kubelets did not take Pods that were bound to them: the job goes elsewhere."""
    message = f"node {pods[0].node} refused Pod {pods[0].name}: {pods[0].reason}"
    message += f" ({pods[0].message.strip()})" if pods[0].message.strip() else ""
    message += f"; {len(pods) - 1} more were refused" if len(pods) > 1 else ""
    return end(attempt, EndReason.NODE_REFUSED, message, unfit=[pod.node for pod in pods])


def failed(attempt: Attempt, *, is_fit: bool) -> Plan:
    """A Pod has failed, and so has the job, unless that was no fault of its own."""
    if others := [pod for pod in attempt.present if is_disrupted(pod)]:
        return disrupted(attempt, others)
    if others := [pod for pod in attempt.present if is_refused(pod)]:
        return refused(attempt, others)
    subject = attempt.subject
    pods = [pod for pod in attempt.present if pod.phase == "Failed"]
    if (made := _remedied(attempt, pods, is_fit=is_fit)) is not None:
        return made
    message = _end_of(pods[0])
    if len(pods) > 1:
        message += f"; {len(pods) - 1} more failed"
    status = statuses.finished(subject.job, subject.now, EndReason.POD_FAILED, message, succeeded=False)
    notice = subject.notice(EndReason.POD_FAILED, message, action=EventAction.FINISH, warning=True)
    return subject.plan(status, actions=deletions(subject.children.live), notice=notice)


def _remedied(attempt: Attempt, pods: Sequence[Pod], *, is_fit: bool) -> Plan | None:
    """The next attempt with another setting, or elsewhere, where the error calls for it; a setting of the user's own
    stays as it is."""
    subject = attempt.subject
    called = called_for(pods, subject.job.status)
    if called is None:
        return None
    made, pod = called
    gang = attempt.gang()
    if isinstance(gang, Lost) or (made is Remedy.WITHOUT_NVLS and NVLS in gang.users_environment(Role.WORKER)):
        return None
    message = f"Pod {pod.name} of node {pod.node}: {made.value}"
    if made is Remedy.ELSEWHERE:
        return end(attempt, end_reason(made), message, unfit=[each.node for each in pods])
    again = [replace(share, actual=None, succeeded=False) for share in attempt.booking.shares] if is_fit else None
    lacks = shortcoming(replace(gang, remedies=gang.remedies | {made}), subject.cluster)
    return end(attempt, end_reason(made), message, again=again, lacks=lacks)


def _end_of(pod: Pod) -> str:
    """How a Pod failed: what the kubelet knows of its containers."""
    for container in pod.containers:
        if container.exit_code:
            why = f" ({container.reason})" if container.reason not in {"", "Error"} else ""
            said = f": {container.message.strip()}" if container.message.strip() else ""
            where = f"Pod {pod.name} on node {pod.node}"
            return f"container {container.name} of {where} ended with exit code {container.exit_code}{why}{said}"
    return f"Pod {pod.name} on node {pod.node or '(none)'} failed before a container ended"
