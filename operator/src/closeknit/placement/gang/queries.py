"""The searches for one way of placing a gang: how few domains hold its shares, and how good these are."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from closeknit.placement.candidates.offer import Joint, Peers
from closeknit.placement.candidates.usable_areas import Areas, OfferMask, OfferNumber, numbers_of
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.offer_values import OfferValues
from closeknit.placement.gang.share_sizes import ShareSize
from closeknit.placement.gang.share_values import ShareValues
from closeknit.placement.gpusets.set_value import Measure, Value
from closeknit.placement.spread.cheapest import EXACT_NODES, Filling
from closeknit.placement.spread.cost import PackedCost, Scale
from closeknit.placement.spread.leaf import Units
from closeknit.placement.values.budget import Budget
from closeknit.placement.values.request import Request

# Of a gang: to look for fewer in as few domains takes as long as all the rest, and finds some hundredths fewer.
MANY_NODES = 128
V = TypeVar("V")


class Site(NamedTuple):
    """What all ways of placing one gang have in common."""

    request: Request
    levels: tuple[str, ...]
    level_bandwidth_gb_s: Mapping[str, float]
    rail_isolated: bool
    ground: Areas
    scale: Scale
    tables: Tables
    joined: Joint = Joint.NONE
    """Whether NVLink joins the nodes of the gang: it lies in one NVLink domain, and its Pods can have IMEX channels."""


class Counted(NamedTuple):
    """The fewest domains that were found to hold shares of one shape."""

    cost: PackedCost
    """Of domains and hosts alone."""
    shape: ShareSize
    is_proven: bool
    """Whether no spread of such shares needs fewer domains; of hosts it may need fewer."""


class SpreadQueries:
    """The spreads of one way's nodes."""

    def __init__(self, site: Site, values: ShareValues, peers: Peers, mask: OfferMask, budget: Budget) -> None:
        """`mask` is that of the peers' offers that are there; the budget is that of one search."""
        self._budget = budget
        self._site = site
        self._values = values
        self._peers = peers
        self._mask = mask
        self._counts = site.ground.counts
        self._known: dict[tuple[int, OfferMask] | None, Counted | None] = {}
        """(GPUs of equal shares, mask of the offers that have them) -> the fewest domains."""
        self._worse: set[tuple[tuple[int, OfferMask], PackedCost | None]] = set()
        """Those of them that certainly need more domains than this."""

    def is_alone(self, shape: ShareSize) -> bool:
        """Whether one share is all of the gang."""
        return shape.equal and shape.unit == self._site.request.gpus

    def filling(
        self,
        shape: ShareSize,
        floor: Value,
        stage: OfferValues[V],
        units_of: Callable[[OfferNumber], Units],
        *,
        at_least: float = 0.0,
        by: Measure = Measure.BUS,
        counts_free: bool,
    ) -> Filling | None:
        """The search for shares that cost so much; None where there are too few of them at all."""
        gpus = self._site.request.gpus
        nodes = stage.fewest(-(-gpus // shape.unit), self._mask, self._counts, at_least)
        if nodes is None:
            return None
        able = stage.able(self._mask, at_least)
        is_equal = stage.has_units(able, at_least) == {1}
        is_exact = (
            able.bit_count() <= EXACT_NODES and sum(self._counts[number] for number in numbers_of(able)) <= EXACT_NODES
        )
        counts_hosts = not is_equal and nodes <= MANY_NODES
        root = self._site.ground.root
        # A job of another size may have fewer ways beside, and so larger parts.
        most_steps = self._budget.of_areas(root.branching)
        key = (
            *(self._values.key(shape, floor), self._peers, by, at_least),
            *(counts_free, counts_hosts, is_equal, is_exact, most_steps),
        )
        make = partial(
            Filling,
            self._site.scale,
            self._site.tables.alike,
            most_steps,
            is_equal=is_equal,
            is_exact=is_exact,
            counts_hosts=counts_hosts,
            counts_free=counts_free,
        )
        filling = self._site.tables.filling(key, make, root.areas)
        filling.follow(root, able, units_of)
        return filling if filling.capacity * shape.unit >= gpus else None

    def counted(
        self, shape: ShareSize, floor: Value, stage: OfferValues[float], than: PackedCost | None = None
    ) -> Counted | None:
        """The fewest domains of each level; None where there are too few shares, or more domains are certainly needed
        `than` these."""
        return self._counted(shape, floor, stage, than=than)

    def highest(self, counted: Counted, floor: Value, by: Measure) -> float:
        """The highest worth that every share can have with no more domains."""
        shape = counted.shape
        stage = self._values.worth(self._mask, shape, floor, by)
        values = stage.worths(self._mask)
        if self.is_alone(shape):  # one node is one domain of each level, whichever it is
            return values[-1]
        units = self._site.request.gpus // shape.unit
        *_, nodes = self._site.scale.domains(counted.cost)
        low, high = 0, len(values) - 1  # values[low] is known to do
        while low < high:
            middle = (low + high + 1) // 2
            fewest = stage.fewest(units, self._mask, self._counts, values[middle])
            is_enough = fewest is not None and fewest <= nodes  # else nothing of it need be searched
            found = self._counted(shape, floor, stage, values[middle], by, counted.cost) if is_enough else None
            if found and found.cost == counted.cost:
                low = middle
            else:
                high = middle - 1
        return values[low]

    def _counted(
        self,
        shape: ShareSize,
        floor: Value,
        stage: OfferValues[float],
        at_least: float = 0.0,
        by: Measure = Measure.BUS,
        most: PackedCost | None = None,
        than: PackedCost | None = None,
    ) -> Counted | None:
        """The fewest domains, with shares that are worth this; None where they are certainly not as few as `most` at
        each level, or certainly more `than` that.
        Equal shares that the same nodes have need the same."""
        key = (shape.unit, stage.able(self._mask, at_least)) if shape.equal else None
        if key in self._known:
            found = self._known[key]
            return found and found._replace(shape=shape)
        if key is not None and (key, than) in self._worse:
            return None
        host = self._site.scale.of_host

        def units_of(number: OfferNumber) -> Units:
            return {given: host for given, value in stage.of[number].items() if value >= at_least}

        filling = self.filling(shape, floor, stage, units_of, at_least=at_least, by=by, counts_free=False)
        units = self._site.request.gpus // shape.unit
        if filling is not None and most is not None and not filling.may_cost(units, most):
            return None
        if filling is not None and than is not None and filling.costs_more(units, than):
            if key is not None:
                self._worse.add((key, than))
            return None
        cost = filling.cost(units) if filling else None
        found = None if filling is None or cost is None else Counted(cost, shape, filling.is_least(units))
        if key is not None:
            self._known[key] = found
        return found
