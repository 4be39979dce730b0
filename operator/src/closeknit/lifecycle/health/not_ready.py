"""Pods of a running gang that their kubelet calls not ready: a readiness or startup probe that never passes, or a
container beside the trainer that has ended with an error.

The status says so, and nothing ends: ranks find each other ready or not, and only the user knows the meaning of the
probe, or the container.
"""

from datetime import datetime

from closeknit.api.names import JOB_LABEL
from closeknit.api.reasons import ConditionReason
from closeknit.cluster.booking.booking import names
from closeknit.cluster.pods.gang_runs import is_unready_by_sidecar
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.status.blame import UNREADY_AFTER
from closeknit.lifecycle.status.degraded import Degradation
from closeknit.lifecycle.status.pauses import over_at


def not_ready(attempt: Attempt) -> Degradation | None:
    """Whether some have run so long without becoming ready. It does not say which: one more or less is no news, and
    thousands of flapping probes must not be written one by one."""
    if not _idle(attempt):
        return None
    return Degradation(
        ConditionReason.PODS_NOT_READY,
        f"Pods of it run and have not been ready for {UNREADY_AFTER.total_seconds() / 60:.0f} min; kubectl get pods -l "
        f"{JOB_LABEL}={attempt.subject.job.key.name} tells which, kubectl describe pod which probe fails or which "
        "container has ended; ranks reach each other all the same",
    )


def words(attempt: Attempt) -> str | None:
    """Which they are, and the kubelet's message about the first; None without any."""
    found = _idle(attempt)
    if not found:
        return None
    condition = found[0].condition("Ready")
    said = f": {condition.message.strip()}" if condition is not None and condition.message else ""
    return f"{names([pod.name for pod in found])} not ready for {UNREADY_AFTER.total_seconds() / 60:.0f} min{said}"


def _idle(attempt: Attempt) -> list[Pod]:
    now = attempt.subject.now
    return [pod for pod in attempt.present if (until := _until(pod, now)) is not None and until <= now]


def ripens_at(attempt: Attempt) -> datetime | None:
    """When more of them will have been not ready for so long; None where no other Pod is not ready."""
    now = attempt.subject.now
    moments = (_until(pod, now) for pod in attempt.present)
    return min((each for each in moments if each is not None and each > now), default=None)


def _until(pod: Pod, now: datetime) -> datetime | None:
    """When the Pod will have been not ready for so long; None if it is ready, or does not run."""
    ready = pod.condition("Ready") if pod.phase == "Running" else None
    if ready is None or ready.status != "False" or pod.deletion_timestamp is not None or is_unready_by_sidecar(pod):
        return None
    if any(container.exit_code == 0 and not container.init for container in pod.containers):
        return None  # a helper that is done leaves its Pod not ready for good
    return over_at(ready.last_transition_time, UNREADY_AFTER, now)
