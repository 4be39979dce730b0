"""What is left for the jobs that a walk over the queue has not come to."""

from dataclasses import dataclass, replace
from typing import Self

from closeknit.cluster.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Room:
    """The cluster as the next job of the queue finds it: as it is, with what this walk has booked and freed.

    Invariant: placement answers alike in two Rooms of one `scene`. What it refused in one Room is not asked again in a
    later one of the same `freed`: the verdicts between them only took. A device plugin may choose better once a GPU is
    taken, which the next decision sees.
    """

    cluster: Cluster
    scene: Cluster
    """The version of what placement sees: the first Cluster that it cannot tell from this one."""
    freed: Cluster
    """The scene when a verdict freed something last; the first one of the walk where none has."""
    is_trial: bool = False
    """Whether a job is given GPUs that was refused the last time, and is likely to be so again."""

    def less(self, cluster: Cluster, *, is_trial: bool = False) -> Self:
        """The room after a verdict that took: `cluster` is this one with the booking."""
        return replace(self, cluster=cluster, scene=cluster, is_trial=self.is_trial or is_trial)

    def more(self, cluster: Cluster) -> Self:
        """The room after a verdict that freed something, whatever else it took."""
        return replace(self, cluster=cluster, scene=cluster, freed=cluster)
