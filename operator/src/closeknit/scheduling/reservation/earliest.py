"""The earliest moment at which a gang fits: placement on the cluster as it will be, asked a bounded number of times."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from closeknit.api.names import JobKey
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.difference import difference
from closeknit.cluster.store.watched_kinds import ObjectChange, change
from closeknit.lifecycle.attempt.own_gpus import own_pods_gone
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request

# Shares of nodes that one search takes from their holders: a tenth of a millisecond each, measured on 600 nodes, and
# most searches take little more than those of the jobs that have to end.
MOST_RELEASED = 1024
FEW = 8  # changed objects, less than a millisecond: they are followed also where few shares are to be released


@dataclass(frozen=True, slots=True, eq=False)
class EarliestFit:
    """Where a gang fits once these jobs have ended, and not before."""

    ended: tuple[JobKey, ...]
    """In the order of their ends."""
    placement: Placement
    cluster: Cluster
    """The cluster without them."""
    present: Cluster
    """The cluster with them."""


def earliest_fit(
    cluster: Cluster, asked: Request, ends: Sequence[Sequence[JobKey]], tables: Tables, known: EarliestFit | None = None
) -> EarliestFit | None:
    """The shortest beginning of `ends`, which are jobs that end at the same moment each, soonest first, after which the
    gang fits; None without any, or where the search ends at its bound first.

    A job that fits once some have ended also fits once more have, so that a few questions find the boundary: after one
    end, two, four and so on, and then between the last two. First of all around the ends of `known`, the answer of a
    moment ago: most often it is the same. (A device plugin whose choice is not known may break that rule: the answer
    then fits all the same, and may not be the earliest.)
    """
    futures = _Futures(cluster, ends, known)

    def fits(moments: int) -> bool:
        return can_place(futures.after(moments), asked, tables)

    misses = futures.with_fewer_than(asked.gpus) if asked.takes_free_gpus else 0
    guess = 0 if known is None else _as_far_as(known.ended, ends)
    if misses < guess - 1 and futures.affords(guess):
        if fits(guess - 1):
            ends = ends[: guess - 1]
        else:
            misses = guess - 1
    hit, step = misses + 1, 1
    while True:
        hit = min(hit, len(ends))
        if hit <= misses or not futures.affords(hit):
            return None
        if fits(hit):
            break
        misses, hit, step = hit, hit + step, 2 * step
    while hit - misses > 1:
        middle = (misses + hit) // 2
        misses, hit = (misses, middle) if fits(middle) else (middle, hit)
    future = futures.after(hit)
    found = place(future, asked, tables)
    if not isinstance(found, Placement):
        return None
    return EarliestFit(tuple(job for jobs in ends[:hit] for job in jobs), found, future, cluster)


def _as_far_as(ended: Iterable[JobKey], ends: Sequence[Sequence[JobKey]]) -> int:
    """How many of the moments have come once no more than these jobs have ended."""
    over = frozenset(ended)
    return next((moments for moments, jobs in enumerate(ends) if not over.issuperset(jobs)), len(ends))


def released(cluster: Cluster, jobs: Iterable[JobKey], present: Cluster | None = None) -> Cluster:
    """The cluster without the bookings, Pods and claims of these jobs, as they are in `present`; by default in it."""
    changes: list[ObjectChange] = []
    present = present or cluster
    for key in jobs:
        job = present.jobs[key]
        if job.status.placement is not None:
            status = job.status.model_copy(update={"placement": None})
            changes.append(change(job.model_copy(update={"status": status})))
        changes += own_pods_gone(job, present.pods_of(key), present)
    return cluster.after(changes)


def released_like(
    known: Cluster, before: Cluster, ended: Collection[JobKey], cluster: Cluster, jobs: Collection[JobKey]
) -> Cluster | None:
    """`released`, made of `known`, which is an earlier version `before` without the jobs that `ended`; None where that
    is no less work: a change costs what the release of a share does.

    What has changed since is followed, a quarter of the work or less (docs/decisions/0006). Jobs with another object,
    Pods or claims than then are taken from now and released again, and so are those with Pods on nodes that have
    changed: whether such a Pod counts rests on its node.
    """
    nodes = difference(before.nodes, cluster.nodes)
    moved = frozenset([*nodes.stored, *nodes.gone])
    again = [
        job
        for job in ended
        if job not in jobs
        or before.jobs.get(job) is not cluster.jobs.get(job)
        or before.pods_of(job) is not cluster.pods_of(job)
        or before.claims_of(job) is not cluster.claims_of(job)
        or any(pod.place in moved for pod in cluster.pods_of(job))
    ]
    held = (cluster.booking_of(job) for job in jobs)
    shares = sum(1 if booking is None else len(booking.shares) for booking in held)
    found = known.following(before, cluster, again, at_most=max(shares, FEW))
    return found and released(found, [job for job in jobs if job not in ended or job in again], cluster)


class _Futures:
    """The cluster after the first of some ends, made out of one that is known already."""

    def __init__(self, cluster: Cluster, ends: Sequence[Sequence[JobKey]], last: EarliestFit | None) -> None:
        self._ends = ends
        self._known = {0: cluster}
        self._last = last
        self._left = MOST_RELEASED

    def with_fewer_than(self, gpus: int) -> int:
        """The number of moments after which fewer GPUs are free in all, so that nobody need ask whether these fit."""
        cluster = self._known[0]
        free = cluster.forest.free_gpus
        for moments, jobs in enumerate(self._ends):
            if free >= gpus:
                return max(0, moments - 1)
            free += sum(self._gpus(job) for job in jobs)
        return len(self._ends) - 1 if free >= gpus else len(self._ends)

    def affords(self, moments: int) -> bool:
        """Whether the bound allows the way there."""
        begins = max(each for each in self._known if each <= moments)
        return self._weight(begins, moments) <= self._left

    def after(self, moments: int) -> Cluster:
        if (known := self._known.get(moments)) is not None:
            return known
        begins = max(each for each in self._known if each <= moments)
        self._left -= self._weight(begins, moments)
        jobs = [job for each in self._ends[begins:moments] for job in each]
        found = None if begins else self._as_before(jobs)
        self._known[moments] = found = found or released(self._known[begins], jobs)
        return found

    def _as_before(self, jobs: Collection[JobKey]) -> Cluster | None:
        """The cluster without these jobs, made out of the last answer's."""
        last, there = self._last, frozenset(jobs)
        if last is None or 2 * len(there.symmetric_difference(last.ended)) > len(there):
            return None  # most of it is something else
        return released_like(last.cluster, last.present, frozenset(last.ended), self._known[0], there)

    def _gpus(self, job: JobKey) -> int:
        """How many a job leaves at most."""
        cluster = self._known[0]
        booking = cluster.booking_of(job)
        if booking is None:  # what its Pods hold is not counted here
            return sum(
                len(cluster.nodes[pod.place].holders) for pod in cluster.pods_of(job) if pod.place in cluster.nodes
            )
        return sum(len(share.gpus) for share in (*booking.shares, *booking.spares))

    def _weight(self, begins: int, moments: int) -> int:
        cluster = self._known[0]
        jobs = (job for each in self._ends[begins:moments] for job in each)
        held = (cluster.booking_of(job) for job in jobs)
        return sum(1 if booking is None else len(booking.shares) for booking in held)
