"""Other nodes for a job that has lost some of its own: the rest of them stays booked to it.

The rule, in one place. If all lost nodes can be replaced, they are, and the gang starts; else if its spare nodes would
do, or those of its queue, and are lent, those jobs end that have them, unless it has lost all and fits anywhere, or is
placed as a whole and fits where it is; else if the whole gang fits anywhere, its own nodes counted as free, it goes
there, for a gang that waits trains nothing; else an elastic job goes on with the largest size that fits; else it takes
what it can get now, holds that with the rest, and waits. HELD_FOR after the end it gives everything back, and waits as
any other job. What it gives back it marks as lost first: others get it once that is stored, as whatever is freed. What
it needs where it goes it never gives back. Spare nodes of its queue it takes for as long as it holds something: before
ordinary ones, and after its own.

A gang whose nodes NVLink may join is placed as a whole: in the NVLink domain where its other nodes are, if it fits
there.

A gang whose Pods the API server refused is tried again at the pace of refusals.

What is lost before the first Pod of the next attempt is made is the same loss: several of them are one restart. While
another node of the gang has missed a sign of life nothing is done for UNDECIDED_FOR. A held node that is not Ready is
replaced with the lost ones where all can be; until then it stays held, for it may be a blip.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from closeknit.api.names import NVLINK_DOMAIN_LEVEL
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType, ExclusionReason, PendingReason
from closeknit.cluster.booking.booking import Booking, BookingShare, booking, names, spares, with_shares
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.attempt.own_gpus import with_own_gpus_free
from closeknit.lifecycle.booking.booked_placement import assumed, booked_share
from closeknit.lifecycle.failures.kept_shares import marked
from closeknit.lifecycle.failures.staying_pods import replacing
from closeknit.lifecycle.health.attempt_end import SWAPPED
from closeknit.lifecycle.status.conditions import is_true, moment, timestamp
from closeknit.lifecycle.status.pauses import CLOCK_SKEW, is_between, restart_at
from closeknit.lifecycle.verdict import Book, Hold, Refusal, Wait, WaitCause
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.replacement_nodes import NONE, Replacement, not_replaced
from closeknit.placement.values.placement import Placement, Share
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import count
from closeknit.scheduling.elastic.sizes import fewer, largest
from closeknit.scheduling.policy.gates import standing
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.policy.spares import (
    of_spares,
    only_on,
    unspared,
    with_labelled,
    with_spares,
    with_spares_of,
)
from closeknit.scheduling.queue.both_bookings import holding_both
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.reservation.patience import asked_again_at
from closeknit.scheduling.victims.borrowers import borrowers, to_recall
from closeknit.scheduling.victims.victim import Victim, going_with_their_jobs, gone, unbooked

# From a missed renewal of a Lease until it is known whether the node is dead (Quiet.SILENT less Quiet.OVERDUE, and a
# look at the Leases): nodes that died of one cause are found one after the other.
UNDECIDED_FOR = timedelta(seconds=10)
# As long as a node takes to boot again, and a job's patience is by its examples. The rest of a gang stands idle
# meanwhile, but given back it would have to be collected again.
HELD_FOR = timedelta(minutes=10)
# A clock that is put right goes back by this at most, as a rule: a hold then lasts longer by as much. Set back by more,
# it may have been wrong by any time.
_SET_BACK = timedelta(hours=1)


def replaced(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The verdict on a job that holds a part of its nodes, and has lost the others."""
    held = room.cluster.booking_of(case.key)
    if held is None or not (held.lost or _is_to_be_made(case, held)):
        return None
    if case.key in walk.memory.busy:  # nothing is done about it yet
        return Outcome(Hold(held.shares), is_settled=False) if held.lost else None
    job, now = case.job, walk.now
    own_free = with_own_gpus_free(job, case.pods, room.cluster)  # its Pods of before are no other holders
    shares = _marked(case, held, own_free, room, walk)
    if not any(share.lost for share in shares):
        return None
    ended = moment(job.status.attempts[-1].ended) if job.status.attempts else now
    news = [share for share, before in zip(shares, held.shares, strict=True) if share.lost and not before.lost]
    may_come_back = held.lost and all(_is_not_ready(share, room.cluster) for share in news)
    if news and not (may_come_back and _is_held(ended, now)):
        return Outcome(Hold(shares), is_settled=False)  # what that frees counts once it is stored
    as_it_is = held.shares if news else shares
    if (pause := _pause(case, ended, shares, as_it_is, room, now)) is not None:
        return pause
    away = avoided_nodes(job, room.cluster, now)
    asked = replace(
        walk.questions.request(case),
        gpus=held.gpus,
        avoided=away.nodes,
        spare_queues=frozenset(filter(None, (job.spec.queue,))),
    )
    if not walk.questions.take_selection(asked, case.place, room.cluster):
        return Outcome(Hold(as_it_is), is_settled=False)
    free = unspared(job, own_free)
    alone, without_it = free.without(away.devices), free.with_job(unbooked(job)).without(away.devices)
    why_whole = not_replaced(alone, asked, shares)
    found = NONE if why_whole else _found(asked, held, shares, alone, walk)
    if found.placement is not None:
        best = _past_lemons(found.placement, asked, shares, alone, walk)
        return _booked(_with_spares_again(job, best, asked, without_it, walk), job, room)
    until = ended + HELD_FOR
    taken = _taken(job, found.shares, shares)
    back = None if news else _called_back(case, asked, taken, until, room, walk, is_whole=why_whole is not None)
    if (other := back or _moved(job, asked, shares, without_it, room, walk)) is not None:
        return other
    if news:  # nobody else could use the node now, and it may be ready again in a moment
        return Outcome(Hold(as_it_is), until=until, is_settled=False)
    if (rest := _with_fewer(job, asked, without_it, walk)) is not None:
        both = room.cluster.with_job(holding_both(job, rest, held))
        return Outcome(Book(rest), is_settled=False, room=room.less(both))
    if all(share.lost for share in shares) or not _is_held(ended, now):
        return _given_back(shares)
    verdict = Hold(taken, f"{_words(taken, asked, why_whole)}; it holds the rest until {timestamp(until)}")
    if verdict.shares == held.shares:
        return Outcome(verdict, until=asked_again_at(until, away.until), is_settled=False, scene=room.scene)
    after = room.less(room.cluster.with_job(_holding(job, verdict.shares)))
    return Outcome(verdict, until=until, is_settled=False, room=after)


