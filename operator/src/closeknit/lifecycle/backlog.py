"""How many jobs wait for room, as their status says."""

from collections import Counter
from typing import NamedTuple

from closeknit.api.names import PendingReason
from closeknit.cluster.cluster import Cluster

CROWD = 8  # jobs; by a simulation: docs/decisions/0004-place.md
FOR_ROOM = frozenset(
    {
        PendingReason.INSUFFICIENT_GPUS,
        PendingReason.INSUFFICIENT_RESOURCES,
        PendingReason.NO_NVLINK_ISLAND,
        PendingReason.NO_DOMAIN,
        PendingReason.WAITING_FOR_PREFERRED,
        PendingReason.BANDWIDTH_BELOW_MINIMUM,
        PendingReason.RDMA_UNAVAILABLE,
    }
)
"""What a job says that waits for GPUs of others to come free."""


class Backlog(NamedTuple):
    """The jobs that wait for room, by priority."""

    waiting: Counter[int]

    def is_crowded(self, priority: int) -> bool:
        """Whether at least CROWD jobs of this priority or a higher one wait: a gang gives way to no others."""
        return sum(number for each, number in self.waiting.items() if each >= priority) >= CROWD


def backlog(cluster: Cluster) -> Backlog:
    """Of all jobs, the one that asks among them once it has been told that it waits."""
    return Backlog(
        Counter(
            cluster.priority(job)
            for job in cluster.jobs.values()
            if job.metadata.deletion_timestamp is None  # of one that is being deleted the last word stays
            and job.status.pending is not None
            and job.status.pending.reason in FOR_ROOM
        )
    )
