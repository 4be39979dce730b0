"""How the free GPUs of a cluster are scattered: the largest gang that could be placed now, and what is free together.

It speaks of a job that takes any GPU, asks for nothing else and tolerates no taint: `place` gives such a job any number
of GPUs that nodes can give, in shares as they come. So the largest gang is counted and not searched, which is exact but
on rail-isolated fabrics, where it is the largest of the likely ones.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from closeknit.api.names import JobKey
from closeknit.api.trainingjob import MAX_GPUS, BindingPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.placement.candidates.binding import bindable
from closeknit.placement.candidates.usable_areas import Area, Areas, OfferNumber
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gpusets.gpu_sets import GpuSets
from closeknit.placement.values.request import Request

_ANY_JOB = Request(JobKey("", ""), 1)
_RAIL_SETS = 64  # so many different sets of free GPUs are tried on a rail-isolated fabric, the most frequent ones
_Counts = Mapping[OfferNumber, int]
"""Nodes by the number of their offer."""


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """What is free of a cluster, and how much of it together."""

    free_gpus: int
    """GPUs that some job could be given now."""
    broken_gpus: int
    """Those of them on nodes that are not free as a whole."""
    largest_gang: int
    """GPUs of the largest gang that could be placed now, wherever its nodes are."""
    largest_inside: Mapping[str, int]
    """Of each level, outermost first, the largest gang inside one domain of it; at level host on one node."""
    islands: Mapping[int, int]
    """How many NVLink islands of free GPUs there are of each size, ascending; a GPU that no NVLink joins to another
    free one is an island of 1."""
    free_domains: Mapping[str, Mapping[int, int]]
    """Of each level how many domains have how many free GPUs, ascending; those without any are left out."""

    @property
    def scattered(self) -> float:
        """The part of the free GPUs that no gang of whole nodes can have; 0 where nothing is free."""
        return self.broken_gpus / self.free_gpus if self.free_gpus else 0.0


def fragmentation(cluster: Cluster, tables: Tables) -> Fragmentation:
    """The measure of a cluster as it is, by counting: all that is searched is what a device plugin would pick."""
    ground = tables.ground(cluster, _ANY_JOB)
    able = {number: bindable(ground.offers[number], BindingPolicy.AUTO) for number in ground.counts}
    areas = {level: list(_areas_at(ground.root, at)) for at, level in enumerate(cluster.levels)}
    return Fragmentation(
        free_gpus=sum(able[number] * nodes for number, nodes in ground.counts.items()),
        broken_gpus=sum(
            able[number] * nodes
            for number, nodes in ground.counts.items()
            if able[number] < len(ground.offers[number].terms.sets.facts.machine.gpus)
        ),
        largest_gang=_largest(cluster, ground, able, [ground.counts]),
        largest_inside={level: _largest(cluster, ground, able, inside) for level, inside in areas.items()},
        islands=_islands(ground, able),
        free_domains={level: _sizes(able, inside) for level, inside in areas.items()},
    )


def _largest(cluster: Cluster, ground: Areas, able: Mapping[OfferNumber, int], areas: Iterable[_Counts]) -> int:
    """GPUs of the largest gang inside one of these areas."""
    if not cluster.fabric.rail_isolated:
        found = max((sum(able[number] * nodes for number, nodes in area.items()) for area in areas), default=0)
    else:
        found = max((_on_rails(ground, able, area) for area in areas), default=0)
    return min(found, MAX_GPUS)


def _on_rails(ground: Areas, able: Mapping[OfferNumber, int], area: _Counts) -> int:
    """On every node the same indexes: of a set that is all that some nodes have free, and of all that have it among
    others. A set that no node has alone may do better."""
    sets: Counter[tuple[GpuSets, int]] = Counter()
    for number, nodes in area.items():
        terms = ground.offers[number].terms
        if able[number] == terms.pool.bit_count():
            sets[terms.sets, terms.pool] += nodes
    common = sets.most_common(_RAIL_SETS)
    return max(
        (
            mask.bit_count()
            * sum(nodes for (others, free), nodes in sets.items() if others is of and free & mask == mask)
            for (of, mask), _ in common
        ),
        default=0,
    )


def _sizes(able: Mapping[OfferNumber, int], areas: Iterable[_Counts]) -> dict[int, int]:
    found = Counter(sum(able[number] * nodes for number, nodes in area.items()) for area in areas)
    return {gpus: found[gpus] for gpus in sorted(found) if gpus}


def _areas_at(area: Area, at: int) -> Iterator[_Counts]:
    """The nodes of each domain of a level, by offer. A node that has none at it is a domain of its own."""
    if area.level >= at or area.is_lone:
        counts: Counter[OfferNumber] = Counter()
        for number, nodes in area.counted():
            counts[number] += nodes
        yield counts
    elif area.children:
        for child in area.children:
            yield from _areas_at(child, at)
    else:
        for entry in area.members:
            yield from ({entry.offer: 1} for _ in range(entry.nodes))


def _islands(ground: Areas, able: Mapping[OfferNumber, int]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for number, nodes in ground.counts.items():
        if not able[number]:
            continue
        for size in ground.offers[number].terms.islands():
            found[size] += nodes
    return dict(sorted(found.items()))
