"""GPUs for a job that holds none: placement's answer, or a wait."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from closeknit.api.affinity import NodeAffinity
from closeknit.api.reasons import PendingReason
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import AvoidedNodes, avoided_nodes
from closeknit.lifecycle.attempt.own_gpus import with_own_gpus_free
from closeknit.lifecycle.attempt.own_pods import taken
from closeknit.lifecycle.booking.booked_placement import assumed
from closeknit.lifecycle.booking.cannot_start import too_large, too_many
from closeknit.lifecycle.status.preference import patient_until
from closeknit.lifecycle.verdict import Book, Refusal, Wait, WaitCause
from closeknit.lifecycle.writes.denial_words import taken_words
from closeknit.placement.candidates.node_filter import meets
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.policy.spares import with_spares
from closeknit.scheduling.queue.admitted_needs import counts_until
from closeknit.scheduling.queue.entries import NOT_ASKED, BehindKey, Case, Outcome, RequestShape, is_kept_for
from closeknit.scheduling.queue.queue_reservation import Ask
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.queue.waits_behind import behind_key
from closeknit.scheduling.reservation.patience import asked_again_at


def admit(case: Case, room: Room, walk: Walk) -> Outcome:
    """The GPUs that the job gets now, or why it gets none."""
    job, questions = case.job, walk.questions
    known = case.known.shape if case.known is not None else None
    may_be_refused = walk.probation.may_be_refused(job, case.answers)
    away = avoided_nodes(job, room.cluster, walk.now)
    due = asked_again_at(away.until, counts_until(case, walk.now))
    patience = patient_until(job, walk.now)
    is_kept_whole = patience is not None and job.spec.topology.fabric.preferred is None
    shape = known if patience is None else None
    if shape is None or not _is_asked(shape, case, walk, away):
        shape = _shape(case, room, walk, away, is_patient=patience is not None and not is_kept_whole)
    if shape is None:
        return questions.not_asked(known)
    alone = with_own_gpus_free(job, case.pods, room.cluster).without(away.devices)
    again = asked_again_at(patience, due)
    is_like_others = alone is room.cluster  # nothing is free for it alone
    key = behind_key(case, shape, is_whole=is_kept_whole) if is_like_others else None
    wait = None if key is None else walk.reserving.known_wait(case, key, room)
    known_outcome = None if wait is None else Outcome(wait, shape, until=again, is_settled=not due, behind=key)
    put_off = known_outcome or _put_off(case, room, walk, shape, alone, is_trial=may_be_refused)
    if put_off is not None:
        return put_off
    answer = _answer(case, room, walk, shape, alone)
    if is_kept_whole and isinstance(answer, Placement) and len(answer.shares) > 1:  # only then it is a question
        shape = _shape(case, room, walk, away, is_patient=True)
        if shape is None or not questions.take_question(shape, case.place, room, alone):
            return questions.not_asked(shape)
        key = behind_key(case, shape, is_whole=True) if is_like_others else None
        answer = _answer(case, room, walk, shape, alone)
    if isinstance(answer, Wait):
        walk.reserving.offer(case, shape, answer.refusal, alone, is_trial=room.is_trial)
        if room.is_trial and (may_be_refused or job.status.pending is not None):
            # It would be told so, and otherwise a moment later: two writes with each try of another job.
            return Outcome(NOT_ASKED, shape, is_settled=False)
        is_waiting = shape.request.patient_level is not None  # whatever it is refused for, now or in newer words
        again = asked_again_at(patience if is_waiting else None, due)
        # What is left of it may come to count as free for it alone, on a node that recovers.
        has_left = bool(case.pods or room.cluster.claims_of(case.key))
        scene = None if alone is room.cluster else room.scene
        return Outcome(answer, shape, until=again, is_settled=not (has_left or due), scene=scene)
    answer = chosen(shape.request, answer, case.volumes.choices, alone, walk)
    ask = partial(_asked_elsewhere, shape.request, case.volumes.choices, walk, is_kept_whole=is_kept_whole)
    passing = _passing(case, room, walk, shape, key, ask, answer, alone)
    if not isinstance(passing, Placement):
        passing.until, passing.is_settled = again, passing.is_settled and not due
        return passing
    answer = passing
    if (refusal := walk.probation.refusal(job, case.answers, is_trial=may_be_refused)) is not None:
        if alone is room.cluster:
            questions.left_free(shape, room)
        return Outcome(Wait(refusal), shape, until=refusal.until, is_settled=False)
    if (cannot := cannot_be_made(case, answer, shape, again, room)) is not None:
        return cannot
    return _booked(case, room, walk, shape, answer, alone, is_trial=may_be_refused)


def left_for_the_next(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The wait of a job behind as many as get GPUs in one decision. Who room is kept for is asked all the same, and
    keeps its reservation; it takes nothing, for others ahead of it were not asked."""
    if not walk.questions.budget.is_full:
        return None
    if is_kept_for(case.place):
        return admit(case, room, walk)
    return _left(case, case.known.shape if case.known is not None else None, walk)


