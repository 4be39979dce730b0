"""A job that holds GPUs: make its children, release them together, and see how the attempt goes and ends."""

from dataclasses import dataclass
from datetime import timedelta

from closeknit.api.names import GPU_RESOURCE, ConditionType, service_name
from closeknit.api.trainingjob_status import Binding, NodeAssignment, PlacementStatus
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node import Holder, HolderKind
from closeknit.cluster.pod import Pod
from closeknit.launch.claim import claim
from closeknit.launch.gang import Gang
from closeknit.launch.pod import release_patch
from closeknit.lifecycle import booking, statuses, waiting
from closeknit.lifecycle.answers import Refused
from closeknit.lifecycle.booking import Lost
from closeknit.lifecycle.children import is_left_over, is_released, own_claim
from closeknit.lifecycle.conditions import is_true
from closeknit.lifecycle.plan import Action, CreateClaim, DeletePod, DeleteService, Plan, ReleasePod
from closeknit.lifecycle.subject import Subject, deletions, seconds_until
from closeknit.lifecycle.verification import verified
from closeknit.placement.admission import admits
from closeknit.placement.request import request

# A rank that cannot be scheduled so long after its release has lost its GPUs. The scheduler says so within 1.5 s, and a
# device that was just freed is taken within 0.05 s (measured on Kubernetes 1.36).
LOST_AFTER = timedelta(seconds=2)
RELEASE_AGAIN_AFTER = timedelta(seconds=2)
# The scheduler's words for a claim that finds its devices taken, and for a device plugin that has too few left.
_TAKEN_WORDS = ("cannot allocate all claims", f"Insufficient {GPU_RESOURCE}")


@dataclass(frozen=True, slots=True)
class Attempt:
    """The current attempt of a booked job, and the Pods of it that are there."""

    subject: Subject
    placement: PlacementStatus
    pods: tuple[Pod | None, ...]
    """By node rank; None where there is none."""

    @property
    def present(self) -> tuple[Pod, ...]:
        """Those that are there."""
        return tuple(pod for pod in self.pods if pod is not None)

    @property
    def missing(self) -> list[int]:
        """Node ranks without a Pod."""
        return [index for index, pod in enumerate(self.pods) if pod is None]

    def is_released(self, index: int) -> bool:
        """Whether nothing of ours holds back the Pod of one node rank."""
        pod = self.pods[index]
        is_dra = self.placement.nodes[index].binding is Binding.DRA
        return pod is not None and is_released(self.subject.cluster, pod, is_dra=is_dra)

    @property
    def has_begun(self) -> bool:
        """Whether any Pod of it was ever released, as far as objects, status and memory tell.

        Where all three are silent (the whole gang deleted before it ran, and the operator restarted since) nothing of
        it is left either, and beginning it again under the same names does no harm.
        """
        return (
            is_true(self.subject.job.status.conditions, ConditionType.RUNNING)
            or self.subject.answers.released == self.subject.attempt
            or any(self.is_released(index) for index in range(len(self.pods)))
        )

    def gang(self) -> Gang | Lost:
        """What launch makes its children of."""
        job = self.subject.job
        refused = self.subject.answers.ipc_lock_refused or is_true(job.status.conditions, ConditionType.DEGRADED)
        number = self.subject.attempt
        return booking.gang(job, number, self.placement, self.subject.cluster, ipc_lock=not refused)


def follow(subject: Subject, placement: PlacementStatus) -> Plan:
    """The next step of a booked job."""
    by_index = subject.children.of(subject.attempt)
    attempt = Attempt(subject, placement, tuple(by_index.get(index) for index in range(len(placement.nodes))))
    refusal = subject.answers.refusal
    if refusal is not None and refusal.refused is Refused.CHILD and refusal.attempt == subject.attempt:
        return waiting.refuse(subject, refusal.reason, refusal.message, actions=_undone(attempt))
    ending = [pod for pod in attempt.present if pod.deletion_timestamp is not None and pod.phase != "Succeeded"]
    if attempt.has_begun and (attempt.missing or ending):
        return _child_deleted(attempt, ending)
    if any(pod.phase == "Failed" for pod in attempt.present):
        return _failed(attempt)
    if not attempt.missing and all(pod.phase == "Succeeded" for pod in attempt.present):
        message = f"all {len(attempt.pods)} Pods ended with exit code 0"
        status = statuses.finished(subject.job, subject.now, "Succeeded", message, succeeded=True)
        return subject.plan(status, notice=subject.notice("Succeeded", message, action="Finish"))
    old = deletions(subject.children.before(subject.attempt))
    if attempt.missing or ending:
        return _complete(attempt, old)
    if all(attempt.is_released(index) for index in range(len(attempt.pods))):
        return _watch(attempt, old)
    if subject.children.before(subject.attempt):
        return subject.plan(actions=old)  # those that go still hold the GPUs
    return _release(attempt)


