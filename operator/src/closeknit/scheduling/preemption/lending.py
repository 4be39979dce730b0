"""Spare nodes are lent: a job that fits nowhere else gets those of jobs, and of queues, that may end it.

A spare is lent by a job of higher priority whose PriorityClass lets it end others, and only while nothing happens to
that job. A spare node of a queue is lent where each job of the queue that holds GPUs would lend it. The borrower delays
no reservation, and ends uncharged once an owner loses a node (policy/replace_lost_nodes.py).
"""

from dataclasses import replace

from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.verdict import Book, Wait
from closeknit.scheduling.policy.admit import cannot_be_made
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.policy.spares import all_unspared, with_spares
from closeknit.scheduling.preemption.trial_placement import alone, passing, placed
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.reserve import waits_for_room_or_turn
from closeknit.scheduling.victims.preemption_state import Borrower, LentSpares


def on_lent_spares(case: Case, room: Room, walk: Walk, outcome: Outcome) -> Outcome:
    """The outcome with the spare nodes of others, of a job that waits for room; the same one where there are none."""
    shape, verdict, job = outcome.shape, outcome.verdict, case.job
    if shape is None or not isinstance(verdict, Wait) or not waits_for_room_or_turn(verdict.refusal):
        return outcome
    known, priority, kept = walk.preemptions, room.cluster.priority(job), walk.reserving.current
    borrower = Borrower(case.key, shape, job.spec)
    if not known.may_borrow(borrower, priority, room.freed, kept):
        return outcome
    lent = _lent(priority, room.cluster, walk)
    lenders = known.lenders(priority)._replace(owners=lent.owners)
    is_nothing_lent = lent.without is room.cluster and not lenders.queues
    if is_nothing_lent or known.is_lent_in_vain(borrower, lenders, room.freed, kept):
        return outcome
    is_trial = walk.probation.may_be_refused(job, case.answers)
    is_barred = walk.probation.refusal(job, case.answers, is_trial=is_trial) is not None
    if is_barred or not walk.questions.take_more(case.place):
        return outcome
    asked = replace(shape.request, patient_level=None, spare_queues=lenders.queues)
    there = alone(case, lent.without, walk)
    fitting = placed(case, asked, there, walk)
    found = passing(case, asked, fitting, there, walk)
    if found is None and there is lent.without:  # nor for any other job that asks the same
        known.lent_in_vain(borrower, lenders, room, None if fitting is None else kept)
    if found is None or cannot_be_made(case, found, shape, outcome.until, room) is not None:
        return outcome
    found = with_spares(job, found, asked, alone(case, room.cluster, walk), walk)
    walk.reserving.withdraw(case.key)
    found = walk.reserving.without_spares_there(job, found)
    walk.reserving.note(job, found)
    booked = room.less(room.cluster.with_job(assumed(job, found)), is_trial=is_trial)
    return Outcome(Book(found), shape, is_settled=False, room=booked)


def _lent(priority: int, cluster: Cluster, walk: Walk) -> LentSpares:
    """What is lent to jobs of this priority: by those that this walk has not changed."""
    there = walk.preemptions.lenders(priority)
    owners = tuple(each for each in there.owners if cluster.jobs[each] is walk.cluster.jobs[each])
    known = walk.preemptions.lent
    if known is None or known.owners != owners or known.cluster is not cluster:
        without = all_unspared((cluster.jobs[each] for each in owners), cluster)
        walk.preemptions.lent = known = LentSpares(owners, cluster, without)
    return known
