"""The cheapest of some victims without which a gang fits."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

EXACT = 12
"""So many victims are chosen among exactly: 4,096 choices, of which a few dozen are tried as a rule."""

V = TypeVar("V")
Does = Callable[[Sequence[V]], bool]
"""Whether the gang fits without these."""


class Cheapest(Generic[V]):
    """The search among at most EXACT victims.

    Choices are tried in the order of their cost. Each that does not do is grown as long as it does not do: one of the
    others must be in every choice that does, which rules out most of the rest.
    """

    def __init__(
        self, victims: Sequence[V], costs: Sequence[int], fits: Does[V], may_do: Does[V], *, is_monotone: bool
    ) -> None:
        """`may_do` is a cheap test that no choice fails that does. `is_monotone`: where a gang fits, it fits with more
        room, too."""
        self._victims = victims
        self._costs = costs
        self._fits = fits
        self._may_do = may_do
        self._is_monotone = is_monotone
        self._everyone = (1 << len(victims)) - 1
        self._enough: list[int] = []
        """Choices that do."""
        self._short: list[int] = []
        """Choices that do not, and do with any one more."""
        self._known: dict[int, bool] = {}
        self._tries = 0

    def found(self, most: int) -> tuple[V, ...] | None:
        """The victims with the least sum of costs; of equal sums the fewest. None where no choice does, or none is
        found by so many tries."""
        if self._is_monotone and not self._does(self._everyone):
            return None
        for mask in self._by_cost():
            if self._tries >= most:
                return None
            if self._does(mask):
                return self._chosen(mask)
            if self._is_monotone and not self._is_short(mask):
                self._short.append(self._grown(mask))
        return None

    def _by_cost(self) -> list[int]:
        totals = [0] * (self._everyone + 1)
        for mask in range(1, self._everyone + 1):
            lowest = mask & -mask
            totals[mask] = totals[mask ^ lowest] + self._costs[lowest.bit_length() - 1]
        return sorted(range(1, self._everyone + 1), key=lambda each: (totals[each], each.bit_count(), each))

    def _does(self, mask: int) -> bool:
        if self._is_monotone:
            if self._is_short(mask):
                return False
            if any(not each & ~mask for each in self._enough):
                return True
        known = self._known.get(mask)
        if known is None:
            there = self._chosen(mask)
            known = self._may_do(there)
            if known:
                self._tries += 1
                known = self._fits(there)
            self._known[mask] = known
            if known:
                self._enough.append(mask)
        return known

    def _is_short(self, mask: int) -> bool:
        return any(not mask & ~each for each in self._short)

    def _grown(self, mask: int) -> int:
        """The choice with as many more as it can have without doing; the dearest first."""
        for place in reversed(range(len(self._victims))):
            if not mask >> place & 1 and not self._does(mask | 1 << place):
                mask |= 1 << place
        return mask

    def _chosen(self, mask: int) -> tuple[V, ...]:
        return tuple(victim for place, victim in enumerate(self._victims) if mask >> place & 1)


def without_needless(chosen: Sequence[V], fits: Does[V]) -> tuple[V, ...]:
    """Those of a choice that does without which it would not do: the first ones are spared first."""
    left = list(chosen)
    for victim in chosen:
        fewer = [each for each in left if each is not victim]
        if fewer and fits(fewer):
            left = fewer
    return tuple(left)


def first_that_do(steps: Sequence[tuple[V, ...]], fits: Does[V]) -> tuple[V, ...] | None:
    """The victims of the fewest steps after which the gang fits, by doubling and then halving; None for none."""

    def those(count: int) -> tuple[V, ...]:
        return tuple(victim for step in steps[:count] for victim in step)

    short, beyond = 0, 1
    while not fits(those(beyond)):
        if beyond >= len(steps):
            return None
        short, beyond = beyond, min(2 * beyond, len(steps))
    while beyond - short > 1:
        middle = (short + beyond) // 2
        short, beyond = (short, middle) if fits(those(middle)) else (middle, beyond)
    return those(beyond)
