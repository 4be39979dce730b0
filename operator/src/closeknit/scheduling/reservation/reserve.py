"""For whom room is kept, by which ends, and what the reservation says.

The first job in queue order that does not fit gets a reservation: the earliest moment at which it fits, and where, by
the ends that running jobs declare, with time for what declarations are off by. A job for which no moment can be said is
passed by all, until it has waited long: then room is kept for it where the fewest jobs have to end, those that began
first before others. So it is, too, where a moment was said for a job that has waited long, and one that passed it runs
much longer than it declared: nobody who comes later moves that room.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.conditions import moment
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.verdict import Refusal, Reservation, WaitCause
from closeknit.scheduling.reservation.earliest import EarliestFit
from closeknit.scheduling.reservation.expected_ends import EndTerms, ExpectedEnd, JobTerms, begun, silent_jobs

# A day's queue is usual where GPUs are short, and half a day is worth idle GPUs to a gang that small jobs pass: from
# then on it waits as long as the jobs on its GPUs run, and no longer.
AGED = timedelta(hours=12)


def waits_for_room(refusal: Refusal) -> bool:
    """Whether a job is refused for want of room, and not of patience."""
    return refusal.cause is WaitCause.NO_FIT and traits(refusal.reason).is_for_room and not refusal.ends


def waits_for_room_or_turn(refusal: Refusal) -> bool:
    """Whether a job is refused for want of room, now or because of the room that is kept for a job before it."""
    return refusal.reason is PendingReason.BEHIND_RESERVATION or waits_for_room(refusal)


def aged_at(job: TrainingJob) -> datetime | None:
    """When a job will have waited long; None where it is not known since when it waits."""
    pending = job.status.pending
    return None if pending is None else moment(pending.queued_since or pending.since) + AGED


def ends_that_count(
    job: TrainingJob,
    cluster: Cluster,
    ends: tuple[ExpectedEnd, ...],
    terms: JobTerms,
    now: datetime,
    *,
    waits: timedelta = timedelta(),
) -> tuple[ExpectedEnd, ...]:
    """The ends by which room is searched for a job. Declarations count for nothing for one that has waited long, where
    a job that got its GPUs meanwhile runs longer than is allowed for: such ends move its room to and fro between
    domains, so that it comes free in none. What the job was told before stays while it may hold: it starts that long
    after its room is free (`waits`)."""
    aged = aged_at(job)
    if aged is not None and aged <= now:
        wrong = (end for end in ends if end.is_late and _is_wrong(terms.by_job[end.job], now))
        is_misled = any(begun(cluster.jobs[end.job], now) >= aged - AGED for end in wrong)
        ends = tuple(end for end in ends if terms.by_job[end.job].is_forced(end)) if is_misled else ends
    told = job.status.pending.estimated_start if job.status.pending is not None else None
    return ends if told is None else _as_told(ends, moment(told) - waits)


def ends_may_change_at(ends: Sequence[ExpectedEnd], terms: JobTerms, now: datetime) -> Iterator[datetime]:
    """The moments after now at which these are others, or count no more, though nothing has changed."""
    for end in ends:
        yield end.soonest
        allowed = terms.by_job[end.job].allowed_until if end.is_late else None
        if allowed is not None and allowed > now:
            yield allowed


def _is_wrong(terms: EndTerms, now: datetime) -> bool:
    return terms.allowed_until is not None and terms.allowed_until <= now


def _as_told(ends: tuple[ExpectedEnd, ...], told: datetime) -> tuple[ExpectedEnd, ...]:
    """The ends with those until `told` that are declared until then: what a job was told stays while it may hold."""
    if not any(end.soonest <= told < end.at for end in ends):
        return ends
    return tuple(sorted(end._replace(at=told) if end.soonest <= told < end.at else end for end in ends))


def in_turn(
    cluster: Cluster, ends: Sequence[ExpectedEnd], now: datetime, *, is_aged: bool
) -> Sequence[Sequence[JobKey]]:
    """The jobs whose GPUs are taken for free one moment after the other: for a job that has waited long, also those
    that do not say when they end."""
    order: list[Sequence[JobKey]] = [[end.job for end in same] for _, same in groupby(ends, attrgetter("at"))]
    if is_aged:
        order += [[job] for job in silent_jobs(cluster, now, tuple(ends))]
    return order


def reservation_of(job: TrainingJob, cluster: Cluster, ends: Sequence[ExpectedEnd], found: EarliestFit) -> Reservation:
    """The reservation of a job that fits once some in `cluster` have ended."""
    over = frozenset(found.ended)
    by_job = {end.job: end for end in ends[: len(over)]}  # they end first
    nodes = {share.node for share in found.placement.shares}
    awaits = tuple(each for each in found.ended if _is_on(each, nodes, cluster)) or found.ended[-1:]
    late = tuple(each for each in awaits if each in by_job and by_job[each].is_late)
    dated = [by_job[each] for each in found.ended if each in by_job]
    if len(dated) < len(found.ended):
        return Reservation(job.key, None, None, found.placement, awaits, late, over)
    at, soonest = max(end.at for end in dated), max(end.soonest for end in dated)
    return Reservation(job.key, minute_after(at), minute_after(soonest), found.placement, awaits, late, over)


def outlasts_trial(last: EarliestFit, cluster: Cluster, starts: datetime | None, otherwise: datetime | None) -> bool:
    """Whether room that was found before stays the job's while another job has GPUs on trial in `cluster`, which the
    API server is likely to refuse: its nodes are fit, the jobs that it awaits are there, and it `starts` no later than
    what is found beside the trial. (None: nothing says when.) Else what is told would come and go with each try."""
    views = (cluster.nodes.get(share.node) for share in last.placement.shares)
    if not all(view is not None and view.exclusion is None for view in views):
        return False
    if not all(ended in cluster.jobs for ended in last.ended):
        return False
    return otherwise is None or (starts is not None and starts <= otherwise)


def minute_after(at: datetime) -> datetime:
    """The first full minute from then on."""
    whole = at.astimezone(UTC).replace(second=0, microsecond=0)
    return whole if whole == at else whole + timedelta(minutes=1)


def _is_on(job: JobKey, nodes: set[str], cluster: Cluster) -> bool:
    """Whether a job holds something of these nodes, by its booking or by Pods that are left."""
    booking = cluster.booking_of(job)
    if booking is not None:
        return any(share.node in nodes for share in (*booking.shares, *booking.spares))
    return any(pod.place in nodes for pod in cluster.pods_of(job) if pod.is_live)
