"""The cheapest of some victims without which a gang fits."""

from collections.abc import Callable, Sequence
from typing import TypeVar

EXACT = 12
"""So many victims are chosen among exactly: 4,096 choices, of which a few dozen are tried as a rule."""
_MOST_TRIED = 512  # choices where more room may be worse; some tenths of a second

V = TypeVar("V")


def cheapest(
    victims: Sequence[V],
    costs: Sequence[int],
    fits: Callable[[Sequence[V]], bool],
    may_do: Callable[[Sequence[V]], bool] = lambda _: True,
    *,
    is_monotone: bool = True,
) -> tuple[V, ...] | None:
    """The victims with the least sum of costs without which the gang fits; of equal sums the fewest. None without any.

    At most EXACT victims. Choices are tried in the order of their cost. Each that does not do is grown, while it still
    does not do: one of the others must be in every choice that does, which rules out most of the rest. `may_do` is a
    cheap test that no choice fails that does. Where more room may be worse (not `is_monotone`) nothing is ruled out,
    and at most _MOST_TRIED choices are tried.
    """
    count = len(victims)
    everyone = (1 << count) - 1
    totals = [0] * (everyone + 1)
    for mask in range(1, everyone + 1):
        lowest = mask & -mask
        totals[mask] = totals[mask ^ lowest] + costs[lowest.bit_length() - 1]

    def chosen(mask: int) -> tuple[V, ...]:
        return tuple(victim for place, victim in enumerate(victims) if mask >> place & 1)

    def does(mask: int) -> bool:
        there = chosen(mask)
        return may_do(there) and fits(there)

    if not count or (is_monotone and not does(everyone)):
        return None
    needed, tried = list[int](), 0
    for mask in sorted(range(1, everyone + 1), key=lambda each: (totals[each], each.bit_count(), each)):
        if not all(mask & each for each in needed):
            continue
        if not may_do(chosen(mask)):
            if is_monotone:
                needed.append(everyone & ~_grown(mask, count, may_do, chosen))
            continue
        if fits(chosen(mask)):
            return chosen(mask)
        tried += 1
        if is_monotone:
            needed.append(everyone & ~_grown(mask, count, lambda there: may_do(there) and fits(there), chosen))
        elif tried >= _MOST_TRIED:
            return None
    return None


def _grown(mask: int, count: int, does: Callable[[Sequence[V]], bool], chosen: Callable[[int], tuple[V, ...]]) -> int:
    """The choice with as many more as it can have without doing; the dearest first."""
    for place in reversed(range(count)):
        if not mask >> place & 1 and not does(chosen(mask | 1 << place)):
            mask |= 1 << place
    return mask


def without_needless(chosen: Sequence[V], fits: Callable[[Sequence[V]], bool]) -> tuple[V, ...]:
    """Those of a choice that does without which it would not do: the first ones are spared first."""
    left = list(chosen)
    for victim in chosen:
        fewer = [each for each in left if each is not victim]
        if fits(fewer):
            left = fewer
    return tuple(left)
