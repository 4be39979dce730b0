"""The time that a job trained, and the time that it did not, by cause and by phase: counted at the few moments when its
status changes anyway.

All moments are whole seconds, and each phase begins where the one before ends, so that phases add up. Moments by other
clocks are held between those by ours: a wrong clock moves a second from one phase to another, and no more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from closeknit.api.reasons import ConditionType, EndReason
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob_status import EndedAttempt, LostTime, Phases, TrainingJobStatus
from closeknit.cluster.pods.pod import Pod
from closeknit.lifecycle.status.conditions import found, moment
from closeknit.lifecycle.status.pauses import later

STARTING = "Starting"
"""The cause of time before the first run; the others are an EndReason."""


@dataclass(frozen=True, slots=True)
class Launch:
    """When the Pods of a gang came; None where that is not known."""

    made: datetime | None = None
    """When the first was made, by the API server's clock."""
    bound: datetime | None = None
    """When the last was bound to its node, by the scheduler's."""
    stepped: datetime | None = None
    """When progress was first seen in this run, by a node's."""


def launch(pods: Iterable[Pod], now: datetime) -> Launch:
    """When these Pods of one gang came."""
    made, bound = list[datetime](), list[datetime]()
    for pod in pods:
        scheduled = pod.condition("PodScheduled")
        told = scheduled.last_transition_time if scheduled is not None and scheduled.status == "True" else None
        made += [at for at in (later(pod.created, None, now),) if at is not None]
        bound += [at for at in (later(told or "", None, now),) if at is not None]
    return Launch(min(made, default=None), max(bound, default=None))


def fault_at(status: TrainingJobStatus, told: datetime | None, now: datetime) -> datetime:
    """When the run really ended: as `told` by its node's clock, but not before it began, and not later than now."""
    ended = _whole(now)
    began = _running_since(status) or (_lost_since(status) or (ended, ""))[0]
    return ended if told is None else min(max(_whole(told), began), ended)


def ran(status: TrainingJobStatus, fault: datetime) -> str | None:
    """How long all ranks ran up to the fault; None where they do not run."""
    since = _running_since(status)
    return None if since is None else _seconds(fault - since)


def at_end(status: TrainingJobStatus, gpus: int, fault: datetime) -> LostTime | None:
    """What the job has lost once its run, or its start, has ended so."""
    since = _running_since(status)
    if since is None:
        return _lost(status, gpus, fault)
    stored = status.cost or LostTime()
    trained = stored.trained_seconds + _whole_seconds(fault - since) * _held(status, gpus) // gpus
    return _with_ratio(trained, stored.lost_gpu_seconds, gpus)


def running_before(status: TrainingJobStatus) -> datetime:
    """Since when the gang ran that its last end has ended, at that moment."""
    last = status.attempts[-1]
    return moment(last.ended) - _length(last.ran or "0s")


