"""Who gets GPUs, who keeps them and who waits: one decision over all jobs, in queue order."""

from collections.abc import Sequence
from datetime import datetime

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.own_mistake import OwnMistake, guarded
from closeknit.lifecycle.verdict import Book, Refusal, Wait, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.defragment.move_on_restart import moved
from closeknit.scheduling.defragment.planned_moves import or_by_moves
from closeknit.scheduling.elastic.growth_limit import GrowthLimit
from closeknit.scheduling.kueue.queued import queued
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.memo.question_budget import QuestionBudget
from closeknit.scheduling.memo.questions import Questions
from closeknit.scheduling.memo.refusal_words import AGAIN, renewed
from closeknit.scheduling.memo.template_memory import template_memory
from closeknit.scheduling.memo.unchanged_verdicts import Standing, in_order, noted
from closeknit.scheduling.policy.admit import left_for_the_next
from closeknit.scheduling.policy.backlog import Crowd
from closeknit.scheduling.policy.gates import gated, put_aside, readable
from closeknit.scheduling.policy.hold import held
from closeknit.scheduling.policy.lemons_last import LemonsLast
from closeknit.scheduling.policy.policy_context import Policy, Walk
from closeknit.scheduling.policy.probation import Probation
from closeknit.scheduling.policy.replace_lost_nodes import replaced
from closeknit.scheduling.preemption.leaving_victim import evicted
from closeknit.scheduling.preemption.preempt import preempt
from closeknit.scheduling.preemption.waiting_preemptor import awaiting
from closeknit.scheduling.queue.entries import UNREAD, Case, Outcome, QueueEntry, Schedule, is_same_scene
from closeknit.scheduling.queue.queue_reservation import QueueReservation
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.patience import Patience
from closeknit.scheduling.resizing.fewer_gpus import or_with_fewer
from closeknit.scheduling.resizing.grow_job import grown
from closeknit.scheduling.resizing.take_back_growth import taken_back
from closeknit.scheduling.victims.move_limit import MoveLimit
from closeknit.scheduling.victims.preemption_state import Preemptions

POLICIES: tuple[Policy, ...] = (
    readable,
    gated,
    queued,
    evicted,
    awaiting,
    replaced,
    moved,
    taken_back,
    grown,
    held,
    put_aside,
    left_for_the_next,
    or_by_moves(or_with_fewer(preempt)),
)
"""In this order: the first that has a verdict on a job decides. The last one always has."""


def schedule(
    cluster: Cluster, tables: Tables, memory: Memory, now: datetime, policies: Sequence[Policy] = POLICIES
) -> Schedule:
    """The verdict on every job: the one place that decides who gets, keeps and waits.

    The queue is walked once. The first policy that has a verdict on a job decides, and the next job finds the room
    after it. Once four have got GPUs, the next decision goes on behind them. A job whose write is under way gets what
    it would get otherwise. Memory changes no verdict, with six exceptions: the words of a refusal may lag, and for one
    decision the room of a patient job with them; jobs over their namespace's budget keep their old answer, and so do
    refused jobs while a booking is on trial, with the room that is kept for one; on many nodes room that was searched
    in vain is searched again seconds later; and whether others may move for a job is looked at once a minute.
    """
    last = memory.schedule or Schedule(cluster, cluster, cluster)
    is_quiet = memory.schedule is not None and is_same_scene(last.cluster, cluster)
    budget = QuestionBudget(last.came_to, are_bounded=memory.is_rationed)
    questions = Questions(last, tables, budget, now)
    crowd, probation = Crowd(cluster), Probation(cluster, memory, now)
    queue = in_order(cluster, last, memory)
    preemptions = Preemptions(queue, last, now, memory.busy, are_bounded=memory.is_rationed)
    lemons = LemonsLast(cluster, now)
    reserving = QueueReservation(last, tables, now, probation.may_keep_room, lambda: lemons.worst_first)
    templates = template_memory(cluster, last)
    moves = MoveLimit(cluster, memory.answers, memory.busy, now, known=last.movable)
    walk = Walk(
        cluster=cluster,
        memory=memory,
        now=now,
        questions=questions,
        patience=Patience(tables),
        probation=probation,
        crowd=crowd,
        lemons=lemons,
        preemptions=preemptions,
        reserving=reserving,
        growth=GrowthLimit(cluster, questions.could_place),
        moves=moves,
        beyond=templates.beyond,
    )
    scene = last.scene if is_quiet else cluster
    standing = Standing(
        queue,
        memory,
        now,
        questions,
        (reserving, preemptions),
        scene=scene,
        is_crowded=crowd.is_behind,
        beyond=templates.beyond,
    )
    room = Room(cluster, scene, scene, is_trial=probation.are_under_way())
    entries: list[QueueEntry] = []
    unread: list[JobKey] = []
    while (case := standing.next_case(room, entries)) is not None:
        outcome = _outcome(case, room, walk, policies)
        if room.freed is not scene and cluster.booking_of(case.key) and room.cluster.booking_of(case.key) is None:
            outcome.is_settled, outcome.scene = False, None  # it rests on the verdict that took its GPUs, too
        room = outcome.room or room
        if isinstance(outcome.verdict, Book):
            budget.book(is_written=case.key in memory.busy)
        entries.append(noted(case, outcome))
        unread += [case.key] if outcome.verdict is UNREAD else []
    words = renewed(questions.refused, last, tables, memory, now, is_quiet=is_quiet, is_trial=room.is_trial)
    entries = reserving.reserved(words.worded(entries), is_cut=budget.is_cut)
    moments = [entry.until for entry in entries if entry.until is not None]
    moments += [] if words.wake_at is None else [words.wake_at]
    moments += [] if reserving.wake_at is None else [reserving.wake_at]
    moments += [now + AGAIN] if budget.is_short or preemptions.is_short else []
    refused = {**questions.left, **words.refused}
    made = Schedule(
        cluster=cluster,
        booked=room.cluster,
        scene=scene,
        refused=refused,
        reservations=tuple(reserving.reservations),
        reservation_until=reserving.wake_at,
        searches=tuple(reserving.searches),
        behind=reserving.behind.by_key,
        terms=reserving.terms,
        ends=reserving.known_ends,
        templates=templates,
        unread=tuple(unread),
        came_to=budget.came_to,
        is_cut=budget.is_cut,
        renewed_at=words.renewed_at,
        holders=preemptions.holders,
        lent_in_vain=preemptions.in_vain_on(scene, refused),
        preempted_to=preemptions.came_to,
        movable=moves.movable,
        wake_at=min(moments, default=None),
    )
    return made.of(entries, last)


def _outcome(case: Case, room: Room, walk: Walk, policies: Sequence[Policy]) -> Outcome:
    """The verdict of the first policy that has one."""
    found = guarded(lambda: next(each for policy in policies if (each := policy(case, room, walk)) is not None))
    if isinstance(found, OwnMistake):
        return Outcome(Wait(Refusal(WaitCause.MISTAKE, error=found.error)), is_settled=False)
    return found
