"""How many elastic jobs may grow on one walk over the queue, and which waiting jobs go first."""

from collections.abc import Callable, Iterator
from functools import cached_property

from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.job import is_whole
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.pending import traits
from closeknit.lifecycle.status.stored_job import is_finished
from closeknit.placement.values.request import NOBODY, Request, request

# Requests of waiting jobs of which is found out whether they could ever fit; more of them are taken to. The answers are
# kept as long as the machines are the same (placement/refusals/ideal.py).
MOST_CHECKED = 64

# Jobs that find room to grow in one decision: each is looked for in the room that the ones before leave, so that two
# do not end their runs for the same GPUs.
MOST_GROWING = 16


class GrowthLimit:
    """Who may grow on this walk."""

    def __init__(self, cluster: Cluster, could_place: Callable[[Request, Cluster], bool]) -> None:
        self._cluster = cluster
        self._could_place = could_place
        self._wanted: list[TrainingJob] = []

    @property
    def is_full(self) -> bool:
        """Whether enough jobs have found room on this walk."""
        return len(self._wanted) >= MOST_GROWING

    def want(self, job: TrainingJob) -> None:
        """The job, with all that it would hold."""
        self._wanted.append(job)

    def left(self, cluster: Cluster) -> Cluster:
        """The cluster without what others would grow to."""
        for job in self._wanted:
            cluster = cluster.with_job(job)
        return cluster

    def goes_first(self, priority: int) -> bool:
        """Whether a job of this priority or a higher one waits for room."""
        return self._highest is not None and self._highest >= priority

    @cached_property
    def _highest(self) -> int | None:
        """The highest priority of a job that waits for room and could ever have some."""
        known: dict[Request, bool] = {}
        for job in sorted(self._waiting(), key=lambda job: -self._cluster.priority(job)):
            if not is_whole(job):
                return self._cluster.priority(job)  # its template is not at hand
            asked = request(NOBODY, job.spec)
            if asked not in known and len(known) < MOST_CHECKED:
                known[asked] = self._could_place(asked, self._cluster)
            if known.get(asked, True):
                return self._cluster.priority(job)
        return None

    def _waiting(self) -> Iterator[TrainingJob]:
        for key, job in self._cluster.jobs.items():
            held = self._cluster.booking_of(key) if job.status.placement is not None else None
            if held is not None and not held.lost:  # one that has lost nodes waits for others
                continue
            if is_finished(job) or job.spec.suspend or job.metadata.deletion_timestamp is not None:
                continue
            if job.status.pending is None or traits(job.status.pending.reason).is_for_room:
                yield job
