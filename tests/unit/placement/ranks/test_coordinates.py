"""Coordinates of ranks, and the order of nodes."""

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from closeknit.placement.ranks.coordinates import Coordinates, coordinates, in_fabric_order
from scenarios.clusters import wanted


def test_tensor_moves_first_and_pipeline_last() -> None:
    request = wanted(gpus=16, parallelism={"tensor": 2, "pipeline": 2})
    assert [coordinates(rank, request) for rank in (0, 1, 2, 8, 15)] == [
        Coordinates(tensor=0, context=0, pipeline=0, data=0, expert=0),
        Coordinates(tensor=1, context=0, pipeline=0, data=0, expert=0),
        Coordinates(tensor=0, context=0, pipeline=0, data=1, expert=0),
        Coordinates(tensor=0, context=0, pipeline=1, data=0, expert=0),
        Coordinates(tensor=1, context=0, pipeline=1, data=3, expert=0),
    ]


RECORDING = json.loads((Path(__file__).parents[3] / "fixtures" / "megatron" / "ranks.json").read_text())
BY_ORDER = {
    order: [case for case in RECORDING["recorded"] if case["order"] == order]
    for order in ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
}
DENSE = ("tensor", "context", "data", "pipeline")


def words(case: dict[str, Any]) -> str:
    return " ".join(f"{axis}{case[axis]}" for axis in (*DENSE, "expert"))


def placed(case: dict[str, Any]) -> dict[int, Coordinates]:
    """Our coordinates of every rank of a recorded job."""
    world = prod(case[axis] for axis in DENSE)
    degrees = {axis: case[axis] for axis in ("tensor", "context", "pipeline", "expert")}
    request = wanted(gpus=world, parallelism=degrees)
    return {rank: coordinates(rank, request) for rank in range(world)}


def recorded(case: dict[str, Any]) -> dict[int, Coordinates]:
    """Where Megatron's groups put every rank: at its place in its group of each axis."""
    places: dict[str, dict[int, int]] = {
        axis: {rank: place for group in groups for place, rank in enumerate(group)}
        for axis, groups in case["groups"].items()
    }
    return {rank: Coordinates(**{axis: places[axis][rank] for axis in places}) for rank in places["tensor"]}


@pytest.mark.parametrize("case", BY_ORDER["tp-cp-ep-dp-pp"], ids=words)
def test_a_rank_stands_where_megatrons_groups_put_it(case: dict[str, Any]) -> None:
    assert placed(case) == recorded(case)


@pytest.mark.parametrize("case", BY_ORDER["tp-cp-ep-dp-pp"], ids=words)
def test_megatrons_groups_are_the_ranks_that_differ_in_one_coordinate(case: dict[str, Any]) -> None:
    at = placed(case)
    for axis in DENSE:
        others = [other for other in DENSE if other != axis]
        for group in case["groups"][axis]:
            assert len(group) == case[axis]
            assert len({tuple(getattr(at[rank], other) for other in others) for rank in group}) == 1
    for group in case["groups"]["expert"]:  # a second view: it splits context x data, and leaves the two others alone
        assert len(group) == case["expert"]
        assert len({(at[rank].tensor, at[rank].pipeline) for rank in group}) == 1


@pytest.mark.parametrize("case", BY_ORDER["tp-cp-ep-pp-dp"], ids=words)
def test_another_order_of_megatrons_is_told_apart(case: dict[str, Any]) -> None:
    assert placed(case) != recorded(case)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param(
            [(("b1", "b1/r2"), "a", 8), (("b1", "b1/r1"), "b", 8), (("b1", "b1/r2"), "c", 8)],
            ["a", "c", "b"],
            id="nodes of one rack follow each other, the fuller rack first",
        ),
        pytest.param([(("b2", "b2/r1"), "a", 8), (("b1", "b1/r1"), "b", 8)], ["b", "a"], id="equal domains go by name"),
        pytest.param([((), "a", 2), ((), "b", 8)], ["b", "a"], id="larger shares first"),
    ],
)
def test_consecutive_ranks_are_near(shares: list[tuple[tuple[str, ...], str, int]], expected: list[str]) -> None:
    assert in_fabric_order(shares) == expected
