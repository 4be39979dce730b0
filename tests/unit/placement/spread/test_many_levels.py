"""What a decision takes in a tree of many levels, in steps: a clock would tell of the machine that it runs on."""

import sys
from collections.abc import Sequence
from random import Random
from types import FrameType
from typing import Any

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.spread import frontier, knapsack
from closeknit.placement.values.budget import Budget
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, graph, node, wanted

NODES = 600
COMBINED = {knapsack.__file__, frontier.__file__}
"""Where combinations of steps are looked at, each on lines of its own."""


def half_held(branching: Sequence[int]) -> Cluster:
    """Nodes of which half of the GPUs are held, in a tree of which the domains of each level have so many inside."""
    random = Random(1)  # noqa: S311
    machine, places = graph("hgx-h200"), 1
    for number in branching:
        places *= number
    nodes = []
    for index in range(NODES):
        inside, path, wide = index * places // NODES, [], places
        for number in branching:
            wide //= number
            path.append(f"d{inside // wide}")
            inside %= wide
        gpus = " ".join("a" if random.random() < 0.5 else str(gpu) for gpu in range(8))
        nodes.append(node(f"n{index:03}", machine, gpus=gpus, path=tuple(path)))
    return cluster_of(*nodes, levels=tuple(f"l{level}" for level in range(len(branching))))


def steps_of(cluster: Cluster, gpus: int) -> int:
    """Lines that run where steps are combined, until the gang is placed."""
    tables = Tables()
    tables.learn(graph("hgx-h200"))
    asked = wanted(gpus=gpus)
    taken = 0

    def lines(_: FrameType, event: str, __: Any) -> Any:
        nonlocal taken
        taken += event == "line"
        return lines

    def calls(frame: FrameType, _: str, __: Any) -> Any:
        return lines if frame.f_code.co_filename in COMBINED else None

    before = sys.gettrace()
    sys.settrace(calls)
    try:
        placed = place(cluster, asked, tables)
    finally:
        sys.settrace(before)
    assert isinstance(placed, Placement)
    return taken


@pytest.mark.parametrize(
    "branching", [[2] * 9 + [1] * 3, [1] * 3 + [2] * 9, [3] + [2] * 8 + [1] * 3], ids=["outer", "inner", "three"]
)
def test_twelve_levels_take_hardly_more_steps_than_three(branching: list[int]) -> None:
    """The budget counts levels: each more is searched, too."""
    assert steps_of(half_held(branching), 959) < 2 * steps_of(half_held([8, 8, 5]), 959)


def test_all_levels_together_take_no_more_than_four_would() -> None:
    def all_of(levels: int) -> int:
        numbers = tuple(4 ** min(level, 6) for level in range(levels))
        return sum(number * each for number, each in zip(numbers, Budget().of_areas(numbers), strict=True))

    assert max(all_of(levels) for levels in range(5, 16)) <= all_of(4)


def test_what_up_to_four_levels_may_take_is_as_it_was() -> None:
    assert Budget(1 << 20).of_areas((1, 40, 400, 4000)) == (40_000, 1 << 14, 1 << 11, 1 << 8)
