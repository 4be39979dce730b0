"""What every order of hosts sends at least: proven by counting, never more than the best of all orders sends."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from bench.rank_oracle import crossing, least_crossing
from bench.rank_stages import least_sent
from closeknit.placement.ranks.axis_traffic import between_hosts
from closeknit.placement.ranks.coordinates import in_fabric_order
from closeknit.placement.ranks.host_order import ordered
from closeknit.placement.values.request import Request
from scenarios.clusters import wanted

Domains = Sequence[tuple[str, ...]]

TRAFFIC: dict[str, Mapping[str, float] | None] = {
    "dense": None,
    "experts": None,
    "pipeline": {"data": 0.1, "pipeline": 1.0},
}


def job(hosts: int, traffic: str, *, ranks: int = 8, **degrees: int) -> Request:
    return wanted(gpus=hosts * ranks, parallelism={**degrees, "traffic": TRAFFIC[traffic]})


def free(**hosts: int) -> Domains:
    """So many hosts of each rack; the first letter is its pod."""
    return [(rack[0], rack) for rack, count in sorted(hosts.items()) for _ in range(count)]


def every_order(domains: Domains) -> Iterator[list[tuple[str, ...]]]:
    """All that differ: hosts of one rack are alike."""
    if not domains:
        yield []
    for first in sorted(set(domains)):
        rest = list(domains)
        rest.remove(first)
        for order in every_order(rest):
            yield [first, *order]


SMALL = [
    pytest.param(free(a1=3, b1=5), "dense", {"tensor": 4, "pipeline": 4}, id="two-racks"),
    pytest.param(free(a1=2, a2=2, b1=4), "dense", {"tensor": 8, "pipeline": 2}, id="three-racks"),
    pytest.param(free(a1=3, a2=2, b1=3), "pipeline", {"tensor": 8, "pipeline": 2}, id="pipeline"),
    pytest.param(free(a1=4, b1=2), "pipeline", {"tensor": 8, "pipeline": 3}, id="odd-stages"),
    pytest.param(free(a1=3, b1=5), "experts", {"tensor": 8, "pipeline": 2, "expert": 2}, id="pairs-of-experts"),
    pytest.param(free(a1=3, a2=3, b1=2), "experts", {"tensor": 8, "pipeline": 2, "expert": 4}, id="a-group-a-stage"),
    pytest.param(free(a1=3, a2=3, b1=2), "experts", {"tensor": 8, "pipeline": 2, "expert": 2}, id="pairs-of-three"),
    pytest.param(free(a1=3, b1=3), "experts", {"tensor": 8, "pipeline": 3, "expert": 2}, id="a-pair-a-stage"),
    pytest.param(free(a1=5, b1=3), "experts", {"tensor": 8, "pipeline": 1, "expert": 4}, id="one-stage"),
]


@pytest.mark.parametrize(("domains", "traffic", "degrees"), SMALL)
def test_what_every_order_sends_is_what_the_best_of_them_sends(
    domains: Domains, traffic: str, degrees: dict[str, int]
) -> None:
    request = job(len(domains), traffic, **degrees)
    edges = between_hosts(request, 8)
    least = min(crossing(order, edges) for order in every_order(domains))
    assert least_sent(domains, request) == pytest.approx(least)


@pytest.mark.parametrize(("domains", "traffic", "degrees"), SMALL)
def test_a_mixed_integer_program_proves_no_more(domains: Domains, traffic: str, degrees: dict[str, int]) -> None:
    request = job(len(domains), traffic, **degrees)
    bound, is_optimal = least_crossing(domains, request)
    assert is_optimal
    least = least_sent(domains, request)
    assert least is not None
    assert bound == pytest.approx(least) or "expert" in degrees
    assert bound <= least + 1e-6


def test_groups_of_experts_stand_beside_those_of_the_next_stage() -> None:
    """Hosts of three NVLink domains, two stages of six groups of four: by what stages hold alone it would be 16.8."""
    domains = [(domain,) for domain, hosts in (("n01", 20), ("n02", 18), ("n00", 10)) for _ in range(hosts)]
    request = job(48, "experts", ranks=4, tensor=4, pipeline=2, expert=4)
    ours = [domains[host] for host in ordered(domains, request)]
    assert crossing(ours, between_hosts(request, 4)) == pytest.approx(17.6)
    assert least_sent(ours, request) == pytest.approx(17.6)


@pytest.mark.parametrize(
    ("domains", "degrees", "sent"),
    [
        (free(a1=10, a2=5, b1=10, c1=23), {"tensor": 8, "pipeline": 4, "expert": 4}, 111.2),
        (free(a1=24, a2=6, b1=34), {"tensor": 4, "pipeline": 4, "expert": 16}, 75.2),
    ],
)
def test_our_order_of_a_gang_that_the_program_leaves_open_is_proven(
    domains: Domains, degrees: dict[str, int], sent: float
) -> None:
    request = job(len(domains), "experts", **degrees)
    names = in_fabric_order([(each, f"{number:02}", 8) for number, each in enumerate(domains)])
    standing = [domains[int(name)] for name in names]
    ours = [standing[host] for host in ordered(standing, request)]
    assert crossing(ours, between_hosts(request, 8)) == pytest.approx(sent)
    assert least_sent(ours, request) == pytest.approx(sent)


def test_hosts_in_more_racks_than_can_be_counted_have_no_proof() -> None:
    domains = free(**{f"a{number:02}": 4 for number in range(12)})
    assert least_sent(domains, job(48, "dense", tensor=8, pipeline=2)) is None