def _left(case: Case, shape: RequestShape | None, walk: Walk) -> Outcome:
    walk.questions.budget.leave(case.place)
    return walk.questions.not_asked(shape)


def _booked(
    case: Case, room: Room, walk: Walk, shape: RequestShape, answer: Placement, alone: Cluster, *, is_trial: bool
) -> Outcome:
    """These GPUs; in the next decision, where this one has given as many as it gives."""
    job = case.job
    if walk.questions.budget.is_full:
        return _left(case, shape, walk)
    answer = walk.reserving.without_spares_there(job, with_spares(job, answer, shape.request, alone, walk))
    walk.reserving.note(job, answer)
    booked = room.less(room.cluster.with_job(assumed(job, answer)), is_trial=is_trial)
    return Outcome(Book(answer), shape, is_settled=False, room=booked)


def _is_asked(shape: RequestShape, case: Case, walk: Walk, away: AvoidedNodes) -> bool:
    """Whether it is what the job asks without patience."""
    asked = shape.request
    return (
        asked.avoided == away.nodes
        and asked.patient_level is None
        and asked.needs == walk.questions.request(case).needs
    )


def _shape(case: Case, room: Room, walk: Walk, away: AvoidedNodes, *, is_patient: bool) -> RequestShape | None:
    """The job's request. Whether patience helps is a question of its own, within the budget: None where that is not
    asked now."""
    asked = walk.questions.request(case)
    asked = replace(asked, avoided=away.nodes) if away.nodes else asked
    if is_patient:
        take = walk.questions.take_selection
        waiting = walk.patience.asked(asked, room.cluster, lambda: take(asked, case.place, room.cluster))
        if waiting is None:
            return None
        # A gang that gives way has no room kept for it; one that has some was told when it starts.
        if not waiting.gives_way or (walk.crowd.is_behind(case.job) and not is_kept_for(case.place)):
            asked = waiting
    return walk.questions.shape(asked)


def _put_off(
    case: Case, room: Room, walk: Walk, shape: RequestShape, alone: Cluster, *, is_trial: bool
) -> Outcome | None:
    """The outcome without a question to placement; None to ask. Probation's refusal, if the shape is known to fit, or
    has neither budget nor a message yet; else `not_asked` without budget."""
    questions, job = walk.questions, case.job
    may_be_asked = questions.take_question(shape, case.place, room, alone)
    is_fitting = questions.fits(shape, room)
    if alone is room.cluster and (is_fitting or not (may_be_asked or job.status.pending)):
        refusal = walk.probation.refusal(job, case.answers, is_trial=is_trial)
        if refusal is not None and (is_fitting or refusal.reason is not None):
            return Outcome(Wait(refusal), shape, until=refusal.until, is_settled=False)
    return None if may_be_asked else questions.not_asked(shape)


def chosen(asked: Request, answer: Placement, choices: Sequence[NodeAffinity], alone: Cluster, walk: Walk) -> Placement:
    """The placement, or another one that is better for what placement does not look at: volumes and lemons."""
    return _past_lemons(asked, _in_one(asked, answer, choices, alone, walk), choices, alone, walk)


