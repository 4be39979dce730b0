"""Coordinates of ranks, and the order of nodes."""

from itertools import product

import pytest

from closeknit.placement.ranks import Coordinates, coordinates, in_fabric_order
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


@pytest.mark.parametrize(
    ("tensor", "context", "data", "pipeline", "expert"),
    [
        pytest.param(*degrees, expert, id=f"tp{degrees[0]} cp{degrees[1]} dp{degrees[2]} pp{degrees[3]} ep{expert}")
        for degrees in product((1, 2, 4), (1, 3), (1, 4), (1, 2))
        for expert in (1, 2, 4)
        if degrees[1] * degrees[2] % expert == 0
    ],
)
def test_ranks_are_counted_as_megatron_nests_its_axes(
    tensor: int, context: int, data: int, pipeline: int, expert: int
) -> None:
    """Megatron: rank = tp + TP (cp + CP (dp + DP pp)); experts: rank = tp + TP (ep + EP (rest))."""
    world = tensor * context * data * pipeline
    request = wanted(
        gpus=world,
        parallelism={"tensor": tensor, "context": context, "pipeline": pipeline, "expert": expert},
    )
    for rank in range(world):
        at = coordinates(rank, request)
        assert rank == at.tensor + tensor * (at.context + context * (at.data + data * at.pipeline))
        assert (rank - at.tensor) // tensor % expert == at.expert
        assert at.tensor < tensor
        assert at.context < context
        assert at.data < data
        assert at.pipeline < pipeline


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
