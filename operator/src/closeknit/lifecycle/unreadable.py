"""TrainingJobs that cannot be decided: this version cannot read them, or errs about them. Their status says so; they
are otherwise left alone."""

from dataclasses import replace
from datetime import datetime, timedelta

from closeknit.api.reasons import EventAction, PendingReason
from closeknit.api.text.printable import printable
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.booking.job import InvalidJob
from closeknit.lifecycle.attempt.subject import empty, notice
from closeknit.lifecycle.own_mistake import guarded
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.status.stored_job import StoredJob, is_finished
from closeknit.lifecycle.transitions import waits
from closeknit.lifecycle.writes.answers import NOTHING, Answers
from closeknit.lifecycle.writes.plan import Notice, Plan

BROKEN_PAUSE_S = 60.0
"""Seconds until a job is retried after a mistake of ours."""
_TOLD_AGAIN = timedelta(hours=1)
_SHOWN = 300  # characters of an exception's own words


def refuse_invalid(job: InvalidJob, now: datetime, answers: Answers = NOTHING) -> Plan:
    """Why the job waits. One that holds GPUs keeps them: its Pods do not depend on our reading it. A job with an
    unreadable status gets only an Event: a new status would lose the unreadable one."""
    holds = job.status.placement is not None
    kept = "; it keeps its GPUs, and its Pods are left as they are" if holds else ""
    reason, message = PendingReason.NOT_SUPPORTED, f"this version cannot read it: {job.error}{kept}"
    if job.metadata.deletion_timestamp is not None:
        return empty(job)
    if not job.is_status_read:
        told_at = answers.noticed_at
        is_told = told_at is not None and is_between(told_at, now, told_at + _TOLD_AGAIN)
        return empty(job) if is_told else replace(empty(job), notice=_notice(job, reason, message))
    status = (waits.undecided if holds else waits.waiting)(job, now, reason, message)
    return _told(job, status, reason, message)


def erred(job: StoredJob, now: datetime, error: Exception) -> Plan:
    """The message that we erred about a job, which keeps what it holds."""
    then = "it is given nothing" if job.status.placement is None else "its Pods are left as they are"
    message = (
        f"closeknit itself erred about this job ({_words(error)}): {then}, and it is tried again every "
        f"{BROKEN_PAUSE_S:.0f} s; please report it with the operator's log"
    )
    status = job.status
    is_stored = not isinstance(job, InvalidJob) or job.is_status_read
    if is_stored and job.metadata.deletion_timestamp is None and not is_finished(job):
        status = waits.undecided(job, now, PendingReason.INTERNAL_ERROR, message)
    told = _told(job, status, PendingReason.INTERNAL_ERROR, message)
    return replace(told, error=error, wake_after_s=BROKEN_PAUSE_S)


def _told(job: StoredJob, status: TrainingJobStatus, reason: PendingReason, message: str) -> Plan:
    """The Plan that stores the status with an Event; empty where it is stored."""
    if status == job.status:
        return empty(job)
    return replace(empty(job), status=status, notice=_notice(job, reason, message))


def _notice(job: StoredJob, reason: PendingReason, message: str) -> Notice:
    action = EventAction.DECIDE if reason is PendingReason.INTERNAL_ERROR else EventAction.QUEUE
    return notice(job, reason, message, action=action, warning=True)


def _words(error: Exception) -> str:
    words = guarded(str, error)
    said = words if isinstance(words, str) else ""  # its own words may be a mistake, too
    return printable(f"{type(error).__name__}{': ' if said else ''}{said}", _SHOWN)
