"""The booking of a job that gets GPUs, and then its children."""

from collections.abc import Sequence
from dataclasses import replace

from closeknit.api.reasons import EventAction, EventReason
from closeknit.api.trainingjob_status import PlacementStatus, RoomToGrow, TrainingJobStatus
from closeknit.cluster.booking.booking import (
    AwaitedAttempt,
    Booking,
    BookingShare,
    decoded,
    encoded_awaits,
    replacements,
    with_shares,
)
from closeknit.cluster.pods.pod import Pod
from closeknit.launch.environment.environment import Environment, environment
from closeknit.launch.gang import Gang
from closeknit.lifecycle.attempt import creation
from closeknit.lifecycle.attempt.attempt import Attempt
from closeknit.lifecycle.attempt.blocking_pods import leftovers
from closeknit.lifecycle.attempt.launched_gang import Lost, gang
from closeknit.lifecycle.attempt.subject import Subject
from closeknit.lifecycle.attempt.verification import verified
from closeknit.lifecycle.booking.booked_placement import booking_of, environment_status, placement_status, shares_of
from closeknit.lifecycle.booking.booking_trials import is_refused_otherwise, probes, probes_with_first, trials
from closeknit.lifecycle.booking.booking_words import lent_words, placed, reason_of
from closeknit.lifecycle.booking.gang_quota import after_others, are_outlived_counted, making_room, may_be_counted
from closeknit.lifecycle.failures.refused_growth import RefusedGrowth
from closeknit.lifecycle.failures.staying_pods import cannot_stay, farewells, replacing, told_otherwise
from closeknit.lifecycle.status.conditions import stated, timestamp
from closeknit.lifecycle.status.degraded import Degradation, degradation, harmed
from closeknit.lifecycle.status.preference import unknown_preference
from closeknit.lifecycle.transitions import runs, waits
from closeknit.lifecycle.writes.plan import Create, Plan
from closeknit.lifecycle.writes.quota_demand import quota_demand
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.sentences import count


def book(subject: Subject, placement: Placement, why: str = "", going: Sequence[Pod] | None = None) -> Plan:
    """The booking of the placement, and all children of the attempt; of one whose other Pods stay only the new ones.
    `why` a job leaves the GPUs that it has by choice: nothing is stored then where the API server refuses the gang.
    `going`: its Pods that run until this is stored, and for whose GPUs it gets these; None: it holds nothing now."""
    job, number = subject.job, subject.attempt
    left = going or ()
    booked = placement_status(job, placement)
    stored, is_by_choice = job.status.placement, bool(why)
    if stored is not None and stored.swapping:
        swapped = _swapped(subject, placement, booked, stored)
        if isinstance(swapped, Plan):
            return swapped
        number += 1  # all Pods are new; the old ones go once that is stored
        left = subject.children.own
    booking = booking_of(job, placement, number)
    made = _gang(subject, booking, booked)
    found = environment(made, 0)
    status = _booked(subject, made, found, booked, number)
    indexes = range(len(made.members))
    is_free = not leftovers(job, subject.children, subject.cluster, made, indexes)  # else they are made once it is
    children = creation.whole(made, with_others=True)
    is_late = may_be_counted(subject)
    asked = quota_demand(children.manifests, may_be_counted=is_late and going is None, gpus=booking.gpus)
    if not is_free:
        children = creation.Creation()
        left = subject.children.own  # what runs on is stopped once that is stored
    asked = after_others(asked, subject, left)
    plan = subject.plan(
        status,
        demand=asked,
        probes=trials(subject, made) if is_by_choice else probes(subject, made),
        opening=children.opening,
        actions=children.actions,
        notice=placed(subject, booked, harmed(found), why),
        adds=creation.additions(made),
    )
    plan = replace(plan, sets=found.names, is_by_choice=is_by_choice, is_quota_late=is_late)
    return replace(plan, tells_quotas_last=is_refused_otherwise(subject))


def book_beside(subject: Subject, placement: Placement) -> Plan | str:
    """The booking of a gang whose Pods stay, with nodes that are added: their places are empty in what is stored. They
    get their Pods by the next Plan. Nothing is stored where a quota has too little left for these, or the API server
    refuses them. Else why all Pods of the gang are to be new."""
    stored = subject.job.status.placement
    assert stored is not None  # noqa: S101 - a job that grows has one, for the type checker
    before, after = decoded(stored), shares_of(subject.job, placement)
    if len(before) != len(after) or not all(map(_is_kept, before, after)):
        return "the whole gang goes elsewhere"
    plan = _swapped(subject, placement, placement_status(subject.job, placement), stored)
    if isinstance(plan, str):
        return plan
    made = [each for each in plan.actions if isinstance(each, Create)]
    return replace(
        plan,
        demand=None if plan.demand is None else replace(plan.demand, may_be_counted=False),
        probes=creation.with_owned(made[: creation.MOST_TRIED], subject.job.metadata.uid or ""),
        actions=(),
        is_by_choice=True,
    )


