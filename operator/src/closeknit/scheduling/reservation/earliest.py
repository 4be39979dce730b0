"""The earliest moment at which a gang fits: placement on the cluster as it will be, asked a bounded number of times."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from closeknit.api.names import HOST_LEVEL, JobKey
from closeknit.cluster.cluster import Cluster, ClusterChanges
from closeknit.cluster.store.watched_kinds import ObjectChange, change
from closeknit.lifecycle.attempt.own_gpus import own_pods_gone
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request

# Shares of nodes that one search takes from their holders: a tenth of a millisecond each, measured on 600 nodes, and
# most searches take little more than those of the jobs that have to end.
MOST_RELEASED = 1024
# Releases of shares below which nothing is followed: as many take a millisecond, and to compare two versions of a
# cluster of 5,000 nodes takes one to three.
COMPARISON = 10


@dataclass(frozen=True, slots=True, eq=False)
class Future:
    """The cluster once some jobs have ended."""

    ended: frozenset[JobKey]
    cluster: Cluster


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
    futures: tuple[Future, ...]
    """Where it fits, and a moment before that, where this had to be asked: what the next search asks first."""


def earliest_fit(
    cluster: Cluster, asked: Request, ends: Sequence[Sequence[JobKey]], tables: Tables, known: EarliestFit | None = None
) -> EarliestFit | None:
    """The shortest beginning of `ends`, which are jobs that end at the same moment each, soonest first, after which the
    gang fits; None without any, or where the search ends at its bound first.

    A job that fits once some have ended also fits once more have, so that a few questions find the boundary: after one
    end, two, four and so on, and then between the last two. First of all around the ends of `known`, the answer of a
    moment ago, and back from there: most often it is the same, or near. (A device plugin whose choice is not known may
    break that rule: the answer then fits all the same, and may not be the earliest.)
    """
    futures = _Futures(cluster, ends, known)

    @cache
    def fits(moments: int) -> bool:
        return can_place(futures.after(moments), asked, tables)

    misses = futures.with_too_few_gpus(asked) if asked.takes_free_gpus else 0
    near, step = (0 if known is None else _most_like(known.ended, ends) - 1), 1
    while misses < near and futures.has_near(near):
        if not fits(near):
            misses = near
            break
        ends = ends[:near]
        near, step = near - step, 2 * step
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
    ended = tuple(job for jobs in ends[:hit] for job in jobs)
    return EarliestFit(ended, found, future, cluster, futures.around(hit))


def _most_like(ended: Collection[JobKey], ends: Sequence[Sequence[JobKey]]) -> int:
    """The number of moments after which the jobs that have ended differ least from these; the later of two."""
    over, left = frozenset(ended), len(ended)
    apart = least = likest = 0
    for moments, jobs in enumerate(ends, 1):
        both = sum(job in over for job in jobs)
        apart, left = apart + len(jobs) - 2 * both, left - both
        if apart <= least:
            least, likest = apart, moments
        elif apart - left > least:
            break  # nor is any later one as near
    return likest


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


def released_like(known: Future, changes: ClusterChanges, jobs: Collection[JobKey], *, at_most: int) -> Cluster | None:
    """`released` as it is now, made of `known`, a future of the version before; None where more than `at_most` nodes
    have changed since: each costs what the release of a share does.

    What has changed since is followed, a quarter of the work or less (docs/decisions/0006). Jobs with another object,
    booking, Pods or claims than then are taken from now and released again, and so are those with Pods on nodes that
    have changed: whether such a Pod counts rests on its node.
    """
    before, now = changes.before, changes.now
    again = [
        job
        for job in known.ended
        if job not in jobs
        or before.jobs.get(job) is not now.jobs.get(job)
        or before.booking_of(job) is not now.booking_of(job)
        or before.pods_of(job) is not now.pods_of(job)
        or before.claims_of(job) is not now.claims_of(job)
        or any(pod.place in changes.nodes for pod in now.pods_of(job))
    ]
    found = known.cluster.following(changes, again, at_most=at_most)
    return found and released(found, [job for job in jobs if job not in known.ended or job in again], now)


def _domain(cluster: Cluster, node: str, level: str) -> str:
    """The node's domain of a level, as `Forest.free_gpus_in` has it."""
    view = cluster.nodes.get(node)
    found = None if view is None or level == HOST_LEVEL else view.domains[cluster.levels.index(level)]
    return node if found is None else found


