"""Running jobs that may be moved now, and how many of them within an hour."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import ConditionType, EndReason
from closeknit.api.trainingjob import Defragment
from closeknit.cluster.booking.booking import Booking
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.conditions import is_true, moment
from closeknit.lifecycle.status.pauses import is_between
from closeknit.lifecycle.writes.answers import NOTHING, Answers
from closeknit.scheduling.queue.movable_jobs import MovableJobs, movable_jobs
from closeknit.scheduling.victims.victim import Victim, lost_gpu_s

HOUR = timedelta(hours=1)
# Of the whole cluster. Each is a restart of a job that did nothing wrong: with a restart of two minutes on a tenth of
# all GPUs four of them cost the cluster 1.3 % of an hour.
MOST_MOVES_AN_HOUR = 4
# Searches of one walk for jobs that would have to move, each of some dozens of questions to placement.
MOST_SEARCHES = 1


class MoveLimit:
    """Who may move on this walk."""

    def __init__(
        self,
        cluster: Cluster,
        answers: Mapping[str, Answers],
        busy: Collection[JobKey],
        now: datetime,
        *,
        known: MovableJobs,
    ) -> None:
        """`answers` by uid. Nothing is decided on the `busy` ones, whose writes are under way. `known`: those that
        allow it, of an earlier decision."""
        self.movable = known
        """Of this cluster once it was looked for."""
        self.moving: set[JobKey] = set()
        """Those that move by this walk."""
        self._cluster = cluster
        self._answers = answers
        self._busy = busy
        self._now = now
        self._searches = MOST_SEARCHES
        self._planned = 0

    @property
    def are_any(self) -> bool:
        """Whether a job that holds GPUs allows to be moved, now or later."""
        self.movable = movable_jobs(self._cluster.jobs, self.movable)
        return bool(self.movable.keys)

    @cached_property
    def there(self) -> Sequence[Victim]:
        """Jobs that may move now, those first that lose least."""
        found: list[Victim] = []
        for key in sorted(self.movable.keys) if self.are_any else ():
            job, held = self._cluster.jobs[key], self._cluster.booking_of(key)
            if held is None or key in self._busy or key in self._awaited:
                continue
            answers = self._answers.get(job.metadata.uid or "", NOTHING)
            if not may_move(job, held, answers, self._cluster, self._now):
                continue
            lost = lost_gpu_s(job, held, self._now)
            found.append(Victim(key, job, held, self._cluster.priority(job), lost))
        return sorted(found, key=lambda each: (each.lost_gpu_s, each.booking.gpus, each.key))

    @cached_property
    def _awaited(self) -> frozenset[JobKey]:
        return frozenset(each.job for awaited in self._cluster.awaiting.values() for each in awaited)

    def left(self) -> int:
        """How many jobs may still move within this hour: those that are to move count with those that have."""
        to_come = sum(
            each.moves and held is not None and held.attempt == each.attempt
            for awaited in self._cluster.awaiting.values()
            for each in awaited
            for held in [self._cluster.booking_of(each.job)]
        )
        return MOST_MOVES_AN_HOUR - to_come - self._planned - self._moved

    @cached_property
    def _moved(self) -> int:
        return sum(_moves(job, self._now) for job in self._cluster.jobs.values())

    def take_search(self) -> bool:
        """Takes a search; False where none is left."""
        self._searches -= 1
        return self._searches >= 0

    def plan(self, jobs: int) -> None:
        """So many are to move by this walk."""
        self._planned += jobs


def may_move(job: TrainingJob, held: Booking, answers: Answers, cluster: Cluster, now: datetime) -> bool:
    """Whether the job allows to be moved while it runs, runs as a whole, and has not moved within the hour; nor has the
    API server refused that lately."""
    placement, refused = job.status.placement, answers.refused_change
    if job.spec.defragment is not Defragment.PLANNED or placement is None or placement.swapping:
        return False
    if not is_true(job.status.conditions, ConditionType.RUNNING) or held.lost or held.awaits or held.spares:
        return False
    if job.spec.suspend or job.metadata.deletion_timestamp is not None or _moves(job, now):
        return False
    if refused is not None and refused.stands(job.metadata.generation, now):
        return False
    pods = [pod for pod in cluster.pods_of(job.key) if pod.attempt == held.attempt]
    return not any(share.succeeded for share in held.shares) and all(pod.phase == "Running" for pod in pods)


def _moves(job: TrainingJob, now: datetime) -> int:
    """How often it has moved within the hour, as far as its ends are kept."""
    ends = (moment(each.ended) for each in job.status.attempts if each.reason == EndReason.MOVED)
    return sum(is_between(at, now, at + HOUR) for at in ends)
