"""The wait of a job until Kueue admits it, and its end where Kueue takes its quota back."""

from closeknit.api.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.api.text.opaque import short
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.kueue.workload import KUEUE_VERSION, Workload, workload_name
from closeknit.lifecycle.verdict import EvictByKueue, Refusal, Wait, WaitCause
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room

_CHECK_STATES = frozenset({"Ready"})


def queued(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The verdict on a job that Kueue has not admitted, or admits no longer; None for one without a LocalQueue."""
    workload, queue = case.workload, case.job.metadata.labels.get(QUEUE_LABEL)
    if workload is None and not queue:
        return None
    if case.known is not None and case.known.shape is not None:
        return None  # it was asked with the very same, and came past this
    held = room.cluster.booking_of(case.key)
    if held is not None and (workload is None or workload.is_admitted or case.key in walk.memory.busy):
        return None  # one that was deleted is asked for again first (lifecycle/kueue), and Kueue then says no
    if held is not None and workload is not None and not held.awaits:
        return Outcome(EvictByKueue(held, evicted_words(workload)), is_settled=False)
    if workload is not None and not queue:
        return None  # it goes: somebody has taken the job out of its queue
    words = waits(case.job, workload, room.cluster)
    if words is None:
        return None
    return Outcome(Wait(Refusal(WaitCause.REFUSED, PendingReason.WAITING_FOR_KUEUE, words)))


def waits(job: TrainingJob, workload: Workload | None, cluster: Cluster) -> str | None:
    """What a job in a LocalQueue waits for, and what Kueue says of it; None for one that it has admitted."""
    queue = short(job.metadata.labels.get(QUEUE_LABEL, ""))
    if workload is None:
        return _not_queued(job, queue, cluster)
    name = workload.name
    if workload.is_going or workload.says("Finished"):
        return f"its Workload {name} is over and goes; closeknit then asks LocalQueue {queue} for quota again"
    if not workload.is_active:
        why = _said(workload, "Evicted") or "spec.active is false"
        activate = '{"spec":{"active":true}}'
        return (
            f"its Workload {name} in LocalQueue {queue} is deactivated ({why}); to have Kueue queue it again: kubectl "
            f"patch workload {name} --type=merge -p '{activate}'"
        )
    if workload.says("Evicted") and workload.says("QuotaReserved"):
        return f"Kueue has evicted it from LocalQueue {queue} ({_said(workload, 'Evicted')}); its quota is given back"
    if workload.is_admitted:
        added = cluster.kueue.admission_of(job, workload)
        return added.contradiction or None
    if workload.says("QuotaReserved"):
        open_checks = "; ".join(
            f"{short(each.name)} is {each.state or 'not looked at'}{f': {each.message}' if each.message else ''}"
            for each in workload.checks
            if each.state not in _CHECK_STATES
        )
        return (
            f"it has quota of ClusterQueue {short(workload.cluster_queue)} by LocalQueue {queue}, and waits for "
            f"Kueue's admission checks{f': {open_checks}' if open_checks else ''}"
        )
    said = _said(workload, "QuotaReserved")
    if said:
        return f"it waits for quota in Kueue's LocalQueue {queue}; Kueue says of Workload {name}: {said}"
    return (
        f"it waits for Kueue to look at its Workload {name} in LocalQueue {queue}; if this lasts, have an "
        "administrator see whether Kueue's manager runs"
    )


def _not_queued(job: TrainingJob, queue: str, cluster: Cluster) -> str:
    if not cluster.kueue.is_served:
        return (
            f"it has the label {QUEUE_LABEL}={queue}, and closeknit cannot read Kueue's Workloads "
            f"(kueue.x-k8s.io/{KUEUE_VERSION}): have an administrator install Kueue 0.15 or newer and set "
            "kueue.enabled of closeknit's chart, or remove the label"
        )
    wanted = job.metadata.labels.get(QUEUE_PRIORITY_LABEL)
    if wanted and cluster.kueue.priority(wanted) is None:
        return (
            f"it has the label {QUEUE_PRIORITY_LABEL}={short(wanted)}, and there is no such WorkloadPriorityClass; "
            "name another one, or have an administrator create it"
        )
    name = workload_name(job.metadata.name, job.metadata.uid or "")
    return (
        f"it asks Kueue's LocalQueue {queue} for quota, by Workload {name}; if that does not come, the operator's log "
        "says why"
    )


def evicted_words(workload: Workload) -> str:
    """Why a job that holds GPUs must give them up."""
    why = _said(workload, "Preempted") or _said(workload, "Evicted")
    if why is None and workload.says("Finished"):
        why = "its Workload was declared finished"
    elif why is None:
        why = "its Workload is deleted" if workload.is_going else "its Workload is not admitted"
    return (
        f"Kueue takes back the quota of LocalQueue {short(workload.queue)}: {why}; the job is not charged for this, "
        "and starts again once Kueue admits it"
    )


def _said(workload: Workload, kind: str) -> str | None:
    """What Kueue says by a condition, if it says anything now."""
    found = workload.condition(kind)
    if found is None or (kind in {"Evicted", "Preempted"} and found.status != "True"):
        return None
    return found.message or found.reason