def before_end(status: TrainingJobStatus, held: int, gpus: int) -> LostTime | None:
    """What the job had lost before its last end, which is taken back: it ran with the GPUs `held`, and runs on."""
    stored = status.cost
    if stored is None:
        return None
    ran_s = _whole_seconds(_length(status.attempts[-1].ran or "0s"))
    return _with_ratio(max(0, stored.trained_seconds - ran_s * held // gpus), stored.lost_gpu_seconds, gpus)


def at_run(status: TrainingJobStatus, gpus: int, now: datetime) -> LostTime | None:
    """What the job has lost now that all its ranks run."""
    return _lost(status, gpus, _whole(now))


def booked_again(status: TrainingJobStatus, now: datetime) -> list[EndedAttempt]:
    """The ends, of which the last one is followed by a booking now."""
    last = status.attempts[-1] if status.attempts else None
    if last is None or last.phases is None or last.phases.start is not None or status.start_time is None:
        return status.attempts
    phases = last.phases.model_copy(update={"decide": _seconds(_whole(now) - moment(last.ended))})
    return [*status.attempts[:-1], last.model_copy(update={"phases": phases})]


def runs_again(status: TrainingJobStatus, launch: Launch, now: datetime) -> list[EndedAttempt]:
    """The ends, of which the last one is overcome now."""
    last = status.attempts[-1] if status.attempts else None
    if last is None or last.phases is None or last.phases.decide is None or last.phases.start is not None:
        return status.attempts
    at = _whole(now)
    booked = min(at, moment(last.ended) + _length(last.phases.decide))
    made = _between(booked, launch.made, at)
    bound = _between(made, launch.bound, at)
    found = {"free": _seconds(made - booked), "bind": _seconds(bound - made), "start": _seconds(at - bound)}
    return [*status.attempts[:-1], last.model_copy(update={"phases": last.phases.model_copy(update=found)})]


def runs_first(status: TrainingJobStatus, launch: Launch, now: datetime) -> Phases | None:
    """Where the time from the first booking to the first run went, of a job whose stored status has it not running,
    and that runs now; None where it has run before, or has lost a start."""
    if status.start_time is None or _running_since(status) is not None:
        return None
    at, last = _whole(now), _last_followed(status)
    booked = min(at, moment(status.start_time))
    if last is not None and moment(last.ended) >= booked:
        return None
    made = _between(booked, launch.made, at)
    bound = _between(made, launch.bound, at)
    return Phases(free=_seconds(made - booked), bind=_seconds(bound - made), start=_seconds(at - bound))


def steps_again(attempts: list[EndedAttempt], launch: Launch, now: datetime) -> list[EndedAttempt]:
    """The ends, of which the last one is followed by a run whose first progress is seen now; the same object where
    that is no news."""
    last = attempts[-1] if attempts else None
    phases = None if last is None else last.phases
    if last is None or phases is None or phases.start is None or phases.first_step or launch.stepped is None:
        return attempts
    spent = (phases.decide, phases.free, phases.bind, phases.start)
    began = moment(last.ended) + sum((_length(each) for each in spent if each is not None), timedelta())
    at = _between(began, launch.stepped, max(began, _whole(now)))
    found = phases.model_copy(update={"first_step": _seconds(at - began)})
    return [*attempts[:-1], last.model_copy(update={"phases": found})]


def detected(fault: datetime, now: datetime, *, is_decided: bool) -> Phases:
    """The phases of an end that is written now. `is_decided`: the job keeps its GPUs, so that nothing is left to
    decide."""
    return Phases(detect=_seconds(_whole(now) - fault), decide="0s" if is_decided else None)


def phases_told(ended: EndedAttempt) -> str:
    """The message that the gang runs again, and where the time went."""
    phases = {name: duration_s(phase) for name, phase in (ended.phases or Phases()) if phase is not None}
    told = ", ".join(f"{_WORDS[name]} {length_s} s" for name, length_s in phases.items())
    place = " in place" if ended.in_place else ""
    return f"runs again{place} after {sum(phases.values())} s ({ended.reason}): {told}"


_WORDS: Mapping[str, str] = {name: name.replace("_", " ") for name in Phases.model_fields}


def is_taken_back(status: TrainingJobStatus) -> bool:
    """Whether the booking that it holds is the first since it was created or resumed, and it has not run by it."""
    if status.start_time is None or _running_since(status) is not None:
        return False
    last = _last_followed(status)
    return last is None or moment(last.ended) < moment(status.start_time)


def _lost(status: TrainingJobStatus, gpus: int, until: datetime) -> LostTime | None:
    since = _lost_since(status)
    if since is None:
        return status.cost
    began, cause = since
    stored = status.cost or LostTime()
    before = stored.lost_gpu_seconds
    lost = {**before, cause: before.get(cause, 0) + _held(status, gpus) * _whole_seconds(until - began)}
    return _with_ratio(stored.trained_seconds, lost, gpus)


def _held(status: TrainingJobStatus, gpus: int) -> int:
    """The GPUs that a job has, or has lost: fewer than it asks for where it is elastic."""
    held = None if status.placement is None else status.placement.gpus
    return gpus if held is None else min(held, gpus)


def _with_ratio(trained_s: int, lost: Mapping[str, int], gpus: int) -> LostTime:
    trained = trained_s * gpus
    of = trained + sum(lost.values())
    ettr = round(trained / of, 4) if of else None
    return LostTime(trained_seconds=trained_s, lost_gpu_seconds=dict(sorted(lost.items())), ettr=ettr)


def _lost_since(status: TrainingJobStatus) -> tuple[datetime, str] | None:
    """Since when a job that does not run has lost time, and by what; None before its first booking."""
    if status.start_time is None:
        return None
    began, last = moment(status.start_time), _last_followed(status)
    if last is None or moment(last.ended) < began:
        return began, STARTING
    detect = last.phases.detect if last.phases is not None else None
    return moment(last.ended) - _length(detect or "0s"), last.reason


def _last_followed(status: TrainingJobStatus) -> EndedAttempt | None:
    """The last end, if the gang was to start again at once."""
    last = status.attempts[-1] if status.attempts else None
    return None if last is None or last.reason == EndReason.SUSPENDED else last


def _running_since(status: TrainingJobStatus) -> datetime | None:
    running = found(status.conditions, ConditionType.RUNNING)
    return moment(running.last_transition_time) if running is not None and running.status == "True" else None


def _between(earliest: datetime, told: datetime | None, latest: datetime) -> datetime:
    return earliest if told is None else max(earliest, min(_whole(told), latest))


def _whole(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def _whole_seconds(length: timedelta) -> int:
    return max(0, int(length.total_seconds()))


def _seconds(length: timedelta) -> str:
    return f"{_whole_seconds(length)}s"


def _length(written: str) -> timedelta:
    return timedelta(seconds=duration_s(written))
