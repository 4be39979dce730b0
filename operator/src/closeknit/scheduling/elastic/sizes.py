"""The sizes that an elastic job may have, and the largest of them that fits."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from closeknit.api.names import NVLINK_DOMAIN_LEVEL
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster
from closeknit.lifecycle.writes.quota_shortfall import QuotaRoom
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
    return _largest(_possible(sizes, asked, cluster), place)


def _possible(sizes: range, asked: Request, cluster: Cluster) -> list[int]:
    """Those for which there are free GPUs enough, and that NVLink between nodes does not exclude."""
    free, tray = cluster.usable_free_gpus, _tray(asked, cluster)
    there = sizes[: bisect_right(sizes, free)]
    return [size for size in there if size < tray or size % tray == 0 or size == asked.gpus]


def _largest(there: Sequence[int], place: PlaceSize) -> Placement | None:
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


def largest_within(
    room: QuotaRoom | None, sizes: range, asked: Request, place: PlaceSize, cluster: Cluster
) -> Placement | None:
    """The same of those for which quotas are known to have room, whose Pods a placement tells. Whole machines may take
    fewer Pods than a smaller gang on parts of some, so that the largest ones are asked for each."""
    if room is None:
        return largest(sizes, asked, place, cluster)
    machine = max((len(view.machine.gpus) for view in cluster.nodes.values() if view.machine), default=1)
    held = [size for size in _possible(sizes, asked, cluster) if room.holds(-(-size // machine), size)]

    def place_within(gpus: int) -> Placement | None:
        found = place(gpus)
        return found if found is not None and room.holds(len(found.shares), gpus) else None

    return _largest(held[-EACH_ASKED:], place_within) or _largest(held[:-EACH_ASKED], place_within)


def _tray(asked: Request, cluster: Cluster) -> int:
    """GPUs of a node whose gangs may have NVLink to other nodes: a gang over several of them that takes a part of one
    could not have it, so that no size does. 1 without such nodes."""
    joins = Interconnect.of(cluster)
    if not joins.has_channels(asked) or joins.shared_trays:
        return 1
    at = cluster.levels.index(NVLINK_DOMAIN_LEVEL)
    trays = (len(view.machine.gpus) for view in cluster.nodes.values() if view.machine and view.domains[at])
    return max(trays, default=1)
