"""The sizes that an elastic job may have, and the largest of them that fits."""

from collections.abc import Callable

from closeknit.api.names import NVLINK_DOMAIN_LEVEL
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang.interconnect import Interconnect
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request

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


def largest(sizes: range, asked: Request, place: PlaceSize, cluster: Cluster) -> Placement | None:
    """The placement of the largest of these sizes of a gang that fits into the cluster; None where none does. The size
    that is asked for is never left out."""
    free = cluster.usable_free_gpus
    tray = _tray(asked, cluster)
    there = [size for size in sizes if size <= free and (size < tray or size % tray == 0 or size == asked.gpus)]
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


def _tray(asked: Request, cluster: Cluster) -> int:
    """GPUs of a node whose gangs may have NVLink to other nodes: a gang over several of them that takes a part of one
    could not have it, so that no size does. 1 without such nodes."""
    joins = Interconnect.of(cluster)
    if not joins.has_channels(asked) or joins.shared_trays:
        return 1
    at = cluster.levels.index(NVLINK_DOMAIN_LEVEL)
    trays = (len(view.machine.gpus) for view in cluster.nodes.values() if view.machine and view.domains[at])
    return max(trays, default=1)
