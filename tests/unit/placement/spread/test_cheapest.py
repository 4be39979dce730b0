"""Spreads over the tree of domains against every spread there is; and beyond the exact sizes, that they are spreads."""

from collections import Counter
from collections.abc import Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.placement.candidates.usable_areas import Area, Members, OfferNumber, mask_of_offers
from closeknit.placement.spread import cheapest
from closeknit.placement.spread.cheapest import EXACT_NODES, Filling
from closeknit.placement.spread.cost import Cost, PackedCost, Scale
from closeknit.placement.spread.domain_counts import Alike
from closeknit.placement.spread.leaf import Units
from closeknit.placement.values.budget import Budget
from unit.placement.spread.test_cost import packed

DEPTH = 3  # block, rack, host
SCALE = Scale(DEPTH)

Nodes = Sequence[tuple[tuple[str, ...], int]]
Offers = dict[int, Units]


@st.composite
def trees(draw: st.DrawFn) -> Nodes:
    nodes: list[tuple[tuple[str, ...], int]] = []
    for number in range(draw(st.integers(1, 6))):
        block, rack = draw(st.sampled_from("ab")), draw(st.sampled_from("xyz"))
        nodes.append(((block, block + rack, f"{block}{rack}{number}"), draw(st.integers(0, 8))))
    return nodes


def tree(nodes: Nodes, offer_of: dict[int, int] | None = None) -> Area:
    """The tree of nodes by number, each with an offer of its own where nothing else is said."""

    def grow(level: int, members: list[int]) -> Area:
        inside: dict[str, list[int]] = {}
        for member in members:
            inside.setdefault(nodes[member][0][level + 1], []).append(member)
        is_leaf = level == DEPTH - 2
        offers = [OfferNumber((offer_of or {}).get(member, member)) for member in members]
        hosts: dict[OfferNumber, list[str]] = {}
        for member, offer in zip(members, offers, strict=True) if is_leaf else ():
            hosts.setdefault(offer, []).append(name(member))
        return Area(
            level,
            is_lone=False,
            free_gpus=sum(nodes[member][1] for member in members),
            gpus=sum(nodes[member][1] for member in members),
            first=name(members[0]),
            children=() if is_leaf else tuple(grow(level + 1, found) for found in inside.values()),
            members=tuple(Members(offer, len(names), (tuple(names),)) for offer, names in hosts.items()),
            offers=mask_of_offers(offers),
            areas=len(members),
            counts=Counter(offers),
        )

    return grow(-1, list(range(len(nodes))))


def name(number: int) -> str:
    return f"{number:04}"


def filling(nodes: Nodes, offers: Offers, *, counts_free: bool = False) -> Filling:
    root = tree(nodes)
    is_equal = all(tuple(each) == (1,) for each in offers.values())
    search = Filling(
        SCALE,
        Alike(),
        Budget().of_areas(root.branching),
        is_equal=is_equal,
        is_exact=len(offers) <= EXACT_NODES,
        counts_hosts=not is_equal,
        counts_free=counts_free,
    )
    search.follow(root, mask_of_offers(map(OfferNumber, offers)), offers.__getitem__)
    return search


def offered(own: int = 0) -> PackedCost:
    return PackedCost(SCALE.of_host + SCALE.unit.broken * own)


def cost_of(nodes: Nodes, given_units: tuple[int, ...], own: dict[tuple[int, int], int]) -> int:
    used = [number for number, units in enumerate(given_units) if units]
    counts = tuple(len({nodes[number][0][level] for number in used}) for level in range(DEPTH))
    free = []
    for level in range(DEPTH - 1):
        touched = {nodes[number][0][level] for number in used}
        free.append(sum(gpus for domains, gpus in nodes if domains[level] in touched))
    broken = sum(own[number, given_units[number]] for number in used)
    return packed(SCALE, Cost(counts, broken=broken, free_gpus=tuple(reversed(free))))


def brute(nodes: Nodes, own: dict[tuple[int, int], int], units: int) -> tuple[int, tuple[tuple[str, int], ...]] | None:
    """The least cost, and of the spreads that cost so much the first by name."""
    choices = [(0, *(given for number, given in own if number == node)) for node in range(len(nodes))]
    spreads = [
        (
            cost_of(nodes, given_units, own),
            tuple((name(node), given) for node, given in enumerate(given_units) if given),
        )
        for given_units in product(*choices)
        if sum(given_units) == units
    ]
    return min(spreads, default=None)


@settings(max_examples=300, deadline=None)
@given(trees(), st.data(), st.booleans())
def test_no_spread_is_cheaper(nodes: Nodes, data: st.DataObject, equal: bool) -> None:
    sizes = st.just((1,)) if equal else st.sets(st.integers(1, 4), min_size=1).map(tuple)
    own = {
        (number, size): data.draw(st.integers(0, 3))
        for number in range(len(nodes))
        if data.draw(st.sampled_from([True, True, False]))
        for size in sorted(data.draw(sizes))
    }
    offers: Offers = {}
    for (number, size), cost in own.items():
        offers[number] = {**offers.get(number, {}), size: offered(cost)}
    units = data.draw(st.integers(1, 8))
    search = filling(nodes, offers, counts_free=True)
    expected = brute(nodes, own, units)
    assert search.cost(units) == (expected and expected[0])
    if expected:
        assert tuple((node, taken) for node, taken, _ in search.spread(units).picks) == expected[1]


def test_large_clusters_fill_the_fullest_domains_first() -> None:
    racks = 60
    nodes = [(("b", f"b{rack:02}", f"b{rack:02}{number:02}"), 8) for rack in range(racks) for number in range(20)]
    offers: Offers = {
        number: {1: offered(number % 2)} for number in range(len(nodes)) if number % 20 <= number // 20 % 20
    }  # rack r has r % 20 + 1 nodes to give
    needed = 20 * 3 + 19 * 2
    assert racks * 20 * needed > cheapest.EXACT_STEPS
    search = filling(nodes, offers)
    cost = search.cost(needed)
    assert cost is not None
    assert SCALE.domains(cost) == (1, 5, needed)
    assert len(search.spread(needed).picks) == needed


def test_many_nodes_of_unequal_shares_give_their_most() -> None:
    nodes = [(("b", "b/r", f"b/r/{number:02}"), 8) for number in range(cheapest.EXACT_NODES + 4)]
    offers: Offers = {
        number: dict.fromkeys(range(1, 9 if number % 4 == 0 else 4), offered()) for number in range(len(nodes))
    }
    search = filling(nodes, offers)
    cost = search.cost(29)
    assert cost is not None
    assert SCALE.domains(cost) == (1, 1, 4)
    assert sum(units for _, units, _ in search.spread(29).picks) == 29
