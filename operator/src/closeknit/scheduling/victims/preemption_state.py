"""What the policies of preemption share on one walk over the queue."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.booking.booking import AwaitedAttempt
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.verdict import Reservation
from closeknit.placement.values.request import Request
from closeknit.scheduling.queue.entries import (
    UNSEARCHED,
    Declared,
    GpuHolder,
    Holders,
    JobQueue,
    LentInVain,
    LentKey,
    QueuePlace,
    RequestShape,
    Schedule,
    is_same_order,
)
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.victims.victim import going, gone, leaving

# Searches of one decision look at so many nodes in all, and at least one is for the first job that could have victims.
# One more is in turn, so that no job without luck keeps those behind it from theirs.
NODES_PER_DECISION = 256
TURN_SEARCHES = 1


class Lenders(NamedTuple):
    """Who lends spare nodes."""

    owners: tuple[JobKey, ...]
    """Jobs that lend those of their own."""
    queues: frozenset[str]
    """Queues whose nodes are lent."""


class LentSpares(NamedTuple):
    """What jobs lend in one cluster."""

    owners: tuple[JobKey, ...]
    cluster: Cluster
    without: Cluster
    """The cluster without the spares of these."""


@dataclass(frozen=True, slots=True)
class Borrower:
    """A job that may be lent spare nodes."""

    key: JobKey
    shape: RequestShape
    spec: TrainingJobSpec

    @property
    def declared(self) -> Declared:
        """How long it runs."""
        return self.spec.expected_duration, self.spec.active_deadline_seconds


class Preemptions:
    """Who makes room for whom, and what is known of who could."""

    def __init__(
        self, queue: JobQueue, last: Schedule, now: datetime, busy: Container[JobKey], *, are_bounded: bool
    ) -> None:
        """`busy`: jobs with a write under way."""
        cluster = queue.cluster
        self._busy = busy
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
        self._vain: dict[tuple[Request, int, int], Cluster] = {}
        self._lenders: dict[int, Lenders] = {}
        self._lent_in_vain: dict[LentKey, LentInVain] = {}
        self._last_in_vain = last.lent_in_vain
        self.lent: LentSpares | None = None
        """The last that was asked for."""
        self.recalled: set[JobKey] = set()
        """Jobs that end on this walk because the spare nodes that were lent to them are needed."""
        self._taken_back: list[TrainingJob] = []
        self.ends_nobody: set[JobKey] = set()
        """Jobs that others make room for, and that fit without once what goes anyway is gone: nobody ends for them on
        this walk."""

    @cached_property
    def are_spares(self) -> bool:
        """Whether some job or queue has spare nodes that a job could be lent."""
        return any(each.booking.spares for each in self.holders or ()) or bool(self._queues)

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

    def holders_of(self, cluster: Cluster) -> Holders | None:
        """On whom it rests that nobody could make room in this cluster. Behind a verdict of this walk it is looked for
        again: what that gives, or has others leave, may never be stored."""
        return self.holders if cluster is self._cluster else UNSEARCHED

    def lenders(self, priority: int) -> Lenders:
        """Who lends spare nodes to jobs of this priority. Nothing happens to the jobs that do: what one gives up, say,
        is among its spares until that is stored, and may be its own again."""
        found = self._lenders.get(priority)
        if found is None:
            there = (each for each in self.holders or () if each.booking.spares and each.priority > priority)
            owners = tuple(each.key for each in there if self._lends(each.key))
            queues = frozenset(queue for queue, below in self._queues.items() if priority < below)
            found = self._lenders[priority] = Lenders(owners, queues)
        return found

    def _lends(self, owner: JobKey) -> bool:
        return owner not in self._busy and self._may_take_back(owner)

    def _may_take_back(self, owner: JobKey) -> bool:
        job, held = self._cluster.jobs[owner], self._cluster.booking_of(owner)
        if held is None or held.lost or held.awaits or _goes(job):
            return False
        return self._cluster.may_preempt(job)

    @cached_property
    def _queues(self) -> Mapping[str, int]:
        """The queues that lend their spare nodes, each with the priority below which a job may be lent some: every job
        of the queue that holds GPUs may end such a job. None is lent while one of them may end nobody, or waits for
        other nodes."""
        there = self._cluster.queue_spares
        least: dict[str, int] = {}
        closed: set[str] = set()
        for each in self.holders or () if there else ():
            job = self._cluster.jobs[each.key]
            queue = job.spec.queue or ""
            if queue not in there or _goes(job):
                continue
            least[queue] = min(each.priority, least.get(queue, each.priority))
            if not self._may_take_back(each.key):
                closed.add(queue)
        return {queue: priority for queue, priority in least.items() if queue not in closed}

    def may_borrow(self, job: Borrower, priority: int, freed: Cluster, kept: Reservation | None) -> bool:
        """Whether a job may come to be lent spare nodes, and not if that is known to be in vain: nothing has been freed
        since, the same lend, and the same is kept for a job before it."""
        lenders = self.lenders(priority)
        return bool(lenders.owners or lenders.queues) and not self.is_lent_in_vain(job, lenders, freed, kept)

    def is_lent_in_vain(self, job: Borrower, lenders: Lenders, freed: Cluster, kept: Reservation | None) -> bool:
        """Whether it is known that the spare nodes of these would not do for such a job."""
        keys = [LentKey(job.shape, *lenders)]
        if kept is not None and kept.job != job.key:
            keys.append(LentKey(job.shape, *lenders, job.declared))
        for key in keys:
            known = self._lent_in_vain.get(key) or self._last_in_vain.get(key)
            if known is not None and known.freed is freed and (known.kept is None or known.kept is kept):
                return True
        return False

    def lent_in_vain(self, job: Borrower, lenders: Lenders, room: Room, kept: Reservation | None = None) -> None:
        """This does not fit on the spare nodes of these; or it does, but not without what is kept for a job before it,
        which others that ask and declare the same do not pass either."""
        declared = None if kept is None else job.declared
        self._lent_in_vain[LentKey(job.shape, *lenders, declared)] = LentInVain(room.scene, room.freed, kept)

    def in_vain_on(self, scene: Cluster, waiting: Container[RequestShape]) -> Mapping[LentKey, LentInVain]:
        """What is known and stands where the next walk begins with this scene, of the shapes that wait. What was asked
        behind a booking of this walk does not: that may be refused."""
        both = {**self._last_in_vain, **self._lent_in_vain}
        return {key: known for key, known in both.items() if known.scene is scene and key.shape in waiting}

    def recall(self, awaited: AwaitedAttempt, by: JobKey) -> None:
        """This one has to leave the spare nodes of a job that comes before it in the queue."""
        self.recalled.add(awaited.job)
        self.by_victim.setdefault(awaited.job, (by, awaited))

    def take_back(self, owner: TrainingJob) -> None:
        """The owner of spare nodes, with those that it gets once they are free."""
        self._taken_back.append(owner)

    def behind_owners(self, cluster: Cluster) -> Cluster:
        """The cluster once all are gone that end on this walk for the owners of spare nodes, and these have them."""
        for key in sorted(self.recalled):
            cluster = cluster.after(tuple(gone(cluster, cluster.jobs[key])))
        for owner in self._taken_back:
            cluster = cluster.with_job(owner)
        return cluster

    def settled(self, cluster: Cluster) -> Cluster:
        """The cluster once all are gone that go anyway: Pods of ended attempts, and jobs that make room, but for those
        that do not go on this walk."""
        awaited = (each for by, them in cluster.awaiting.items() if by not in self.ends_nobody for each in them)
        return cluster.after((*going(cluster, self._now), *leaving(cluster, awaited)))

    def is_vain(self, asked: Request, least: int, priority: int, cluster: Cluster) -> bool:
        """Whether it is known that nobody's going would help in this very cluster, at any size down to that one."""
        return self._vain.get((asked, least, priority)) is cluster

    def in_vain(self, asked: Request, least: int, priority: int, cluster: Cluster) -> None:
        """Nobody's going would help."""
        self._vain[asked, least, priority] = cluster

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


def _goes(job: TrainingJob) -> bool:
    """Whether somebody has the job end."""
    return job.spec.suspend or job.metadata.deletion_timestamp is not None


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