def _marked(case: Case, held: Booking, own_free: Cluster, room: Room, walk: Walk) -> tuple[BookingShare, ...]:
    """The shares, with those marked that are lost. What a job gets in this walk that others are to make room for is not
    lost before that is stored: it may never be."""
    found = marked(case.job, held.shares, own_free, walk.now)
    if room.cluster is walk.cluster or found == held.shares:
        return found
    stored = marked(case.job, held.shares, with_own_gpus_free(case.job, case.pods, walk.cluster), walk.now)
    return tuple(now if then.lost else before for before, now, then in zip(held.shares, found, stored, strict=True))


def _with_spares_again(
    job: TrainingJob, found: Placement, asked: Request, without_it: Cluster, walk: Walk
) -> Placement:
    """The placement with its spares: free nodes, and then those of before that are lent."""
    found = with_spares(job, found, asked, without_it, walk)
    there = borrowers(job, walk.cluster, walk.now) if len(found.spares) < job.spec.spares else ()
    held = walk.cluster.booking_of(job.key)
    if not there or held is None:
        return found
    free = without_it.after(tuple(each for victim in there for each in gone(without_it, victim.job)))
    return with_spares(job, found, of_spares(asked, held), free, walk)


def _called_back(
    case: Case,
    asked: Request,
    taken: tuple[BookingShare, ...],
    until: datetime,
    room: Room,
    walk: Walk,
    *,
    is_whole: bool,
) -> Outcome | None:
    """It holds what it has until those jobs have ended that its spare nodes are lent to; None where they would not do
    for all that is lost. `is_whole`: it is placed as a whole."""
    owner = _holding(case.job, taken)
    held, of_queue = booking(owner), _of_queue(asked, room.cluster)
    if held is None or not (held.spares or of_queue) or walk.now >= until:
        return None
    away = avoided_nodes(case.job, room.cluster, walk.now)
    own = with_own_gpus_free(case.job, case.pods, room.cluster)
    own = own.with_job(unbooked(owner)) if is_whole else unspared(owner, own.with_job(owner))
    kept = (share.node for share in (*held.spares, *held.shares) if not share.lost)
    only = with_labelled(only_on(asked, of_queue.union(kept)), room.cluster)
    near = asked if all(share.lost for share in taken) else _in_their_domain(asked, taken, own)
    tried = [each for each in (only, near) if is_whole and each is not None]
    if any(walk.questions.can_place(each, own.without(away.devices)) for each in tried):
        return None  # it goes there at once
    free = walk.preemptions.settled(own)
    free = free.after(tuple(going_with_their_jobs(free, walk.now)))  # who borrowed may have been deleted
    free = walk.preemptions.behind_owners(free)

    def without(some: Sequence[Victim]) -> Cluster:
        changes = (each for victim in some for each in gone(free, victim.job))
        return free.after(tuple(changes)).without(away.devices)

    def fits(some: Sequence[Victim]) -> bool:
        return walk.questions.can_place(only, without(some)) if is_whole else place(some) is not None

    def place(some: Sequence[Victim]) -> Placement | None:
        if is_whole:
            return walk.questions.placed(only, without(some))
        return walk.questions.replaced(only, taken, without(some)).placement

    there = borrowers(case.job, room.cluster, walk.now, of_queue)
    back = to_recall([each for each in there if each.key not in walk.preemptions.recalled], fits, place)
    if back is None:
        return None
    for each in back:
        walk.preemptions.recall(each.awaited, case.key)
    if (gets := place(back)) is not None:
        walk.preemptions.take_back(with_spares_of(assumed(case.job, gets), case.job))
    words = f"{_loss(taken)}; jobs that its spare nodes were lent to make room for it"
    after = room.less(room.cluster.with_job(owner))
    return Outcome(Hold(taken, words), until=until, is_settled=False, room=after)


