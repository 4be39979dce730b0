"""What shares of each offer are worth to one job, and which set of GPUs each of them takes."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.forest.group import MANY_HOLDERS
from closeknit.placement.candidates.binding import Seat, seat
from closeknit.placement.candidates.offer import Joint, Offer, Terms
from closeknit.placement.candidates.usable_areas import OfferMask, OfferNumber, numbers_of
from closeknit.placement.gang.cache import OfferShare, Same, Tables
from closeknit.placement.gang.offer_values import OfferValues
from closeknit.placement.gang.share_sizes import ShareSize
from closeknit.placement.gpusets.experts import experts_on_nodes
from closeknit.placement.gpusets.set_value import ANY, Measure, SetCriteria, Value
from closeknit.placement.spread.cost import PackedCost, Scale, mb_s
from closeknit.placement.values.request import Request

V = TypeVar("V")


class ShareValues:
    """The shares of one way of placing a gang; what the tables have of them is not worked out again."""

    def __init__(
        self,
        tables: Tables,
        request: Request,
        offers: Sequence[Offer],
        most: int,
        transport: Transport | None,
        *,
        scale: Scale,
        kept: int,
        joined: Joint,
    ) -> None:
        """No offer in question has more GPUs than `most`; of each `kept` ranks that follow each other none leaves its
        node. Where NVLink joins nodes, each gives most of its GPUs."""
        self._tables = tables
        self._request = request
        self._offers = offers
        self._transport = transport
        self.has_blocks = request.group > 1 and request.nvlink is not NvlinkPolicy.IGNORED
        """Whether groups inside a share can be of different worth."""
        self._scale = scale
        self._most = min(most, request.gpus)
        self._joined = joined
        self._experts = experts_on_nodes(request, kept)
        self._family = (
            *(Same(offers), transport, request.group, request.nvlink, request.binding, len(scale.of_domain)),
            *(self._experts, joined),
        )

    def _ask(self, gpus: int) -> SetCriteria:
        request = self._request
        blocks = self.has_blocks and gpus % request.group == 0
        return SetCriteria(
            gpus,
            block=request.group if blocks else 1,
            joined=request.nvlink is NvlinkPolicy.REQUIRED,
            transport=self._transport,
            alone=gpus == request.gpus,
        )

    def _sizes(self, shape: ShareSize) -> range:
        """How many GPUs a node can be asked for."""
        most = shape.unit if shape.equal else self._most
        return range(shape.unit, most + 1, shape.unit)

    def _seat(self, terms: Terms, ask: SetCriteria, shape: ShareSize) -> Seat | None:
        found = seat(terms, ask, self._request.binding)
        if found is None or not shape.rail:
            return found
        if found.binding is Binding.BEST_EFFORT and (terms.unnamed or terms.guessed):
            return None  # it is unknown which indexes they will be
        only = terms.sets.facts.mask_of_indexes(shape.rail)
        if only.bit_count() < ask.gpus or only & ~terms.pool or found.only not in (None, only):
            return None
        return Seat(found.binding, only)

    def key(self, shape: ShareSize, floor: Value) -> Hashable:
        """Equal for equal shares of equal offers, from decision to decision."""
        if not self.has_blocks:
            floor = floor._replace(block_gb_s=ANY.block_gb_s)
        sizes = self._sizes(shape)
        return (self._family, shape, floor, sizes.stop, self._request.gpus in sizes)

    def worth(self, offers: OfferMask, shape: ShareSize, floor: Value, by: Measure = Measure.BUS) -> OfferValues[float]:
        """The best bus bandwidth, or other part of its value, of every share at or above a floor that the offers of
        this mask have; others may be in it."""
        key = (self.key(shape, floor), by)
        stage = self._tables.values.kept(key, OfferValues)
        if by is Measure.BUS and not self.has_blocks and floor.bus_gb_s and not floor.tree_gb_s:
            # The best of those at the floor is the best of all, or there is none.
            every = self.worth(offers, shape, ANY)
            for number in numbers_of(offers & ~stage.seen):
                of = every.of.get(number, {})
                found = {units: gb_s for units, gb_s in of.items() if gb_s >= floor.bus_gb_s}
                stage.add(number, found, found)
            return stage

        def best(terms: Terms, ask: SetCriteria, found: Seat) -> float | None:
            return terms.sets.best(terms.pool if found.only is None else found.only, ask, floor, by)

        for number, found in self._of_new(stage, offers, shape, best):
            stage.add(number, found, found)
        return stage

    def _of_new(
        self,
        stage: OfferValues[V],
        offers: OfferMask,
        shape: ShareSize,
        answer: Callable[[Terms, SetCriteria, Seat], V | None],
    ) -> Iterator[tuple[OfferNumber, dict[int, V]]]:
        """By units what those offers of the mask have that have not been asked yet."""
        new = offers & ~stage.seen
        if not new:
            return
        asks = [(gpus // shape.unit, self._ask(gpus)) for gpus in self._sizes(shape)]
        for number in numbers_of(new):
            offer, found = self._offers[number], dict[int, V]()
            for units, ask in asks:
                if ask.gpus > offer.gpus:
                    break
                if self._joined and ask.gpus < offer.fewest_joined(self._joined):
                    continue
                if ask.transport is not None:
                    ask = ask._replace(nics=offer.terms.nics)  # noqa: PLW2901 - each offer's own
                seated = self._seat(offer.terms, ask, shape)
                share = None if seated is None else answer(offer.terms, ask, seated)
                if share is not None:
                    found[units] = share
            yield number, found

    def shares(self, offers: OfferMask, shape: ShareSize, floor: Value) -> OfferValues[OfferShare]:
        """The shares to take of the offers of this mask at or above the floor, and what each costs."""
        key = self.key(shape, floor)
        stage = self._tables.choices.kept(key, OfferValues)
        for number, found in self._of_new(stage, offers, shape, partial(self._share, floor)):
            stage.add(number, found, dict.fromkeys(found, 0.0))
        return stage

    def _share(self, floor: Value, terms: Terms, ask: SetCriteria, found: Seat) -> OfferShare | None:
        pool = terms.pool if found.only is None else found.only
        choice = terms.sets.choose(pool, terms.free, ask, floor, self._experts)
        if choice is None:
            return None
        unit = self._scale.unit
        cost = (
            self._scale.of_host
            + unit.torn * choice.torn
            + unit.stranded * (terms.cover.stranded(terms.free_gpus, ask.gpus) if terms.cover else 0)
            + unit.broken * (terms.free == terms.sets.facts.every != choice.mask)
            + unit.vacancy * (MANY_HOLDERS - terms.holders)
            + unit.left_gpus * (terms.free_gpus - ask.gpus)
            + unit.loss_mb_s * mb_s(choice.loss_gb_s)
            + unit.nic_distance * choice.nic_distance
            + unit.numa_nodes * choice.numa_nodes
        )
        return OfferShare(choice, found, PackedCost(cost))
