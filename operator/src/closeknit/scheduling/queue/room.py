"""The cluster that is left for the jobs later in the queue."""

from dataclasses import dataclass, replace
from typing import Self

from closeknit.cluster.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Room:
    """The cluster for the next job of the queue: with this walk's bookings and releases.

    Invariant: placement answers alike in two Rooms of one `scene`. What it refused in one Room is not asked again in a
    later one of the same `freed`: the verdicts between them only took. A device plugin may choose better once a GPU is
    taken, which the next decision sees.
    """

    cluster: Cluster
    scene: Cluster
    """The version for placement: the first Cluster that is equal to this one for it."""
    freed: Cluster
    """The scene after the last verdict that freed something; the first scene of the walk without one."""
    is_trial: bool = False
    """Whether a job gets GPUs that was refused the last time, and is likely to be refused again."""

    def less(self, cluster: Cluster, *, is_trial: bool = False) -> Self:
        """The room after a verdict that took: `cluster` is this one with the booking."""
        return replace(self, cluster=cluster, scene=cluster, is_trial=self.is_trial or is_trial)

    def more(self, cluster: Cluster) -> Self:
        """The room after a verdict that freed something, whatever else it took."""
        return replace(self, cluster=cluster, scene=cluster, freed=cluster)
