"""The benchmark's rule for Pods that ask for a part of a GPU, by the prices of parts."""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from bench.cutting import worth
from bench.openb import LISTS, MILLI, Kind, Left, kinds
from bench.stranded import Stranded


def test_a_rest_is_worth_what_fits_into_it() -> None:
    few = worth({810: 10, 190: 10}, 1000)
    assert few[[0, 180, 190, 810, 1000]].tolist() == [0, 0, 0, 1, 1]  # each 810 leaves one 190, and needs its own GPU
    many = worth({810: 10, 190: 100}, 1000)
    assert many[[180, 190, 380, 810, 1000]] == pytest.approx([0, 0.2, 0.4, 0.8, 1])


@pytest.mark.parametrize("counts", [{500: 3, 330: 4, 220: 9}, {10: 1}, {1000: 2}, {700: 5, 300: 4, 200: 2, 100: 1}])
def test_prices_are_those_of_the_dual(counts: dict[int, int]) -> None:
    """No way to fill a rest is worth more than the rest, and all parts together at least the GPUs that they fill."""
    found = worth(counts, 1000)
    assert (np.diff(found) >= 0).all()
    assert found[1000] <= 1 + 1e-9
    for fill in (each for many in range(1, 6) for each in combinations_with_replacement(counts, many)):
        if sum(fill) <= 1000:
            assert sum(found[part] for part in fill) <= found[sum(fill)] + 1e-9
    filled = sum(part * count for part, count in counts.items()) / 1000
    assert sum(found[part] * count for part, count in counts.items()) >= filled - 1e-9


@pytest.mark.parametrize("name", LISTS)
def test_a_part_goes_beside_the_part_that_leaves_it_room(name: str) -> None:
    """Beside 470 of a GPU goes 470, not beside 810 or on a GPU of its own, though 190 would have been a nearer fit."""
    left = Left()
    rule = Stranded(name, left)
    kind = next(each for each in kinds(name) if each.milli == 470)
    node, gpus = rule.take(kind) or (-1, ())
    left.give(node, kind, gpus)
    large = next(each for each in kinds(name) if each.milli == 810)
    where, on = rule.take(large) or (-1, ())
    left.give(where, large, on)
    assert rule.take(kind) == (node, gpus)
    assert (where, on) != (node, gpus)


def test_a_pod_without_a_gpu_goes_where_it_strands_none() -> None:
    left = Left()
    rule = Stranded("default", left)
    asks = Kind(cpu=4000, memory=1024, gpus=0, milli=0, models=())
    left.cpu[:] = np.where(left.gpus.sum(axis=1) > 0, 4000, 0)  # nowhere enough for its GPUs
    ample = int(np.argmax(left.gpus.sum(axis=1) == 2 * MILLI)) + 1
    while left.gpus[ample].sum() != 2 * MILLI:
        ample += 1
    left.cpu[ample] = 104_000
    assert rule.take(asks) == (ample, ())
    left.cpu[:] = 3999
    assert rule.take(asks) is None
