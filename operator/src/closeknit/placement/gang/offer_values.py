"""The best set of every offer for one size of share, kept between decisions: each offer is searched once."""

from collections.abc import Mapping
from math import gcd
from typing import Generic, TypeVar

from closeknit.placement.candidates.usable_areas import OfferMask, OfferNumber, numbers_of

V = TypeVar("V")


class OfferValues(Generic[V]):
    """Grows with the offers that are seen; which of them are there now is for its callers to say, as a mask."""

    def __init__(self) -> None:
        self.of: dict[OfferNumber, Mapping[int, V]] = {}
        """Offer -> units -> what the share is; without offers that have none."""
        self.seen = OfferMask(0)
        """Those that have been asked."""
        self._masks: dict[tuple[int, float], int] = {}
        """(units, what they are worth) -> mask of the offers that have such a share."""

    def add(self, number: OfferNumber, found: Mapping[int, V], worth: Mapping[int, float]) -> None:
        """Files what an offer has: by units the share, and what it is worth."""
        self.seen = OfferMask(self.seen | 1 << number)
        if found:
            self.of[number] = found
        for key in worth.items():
            self._masks[key] = self._masks.get(key, 0) | 1 << number

    def able(self, offers: OfferMask, at_least: float = 0.0) -> OfferMask:
        """Those offers of a mask that have a share worth this."""
        able = 0
        for (_, worth), mask in self._masks.items():
            if worth >= at_least:
                able |= mask
        return OfferMask(able & offers)

    def fewest(
        self, wanted: int, offers: OfferMask, nodes: Mapping[OfferNumber, int], at_least: float = 0.0
    ) -> int | None:
        """The fewest nodes of the offers of a mask, so many of each, that have so many units together, in shares worth
        this; None where they have fewer, or for certain none that add up to it."""
        masks: dict[int, int] = {}
        for (units, worth), mask in self._masks.items():
            if worth >= at_least:
                masks[units] = masks.get(units, 0) | mask
        common = gcd(*(units for units, mask in masks.items() if mask & offers))
        if not common or wanted % common:
            return None
        left, taken = int(offers), 0
        for units in sorted(masks, reverse=True):
            for number in numbers_of(masks[units] & left):
                if wanted <= units * nodes[number]:
                    return taken - (-wanted // units)
                wanted -= units * nodes[number]
                taken += nodes[number]
            left &= ~masks[units]
        return None

    def has_units(self, offers: OfferMask, at_least: float = 0.0) -> frozenset[int]:
        """The numbers of units that the offers of a mask have in shares worth this."""
        return frozenset(units for (units, worth), mask in self._masks.items() if worth >= at_least and mask & offers)

    def worths(self, offers: OfferMask) -> list[float]:
        """What the shares of the offers of a mask are worth, each once, ascending."""
        return sorted({worth for (_, worth), mask in self._masks.items() if mask & offers})
