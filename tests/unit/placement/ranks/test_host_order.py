"""The order of hosts by what their ranks exchange: never worse than the fabric's, and mostly the best there is."""

from collections import defaultdict
from itertools import combinations, pairwise, permutations
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.rank_oracle import crossing
from closeknit.placement.ranks.axis_traffic import between_hosts
from closeknit.placement.ranks.coordinates import coordinates, in_fabric_order
from closeknit.placement.ranks.host_order import ordered
from closeknit.placement.values.request import Request
from scenarios.clusters import wanted

Domains = list[tuple[str, ...]]

DEGREES = [
    (1, 1, 1, 1),
    (2, 1, 2, 1),
    (8, 1, 2, 1),
    (4, 1, 3, 1),
    (2, 2, 2, 4),
    (4, 1, 1, 2),
    (16, 1, 2, 1),
    (8, 1, 1, 4),
]
TRAFFIC = [None, {"data": 0.1, "pipeline": 1}, {"data": 1, "pipeline": 0.1}, {"data": 0.3, "expert": 1}]


def job(hosts: int, degrees: tuple[int, int, int, int], traffic: object = None) -> Request | None:
    tensor, context, pipeline, expert = degrees
    if hosts * 8 % (tensor * context * pipeline) or hosts * 8 // tensor // pipeline % expert:
        return None
    parallelism = {"tensor": tensor, "context": context, "pipeline": pipeline, "expert": expert, "traffic": traffic}
    return wanted(gpus=hosts * 8, parallelism=parallelism)