class _Futures:
    """The cluster after the first of some ends, made out of the nearest one that is known already."""

    def __init__(self, cluster: Cluster, ends: Sequence[Sequence[JobKey]], last: EarliestFit | None) -> None:
        self._ends = ends
        self._known = {0: cluster}
        self._last = () if last is None else last.futures
        self._present_then = None if last is None else last.present
        self._changes: ClusterChanges | None = None
        self._has_guessed = False
        self._left = MOST_RELEASED

    def with_too_few_gpus(self, asked: Request) -> int:
        """The number of moments after which each domain of the level that it has to lie in, or the whole cluster, has
        fewer free GPUs than these, so that nobody need ask whether they fit."""
        cluster, level = self._known[0], asked.level
        if level is not None and level not in cluster.levels:
            return len(self._ends)
        free = {"": cluster.forest.free_gpus} if level is None else cluster.forest.free_gpus_in(level)
        if max(free.values(), default=0) >= asked.gpus:
            return 0
        for moments, jobs in enumerate(self._ends):
            for node, gpus in (left for job in jobs for left in self._leaves(job)):
                domain = "" if level is None else _domain(cluster, node, level)
                free[domain] = free.get(domain, 0) + gpus
                if free[domain] >= asked.gpus:
                    return moments
        return len(self._ends)

    def affords(self, moments: int) -> bool:
        """Whether the bound allows the way there."""
        return self._weight(self._between(self._nearest(moments), moments)) <= self._left

    def has_near(self, moments: int) -> bool:
        """Whether the cluster then is known, or is by now: made out of one of the last answer's, or, once, of nothing.
        Neither counts by the bound: a search with a last answer asks all that it asks without."""
        if self.follows(moments):
            return True
        jobs = self._between(0, moments)
        if self._has_guessed or self._weight(jobs) > MOST_RELEASED:
            return False
        self._has_guessed = True
        self._known[moments] = released(self._known[0], jobs)
        return True

    def follows(self, moments: int) -> bool:
        """Whether the cluster then is known, or is by now, made out of one of the last answer's."""
        if moments not in self._known:
            found = self._as_before(moments)
            if found is None:
                return False
            self._known[moments] = found
        return True

    def after(self, moments: int) -> Cluster:
        """The cluster then."""
        if not self.follows(moments):
            begins = self._nearest(moments)
            jobs = self._between(begins, moments)
            self._left -= self._weight(jobs)
            self._known[moments] = released(self._known[begins], jobs)
        return self._known[moments]

    def around(self, moments: int) -> tuple[Future, ...]:
        """What is known of this moment and of the one before it."""
        asked = [each for each in (moments - 1, moments) if each > 0 and each in self._known]
        return tuple(Future(frozenset(self._between(0, each)), self._known[each]) for each in asked)

    def _as_before(self, moments: int) -> Cluster | None:
        """The cluster then, made out of one of the last answer's; None where that is no less work than a release."""
        if not self._last or self._present_then is None:
            return None
        jobs = frozenset(self._between(0, moments))
        other = {each: self._weight(jobs ^ each.ended) for each in self._last}
        nearest = min(self._last, key=other.__getitem__)
        weight = min(self._weight(self._between(self._nearest(moments), moments)), MOST_RELEASED)
        if 2 * other[nearest] + COMPARISON > weight:
            return None  # most of it is something else
        if self._changes is None:
            self._changes = self._known[0].since(self._present_then)
        found = released_like(nearest, self._changes, jobs, at_most=weight // 2)
        if found is None:
            self._last = ()  # too much has changed since
        return found

    def _nearest(self, moments: int) -> int:
        return max(each for each in self._known if each <= moments)

    def _between(self, begins: int, ends: int) -> list[JobKey]:
        """The jobs that end after the one moment, until the other."""
        return [job for jobs in self._ends[begins:ends] for job in jobs]

    def _leaves(self, job: JobKey) -> Iterator[tuple[str, int]]:
        """The nodes of a job, and how many GPUs it leaves there at most."""
        cluster = self._known[0]
        booking = cluster.booking_of(job)
        booked: dict[str, set[int]] = {}
        for share in (*booking.shares, *booking.spares) if booking else ():
            booked.setdefault(share.node, set()).update(share.gpus)
        pools = (pool for claim in cluster.claims_of(job) for pool, _ in claim.devices)
        for node in {*booked, *(pod.place for pod in cluster.pods_of(job)), *pools}:
            view, gpus = cluster.nodes.get(node), booked.get(node, set())
            if view is not None and len(view.holders) > len(gpus):  # its Pods may hold others than it has booked
                gpus.update(gpu for gpu, holder in view.holders.items() if holder.may_be_of(job))
            yield node, len(gpus)

    def _weight(self, jobs: Iterable[JobKey]) -> int:
        """The shares that these jobs hold, or as many as one each."""
        held = (self._known[0].booking_of(job) for job in jobs)
        return sum(1 if booking is None else len(booking.shares) for booking in held)