def _moved(
    job: TrainingJob, asked: Request, shares: Sequence[BookingShare], without_it: Cluster, room: Room, walk: Walk
) -> Outcome | None:
    """The whole gang goes elsewhere, once it has given back what it does not need there; None where it does not fit."""
    whole = _whole(job, asked, shares, without_it, walk)
    if whole is None:
        return None
    left = _without_unused(shares, whole)
    return _booked(whole, job, room) if left == tuple(shares) else Outcome(Hold(left), is_settled=False)


def _given_back(shares: Sequence[BookingShare]) -> Outcome:
    """It holds nothing any more, once that is stored."""
    if not all(share.lost for share in shares):
        return Outcome(Hold(tuple(replace(share, lost=True) for share in shares)), is_settled=False)
    refusal = Refusal(
        WaitCause.NO_FIT,
        PendingReason.INSUFFICIENT_GPUS,
        "it lost nodes, and nothing took their place; it has given the rest back, and waits for room for all",
    )
    return Outcome(Wait(refusal), is_settled=False)


def _found(asked: Request, held: Booking, shares: Sequence[BookingShare], alone: Cluster, walk: Walk) -> Replacement:
    """What there is in place of the lost shares: the job's spares where these will do for all, or those of its queue
    with them."""
    of_queue = _of_queue(asked, alone)
    for there in (frozenset[str](), *([of_queue] if of_queue else [])):
        if held.spares or there:
            only = with_labelled(of_spares(asked, held, there), alone)
            found = walk.questions.replaced(only, shares, alone)
            if found.placement is not None:
                return found
    return walk.questions.replaced(asked, shares, alone)


def _of_queue(asked: Request, cluster: Cluster) -> frozenset[str]:
    """The spare nodes of the job's queue."""
    return frozenset[str]().union(*(cluster.queue_spares.get(queue, ()) for queue in asked.spare_queues))


def _past_lemons(
    found: Placement, asked: Request, shares: Sequence[BookingShare], alone: Cluster, walk: Walk
) -> Placement:
    """The gang with the fewest lemons in place of its lost nodes."""

    def ask(request: Request, cluster: Cluster) -> Placement | None:
        return walk.questions.replaced(request, shares, cluster).placement

    return walk.lemons.with_fewest(found, asked, alone, ask, [share.node for share in shares if not share.lost])


