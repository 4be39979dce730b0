"""A booking over very many nodes fits an object, and says what was booked."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from random import Random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from closeknit.api.trainingjob import MAX_GPUS
from closeknit.api.trainingjob_status import Actual, Binding, PlacementStatus
from closeknit.cluster.booking import booking
from closeknit.cluster.booking.booking import ONE_BY_ONE, BookingShare, assignments, decoded, encoded

NODES = 40_000
ROOM = 1_200_000  # bytes: 1.5 MiB less a template of 256 KiB, metadata and the record of field owners
RANDOM = Random(1)  # noqa: S311 - the same names every time
LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def numbered(node: int) -> str:
    return f"gpu-node-{node:05d}.cluster-a.example.com"


def gke(_: int) -> str:
    """Of a cluster and pool, an instance group of which no two nodes are of one, and the instance."""
    return f"gke-training-a3-mega-{RANDOM.getrandbits(32):08x}-{''.join(RANDOM.choices(LETTERS, k=4))}"


def aws(node: int) -> str:
    return f"ip-10-{node // 60_000}-{node // 250 % 240}-{node % 250}.us-west-2.compute.internal"


def share(
    name: str, first_rank: int, gpus: tuple[int, ...], *, generation: int = 4, verified: bool = True
) -> BookingShare:
    return BookingShare(
        node=name,
        gpus=gpus,
        first_rank=first_rank,
        binding=Binding.DRA,
        nics=tuple(f"mlx5_{nic}:1" for nic in range(8)),
        rdma_resource="rdma/hca",
        topology_generation=generation,
        actual=Actual.VERIFIED if verified else None,
    )


def status(shares: tuple[BookingShare, ...]) -> PlacementStatus:
    told = encoded(shares)
    return PlacementStatus(node_count=len(shares), nodes=told.nodes, packed=told.packed)


@pytest.mark.parametrize(("name", "nodes"), [(gke, NODES), (numbered, NODES // 10), (aws, NODES // 10)])
def test_a_gang_over_forty_thousand_nodes_fits_an_object(name: Callable[[int], str], nodes: int) -> None:
    """One GPU of each, half of them verified, and NodeTopologies that have changed at different times."""
    shares = tuple(
        share(name(node), node, (node % 8,), generation=RANDOM.randint(1, 9), verified=RANDOM.random() < 0.5)
        for node in range(nodes)
    )
    stored = status(shares).model_dump_json(by_alias=True, exclude_none=True)
    assert len(stored) * NODES / nodes < ROOM
    assert decoded(PlacementStatus.model_validate_json(stored)) == shares


def test_few_enough_nodes_are_told_one_by_one() -> None:
    shares = tuple(share(numbered(node), node, (0,)) for node in range(ONE_BY_ONE + 1))
    few, many = status(shares[:-1]), status(shares)
    assert (len(few.nodes), few.packed) == (ONE_BY_ONE, None)
    assert (many.nodes, many.packed is None) == ([], False)
    assert assignments(many)[:-1] == assignments(few) == few.nodes


SHARES = st.builds(
    share,
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,6}[a-z0-9])?(\.[a-z0-9]{1,3}){0,2}", fullmatch=True),
    st.just(0),
    st.sampled_from([(0,), (3,), (0, 1), (5, 1)]),
    generation=st.integers(0, 3),
    verified=st.booleans(),
)


@given(st.lists(SHARES, min_size=1, max_size=12))
def test_columns_say_what_the_shares_were(some: list[BookingShare]) -> None:
    first_ranks = [0, *accumulate(len(each.gpus) for each in some)]
    shares = tuple(replace(each, first_rank=first) for each, first in zip(some, first_ranks, strict=False))
    with mock.patch.object(booking, "ONE_BY_ONE", 0):
        told = status(shares)
    assert (told.nodes, told.packed is None) == ([], False)
    assert decoded(told) == shares


KIND = {"gpus": [0], "binding": "DRA"}


@pytest.mark.parametrize(
    ("packed", "fault"),
    [
        ({"names": ["gpu-:1,2"], "kinds": [KIND], "kind": "0*3", "generation": "1*2"}, "2 nodes have names"),
        ({"names": ["gpu-:1,2"], "kinds": [KIND], "kind": "0*2", "generation": "1*99999"}, "2 nodes have names"),
        ({"names": ["gpu-:1,2"], "kinds": [KIND], "kind": "0,1", "generation": "1*2"}, "none of the 1"),
        ({"names": ["gpu-:1" + ",2" * MAX_GPUS], "kinds": [KIND], "kind": "0", "generation": "1"}, "are more than"),
        ({"names": ["gpu-1"], "kinds": [KIND], "kind": "0", "generation": "1"}, "pattern"),
        ({"names": ["gpu-:1"], "kinds": [KIND], "kind": "0*", "generation": "1"}, "pattern"),
    ],
    ids=["too many kinds", "far too many", "no such kind", "too many nodes", "no prefix", "no number"],
)
def test_columns_that_disagree_are_no_status(packed: object, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        PlacementStatus.parse({"nodeCount": 2, "nodes": [], "packed": packed})


@pytest.mark.parametrize("number", [4, ONE_BY_ONE + 4])
def test_lost_nodes_are_told_in_both_forms(number: int) -> None:
    shares = [share(numbered(node), 8 * node, tuple(range(8))) for node in range(number)]
    told = PlacementStatus(node_count=number, **encoded(shares)._asdict())
    marked = [replace(each, lost=at in {1, 3}) for at, each in enumerate(shares)]
    stored = booking.with_shares(told, marked)
    assert stored.lost == "1,3"
    again = PlacementStatus.model_validate_json(stored.model_dump_json(by_alias=True, exclude_none=True))
    assert decoded(again) == tuple(marked)
    assert booking.with_shares(again, shares) == told
