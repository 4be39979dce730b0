"""Since when a job is what it is."""

from datetime import datetime

from closeknit.cli.jobs.told_job import ToldJob
from closeknit.cli.output.page import length

_CONDITION = {
    "Running": "Running",
    "Starting": "Placed",
    "Suspended": "Suspended",
    "Succeeded": "Succeeded",
    "Failed": "Failed",
}


def since(job: ToldJob) -> str | None:
    """Since when it is in its state, as Kubernetes writes times; None where that is not told."""
    pending = job.status.pending
    if pending is not None and job.state not in _CONDITION:
        return pending.since or job.metadata.creation_timestamp
    found = job.status.condition(_CONDITION.get(job.state, "Placed"))
    told = found.last_transition_time if found is not None else None
    return told or job.metadata.creation_timestamp


def waits_since(job: ToldJob) -> str | None:
    """Since when it waits for GPUs, whatever for; None where it does not."""
    pending = job.status.pending
    if pending is not None:
        return pending.queued_since or pending.since or job.metadata.creation_timestamp
    return job.metadata.creation_timestamp if job.state == "Queued" else None


def ago(moment: str | None, now: datetime) -> str:
    """How long ago, as kubectl writes ages; - where that is not told."""
    try:
        return length((now - datetime.fromisoformat(moment or "")).total_seconds())
    except (ValueError, TypeError):
        return "-"


def is_past(moment: str | None, now: datetime, seconds: float) -> bool:
    """Whether it was more than so long ago; False where that is not told."""
    try:
        return (now - datetime.fromisoformat(moment or "")).total_seconds() > seconds
    except (ValueError, TypeError):
        return False


def until(moment: str | None, now: datetime) -> str:
    """When something is expected, by the clock of this machine: `14:20, in 35m`. - where that is not told, and `soon`
    where it should have been."""
    try:
        at = datetime.fromisoformat(moment or "")
        left = (at - now).total_seconds()
    except (ValueError, TypeError):
        return "-"
    if left < 0:
        return "soon"
    shown = f"{at.astimezone():%H:%M}" if left < 86_400 else f"{at.astimezone():%Y-%m-%d %H:%M}"
    return f"{shown}, in {length(left)}"