def _elsewhere(job: TrainingJob, asked: Request, cluster: Cluster, walk: Walk) -> Placement | None:
    """Where the whole gang would go."""
    found = walk.questions.placed(asked, cluster)
    if found is None:
        return None
    return with_spares(job, walk.lemons.with_fewest(found, asked, cluster, walk.questions.placed), asked, cluster, walk)


def _whole(
    job: TrainingJob, asked: Request, shares: Sequence[BookingShare], cluster: Cluster, walk: Walk
) -> Placement | None:
    """Where the whole gang would go: of one that NVLink may join, in the domain of its other nodes first; of one that
    has lost all of its nodes, on spare ones of its queue."""
    first = _in_their_domain(asked, shares, cluster)
    stored = job.status.placement
    if stored is not None and all(share.lost for share in shares) and (of_queue := _of_queue(asked, cluster)):
        first = only_on(asked, of_queue.union(share.node for share in spares(stored)))
    found = None if first is None else _elsewhere(job, first, cluster, walk)
    return found or _elsewhere(job, asked, cluster, walk)


def _in_their_domain(asked: Request, shares: Sequence[BookingShare], cluster: Cluster) -> Request | None:
    """The request for the nodes of the one NVLink domain where all nodes lie that are not lost; None where there is no
    such domain, or it does not matter."""
    if not Interconnect.of(cluster).has_channels(asked):
        return None
    level = cluster.levels.index(NVLINK_DOMAIN_LEVEL)
    kept = (cluster.nodes.get(share.node) for share in shares if not share.lost)
    domains = {None if view is None else view.domains[level] for view in kept}
    if len(domains) != 1 or None in domains:
        return None
    return only_on(asked, frozenset(name for name, view in cluster.nodes.items() if view.domains[level] in domains))


def _without_unused(shares: Sequence[BookingShare], whole: Placement) -> tuple[BookingShare, ...]:
    """The shares, of which those are lost that the gang does not need where it goes."""
    needed = {share.node: {*share.gpus} for share in whole.shares}
    return tuple(
        share
        if share.lost or (share.node in needed and needed[share.node].issuperset(share.gpus))
        else replace(share, lost=True)
        for share in shares
    )


def _with_fewer(job: TrainingJob, asked: Request, cluster: Cluster, walk: Walk) -> Placement | None:
    """Where an elastic job goes on with fewer GPUs than it has lost nodes of."""
    sizes = fewer(job.spec, asked.gpus)
    return largest(sizes, asked, lambda gpus: _elsewhere(job, replace(asked, gpus=gpus), cluster, walk), cluster)


def _booked(placement: Placement, job: TrainingJob, room: Room) -> Outcome:
    """It gets this: all that it holds already, and other nodes where it holds nothing."""
    booked = with_spares_of(assumed(job, placement), job)  # what it gives up others get once that is stored
    return Outcome(Book(placement), is_settled=False, room=room.less(room.cluster.with_job(booked)))


def _pause(
    case: Case,
    ended: datetime,
    shares: Sequence[BookingShare],
    as_it_is: tuple[BookingShare, ...],
    room: Room,
    now: datetime,
) -> Outcome | None:
    """The verdict while nothing is replaced; None where something may be."""
    if (ready := _ready_at(case.job, ended, shares, room.cluster, now)) is not None:
        return Outcome(Hold(as_it_is), until=ready, is_settled=False)
    refused = standing(case.job, case.answers, now)
    if refused is None:
        return None
    until = ended + HELD_FOR
    if not _is_held(ended, now):
        return _given_back(shares)
    words = f"{refused.message}; it holds {_kept(shares)} until {timestamp(until)}"
    return Outcome(Hold(as_it_is, words), until=min(refused.retry_at, until), is_settled=False)


def _ready_at(
    job: TrainingJob, ended: datetime, shares: Sequence[BookingShare], cluster: Cluster, now: datetime
) -> datetime | None:
    """Until when nothing is replaced: it may lose more nodes, or pauses as any job that ends again and again. None for
    now."""
    until = ended + UNDECIDED_FOR
    if _lasts(ended, now, until) and _is_another_overdue(shares, cluster):
        return until
    return restart_at(job.status, now)


