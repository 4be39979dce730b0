"""Unequal shares over more nodes than all combinations are tried of: the fewest nodes in the fewest domains."""

from collections.abc import Sequence
from itertools import accumulate

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from closeknit.placement.spread.cheapest import EXACT_NODES, Filling
from closeknit.placement.values.budget import DECISION_STEPS
from unit.placement.spread.test_domain_counts import HOST, SCALE, search

KINDS = [dict.fromkeys(range(1, most + 1), HOST) for most in (1, 2, 4, 8)]  # that give any number up to their most

Nodes = Sequence[Sequence[Sequence[int]]]  # of each block, of each of its racks: how many nodes of each kind


def fewest_hosts(blocks: Nodes, units: int) -> tuple[int, int, int]:
    """The fewest blocks, of these the fewest racks, of these the fewest nodes, by trying everything."""
    most = {(0, 0, 0): 0}
    for racks in blocks:
        inside = {(0, 0): 0}
        for nodes in racks:
            given_units = [max(KINDS[kind]) for kind, number in enumerate(nodes) for _ in range(number)]
            held = list(accumulate(sorted(given_units, reverse=True)))
            for (used, hosts), reached in list(inside.items()):
                for number, more in enumerate(held, 1):
                    inside[used + 1, hosts + number] = max(inside.get((used + 1, hosts + number), 0), reached + more)
        del inside[0, 0]
        for (used, racks_used, hosts), reached in list(most.items()):
            for (more_racks, more_hosts), more in inside.items():
                whole = (used + 1, racks_used + more_racks, hosts + more_hosts)
                most[whole] = max(most.get(whole, 0), reached + more)
    return min(key for key, reached in most.items() if reached >= units)


def test_of_racks_that_hold_as_much_those_of_larger_nodes_are_taken() -> None:
    """32 units of two racks: of eight nodes each that give two, or of two nodes each that give eight."""
    small, large = {1: 8}, {3: 2}
    filling = search([[small, small, large, large]], KINDS)
    cost = filling.cost(32)
    assert cost is not None
    assert SCALE.domains(cost) == (1, 2, 4)
    picks, is_proven = filling.spread(32)
    assert len(picks) == 4
    assert is_proven


def test_where_nodes_are_not_counted_it_says_that_fewer_might_do() -> None:
    """The racks of the smaller nodes come first by name."""
    filling = search([[{1: 8}, {1: 8}, {3: 2}, {3: 2}]], KINDS, counts_hosts=False)
    cost = filling.cost(32)
    assert cost is not None
    assert SCALE.domains(cost)[:2] == (1, 2)
    assert filling.is_least(32)
    picks, is_proven = filling.spread(32)
    assert len(picks) > 4
    assert not is_proven


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4).filter(any), min_size=1, max_size=5),
        min_size=1,
        max_size=4,
    ),
    st.floats(0.1, 1.0),
    st.booleans(),
    st.sampled_from([0, 1 << 12, DECISION_STEPS]),
)
def test_no_spread_over_as_few_domains_needs_fewer_nodes_or_it_says_that_one_might(
    blocks: list[list[list[int]]], part: float, counts_free: bool, steps: int
) -> None:
    nodes = [
        max(KINDS[kind])
        for racks in blocks
        for rack in racks
        for kind, number in enumerate(rack)
        for _ in range(number)
    ]
    assume(len(nodes) > EXACT_NODES)
    units = max(2, int(part * sum(nodes)))
    offers = [[{kind: number for kind, number in enumerate(rack) if number} for rack in racks] for racks in blocks]
    filling = search(offers, KINDS, counts_free=counts_free, steps=steps)
    cost = filling.cost(units)
    assert cost is not None
    picks, is_proven = filling.spread(units)
    assert sum(given_units for _, given_units, _ in picks) == units
    assert len({name for name, *_ in picks}) == len(picks) == SCALE.domains(cost)[2]
    assert SCALE.domains(cost) >= fewest_hosts(blocks, units)
    if is_proven:
        assert SCALE.domains(cost) == fewest_hosts(blocks, units)
    assert is_proven or steps < DECISION_STEPS


def said(filling: Filling, units: int) -> tuple[object, ...]:
    """All that a search says of so many units."""
    cost = filling.cost(units)
    return cost, filling.is_least(units), filling.spread(units) if cost is not None else ()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4).filter(any), min_size=1, max_size=5),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 64, 1 << 9, 1 << 12, DECISION_STEPS]),
)
@example([[[1, 1, 1, 1], [2, 0, 1, 2]], [[0, 4, 2, 0], [3, 1, 0, 1], [1, 0, 4, 0]]], [0.9, 0.5, 0.3], False, False, 0)
def test_what_was_asked_of_a_search_before_changes_nothing_that_it_says(
    blocks: list[list[list[int]]], parts: list[float], counts_free: bool, counts_hosts: bool, steps: int
) -> None:
    """Gangs of different sizes share one search: where one of them may need fewer nodes, others need not."""
    offers = [[{kind: number for kind, number in enumerate(rack) if number} for rack in racks] for racks in blocks]
    total = sum(max(KINDS[kind]) * number for racks in offers for rack in racks for kind, number in rack.items())

    def fresh() -> Filling:
        return search(offers, KINDS, counts_free=counts_free, counts_hosts=counts_hosts, steps=steps)

    kept = fresh()
    for part in parts:
        units = max(1, int(part * total))
        assert said(kept, units) == said(fresh(), units)
