"""An elastic job that runs with fewer GPUs grows where there has been room for more for a while.

The rule: nobody of its priority or a higher one waits for room; the room was there for GROWS_AFTER, which its status
tells, but for moments in which a job that was refused before is tried there; what is gained pays for the restart
within the hour, and before the job ends by its own word or its deadline; it has not grown MOST_AN_HOUR times in the
last hour; and the API server takes the larger gang, which is tried before the smaller one ends. Nobody goes for it.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from closeknit.api.names import child_named
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType, EndReason, EventReason
from closeknit.api.trainingjob_status import RoomToGrow, TrainingJobStatus
from closeknit.cluster.booking.booking import Booking
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.booking.cannot_start import too_large, too_many
from closeknit.lifecycle.failures.kept_shares import marked
from closeknit.lifecycle.status.conditions import is_true, moment, stated
from closeknit.lifecycle.transitions.ends import KEPT_ATTEMPTS
from closeknit.lifecycle.transitions.next_status import GROWS_AFTER
from closeknit.lifecycle.verdict import Grow, Keep
from closeknit.lifecycle.writes.quota_shortfall import QuotaRoom
from closeknit.lifecycle.writes.refusals import RefusedChange
from closeknit.placement.values.placement import Placement
from closeknit.scheduling.elastic.sizes import largest, largest_within, more
from closeknit.scheduling.policy.hold import held
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.preemption.trial_placement import placed
from closeknit.scheduling.queue.both_bookings import holding_both
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.expected_ends import end_terms
from closeknit.scheduling.resizing.added_nodes import with_added_nodes
from closeknit.scheduling.victims.victim import RESTART_COSTS, gone

HOUR = timedelta(hours=1)
MOST_AN_HOUR = 2
NO_ROOM = 0


def grown(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The verdict on an elastic job that runs with fewer GPUs than it asks for."""
    booking, status = room.cluster.booking_of(case.key), case.job.status
    if booking is None or booking.gpus >= case.job.spec.gpus or booking.lost or booking.awaits:
        return None
    outcome = held(case, room, walk)
    if outcome is None or not outcome.is_settled or case.key in walk.memory.busy or status.placement is None:
        return outcome
    outcome.is_settled = False
    if not is_true(status.conditions, ConditionType.RUNNING) or status.placement.swapping:
        return outcome
    if _is_ending(case, booking) or _has_leftovers(case, booking, room):
        return outcome
    told = status.placement.room
    if not walk.questions.take_more(case.place):
        return outcome
    found = _larger(case, booking, room, walk)
    gpus = NO_ROOM if found is None else _gpus(found)
    if room.is_trial and told is not None and gpus < told.gpus:
        return outcome  # what is on trial is likely to be free again in a moment
    if found is None:
        return outcome if told is None else _kept(booking, NO_ROOM)
    if told is None or told.gpus > gpus:
        return _kept(booking, gpus)
    if (refused := _refused(case, told, found)) is not None:
        return Outcome(Keep(booking, room=told.gpus, refused=refused), is_settled=False)
    barred_until = _barred_until(case, found, walk.now)
    if barred_until is not None:
        outcome.until = barred_until
        return outcome
    ready = moment(told.since) + GROWS_AFTER
    if walk.now >= ready:
        found = _beside(case, booking, found, room, walk) or found
    both = holding_both(case.job, found, booking)
    walk.growth.want(both)
    if walk.now < ready:
        outcome.until = ready
        return outcome
    walk.reserving.note(case.job, found)
    return Outcome(Grow(booking, found), is_settled=False, room=room.less(room.cluster.with_job(both)))


def _is_ending(case: Case, booking: Booking) -> bool:
    """Whether ranks are over already: the others follow soon, and a restart would do their work again."""
    is_over = any(pod.phase == "Succeeded" and pod.attempt == booking.attempt for pod in case.pods)
    return is_over or any(share.succeeded for share in booking.shares)


def _has_leftovers(case: Case, booking: Booking, room: Room) -> bool:
    """Whether Pods or claims of a growth that was taken back are still there: the next one needs their names."""
    children = [pod.child for pod in case.pods]
    children += [child_named(claim.name) for claim in room.cluster.claims_of(case.key)]
    return any(child is not None and booking.has_no_place_for(child) for child in children)


def _kept(booking: Booking, gpus: int) -> Outcome:
    return Outcome(Keep(booking, room=gpus), is_settled=False)


