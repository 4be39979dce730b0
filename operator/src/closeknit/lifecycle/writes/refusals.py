"""What the API server refuses a job for good: its gang, for which it waits, or a change that it goes on without."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from closeknit.api.reasons import EventReason, PendingReason
from closeknit.launch.gang import Manifest
from closeknit.lifecycle.status.blame import pending_reason
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.status.pending import PENDING
from closeknit.lifecycle.writes.denial_words import RefusedWrite, refusal_message, symptom_of, unchanged_message
from closeknit.lifecycle.writes.plan import Plan
from closeknit.lifecycle.writes.quota_shortfall import QuotaRoom, quota_room
from closeknit.lifecycle.writes.results import ChildRefused, Exists, Quotas, Result, is_made_pod
from closeknit.placement.values.sentences import count

# A job that is refused again and again would have room kept for it in vain each time that it does not fit. Neither was
# measured: the first is short beside a large job's wait, the second is AGED of scheduling/reservation/reserve.py.
FIRST_ROOM_PAUSE = timedelta(minutes=10)
LONGEST_ROOM_PAUSE = timedelta(hours=12)

# A size that a quota refused is told beside another one for so long: three times the longest pause between two tries
# (PENDING).
_SIZE_TOLD_FOR = timedelta(minutes=15)


class Refusing(StrEnum):
    """Which write was refused."""

    PROBE = "Probe"  # nothing was stored
    CHILD = "Child"  # the booking is stored, or may be, and other children, too


@dataclass(frozen=True, slots=True)
class RefusedSize:
    """What a quota says of a gang of so many GPUs."""

    gpus: int
    message: str
    at: datetime

    def stands(self, now: datetime) -> bool:
        """Whether that is told beside what is said of another size."""
        return is_between(self.at, now, self.at + _SIZE_TOLD_FOR)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A lasting refusal: it stands until something changes."""

    reason: PendingReason  # of a row of the table of blame that speaks of the API server
    message: str
    of: Refusing
    manifest: Manifest | None  # the child refused last, a Pod without its spec; kept where the gang as a whole is
    generation: int  # of the job then; another one is asked about again
    attempt: int
    at: datetime
    tries: int  # rejections in a row, this one included
    quota_room: QuotaRoom | None = None  # of a gang that the namespace's quotas leave too little for, too
    by_size: tuple[RefusedSize, ...] = ()
    """What quotas say of an elastic job, the largest size first. The message tells both: in turns they would be a write
    with each try."""
    made_pods: bool = False
    """Whether Pods were made before it. Where a quota refuses the others, that is to be in vain seldom."""
    room_pause: timedelta = FIRST_ROOM_PAUSE
    """For so long no room is kept for the job. It doubles where the rejection comes after such a pause, so that room
    was perhaps kept for it in vain."""

    @property
    def keeps_room_from(self) -> datetime:
        """When room may be kept for it again, where it is still refused by nothing but want of room."""
        return self.at + self.room_pause

    @property
    def retry_at(self) -> datetime:
        """When to try again: the pause doubles with each rejection in a row."""
        is_in_vain = self.made_pods and self.reason is PendingReason.QUOTA_EXCEEDED
        trait = PENDING[PendingReason.TEMPLATE_INVALID if is_in_vain else self.reason]
        pause_s = min(trait.longest_pause_s, trait.first_pause_s * 2 ** min(self.tries - 1, 16))
        return self.at + timedelta(seconds=pause_s)


