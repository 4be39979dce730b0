"""What shares of each offer are worth to one job, and which set of GPUs each of them takes."""

from collections.abc import Mapping

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.placement.ask import Ask, Value
from closeknit.placement.binding import Seat, seat
from closeknit.placement.cost import Scale, own
from closeknit.placement.offer import Offer, Terms
from closeknit.placement.request import Request
from closeknit.placement.shapes import Shape
from closeknit.placement.tables import Share, Tables

Worth = Mapping[int, Mapping[int, float]]
"""Number of an offer -> units -> the best that so many of its GPUs can be."""


class Shares:
    """The shares of one way of placing a gang; what the tables have of them is not worked out again."""

    def __init__(
        self,
        tables: Tables,
        request: Request,
        offers: Mapping[int, Offer],
        transport: Transport | None,
        *,
        levels: int,
        scale: Scale,
    ) -> None:
        self._tables = tables
        self._request = request
        self._offers = offers
        self._transport = transport
        self._levels = levels
        self._scale = scale
        self._most = max((offer.gpus for offer in offers.values()), default=0)

    def _ask(self, gpus: int) -> Ask:
        request = self._request
        blocks = request.group > 1 and request.nvlink is not NvlinkPolicy.IGNORED and gpus % request.group == 0
        return Ask(
            gpus,
            block=request.group if blocks else 1,
            joined=request.nvlink is NvlinkPolicy.REQUIRED,
            transport=self._transport,
        )

    def _sizes(self, shape: Shape) -> range:
        """How many GPUs a node can be asked for."""
        most = shape.unit if shape.equal else min(self._most, self._request.gpus)
        return range(shape.unit, most + 1, shape.unit)

    def _seat(self, terms: Terms, ask: Ask, shape: Shape) -> Seat | None:
        found = seat(terms, ask, self._request.binding)
        if found is None or not shape.rail:
            return found
        only = terms.sets.mask_of_indexes(shape.rail)
        if only.bit_count() < ask.gpus or only & ~terms.pool or found.only not in (None, only):
            return None
        return Seat(found.binding, only)

    def worth(self, shape: Shape, floor: Value, *, block: bool = False) -> Worth:
        """The best bus bandwidth, or slowest block, of every share that an offer has at or above a floor."""
        worth: dict[int, dict[int, float]] = {}
        for gpus in self._sizes(shape):
            ask, units = self._ask(gpus), gpus // shape.unit
            key = (ask, self._request.binding, shape.rail, floor, block)
            values = self._tables.values.get(key)
            if values is None:
                values = self._tables.values.put(key, {})
            for number, offer in self._offers.items():
                try:
                    value = values[offer]
                except KeyError:
                    value = values[offer] = self._value(offer.terms, ask, shape, floor, block=block)
                if value is not None:
                    worth.setdefault(number, {})[units] = value
        return worth

    def _value(self, terms: Terms, ask: Ask, shape: Shape, floor: Value, *, block: bool) -> float | None:
        found = self._seat(terms, ask, shape)
        if found is None:
            return None
        pool = terms.pool if found.only is None else found.only
        return (terms.sets.best_block if block else terms.sets.best_bus)(pool, ask, floor)

    def shares(self, shape: Shape, floor: Value) -> dict[int, dict[int, Share]]:
        """Number of an offer -> units -> the share to take of it at or above the floor, and what that costs."""
        shares: dict[int, dict[int, Share]] = {}
        for gpus in self._sizes(shape):
            ask, units = self._ask(gpus), gpus // shape.unit
            key = (ask, self._request.binding, shape.rail, floor, self._levels)
            choices = self._tables.choices.get(key)
            if choices is None:
                choices = self._tables.choices.put(key, {})
            for number, offer in self._offers.items():
                try:
                    share = choices[offer]
                except KeyError:
                    share = choices[offer] = self._share(offer.terms, ask, shape, floor)
                if share is not None:
                    shares.setdefault(number, {})[units] = share
        return shares

    def _share(self, terms: Terms, ask: Ask, shape: Shape, floor: Value) -> Share | None:
        found = self._seat(terms, ask, shape)
        if found is None:
            return None
        choice = terms.sets.choose(terms.pool if found.only is None else found.only, terms.free, ask, floor)
        if choice is None:
            return None
        cost = own(
            self._levels,
            broken=int(terms.free == terms.sets.every != choice.mask),
            loss_gb_s=choice.loss_gb_s,
            left_gpus=terms.free.bit_count() - ask.gpus,
            nic_distance=choice.nic_distance,
            numa_nodes=choice.numa_nodes,
        )
        return Share(choice, found, self._scale.packed(cost))
