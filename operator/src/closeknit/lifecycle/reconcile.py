"""The next step of one job."""

from datetime import datetime

from closeknit.api.names import ConditionType, service_name
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle import attempt, statuses, waiting
from closeknit.lifecycle.answers import NOTHING, Answers
from closeknit.lifecycle.children import children
from closeknit.lifecycle.conditions import is_true
from closeknit.lifecycle.plan import DeleteService, Plan
from closeknit.lifecycle.subject import Subject, deletions


def reconcile(
    job: TrainingJob,
    cluster: Cluster,
    now: datetime,
    *,
    answers: Answers = NOTHING,
    epoch: int = 1,
) -> Plan:
    """What is to be written for one job now, from what is stored now: nothing depends on what was seen change.

    Applied, and seen again, it gives a Plan that writes nothing.
    """
    subject = Subject(job, cluster, now, children(job, cluster), answers, epoch)
    if job.metadata.deletion_timestamp is not None:
        return subject.nothing()  # its children have it as owner, and go with it
    if is_finished(job):
        return subject.plan(actions=deletions(subject.children.live))
    if job.spec.suspend:
        return _suspend(subject)
    if job.status.placement is not None:
        return attempt.follow(subject, job.status.placement)
    return waiting.decide(subject)


def is_finished(job: TrainingJob) -> bool:
    """Whether the job is over."""
    return any(is_true(job.status.conditions, end) for end in (ConditionType.SUCCEEDED, ConditionType.FAILED))


def _suspend(subject: Subject) -> Plan:
    booked = subject.job.status.placement is not None
    service = DeleteService(service_name(subject.job.metadata.name, subject.attempt))
    status = statuses.suspended(subject.job, subject.now)
    note = "spec.suspend is true: its Pods are deleted and its GPUs are free" if booked else "spec.suspend is true"
    return subject.plan(
        status,
        actions=(*deletions(subject.children.live), *((service,) if booked else ())),
        notice=subject.notice("Suspended", note, action="Suspend"),
    )
