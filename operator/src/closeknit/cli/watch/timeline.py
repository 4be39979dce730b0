"""Where the time of a job went so far, and how far its start has come."""

from collections.abc import Sequence
from datetime import datetime

from closeknit.cli.jobs.since import until
from closeknit.cli.jobs.told_job import ToldJob
from closeknit.cli.jobs.told_pod import ToldPod
from closeknit.cli.output.page import length

_OVER = ("Succeeded", "Failed")


def timeline(job: ToldJob, pods: Sequence[ToldPod] | None, now: datetime) -> list[tuple[str, str]]:
    """(phase, what of it) in their order: of those that have begun the length, of the present one what it waits for."""
    placed = _moment(job.status.start_time)
    running = job.status.condition("Running")
    runs = _moment(running.last_transition_time) if running is not None and running.status == "True" else None
    begun = _moment(job.metadata.creation_timestamp)
    found: list[tuple[str, str]] = []
    if begun is not None:
        found.append(("queued", _between(begun, placed, now, _queue_words(job, now) if placed is None else "")))
    if placed is not None and job.state not in _OVER:
        restarted = job.status.attempts[-1] if job.status.attempts else None
        since = _moment(restarted.ended) if restarted is not None and restarted.ended else placed
        name = "starting" if restarted is None else f"restarting ({restarted.reason})"
        found.append((name, _between(since or placed, runs, now, _pod_words(pods) if runs is None else "")))
    if runs is not None:
        found.append(("running", length((now - runs).total_seconds())))
    return found


def first_step(job: ToldJob) -> str | None:
    """How long it took from the last restart until progress was seen; None where that is not known."""
    last = job.status.attempts[-1] if job.status.attempts else None
    return last.phases.first_step if last is not None and last.phases is not None else None


def _queue_words(job: ToldJob, now: datetime) -> str:
    pending = job.status.pending
    if pending is None:
        return ""
    start = f"; expected to start {until(pending.estimated_start, now)}" if pending.estimated_start else ""
    return f"{pending.reason}{start}"


def _pod_words(pods: Sequence[ToldPod] | None) -> str:
    if not pods:
        return "no Pod yet" if pods is not None else ""
    bound, runs = sum(bool(pod.node) for pod in pods), sum(pod.is_well for pod in pods)
    return f"{bound} of {len(pods)} Pods bound, {runs} running"


def _between(begin: datetime, end: datetime | None, now: datetime, words: str) -> str:
    told = length(((end or now) - begin).total_seconds())
    return f"{told}: {words}" if words else told


def _moment(told: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(told) if told else None
    except ValueError:
        return None