def restated(request: Request) -> dict[tuple[int, int], float]:
    """What goes between hosts of eight, from where Megatron's coordinates put the ranks."""
    at = [coordinates(rank, request) for rank in range(request.gpus)]
    groups: dict[tuple[str, *tuple[int, ...]], list[int]] = defaultdict(list)
    for rank, place in enumerate(at):
        groups["data", place.tensor, place.pipeline].append(rank)
        groups["group", place.pipeline, place.data].append(rank)
        groups["expert", place.tensor, place.pipeline, rank // request.tensor // request.expert].append(rank)
        groups["pipeline", place.tensor, place.context, place.data].append(rank)
    found: dict[tuple[int, int], float] = defaultdict(float)
    for (axis, *_), ranks in groups.items():
        hosts = list(dict.fromkeys(rank // 8 for rank in ranks))
        pairs = list(zip(hosts, hosts[1:] + hosts[:1], strict=True))
        weight = {"data": request.traffic.data, "group": 10.0}.get(axis, 0.0)
        if axis == "group" and request.group == 1:
            continue
        if axis == "pipeline":
            pairs = [(one // 8, other // 8) for one, other in pairwise(ranks)]
            weight = request.traffic.pipeline
        if axis == "expert":
            pairs = [(one // 8, other // 8) for one, other in combinations(ranks, 2)]
            weight = 2 * request.traffic.expert / request.expert
        for one, other in pairs:
            if one != other and weight:
                found[min(one, other), max(one, other)] += weight
    return found


@pytest.mark.parametrize("degrees", DEGREES, ids=str)
@pytest.mark.parametrize("traffic", TRAFFIC, ids=str)
def test_traffic_is_that_of_megatrons_groups(degrees: tuple[int, int, int, int], traffic: object) -> None:
    for hosts in (2, 4, 6, 12):
        request = job(hosts, degrees, traffic)
        if request:
            assert between_hosts(request, 8) == pytest.approx(restated(request))


@st.composite
def gangs(draw: st.DrawFn, most: int = 24) -> tuple[Domains, Request]:
    degrees = draw(st.sampled_from(DEGREES))
    hosts = draw(st.sampled_from([number for number in range(2, most + 1) if job(number, degrees)]))
    racks = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"))
    drawn = [(block, block + rack) for block, rack in draw(st.lists(racks, min_size=hosts, max_size=hosts))]
    request = job(hosts, degrees, draw(st.sampled_from(TRAFFIC)))
    assert request is not None
    names = in_fabric_order([(domains, f"{number:03}", 8) for number, domains in enumerate(drawn)])
    return [drawn[int(name)] for name in names], request


@settings(max_examples=40, deadline=None)
@given(gangs())
def test_no_order_is_worse_than_the_fabrics(gang: tuple[Domains, Request]) -> None:
    domains, request = gang
    order = ordered(domains, request)
    assert sorted(order) == list(range(len(domains)))
    edges = between_hosts(request, 8)
    assert crossing([domains[host] for host in order], edges) <= crossing(domains, edges) + 1e-6
    assert order == ordered(domains, request)


@settings(max_examples=12, deadline=None)
@given(gangs(most=6))
def test_of_few_hosts_it_is_near_the_best_of_all_orders(gang: tuple[Domains, Request]) -> None:
    domains, request = gang
    edges = between_hosts(request, 8)
    found = crossing([domains[host] for host in ordered(domains, request)], edges)
    best = min(crossing(order, edges) for order in set(permutations(domains)))
    assert found <= 1.05 * best + 1e-6


def test_stages_of_racks_that_add_up() -> None:
    """Racks of 6, 5, 3 and 2 hosts, two stages of 8: 6 + 2 and 5 + 3 split two rings, as they come three are split."""
    domains = [(rack,) for rack, hosts in (("r1", 6), ("r2", 5), ("r3", 3), ("r4", 2)) for _ in range(hosts)]
    request = wanted(gpus=128, parallelism={"tensor": 8, "pipeline": 2})
    racks = [domains[host][0] for host in ordered(domains, request)]
    assert [sorted(set(racks[:8])), sorted(set(racks[8:]))] == [["r1", "r4"], ["r2", "r3"]]


def test_an_order_that_no_swap_makes_better_is_left_for_a_better_one() -> None:
    """Six stages of four hosts in racks of 5, 8 and 11: swaps end at 27.2, the least that any order sends is 25.6."""
    racks = ((("p0", "p0/r0"), 5), (("p1", "p1/r1"), 8), (("p1", "p1/r4"), 11))
    domains = [rack for rack, hosts in racks for _ in range(hosts)]
    request = wanted(gpus=192, parallelism={"tensor": 4, "pipeline": 6})
    order = [domains[host] for host in ordered(domains, request)]
    assert crossing(order, between_hosts(request, 8)) == pytest.approx(25.6)


def test_every_other_stage_runs_through_its_domains_backwards() -> None:
    """Two stages of 24 hosts in NVLink domains of 20, 18 and 10: as they come, or filled up, 24.0 is sent at least.

    The second domain begins in one stage and ends in the other. Its hosts are at equal places where the stages turn:
    each ring is in two domains and 18 of 24 hosts have their next stage elsewhere.
    """
    domains = [(domain,) for domain, hosts in (("n01", 20), ("n02", 18), ("n00", 10)) for _ in range(hosts)]
    request = wanted(gpus=192, parallelism={"tensor": 4, "pipeline": 2})
    order = [domains[host] for host in ordered(domains, request)]
    assert crossing(order, between_hosts(request, 4)) == pytest.approx(4 * 4.0 + 18 * 0.4)


def test_ranks_that_exchange_nothing_stay_as_the_fabric_has_them() -> None:
    domains = [(rack,) for rack in ("r1", "r2") for _ in range(4)]
    parallelism = {"tensor": 8, "pipeline": 2, "traffic": {"data": 0, "pipeline": 0}}
    assert ordered(domains, wanted(gpus=64, parallelism=parallelism)) == list(range(8))


def test_what_a_job_says_of_its_traffic_decides() -> None:
    """Two racks of four hosts, four stages of two: gradients alone keep a stage in a rack, activations a row."""
    domains = [(rack,) for rack in ("r1", "r2") for _ in range(4)]
    parallelism = {"tensor": 8, "pipeline": 4}
    by_stage, by_row = (
        [
            domains[host][0]
            for host in ordered(domains, wanted(gpus=64, parallelism={**parallelism, "traffic": traffic}))
        ]
        for traffic in (None, {"data": 0.01, "pipeline": 1})
    )
    assert all(by_stage[first] == by_stage[first + 1] for first in range(0, 8, 2))
    assert by_row == ["r1", "r2"] * 4


@pytest.mark.parametrize(
    ("hosts", "racks", "gpus", "parallelism"),
    [
        pytest.param(1200, 97, 9600, {"tensor": 8, "pipeline": 8, "expert": 5}, id="of the bench"),
        pytest.param(2048, 2048, 16384, {"tensor": 8, "pipeline": 8, "expert": 8}, id="each in a rack of its own"),
        pytest.param(2048, 400, 16384, {"tensor": 8, "pipeline": 16, "expert": 8}, id="few in a rack"),
        pytest.param(2048, 5, 16384, {"tensor": 8, "pipeline": 8, "expert": 8}, id="in few racks"),
        pytest.param(2048, 5, 2048, {"pipeline": 2, "expert": 512}, id="in few racks, experts everywhere"),
        pytest.param(2048, 400, 2048, {"pipeline": 2, "expert": 1024}, id="experts everywhere"),
        pytest.param(65536, 4096, 65536, {"pipeline": 2, "expert": 1024}, id="as many as can be"),
    ],
)
def test_so_many_hosts_take_less_than_a_second(hosts: int, racks: int, gpus: int, parallelism: dict[str, int]) -> None:
    domains = [(f"b{number % racks % 3}", f"b{number % racks % 3}/r{number % racks}") for number in range(hosts)]
    names = in_fabric_order([(each, f"{number:05}", gpus // hosts) for number, each in enumerate(domains)])
    request = wanted(gpus=gpus, parallelism=parallelism)
    before = process_time()
    order = ordered([domains[int(name)] for name in names], request)
    assert process_time() - before < 1
    assert sorted(order) == list(range(hosts))
