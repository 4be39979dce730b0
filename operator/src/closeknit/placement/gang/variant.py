"""The nodes that one way of placing a gang may use, and the best layout over them.

A way fixes the transport between nodes and which groups stay whole; what is left is which nodes, which GPUs, and in
which shares. Nodes of one offer are worked out once.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from math import inf
from operator import attrgetter

from closeknit.placement.candidates.offer import Peers
from closeknit.placement.candidates.usable_areas import OfferNumber, mask_of_offers, numbers_of
from closeknit.placement.gang.cache import OfferShare
from closeknit.placement.gang.layout import Draft, Layout, Merit, Part, Sketch
from closeknit.placement.gang.offer_values import OfferValues
from closeknit.placement.gang.prediction import level_cap, level_floor, predict, predict_over_nvlink, undescribed
from closeknit.placement.gang.queries import Counted, Site, SpreadQueries
from closeknit.placement.gang.share_sizes import EqualShares, ShareSize, ShareSizes
from closeknit.placement.gang.share_values import ShareValues
from closeknit.placement.gpusets.set_value import Measure, Value
from closeknit.placement.spread.cheapest import Filling
from closeknit.placement.spread.cost import PackedCost
from closeknit.placement.spread.leaf import Units
from closeknit.placement.values.budget import SEARCHES, SEARCHES_OF_RAIL, Budget


class Variant:
    """The nodes of one way."""

    def __init__(self, site: Site, peers: Peers, numbers: Sequence[OfferNumber], budget: Budget, *, kept: int) -> None:
        """`numbers` are those of all offers in the ground that the peers have, less some with too few GPUs for any
        share; the budget is theirs. Of each `kept` ranks that follow each other none leaves its node."""
        self._site = site
        self._request = site.request
        self._transport = peers.transport
        offers, counts = site.ground.offers, site.ground.counts
        self._offers = {number: offers[number] for number in numbers if offers[number].gpus}
        self._counts = counts
        self._minimum = Value(0.0, site.request.min_bus_bandwidth_gb_s or 0.0)
        self._mask = mask_of_offers(self._offers)
        most = max((offer.gpus for offer in self._offers.values()), default=0)
        self._values = ShareValues(
            site.tables,
            site.request,
            offers,
            most,
            None if site.joined else peers.transport,  # NICs carry nothing between nodes that NVLink joins
            scale=site.scale,
            kept=kept,
            joined=site.joined,
        )
        self._peers = peers
        self._budget = budget
        self._shapes = ShareSizes(
            site.request,
            {offer: counts[number] for number, offer in self._offers.items()},
            most,
            kept,
            site.rail_isolated,
            site.joined,
        )

    def sketches(self, shapes: Sequence[ShareSize]) -> list[Sketch]:
        """The best layout of each of these shapes that needs the fewest domains, not drawn yet."""
        return self._sketches(self._fewest(shapes))

    def _sketches(self, counted: Sequence[Counted]) -> list[Sketch]:
        """Those of what is counted, which needs as many domains, less the equal shares that cannot be the best."""
        sketches: list[Sketch] = []
        for at_best, floor, entry in sorted(map(self._floored, counted), key=lambda found: found[0]):
            is_bound = entry.is_proven and entry.shape.equal
            if is_bound and any(sketch.merit < at_best for sketch in sketches):
                continue
            sketch = self._sketch(entry, floor, at_best)
            if sketch and (self._minimum.bus_gb_s == 0 or sketch.layout()):
                sketches.append(sketch)
        return sketches

    def draft(self) -> Draft | None:
        """The best layouts on several nodes, as far as the fewest domains tell; None where there are none.

        Frameworks count on equal shares, so that these come first as long as they need at most twice the hosts that
        the largest shares would; only then does fewer domains come before equal shares.
        """
        if self._is_too_slow():
            return None
        turns = self._turns()
        for shapes in turns:
            if counted := self._fewest(shapes):
                return Draft(min(map(self._at_best, counted)), partial(self._first_sketches, counted, turns))
        return None

    def _first_sketches(self, counted: Sequence[Counted], later: Iterator[list[ShareSize]]) -> list[Sketch]:
        """Those of what is counted; where none of them will do, those of the first later shapes that have any."""
        return self._sketches(counted) or next(filter(None, map(self.sketches, later)), [])

    def can(self, shapes: Sequence[ShareSize]) -> bool:
        """Whether there is a layout of one of these shapes."""
        if self._request.level is None and self._minimum.bus_gb_s == 0:
            return any(self._is_possible(shape) for shape in shapes)
        if self._minimum.bus_gb_s == 0:
            return bool(self._fewest(shapes))
        return bool(self.sketches(shapes))

    def can_any_shape(self) -> bool:
        """Whether there is a layout on several nodes."""
        return not self._is_too_slow() and any(self.can(shapes) for shapes in self._turns())

    @cached_property
    def _equal(self) -> EqualShares:
        return self._shapes.equal()

    @cached_property
    def _spreads(self) -> SpreadQueries:
        rails = sum(1 for shape in self._equal.shapes if shape.rail)
        budget = self._budget.among(max(SEARCHES, SEARCHES_OF_RAIL * rails))
        return SpreadQueries(self._site, self._values, self._peers, self._mask, budget)

    def has_untried(self, unit: int, domains: Sequence[int]) -> bool:
        """Whether a layout that was not tried may be better than one of shares of so many GPUs, over so many domains:
        smaller shares need more hosts, and are better where they need fewer of the others."""
        if self._is_too_slow():
            return False
        return any(each >= unit or any(number > 1 for number in domains[:-1]) for each in self._equal.cut)

    def _is_too_slow(self) -> bool:
        """Whether sockets between nodes cannot be known to be as fast as the job demands: they are no faster than what
        is described of any level, and nothing is known of them where none is."""
        described = self._site.level_bandwidth_gb_s.values()
        is_over_sockets = self._transport is None and not self._site.joined
        return is_over_sockets and self._minimum.bus_gb_s > max(described, default=0.0)

    def _turns(self) -> Iterator[list[ShareSize]]:
        """Shapes that are tried together; the next ones only when none of those before can be had."""
        shapes = self._equal.shapes
        if self._request.gpus_per_node is not None or self._site.rail_isolated or self._site.joined:
            yield [*shapes]  # unequal shares could be too small for what joins the nodes
            return
        near = [shape for shape in shapes if self._shapes.is_near(shape)]
        yield near
        yield [*shapes[len(near) :], self._shapes.ragged()]

    def _is_possible(self, shape: ShareSize) -> bool:
        stage = self._worth(shape)
        able = stage.able(self._mask)
        each = {number: len(stage.of[number]) for number in numbers_of(able)}
        if all(max(stage.of[number]) == most for number, most in each.items()):
            units = sum(self._counts[number] * most for number, most in each.items())
            return units * shape.unit >= self._request.gpus  # each node gives any number, so that any sum can be had
        return self._spreads.counted(shape, self._minimum, stage) is not None

    def _worth(self, shape: ShareSize) -> OfferValues[float]:
        return self._values.worth(self._mask, shape, self._minimum)

    def _fewest(self, shapes: Sequence[ShareSize]) -> list[Counted]:
        """Those shapes that need the fewest domains, where these are inside the required level."""
        counted: list[Counted] = []
        for shape in sorted(shapes, key=attrgetter("equal")):  # unequal shares first: no equal ones need fewer domains
            if counted and counted[0].is_proven and self._needs_more_hosts(shape, counted[0]):
                continue
            least = min((entry.cost for entry in counted), default=None)
            found = self._spreads.counted(shape, self._minimum, self._worth(shape), than=least)
            if found is not None:
                counted.append(found)
        fewest = min((entry.cost for entry in counted), default=None)
        if fewest is None or not self._is_inside_required_level(fewest):
            return []
        return [entry for entry in counted if entry.cost == fewest]

    def _needs_more_hosts(self, equal: ShareSize, counted: Counted) -> bool:
        """Whether equal shares use more nodes than these unequal ones do."""
        hosts = self._site.scale.domains(counted.cost)[-1]
        return not counted.shape.equal and self._request.gpus > hosts * equal.unit

    def _is_inside_required_level(self, cost: PackedCost) -> bool:
        """Fewest domains from the outside in means one domain of the required level, wherever one can do."""
        required = self._request.level
        return required is None or self._site.scale.domains(cost)[self._site.levels.index(required)] == 1

    def _floor(self, counted: Counted, counts: tuple[int, ...]) -> Value:
        """What every share can be worth with no more domains: first its slowest block, then its bus bandwidth, and
        where nothing but one node limits it what its NVLinks can carry at all."""
        site = self._site
        block = self._spreads.highest(counted, self._minimum, Measure.BLOCK) if self._values.has_blocks else inf
        floor = self._minimum._replace(block_gb_s=block)
        bus = self._spreads.highest(counted, floor, Measure.BUS)
        cap = None if site.joined else level_cap(site.levels, site.level_bandwidth_gb_s, counts)
        if cap is not None:  # faster shares than the network would be wasted
            bus = max(self._minimum.bus_gb_s, min(bus, cap.gb_s))
        floor = floor._replace(bus_gb_s=bus)
        if self._spreads.is_alone(counted.shape):
            floor = floor._replace(tree_gb_s=self._spreads.highest(counted, floor, Measure.TREE))
        return floor

    def _at_best(self, counted: Counted) -> Merit:
        """What no layout with these domains is better than."""
        shape, stage = counted.shape, self._worth(counted.shape)
        *outer, hosts = self._site.scale.domains(counted.cost)
        if not shape.equal:
            hosts = stage.fewest(self._request.gpus // shape.unit, self._mask, self._counts) or 0
        return Merit(
            is_far=not self._shapes.is_near(shape),
            domains=(*outer, hosts) if counted.is_proven else (),
            is_unequal=not shape.equal,
            minus_block_gb_s=-inf,
            minus_bus_gb_s=-max(stage.worths(self._mask)),
            cost=PackedCost(0),
        )

    def _floored(self, counted: Counted) -> tuple[Merit, Value, Counted]:
        """With the floor of its shares, and what no layout of as many domains is better than."""
        shape, counts = counted.shape, self._site.scale.domains(counted.cost)
        floor = self._floor(counted, counts)
        at_best = Merit(
            is_far=not self._shapes.is_near(shape),
            domains=counts,
            is_unequal=not shape.equal,
            minus_block_gb_s=-floor.block_gb_s,
            minus_bus_gb_s=-floor.bus_gb_s,
            cost=PackedCost(0),
        )
        return at_best, floor, counted

    def _sketch(self, counted: Counted, floor: Value, at_best: Merit) -> Sketch | None:
        """The best layout of one shape, as far as it has to be known to compare it."""
        shape = counted.shape
        stage = self._values.shares(self._mask, shape, floor)

        def units_of(number: OfferNumber) -> Units:
            return {given: cost for given, (_, _, cost) in stage.of[number].items()}

        filling = self._spreads.filling(shape, floor, stage, units_of, counts_free=True)
        total = self._request.gpus // shape.unit
        cost = filling.cost(total) if filling else None
        if filling is None or cost is None:
            return None
        drawn = self._site.scale.domains(cost)
        merit = at_best._replace(domains=drawn, cost=cost)
        return Sketch(merit, shape.rail, partial(self._layout, filling, total, stage.of, drawn))

    def _layout(
        self,
        filling: Filling,
        total: int,
        shares: Mapping[OfferNumber, Mapping[int, OfferShare]],
        counts: tuple[int, ...],
    ) -> Layout | None:
        """The nodes of the cheapest spread; None where they may be slower than the job demands."""
        picks, is_fewest = filling.spread(total)
        parts = tuple(
            Part(name, self._offers[number], choice.mask, seat.binding, choice.is_cut)
            for name, given, number in picks
            for choice, seat, _ in (shares[number][given],)
        )
        gpus = sum(part.mask.bit_count() for part in parts)
        if gpus != self._request.gpus:
            raise AssertionError(f"a spread of {self._request.gpus} GPUs has {gpus}")
        network = (self._site.levels, self._site.level_bandwidth_gb_s, counts)
        placed = [(part.node, part.offer.terms.sets, part.mask, part.offer.terms.nics) for part in parts]
        if self._site.joined and len(parts) > 1:
            prediction = predict_over_nvlink(placed)
        else:
            known = (level_cap(*network), level_floor(*network), undescribed(*network))
            prediction = predict(placed, self._transport, *known)
        sure = prediction.gb_s if prediction.gb_s is not None else prediction.at_least_gb_s
        if self._minimum.bus_gb_s and self._request.gpus > 1 and (sure is None or sure < self._minimum.bus_gb_s):
            return None
        return Layout(parts, self._transport if len(parts) > 1 else None, counts, prediction, is_fewest)
