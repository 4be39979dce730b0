"""The least number of steps towards a freer cluster, in order, until a gang fits: by doubling and then halving."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.pod_requests import Amounts
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place
from closeknit.placement.values.request import Request

MANY_NODES = 256  # that are changed before somebody else has a turn

T = TypeVar("T")


class Freed(NamedTuple):
    """What becomes free, by node."""

    gpus: Mapping[str, tuple[int, ...]]
    room: Mapping[str, Amounts]
    """Besides GPUs."""

    def of(self, cluster: Cluster) -> Cluster:
        """The cluster with it."""
        return cluster.freed(self.gpus, self.room)


def until_it_fits(
    steps: Sequence[T], freed: Callable[[Sequence[T]], Freed], cluster: Cluster, request: Request, tables: Tables
) -> Generator[None, None, int]:
    """The least number of steps, from the first on, after which the gang fits; 0 for none. `freed` is what some of them
    free. Yields to others in between."""
    short, now, beyond, by = 0, cluster, 0, 1
    while beyond == short:
        if short == len(steps):
            return 0
        beyond = min(short + by, len(steps))
        then = yield from _after(now, freed(steps[short:beyond]))
        if not can_place(then, request, tables):
            short, now, by = beyond, then, 2 * by
        yield
    while beyond - short > 1:
        middle = (short + beyond) // 2
        then = yield from _after(now, freed(steps[short:middle]))
        if can_place(then, request, tables):
            beyond = middle
        else:
            short, now = middle, then
        yield
    return beyond


def _after(cluster: Cluster, freed: Freed) -> Generator[None, None, Cluster]:
    names = sorted({*freed.gpus, *freed.room})
    for first in range(0, len(names), MANY_NODES):
        some = names[first : first + MANY_NODES]
        gpus = {name: freed.gpus[name] for name in some if name in freed.gpus}
        cluster = cluster.freed(gpus, {name: freed.room[name] for name in some if name in freed.room})
        if len(names) > MANY_NODES:
            yield
    return cluster
