"""The phases of a job, from its submission to now, as its status tells them."""

from collections.abc import Iterator
from datetime import datetime

from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob_status import EndedAttempt, Phases, State
from closeknit.cluster.booking.job import InvalidJob
from closeknit.lifecycle.status.conditions import found
from closeknit.webmap.map_rows import SpanRow

_AFTER = ("decide", "free", "bind", "start")


def seconds(told: str | None) -> int | None:
    """A time of Kubernetes in seconds of Unix; None where there is none, or it cannot be read."""
    if told is None:
        return None
    try:
        at = datetime.fromisoformat(told)
    except ValueError:
        return None
    return int(at.timestamp()) if at.tzinfo is not None else None


def spans(job: TrainingJob | InvalidJob) -> tuple[SpanRow, ...]:
    """In their order. The status keeps the last ten ends: what was before them is left out."""
    status = job.status
    created, booked = seconds(job.metadata.creation_timestamp), seconds(status.start_time)
    known = [span for ended in status.attempts for span in _of_an_end(ended)]
    first = min((span.since for span in known), default=None)
    began = _since(job, ConditionType.RUNNING) if status.state is State.RUNNING else None
    told: list[SpanRow] = []
    # Of a job that was suspended, or has ended often, the first booking is not what follows its submission.
    if created is not None and booked is not None and not (first is not None and first < booked):
        told.append(SpanRow("waiting", created, booked))
        ran = next((span.since for span in known if span.phase == "running"), began if not known else first)
        if ran is not None and ran > booked:
            told.append(SpanRow("starting", booked, ran))
    told += known
    last = max((span.until or span.since for span in told), default=None)
    told += _now(job, created, booked, last, began)
    return tuple(told)


def _now(
    job: TrainingJob | InvalidJob, created: int | None, booked: int | None, last: int | None, began: int | None
) -> Iterator[SpanRow]:
    """What lasts."""
    status = job.status
    if status.state is State.RUNNING and began is not None:
        yield SpanRow("running", began if last is None else max(began, last))
    elif status.state in {State.STARTING, State.RESTARTING} and status.pending is None:
        since = last if last is not None else booked
        if since is not None:
            yield SpanRow("starting", since)
    elif status.pending is not None or status.state in {None, State.QUEUED}:
        pending = status.pending
        since = created if pending is None else seconds(pending.queued_since or pending.since)
        if since is not None:
            yield SpanRow("waiting", since if last is None else max(since, last))
    elif status.state is State.SUSPENDED and (since := _since(job, ConditionType.SUSPENDED)) is not None:
        yield SpanRow("suspended", since)


def _of_an_end(ended: EndedAttempt) -> Iterator[SpanRow]:
    """The run that ended, and what came after it."""
    at, phases = seconds(ended.ended), ended.phases or Phases()
    if at is None:
        return
    fault = at - _length(phases.detect)
    if ended.ran is not None:
        yield SpanRow("running", fault - _length(ended.ran), fault)
    if ended.phases is None:
        return
    if fault < at:
        yield SpanRow("detect", fault, at, ended.reason)
    for phase in _AFTER:
        length = getattr(phases, phase)
        if length is None:
            return
        if lasts := _length(length):
            yield SpanRow(phase, at, at + lasts, ended.reason)
        at += lasts
    if first_step := _length(phases.first_step):
        yield SpanRow("firstStep", at, at + first_step, ended.reason)


def _since(job: TrainingJob | InvalidJob, condition: ConditionType) -> int | None:
    told = found(job.status.conditions, condition)
    return seconds(told.last_transition_time) if told is not None and told.status == "True" else None


def _length(written: str | None) -> int:
    return 0 if written is None else int(duration_s(written))
