"""How many jobs wait for room that a large gang would leave to them, counted by their statuses."""

from collections import Counter
from functools import cached_property
from typing import NamedTuple, Self

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.status.pending import traits

CROWD = 4  # jobs; by a simulation: docs/decisions/0004-place.md


class Contender(NamedTuple):
    """The facts that decide whether a job could use the room that another leaves."""

    priority: int
    gpus: int
    products: tuple[str, ...]
    """Of GPUs; none: any."""

    def gains_from(self, other: Self) -> bool:
        """Whether it might take the other's room: it is smaller, so that no two wait for each other, of its priority or
        a higher one, and takes GPUs of a product that the other takes."""
        return (
            self.gpus < other.gpus
            and self.priority >= other.priority
            and not (self.products and other.products and set(self.products).isdisjoint(other.products))
        )


def contender(cluster: Cluster, job: TrainingJob) -> Contender:
    """The job as a contender."""
    return Contender(cluster.priority(job), job.spec.gpus, tuple(job.spec.gpu.products))


class Backlog(NamedTuple):
    """The jobs that wait for room."""

    waiting: Counter[Contender]

    def is_crowded(self, gang: Contender) -> bool:
        """Whether at least CROWD jobs wait that would gain from what the gang leaves."""
        return sum(number for each, number in self.waiting.items() if each.gains_from(gang)) >= CROWD


def backlog(cluster: Cluster) -> Backlog:
    """All waiting jobs but those that are being deleted, whose status is stale."""
    return Backlog(
        Counter(
            contender(cluster, job)
            for job in cluster.jobs.values()
            if job.status.pending is not None
            and traits(job.status.pending.reason).is_for_room
            and job.metadata.deletion_timestamp is None
        )
    )


class Crowd:
    """The backlog of one cluster, counted on first use."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[Contender, bool] = {}

    @cached_property
    def _backlog(self) -> Backlog:
        return backlog(self._cluster)

    def is_behind(self, job: TrainingJob) -> bool:
        """Whether enough jobs wait for this one's room, so that it gives way to them."""
        gang = contender(self._cluster, job)
        known = self._known.get(gang)
        if known is None:
            known = self._known[gang] = self._backlog.is_crowded(gang)
        return known
