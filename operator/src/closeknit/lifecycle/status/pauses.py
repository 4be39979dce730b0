"""Pauses between attempts and before others make room for the next one, and comparison of clocks that may be wrong."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from closeknit.api.reasons import ConditionType, EndReason
from closeknit.api.trainingjob_status import EndedAttempt, TrainingJobStatus
from closeknit.lifecycle.status.conditions import found, moment

# Ends that the same attempt again may not meet. One is taken for bad luck; of several in a row each waits twice as long
# as the one before.
_BAD_LUCK = frozenset(
    {
        EndReason.CHILD_DELETED,
        EndReason.GPU_TAKEN,
        EndReason.NODE_CHANGED,
        EndReason.UNSCHEDULABLE,
        EndReason.OBJECT_MISSING,
        EndReason.NODE_REFUSED,
        EndReason.DISRUPTED,
        EndReason.NODE_LOST,
        EndReason.GPU_LOST,
        EndReason.GPU_UNHEALTHY,
        EndReason.NIC_DOWN,
        EndReason.RANK_NOT_STARTED,
        EndReason.MISPLACED,
        EndReason.POD_FAILED,
    }
)
# Ends that the next attempt may well meet again: what refused it, for example a scheduler that knows of more CPUs than
# the template asks for, is nothing that placement sees.
_COMES_BACK = frozenset(
    {
        EndReason.GPU_TAKEN,
        EndReason.UNSCHEDULABLE,
        EndReason.OBJECT_MISSING,
        EndReason.NODE_REFUSED,
        EndReason.RANK_NOT_STARTED,
        EndReason.RDMA_FAILED,
        EndReason.PREFLIGHT_FAILED,
        EndReason.MISPLACED,
    }
)
# Others may have ended for each of them in vain. The first is as long as a node that refused a Pod is avoided
# (avoided_nodes.py), the second as long as room is kept in vain at most (writes/refusals.py), and the third as long as
# nobody goes for a job that was refused after others had made room for it (preempt.py).
_FIRST_FAILED_FOR = timedelta(minutes=10)
_LONGEST_FAILED_FOR = timedelta(hours=12)
_LONGEST_WITHOUT_NODES = timedelta(hours=1)
_FAILED_IN_A_ROW = 2 * _LONGEST_FAILED_FOR  # one that ended before that says nothing of today
_MANY_NODES_REFUSE = 3  # most likely it is the job
_IN_A_ROW = timedelta(minutes=10)  # an attempt that ends so long after the one before has had its chance
_LONGEST_PAUSE_S = 300
# No event reports a missing object when it comes, and nothing else is tried: at the pace of people.
_FIRST_PAUSE_FOR_OBJECT_S = 15
# A deletion's timestamp is the end of its grace period: what is there so long after it may stay for ever.
LINGERS_AFTER = timedelta(seconds=30)
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_FAR = datetime(9000, 1, 1, tzinfo=UTC)
CLOCK_SKEW = timedelta(seconds=5)  # two machines of one cluster may be so far apart


def is_between(since: datetime, now: datetime, until: datetime) -> bool:
    """Whether a pause lasts. One that is yet to begin, by a clock that was set back since, blocks nothing."""
    return since <= now < until


def over_at(began: str | None, length: timedelta, now: datetime) -> datetime:
    """When something dated by another machine's clock has lasted so long; now if the date is missing, or further in the
    future than clocks differ."""
    since = _read(began)
    return now if since is None or since > now + CLOCK_SKEW else since + length


def lasted(began: str, ended: str) -> timedelta | None:
    """How long something took by another machine's clock; None where that is unknown."""
    since, until = _read(began), _read(ended)
    return None if since is None or until is None else until - since


def later(began: str, begun: datetime | None, now: datetime) -> datetime | None:
    """The later of a moment by another machine's clock and one by ours; a moment further in the future than clocks
    differ does not count. None without any."""
    told = (each for each in (_read(began), begun) if each is not None and each <= now + CLOCK_SKEW)
    return max(told, default=None)


