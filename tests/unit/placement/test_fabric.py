"""Spreads over the tree of domains against every spread there is; and beyond the exact sizes, that they are spreads."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.placement import fabric
from closeknit.placement.fabric import Filling, Units, tree

DEPTH = 3  # block, rack, host

Nodes = list[tuple[tuple[str, ...], int]]


@st.composite
def trees(draw: st.DrawFn) -> Nodes:
    nodes: Nodes = []
    for number in range(draw(st.integers(1, 6))):
        block, rack = draw(st.sampled_from("ab")), draw(st.sampled_from("xyz"))
        nodes.append(((block, block + rack, f"{block}{rack}{number}"), draw(st.integers(0, 8))))
    return nodes


def cost_of(nodes: Nodes, given_units: tuple[int, ...], offers: dict[int, Units]) -> tuple[float, ...]:
    used = [number for number, units in enumerate(given_units) if units]
    counts = [len({nodes[number][0][level] for number in used}) for level in range(DEPTH)]
    own = sum(offers[number][given_units[number]][DEPTH] for number in used)
    free = []
    for level in range(DEPTH - 1):
        touched = {nodes[number][0][level] for number in used}
        free.append(sum(gpus for domains, gpus in nodes if domains[level] in touched))
    return (*counts, own, *free)


def brute(nodes: Nodes, offers: dict[int, Units], units: int) -> tuple[float, ...] | None:
    choices = [(0, *offers.get(number, {})) for number in range(len(nodes))]
    costs = [cost_of(nodes, given_units, offers) for given_units in product(*choices) if sum(given_units) == units]
    return min(costs, default=None)


def offered(own: float) -> tuple[float, ...]:
    return (0, 0, 1, own, 0, 0)


@settings(max_examples=300, deadline=None)
@given(trees(), st.data(), st.booleans())
def test_no_spread_is_cheaper(nodes: Nodes, data: st.DataObject, equal: bool) -> None:
    sizes = st.just((1,)) if equal else st.sets(st.integers(1, 4), min_size=1).map(tuple)
    offers: dict[int, Units] = {
        number: {size: offered(data.draw(st.integers(0, 3))) for size in sorted(data.draw(sizes))}
        for number in range(len(nodes))
        if data.draw(st.sampled_from([True, True, False]))
    }
    units = data.draw(st.integers(1, 8))
    spread = Filling(tree(nodes), offers, free_at=DEPTH + 1).best(units)
    expected = brute(nodes, offers, units)
    assert (spread and spread.cost) == expected
    if spread:
        assert sum(taken for _, taken in spread.picks) == units


def test_domains_that_give_only_multiples() -> None:
    """Groups of two nodes inside a rack: three and three are no way to take six, two and four are."""
    nodes = [(("b", f"b{rack}", f"b{rack}{number}"), 8) for rack in "xy" for number in range(4)]
    offers: dict[int, Units] = {number: {1: (0, 0, 1)} for number in range(8) if number != 3}
    spread = Filling(tree(nodes), offers, whole_at=1, whole_units=2).best(6)
    assert spread is not None
    assert [node for node, _ in spread.picks] == [0, 1, 4, 5, 6, 7]
    assert Filling(tree(nodes), offers, whole_at=1, whole_units=2).best(7) is None


def test_large_clusters_fill_the_fullest_domains_first() -> None:
    racks = 60
    nodes = [(("b", f"b{rack:02}", f"b{rack:02}{number:02}"), 8) for rack in range(racks) for number in range(20)]
    offers: dict[int, Units] = {
        number: {1: (0, 0, 1)} for number in range(len(nodes)) if number % 20 <= number // 20 % 20
    }  # rack r has r % 20 + 1 nodes to give
    needed = 20 * 3 + 19 * 2
    assert racks * 20 * needed > fabric.EXACT_STEPS
    spread = Filling(tree(nodes), offers).best(needed)
    assert spread is not None
    assert spread.cost == (1, 5, needed)


def test_many_nodes_of_unequal_shares_give_their_most() -> None:
    nodes = [(("b", "b/r", f"b/r/{number:02}"), 8) for number in range(fabric.EXACT_NODES + 4)]
    offers: dict[int, Units] = {
        number: dict.fromkeys(range(1, 9 if number % 4 == 0 else 4), (0, 0, 1)) for number in range(len(nodes))
    }
    spread = Filling(tree(nodes), offers).best(29)
    assert spread is not None
    assert spread.cost == (1, 1, 4)
    assert sum(units for _, units in spread.picks) == 29
