"""The conditions that Kueue wants of a job's controller: whether it is over, runs, and has given its quota back."""

from datetime import datetime

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType
from closeknit.api.text.printable import printable
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.kueue.workload import KueueCondition, Workload
from closeknit.lifecycle.attempt.own_pods import children
from closeknit.lifecycle.status.conditions import found, is_true, timestamp
from closeknit.lifecycle.status.stored_job import is_finished

_MESSAGE_LENGTH = 1024  # Kueue cuts a condition's message there, too
# After these Kueue queues a Workload again at once; after others once their cause is gone (JobReconciler, step 6).
_REQUEUED_AT_ONCE = frozenset({"Preempted", "NodeFailures"})


def conditions(job: TrainingJob, there: Workload, cluster: Cluster, now: datetime) -> tuple[KueueCondition, ...] | None:
    """All its conditions, with what became of the job; None without news."""
    draft = _Conditions(there, now)
    stored = job.status.conditions
    if is_finished(job):
        if not there.says("Finished"):
            over = next(each for each in (ConditionType.SUCCEEDED, ConditionType.FAILED) if is_true(stored, each))
            why = found(stored, over)
            draft.set("Finished", True, over.value, "" if why is None else why.message)
        return draft.news
    if there.says("Finished"):
        return None
    if there.says("Evicted"):
        if there.says("QuotaReserved") and not holds(job, cluster):
            evicted = there.condition("Evicted") or KueueCondition("Evicted", "True")
            reason, message = evicted.reason or "Evicted", evicted.message or ""
            draft.set("Requeued", reason in _REQUEUED_AT_ONCE, reason, message)
            draft.set("QuotaReserved", False, "Pending", message)
            draft.set("Admitted", False, "NoReservation", "The workload has no reservation")
        return draft.news
    if there.says("Admitted"):
        ready, is_ready = there.condition("PodsReady"), is_true(stored, ConditionType.RUNNING)
        if is_ready and not there.says("PodsReady"):
            was_lost = ready is not None and ready.reason == "WaitForRecovery"
            draft.set("PodsReady", True, "Recovered" if was_lost else "Started", "All pods are ready")
        elif not is_ready and there.says("PodsReady"):
            draft.set("PodsReady", False, "WaitForRecovery", "The gang starts again")
    return draft.news


class _Conditions:
    """Conditions under change; Kueue's order stays."""

    def __init__(self, there: Workload, now: datetime) -> None:
        self._there = there
        self._now = now
        self._by_type = {each.type: each for each in there.conditions}

    @property
    def news(self) -> tuple[KueueCondition, ...] | None:
        """All of them; None where none has changed."""
        found = tuple(self._by_type.values())
        return None if found == self._there.conditions else found

    def set(self, kind: str, is_so: bool, reason: str, message: str) -> None:
        """Its time moves only when its status does."""
        status, before = str(is_so), self._by_type.get(kind)
        moved = before is None or before.status != status
        at = timestamp(self._now) if moved or before is None else before.last_transition_time
        words = printable(message, _MESSAGE_LENGTH)
        self._by_type[kind] = KueueCondition(kind, status, reason, words, at, self._there.generation)


def holds(job: TrainingJob, cluster: Cluster) -> bool:
    """Whether the job has GPUs, or Pods that may still use some."""
    return job.status.placement is not None or bool(children(job, cluster).live)
