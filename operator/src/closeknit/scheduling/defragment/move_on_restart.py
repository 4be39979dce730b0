"""A job that starts again in new Pods goes where that frees a node, or a domain of a level, as a whole.

Only one that allows it (spec.defragment), and only to a placement that is predicted to be as fast and spans no more
domains. Nothing ends for it: the job has no Pods at that moment.
"""

from dataclasses import replace

from closeknit.api.reasons import ConditionType
from closeknit.api.trainingjob import Defragment
from closeknit.api.trainingjob_status import PlacementStatus
from closeknit.cluster.booking.booking import Booking
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.status.conditions import is_true
from closeknit.lifecycle.status.pauses import restart_at
from closeknit.lifecycle.verdict import Book
from closeknit.placement.free_domains import free_domains, gain
from closeknit.placement.values.request import NOBODY, request
from closeknit.scheduling.policy.admit import cannot_be_made
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.preemption.elsewhere import is_as_good
from closeknit.scheduling.preemption.trial_placement import placed
from closeknit.scheduling.queue.both_bookings import holding_both
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.victims.victim import gone


def moved(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The other GPUs of a job that is to start again on those that it has."""
    booking, placement = room.cluster.booking_of(case.key), case.job.status.placement
    if booking is None or placement is None or not _may_move(case, booking, placement, walk):
        return None
    if not walk.questions.take_selection(request(NOBODY, case.job.spec), case.place, room.cluster):
        return None
    job, away = case.job, avoided_nodes(case.job, room.cluster, walk.now)
    free = room.cluster.after(tuple(gone(room.cluster, job)))
    asked = replace(request(NOBODY, job.spec, case.volumes.required), gpus=booking.gpus, avoided=away.nodes)
    found = placed(case, asked, free.without(away.devices), walk)
    if found is None or not is_as_good(found, placement) or not walk.reserving.makes_room_for(job, found):
        return None
    told = gain(free_domains(free.with_job(job)), free_domains(free.with_job(assumed(job, found))))
    if told is None or cannot_be_made(case, found, walk.questions.shape(asked), None, room) is not None:
        return None
    both = room.cluster.with_job(holding_both(job, found, booking))
    return Outcome(Book(found, f"it moves, which frees {told}"), is_settled=False, room=room.less(both))


def _may_move(case: Case, booking: Booking, placement: PlacementStatus, walk: Walk) -> bool:
    """Whether the job is about to get new Pods on its GPUs, has none of them yet, and may have others."""
    job = case.job
    if job.spec.defragment is Defragment.NEVER or case.key in walk.memory.busy:
        return False
    if restart_at(job.status, walk.now) is not None:
        return False  # the pause of a job that ends again and again holds elsewhere, too
    refused = case.answers.refused_change
    if refused is not None and refused.stands(job.metadata.generation, walk.now):
        return False
    if booking.lost or booking.awaits or booking.spares or placement.swapping or placement.run:
        return False
    ended = job.status.attempts[-1:]
    is_restart = any(each.number == booking.attempt - 1 and not each.in_place for each in ended)
    is_made = any(pod.attempt == booking.attempt for pod in case.pods)
    return is_restart and not is_made and not is_true(job.status.conditions, ConditionType.RUNNING)
