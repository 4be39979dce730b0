"""The nodes that one way of placing a gang may use, and the best plan over them.

A way fixes the transport between nodes and whether groups stay whole; what is left is which nodes, which GPUs, and in
which shares. Machines that are alike, with the same GPUs free, are worked out once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, comb, gcd
from typing import NamedTuple

from closeknit.api.names import HOST_LEVEL, NVLINK_DOMAIN_LEVEL
from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.api.trainingjob_status import Binding
from closeknit.placement.fabric import Cost, Domain, Filling, Spread
from closeknit.placement.prediction import Prediction, level_cap, level_floor, predict
from closeknit.placement.request import Request
from closeknit.placement.sets import KEPT_SIZES, MANY_SETS, Ask, Choice, Value
from closeknit.placement.survey import Candidate, Profile, Seat

MORE_HOSTS = 2  # equal shares may need so many times the hosts of the largest shares


class Part(NamedTuple):
    """The share of one node."""

    candidate: Candidate
    mask: int
    binding: Binding


@dataclass(frozen=True, slots=True)
class Plan:
    """A gang's nodes and GPUs, by node name."""

    parts: tuple[Part, ...]
    transport: Transport | None
    """RDMA transport between nodes; None on one node, and for sockets."""
    counts: tuple[int, ...]
    """How many domains of each level it uses, host last."""
    prediction: Prediction
    merit: tuple[object, ...]
    """Smaller is better, among plans of one way."""


class Shape(NamedTuple):
    """How a gang is cut."""

    unit: int
    """A node gives a multiple of so many GPUs."""
    equal: bool
    """Whether it gives exactly that many."""
    rail: tuple[int, ...] = ()
    """Where rails are joined nowhere: the NVML indexes that every node must give."""


class Site(NamedTuple):
    """What all ways of placing one gang have in common."""

    request: Request
    levels: tuple[str, ...]
    level_bandwidth_gb_s: Mapping[str, float]
    rail_isolated: bool
    candidates: Sequence[Candidate]
    root: Domain


