"""How long the next attempt waits after those that others have ended."""

from datetime import datetime, timedelta

from closeknit.api.names import EndReason
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.lifecycle.conditions import moment

# Attempts that others ended. One is taken for bad luck; of several in a row each waits twice as long as the one before.
_BAD_LUCK = frozenset({EndReason.CHILD_DELETED, EndReason.GPU_TAKEN, EndReason.NODE_CHANGED})
_IN_A_ROW_S = 600
_LONGEST_PAUSE_S = 300


def is_between(since: datetime, now: datetime, until: datetime) -> bool:
    """Whether a pause lasts. One that is yet to begin, by a clock that was set back since, holds nothing up."""
    return since <= now < until


def restart_at(status: TrainingJobStatus, now: datetime) -> datetime | None:
    """When the next attempt may start; None where there is nothing to wait for any more."""
    if not status.attempts:
        return None
    last = moment(status.attempts[-1].ended)
    row = 0
    for ended in reversed(status.attempts):
        if ended.reason not in _BAD_LUCK or (last - moment(ended.ended)).total_seconds() > _IN_A_ROW_S:
            break
        row += 1
    pause_s = 0 if row <= 1 else min(2 ** (row - 1), _LONGEST_PAUSE_S)
    ready = last + timedelta(seconds=pause_s)
    return ready if is_between(last, now, ready) else None
