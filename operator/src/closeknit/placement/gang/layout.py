"""A gang's nodes and GPUs, before its ranks and NICs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from closeknit.api.nodetopology import Transport
from closeknit.api.trainingjob_status import Binding
from closeknit.placement.candidates.offer import Offer
from closeknit.placement.gang.prediction import Prediction
from closeknit.placement.spread.cost import PackedCost


class Part(NamedTuple):
    """The share of one node."""

    node: str
    offer: Offer
    mask: int
    binding: Binding
    is_cut: bool = False
    """Whether a search for this set ended at its budget."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A gang's nodes and GPUs, by node name."""

    parts: tuple[Part, ...]
    transport: Transport | None
    """RDMA transport between nodes; None on one node, and for sockets."""
    counts: tuple[int, ...]
    """Number of domains of each level that it uses, host last."""
    prediction: Prediction
    is_fewest: bool = True
    """Whether it is proven that no other uses fewer domains, or as many and fewer nodes."""

    @property
    def is_cut(self) -> bool:
        """Whether a search ended at its budget, in one of its nodes or over them, so that there may be a better one."""
        if not self.is_fewest or any(part.is_cut for part in self.parts):
            return True
        alone, different = len(self.parts) == 1, {(part.offer.terms.sets, part.mask) for part in self.parts}
        rings = (sets.bandwidth(mask, alone=alone) for sets, mask in different)
        return any(each is None or each.is_cut for each in rings)


class Merit(NamedTuple):
    """Order of layouts of one way: smaller is better."""

    is_far: bool
    """Whether its shares are unequal, or need many hosts."""
    domains: tuple[int, ...]
    is_unequal: bool
    minus_block_gb_s: float
    minus_bus_gb_s: float
    cost: PackedCost


class Sketch:
    """A layout with known merit and nodes still to be named."""

    def __init__(self, merit: Merit, rail: tuple[int, ...], draw: Callable[[], Layout | None]) -> None:
        """`rail` decides last, after the names of the nodes."""
        self.merit = merit
        self._rail = rail
        self._draw = draw
        self._drawn: list[Layout | None] = []

    def layout(self) -> Layout | None:
        """The layout; None where its nodes turn out to be too slow."""
        if not self._drawn:
            self._drawn.append(self._draw())
        return self._drawn[0]

    def names(self) -> tuple[object, ...]:
        """What decides between sketches of equal merit."""
        layout = self.layout()
        parts = layout.parts if layout else ()
        return tuple((part.node, part.mask.bit_count()) for part in parts), self._rail


class Draft(NamedTuple):
    """Layouts with only the fewest domains known."""

    at_best: Merit
    """A bound: none of them is better."""
    sketches: Callable[[], Sequence[Sketch]]
    """None if all are too slow."""


def best_of_drafts(drafts: Iterable[Draft]) -> Layout | None:
    """The best layout of all these; those that cannot be better than the best so far are not worked out."""
    sketches: list[Sketch] = []
    for draft in sorted(drafts, key=lambda draft: draft.at_best):
        if sketches and min(sketch.merit for sketch in sketches) < draft.at_best:
            break
        sketches += draft.sketches()
    return best_of(sketches)


def best_of(sketches: Iterable[Sketch]) -> Layout | None:
    """The best of these layouts. None of them is too slow."""
    ordered = sorted(sketches, key=lambda sketch: sketch.merit)
    best = [sketch for sketch in ordered if sketch.merit == ordered[0].merit]
    if len(best) > 1:
        return min(best, key=Sketch.names).layout()
    return best[0].layout() if best else None
