"""What a count of GPUs and domains says for certain about larger clusters."""

from dataclasses import replace
from random import Random

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import NoFit, Placement
from scenarios.clusters import cluster_of, graph, held, node, wanted

TABLES = Tables()
LEVELS = ("block", "rack")


def fleet(seed: int, machine: str = "a100x4") -> Cluster:
    """17 to 64 nodes of one machine in racks of different sizes, with some of their GPUs held."""
    random = Random(seed)  # noqa: S311 - the same clusters every time
    racks, taken = random.randint(1, 9), random.random()
    views = []
    for number in range(random.randint(17, 64)):
        rack = random.randrange(racks)
        view = node(f"gpu-{number:02}", graph(machine, f"{number}"), path=(f"b{rack // 3}", f"r{rack}"))
        views.append(held(view, *(gpu for gpu in view.free if random.random() < taken)))
    return cluster_of(*views, levels=LEVELS)


def free_in(cluster: Cluster, level: int) -> dict[str | None, int]:
    free: dict[str | None, int] = {}
    for view in cluster.nodes.values():
        domain = view.domains[level]
        free[domain] = free.get(domain, 0) + len(view.free)
    return free


@pytest.mark.parametrize("seed", range(12))
def test_a_gang_is_placed_where_its_gpus_are_free_and_in_no_more_domains_than_it_needs(seed: int) -> None:
    cluster = fleet(seed)
    every = sum(len(view.free) for view in cluster.nodes.values())
    for gpus in {1, 5, every // 2, every - 1, every, every + 1} - {0, -1}:
        request = wanted(gpus=gpus)
        found = place(cluster, request, TABLES)
        assert isinstance(found, Placement) == (gpus <= every) == can_place(cluster, request, TABLES)
        if not isinstance(found, Placement):
            continue
        shared = [(share.node, gpu) for share in found.shares for gpu in share.gpus]
        assert len(set(shared)) == len(shared) == gpus
        sizes = {len(share.gpus) for share in found.shares}
        largest = sorted(free_in(cluster, 0).values(), reverse=True)
        fewest = next(number for number in range(1, len(largest) + 1) if sum(largest[:number]) >= gpus)
        blocks = len({cluster.nodes[share.node].domains[0] for share in found.shares})
        assert blocks == dict(found.levels)["block"]
        assert blocks >= fewest
        assert blocks == fewest or len(sizes) == 1, "equal shares alone are worth a domain"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("level", LEVELS)
def test_a_required_level_is_had_where_any_domain_has_gpus_enough(seed: int, level: str) -> None:
    cluster = fleet(seed)
    most = max(free_in(cluster, LEVELS.index(level)).values())
    for gpus in {1, most, most + 1} - {0}:
        request = wanted(gpus=gpus, topology={"fabric": {"required": level}})
        assert isinstance(place(cluster, request, TABLES), Placement) == (gpus <= most)


@pytest.mark.parametrize("seed", range(2))
def test_names_decide_nothing_but_between_equals(seed: int) -> None:
    cluster = fleet(seed, "dgx-1v")
    names = list(cluster.nodes)
    views = [
        replace(view, name=name, domains=(*view.domains[:-1], f"{view.domains[-2]}/{name}"))
        for view, name in zip(cluster.nodes.values(), reversed(names), strict=True)
    ]
    for gpus in (2, 5, 12, 16):
        found, other = (place(each, wanted(gpus=gpus), TABLES) for each in (cluster, cluster_of(*views, levels=LEVELS)))
        assert merit(found) == merit(other)


def merit(found: Placement | NoFit) -> object:
    if isinstance(found, NoFit):
        return found.reason
    sizes = sorted(len(share.gpus) for share in found.shares)
    return found.levels, found.transport, found.predicted_bus_bandwidth_gb_s, sizes


@pytest.mark.parametrize("seed", range(8))
def test_on_one_node_what_is_healthier_never_scores_worse(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - the same nodes every time
    broken = random.sample(range(8), random.randint(1, 5))
    words = [" ".join("x" if gpu in down else str(gpu) for gpu in range(8)) for down in (broken, broken[1:], ())]
    worse, better, whole = (cluster_of(node("gpu-0", graph("dgx-1v"), gpus=each)) for each in words)
    for gpus in range(2, 9 - len(broken)):
        request = wanted(gpus=gpus, topology={"fabric": {"required": "host"}, "nvlink": "Ignored"})
        rated = []
        for cluster in (worse, better, whole):
            found = place(cluster, request, TABLES)
            assert isinstance(found, Placement)
            assert found == place(cluster, request, TABLES)
            rated.append(found.predicted_bus_bandwidth_gb_s or 0.0)
        assert rated == sorted(rated)
