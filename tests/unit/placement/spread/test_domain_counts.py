"""Beyond the sizes where all combinations are tried: the fewest domains all the same, and no false refusal."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from closeknit.placement.candidates.usable_areas import Area, Members, OfferNumber, branching, mask_of_offers
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.spread import cheapest, domain_counts
from closeknit.placement.spread.cheapest import EXACT_NODES, Filling
from closeknit.placement.spread.coin_sums import CoinSums
from closeknit.placement.spread.cost import PackedCost, Scale
from closeknit.placement.spread.domain_counts import Alike
from closeknit.placement.spread.frontier import Counted, FrontierStep, combined
from closeknit.placement.spread.leaf import LeafNodes, Units
from closeknit.placement.values.budget import DECISION_STEPS, Budget
from closeknit.placement.values.placement import Placement
from harness.called import A_SECOND, calls_of
from scenarios.clusters import cluster_of, graph, node, wanted

SCALE = Scale(3)  # block, rack, host
HOST = SCALE.of_host

Racks = Sequence[Sequence[dict[int, int]]]  # of each block, of each of its racks: offer -> nodes


def area(level: int, first: str, children: Sequence[Area], members: Sequence[Members]) -> Area:
    counts: dict[OfferNumber, int] = {}
    for child in children:
        for offer, number in child.counted():
            counts[offer] = counts.get(offer, 0) + number
    return Area(
        level,
        is_lone=False,
        free_gpus=sum(child.free_gpus for child in children) + sum(entry.nodes for entry in members),
        gpus=0,
        first=first,
        children=tuple(children),
        members=tuple(members),
        offers=mask_of_offers([*counts, *(entry.offer for entry in members)]),
        areas=1 + sum(child.areas for child in children),
        counts=counts,
        branching=branching(children),
    )


def tree(blocks: Racks) -> Area:
    """The tree of nodes that are called block, rack, offer, number."""
    inside = []
    for block, racks in enumerate(blocks):
        leaves = []
        for rack, nodes in enumerate(racks):
            first = f"{block:03}-{rack:03}"
            members = [
                Members(OfferNumber(offer), number, (tuple(f"{first}-{offer}-{each:03}" for each in range(number)),))
                for offer, number in nodes.items()
            ]
            leaves.append(area(1, first, (), members))
        inside.append(area(0, f"{block:03}", leaves, ()))
    return area(-1, "", inside, ())


def search(
    blocks: Racks,
    offers: Sequence[Units],
    *,
    counts_hosts: bool = True,
    counts_free: bool = False,
    steps: int = DECISION_STEPS,
) -> Filling:
    total = sum(number for racks in blocks for nodes in racks for number in nodes.values())
    is_equal = all(tuple(units) == (1,) for units in offers)
    root = tree(blocks)
    filling = Filling(
        SCALE,
        Alike(),
        Budget(steps).of_areas(root.branching),
        is_equal=is_equal,
        is_exact=total <= EXACT_NODES,
        counts_hosts=counts_hosts and not is_equal,
        counts_free=counts_free,
    )
    filling.follow(root, mask_of_offers(map(OfferNumber, range(len(offers)))), lambda number: offers[number])
    return filling


def fewest_domains(capacities: Sequence[Sequence[int]], units: int) -> tuple[int, int]:
    """The fewest blocks that hold so many nodes, and the fewest racks in so many blocks: of every number of both the
    most that they hold."""
    most = {(0, 0): 0}
    for racks in capacities:
        held = [0, *accumulate(sorted(racks, reverse=True))]
        for (blocks, used), reached in list(most.items()):
            for number in range(1, len(held)):
                key = (blocks + 1, used + number)
                most[key] = max(most.get(key, 0), reached + held[number])
    return min(key for key, reached in most.items() if reached >= units)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 16), min_size=1, max_size=14), min_size=2, max_size=6),
    st.floats(0.3, 1.0),
    st.booleans(),
)
def test_no_spread_of_a_large_gang_needs_fewer_racks(
    capacities: list[list[int]], part: float, counts_free: bool
) -> None:
    units = max(2, int(part * sum(map(sum, capacities))))
    filling = search([[{0: number} for number in racks] for racks in capacities], [{1: HOST}], counts_free=counts_free)
    cost = filling.cost(units)
    assert cost is not None
    picks = filling.spread(units).picks
    used = {name.rsplit("-", 2)[0] for name, *_ in picks}
    assert (len({rack.split("-")[0] for rack in used}), len(used)) == fewest_domains(capacities, units)
    assert SCALE.domains(cost)[:2] == fewest_domains(capacities, units)
    assert len({name for name, *_ in picks}) == units
    assert filling.spread(units).is_proven
    assert filling.is_least(units)


def test_a_hundred_and_one_nodes_over_two_blocks_need_seven_racks() -> None:
    """Each block has a hundred nodes; filled one after the other, the first gives its four racks of one node, too."""
    capacities = [[16, 16, 16, 16, 16, 16, 1, 1, 1, 1]] * 2
    filling = search([[{0: number} for number in racks] for racks in capacities], [{1: HOST}])
    cost = filling.cost(101)
    assert cost is not None
    assert SCALE.domains(cost) == (2, 7, 101)
    assert len({name.rsplit("-", 2)[0] for name, *_ in filling.spread(101).picks}) == 7


@pytest.mark.parametrize("steps", [DECISION_STEPS, 0], ids=["all gone through", "nothing gone through"])
def test_beyond_its_budget_it_says_that_there_may_be_fewer(steps: int) -> None:
    """104 of 205 nodes: the bound by itself does not tell that eleven racks are the fewest."""
    capacities = [[16, 3], [16, 11, 11], [7, 5, 5], [16, 5, 3], [3, 3, 3], [16, 11, 11, 3], [11, 7, 5, 3], [16, 7]]
    filling = search([[{0: number} for number in racks] for racks in capacities], [{1: HOST}], steps=steps)
    cost = filling.cost(104)
    assert cost is not None
    assert SCALE.domains(cost) == (3, 11, 104)
    picks, is_proven = filling.spread(104)
    assert len(picks) == 104
    assert is_proven == filling.is_least(104) == (steps > 0)
    assert filling.cost(1) is not None
    assert filling.spread(1).is_proven
    assert filling.is_least(1)
    assert filling.is_least(104) == (steps > 0), "whatever was asked since"


DEEP = Scale(4)  # block, pod, rack, host
DEEP_HOST = DEEP.of_host
ONLY = OfferNumber(0)

Pods = Sequence[Sequence[Sequence[int]]]  # of each block, of each of its pods: the nodes of each rack


PODS = st.lists(
    st.lists(st.lists(st.sampled_from([1, 2, 3, 5, 8, 9, 16]), min_size=1, max_size=4), min_size=1, max_size=4),
    min_size=2,
    max_size=5,
)


def deep_search(blocks: Pods, alike: Alike, steps: int = DECISION_STEPS) -> Filling:
    root = deep_tree(blocks)
    most_steps = Budget(steps).of_areas(root.branching)
    filling = Filling(DEEP, alike, most_steps, is_equal=True, is_exact=False, counts_hosts=False)
    filling.follow(root, mask_of_offers([ONLY]), lambda _: {1: DEEP_HOST})
    return filling


def deep_tree(blocks: Pods) -> Area:
    def pod(name: str, racks: Sequence[int]) -> Area:
        names = [f"{name}-{number:02}" for number in range(len(racks))]
        nodes = [tuple(f"{rack}-{each:02}" for each in range(size)) for rack, size in zip(names, racks, strict=True)]
        leaves = [area(2, run[0], (), [Members(ONLY, len(run), (run,))]) for run in nodes]
        return area(1, name, leaves, ())

    inside = [
        area(0, f"{block:02}", [pod(f"{block:02}-{number:02}", racks) for number, racks in enumerate(pods)], ())
        for block, pods in enumerate(blocks)
    ]
    return area(-1, "", inside, ())


def fewest_of_three_levels(blocks: Pods, units: int) -> tuple[int, ...]:
    """By trying everything: of every number of blocks, pods and racks the most nodes that they hold."""
    most = {(0, 0, 0): 0}
    for pods in blocks:
        inside = {(0, 0): 0}
        for racks in pods:
            held = list(accumulate(sorted(racks, reverse=True)))
            for (used, racks_used), reached in list(inside.items()):
                for number, more in enumerate(held, 1):
                    key = (used + 1, racks_used + number)
                    inside[key] = max(inside.get(key, 0), reached + more)
        del inside[0, 0]
        for (used, pods_used, racks_used), reached in list(most.items()):
            for (more_pods, more_racks), more in inside.items():
                whole = (used + 1, pods_used + more_pods, racks_used + more_racks)
                most[whole] = max(most.get(whole, 0), reached + more)
    return min(key for key, reached in most.items() if reached >= units)


def racks_of(filling: Filling, units: int) -> int:
    return len({name.rsplit("-", 1)[0] for name, *_ in filling.spread(units).picks})


def test_what_costs_more_than_what_is_known_is_no_proof() -> None:
    """146 of 152 nodes: of choices that give a node more than must be the search took one of seventeen racks, and said
    that there was none better than what it had."""
    blocks = [[[9, 9, 16]], [[1, 9, 2, 9], [16, 9, 2, 9], [5, 8, 1, 16]], [[3, 5], [9, 5, 9]]]
    filling = deep_search(blocks, Alike())
    cost = filling.cost(146)
    assert cost is not None
    assert DEEP.domains(cost) == (3, 6, 16, 146)
    assert racks_of(filling, 146) == 16


@settings(max_examples=40, deadline=None)
@given(
    PODS,
    st.floats(0.3, 1.0),
)
def test_no_spread_over_three_levels_needs_fewer_domains(blocks: list[list[list[int]]], part: float) -> None:
    units = max(2, int(part * sum(size for pods in blocks for racks in pods for size in racks)))
    filling = deep_search(blocks, Alike())
    cost = filling.cost(units)
    assert cost is not None
    assert DEEP.domains(cost)[:3] == fewest_of_three_levels(blocks, units)
    assert racks_of(filling, units) == DEEP.domains(cost)[2]
    assert filling.spread(units).is_proven
    assert filling.may_cost(units, cost)
    assert not filling.may_cost(units, PackedCost(cost - DEEP.of_domain[0])), "one block less"


@settings(max_examples=40, deadline=None)
@given(PODS, st.floats(0.3, 1.0), st.sampled_from([0, 16, 128, 1024]), st.randoms(use_true_random=False))
def test_when_the_budget_ends_neither_names_nor_order_matter_and_nothing_is_refused(
    blocks: list[list[list[int]]], part: float, steps: int, random: Random
) -> None:
    units = max(2, int(part * sum(size for pods in blocks for racks in pods for size in racks)))
    filling = deep_search(blocks, Alike(), steps)
    cost = filling.cost(units)
    assert cost is not None
    assert DEEP.domains(cost) >= (*fewest_of_three_levels(blocks, units), units)
    assert not filling.is_least(units) or DEEP.domains(cost)[:3] == fewest_of_three_levels(blocks, units)
    assert len({name for name, *_ in filling.spread(units).picks}) == units
    assert racks_of(filling, units) == DEEP.domains(cost)[2]
    for pods in blocks:
        random.shuffle(pods)
        for racks in pods:
            random.shuffle(racks)
    random.shuffle(blocks)
    other = deep_search(blocks, Alike(), steps)
    assert other.cost(units) == cost
    assert other.is_least(units) == filling.is_least(units)


@settings(max_examples=20, deadline=None)
@given(PODS, PODS, st.sampled_from([0, 16, 128, 1024]))
def test_what_was_searched_before_with_another_budget_does_not_matter(
    before: list[list[list[int]]], blocks: list[list[list[int]]], steps: int
) -> None:
    units = sum(size for pods in blocks for racks in pods for size in racks) * 2 // 3 + 1
    alike = Alike()
    deep_search(before, alike).cost(units)
    for each in (DECISION_STEPS, steps):
        known = deep_search(blocks, alike, each)
        fresh = deep_search(blocks, Alike(), each)
        assert (known.cost(units), known.is_least(units)) == (fresh.cost(units), fresh.is_least(units))
        assert known.spread(units) == fresh.spread(units)


@pytest.mark.parametrize("seed", [112, 287, 331])
def test_what_is_forgotten_of_areas_that_are_alike_changes_no_names(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of racks that give the same for the same the first are taken, whenever that was found out."""
    chance, kinds = Random(seed), [dict.fromkeys(range(1, most + 1), HOST) for most in (1, 2, 4, 8)]  # noqa: S311
    blocks = [
        [
            {kind: chance.randint(1, 2) for kind in range(4) if chance.random() < 0.4} or {0: 1}
            for _ in range(chance.randint(1, 9))
        ]
        for _ in range(chance.randint(1, 6))
    ]
    total = sum(max(kinds[kind]) * number for racks in blocks for rack in racks for kind, number in rack.items())
    units, answers = chance.randint(1, total), []
    monkeypatch.setattr(cheapest, "EXACT_STEPS", 12)
    for most in (domain_counts.MANY_MENUS, 8, 4, 2):
        monkeypatch.setattr(domain_counts, "MANY_MENUS", most)
        filling = search(blocks, kinds)
        answers.append((filling.cost(units), filling.spread(units).picks))
    assert all(answer == answers[0] for answer in answers)