def deleted_at(deleted: str | None, grace_s: int) -> datetime | None:
    """When a Pod with this deletion timestamp was deleted, given its own grace period of `grace_s`; None where that
    cannot be read."""
    grace_ends = _read(deleted)
    return None if grace_ends is None else max(grace_ends, _LONG_AGO) - timedelta(seconds=grace_s)


def lingers_from(deleted: str | None, now: datetime) -> datetime:
    """When a Pod with this deletion timestamp has stayed too long; now if it cannot be read. The timestamp lies in the
    future by the Pod's grace period, so a wrong clock looks like a long one."""
    grace_ends = _read(deleted)
    return now if grace_ends is None else min(grace_ends, _FAR) + LINGERS_AFTER


def restart_at(status: TrainingJobStatus, now: datetime) -> datetime | None:
    """When the next attempt may start; None where no pause is left."""
    if not status.attempts or _has_set_its_nodes_aside(status.attempts[-1]):
        return None
    last = before = moment(status.attempts[-1].ended)
    row = 0
    for ended in reversed(status.attempts):
        at = moment(ended.ended)
        if ended.reason not in _BAD_LUCK or before - at > _IN_A_ROW:
            break
        before, row = at, row + (not _has_set_its_nodes_aside(ended))
    first_s = _FIRST_PAUSE_FOR_OBJECT_S if status.attempts[-1].reason == EndReason.OBJECT_MISSING else 1
    pause_s = 0 if row <= 1 and first_s == 1 else min(first_s * 2 ** max(row - 1, 0), _LONGEST_PAUSE_S)
    ready = last + timedelta(seconds=pause_s)
    return ready if is_between(last, now, ready) else None


@dataclass(frozen=True, slots=True)
class FailedStarts:
    """Attempts that ended before all ranks ran, since the last time that they did, and since the job was resumed."""

    attempts: tuple[EndedAttempt, ...]
    """The newest first; one at least."""
    until: datetime
    """So long the next one is taken to end so, too, where it was; each of them doubles that."""

    @property
    def last(self) -> datetime:
        """When the newest ended."""
        return moment(self.attempts[0].ended)

    @property
    def bars_room_until(self) -> datetime | None:
        """Until when nobody makes room for the job, wherever that is; None for now. After several that no node is to
        blame for that doubles, and one node after the other refuses it at a bounded rate."""
        ends = []
        without_nodes = [each for each in self.attempts if not each.unfit]
        if len(without_nodes) > 1:
            pause = _FIRST_FAILED_FOR * 2 ** (len(without_nodes) - 2)
            ends.append(moment(without_nodes[0].ended) + min(pause, _LONGEST_WITHOUT_NODES))
        if len(self.attempts) >= _MANY_NODES_REFUSE:
            ends.append(self.last + _FIRST_FAILED_FOR)
        return max(ends, default=None)


def failed_starts(status: TrainingJobStatus, now: datetime) -> FailedStarts | None:
    """Those that count now; None where none do."""
    resumed = found(status.conditions, ConditionType.SUSPENDED)
    since = now - _FAILED_IN_A_ROW
    if resumed is not None and resumed.status == "False":
        since = max(since, _read(resumed.last_transition_time) or since)
    row = takewhile(lambda each: each.ran is None and moment(each.ended) >= since, reversed(status.attempts))
    failed = tuple(each for each in row if each.reason in _COMES_BACK)
    if not failed:
        return None
    last = moment(failed[0].ended)
    until = last + min(_FIRST_FAILED_FOR * 2 ** (len(failed) - 1), _LONGEST_FAILED_FOR)
    return FailedStarts(failed, until) if is_between(last - CLOCK_SKEW, now, until) else None


def _has_set_its_nodes_aside(ended: EndedAttempt) -> bool:
    """Whether it lost nodes that the next attempt goes without: it cannot end so again, and each such end has cost the
    time in which a node was silent."""
    return ended.reason == EndReason.NODE_LOST and bool(ended.unfit)


def _read(written: str | None) -> datetime | None:
    """The moment of another's timestamp; None for an invalid one."""
    try:
        found = moment(written or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