def end(
    attempt: Attempt, reason: str, message: str, *, placement: PlacementStatus | None, pods: tuple[Pod, ...]
) -> Plan:
    """The attempt ends uncharged, its Pods go, and the next one follows."""
    subject = attempt.subject
    status = statuses.restarting(subject.job, subject.now, reason, message, placement=placement)
    service = DeleteService(service_name(subject.job.metadata.name, subject.attempt))
    notice = subject.notice(reason, message, action="Restart", warning=True)
    return subject.plan(status, actions=(*deletions(pods), service), notice=notice)


def _undone(attempt: Attempt) -> tuple[Action, ...]:
    """Takes back what was made of an attempt that a refusal keeps from being whole; none of it has run."""
    service = DeleteService(service_name(attempt.subject.job.metadata.name, attempt.subject.attempt))
    return (*deletions(attempt.present), service)


def _child_deleted(attempt: Attempt, ending: list[Pod]) -> Plan:
    subject = attempt.subject
    gone = [f"{subject.job.metadata.name}-a{subject.attempt} rank {index}" for index in attempt.missing]
    who = ", ".join([*(f"Pod {pod.name}" for pod in ending), *gone][:4])
    message = f"{who} was deleted after the gang was released; the job starts again"
    kept = attempt.placement if _still_free(attempt) else None
    if kept is not None:
        nodes = [node.model_copy(update={"actual": None}) for node in kept.nodes]
        kept = kept.model_copy(update={"nodes": nodes})
    return end(attempt, "ChildDeleted", message, placement=kept, pods=subject.children.live)


def _still_free(attempt: Attempt) -> bool:
    """Whether nobody else has come to hold the booked GPUs, and their nodes are still fit for new Pods."""
    if isinstance(attempt.gang(), Lost):
        return False
    job = attempt.subject.job.key
    asked = request(job, attempt.subject.job.spec)
    ours = {
        Holder(HolderKind.JOB, job.namespace, job.name),
        *(Holder(HolderKind.CLAIM, job.namespace, pod.name) for pod in attempt.present),
    }
    for assignment in attempt.placement.nodes:
        view = attempt.subject.cluster.nodes[assignment.name]
        if view.exclusion is not None or not admits(view, asked):
            return False
        if any(index not in view.usable or view.holders.get(index) not in {None, *ours} for index in assignment.gpus):
            return False
    return True


def _failed(attempt: Attempt) -> Plan:
    subject = attempt.subject
    failed = [pod for pod in attempt.present if pod.phase == "Failed"]
    message = _end_of(failed[0])
    if len(failed) > 1:
        message += f"; {len(failed) - 1} more failed"
    status = statuses.finished(subject.job, subject.now, "PodFailed", message, succeeded=False)
    notice = subject.notice("PodFailed", message, action="Finish", warning=True)
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


def _complete(attempt: Attempt, old: tuple[DeletePod, ...]) -> Plan:
    """Makes what is missing before the release."""
    subject = attempt.subject
    ready = waiting.restart_at(subject.job.status)
    if ready is not None and subject.now < ready:
        return subject.plan(actions=old, wake_after_s=seconds_until(ready, subject.now))
    gang = attempt.gang()
    if isinstance(gang, Lost):
        return end(attempt, "NodeChanged", gang.message, placement=None, pods=subject.children.live)
    service = waiting.create_service(gang) if subject.answers.service_of != subject.attempt else ()
    return subject.plan(actions=(*old, *service, *waiting.create_pods(gang, attempt.missing)))


