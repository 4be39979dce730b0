"""The inputs of one decision about one job, and how they become a Plan."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionReason, ConditionType, EndReason, EventAction, EventReason, PendingReason
from closeknit.api.text.printable import printable
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.gang import Manifest
from closeknit.launch.template import account
from closeknit.lifecycle.attempt.own_pods import OwnPods
from closeknit.lifecycle.status.stored_job import StoredJob
from closeknit.lifecycle.transitions import waits
from closeknit.lifecycle.writes.answers import Answers
from closeknit.lifecycle.writes.plan import Action, Addition, Create, Delete, Notice, Plan, Telling
from closeknit.lifecycle.writes.quota_demand import QuotaDemand

Told = EventReason | EndReason | PendingReason
NOTE_MAX_LENGTH = 1000  # events.k8s.io/v1 bounds a note at 1 kB


@dataclass(frozen=True, slots=True)
class Subject:
    """One job at one moment."""

    job: TrainingJob
    cluster: Cluster
    now: datetime
    children: OwnPods
    answers: Answers
    epoch: int
    is_draft: bool = False
    """Whether words that may be left for later need no status yet."""

    @property
    def attempt(self) -> int:
        """Number of the current attempt, or of the first one."""
        return self.job.status.attempt or 1

    def plan(
        self,
        status: TrainingJobStatus | None = None,
        *,
        demand: QuotaDemand | None = None,
        probes: tuple[Manifest, ...] = (),
        opening: tuple[Create, ...] = (),
        actions: tuple[Action, ...] = (),
        notice: Notice | None = None,
        wake_after_s: float | None = None,
        adds: frozenset[Addition] = frozenset(),
    ) -> Plan:
        """The Plan. An equal status is neither written nor announced again.

        One that tells why the job waits speaks of the spec that this was found for, and of no newer one.
        """
        metadata = self.job.metadata
        wanted = waits.decided(self.job, self.job.status if status is None else status, self.now)
        if wanted.pending is None and wanted.observed_generation not in {None, metadata.generation}:
            wanted = wanted.model_copy(update={"observed_generation": metadata.generation})
        changed = wanted if wanted != self.job.status else None
        return Plan(
            job=self.job.key,
            uid=metadata.uid or "",
            resource_version=metadata.resource_version or "",
            generation=metadata.generation,
            attempt=wanted.attempt or 1,
            status=changed,
            demand=demand,
            admitted=() if demand is None else self.answers.admitted_lately(metadata.generation, self.now),
            account="" if demand is None else account(self.job.spec.template),  # of a gang that is to be made
            probes=probes,
            opening=opening,
            actions=actions,
            notice=notice if changed is not None else None,
            wake_after_s=wake_after_s,
            adds=adds,
        )

    def nothing(self) -> Plan:
        """The Plan that writes nothing."""
        return empty(self.job)

    @property
    def asks_for_ipc_lock(self) -> bool:
        """Whether Pods that use verbs ask for IPC_LOCK: not where the namespace is known to refuse it."""
        return not (self.is_ipc_lock_refusal_told or self.answers.ipc_lock_refused)

    @property
    def is_ipc_lock_refusal_told(self) -> bool:
        """Whether the status says that the namespace refuses it."""
        return any(
            condition.type == ConditionType.DEGRADED
            and condition.status != "False"
            and condition.reason == ConditionReason.IPC_LOCK_REFUSED
            for condition in self.job.status.conditions
        )

    def notice(self, reason: Told, note: str, *, action: EventAction, warning: bool = False) -> Notice:
        """The Event of one change of the job's state."""
        return notice(self.job, reason, note, action=action, warning=warning)


def empty(
    job: StoredJob,
    *,
    notice: Notice | None = None,
    wake_after_s: float | None = None,
    telling: Telling | None = None,
    error: Exception | None = None,
) -> Plan:
    """The Plan that writes nothing, or nothing yet."""
    metadata = job.metadata
    return Plan(
        job=job.key,
        uid=metadata.uid or "",
        resource_version=metadata.resource_version or "",
        generation=metadata.generation,
        attempt=job.status.attempt or 1,
        notice=notice,
        wake_after_s=wake_after_s,
        telling=telling,
        error=error,
    )


def notice(job: StoredJob, reason: Told, note: str, *, action: EventAction, warning: bool = False) -> Notice:
    """The Event of one change of state. Told again, it has the same name, so that there is one of it."""
    metadata, status = job.metadata, job.status
    run = f"{status.attempt or 1}/{status.restarts or 0}"
    digest = sha256(f"{metadata.uid}/{run}/{reason}".encode()).hexdigest()[:16]
    shown = printable(note, NOTE_MAX_LENGTH).encode()[:NOTE_MAX_LENGTH].decode(errors="ignore")
    return Notice(f"{metadata.name}.{digest}", reason, action, shown, warning)


def deletions(pods: tuple[Pod, ...]) -> tuple[Delete, ...]:
    """Deletes those that are not being deleted yet."""
    return tuple(Delete("Pod", pod.name, pod.uid) for pod in pods if pod.deletion_timestamp is None)


def seconds_until(moment: datetime, now: datetime) -> float:
    """Seconds from now, never negative."""
    return max(0.0, (moment - now).total_seconds())
