"""The order of merit: integers compare and add up as the lists of their parts do."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from closeknit.placement.gpusets.set_value import SetChoice, rank
from closeknit.placement.spread.cost import PER_GB_S, WIDTH, Cost, Scale

LEVELS = 3
SCALE = Scale(LEVELS)
NOTHING = Cost((0,) * LEVELS, free_gpus=(0,) * (LEVELS - 1))
COUNTS, SIGNED = st.integers(0, 3), st.integers(-2, 2) | st.integers(-(1 << WIDTH - 2), 1 << WIDTH - 2)


def packed(scale: Scale, cost: Cost) -> int:
    """So much of each unit."""
    return sum(number * unit for number, unit in zip(numbers(cost), numbers(scale.unit), strict=True))


def numbers(cost: Cost) -> Iterator[int]:
    for part in cost:
        yield from part if isinstance(part, tuple) else (part,)


def parts(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[COUNTS] * count)


COSTS = st.builds(
    Cost, parts(LEVELS), COUNTS, SIGNED, COUNTS, COUNTS, parts(LEVELS - 1), COUNTS, SIGNED, COUNTS, COUNTS
)


@given(COSTS, COSTS)
def test_packed_costs_compare_as_their_parts_do(one: Cost, other: Cost) -> None:
    assert (packed(SCALE, one) < packed(SCALE, other)) == (one < other)
    assert (packed(SCALE, one) == packed(SCALE, other)) == (one == other)


@given(COSTS, COSTS)
def test_a_sum_of_costs_counts_the_domains_of_both(one: Cost, other: Cost) -> None:
    domains = tuple(map(sum, zip(one.domains, other.domains, strict=True)))
    assert SCALE.domains(packed(SCALE, one) + packed(SCALE, other)) == domains


@given(*[st.builds(SetChoice, st.integers(1, 8), *[COUNTS] * 4)] * 2)
def test_the_sets_of_a_node_are_in_the_order_of_spreads(one: SetChoice, other: SetChoice) -> None:
    """Of sets the lowest is taken by the same order, as far as it speaks of them."""
    costs = [
        NOTHING._replace(
            torn=each.torn,
            loss_mb_s=int(each.loss_gb_s * PER_GB_S),
            nic_distance=each.nic_distance,
            numa_nodes=each.numa_nodes,
        )
        for each in (one, other)
    ]
    if costs[0] != costs[1]:
        assert (rank(one) < rank(other)) == (costs[0] < costs[1])
