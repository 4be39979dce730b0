"""TrainingJobs that the API server stores and this version cannot read: refused in words, and otherwise left alone."""

from datetime import datetime

from closeknit.api.names import EventAction, PendingReason
from closeknit.cluster.job import InvalidJob
from closeknit.lifecycle import statuses
from closeknit.lifecycle.plan import Plan
from closeknit.lifecycle.subject import notice


def refuse_invalid(job: InvalidJob, now: datetime) -> Plan:
    """Why the job waits. One that holds GPUs, or may, keeps them: its Pods do not depend on our reading it."""
    message = f"this version cannot read it: {job.error}"
    is_left = job.status.placement is not None or not job.is_status_read or job.metadata.deletion_timestamp is not None
    status = job.status if is_left else statuses.waiting(job, now, PendingReason.NOT_SUPPORTED, message)
    number = status.attempt or 1
    changed = status != job.status
    told = notice(job.metadata, number, PendingReason.NOT_SUPPORTED, message, action=EventAction.QUEUE, warning=True)
    return Plan(
        job=job.key,
        uid=job.metadata.uid or "",
        resource_version=job.metadata.resource_version or "",
        generation=job.metadata.generation,
        attempt=number,
        status=status if changed else None,
        notice=told if changed else None,
    )
