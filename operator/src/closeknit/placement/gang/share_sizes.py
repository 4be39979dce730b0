"""How a gang can be cut into shares."""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations, islice
from math import ceil, comb
from operator import and_
from typing import NamedTuple

from closeknit.placement.candidates.offer import Joint, Offer
from closeknit.placement.values.request import Request

MANY_RAILS = 256  # sets of local indexes that are tried, one search over the tree each; 8 over 4 is 70
RAIL_STEPS = 1 << 14  # sets that are looked at for that, 0.1 s where no two of 16 are free on the same of 2,000 nodes
MORE_HOSTS = 2  # equal shares may need so many times the hosts of the largest shares


class ShareSize(NamedTuple):
    """How a gang is cut."""

    unit: int
    """A node gives a multiple of so many GPUs."""
    equal: bool
    """Whether it gives exactly that many."""
    rail: tuple[int, ...] = ()
    """Where rails are joined nowhere: the NVML indexes that every node must give."""


class EqualShares(NamedTuple):
    """The shapes of equal shares over several nodes."""

    shapes: Sequence[ShareSize]
    """The largest first."""
    cut: Sequence[int]
    """Units of those that can be had with more sets of indexes than are among the shapes."""


class ShareSizes(NamedTuple):
    """The shapes of one request on nodes that have these offers."""

    request: Request
    offers: Mapping[Offer, int]
    """How many nodes have each."""
    most: int
    """GPUs of the largest offer."""
    kept: int
    """Every share is a multiple of so many GPUs, so that groups stay whole on their nodes."""
    rail_isolated: bool
    joined: Joint
    """Whether NVLink joins the nodes, so that each gives most of its GPUs and no rail carries anything."""

    def is_near(self, shape: ShareSize) -> bool:
        """Whether equal shares of this size are worth having for their own sake."""
        hosts = ceil(self.request.gpus / self.most)
        return shape.equal and self.request.gpus <= MORE_HOSTS * hosts * shape.unit

    def equal(self) -> EqualShares:
        """Equal shares over several nodes."""
        total = self.request.gpus
        shapes, cut = list[ShareSize](), list[int]()
        is_over_rails = self.rail_isolated and not self.joined
        free = self._free_indexes() if is_over_rails else {}
        for unit in range(min(self.most, total - 1), 0, -1):
            if total % unit or self.request.gpus_per_node not in (None, unit):
                continue
            if unit % self.kept or not self._are_enough(unit):
                continue
            if not is_over_rails:
                shapes.append(ShareSize(unit, equal=True))
                continue
            rails, is_cut = _rails(free, unit, total // unit)
            shapes += (ShareSize(unit, equal=True, rail=rail) for rail in rails)
            cut += [unit] if is_cut else []
        return EqualShares(shapes, cut)

    def _are_enough(self, unit: int) -> bool:
        """Whether as many nodes have so many GPUs as the gang would need."""
        able = (
            nodes
            for offer, nodes in self.offers.items()
            if offer.gpus >= unit and (not self.joined or unit >= offer.fewest_joined(self.joined))
        )
        return unit * sum(able) >= self.request.gpus

    def ragged(self) -> ShareSize:
        """Shares of any size."""
        return ShareSize(self.kept, equal=False)

    def _free_indexes(self) -> dict[tuple[int, ...], int]:
        """On how many nodes these NVML indexes are free, and no others."""
        found: dict[tuple[int, ...], int] = {}
        for offer, nodes in self.offers.items():
            gpus = enumerate(offer.terms.sets.facts.machine.gpus)
            free = tuple(sorted(gpu.index for position, gpu in gpus if offer.terms.pool >> position & 1))
            found[free] = found.get(free, 0) + nodes
        return found


def _rails(free: Mapping[tuple[int, ...], int], unit: int, nodes: int) -> tuple[list[tuple[int, ...]], bool]:
    """Sets of NVML indexes that enough nodes have free, and whether there are more of them.

    Of few indexes every choice is tried. Of many, whichever nodes a gang could lie on, neighbours among what all of
    these have free are.
    """
    holders: dict[int, int] = {}  # index -> mask of the nodes that have it free
    first = 0
    for indexes, number in free.items():
        for index in indexes:
            holders[index] = holders.get(index, 0) | (1 << number) - 1 << first
        first += number
    able = [index for index in sorted(holders) if holders[index].bit_count() >= nodes]
    if comb(len(able), unit) <= MANY_RAILS:
        every = combinations(able, unit)
        return [rail for rail in every if reduce(and_, map(holders.__getitem__, rail)).bit_count() >= nodes], False
    together: dict[int, list[int]] = {}
    for index in able:
        together.setdefault(holders[index], []).append(index)
    looked_at = list(islice(_common(together, unit, nodes), RAIL_STEPS))
    is_cut = len(looked_at) == RAIL_STEPS
    ranks: dict[tuple[int, ...], tuple[int, int]] = {}
    for common, number in filter(None, looked_at):
        is_cut = is_cut or 1 < unit < len(common)
        for rank, rail in enumerate(_neighbours(common, unit)):
            ranks[rail] = min(ranks.get(rail, (rank, -number)), (rank, -number))
    before = set(_neighbours(able, unit))
    best = sorted(ranks, key=lambda rail: (rail not in before, *ranks[rail], rail))[:MANY_RAILS]
    return sorted(best), is_cut or len(best) < len(ranks)


def _neighbours(indexes: Sequence[int], unit: int) -> Iterator[tuple[int, ...]]:
    return (tuple(indexes[first : first + unit]) for first in range(len(indexes) - unit + 1))


def _common(together: Mapping[int, Sequence[int]], unit: int, nodes: int) -> Iterator[tuple[list[int], int] | None]:
    """What some nodes have free and no other index beside it, ascending, and how many nodes these are: from the mask of
    nodes -> the indexes that just these have. One value a step, None where it is too few indexes."""
    masks = list(together)
    behind = [0] * (len(masks) + 1)  # indexes from this one on
    for at in range(len(masks) - 1, -1, -1):
        behind[at] = behind[at + 1] + len(together[masks[at]])
    stack: list[tuple[int, int, int]] = [(0, -1, 0)]  # the next mask, the nodes, how many indexes they have so far
    while stack:
        at, having, size = stack.pop()
        is_enough = size >= unit
        if is_enough:
            common = [index for mask in masks if mask & having == having for index in together[mask]]
            is_enough = len(common) == size  # else it is met again with the others
        yield (sorted(common), having.bit_count()) if is_enough else None
        for number in range(at, len(masks)):
            if size + behind[number] < unit:
                break
            both = having & masks[number]
            if both.bit_count() >= nodes:
                stack.append((number + 1, both, size + len(together[masks[number]])))