def take_back(attempt: Attempt, refused: RefusedGrowth, before: Placement | None) -> Plan:
    """The booking as it was before a growth in place that the API server refuses. The ranks train on; the Pods that
    were made for added nodes go. `before` is told of that placement; None: nothing is known of it now."""
    subject, status = attempt.subject, attempt.subject.job.status
    stored = status.placement
    assert stored is not None  # noqa: S101 - a job that grows has one, for the type checker
    kept = slice(len(refused.shares))
    shares, result = verified(subject.cluster, attempt.shares[kept], attempt.pods[kept])
    held = replace(attempt.booking, shares=shares)
    booked = PlacementStatus(node_count=len(shares), gpus=held.gpus, nodes=[])
    booked = booked if before is None else placement_status(subject.job, before)
    room = RoomToGrow(gpus=attempt.booking.gpus, since=timestamp(subject.now), refused=stated(refused.message))
    booked = with_shares(booked.model_copy(update={"run": stored.run, "room": room}), shares)
    job = subject.job.model_copy(update={"status": status.model_copy(update={"placement": booked})})
    made = Attempt(replace(subject, job=job), held).gang()
    lacks, told = list[Degradation | None](), status.environment
    if not isinstance(made, Lost):  # else it is found when the gang is looked at
        lacks, told = [degradation(made, subject.cluster)], environment_status(environment(made, 0))
    back = runs.taken_back(subject.job, subject.now, booked, shares, result, lacks, told)
    words = f"it goes on with {held.gpus} of its {count(subject.job.spec.gpus, 'GPU')}: {refused.message}"
    as_before = subject.job.model_copy(update={"status": back})
    told_once = replace(subject, job=as_before).notice(
        EventReason.RESIZE_REFUSED, words, action=EventAction.RESIZE, warning=True
    )
    return subject.plan(back, actions=farewells(subject, held), notice=told_once)


def reserve(subject: Subject, placement: Placement, awaited: Sequence[AwaitedAttempt], message: str) -> Plan:
    """The booking of a placement whose GPUs others have until their Pods are gone. Nothing is made by it; but it is
    stored only if the quotas, and the API server's admission, would take the gang: no job makes room for one that
    would be refused."""
    job = subject.job
    booked = placement_status(job, placement).model_copy(update={"awaits": encoded_awaits(awaited)})
    booking = booking_of(job, placement, subject.attempt)
    made = _gang(subject, booking, booked)
    children = creation.whole(made, with_others=True)
    is_first = job.status.placement is None
    reason, unknown = reason_of(awaited), unknown_preference(job.spec, subject.cluster)
    status = waits.awaiting(job, subject.now, booked, reason, message, unknown)
    demand = quota_demand(children.manifests, may_be_counted=may_be_counted(subject), gpus=booking.gpus)
    plan = subject.plan(
        status,
        demand=after_others(demand, subject, making_room(subject, awaited)) if is_first else None,
        probes=probes_with_first(subject, made) if is_first else (),
        notice=subject.notice(reason, message, action=EventAction.QUEUE),
        adds=creation.additions(made),
    )
    return replace(plan, tells_quotas_last=is_refused_otherwise(subject))


def _gang(subject: Subject, booking: Booking, booked: PlacementStatus) -> Gang:
    made = gang(
        subject.job,
        booking,
        subject.cluster,
        ipc_lock=subject.asks_for_ipc_lock,
        gives_cpus=not subject.answers.cpus_refused,
        has_sidecar=not subject.answers.sidecar_refused,
    )
    if isinstance(made, Lost):  # placement chose from this very cluster
        raise RuntimeError(made.message)  # noqa: TRY004 - no matter of types
    return replace(made, predicted_gb_s=booked.predicted_bus_bandwidth_gb_s)


def _booked(
    subject: Subject, made: Gang, found: Environment, booked: PlacementStatus, number: int
) -> TrainingJobStatus:
    return runs.booked(
        subject.job,
        subject.now,
        booked,
        attempt=number,
        epoch=subject.epoch,
        environment=environment_status(found),
        lacks=degradation(made, subject.cluster),
        words=runs.BookingWords(
            unknown_preference(subject.job.spec, subject.cluster), lent_words(subject.job, booked, subject.cluster)
        ),
    )


def _swapped(subject: Subject, placement: Placement, booked: PlacementStatus, stored: PlacementStatus) -> Plan | str:
    """The booking of other nodes in place of lost ones, with Pods there; or why all Pods of the gang are to be new."""
    after = shares_of(subject.job, placement)
    before = _left(decoded(stored), after)
    if len(before) != len(after) or not all(map(_is_kept, before, after)):
        return "the whole gang goes elsewhere"
    shares = tuple(map(replacing, before, after))
    booking = Booking(subject.job.metadata.uid or "", subject.attempt, shares)
    attempt = Attempt(subject, booking)
    if why := cannot_stay(attempt, shares):
        return why
    made = _gang(subject, booking, booked)
    new = attempt.missing
    if why := told_otherwise(made, attempt, [at for at in range(len(shares)) if at not in new]):
        return why
    found = environment(made, 0)
    kept = {"run": stored.run, "swapping": True, "replaced": replacements(shares)}
    status = _booked(subject, made, found, booked.model_copy(update=kept), subject.attempt)
    children = creation.missing(made, new, with_others=False)
    if leftovers(subject.job, subject.children, subject.cluster, made, new):  # else they are made once it is free
        children = creation.Creation()
    is_late = may_be_counted(subject) or are_outlived_counted(subject, booking)
    return subject.plan(
        status,
        demand=after_others(quota_demand(children.manifests, may_be_counted=is_late), subject, ()),
        actions=(*farewells(subject, booking), *children.actions),
    )


def _left(before: Sequence[BookingShare], after: Sequence[BookingShare]) -> tuple[BookingShare, ...]:
    """The shares of before, lost where their node has none any more: one that is not Ready goes with the lost ones,
    and is not stored as lost before."""
    nodes = {share.node for share in after}
    return tuple(share if share.node in nodes else replace(share, lost=True) for share in before)


def _is_kept(before: BookingShare, after: BookingShare) -> bool:
    """Whether the share is the same as before, unless it was lost."""
    facts = ("node", "gpus", "first_rank", "binding", "nics", "rdma_resource", "mig_device", "server")
    return before.lost or all(getattr(before, fact) == getattr(after, fact) for fact in facts)