def _larger(case: Case, booking: Booking, room: Room, walk: Walk) -> Placement | None:
    """Where it would go with more GPUs; None where there is no room, or others go first."""
    job, growth = case.job, walk.growth
    if growth.is_full or growth.goes_first(room.cluster.priority(job)):
        return None
    sizes = more(job.spec, booking.gpus)
    lasts = _lasts(job, walk.now)
    worth = [size for size in sizes if (size - booking.gpus) * lasts >= size * RESTART_COSTS]
    if not worth:
        return None
    away = avoided_nodes(job, room.cluster, walk.now)
    cluster = growth.left(room.cluster)
    cluster = cluster.after(tuple(gone(cluster, job))).without(away.devices)
    asked = replace(walk.questions.request(case), avoided=away.nodes)
    larger = range(worth[0], sizes.stop, sizes.step)

    def place(gpus: int) -> Placement | None:
        return placed(case, replace(asked, gpus=gpus), cluster, walk)

    found = largest_within(_quota_room(case), larger, asked, place, cluster)
    found = found or largest(larger, asked, place, cluster)  # the quotas may leave more by now
    if found is None or not walk.reserving.makes_room_for(job, found):
        return None
    if too_large(job, found, cluster) is not None or too_many(job, found, case.volumes) is not None:
        return None
    return found


def _beside(case: Case, booking: Booking, found: Placement, room: Room, walk: Walk) -> Placement | None:
    """As large a gang with the nodes that it has, so that its Pods there can stay; None where that is worse, or where
    one of these is gone, is drained, or has a GPU that is not well."""
    job, gpus = case.job, _gpus(found)
    if any(share.lost for share in marked(job, booking.shares, room.cluster, walk.now)):
        return None
    away = avoided_nodes(job, room.cluster, walk.now)
    cluster = walk.growth.left(room.cluster).without(away.devices)
    asked = replace(walk.questions.request(case), avoided=away.nodes, gpus=gpus)
    kept = with_added_nodes(case, booking, found, asked, cluster, walk)
    if kept is None or not walk.reserving.makes_room_for(job, kept):
        return None
    return None if too_many(job, kept, case.volumes) is not None else kept


def _lasts(job: TrainingJob, now: datetime) -> timedelta:
    """How long it goes on as it is, by its own word or its deadline; an hour at most."""
    end = end_terms(job, now).end(now)
    return HOUR if end is None else min(HOUR, end.at - now)


def _quota_room(case: Case) -> QuotaRoom | None:
    """What the quotas left when they had too little for its growth."""
    refused = _refused_change(case)
    return None if refused is None else refused.quota_room


def _refused_change(case: Case, found: Placement | None = None) -> RefusedChange | None:
    """The refusal of a change of the job as it is now; None where only a larger gang than this one is too much for the
    quotas."""
    refused = case.answers.refused_change
    if refused is None or refused.generation != case.job.metadata.generation:
        return None
    room = refused.quota_room
    is_smaller = found is not None and room is not None and room.holds(len(found.shares), _gpus(found))
    return None if is_smaller else refused


def _gpus(found: Placement) -> int:
    return sum(len(share.gpus) for share in found.shares)


def _refused(case: Case, told: RoomToGrow, found: Placement) -> str | None:
    """Why the API server has refused its growth, where its status does not say so yet."""
    refused = _refused_change(case, found)
    if refused is None or refused.reason is not EventReason.RESIZE_REFUSED:
        return None
    return None if told.refused == stated(refused.message) else refused.message


def _barred_until(case: Case, found: Placement, now: datetime) -> datetime | None:
    """Until when it does not grow: it has grown often lately, or the API server has refused that; None for now."""
    refused, until = _refused_change(case, found), list[datetime]()
    if refused is not None:
        until.append(refused.retry_at)
    if (often := _often_until(case.job.status)) is not None:
        until.append(often)
    later = max(until, default=now)
    return later if later > now else None


def _often_until(status: TrainingJobStatus) -> datetime | None:
    """When the last hour will have had fewer than MOST_AN_HOUR of its growths, as far as its ends are kept."""
    grown_at = [moment(each.ended) for each in status.attempts if each.reason == EndReason.GROWN]
    if len(grown_at) >= MOST_AN_HOUR:
        return grown_at[-MOST_AN_HOUR] + HOUR
    return moment(status.attempts[0].ended) + HOUR if len(status.attempts) >= KEPT_ATTEMPTS else None
