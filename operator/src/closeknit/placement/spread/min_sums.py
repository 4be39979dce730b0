"""The cheapest sums of at most one entry of each of several tables, by dynamic programming over whole numbers."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from closeknit.placement.candidates.usable_areas import OfferNumber

V = TypeVar("V")
Pick = tuple[str, int, OfferNumber]  # (node, units, its offer); a node is picked once


class SumEntry(NamedTuple):
    """Units, what they cost, and the nodes that give them."""

    units: int
    cost: int
    picks: tuple[Pick, ...]


def certain(found: V | None, units: int) -> V:
    """What there must be, for its cost was told: without it a gang would be booked with ranks missing."""
    if found is None:
        raise AssertionError(f"nothing gives {units} units, though a cost was told for them")
    return found


def cheapest_sums(tables: Sequence[Sequence[tuple[int, int]]], units: int, nothing: int = 0) -> list[int | None]:
    """The least cost of every number of units, from (units, cost) ascending in each table; `nothing` costs no unit."""
    best: list[int | None] = [None] * (units + 1)
    best[0] = nothing
    reached = 0
    for table in tables:
        reached = _add(best, table, reached)
    return best


def _add(best: list[int | None], table: Sequence[tuple[int, int]], reached: int) -> int:
    """Brings one table more into sums of up to `reached` units; gives how far they reach now."""
    if not table:
        return reached
    units = len(best) - 1
    for have in range(reached, -1, -1):  # what is added to has not been added from yet
        base = best[have]
        if base is None:
            continue
        for given, cost in table:
            total = have + given
            if total > units:
                break
            standing = best[total]
            if standing is None or base + cost < standing:
                best[total] = base + cost
    return min(units, reached + table[-1][0])


def of_cheapest(tables: Sequence[Sequence[tuple[int, int]]], units: int) -> list[list[tuple[int, int]]]:
    """Of each table the entries that a cheapest sum of exactly these units has, whichever of them it is."""
    best: list[int | None] = [0, *[None] * units]
    before: list[list[int | None]] = []
    reached = 0
    for table in tables:
        before.append(best.copy())
        reached = _add(best, table, reached)
    found: list[list[tuple[int, int]]] = []
    after, wanted = best, {units}
    for table, best in zip(reversed(tables), reversed(before), strict=True):
        used: list[tuple[int, int]] = []
        left = {total for total in wanted if best[total] == after[total]}
        for given, cost in table:
            from_ = {
                total - given
                for total in wanted
                if total >= given and (base := best[total - given]) is not None and base + cost == after[total]
            }
            if from_:
                used.append((given, cost))
                left |= from_
        found.append(used)
        after, wanted = best, left
    return found[::-1]


def named_sums(tables: Sequence[Sequence[SumEntry]], units: int) -> list[tuple[Pick, ...] | None]:
    """The picks of the cheapest sum of every number of units; of equal cost those with the first nodes.

    The nodes are the last digits of the cost, the first node's the highest: a node that gives fewer units comes before
    one that gives more, and that before one that gives none. Sums of equal cost have equally many nodes.
    """
    offer = {name: number for table in tables for entry in table for name, _, number in entry.picks}
    names = sorted(offer)
    most = max((given for table in tables for entry in table for _, given, _ in entry.picks), default=0)
    width = (most + 1).bit_length()
    place = {name: width * (len(names) - 1 - number) for number, name in enumerate(names)}
    none = most + 1
    bits = width * len(names)
    nothing = sum(none << shift for shift in place.values())
    found = cheapest_sums(
        [
            [
                (
                    entry.units,
                    (entry.cost << bits) + sum((given - none) << place[name] for name, given, _ in entry.picks),
                )
                for entry in table
            ]
            for table in tables
        ],
        units,
        nothing,
    )
    digit = (1 << width) - 1
    return [
        None
        if sum_ is None
        else tuple((name, given, offer[name]) for name in names if (given := sum_ >> place[name] & digit) != none)
        for sum_ in found
    ]
