"""Failures that another setting, or other nodes, may cure: the job is retried with that, once for each."""

from collections.abc import Sequence

from closeknit.api.reasons import ConditionReason, ConditionType, EndReason
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.pods.symptoms import Symptom
from closeknit.launch.remedy import Remedy, remedy
from closeknit.lifecycle.status import blame
from closeknit.lifecycle.status.conditions import found

_ENDS = {
    Remedy.WITHOUT_NVLS: blame.end_reason(Symptom.MULTICAST_FAILED),
    Remedy.ELSEWHERE: blame.end_reason(Symptom.PEER_UNREACHABLE),
}
_TOLD = {ConditionReason.WITHOUT_MULTICAST: Remedy.WITHOUT_NVLS}


def remedies(status: TrainingJobStatus) -> frozenset[Remedy]:
    """The remedies that attempts of the job needed. The status keeps only the last attempts, so a condition tells it,
    too."""
    ended = {attempt.reason for attempt in status.attempts}
    told = found(status.conditions, ConditionType.DEGRADED)
    kept = {made for reason, made in _TOLD.items() if told is not None and told.reason == reason}
    return frozenset({made for made, reason in _ENDS.items() if reason in ended} | kept)


def end_reason(made: Remedy) -> EndReason:
    """The end reason of an attempt that needs this remedy."""
    return _ENDS[made]


def called_for(pods: Sequence[Pod], status: TrainingJobStatus) -> tuple[Remedy, Pod] | None:
    """The remedy that the failed Pods of an attempt need and that was not tried yet, and the first Pod that says so.

    Multicast takes one of them to fail all. An unreachable peer is one that may have crashed: it counts only where
    every Pod that failed says no more than that.
    """
    done = remedies(status)
    said = [(_remedy(pod), pod) for pod in pods]
    for made, pod in said:
        if made is Remedy.WITHOUT_NVLS and made not in done:
            return made, pod
    if said and all(made is Remedy.ELSEWHERE for made, _ in said) and Remedy.ELSEWHERE not in done:
        return Remedy.ELSEWHERE, said[0][1]
    return None


def _remedy(pod: Pod) -> Remedy | None:
    ended = (container for container in pod.containers if container.exit_code)
    return next((made for container in ended if (made := remedy(container.message)) is not None), None)
