"""A job that holds nothing: is it acceptable, is there a place for it, may it have it now."""

from datetime import datetime, timedelta

from closeknit.api.names import INDEX_LABEL, PendingReason, service_name
from closeknit.api.trainingjob_status import PlacementStatus, TrainingJobStatus
from closeknit.cluster.pod import Pod
from closeknit.launch.environment import environment
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.pod import pod
from closeknit.launch.service import service
from closeknit.launch.template import check_template
from closeknit.lifecycle import booking, statuses, supported
from closeknit.lifecycle.answers import Refusal
from closeknit.lifecycle.booking import Lost
from closeknit.lifecycle.children import taken
from closeknit.lifecycle.conditions import moment
from closeknit.lifecycle.plan import Action, CreatePod, CreateService, DeleteService, Plan
from closeknit.lifecycle.subject import Subject, deletions, seconds_until
from closeknit.placement.place import place
from closeknit.placement.placement import NoFit, Placement
from closeknit.placement.request import request
from closeknit.placement.tables import Tables

# Attempts that others ended. One is taken for bad luck; of several in a row each waits twice as long as the one before.
_BAD_LUCK = frozenset({"ChildDeleted", "GPUTaken", "NodeChanged"})
_IN_A_ROW_S = 600
_LONGEST_PAUSE_S = 300

_TABLES = Tables()  # until schedule is handed its own


def decide(subject: Subject) -> Plan:
    """The booking of the job and its children, or why it waits."""
    leftovers = _leftovers(subject)
    if leftovers:
        return subject.plan(statuses.cleaning(subject.job, subject.now), actions=deletions(leftovers))
    job, now = subject.job, subject.now
    if words := supported.refusal(job.spec):
        return refuse(subject, PendingReason.NOT_SUPPORTED, words)
    if words := check_template(job):
        return refuse(subject, PendingReason.TEMPLATE_INVALID, words)
    refusal = _standing(subject)
    if refusal is not None and now < refusal.retry_at:
        wake = seconds_until(refusal.retry_at, now)
        return refuse(subject, refusal.reason, refusal.message, wake_after_s=wake)
    ready = restart_at(job.status)
    if ready is not None and now < ready:
        return subject.plan(statuses.cleaning(job, now), wake_after_s=seconds_until(ready, now))
    answer = place(subject.cluster, request(job.key, job.spec), _TABLES)
    if isinstance(answer, NoFit):
        return refuse(subject, answer.reason, answer.message, answer.nearest)
    return _book(subject, answer)


def refuse(
    subject: Subject,
    reason: PendingReason,
    message: str,
    nearest: tuple[str, ...] = (),
    *,
    wake_after_s: float | None = None,
    actions: tuple[Action, ...] = (),
) -> Plan:
    """The job waits for this reason. The Event tells of a new reason, not of new numbers."""
    before = subject.job.status.pending
    notice = None
    if before is None or before.reason != reason:
        notice = subject.notice(reason, message, action="Queue", warning=True)
    status = statuses.waiting(subject.job, subject.now, reason, message, nearest)
    return subject.plan(status, actions=actions, notice=notice, wake_after_s=wake_after_s)


def restart_at(status: TrainingJobStatus) -> datetime | None:
    """When the next attempt may start; None where there is nothing to wait for."""
    if not status.attempts:
        return None
    last = moment(status.attempts[-1].ended)
    row = 0
    for ended in reversed(status.attempts):
        if ended.reason not in _BAD_LUCK or (last - moment(ended.ended)).total_seconds() > _IN_A_ROW_S:
            break
        row += 1
    pause_s = 0 if row <= 1 else min(2 ** (row - 1), _LONGEST_PAUSE_S)
    return last + timedelta(seconds=pause_s) if pause_s else None


def create_pods(gang: Gang, indexes: list[int]) -> tuple[CreatePod, ...]:
    """The Pods of these node ranks."""
    return tuple(CreatePod(pod(gang, index)) for index in indexes)


def create_service(gang: Gang) -> tuple[Action, ...]:
    """The Service of the attempt; the one of the attempt before goes."""
    before = service_name(gang.job.metadata.name, gang.attempt - 1)
    return (CreateService(service(gang)), *((DeleteService(before),) if gang.attempt > 1 else ()))


def _book(subject: Subject, placement: Placement) -> Plan:
    job, number = subject.job, subject.attempt
    holder = taken(job, number, len(placement.shares), subject.cluster)
    if holder is not None:
        message = (
            f"{holder.kind} {job.key.namespace}/{holder.name} exists and belongs to {holder.owner}; "
            "delete it, or delete this job and give it another name"
        )
        return refuse(subject, PendingReason.NAME_CONFLICT, message)
    booked = booking.placement_status(placement)
    ipc_lock = not subject.answers.ipc_lock_refused
    gang = booking.gang(job, number, booked, subject.cluster, ipc_lock=ipc_lock)
    if isinstance(gang, Lost):  # placement chose from this very cluster
        raise RuntimeError(gang.message)  # noqa: TRY004 - no matter of types
    asks_for_lock = gang.uses_rdma
    status = statuses.booked(
        job,
        subject.now,
        booked,
        attempt=number,
        epoch=subject.epoch,
        skipped=environment(gang, 0).skipped,
        ipc_lock_refused=asks_for_lock and not ipc_lock,
    )
    everybody = list(range(len(gang.nodes)))
    return subject.plan(
        status,
        probes=_probes(subject, gang),
        actions=(*create_service(gang), *create_pods(gang, everybody)),
        notice=subject.notice("Placed", _told(booked), action="Place"),
        adds_ipc_lock=asks_for_lock and ipc_lock,
    )


def _probes(subject: Subject, gang: Gang) -> tuple[Manifest, ...]:
    """What is asked before the booking: one Pod before the first, and whatever was refused the last time."""
    probes = [pod(gang, 0)] if not subject.job.status.attempts else []
    refusal = subject.answers.refusal
    if refusal is not None:
        again = _as_now(refusal.manifest, gang)
        if _name(again) not in [_name(probe) for probe in probes]:
            probes.append(again)
    return tuple(probes)


def _as_now(refused: Manifest, gang: Gang) -> Manifest:
    """What was refused as it would be made now: the priority class, or what a policy admits, may have changed."""
    if refused["kind"] != "Pod":
        return refused
    index = int(refused["metadata"]["labels"][INDEX_LABEL])
    return pod(gang, index if index < len(gang.nodes) else 0)


def _name(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _leftovers(subject: Subject) -> tuple[Pod, ...]:
    """Own Pods that hold GPUs, or a name that the next attempt needs."""
    return tuple(pod for pod in subject.children.own if pod.is_live or (pod.attempt or 0) >= subject.attempt)


def _standing(subject: Subject) -> Refusal | None:
    """The refusal of this very spec; after a change of the job it is asked again at once."""
    refusal = subject.answers.refusal
    return refusal if refusal is not None and refusal.generation == subject.job.metadata.generation else None


def _told(booked: PlacementStatus) -> str:
    gpus = sum(len(node.gpus) for node in booked.nodes)
    bandwidth = booked.predicted_bus_bandwidth_gb_s
    predicted = "" if bandwidth is None else f", {bandwidth:g} GB/s predicted"
    return f"{gpus} GPUs on {booking.names(booked)}{predicted}"