class Pool:
    """The nodes of one way."""

    def __init__(self, site: Site, members: Sequence[int], transport: Transport | None, *, whole: bool) -> None:
        self._site = site
        self._request = site.request
        self._transport = transport
        self._profiles: dict[Profile, list[int]] = {}
        for number in members:
            profile = site.candidates[number].profile
            if profile.pool:
                self._profiles.setdefault(profile, []).append(number)
        self.gpus = sum(profile.pool.bit_count() * len(numbers) for profile, numbers in self._profiles.items())
        self._most = max((profile.pool.bit_count() for profile in self._profiles), default=0)
        self._minimum = Value(0.0, site.request.min_bus_bandwidth_gb_s or 0.0)
        self._group = site.request.group if whole else 1
        # A group never leaves its node but where nodes share NVLink.
        self._group_at = site.levels.index(NVLINK_DOMAIN_LEVEL if NVLINK_DOMAIN_LEVEL in site.levels else HOST_LEVEL)
        self._groups_on_hosts = self._group_at == len(site.levels) - 1

    def best(self, shapes: Sequence[Shape]) -> Plan | None:
        """The best plan of these shapes: the fewest domains decide, then the rest of the order of merit."""
        counted = [(counts, shape) for shape in shapes if (counts := self._counts(shape, self._minimum)) is not None]
        fewest = min((counts for counts, _ in counted), default=None)
        if fewest is None or not self._is_inside_required_level(fewest):
            return None
        plans = [self._plan(shape, fewest) for counts, shape in counted if counts == fewest]
        return min((plan for plan in plans if plan), key=lambda plan: plan.merit, default=None)

    def best_of_any_shape(self) -> Plan | None:
        """The best plan on several nodes.

        Frameworks count on equal shares, so that these come first as long as they need at most twice the hosts that
        the largest shares would; only then does fewer domains come before equal shares.
        """
        if self.gpus < self._request.gpus:
            return None
        shapes = list(self._equal_shapes())
        if self._request.gpus_per_node is not None or self._site.rail_isolated:
            return self.best(shapes)
        near = [shape for shape in shapes if self._is_near(shape)]
        ragged = Shape(self._group if self._groups_on_hosts else 1, equal=False)
        return self.best(near) or self.best([*shapes[len(near) :], ragged])

    def _is_near(self, shape: Shape) -> bool:
        """Whether equal shares of this size are worth having for their own sake."""
        hosts = ceil(self._request.gpus / self._most)
        return shape.equal and self._request.gpus <= MORE_HOSTS * hosts * shape.unit

    def _equal_shapes(self) -> Iterator[Shape]:
        total = self._request.gpus
        for unit in range(min(self._most, total - 1), 0, -1):
            if total % unit or self._request.gpus_per_node not in (None, unit):
                continue
            if self._groups_on_hosts and unit % self._group:
                continue
            if not self._site.rail_isolated:
                yield Shape(unit, equal=True)
                continue
            for rail in self._rails(unit, total // unit):
                yield Shape(unit, equal=True, rail=rail)

    def _rails(self, unit: int, nodes: int) -> Iterator[tuple[int, ...]]:
        """Sets of NVML indexes that enough nodes have free."""
        holders: dict[int, int] = {}
        for profile, numbers in self._profiles.items():
            for position, gpu in enumerate(profile.sets.machine.gpus):
                if profile.pool >> position & 1:
                    holders[gpu.index] = holders.get(gpu.index, 0) + len(numbers)
        indexes = sorted(index for index, count in holders.items() if count >= nodes)
        if comb(len(indexes), unit) <= MANY_SETS:
            yield from combinations(indexes, unit)
        else:
            yield from (tuple(indexes[first : first + unit]) for first in range(len(indexes) - unit + 1))

    def _ask(self, gpus: int) -> Ask:
        request = self._request
        blocks = request.group > 1 and request.nvlink is not NvlinkPolicy.IGNORED and gpus % request.group == 0
        return Ask(
            gpus,
            block=request.group if blocks else 1,
            joined=request.nvlink is NvlinkPolicy.REQUIRED,
            transport=self._transport,
        )

    def _sizes(self, profile: Profile, shape: Shape) -> range:
        """How many GPUs a node can be asked for."""
        most = shape.unit if shape.equal else min(profile.pool.bit_count(), self._request.gpus)
        return range(shape.unit, most + 1, shape.unit)

    def _seat(self, profile: Profile, ask: Ask, shape: Shape) -> Seat | None:
        seat = profile.seat(ask, self._request.binding)
        if seat is None or not shape.rail:
            return seat
        only = profile.sets.mask_of_indexes(shape.rail)
        if only.bit_count() < ask.gpus or only & ~profile.pool or seat.only not in (None, only):
            return None
        return Seat(seat.binding, only)

    def _best_value(self, profile: Profile, ask: Ask, shape: Shape, floor: Value, *, block: bool) -> float | None:
        """The best slowest block, or the best bus bandwidth, that a node has at or above a floor."""
        seat = self._seat(profile, ask, shape)
        if seat is None:
            return None
        pool = profile.pool if seat.only is None else seat.only
        return (profile.sets.best_block if block else profile.sets.best_bus)(pool, ask, floor)

    def _filled(
        self, shape: Shape, cost: Callable[[Profile, int], Cost | None], free_at: int | None = None
    ) -> Spread | None:
        """The cheapest way to fill the gang, given what a number of GPUs of a node costs."""
        levels = len(self._site.levels)
        offers: dict[int, dict[int, Cost]] = {}
        for profile, numbers in self._profiles.items():
            units: dict[int, Cost] = {}
            for gpus in self._sizes(profile, shape):
                found = cost(profile, gpus)
                if found is not None:
                    units[gpus // shape.unit] = ((0,) * (levels - 1)) + (1, *found)
            if units:
                offers.update(dict.fromkeys(numbers, units))
        filling = Filling(
            self._site.root,
            offers,
            free_at=free_at,
            whole_at=None if self._groups_on_hosts else self._group_at,
            whole_units=self._group // gcd(self._group, shape.unit),
        )
        return filling.best(self._request.gpus // shape.unit)

    def _counts(self, shape: Shape, floor: Value) -> tuple[int, ...] | None:
        """The fewest domains of each level, with shares that reach the floor."""

        def cost(profile: Profile, gpus: int) -> Cost | None:
            return None if self._best_value(profile, self._ask(gpus), shape, floor, block=False) is None else ()

        spread = self._filled(shape, cost)
        return None if spread is None else tuple(int(count) for count in spread.cost)

    def _highest(self, shape: Shape, counts: tuple[int, ...], floor: Value, *, block: bool) -> float:
        """The highest slowest block, or bus bandwidth, that every share can have with no more domains than `counts`."""
        values = sorted(
            {
                value
                for profile in self._profiles
                for gpus in self._sizes(profile, shape)
                if (value := self._best_value(profile, self._ask(gpus), shape, floor, block=block)) is not None
            }
        )
        low, high = 0, len(values) - 1  # values[low] is known to do
        while low < high:
            middle = (low + high + 1) // 2
            raised = floor._replace(block_gb_s=values[middle]) if block else floor._replace(bus_gb_s=values[middle])
            if self._counts(shape, raised) == counts:
                low = middle
            else:
                high = middle - 1
        return values[low]

    def _plan(self, shape: Shape, counts: tuple[int, ...]) -> Plan | None:
        block = self._highest(shape, counts, self._minimum, block=True)
        floor = self._minimum._replace(block_gb_s=block)
        bus = self._highest(shape, counts, floor, block=False)
        cap = level_cap(self._site.levels, self._site.level_bandwidth_gb_s, counts)
        if cap is not None:  # faster shares than the network would be wasted
            bus = max(self._minimum.bus_gb_s, min(bus, cap.gb_s))
        floor = floor._replace(bus_gb_s=bus)

        def cost(profile: Profile, gpus: int) -> Cost | None:
            choice = self._choice(profile, gpus, shape, floor)
            if choice is None:
                return None
            free, every = profile.free, profile.sets.every
            breaks_whole = int(free == every != choice.mask)
            return (
                breaks_whole,
                *choice.loss_gb_s,
                *(0,) * (len(self._site.levels) - 1),  # free GPUs of the domains that are used
                free.bit_count() - gpus,
                choice.nic_distance,
                choice.numa_nodes,
            )

        spread = self._filled(shape, cost, free_at=len(self._site.levels) + 1 + len(KEPT_SIZES))
        if spread is None:
            return None
        return self._of_spread(spread, shape, floor, counts)

    def _choice(self, profile: Profile, gpus: int, shape: Shape, floor: Value) -> Choice | None:
        ask = self._ask(gpus)
        seat = self._seat(profile, ask, shape)
        if seat is None:
            return None
        return profile.sets.choose(profile.pool if seat.only is None else seat.only, profile.free, ask, floor)

    def _of_spread(self, spread: Spread, shape: Shape, floor: Value, counts: tuple[int, ...]) -> Plan | None:
        parts = []
        for number, units in spread.picks:
            candidate, gpus = self._site.candidates[number], units * shape.unit
            choice = self._choice(candidate.profile, gpus, shape, floor)
            seat = self._seat(candidate.profile, self._ask(gpus), shape)
            if choice is None or seat is None:
                return None
            parts.append(Part(candidate, choice.mask, seat.binding))
        network = (self._site.levels, self._site.level_bandwidth_gb_s, counts)
        prediction = predict(
            [(part.candidate.view.name, part.candidate.profile.sets, part.mask) for part in parts],
            self._transport,
            level_cap(*network),
            level_floor(*network),
        )
        sure = prediction.gb_s if prediction.gb_s is not None else prediction.at_least_gb_s
        if self._minimum.bus_gb_s and self._request.gpus > 1 and (sure is None or sure < self._minimum.bus_gb_s):
            return None
        merit = (
            not self._is_near(shape),
            counts,
            not shape.equal,
            -floor.block_gb_s,
            -floor.bus_gb_s,
            spread,
            shape.rail,
        )
        return Plan(tuple(parts), self._transport if len(parts) > 1 else None, counts, prediction, merit)

    def _is_inside_required_level(self, counts: tuple[int, ...]) -> bool:
        """Fewest domains from the outside in means one domain of the required level, wherever one can do."""
        required = self._request.required_level
        return required is None or counts[self._site.levels.index(required)] == 1