def _lasts(ended: datetime, now: datetime, until: datetime) -> bool:
    """Whether a wait lasts that began with an end. Another replica may have written that, by a clock ahead of ours."""
    return is_between(ended - CLOCK_SKEW, now, until)


def _is_held(ended: datetime, now: datetime) -> bool:
    """Whether the rest of a gang stays booked to it, after an end."""
    return is_between(ended - CLOCK_SKEW - _SET_BACK, now, ended + HELD_FOR)


def _is_another_overdue(shares: Sequence[BookingShare], cluster: Cluster) -> bool:
    """Whether a node that is not lost yet has missed a sign of life."""
    views = (cluster.nodes.get(share.node) for share in shares if not share.lost)
    return any(view is not None and view.silence is not None for view in views)


def _is_not_ready(share: BookingShare, cluster: Cluster) -> bool:
    """Whether that is what keeps the job off the share's node, which is still there."""
    view = cluster.nodes.get(share.node)
    excluded = None if view is None or not view.is_there else view.exclusion
    return excluded is not None and excluded.reason is ExclusionReason.NOT_READY


def _is_to_be_made(case: Case, held: Booking) -> bool:
    """Whether it follows a loss of nodes, and none of its Pods exists yet."""
    ended = case.job.status.attempts[-1:]
    if is_true(case.job.status.conditions, ConditionType.RUNNING):
        return False  # all were there, and somebody has removed them
    is_after_loss = any(each.number == held.attempt - 1 and each.reason in SWAPPED for each in ended)
    return is_after_loss and not any(pod.attempt == held.attempt for pod in case.pods)


def _holding(job: TrainingJob, shares: Sequence[BookingShare]) -> TrainingJob:
    placement = job.status.placement
    assert placement is not None  # noqa: S101 - it has a booking, for the type checker
    status = job.status.model_copy(update={"placement": with_shares(placement, shares)})
    return job.model_copy(update={"status": status})


def _taken(job: TrainingJob, found: Mapping[int, Share], shares: Sequence[BookingShare]) -> tuple[BookingShare, ...]:
    """The shares with those that were found for some of the lost ones."""
    taken = [booked_share(found[at]) if at in found else share for at, share in enumerate(shares)]
    whole = _with_servers(taken, shares)
    stay = job.status.placement is not None and job.status.placement.swapping
    return tuple(map(replacing, shares, whole)) if stay else whole


def _with_servers(taken: Sequence[BookingShare], shares: Sequence[BookingShare]) -> tuple[BookingShare, ...]:
    """Servers go with the worker of their node."""
    new = {before.node: after for before, after in zip(shares, taken, strict=True) if before.server is None}
    return tuple(
        share if share.server is None else replace(share, node=new[share.node].node, lost=new[share.node].lost)
        for share in taken
    )


def _lost(shares: Sequence[BookingShare]) -> list[BookingShare]:
    return [share for share in shares if share.lost and share.server is None]


def _kept(shares: Sequence[BookingShare]) -> str:
    kept = sum(1 for share in shares if not share.lost and share.server is None)
    return f"{count(kept, 'node')} of {kept + len(_lost(shares))}"


def _loss(shares: Sequence[BookingShare]) -> str:
    return f"it lost {names([share.node for share in _lost(shares)])} and holds {_kept(shares)}"


def _words(shares: Sequence[BookingShare], asked: Request, why_whole: str | None) -> str:
    lost, holds = _lost(shares), _loss(shares)
    inside = f" inside its {asked.level}" if asked.level is not None else ""
    if why_whole is not None:
        return f"{holds}; it is placed as a whole, for {why_whole}, and there is no room for that now{inside}"
    sizes = sorted({len(share.gpus) for share in lost})
    gpus = " or ".join([*map(str, sizes[:-1]), count(sizes[-1], "free GPU")])
    return (
        f"{holds}; {count(len(lost), 'node')} more with {gpus} like its others would do{inside}, and there "
        f"{'is' if len(lost) == 1 else 'are'} none"
    )
