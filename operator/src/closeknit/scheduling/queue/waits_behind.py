"""What is remembered of jobs that fit and wait behind the reservation: many ask for the same, and wait with one reason.

A thousand jobs may wait so. Each of them is asked for once, and again where its room, the reservation or the nodes that
come last are others.
"""

from collections.abc import Callable
from datetime import datetime

from closeknit.api.reasons import PendingReason
from closeknit.lifecycle.reserved_words import behind_reservation
from closeknit.lifecycle.restart.lemons import Lemon
from closeknit.lifecycle.verdict import Refusal, Reservation, Wait, WaitCause
from closeknit.scheduling.queue.entries import AskedBehind, BehindKey, Case, RequestShape, Schedule, WaitBehind
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.backfill import ReservedRoom


class WaitsBehind:
    """The waits behind the reservations of one walk, and of the walk before."""

    def __init__(self, last: Schedule, now: datetime, lemons: Callable[[], tuple[Lemon, ...]]) -> None:
        """`now` is a whole second. `lemons`: of this walk, worst first."""
        self.by_key: dict[BehindKey, WaitBehind] = {}
        """Of this walk, as far as a job's shape and declaration tell."""
        self._by_asked: dict[AskedBehind, WaitBehind] = {}
        """The last of those that ask for the same."""
        self._before = last.behind
        self._now = now
        self._lemons = lemons
        self._stands: tuple[Reservation | None, Reservation | None, bool] = None, None, False
        """A reservation of the last decision, the one now, and whether waits behind the one stand."""

    def known(self, case: Case, key: BehindKey, room: Room, kept: ReservedRoom) -> Wait | None:
        """The wait of a job behind `kept`, where it is known from one that asks for the same and does not end before
        either: only their words differ, which tell what each declares."""
        reservation = kept.reservation
        found = self.by_key.get(key)
        if found is not None and found.freed is room.freed and found.reservation is reservation:
            return found.wait
        before = self._before.get(key)
        if before is not None and not self._stands_behind(before, reservation):
            before = None
        if before is not None and before.scene is room.scene:
            return self._note(key, room, reservation, before.wait)
        other = self._by_asked.get(key.asked)
        if other is None or other.freed is not room.freed or other.reservation is not reservation:
            return None
        if case.key == reservation.job or kept.ends_before(case.job.spec, None, self._now):
            return None  # it is not like the others
        return self._note(key, room, reservation, _wait(case, reservation) if before is None else before.wait)

    def wait(self, case: Case, key: BehindKey | None, room: Room, kept: Reservation) -> Wait:
        """The wait of a job that may not pass; all of its `key` wait so, None where it is like no other."""
        found = _wait(case, kept)
        return found if key is None else self._note(key, room, kept, found)

    def _stands_behind(self, before: WaitBehind, kept: Reservation) -> bool:
        """Whether a wait of the walk before is as good behind the reservation now; nearly all were behind one."""
        if self._stands[0] is not before.reservation or self._stands[1] is not kept:
            self._stands = before.reservation, kept, kept.lets_pass_no_more_than(before.reservation)
        return self._stands[2] and before.lemons == self._lemons()

    def _note(self, key: BehindKey, room: Room, kept: Reservation, wait: Wait) -> Wait:
        noted = WaitBehind(room.scene, room.freed, kept, self._lemons(), wait)
        self.by_key[key] = self._by_asked[key.asked] = noted
        return wait


def behind_key(case: Case, shape: RequestShape, *, is_whole: bool) -> BehindKey:
    """The key of a job that asks for this; `is_whole`: and takes it in one machine alone."""
    spec = case.job.spec
    asked = AskedBehind(shape, is_whole, case.volumes.choices)
    return BehindKey(asked, case.key.namespace, (spec.expected_duration, spec.active_deadline_seconds))


def _wait(case: Case, kept: Reservation) -> Wait:
    words = behind_reservation(case.key.namespace, case.job.spec, kept)
    return Wait(Refusal(WaitCause.REFUSED, PendingReason.BEHIND_RESERVATION, words))
