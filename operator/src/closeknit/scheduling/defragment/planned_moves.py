"""A job that runs moves elsewhere, if it allows that, so that a gang that waits has room.

The rule, for a gang that has waited for WAITS_FOR_ITSELF and would fit by nothing that goes anyway: one job or two go
on elsewhere, at once, as fast and over no more domains, and the gang then fits. What they have to do again since their
runs began, and their restarts, is no more GPU-time than the gang has lost by waiting, and than it would still lose
until the moment at which it is expected to start by itself, where that is known. None of them has a higher priority
than the gang. MOST_MOVES_AN_HOUR of the whole cluster, and each job once an hour.

The gang holds its GPUs from then on, and that is stored first, with its quotas and a dry run of its own: so one that
moves makes room for nobody else. Then each one moves by one write, after a dry run of its Pods elsewhere. Where that is
refused, or its new place is gone, it stays, and the gang gives back what it held.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import combinations

from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pauses import is_between, over_at
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.verdict import Await, Wait
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.policy.admit import cannot_be_made
from closeknit.scheduling.policy.policy_context import Policy, Walk
from closeknit.scheduling.preemption.elsewhere import elsewhere
from closeknit.scheduling.preemption.preempt import MOST_GRACE, for_others_to_go, refused_until
from closeknit.scheduling.preemption.trial_placement import placed
from closeknit.scheduling.preemption.words import room_words
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.reserve import waits_for_room
from closeknit.scheduling.victims.victim import RESTART_COSTS, Victim, gone
from closeknit.scheduling.victims.victim_search import ChosenVictims

# Most of what comes free is free sooner, as for a growth.
WAITS_FOR_ITSELF = timedelta(minutes=5)
AGAIN = timedelta(minutes=1)  # what the gang has lost by waiting grows, and so does what others have to do again
IN_VAIN_FOR = timedelta(minutes=10)  # somebody was to move, and has not: why, may last
MOST_TOGETHER = 2  # that move for one gang
MOST_TRIED = 5  # jobs of which one or two may move: 15 choices, of a few milliseconds each on thousands of nodes
SOON = timedelta(seconds=1)  # another job was searched for in this decision


def or_by_moves(policy: Policy) -> Policy:
    """The policy, after which others may move for a job that it lets wait for room."""

    def decided(case: Case, room: Room, walk: Walk) -> Outcome | None:
        outcome = policy(case, room, walk)
        return outcome if outcome is None else _by_moves(case, room, walk, outcome)

    return decided


def _by_moves(case: Case, room: Room, walk: Walk, outcome: Outcome) -> Outcome:
    """The outcome by which others move; the same one where nobody does."""
    if not walk.moves.are_any or outcome.shape is None or not isinstance(outcome.verdict, Wait):
        return outcome
    if not waits_for_room(outcome.verdict.refusal):
        return outcome
    since = _waits_since(case, walk.now)
    if since is None:  # it is told first that it waits, and for what
        return outcome
    ready = max(since + WAITS_FOR_ITSELF, walk.now + AGAIN if walk.now >= since + WAITS_FOR_ITSELF else since)
    outcome.until = min(ready, outcome.until or ready)
    asked = for_others_to_go(case, outcome.shape.request, room.cluster, walk)
    priority = room.cluster.priority(case.job)
    there = [each for each in walk.moves.there if each.priority <= priority][:MOST_TRIED]
    is_early = walk.now < since + WAITS_FOR_ITSELF
    if is_early or not there or not _has_room_in_all(asked, room.cluster) or not _may_be_tried(case, walk):
        return outcome
    if (looked_until := _looked_until(case, walk.now)) is not None:  # or the first would take every search
        outcome.until = min(looked_until, outcome.until)
        return outcome
    if not walk.moves.take_search() or not walk.questions.take_more(case.place):
        outcome.until = walk.now + SOON
        return outcome
    made = _found(case, asked, there, room, walk, since)
    if made is None or cannot_be_made(case, made.placement, outcome.shape, outcome.until, room) is not None:
        return outcome
    awaited = tuple(victim.awaited._replace(moves=True) for victim in made.victims)
    walk.moves.plan(len(awaited))
    walk.reserving.withdraw(case.key)
    walk.reserving.note(case.job, made.placement)
    held = room.cluster.with_job(assumed(case.job, made.placement, awaited))
    after = room.less(held, is_trial=walk.probation.may_be_refused(case.job, case.answers))
    words = room_words(awaited, case.key.namespace)
    return Outcome(Await(awaited, words, made.placement), is_settled=False, room=after)


def _looked_until(case: Case, now: datetime) -> datetime | None:
    """When others are looked for again, of a job whose inputs are those of the last minute: one that room is kept for
    is decided on each time. None for now."""
    until = None if case.known is None else case.known.until
    return until if until is not None and now < until <= now + AGAIN else None


def _waits_since(case: Case, now: datetime) -> datetime | None:
    """Since when it waits for room; what it waits for Kueue does not count."""
    pending = case.job.status.pending
    if pending is None or not traits(pending.reason).is_for_room:
        return None
    since = moment(pending.queued_since or pending.since)
    admitted = None if case.workload is None else case.workload.condition("Admitted")
    return since if admitted is None else max(since, over_at(admitted.last_transition_time, timedelta(), now))


def _may_be_tried(case: Case, walk: Walk) -> bool:
    """Whether jobs may move for this one now, which the API server has not refused, and for which nobody has just moved
    in vain."""
    if walk.moves.left() <= 0 or case.key in walk.memory.busy:
        return False
    if refused_until(case, walk.now) is not None:
        return False
    made_at = case.answers.room_made_at
    if made_at is not None and is_between(made_at, walk.now, made_at + IN_VAIN_FOR):
        return False
    is_trial = walk.probation.may_be_refused(case.job, case.answers)
    return walk.probation.refusal(case.job, case.answers, is_trial=is_trial) is None


def _has_room_in_all(asked: Request, cluster: Cluster) -> bool:
    """Whether as many GPUs are free as the gang asks for, wherever they lie: who moves takes as many as it leaves."""
    if not asked.takes_free_gpus:
        return True
    return cluster.usable_free_gpus >= asked.gpus


def _found(
    case: Case, asked: Request, there: Sequence[Victim], room: Room, walk: Walk, since: datetime
) -> ChosenVictims | None:
    """Who moves, the cheapest choice, and what the gang gets by that."""
    away = avoided_nodes(case.job, room.cluster, walk.now)
    soon = walk.preemptions.settled(room.cluster)
    if walk.questions.can_place(asked, soon.without(away.devices)):
        return None  # it fits by what goes anyway
    for some in _choices(there, walk.moves.left()):
        if _costs_gpu_s(some) > _won_gpu_s(case, asked, some, walk, since):
            continue
        leaving = [each for victim in some for each in gone(soon, victim.job)]
        found = placed(case, asked, soon.after(tuple(leaving)).without(away.devices), walk)
        if found is None or not walk.reserving.makes_room_for(case.job, found):
            continue
        if _can_go_on(case, found, some, room.cluster, walk):
            return ChosenVictims(tuple(sorted(some, key=lambda victim: victim.key)), found)
    return None


def _choices(there: Sequence[Victim], most: int) -> Iterator[tuple[Victim, ...]]:
    """One of these or two, the cheapest first; of equal cost the fewest."""
    numbers = range(1, min(MOST_TOGETHER, most) + 1)
    found = [some for number in numbers for some in combinations(there, number)]
    yield from sorted(found, key=lambda some: (_costs_gpu_s(some), len(some)))


def _can_go_on(case: Case, found: Placement, some: Sequence[Victim], cluster: Cluster, walk: Walk) -> bool:
    """Whether all of these go on at once beside the gang, on what is free now."""
    free = cluster.after(tuple(each for victim in some for each in gone(cluster, victim.job)))
    beside = free.with_job(assumed(case.job, found))
    for victim in sorted(some, key=lambda victim: (-victim.booking.gpus, victim.key)):
        place = elsewhere(victim.job, victim.booking, beside, walk)
        if place is None:
            return False
        beside = beside.with_job(assumed(victim.job, place))
    return True


def _costs_gpu_s(some: Sequence[Victim]) -> float:
    """What they have to do again, and their restarts."""
    restart_s = RESTART_COSTS.total_seconds()
    return sum(victim.lost_gpu_s + victim.booking.gpus * restart_s for victim in some)


def _won_gpu_s(case: Case, asked: Request, some: Sequence[Victim], walk: Walk, since: datetime) -> float:
    """What the gang would still lose by waiting. It is expected to wait as long again as it has waited, and no longer
    than until the room that is kept for it comes free; it starts once those that move have had their grace."""
    waits, kept = walk.now - since, walk.reserving.current
    if kept is not None and kept.job == case.key and kept.at is not None and not kept.late:
        waits = min(waits, kept.at - walk.now)
    pods = (pod for victim in some for pod in walk.cluster.pods_of(victim.key))
    grace = min(timedelta(seconds=max((pod.grace_s for pod in pods), default=0)), MOST_GRACE)
    return asked.gpus * max(0.0, (waits - grace).total_seconds())
