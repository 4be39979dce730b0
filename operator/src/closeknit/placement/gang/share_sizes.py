"""How a gang can be cut into shares."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import ceil, comb
from typing import NamedTuple

from closeknit.placement.candidates.offer import Offer
from closeknit.placement.values.request import Request

MANY_RAILS = 256  # sets of local indexes that are tried, one search over the tree each; 8 over 4 is 70
MORE_HOSTS = 2  # equal shares may need so many times the hosts of the largest shares


class ShareSize(NamedTuple):
    """How a gang is cut."""

    unit: int
    """A node gives a multiple of so many GPUs."""
    equal: bool
    """Whether it gives exactly that many."""
    rail: tuple[int, ...] = ()
    """Where rails are joined nowhere: the NVML indexes that every node must give."""


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
    joined: bool
    """Whether NVLink joins the nodes, so that each gives more than half of its GPUs and no rail carries anything."""

    def is_near(self, shape: ShareSize) -> bool:
        """Whether equal shares of this size are worth having for their own sake."""
        hosts = ceil(self.request.gpus / self.most)
        return shape.equal and self.request.gpus <= MORE_HOSTS * hosts * shape.unit

    def equal(self) -> Iterator[ShareSize]:
        """Equal shares over several nodes, the largest first."""
        total = self.request.gpus
        for unit in range(min(self.most, total - 1), 0, -1):
            if total % unit or self.request.gpus_per_node not in (None, unit):
                continue
            if unit % self.kept or not self._are_enough(unit):
                continue
            if not self.rail_isolated or self.joined:
                yield ShareSize(unit, equal=True)
                continue
            for rail in self._rails(unit, total // unit):
                yield ShareSize(unit, equal=True, rail=rail)

    def _are_enough(self, unit: int) -> bool:
        """Whether as many nodes have so many GPUs as the gang would need."""
        able = (
            nodes
            for offer, nodes in self.offers.items()
            if offer.gpus >= unit and (not self.joined or unit >= offer.majority)
        )
        return unit * sum(able) >= self.request.gpus

    def ragged(self) -> ShareSize:
        """Shares of any size."""
        return ShareSize(self.kept, equal=False)

    def _rails(self, unit: int, nodes: int) -> Iterator[tuple[int, ...]]:
        """Sets of NVML indexes that enough nodes have free."""
        holders: dict[int, int] = {}
        for offer, count in self.offers.items():
            for position, gpu in enumerate(offer.terms.sets.facts.machine.gpus):
                if offer.terms.pool >> position & 1:
                    holders[gpu.index] = holders.get(gpu.index, 0) + count
        indexes = sorted(index for index, number in holders.items() if number >= nodes)
        if comb(len(indexes), unit) <= MANY_RAILS:
            yield from combinations(indexes, unit)
        else:
            yield from (tuple(indexes[first : first + unit]) for first in range(len(indexes) - unit + 1))
