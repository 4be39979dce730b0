"""What shares of each offer are worth to one job, and which set of GPUs each of them takes."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TypeVar

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.cluster.group import MANY_HOLDERS
from closeknit.placement.ask import ANY, Ask, Measure, Value
from closeknit.placement.binding import Seat, seat
from closeknit.placement.cost import Scale
from closeknit.placement.ground import numbers_of
from closeknit.placement.offer import Offer, Terms
from closeknit.placement.request import Request
from closeknit.placement.shapes import Shape
from closeknit.placement.stage import Stage
from closeknit.placement.tables import Same, Share, Tables

V = TypeVar("V")


class Shares:
    """The shares of one way of placing a gang; what the tables have of them is not worked out again."""

    def __init__(
        self,
        tables: Tables,
        request: Request,
        offers: Sequence[Offer],
        most: int,
        transport: Transport | None,
        *,
        levels: int,
        scale: Scale,
    ) -> None:
        """No offer in question has more GPUs than `most`."""
        self._tables = tables
        self._request = request
        self._offers = offers
        self._transport = transport
        self.has_blocks = request.group > 1 and request.nvlink is not NvlinkPolicy.IGNORED
        """Whether groups inside a share can be of different worth."""
        self._scale = scale
        self._most = min(most, request.gpus)
        self._family = (Same(offers), transport, request.group, request.nvlink, request.binding, levels)

    def _ask(self, gpus: int) -> Ask:
        request = self._request
        blocks = self.has_blocks and gpus % request.group == 0
        return Ask(
            gpus,
            block=request.group if blocks else 1,
            joined=request.nvlink is NvlinkPolicy.REQUIRED,
            transport=self._transport,
            alone=gpus == request.gpus,
        )

    def _sizes(self, shape: Shape) -> range:
        """How many GPUs a node can be asked for."""
        most = shape.unit if shape.equal else self._most
        return range(shape.unit, most + 1, shape.unit)

    def _seat(self, terms: Terms, ask: Ask, shape: Shape) -> Seat | None:
        found = seat(terms, ask, self._request.binding)
        if found is None or not shape.rail:
            return found
        only = terms.sets.mask_of_indexes(shape.rail)
        if only.bit_count() < ask.gpus or only & ~terms.pool or found.only not in (None, only):
            return None
        return Seat(found.binding, only)

    def key(self, shape: Shape, floor: Value) -> Hashable:
        """Equal for equal shares of equal offers, from decision to decision."""
        if not self.has_blocks:
            floor = floor._replace(block_gb_s=ANY.block_gb_s)
        sizes = self._sizes(shape)
        return (self._family, shape, floor, sizes.stop, self._request.gpus in sizes)

    def worth(self, offers: int, shape: Shape, floor: Value, by: Measure = Measure.BUS) -> Stage[float]:
        """The best bus bandwidth, or other part of its value, of every share at or above a floor that the offers of
        this mask have; others may be in it."""
        key = (self.key(shape, floor), by)
        stage = self._tables.values.get(key) or self._tables.values.put(key, Stage())
        self._ask_new(stage, offers, shape, partial(self._value, shape=shape, floor=floor, by=by), lambda worth: worth)
        return stage

    def _ask_new(
        self,
        stage: Stage[V],
        offers: int,
        shape: Shape,
        answer: Callable[[Terms, Ask], V | None],
        worth: Callable[[V], float],
    ) -> None:
        """Files what those offers of the mask have that have not been asked yet."""
        new = offers & ~stage.seen
        if not new:
            return
        asks = [(gpus // shape.unit, self._ask(gpus)) for gpus in self._sizes(shape)]
        for number in numbers_of(new):
            offer = self._offers[number]
            found = {
                units: share
                for units, ask in asks
                if ask.gpus <= offer.gpus and (share := answer(offer.terms, ask)) is not None
            }
            stage.add(number, found, {units: worth(share) for units, share in found.items()})

    def _value(self, terms: Terms, ask: Ask, shape: Shape, floor: Value, by: Measure) -> float | None:
        found = self._seat(terms, ask, shape)
        if found is None:
            return None
        pool = terms.pool if found.only is None else found.only
        return terms.sets.best(pool, ask, floor, by)

    def shares(self, offers: int, shape: Shape, floor: Value) -> Stage[Share]:
        """The shares to take of the offers of this mask at or above the floor, and what each costs."""
        stage = self._tables.choices.get(self.key(shape, floor)) or self._tables.choices.put(
            self.key(shape, floor), Stage()
        )
        self._ask_new(stage, offers, shape, partial(self._share, shape=shape, floor=floor), lambda _: 0.0)
        return stage

    def _share(self, terms: Terms, ask: Ask, shape: Shape, floor: Value) -> Share | None:
        found = self._seat(terms, ask, shape)
        if found is None:
            return None
        choice = terms.sets.choose(terms.pool if found.only is None else found.only, terms.free, ask, floor)
        if choice is None:
            return None
        cost = self._scale.of_share(
            broken=int(terms.free == terms.sets.every != choice.mask),
            vacancy=MANY_HOLDERS - terms.holders,
            left_gpus=terms.free.bit_count() - ask.gpus,
            loss_gb_s=choice.loss_gb_s,
            nic_distance=choice.nic_distance,
            numa_nodes=choice.numa_nodes,
        )
        return Share(choice, found, cost)