def _in_one(
    asked: Request, answer: Placement, choices: Sequence[NodeAffinity], alone: Cluster, walk: Walk
) -> Placement:
    """The placement, or if its nodes could not all have the same volume one whose nodes can; None without any."""
    if _has_one(answer, choices, alone):
        return answer
    each = (walk.questions.placed(replace(asked, volumes=asked.volumes | {choice}), alone) for choice in choices)
    return next((found for found in each if found is not None), answer)


def _has_one(answer: Placement, choices: Sequence[NodeAffinity], alone: Cluster) -> bool:
    """Whether its nodes could all have the same volume."""
    views = [alone.nodes[share.node] for share in answer.shares]
    return (
        not choices
        or len(views) == 1
        or any(all(meets(view.name, view.labels, choice) for view in views) for choice in choices)
    )


def _past_lemons(
    asked: Request, answer: Placement, choices: Sequence[NodeAffinity], alone: Cluster, walk: Walk
) -> Placement:
    """The placement with the fewest lemons whose nodes could have the same volume, if those of the answer could."""
    is_bound = _has_one(answer, choices, alone)

    def ask(request: Request, cluster: Cluster) -> Placement | None:
        found = walk.questions.placed(request, cluster)
        found = found and _in_one(request, found, choices, cluster, walk)
        return found if found is not None and (not is_bound or _has_one(found, choices, cluster)) else None

    return walk.lemons.with_fewest(answer, asked, alone, ask)


def _passing(
    case: Case,
    room: Room,
    walk: Walk,
    shape: RequestShape,
    key: BehindKey | None,
    ask: Ask,
    answer: Placement,
    alone: Cluster,
) -> Placement | Outcome:
    """What a job gets that leaves what is kept for another, or its wait."""
    if walk.reserving.makes_room_for(case.job, answer):
        return answer
    wait = None if key is None else walk.reserving.known_wait(case, key, room)
    if wait is None:
        if not walk.questions.take_more(case.place):
            return walk.questions.not_asked(shape)
        is_trial = walk.probation.may_be_refused(case.job, case.answers)
        found = walk.reserving.passing(case.job, answer, alone, ask, is_trial=is_trial)
        if found is not None:
            return found
        wait = walk.reserving.wait(case, key, room)
    return Outcome(wait, shape, is_settled=key is not None, behind=key)


def _asked_elsewhere(
    asked: Request, choices: Sequence[NodeAffinity], walk: Walk, cluster: Cluster, *, is_kept_whole: bool
) -> Placement | None:
    """The placement in a cluster without what is kept for another job; None where that is no place for the job."""
    found = walk.questions.placed(asked, cluster)
    if found is None or (is_kept_whole and len(found.shares) > 1):
        return None
    found = chosen(asked, found, choices, cluster, walk)
    return found if _has_one(found, choices, cluster) else None


def _answer(case: Case, room: Room, walk: Walk, shape: RequestShape, alone: Cluster) -> Placement | Wait:
    """The answer for the shape on the cluster without the job's own Pods."""
    if alone is room.cluster:
        return walk.questions.answer(shape, room, case.place)
    return walk.questions.answer_alone(shape, alone, case)


def cannot_be_made(
    case: Case, placement: Placement, shape: RequestShape, again: datetime | None, room: Room
) -> Outcome | None:
    """The obstacle that keeps a fitting gang from being made or started; None where none is known. `again` is when it
    may ask for something else."""
    job = case.job
    holder = taken(job, job.status.attempt or 1, len(placement.shares), room.cluster)
    if holder is not None:
        words = taken_words(f"{holder.kind} {job.key.namespace}/{holder.name}", holder.owner)
        refusal = Refusal(WaitCause.REFUSED, PendingReason.NAME_CONFLICT, words)
        return Outcome(Wait(refusal), shape, is_settled=False)
    if (too_much := too_large(job, placement, room.cluster)) is not None:
        refusal = Refusal(WaitCause.REFUSED, PendingReason.NOT_SUPPORTED, too_much)
    elif (lacking := too_many(job, placement, case.volumes)) is not None:
        refusal = Refusal(WaitCause.REFUSED, PendingReason.VOLUME_UNAVAILABLE, lacking)
    else:
        return None
    return Outcome(Wait(refusal), shape, until=again, is_settled=False, scene=room.scene)