def test_the_more_domains_are_uneven_the_less_is_looked_at_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ninety-six blocks, no two of them alike, each of which takes some thousand combinations."""
    random = Random(1)  # noqa: S311 - the same blocks every time
    blocks = [[[random.randint(1, 40) for _ in range(9)] for _ in range(12)] for _ in range(96)]
    looked_at = list[int]()

    def counted(children: Counted, most_steps: int) -> tuple[tuple[FrontierStep, ...], bool]:
        looked_at.append(most_steps)
        return combined(children, most_steps)

    monkeypatch.setattr(domain_counts, "combined", counted)
    filling = deep_search(blocks, Alike())
    cost = filling.cost(150_000)
    assert cost is not None
    of_levels = Counter(looked_at)
    assert sorted(of_levels.values()) == [len(blocks), sum(map(len, blocks))]
    assert all(steps * number <= DECISION_STEPS for steps, number in of_levels.items())
    assert not filling.is_least(150_000)


def test_what_areas_have_in_common_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out = list[int]()

    def counted(children: Counted, most_steps: int) -> tuple[tuple[FrontierStep, ...], bool]:
        worked_out.append(len(children))
        return combined(children, most_steps)

    monkeypatch.setattr(domain_counts, "combined", counted)
    alike, blocks = Alike(), [[[16, 7, 3], [9, 8, 2, 1]], [[16, 7, 3], [9, 8, 2, 1]], [[16, 16, 5], [9, 8, 2, 1]]] * 2
    first = deep_search(blocks, alike).cost(165)
    seen = len(worked_out)
    assert seen <= 5  # three different pods, and two different blocks
    assert deep_search(blocks, alike).cost(165) == first
    assert len(worked_out) == seen


def can_add_up(nodes: Sequence[Sequence[int]], units: int) -> bool:
    """Whether units can be had of nodes, each of which gives one of its numbers or nothing."""
    sums = 1
    for givens in nodes:
        before = sums
        for given_units in givens:
            sums |= before << given_units
    return bool(sums >> units & 1)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sets(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.lists(st.integers(0, 7), min_size=3, max_size=3), min_size=6, max_size=9),
    st.integers(1, 90),
)
def test_units_are_refused_only_where_no_nodes_add_up_to_them(
    kinds: list[set[int]], racks: list[list[int]], units: int
) -> None:
    offers = [dict.fromkeys(sorted(givens), HOST) for givens in kinds]
    inside = [{offer: number for offer, number in enumerate(nodes[: len(offers)]) if number} for nodes in racks]
    blocks = [[nodes for nodes in inside[start::2] if nodes] for start in (0, 1)]
    nodes = [tuple(offers[offer]) for rack in inside for offer, number in rack.items() for _ in range(number)]
    assume(17 <= len(nodes) <= 64)
    filling = search([racks for racks in blocks if racks], offers)
    cost = filling.cost(units)
    assert (cost is not None) == can_add_up(nodes, units)
    if cost is not None:
        picks = filling.spread(units).picks
        assert sum(given_units for _, given_units, _ in picks) == units
        assert len({name for name, *_ in picks}) == len(picks) == SCALE.domains(cost)[2]
        assert all(given_units in offers[offer] for _, given_units, offer in picks)
        assert SCALE.domains(cost)[1] == len({name.rsplit("-", 2)[0] for name, *_ in picks})


def test_change_of_many_nodes_is_made_in_bounded_time() -> None:
    """Twelve thousand nodes that give six units or ten; an odd number cannot be had, and 2 more than tens can."""
    blocks = [[{0: 20, 1: 20} for _ in range(20)] for _ in range(15)]
    filling = search(blocks, [{6: HOST}, {10: HOST}])
    costs, calls = calls_of(lambda: (filling.cost(50_001), filling.cost(50_002)))
    assert costs[0] is None
    assert costs[1] is not None
    picks, more = calls_of(lambda: filling.spread(50_002).picks)
    assert sum(units for _, units, _ in picks) == 50_002
    assert calls + more < A_SECOND


@pytest.mark.parametrize("nodes", [14, 15, 40])
@pytest.mark.parametrize("levels", [(), ("rack",)], ids=["flat", "racks"])
def test_twenty_gpus_of_whole_nodes_are_two_of_eight_and_one_of_four(nodes: int, levels: tuple[str, ...]) -> None:
    views = [
        node(
            f"big-{number:02}", graph("hgx-h200", f"{number}"), offer="plugin", path=(f"r{number % 4}",)[: len(levels)]
        )
        for number in range(nodes)
    ]
    views += [
        node(f"small-{number}", graph("a100x4", f"s{number}"), offer="plugin", path=("r9",)[: len(levels)])
        for number in range(2)
    ]
    decision = place(cluster_of(*views, levels=levels), wanted(gpus=20, gpu={"binding": "WholeNode"}), Tables())
    assert isinstance(decision, Placement)
    assert sorted(len(share.gpus) for share in decision.shares) == [4, 8, 8]


@pytest.mark.parametrize(
    "racks", [[{0: 2}, {0: 2}], [{0: EXACT_NODES}, {0: 1}]], ids=["all combinations are tried", "not all are"]
)
def test_a_spread_that_there_is_not_is_no_empty_one(racks: list[dict[int, int]]) -> None:
    """Seven units of nodes that give two or none."""
    filling = search([racks], [{2: HOST}])
    assert filling.cost(7) is None
    with pytest.raises(AssertionError, match="nothing gives 7 units"):
        filling.spread(7)


def test_nor_is_it_one_inside_a_domain() -> None:
    hosts = LeafNodes(SCALE, is_equal=False, is_exact=True, is_uniform=True)
    hosts.add(OfferNumber(0), {2: HOST})
    rack = tree([[{0: 2}]]).children[0].children[0]
    assert hosts.cost(rack, 3) is None
    with pytest.raises(AssertionError, match="nothing gives 3 units"):
        hosts.picks(rack, 3)


def test_nodes_of_which_a_heap_was_made_are_still_there_when_they_are_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten units are one node that gives four and two that give three: the fullest first leave a rest of two."""
    filling = search([[{0: EXACT_NODES}, {1: 2}]], [{4: HOST}, {3: HOST}])
    assert filling.cost(10) is not None
    assert filling._heaped
    monkeypatch.setattr(CoinSums, "heap", lambda *_: None)
    with pytest.raises(AssertionError, match="nothing gives 10 units"):
        filling.spread(10)


def test_what_is_remembered_of_areas_that_are_alike_is_bounded_by_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks of which no two racks are alike, so that the question takes more than its answer of one rack."""
    monkeypatch.setattr(domain_counts, "MANY_PAIRS", 300)
    random, alike = Random(1), Alike()  # noqa: S311 - the same blocks every time
    most = 0
    for _ in range(60):
        children = tuple((alike.menu((FrontierStep(1, size),)), 1) for size in sorted(random.sample(range(1, 99), 40)))
        alike.inside(children, 1000)
        alike.tried(children, 1)
        alike.gone_through(children, 1, 1000)
        inside = sum(len(children) for children, _ in alike._inside)
        chosen = sum(len(key[0]) + len(pairs) for key, (pairs, _) in alike._found.items())
        most = max(most, inside, chosen)
    assert 100 < most <= 300
