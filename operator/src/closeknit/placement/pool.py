"""The nodes that one way of placing a gang may use, and the best layout over them.

A way fixes the transport between nodes and whether groups stay whole; what is left is which nodes, which GPUs, and in
which shares. Nodes of one offer are worked out once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import gcd, inf
from typing import NamedTuple, TypeVar

from closeknit.api.names import HOST_LEVEL
from closeknit.api.nodetopology import Transport
from closeknit.placement.ask import Measure, Value
from closeknit.placement.cost import Scale
from closeknit.placement.fabric import EXACT_NODES, Filling
from closeknit.placement.ground import Ground, numbers_of
from closeknit.placement.hosts import Units
from closeknit.placement.layout import Layout, Merit, Part, Sketch
from closeknit.placement.prediction import level_cap, level_floor, predict
from closeknit.placement.request import Request
from closeknit.placement.shapes import Shape, Shapes
from closeknit.placement.shares import Shares
from closeknit.placement.stage import Stage
from closeknit.placement.tables import Share, Tables

V = TypeVar("V")

# The level whose domains a tensor x context group keeps to. Hosts of one NVLink domain reach each other over NVLink,
# too, but only with an IMEX channel in their Pods, which they do not get.
GROUP_LEVEL = HOST_LEVEL


class Site(NamedTuple):
    """What all ways of placing one gang have in common."""

    request: Request
    levels: tuple[str, ...]
    level_bandwidth_gb_s: Mapping[str, float]
    rail_isolated: bool
    ground: Ground
    scale: Scale
    tables: Tables


class Counted(NamedTuple):
    """The fewest domains that hold shares of one shape."""

    cost: int
    """Of domains and hosts alone."""
    shape: Shape


class Pool:
    """The nodes of one way."""

    def __init__(
        self,
        site: Site,
        numbers: Sequence[int],
        transport: Transport | None,
        *,
        whole: bool,
        kind: tuple[str, ...] | None = None,
    ) -> None:
        """`numbers` are those of all offers in the ground that have the transport and are of this kind, where there
        is one, and GPUs enough for a share."""
        self._site = site
        self._request = site.request
        self._transport = transport
        offers, counts = site.ground.offers, site.ground.counts
        self._offers = {number: offers[number] for number in numbers if offers[number].gpus}
        self._counts = counts
        self._minimum = Value(0.0, site.request.min_bus_bandwidth_gb_s or 0.0)
        self._group = site.request.group if whole else 1
        self._group_at = site.levels.index(GROUP_LEVEL)
        self._groups_on_hosts = self._group_at == len(site.levels) - 1
        self._kind = kind
        self._mask = sum(1 << number for number in self._offers)
        most = max((offer.gpus for offer in self._offers.values()), default=0)
        self._values = Shares(
            site.tables, site.request, offers, most, transport, levels=len(site.levels), scale=site.scale
        )
        self._shapes = Shapes(
            site.request,
            {offer: counts[number] for number, offer in self._offers.items()},
            most,
            self._groups_on_hosts and whole,
            site.rail_isolated,
        )

    def sketches(self, shapes: Sequence[Shape]) -> list[Sketch]:
        """The best layout of each of these shapes that needs the fewest domains, not drawn yet."""
        sketches = [sketch for counted in self._fewest(shapes) if (sketch := self._sketch(counted))]
        if self._minimum.bus_gb_s == 0:
            return sketches
        return [sketch for sketch in sketches if sketch.layout()]

    def sketches_of_any_shape(self) -> list[Sketch]:
        """The best layouts on several nodes, not drawn yet.

        Frameworks count on equal shares, so that these come first as long as they need at most twice the hosts that
        the largest shares would; only then does fewer domains come before equal shares.
        """
        return next(filter(None, map(self.sketches, self._turns())), [])

    def can(self, shapes: Sequence[Shape]) -> bool:
        """Whether there is a layout of one of these shapes."""
        if self._request.level is None and self._minimum.bus_gb_s == 0:
            return any(self._is_possible(shape) for shape in shapes)
        if self._minimum.bus_gb_s == 0:
            return bool(self._fewest(shapes))
        return bool(self.sketches(shapes))

    def can_any_shape(self) -> bool:
        """Whether there is a layout on several nodes."""
        return any(self.can(shapes) for shapes in self._turns())

    def _turns(self) -> Iterator[list[Shape]]:
        """Shapes that are tried together; the next ones only when none of those before can be had."""
        shapes = list(self._shapes.equal())
        if self._request.gpus_per_node is not None or self._site.rail_isolated:
            yield shapes
            return
        near = [shape for shape in shapes if self._shapes.is_near(shape)]
        yield near
        yield [*shapes[len(near) :], self._shapes.ragged()]

    def _is_possible(self, shape: Shape) -> bool:
        stage = self._values.worth(self._mask, shape, self._minimum)
        able = stage.able(self._mask)
        each = {number: len(stage.of[number]) for number in numbers_of(able)}
        if self._groups_on_hosts and all(max(stage.of[number]) == most for number, most in each.items()):
            units = sum(self._counts[number] * most for number, most in each.items())
            return units * shape.unit >= self._request.gpus  # each node gives any number, so that any sum can be had
        return self._domains(shape, self._minimum, stage) is not None

    def _fewest(self, shapes: Sequence[Shape]) -> list[Counted]:
        """Those shapes that need the fewest domains, where these are inside the required level."""
        counted = []
        for shape in shapes:
            cost = self._domains(shape, self._minimum, self._values.worth(self._mask, shape, self._minimum))
            if cost is not None:
                counted.append(Counted(cost, shape))
        fewest = min((entry.cost for entry in counted), default=None)
        if fewest is None or not self._is_inside_required_level(fewest):
            return []
        return [entry for entry in counted if entry.cost == fewest]

    def _is_inside_required_level(self, cost: int) -> bool:
        """Fewest domains from the outside in means one domain of the required level, wherever one can do."""
        required = self._request.level
        return required is None or self._site.scale.domains(cost)[self._site.levels.index(required)] == 1

    def _filling(
        self,
        shape: Shape,
        floor: Value,
        stage: Stage[V],
        units_of: Callable[[int], Units],
        *,
        at_least: float = 0.0,
        by: Measure = Measure.BUS,
        counts_free: bool,
    ) -> Filling | None:
        """The search for shares that cost so much; None where there are too few of them at all."""
        if not stage.has(-(-self._request.gpus // shape.unit), self._mask, self._counts, at_least):
            return None
        able = stage.able(self._mask, at_least)
        is_equal = stage.has_units(able, at_least) == {1}
        is_exact = (
            able.bit_count() <= EXACT_NODES and sum(self._counts[number] for number in numbers_of(able)) <= EXACT_NODES
        )
        whole_at = None if self._groups_on_hosts else self._group_at
        whole_units = self._group // gcd(self._group, shape.unit)
        key = (
            *(self._values.key(shape, floor), self._kind, by, at_least),
            *(counts_free, is_equal, is_exact, whole_at, whole_units),
        )
        make = partial(
            Filling,
            self._site.scale,
            is_equal=is_equal,
            is_exact=is_exact,
            counts_free=counts_free,
            whole_at=whole_at,
            whole_units=whole_units,
        )
        root = self._site.ground.root
        filling = self._site.tables.filling(key, make, root.areas)
        filling.follow(root, able, units_of)
        return filling if filling.capacity * shape.unit >= self._request.gpus else None

    def _domains(
        self, shape: Shape, floor: Value, stage: Stage[float], at_least: float = 0.0, by: Measure = Measure.BUS
    ) -> int | None:
        """The fewest domains of each level, with shares that are worth this; None where there are too few."""
        host = self._site.scale.of_host

        def units_of(number: int) -> Units:
            return {given: host for given, value in stage.of[number].items() if value >= at_least}

        filling = self._filling(shape, floor, stage, units_of, at_least=at_least, by=by, counts_free=False)
        return filling.cost(self._request.gpus // shape.unit) if filling else None

    def _highest(self, counted: Counted, floor: Value, by: Measure) -> float:
        """The highest worth that every share can have with no more domains."""
        shape = counted.shape
        stage = self._values.worth(self._mask, shape, floor, by)
        values = stage.worths(self._mask)
        if self._is_alone(shape):  # one node is one domain of each level, whichever it is
            return values[-1]
        low, high = 0, len(values) - 1  # values[low] is known to do
        while low < high:
            middle = (low + high + 1) // 2
            if self._domains(shape, floor, stage, values[middle], by) == counted.cost:
                low = middle
            else:
                high = middle - 1
        return values[low]

    def _floor(self, counted: Counted, counts: tuple[int, ...]) -> Value:
        """What every share can be worth with no more domains: first its slowest block, then its bus bandwidth, and
        where nothing but one node limits it what its NVLinks can carry at all."""
        site = self._site
        block = self._highest(counted, self._minimum, Measure.BLOCK) if self._values.has_blocks else inf
        floor = self._minimum._replace(block_gb_s=block)
        bus = self._highest(counted, floor, Measure.BUS)
        cap = level_cap(site.levels, site.level_bandwidth_gb_s, counts)
        if cap is not None:  # faster shares than the network would be wasted
            bus = max(self._minimum.bus_gb_s, min(bus, cap.gb_s))
        floor = floor._replace(bus_gb_s=bus)
        if self._is_alone(counted.shape):
            floor = floor._replace(tree_gb_s=self._highest(counted, floor, Measure.TREE))
        return floor

    def _is_alone(self, shape: Shape) -> bool:
        """Whether one share is all of the gang."""
        return shape.equal and shape.unit == self._request.gpus

    def _sketch(self, counted: Counted) -> Sketch | None:
        """The best layout of one shape, as far as it has to be known to compare it."""
        shape = counted.shape
        counts = self._site.scale.domains(counted.cost)
        floor = self._floor(counted, counts)
        stage = self._values.shares(self._mask, shape, floor)

        def units_of(number: int) -> Units:
            return {given: cost for given, (_, _, cost) in stage.of[number].items()}

        filling = self._filling(shape, floor, stage, units_of, counts_free=True)
        total = self._request.gpus // shape.unit
        cost = filling.cost(total) if filling else None
        if filling is None or cost is None:
            return None
        drawn = self._site.scale.domains(cost)
        merit = Merit(
            is_far=not self._shapes.is_near(shape),
            domains=drawn,
            is_unequal=not shape.equal,
            minus_block_gb_s=-floor.block_gb_s,
            minus_bus_gb_s=-floor.bus_gb_s,
            cost=cost,
        )
        return Sketch(merit, shape.rail, partial(self._layout, filling, total, stage.of, drawn))

    def _layout(
        self, filling: Filling, total: int, shares: Mapping[int, Mapping[int, Share]], counts: tuple[int, ...]
    ) -> Layout | None:
        """The nodes of the cheapest spread; None where they may be slower than the job demands."""
        parts = tuple(
            Part(name, self._offers[number], choice.mask, seat.binding, choice.is_cut)
            for name, given, number in filling.picks(total)
            for choice, seat, _ in (shares[number][given],)
        )
        is_fewest = filling.is_proven
        network = (self._site.levels, self._site.level_bandwidth_gb_s, counts)
        prediction = predict(
            [(part.node, part.offer.terms.sets, part.mask) for part in parts],
            self._transport,
            level_cap(*network),
            level_floor(*network),
        )
        sure = prediction.gb_s if prediction.gb_s is not None else prediction.at_least_gb_s
        if self._minimum.bus_gb_s and self._request.gpus > 1 and (sure is None or sure < self._minimum.bus_gb_s):
            return None
        return Layout(parts, self._transport if len(parts) > 1 else None, counts, prediction, is_fewest)
