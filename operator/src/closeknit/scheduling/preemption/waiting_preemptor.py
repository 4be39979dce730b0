"""The verdict on a job that others make room for, once that is stored: it waits for them, and then gets it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from closeknit.api.reasons import ExclusionReason, PendingReason
from closeknit.api.trainingjob_status import MAX_AWAITED
from closeknit.cluster.booking.booking import AwaitedAttempt, Booking
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.failures.kept_shares import fitness
from closeknit.lifecycle.status.pauses import over_at
from closeknit.lifecycle.verdict import Await, Book, Refusal, Wait, WaitCause
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.elastic.sizes import fewer, largest
from closeknit.scheduling.policy.admit import cannot_be_made
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.policy.spares import only_on, with_labelled, with_spares
from closeknit.scheduling.preemption.leaving_victim import goes
from closeknit.scheduling.preemption.select_victims import select_victims
from closeknit.scheduling.preemption.trial_placement import alone, passing, placed
from closeknit.scheduling.preemption.words import given, holds, remaining, room_words, words_now
from closeknit.scheduling.queue.both_bookings import holding_both
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.victims.victim import leaving, unbooked, victims

# A kubelet that is restarted says NotReady for some ten seconds, a network that is mended for less than a minute: no
# running job ends for that.
BLIP = timedelta(minutes=1)
_GIVEN_BACK = (
    "the room that others made for it is no more, or less than it needs; it has given back what it held of that, and "
    "waits for room"
)


def awaiting(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The verdict on a job that others make room for."""
    held = room.cluster.booking_of(case.key)
    if held is None or not held.awaits:
        return None
    is_given = any(each.job in walk.moves.moving for each in held.awaits)  # or it would move for nothing
    # Nothing is done about it yet; others ahead of it, that are not asked, may need what is free.
    if is_given or case.key in walk.memory.busy or walk.questions.budget.is_passed_over(case.place):
        return Outcome(Await(held.awaits, words_now(held.awaits, room.cluster, case.key.namespace)), is_settled=False)
    job, now = case.job, walk.now
    away = avoided_nodes(job, room.cluster, now)
    whole = replace(walk.questions.request(case), avoided=away.nodes)
    # The size for which others make room, as long as the job may have it.
    asked = replace(whole, gpus=held.gpus) if held.gpus in fewer(job.spec, whole.gpus) else whole
    free = room.cluster.with_job(unbooked(job))
    there = alone(case, free, walk)
    own = with_labelled(only_on(asked, frozenset(share.node for share in held.shares)), there)
    stay = _standing(held.awaits, case, room.cluster, walk)
    settled = walk.preemptions.settled(free)
    if (
        answer := passing(case, asked, placed(case, asked, there, walk), there, walk) or placed(case, own, there, walk)
    ) is not None:
        return _booked(case, asked, answer, there, room, walk)
    if any(holds(each, free) for each in stay):  # who has not ended yet goes only if that is still needed
        apart = settled.without(away.devices)
        found = passing(case, asked, placed(case, asked, apart, walk), apart, walk)
        if found is not None and (other := _without_them(case, found, stay, room, free, walk)) is not None:
            return other
    soon = settled.after(tuple(leaving(settled, stay)))
    is_fit = fitness(job, soon, now, away)
    if _are_there(stay, room.cluster) and all(map(is_fit, held.shares)):
        return Outcome(Await(held.awaits, words_now(held.awaits, room.cluster, case.key.namespace)), is_settled=False)
    found = placed(case, asked, soon.without(away.devices), walk)
    if found is None and (until := _blips_until(held, room.cluster, now)) is not None:
        return Outcome(
            Await(held.awaits, words_now(held.awaits, room.cluster, case.key.namespace)), until=until, is_settled=False
        )
    if found is None and room.cluster.may_preempt(job):  # its place is no more, and what the others leave is not enough
        others = victims(free, room.cluster.priority(job), now)
        asked_already = {each.job for each in stay}  # one of them may go on with fewer GPUs
        made = select_victims(case, asked, away, soon, [each for each in others if each.key not in asked_already], walk)
        if made is not None:
            found, stay = made.placement, (*stay, *(victim.awaited for victim in made.victims))
    if found is None and stay:  # an elastic one goes on with what is left
        left = soon.without(away.devices)
        sizes = fewer(job.spec, asked.gpus)
        found = largest(sizes, asked, lambda gpus: placed(case, replace(asked, gpus=gpus), left, walk), left)
    if found is None or not stay or len(stay) > MAX_AWAITED:
        return _given_back()
    return _holding(case, found, stay, room)


