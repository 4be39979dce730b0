"""Jobs and Pods of a file of a cluster's objects."""

from collections.abc import Iterable
from datetime import datetime

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cli.jobs.told_job import ToldJob, told_of
from closeknit.cli.jobs.told_pod import PENDING, SUCCEEDED, ToldPod
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.pods.pod import Pod


def clock_of(objects: Iterable[object], clock: datetime) -> datetime:
    """When this was recorded, as a plan takes it: the newest heartbeat that is not after `clock`, or `clock` itself."""
    beats = (each.heartbeat for each in objects if isinstance(each, AgentReport))
    return max((beat for beat in beats if beat is not None and beat <= clock), default=clock)


def jobs_of(objects: Iterable[object]) -> list[ToldJob]:
    """All of them, by namespace and name."""
    found = [each for each in objects if isinstance(each, TrainingJob | InvalidJob)]
    return sorted(map(_told, found), key=lambda job: job.key)


def pods_of(objects: Iterable[object], job: JobKey) -> list[ToldPod]:
    """Those of one job, of all attempts."""
    return [_told_pod(each) for each in objects if isinstance(each, Pod) and each.job == job]


def _told(job: TrainingJob | InvalidJob) -> ToldJob:
    metadata = job.metadata.wire() | {"namespace": job.key.namespace}
    if isinstance(job, InvalidJob):
        return told_of({"metadata": metadata, "status": job.status.wire(), "unreadable": job.error})
    spec = job.spec.model_dump(mode="json", by_alias=True, include={"gpus", "queue", "priority_class_name", "suspend"})
    return told_of({"metadata": metadata, "spec": spec, "status": job.status.wire()})


def _told_pod(pod: Pod) -> ToldPod:
    ended = next((each for each in pod.containers if each.exit_code or each.waiting), None)
    word = {"Succeeded": SUCCEEDED}.get(pod.phase, pod.phase or PENDING)
    if pod.deletion_timestamp is not None:
        word = "Terminating"
    elif ended is not None and pod.phase != "Succeeded":
        word = ended.reason or "Error"
    return ToldPod(pod.name, pod.node, word, pod.message or (ended.message if ended else ""))
