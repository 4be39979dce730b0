"""What a rest of a GPU is worth to Pods that ask for parts of one: the cutting-stock problem's dual prices.

The fewest GPUs that hold all parts of a list, fractions of GPUs allowed, are a linear program over the ways to cut one
up (Gilmore and Gomory, 1961). Its dual gives each part a price, such that no way to fill a GPU is worth more than 1; a
rest is worth the best that still fits into it. Every way to fill a GPU is a path from 0 to its whole size whose steps
are parts, so that the dual needs one value for each size of rest instead of a row for each way.

    as many parts of 810 as of 190     a rest of 190 is worth nothing: each 810 leaves one, and needs a GPU of its own
    ten times as many of 190           now it is worth .2: five of them fill a GPU
"""

from collections.abc import Mapping
from math import gcd

import highspy
import numpy as np
import numpy.typing as npt

Worth = npt.NDArray[np.float64]


def worth(counts: Mapping[int, int], whole: int) -> Worth:
    """By size of rest, 0 to `whole`: its worth in GPUs, ascending, 0 for one that no part fits into. `counts` says how
    many parts of each size come, each of 1 to `whole`."""
    step = gcd(whole, *counts)
    prices = _prices({size // step: count for size, count in counts.items()}, whole // step)
    found = np.zeros(whole // step + 1)
    for rest in range(1, len(found)):
        fills = [found[rest - size] + price for size, price in prices.items() if size <= rest]
        found[rest] = max([found[rest - 1], *fills])
    return np.repeat(found, step)[: whole + 1]


def _prices(counts: Mapping[int, int], whole: int) -> dict[int, float]:
    """What each part is worth, in GPUs."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    values = solver.addVariables(range(1, whole + 1), name_prefix="value")
    prices = solver.addVariables(sorted(counts), name_prefix="price")
    for rest in range(2, whole + 1):
        solver.addConstr(values[rest] >= values[rest - 1])
    for size, price in prices.items():
        solver.addConstr(values[size] >= price)
        for rest in range(size + 1, whole + 1):
            solver.addConstr(values[rest] >= values[rest - size] + price)
    solver.addConstr(values[whole] <= 1)
    solver.maximize(sum(counts[size] * price for size, price in prices.items()))
    return {size: float(solver.val(price)) for size, price in prices.items()}
