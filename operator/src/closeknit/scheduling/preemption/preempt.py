"""Preemption: a job that does not fit takes the room of jobs of lower priority.

Three verdicts, one after the other. `preempt` finds who has to go for a job that has no room and would be refused for
nothing else: it holds their GPUs from then on, and that is stored. `evicted` then ends them. `awaiting` gives the job
its Pods once theirs are gone, and finds it another place where its own is no more.

Nobody goes for a better fit than the job asks: it fits at its required level, and its patience does not count. Nor
where it fits without, now or once what goes anyway is gone: Pods of ended attempts, and jobs that make room already. A
job that others make room for, and one that makes room, makes none for a third.
"""

from dataclasses import replace
from datetime import datetime

from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.book import assumed
from closeknit.lifecycle.verdict import Await, Wait, WaitCause
from closeknit.scheduling.policy.admit import admit, cannot_be_made
from closeknit.scheduling.policy.walk import Walk
from closeknit.scheduling.preemption.made_room import alone, made_room, placed
from closeknit.scheduling.preemption.words import room_words
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.expected_ends import GRACE
from closeknit.scheduling.victims.victim import victims


def nearer_start(case: Case, walk: Walk) -> datetime | None:
    """When the job starts without victims, if that is nearer than the usual grace of a Pod; None where that is not
    known."""
    at = walk.backfill.starts_at(case.key)
    return at if at is not None and at <= walk.now + GRACE else None


def preempt(case: Case, room: Room, walk: Walk) -> Outcome:
    """The GPUs that the job gets now, or those that jobs of lower priority leave to it, or why it gets none."""
    outcome = admit(case, room, walk)
    verdict, shape, known = outcome.verdict, outcome.shape, walk.preemptions
    if shape is None or not isinstance(verdict, Wait) or verdict.refusal.cause is not WaitCause.NO_FIT:
        return outcome
    cluster, priority = room.cluster, room.cluster.priority(case.job)
    if known.lowest is None or known.lowest >= priority or not cluster.may_preempt(case.job):
        return outcome
    may_be_refused = walk.probation.may_be_refused(case.job, case.answers)
    if walk.probation.refusal(case.job, case.answers, is_trial=may_be_refused) is not None:
        outcome.is_settled = False
        return outcome
    asked = replace(shape.request, patient_level=None)
    has_left = bool(case.pods or cluster.claims_of(case.key))
    if not has_left and known.is_vain(asked, priority, cluster):
        outcome.holders = known.holders
        return outcome
    if asked != shape.request and placed(case, asked, alone(case, cluster, walk), walk) is not None:
        return outcome  # it waits for what it prefers
    if not walk.questions.could_place(asked, cluster):
        outcome.holders = known.holders
        return outcome
    if nearer_start(case, walk) is not None or not known.take(case.place):
        outcome.is_settled = False
        return outcome
    away = avoided_nodes(case.job, cluster, walk.now)
    soon = known.settled(cluster)
    if walk.questions.can_place(asked, soon.without(away.devices)):
        outcome.is_settled = False
        return outcome
    made = made_room(case, asked, away, soon, victims(cluster, priority, walk.now), walk)
    if made is None:
        if not has_left:
            known.in_vain(asked, priority, cluster)
        outcome.holders = known.holders
        return outcome
    if (cannot := cannot_be_made(case, made.placement, shape, outcome.until, room)) is not None:
        return cannot
    if not walk.backfill.makes_room_for(case.job, made.placement):
        outcome.is_settled = False
        return outcome
    walk.backfill.withdraw(case.key)
    awaited = tuple(victim.awaited for victim in made.victims)
    held = cluster.with_job(assumed(case.job, made.placement, awaited))
    verdict = Await(awaited, room_words(awaited), made.placement)
    return Outcome(verdict, is_settled=False, room=room.less(held, is_trial=may_be_refused))