# Of a change that a job does without. No event tells that a policy or a quota is another one, and the room for the
# change comes and goes meanwhile: at the pace of GROWS_AFTER first, and then of people.
_FIRST_CHANGE_PAUSE = timedelta(minutes=5)
_LONGEST_CHANGE_PAUSE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change by choice that the API server has refused: before anything was stored, or a growth in place that is
    taken back. The job goes on as it is."""

    reason: EventReason  # ResizeRefused | MoveRefused
    message: str
    generation: int  # of the job then; for another one it is asked again
    at: datetime
    tries: int  # refusals in a row, this one included
    is_told: bool = False  # by an Event alone
    growth: str = ""  # when it was booked, of one that is to be taken back
    is_shrinking: bool = False  # to make room: the quotas would have too little left for whom it would make it
    quota_room: QuotaRoom | None = None  # of a gang in new Pods that the namespace's quotas leave too little for

    @property
    def retry_at(self) -> datetime:
        """When to ask again: the pause doubles with each refusal in a row."""
        doublings: int = 2 ** min(self.tries - 1, 16)
        return self.at + min(_LONGEST_CHANGE_PAUSE, _FIRST_CHANGE_PAUSE * doublings)

    def stands(self, generation: int, now: datetime) -> bool:
        """Whether the API server is not asked again yet, for a job of this generation."""
        return self.generation == generation and is_between(self.at, now, self.retry_at)


def rejection_of(
    plan: Plan, refused: RefusedWrite, last: Rejection | None, now: datetime, *, tries: int, results: Sequence[Result]
) -> Rejection:
    """The rejection by this refused write, one of the results of the Plan, after the `last` rejection. It is one of
    `tries` in a row."""
    reason, message = pending_reason(symptom_of(refused)), refusal_message(plan, refused)
    before = last if last is not None and last.generation == plan.generation else None
    manifest = None if before is None else before.manifest
    if isinstance(refused, ChildRefused | Exists):
        manifest = refused.manifest
    if manifest is not None and manifest["kind"] == "Pod":  # it is made again to be asked for, and waits for long
        manifest = {name: value for name, value in manifest.items() if name != "spec"}
    by_size = _by_size(plan, message, before, now) if reason is PendingReason.QUOTA_EXCEEDED else ()
    return Rejection(
        reason,
        _in_words(by_size) or message,
        Refusing.PROBE if isinstance(refused, ChildRefused | Exists) and refused.is_probe else Refusing.CHILD,
        manifest,
        plan.generation,
        plan.attempt,
        now,
        tries,
        quota_room=next(filter(None, map(_room_of, results)), None),
        by_size=by_size,
        made_pods=any(map(is_made_pod, results)),
        room_pause=_room_pause(before, now),
    )


def _by_size(plan: Plan, message: str, before: Rejection | None, now: datetime) -> tuple[RefusedSize, ...]:
    """The largest and the smallest size that quotas have refused lately."""
    if plan.demand is None or not plan.demand.gpus:
        return ()
    found = {each.gpus: each for each in (before.by_size if before is not None else ()) if each.stands(now)}
    found[plan.demand.gpus] = RefusedSize(plan.demand.gpus, message, now)
    return tuple(found[gpus] for gpus in dict.fromkeys((max(found), min(found))))


def _in_words(by_size: Sequence[RefusedSize]) -> str:
    told = (
        f"with {count(each.gpus, 'GPU')}: {each.message}" if at else each.message for at, each in enumerate(by_size)
    )
    return "; ".join(told)


def _room_of(result: Result) -> QuotaRoom | None:
    """What quotas leave that have too little left for the gang."""
    return quota_room(replace(result.demand, given_back=()), result.found) if isinstance(result, Quotas) else None


def _room_pause(before: Rejection | None, now: datetime) -> timedelta:
    """The pause after a rejection that follows that one."""
    if before is None:
        return FIRST_ROOM_PAUSE
    is_in_vain = now >= before.keeps_room_from
    return min(LONGEST_ROOM_PAUSE, 2 * before.room_pause) if is_in_vain else before.room_pause


def refused_change(
    before: RefusedChange | None, plan: Plan, reason: EventReason, refused: RefusedWrite, now: datetime
) -> RefusedChange:
    """What is known of the change that this Plan was to make, after the one refused `before`."""
    is_again = before is not None and (before.reason, before.generation) == (reason, plan.generation)
    tries = before.tries + 1 if before is not None and is_again else 1
    is_told = before is not None and is_again and before.is_told
    is_growth = reason is EventReason.RESIZE_REFUSED
    room = quota_room(refused.demand, refused.found) if is_growth and isinstance(refused, Quotas) else None
    words = unchanged_message(plan, refused)
    return RefusedChange(reason, words, plan.generation, now, tries, is_told, quota_room=room)