def _booked(case: Case, asked: Request, answer: Placement, there: Cluster, room: Room, walk: Walk) -> Outcome:
    """The verdict on one that gets this, which is free `there`: in the cluster without what it held."""
    job = case.job
    if (cannot := cannot_be_made(case, answer, walk.questions.shape(asked), None, room)) is not None:
        cannot.is_settled, cannot.scene = False, None
        return cannot
    spared = with_spares(job, answer, asked, there, walk)
    answer = walk.reserving.without_spares_there(job, spared)
    walk.reserving.note(job, answer)
    return Outcome(Book(answer), is_settled=False, room=_with_both(case, answer, (), room))


def _without_them(
    case: Case, found: Placement, stay: Sequence[AwaitedAttempt], room: Room, free: Cluster, walk: Walk
) -> Outcome | None:
    """The verdict on one that fits once what goes anyway is gone: it awaits those that have ended. None where there is
    none: it holds on, for others that came later would take what it gave back, and nobody ends for it."""
    ended = tuple(each for each in stay if not holds(each, free))
    if ended:
        return _holding(case, found, ended, room)
    if any(each.moves for each in stay):
        return _given_back()
    walk.preemptions.ends_nobody.add(case.key)
    return None


def _blips_until(held: Booking, cluster: Cluster, now: datetime) -> datetime | None:
    """Until when a node that it waits for may be ready again; None where none is merely not ready."""
    views = (cluster.nodes.get(share.node) for share in held.shares)
    excluded = (view.exclusion for view in views if view is not None and view.is_there and view.exclusion is not None)
    moments = [over_at(each.since, BLIP, now) for each in excluded if each.reason is ExclusionReason.NOT_READY]
    return max((at for at in moments if at > now), default=None)


def _holding(case: Case, placement: Placement, awaited: tuple[AwaitedAttempt, ...], room: Room) -> Outcome:
    """It holds this instead of what it held."""
    after = _with_both(case, placement, awaited, room)
    return Outcome(Await(awaited, room_words(awaited, case.key.namespace), placement), is_settled=False, room=after)


def _with_both(case: Case, placement: Placement, awaited: tuple[AwaitedAttempt, ...], room: Room) -> Room:
    """The room once a job has this in place of what it held, which nobody gets before that is stored: both would have
    it if the operator were killed between the two writes."""
    held = room.cluster.booking_of(case.key)
    assert held is not None  # noqa: S101 - it waits for others with a booking, for the type checker
    return room.less(room.cluster.with_job(holding_both(case.job, placement, held, awaited)))


def _given_back() -> Outcome:
    """It holds nothing any more once that is stored; until then nobody gets what it held."""
    refusal = Refusal(WaitCause.NO_FIT, PendingReason.INSUFFICIENT_GPUS, _GIVEN_BACK)
    return Outcome(Wait(refusal), is_settled=False)


def _standing(
    awaited: Sequence[AwaitedAttempt], case: Case, cluster: Cluster, walk: Walk
) -> tuple[AwaitedAttempt, ...]:
    """Those of these that are gone, or will go."""
    return tuple(each for each in awaited if not holds(each, cluster) or goes(each, case.key, cluster, walk))


def _are_there(awaited: Sequence[AwaitedAttempt], cluster: Cluster) -> bool:
    """Whether one of them still holds something."""
    return any(holds(each, cluster) or remaining(each, cluster) or given(each, cluster) for each in awaited)
