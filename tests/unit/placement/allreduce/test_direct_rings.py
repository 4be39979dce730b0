"""The search over links that two GPUs have for themselves, beside that over any links."""

from random import Random

import pytest

from closeknit.placement.allreduce.direct_rings import DirectRings, is_direct
from closeknit.placement.allreduce.hops import MAX_RINGS, Hops, is_closed
from closeknit.placement.allreduce.paths import PathType, paths, pcie_tree
from closeknit.placement.allreduce.rings import _Search
from scenarios.clusters import graph
from scenarios.irregular import irregular

SPEEDS = (40_000, 20_000, 12_000)  # MB/s


@pytest.mark.parametrize(("budget", "times"), [(1 << 15, 1 << 10), (3_000, 1 << 10), (1 << 18, 60)])
@pytest.mark.parametrize("seed", range(4))
def test_both_find_the_same_rings_in_the_same_steps(seed: int, budget: int, times: int) -> None:
    random, machine = Random(seed), irregular(seed)  # noqa: S311
    tree, compared = pcie_tree(machine), 0
    for gpus in (2, 3, 5, 8, 12, 14):
        of = paths(machine, tree, sorted(random.sample(range(16), gpus)), 70)
        for speed in SPEEDS:
            onwards = Hops(of).steps(speed, PathType.NVL)
            if not is_closed(onwards):
                continue
            for limit in (MAX_RINGS, 2):
                whole, direct = (kind(onwards, of.capacity, limit, budget, times) for kind in (_Search, DirectRings))
                assert direct.run() == whole.run()
                assert direct.budget == whole.budget
                assert (direct.steps <= 0) == (whole.steps <= 0) or whole.budget <= 0 or whole.best >= limit
                compared += is_direct(onwards)
    assert compared > 10


def test_what_shares_links_is_not_direct() -> None:
    machine, mesh = graph("hgx-h200"), graph("dgx-1v")
    switched = Hops(paths(machine, pcie_tree(machine), (0, 1, 2, 3), 90)).steps(20_000, PathType.NVL)
    over_two = Hops(paths(mesh, pcie_tree(mesh), (0, 1, 4, 7), 70)).steps(20_000, PathType.NVB)
    assert not is_direct(switched)
    assert not is_direct(over_two)
    assert is_direct(Hops(paths(mesh, pcie_tree(mesh), (0, 1, 2, 3), 70)).steps(20_000, PathType.NVL))
