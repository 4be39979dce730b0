"""On rails that are joined nowhere: which sets of indexes are tried, and what is said where not all are."""

from collections.abc import Callable
from itertools import combinations
from math import comb
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.placement.candidates.usable_areas import Area, OfferMask, OfferNumber
from closeknit.placement.gang import share_sizes
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.share_sizes import MANY_RAILS
from closeknit.placement.place import can_place, place
from closeknit.placement.spread.cheapest import Filling
from closeknit.placement.spread.leaf import Units
from closeknit.placement.values.budget import DECISION_STEPS
from closeknit.placement.values.placement import NoFit, Placement
from scenarios.clusters import cluster_of, graph, node, wanted

TABLES = Tables()
EVENS = tuple(range(0, 16, 2))
FREE = " ".join("a" if index % 2 else str(index) for index in range(16))
"""Every second one of sixteen."""


def on_rails(*gpus: str, **job: Any) -> Placement | NoFit:
    """Of machines of sixteen, whose GPUs are free as these words say."""
    views = [node(f"gpu-{number}", graph("dgx-2"), gpus=words, path=("r0",)) for number, words in enumerate(gpus)]
    cluster, request = cluster_of(*views, levels=("rack",), fabric={"railIsolated": True}), wanted(**job)
    found = place(cluster, request, TABLES)
    assert can_place(cluster, request, TABLES) == isinstance(found, Placement)
    return found


@pytest.mark.parametrize("others", [0, 1, 2])
def test_nodes_more_make_no_refusal_of_a_placement(others: int) -> None:
    """Two nodes have every second index free, the others all but a few of those."""
    rest = ["a 1 a 3 4 5 6 7 a 9 10 11 12 13 14 15", "0 1 2 3 a 5 a 7 8 9 a 11 a 13 a 15"]
    found = on_rails(*[FREE] * 2, *(rest[number % 2] for number in range(others)), gpus=16, topology={"gpusPerNode": 8})
    assert isinstance(found, Placement)
    if not others:
        assert [share.gpus for share in found.shares] == [EVENS] * 2
    assert len({share.gpus for share in found.shares}) == 1


def test_a_placement_says_that_there_are_more_sets_of_indexes_than_are_tried() -> None:
    found = on_rails("", "", gpus=16, topology={"gpusPerNode": 8})
    assert isinstance(found, Placement)
    assert found.ended_at_budget
    for gpus, each in ((32, 16), (16, None), (30, 15)):
        whole = on_rails("", "", gpus=gpus, topology={"gpusPerNode": each})
        assert isinstance(whole, Placement)
        assert not whole.ended_at_budget


def test_a_refusal_says_so_too() -> None:
    found = on_rails("", "", gpus=16, topology={"gpusPerNode": 8, "minBusBandwidthGBps": 110})
    assert isinstance(found, NoFit)
    assert found.message.endswith(
        "; not all sets of 8 GPU indexes were tried (fabric.railIsolated), so that there may be room: "
        "ask for another topology.gpusPerNode"
    )
    sure = on_rails("", "", gpus=32, topology={"gpusPerNode": 16, "minBusBandwidthGBps": 110})
    assert isinstance(sure, NoFit)
    assert "were tried" not in sure.message


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sets(st.integers(0, 12)).map(lambda found: tuple(sorted(found))), st.integers(1, 3), min_size=1, max_size=6
    ),
    st.integers(1, 9),
    st.integers(2, 5),
)
def test_whichever_nodes_have_indexes_enough_in_common_some_of_them_are_tried(
    free: dict[tuple[int, ...], int], unit: int, nodes: int
) -> None:
    rails, is_cut = share_sizes._rails(free, unit, nodes)
    assert rails == sorted(set(rails))
    every = [
        rail
        for rail in combinations(range(13), unit)
        if sum(number for indexes, number in free.items() if set(rail) <= set(indexes)) >= nodes
    ]
    assert set(rails) <= set(every)
    assert is_cut == (len(rails) < len(every))
    assert not is_cut or comb(13, unit) > MANY_RAILS
    for rail in every:
        having = [set(indexes) for indexes in free if set(rail) <= set(indexes)]
        assert any(all(set(tried) <= indexes for indexes in having) for tried in rails)


def test_of_few_choices_all_are_tried_however_different_nodes_are() -> None:
    chance = Random(1)  # noqa: S311 - the same nodes every time
    free = {tuple(index for index in range(16) if chance.random() > 0.3): 1 for _ in range(2000)}
    pairs = [pair for pair in combinations(range(16), 2) if sum(set(pair) <= set(indexes) for indexes in free) >= 64]
    assert len(pairs) == comb(16, 2)
    assert share_sizes._rails(free, 2, 64) == (pairs, False)


def test_what_is_looked_at_for_them_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {tuple(index for index in range(16) if index != left): 1 for left in range(16)}
    whole, _ = share_sizes._rails(free, 8, 2)
    monkeypatch.setattr(share_sizes, "RAIL_STEPS", 50)
    looked_at, is_cut = share_sizes._rails(free, 8, 2)
    assert is_cut
    assert 0 < len(looked_at) <= len(whole) <= MANY_RAILS


class Searched(NamedTuple):
    searches: int
    steps: int
    """That the root of the tree may take, in all of them."""


def searched(monkeypatch: pytest.MonkeyPatch, held: float, **job: Any) -> Searched:
    """What a decision on isolated rails searches, that on an empty cluster for its ideal included, where so much is
    held."""
    chance, follow, steps = Random(1), Filling.follow, list[int]()  # noqa: S311 - the same nodes every time

    def counted(self: Filling, root: Area, offers: OfferMask, units_of: Callable[[OfferNumber], Units]) -> None:
        steps.append(self._most_steps[0])
        follow(self, root, offers, units_of)

    monkeypatch.setattr(Filling, "follow", counted)
    views = [
        node(
            f"gpu-{number:02}",
            graph("hgx-h200"),
            gpus=" ".join("a" if chance.random() < held else str(index) for index in range(8)),
            path=(f"r{number // 8}",),
        )
        for number in range(48)
    ]
    cluster = cluster_of(*views, levels=("rack",), fabric={"railIsolated": True})
    assert isinstance(place(cluster, wanted(**job), Tables()), Placement)
    return Searched(len(steps), sum(steps))


@pytest.mark.parametrize("held", [0.0, 0.2])
def test_all_sets_of_indexes_have_one_budget(held: float, monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched(monkeypatch, held, gpus=64, topology={"gpusPerNode": 4})
    assert found.searches >= comb(8, 4)
    assert found.steps <= 2 * DECISION_STEPS


def test_sets_of_indexes_that_the_same_nodes_have_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched(monkeypatch, 0.0, gpus=64, topology={"gpusPerNode": 4})
    assert found.searches <= 2 * (comb(8, 4) + 1)


def test_sets_of_indexes_that_cannot_win_are_left_at_their_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole nodes need as few racks as parts of them, and fewer hosts."""
    assert searched(monkeypatch, 0.0, gpus=128).searches <= 2 * (4 + 4)
