"""Other nodes for a job that has lost some of its own: the rest of them stays booked to it.

The rule, in one place. If all lost nodes can be replaced, they are, and the gang starts; else if the whole gang fits
anywhere, its own nodes counted as free, it goes there, for a gang that waits trains nothing; else it takes what it can
get now, holds that with the rest, and waits. HELD_FOR after the end it gives everything back, and waits as any other
job. What is lost before the first Pod of the next attempt is made is the same loss: several of them are one restart.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from closeknit.api.names import PendingReason
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.booking import Booking, BookingShare, names, with_shares
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.attempt.own_gpus import with_own_gpus_free
from closeknit.lifecycle.book import assumed, booked_share
from closeknit.lifecycle.health.ending import SWAPPED
from closeknit.lifecycle.status.conditions import moment, timestamp
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.swap.kept_shares import marked
from closeknit.lifecycle.verdict import Book, Hold, Refusal, Wait, WaitCause
from closeknit.placement.replacement import NONE, not_replaced
from closeknit.placement.values.request import NOBODY, Request, request
from closeknit.placement.values.sentences import count
from closeknit.scheduling.policy.walk import Walk
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room

# As long as a node takes to boot again, and a job's patience is by its examples. The rest of a gang stands idle
# meanwhile, but given back it would have to be collected again.
HELD_FOR = timedelta(minutes=10)


def replaced(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The verdict on a job that holds a part of its nodes, and has lost the others."""
    held = room.cluster.booking_of(case.key)
    if held is None or not (held.lost or _is_to_be_made(case, held)):
        return None
    if case.key in walk.memory.busy:  # nothing is done about it yet
        return Outcome(Hold(held.shares), is_settled=False) if held.lost else None
    job, now = case.job, walk.now
    shares = marked(job, held.shares, room.cluster, now)
    if not any(share.lost for share in shares):
        return None
    ended = moment(job.status.attempts[-1].ended) if job.status.attempts else now
    away = avoided_nodes(job, room.cluster, now)
    asked = replace(request(NOBODY, job.spec, case.volumes.required), avoided=away.nodes)
    if not walk.questions.take_selection(asked, case.place, room.cluster):
        return _hold(Hold(shares), case, held, room, until=None)
    alone = with_own_gpus_free(job, case.pods, room.cluster).without(away.devices)
    found = NONE if not_replaced(alone, asked, shares) else walk.questions.replaced(asked, shares, alone)
    if found.placement is not None:
        cluster = room.cluster.with_job(assumed(job, found.placement))
        return Outcome(Book(found.placement), is_settled=False, room=_after(room, cluster, held, shares))
    without = _unbooked(job)
    free = room.cluster.with_job(without)
    whole = walk.questions.placed(asked, alone.with_job(without))
    if whole is not None:
        return Outcome(Book(whole), is_settled=False, room=room.more(free.with_job(assumed(without, whole))))
    until = ended + HELD_FOR
    if not is_between(ended, now, until) or all(share.lost for share in shares):
        lost = names([share.node for share in shares if share.lost and share.server is None])
        words = f"it lost {lost}, and nothing took that place; it has given the rest back, and waits for room for all"
        return Outcome(
            Wait(Refusal(WaitCause.NO_FIT, PendingReason.INSUFFICIENT_GPUS, words)),
            is_settled=False,
            room=room.more(free),
        )
    taken = tuple(
        booked_share(found.shares[position]) if position in found.shares else share
        for position, share in enumerate(shares)
    )
    words = f"{_words(taken, asked)}; it holds the rest until {timestamp(until)}"
    return _hold(Hold(_with_servers(taken, shares), words), case, held, room, until=until)


def _is_to_be_made(case: Case, held: Booking) -> bool:
    """Whether it follows a loss of nodes, and none of its Pods exists yet."""
    ended = case.job.status.attempts[-1:]
    is_after_loss = any(each.number == held.attempt - 1 and each.reason in SWAPPED for each in ended)
    return is_after_loss and not any(pod.attempt == held.attempt for pod in case.pods)


def _hold(verdict: Hold, case: Case, held: Booking, room: Room, *, until: datetime | None) -> Outcome:
    if verdict.shares == held.shares:
        return Outcome(verdict, until=until, is_settled=False)
    cluster = room.cluster.with_job(_holding(case.job, verdict.shares))
    return Outcome(verdict, until=until, is_settled=False, room=_after(room, cluster, held, verdict.shares))


def _after(room: Room, cluster: Cluster, held: Booking, shares: Sequence[BookingShare]) -> Room:
    """The room after a verdict that takes in place of lost nodes. Where more are lost than is stored, it frees, too."""
    is_more = any(now.lost and not before.lost for before, now in zip(held.shares, shares, strict=True))
    return room.more(cluster) if is_more else room.less(cluster)


def _holding(job: TrainingJob, shares: Sequence[BookingShare]) -> TrainingJob:
    placement = job.status.placement
    assert placement is not None  # noqa: S101 - it has a booking, for the type checker
    status = job.status.model_copy(update={"placement": with_shares(placement, shares)})
    return job.model_copy(update={"status": status})


def _unbooked(job: TrainingJob) -> TrainingJob:
    return job.model_copy(update={"status": job.status.model_copy(update={"placement": None})})


def _with_servers(taken: Sequence[BookingShare], shares: Sequence[BookingShare]) -> tuple[BookingShare, ...]:
    """Servers go with the worker of their node."""
    new = {before.node: after for before, after in zip(shares, taken, strict=True) if before.server is None}
    return tuple(
        share if share.server is None else replace(share, node=new[share.node].node, lost=new[share.node].lost)
        for share in taken
    )


def _words(shares: Sequence[BookingShare], asked: Request) -> str:
    lost = [share for share in shares if share.lost and share.server is None]
    kept = sum(1 for share in shares if not share.lost and share.server is None)
    gpus = len(lost[0].gpus)
    inside = f" inside its {asked.level}" if asked.level is not None else ""
    return (
        f"it lost {names([share.node for share in lost])} and holds {count(kept, 'node')} of {kept + len(lost)}; "
        f"{count(len(lost), 'node')} more with {count(gpus, 'free GPU')} like its others would do{inside}, and there "
        f"{'is' if len(lost) == 1 else 'are'} none"
    )
