"""What the policies of preemption share on one walk over the queue."""

from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from closeknit.api.names import JobKey
from closeknit.cluster.booking.booking import AwaitedAttempt
from closeknit.cluster.cluster import Cluster
from closeknit.placement.values.request import Request
from closeknit.scheduling.queue.entries import (
    GpuHolder,
    Holders,
    JobQueue,
    QueuePlace,
    RequestShape,
    Schedule,
    is_same_order,
)
from closeknit.scheduling.victims.victim import going, leaving

# Searches of one decision look at so many nodes in all, and at least one is for the first job that could have victims.
# One more is in turn, so that no job without luck keeps those behind it from theirs.
NODES_PER_DECISION = 256
TURN_SEARCHES = 1


class LentSpares(NamedTuple):
    """What is lent in one cluster."""

    owners: tuple[JobKey, ...]
    cluster: Cluster
    without: Cluster
    """The cluster without the spares of these."""


class Preemptions:
    """Who makes room for whom, and what is known of who could."""

    def __init__(self, queue: JobQueue, last: Schedule, now: datetime, *, are_bounded: bool) -> None:
        cluster = queue.cluster
        self.holders = _holders(queue, last)
        """Who could make room, and for whom; None where all jobs have one priority."""
        self.is_short = False
        """Whether a job was not looked at for want of searches."""
        self._cluster = cluster
        self._now = now
        self._began_after = last.preempted_to
        self._came_to: QueuePlace | None = None
        self._head = max(1, NODES_PER_DECISION // max(1, len(cluster.nodes))) if are_bounded else None
        self._turn = TURN_SEARCHES
        self._vain: dict[tuple[Request, int], Cluster] = {}
        self._lenders: dict[int, tuple[JobKey, ...]] = {}
        self._lent_in_vain: dict[tuple[RequestShape, tuple[JobKey, ...]], Cluster] = {}
        self.lent: LentSpares | None = None
        """The last that was asked for."""
        self.recalled: set[JobKey] = set()
        """Jobs that end on this walk because the spare nodes that were lent to them are needed."""

    @property
    def came_to(self) -> QueuePlace | None:
        """The last job with a search in turn, where the queue goes on after it."""
        return self._came_to if self.is_short else None

    @cached_property
    def by_victim(self) -> dict[JobKey, tuple[JobKey, AwaitedAttempt]]:
        """Who makes room, and for whom: as it is stored, and of spare nodes as it is found on this walk. One that makes
        room for several does so for the first of them by name."""
        found: dict[JobKey, tuple[JobKey, AwaitedAttempt]] = {}
        for key in sorted(self._cluster.awaiting, reverse=True):
            for each in self._cluster.awaiting[key]:
                found[each.job] = key, each
        return found

    @cached_property
    def lowest(self) -> int | None:
        """The lowest priority of a job that holds GPUs; None where none is lower than another."""
        return min((each.priority for each in self.holders), default=None) if self.holders is not None else None

    def lenders(self, priority: int) -> tuple[JobKey, ...]:
        """Jobs with spare nodes that a job of this priority may come to be lent."""
        found = self._lenders.get(priority)
        if found is None:
            there = (each for each in self.holders or () if each.booking.spares and each.priority > priority)
            found = self._lenders[priority] = tuple(each.key for each in there)
        return found

    def may_borrow(self, shape: RequestShape, priority: int, freed: Cluster) -> bool:
        """Whether a job that asks this may come to be lent spare nodes; not if it is known that nobody's would do,
        which stands as long as nothing is freed."""
        owners = self.lenders(priority)
        return bool(owners) and self._lent_in_vain.get((shape, owners)) is not freed

    def lent_in_vain(self, shape: RequestShape, priority: int, freed: Cluster) -> None:
        """This does not fit on the spare nodes of anybody who may lend them to this priority."""
        self._lent_in_vain[shape, self.lenders(priority)] = freed

    def recall(self, awaited: AwaitedAttempt, by: JobKey) -> None:
        """This one has to leave the spare nodes of a job that comes before it in the queue."""
        self.recalled.add(awaited.job)
        self.by_victim.setdefault(awaited.job, (by, awaited))

    def settled(self, cluster: Cluster) -> Cluster:
        """The cluster once all are gone that go anyway: Pods of ended attempts, and jobs that make room."""
        awaited = (each for them in cluster.awaiting.values() for each in them)
        return cluster.after((*going(cluster, self._now), *leaving(cluster, awaited)))

    def is_vain(self, asked: Request, priority: int, cluster: Cluster) -> bool:
        """Whether it is known that nobody's going would help in this very cluster."""
        return self._vain.get((asked, priority)) is cluster

    def in_vain(self, asked: Request, priority: int, cluster: Cluster) -> None:
        """Nobody's going would help."""
        self._vain[asked, priority] = cluster

    def may_search(self, place: QueuePlace) -> bool:
        """Whether there is a search left for the job of this place, behind those before."""
        is_in_turn = bool(self._turn) and (self._began_after is None or place > self._began_after)
        if self._head is None or self._head or is_in_turn:
            return True
        self.is_short = True
        return False

    def take(self, place: QueuePlace) -> bool:
        """Takes a search for the job of this place; False where none is left."""
        if not self.may_search(place):
            return False
        if self._head:
            self._head -= 1
        elif self._head is not None:
            self._turn -= 1
            self._came_to = place
        return True


def _holders(queue: JobQueue, last: Schedule) -> Holders | None:
    """The jobs that hold GPUs; None where all jobs have one priority."""
    cluster = queue.cluster
    is_first = not last.entries  # of a process, or without jobs
    if (
        not is_first
        and cluster.jobs is last.cluster.jobs
        and is_same_order(cluster, last.cluster)
        and cluster.meek == last.cluster.meek
    ):
        return last.holders
    if queue.has_one_priority:
        return None
    there = ((key, job, cluster.booking_of(key)) for key, job in cluster.jobs.items() if job.status.placement)
    found = tuple(GpuHolder(key, cluster.priority(job), held) for key, job, held in there if held is not None)
    return last.holders if found == last.holders else found
