"""The verdict on a job that makes room for another, once it is stored for whom: it ends, shrinks or moves.

What is stored of a job whose spare nodes are lent is that it has lost nodes: that is enough to end those on them.
"""

from dataclasses import replace
from datetime import timedelta

from closeknit.api.names import JobKey
from closeknit.cluster.booking.booking import AwaitedAttempt, Booking
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.attempt.avoided_nodes import avoided_nodes
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.verdict import Evict, Relocate, Shrink
from closeknit.lifecycle.writes.answers import NOTHING
from closeknit.placement.values.request import NOBODY, request
from closeknit.scheduling.elastic.sizes import fewer
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.preemption.elsewhere import elsewhere
from closeknit.scheduling.preemption.surplus import smaller
from closeknit.scheduling.queue.both_bookings import holding_both
from closeknit.scheduling.queue.entries import Case, Outcome
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.victims.move_limit import may_move
from closeknit.scheduling.victims.victim import gone, unbooked

# One that is to move does so in the next decision. Whose place is gone by then stays, and nobody waits for it.
MOVES_WITHIN = timedelta(minutes=1)


def evicted(case: Case, room: Room, walk: Walk) -> Outcome | None:
    """The end of a job that makes room, once that is stored for whom, and while that one still waits for it."""
    told = walk.preemptions.by_victim.get(case.key)
    held = room.cluster.booking_of(case.key)
    if told is None or held is None or case.key in walk.memory.busy:  # nothing is done about it yet
        return None
    by, awaited = told
    if (held.uid, held.attempt) != (awaited.uid, awaited.attempt):
        return None
    is_recalled = case.key in walk.preemptions.recalled
    is_awaited = is_recalled or _is_awaited(awaited, by, room.cluster)
    is_needless = by in walk.preemptions.ends_nobody and not (awaited.moves or is_recalled)
    if not is_awaited or is_needless or not goes(awaited, by, room.cluster, walk):
        return None
    without = room.cluster.after(tuple(gone(room.cluster, case.job)))
    if awaited.moves:
        return _moved(case, held, by, room, without, walk)
    refused = case.answers.refused_change
    is_whole = refused is not None and refused.is_shrinking and refused.stands(case.job.metadata.generation, walk.now)
    found = None if is_whole else smaller(case.job, fewer(case.job.spec, held.gpus), without, walk)
    if found is None:
        return Outcome(Evict(held, by, is_recalled=is_recalled), is_settled=False)
    both = room.cluster.with_job(holding_both(case.job, found, held))
    return Outcome(Shrink(held, found, by), is_settled=False, room=room.less(both))


def _moved(case: Case, held: Booking, by: JobKey, room: Room, without: Cluster, walk: Walk) -> Outcome | None:
    """Its move to where it goes on with as many GPUs; None where its place is gone, or the gang needs it no more: it
    stays."""
    gang, waiting = room.cluster.jobs[by], room.cluster.booking_of(by)
    if waiting is None or gang.spec.suspend or gang.metadata.deletion_timestamp is not None:
        return None
    away = avoided_nodes(gang, room.cluster, walk.now)
    volumes = room.cluster.volumes_of(gang).required
    asked = replace(request(NOBODY, gang.spec, volumes), gpus=waiting.gpus, avoided=away.nodes)
    settled = walk.preemptions.settled(room.cluster.with_job(unbooked(gang)))
    found = elsewhere(case.job, held, without, walk)
    if found is None or walk.questions.can_place(asked, settled.without(away.devices)):
        return None
    both = room.cluster.with_job(holding_both(case.job, found, held))
    walk.moves.moving.add(case.key)
    return Outcome(Relocate(held, found, by, waiting.gpus), is_settled=False, room=room.less(both))


def goes(each: AwaitedAttempt, by: JobKey, cluster: Cluster, walk: Walk) -> bool:
    """Whether one that has not gone yet still will: by its lower priority, or because it still may move. For a job that
    Kueue does not admit nobody goes."""
    if each.job not in cluster.jobs or not cluster.kueue.lets_hold(cluster.jobs[by]):
        return False
    if not each.moves:
        return _may_end(each.job, by, cluster)
    job, gang, held = walk.cluster.jobs[each.job], cluster.jobs[by], walk.cluster.booking_of(each.job)
    if held is None or cluster.priority(job) > cluster.priority(gang):
        return False
    pending, answers = walk.cluster.jobs[by].status.pending, walk.memory.answers.get(each.uid, NOTHING)
    since = None if pending is None else moment(pending.since)
    is_late = since is None or not is_between(since, walk.now, since + MOVES_WITHIN)
    return not is_late and may_move(job, held, answers, walk.cluster, walk.now)


def _is_awaited(awaited: AwaitedAttempt, by: JobKey, cluster: Cluster) -> bool:
    """Whether the other job still waits for this after its own verdict of this walk."""
    return awaited in cluster.awaiting.get(by, ())


def _may_end(victim: JobKey, by: JobKey, cluster: Cluster) -> bool:
    """Whether the one still has a lower priority than the other: classes may have come and gone."""
    job, other = cluster.jobs[victim], cluster.jobs[by]
    return cluster.may_preempt(other) and cluster.priority(job) < cluster.priority(other)
