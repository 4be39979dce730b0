"""What trees over NVLinks can carry at most, against every division of a set into parts."""

from collections.abc import Iterator
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.placement.allreduce.rings import rings
from closeknit.placement.allreduce.tree_bound import MANY_GPUS, TreeBound
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gpusets.masks import positions_of
from closeknit.placement.gpusets.set_facts import SetFacts
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, graph, node, wanted


def divisions(members: tuple[int, ...]) -> Iterator[list[list[int]]]:
    if not members:
        yield []
        return
    first, *rest = members
    for parts in divisions(tuple(rest)):
        yield [[first], *parts]
        for number, part in enumerate(parts):
            yield [*parts[:number], [first, *part], *parts[number + 1 :]]


def worst(links: list[list[int]], mask: int) -> float:
    members = positions_of(mask)
    found = []
    for parts in divisions(members):
        owner = {member: number for number, part in enumerate(parts) for member in part}
        cut = sum(links[a][b] for a, b in combinations(members, 2) if owner[a] != owner[b])
        found += [cut / (len(parts) - 1)] if len(parts) > 1 else []
    return min(found, default=0.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=15, max_size=15))
def test_no_division_is_worse_than_the_bound(drawn: list[int]) -> None:
    links = [[0] * 6 for _ in range(6)]
    for (a, b), each in zip(combinations(range(6), 2), drawn, strict=True):
        links[a][b] = links[b][a] = each
    trees = TreeBound(links)
    assert [trees.most(mask) for mask in range(64)] == [worst(links, mask) for mask in range(64)]


def test_of_sets_with_equal_rings_the_one_with_more_room_is_taken() -> None:
    """Any three of a quad have rings of 40 GB/s; 0 2 3 and 1 2 3 have five links in all, 0 1 2 and 0 1 3 four."""
    whole = graph("dgx-1v")
    facts = SetFacts(whole, rings)
    assert {facts.bandwidth[mask].order_gb_s for mask in (0b0111, 0b1011, 0b1101, 0b1110)} == {40}
    held = node("gpu-0", whole, gpus="0 1 2 3 a a a a")
    answer = place(cluster_of(held), wanted(gpus=3), Tables())
    assert isinstance(answer, Placement)
    assert TreeBound(whole.links).most(facts.mask_of_indexes(answer.shares[0].gpus)) == 2.5


def test_a_set_that_is_too_large_has_no_bound() -> None:
    full = [[int(a != b) for b in range(MANY_GPUS + 1)] for a in range(MANY_GPUS + 1)]
    trees = TreeBound(full)
    assert trees.most((1 << MANY_GPUS) - 1) == MANY_GPUS / 2
    assert trees.most((1 << MANY_GPUS + 1) - 1) == 0


def test_a_job_goes_where_more_others_are() -> None:
    """That node will not be whole again soon, whichever has fewer GPUs free."""
    views = [
        node("gpu-0", graph("hgx-h200"), gpus="a a a a 4 5 6 7"),
        node("gpu-1", graph("hgx-h200"), gpus="b c 2 3 4 5 6 7"),
    ]
    answer = place(cluster_of(*views), wanted(gpus=2), Tables())
    assert isinstance(answer, Placement)
    assert [share.node for share in answer.shares] == ["gpu-1"]
