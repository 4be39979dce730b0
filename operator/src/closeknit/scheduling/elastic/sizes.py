"""The sizes that an elastic job may have, and the largest of them that fits."""

from collections.abc import Callable

from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster
from closeknit.placement.values.placement import Placement

# Of so many sizes each is asked for, the largest first. Of more it is taken that a gang that fits also fits with fewer
# ranks, so that eleven questions find the largest of a thousand.
EACH_ASKED = 8

PlaceSize = Callable[[int], Placement | None]
"""Where a gang of that size would go; None where it does not fit."""


def fewer(spec: TrainingJobSpec, than: int) -> range:
    """The sizes that the job may have below that one, ascending; none for a job that is not elastic."""
    least = spec.gpus if spec.elastic is None else spec.elastic.min_gpus
    return range(least, min(than, spec.gpus), spec.least_size)


def more(spec: TrainingJobSpec, than: int) -> range:
    """The sizes that the job may have above that one, ascending."""
    step = spec.least_size
    return range((than // step + 1) * step, spec.gpus + 1, step)


def largest(sizes: range, place: PlaceSize, cluster: Cluster) -> Placement | None:
    """The placement of the largest of these sizes that fits into the cluster; None where none does."""
    free = sum(view.free_gpus for view in cluster.nodes.values() if view.exclusion is None)
    there = [size for size in sizes if size <= free]
    if len(there) <= EACH_ASKED:
        return next((found for size in reversed(there) if (found := place(size)) is not None), None)
    best = place(there[0])
    fits, beyond = 0, len(there)
    while best is not None and beyond - fits > 1:
        middle = (fits + beyond) // 2
        found = place(there[middle])
        if found is None:
            beyond = middle
        else:
            fits, best = middle, found
    return best
