"""Whether a gang starts again after an end, and who pays for that."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from closeknit.api.reasons import EndReason
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob import MAX_RESTARTS, Restart, RestartAction
from closeknit.api.trainingjob_status import EndedAttempt, TrainingJobStatus
from closeknit.lifecycle.status.blame import WAITED_AT_LEAST, Row
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pauses import CLOCK_SKEW, is_between

# One such end is bad luck, and what makes a second one may last for as long: a file system, a licence server. The third
# comes after a pause of two seconds, and by then it is the program.
QUICK_ENDS = 3
# A run that ends sooner has got no further than its imports, its data and its first collective: what a program gets
# wrong by itself it does then (blame.py).
QUICK_END = WAITED_AT_LEAST
_OWN_ENDS = frozenset({EndReason.POD_FAILED, EndReason.HUNG})
_TOLD_EXITS = 5  # of the ends before, in the words of a verdict


@dataclass(frozen=True, slots=True)
class EndOfRun:
    """One end of a gang's run, to be judged."""

    row: Row
    """Whose fault it is."""
    exit_code: int | None
    """Of the trainer that is the cause; None where it is unknown, as of a container that was started again, or where
    another container has failed."""
    ran: timedelta | None
    """How long all ranks ran before; None where they never ran all at once."""
    has_progressed: bool | None = None
    """Whether the run has made progress; None where no signal tells."""

    @property
    def is_quick(self) -> bool:
        """Whether it ended before it can have made progress."""
        return not self.has_progressed and (self.ran is None or self.ran < QUICK_END)


@dataclass(frozen=True, slots=True)
class StartsAgain:
    """The gang starts again."""

    charged: bool
    """Whether that counts against restart.limit."""
    words: str


@dataclass(frozen=True, slots=True)
class Fails:
    """The job has failed."""

    reason: EndReason
    words: str
    """What made it so; empty where a failure of its own ends every job of this spec."""


def judge(end: EndOfRun, restart: Restart | None, status: TrainingJobStatus, now: datetime) -> StartsAgain | Fails:
    """What follows from this end, by the job's restart policy and its ends before.

    Only what the job itself has caused is judged by rules and charged; after anything else it starts again. A gang that
    dies again and again before it can have made progress fails, charged or not: to start it again for free would never
    end.
    """
    if not end.row.is_charged:
        return StartsAgain(charged=False, words="the job starts again")
    policy = restart or Restart()
    action = policy.action_after(end.exit_code)
    if action is RestartAction.FAIL:
        return Fails(EndReason.POD_FAILED, f"restart.rules says Fail for exit code {end.exit_code}")
    is_free = action is RestartAction.RESTART_FREE
    if not is_free and policy.limit == 0:
        return Fails(EndReason.POD_FAILED, "")
    before = len(charges(policy, status, now))
    if not is_free and before >= policy.limit:
        return Fails(EndReason.RESTART_LIMIT_EXCEEDED, _past_limit(end, policy, before, status.attempts))
    if end.is_quick and (row := 1 + _quick_ends(status.attempts)) >= QUICK_ENDS:
        return Fails(EndReason.NO_PROGRESS, _no_progress(end, row, status.attempts))
    if is_free:
        return StartsAgain(False, f"restart.rules says RestartFree for exit code {end.exit_code}: the job starts again")
    return StartsAgain(
        True,
        f"{_unknown(end, policy)}the job starts again, charged: {before + 1} of {policy.limit} within {policy.window}",
    )


def charges(restart: Restart, status: TrainingJobStatus, now: datetime) -> list[datetime]:
    """When charged restarts were that still count. One in the future, by a clock that was set back since, does not."""
    window = timedelta(seconds=duration_s(restart.window))
    moments = [moment(charge) for charge in status.charges or ()]
    counted = [charge for charge in moments if is_between(charge - CLOCK_SKEW, now, charge + window)]
    return counted[-MAX_RESTARTS:]


def _quick_ends(attempts: Sequence[EndedAttempt]) -> int:
    """Ends of the job's own fault since it last ran for long. Ends by others in between say nothing of the program."""
    found = 0
    for ended in reversed(attempts):
        if ended.ran is not None and duration_s(ended.ran) >= QUICK_END.total_seconds():
            break
        found += ended.reason in _OWN_ENDS
    return found


def _past_limit(end: EndOfRun, restart: Restart, before: int, attempts: Sequence[EndedAttempt]) -> str:
    times = "once" if before == 1 else f"{before} times"
    often = "as often as" if before == restart.limit else "more often than"
    return (
        f"{_unknown(end, restart)}it has started again {times} within {restart.window}, which is {often} restart.limit "
        f"allows{_exits(attempts)}"
    )


def _no_progress(end: EndOfRun, row: int, attempts: Sequence[EndedAttempt]) -> str:
    signal = "no progress was seen" if end.has_progressed is False else "that is too short for progress"
    return (
        f"its last {row} runs each ended within {QUICK_END.total_seconds():.0f} s, and {signal}: to start it again "
        f"would not help{_exits(attempts)}; mend the program or its settings, and create the job again"
    )


def _unknown(end: EndOfRun, restart: Restart) -> str:
    """The message that rules could not be asked; empty where they were, or there are none."""
    is_unknown = end.exit_code is None and bool(restart.rules)
    return "no exit code of its trainer is known, so that no rule matches; " if is_unknown else ""


def _exits(attempts: Sequence[EndedAttempt]) -> str:
    """What the ends of the job's own fault before were, the last first; empty without any."""
    own = [ended for ended in reversed(attempts) if ended.reason in _OWN_ENDS][:_TOLD_EXITS]
    told = [_exit(ended) for ended in own]
    return f"; before: {', '.join(told)}" if told else ""


def _exit(ended: EndedAttempt) -> str:
    first = ended.exits[0] if ended.exits else None
    if first is None or first.exit_code is None:
        return "exit code unknown"
    return f"exit code {first.exit_code}{f' ({first.reason})' if first.reason else ''}"