def _release(attempt: Attempt) -> Plan:
    """Lets all Pods of the gang go at once: every one of them exists.

    What is not released though we did so may be on its way out, its claim collected before its Pod is seen to go: a
    release is not said twice within two seconds.
    """
    subject = attempt.subject
    released_at = subject.answers.released_at if subject.answers.released == subject.attempt else None
    if released_at is not None and subject.now < released_at + RELEASE_AGAIN_AFTER:
        return subject.plan(wake_after_s=seconds_until(released_at + RELEASE_AGAIN_AFTER, subject.now))
    gang = attempt.gang()
    if isinstance(gang, Lost):
        return end(attempt, "NodeChanged", gang.message, placement=None, pods=subject.children.live)
    actions: list[Action] = []
    if subject.answers.service_of != subject.attempt:
        actions += waiting.create_service(gang)
    for index, pod in enumerate(attempt.present):
        if attempt.is_released(index):
            continue
        if gang.nodes[index].binding is Binding.DRA:
            there = subject.cluster.claims.get(pod.key)
            if there is not None and is_left_over(there, subject.job):
                return subject.plan()  # of a Pod that had the name before; the decision after its end releases them all
            actions.append(CreateClaim(claim(gang, index, pod.uid)))
        else:
            actions.append(ReleasePod(pod.name, release_patch(pod.uid, pod.gates)))
    return subject.plan(actions=tuple(actions))


def _watch(attempt: Attempt, old: tuple[DeletePod, ...]) -> Plan:
    """Looks after a gang that is released as a whole."""
    subject = attempt.subject
    stuck = next((pod for pod in attempt.present if _unschedulable(pod) is not None), None)
    if stuck is not None:
        return _stuck(attempt, stuck, old)
    if any(_is_unseen_yet(subject.cluster, pod) for pod in attempt.present):
        return subject.plan(actions=old)
    placement, result = verified(subject.cluster, attempt.placement, attempt.present)
    if all(pod.phase in {"Running", "Succeeded"} for pod in attempt.present):
        return subject.plan(statuses.running(subject.job, subject.now, placement, result), actions=old)
    if result.status is False:
        return subject.plan(statuses.verified(subject.job, subject.now, placement, result), actions=old)
    return subject.plan(actions=old)


def _is_unseen_yet(cluster: Cluster, pod: Pod) -> bool:
    """Whether the Pod was given GPUs that are about to be seen: a claim is allocated before its Pod is bound.

    Waiting for it saves a status that would say less.
    """
    claim = own_claim(cluster, pod)
    return bool(pod.node) and pod.is_live and claim is not None and not claim.allocated


def _stuck(attempt: Attempt, pod: Pod, old: tuple[DeletePod, ...]) -> Plan:
    """A released rank that the scheduler cannot place: its GPUs were taken, or its node lacks something else."""
    subject = attempt.subject
    released_at = subject.answers.released_at
    if released_at is not None and subject.now < released_at + LOST_AFTER:
        return subject.plan(actions=old, wake_after_s=seconds_until(released_at + LOST_AFTER, subject.now))
    words = _unschedulable(pod) or ""
    node: NodeAssignment = attempt.placement.nodes[attempt.pods.index(pod)]
    allocated = own_claim(subject.cluster, pod)
    if any(said in words for said in _TAKEN_WORDS) and not (allocated is not None and allocated.allocated):
        message = f"Pod {pod.name} lost GPUs of node {node.name} to somebody else ({words}); the job is placed anew"
        return end(attempt, "GPUTaken", message, placement=None, pods=subject.children.live)
    message = f"Pod {pod.name} cannot be scheduled on node {node.name}: {words}"
    return subject.plan(statuses.starting(subject.job, subject.now, "Unschedulable", message), actions=old)


def _unschedulable(pod: Pod) -> str | None:
    """The scheduler's words, None for a Pod that it has not given up."""
    condition = pod.condition("PodScheduled")
    if condition is None or condition.status != "False" or condition.reason != "Unschedulable":
        return None
    return condition.message or "no reason given"
