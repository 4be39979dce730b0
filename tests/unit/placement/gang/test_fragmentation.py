"""How scattered free GPUs are: by hand, against brute force over placements, and within its bounds."""

import random
import time
from dataclasses import replace

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.placement.fragmentation import Fragmentation, fragmentation
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place
from scenarios.clusters import cluster_of, graph, node, wanted
from scenarios.irregular import irregular

RACKS = ("rack",)
TABLES = Tables()  # which change no answer


def measured(cluster: Cluster) -> Fragmentation:
    return fragmentation(cluster, TABLES)


def test_a_cluster_by_hand() -> None:
    dgx = graph("dgx-1v")
    found = measured(
        cluster_of(
            node("a", dgx, path=("r1",)),
            node("b", dgx, path=("r1",), gpus="a a 2 3 a a 6 7"),
            node("c", dgx, path=("r2",), gpus="b 1 b b b b b x"),
            node("d", dgx, path=("r2",), gpus="b b b b b b b b"),
            levels=(*RACKS, "host"),
        )
    )
    assert (found.free_gpus, found.broken_gpus, found.largest_gang) == (13, 5, 13)
    assert dict(found.largest_inside) == {"rack": 12, "host": 8}
    assert dict(found.islands) == {1: 1, 4: 1, 8: 1}
    assert {level: dict(sizes) for level, sizes in found.free_domains.items()} == {
        "rack": {1: 1, 12: 1},
        "host": {1: 1, 4: 1, 8: 1},
    }
    assert found.scattered == pytest.approx(5 / 13)


def test_nothing_is_free() -> None:
    found = measured(cluster_of(node("a", graph("dgx-1v"), gpus="a a a a a a a a")))
    assert (found.free_gpus, found.largest_gang, found.scattered, found.islands) == (0, 0, 0, {})
    assert measured(cluster_of()).free_gpus == 0


def test_nodes_that_no_job_could_be_given_do_not_count() -> None:
    dgx = graph("dgx-1v")
    # Of eight its plugin has seven left, the broken one among them or not: nobody knows which one the Pod has.
    unsure = node("d", dgx, offer="plugin-blind", gpus="x 1 2 3 a 5 6 7", holders={"a": "Pod ml/notebook"})
    assert unsure.plugin is not None
    found = measured(
        cluster_of(
            node("a", dgx, gpus="0 1 a a a a a a"),
            node("b", dgx, taint="maintenance"),
            node("c", dgx, excluded=("NotReady", "it is not ready")),
            replace(unsure, plugin=replace(unsure.plugin, allocatable=8)),
        )
    )
    assert (found.free_gpus, found.largest_gang) == (2, 2)


def test_an_unlabelled_node_is_a_domain_of_its_own() -> None:
    dgx = graph("dgx-1v")
    nodes = (node("a", dgx, path=("r1",)), node("b", dgx, path=(None,)))
    found = measured(cluster_of(*nodes, levels=(*RACKS, "host")))
    assert (found.largest_gang, found.largest_inside["rack"]) == (16, 8)
    assert dict(found.free_domains["rack"]) == {8: 2}


@pytest.mark.parametrize("seed", range(8))
def test_the_largest_gang_is_placeable_and_no_larger_one_is(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    machines = [graph("dgx-1v"), graph("pairs8"), graph("a100x4")]
    nodes = []
    for name in "abcde":
        machine = chance.choice(machines)
        words = " ".join(str(gpu.index) if chance.random() < 0.6 else "job" for gpu in machine.gpus)
        offer = chance.choice(["DRA", "plugin"])
        nodes.append(node(name, machine, gpus=words, path=(chance.choice(["r1", "r2"]),), offer=offer))
    cluster = cluster_of(*nodes, levels=(*RACKS, "host"))
    found = measured(cluster)
    for level, largest in ((None, found.largest_gang), ("rack", found.largest_inside["rack"])):
        sizes = [
            size
            for size in range(1, found.free_gpus + 1)
            if can_place(cluster, wanted(gpus=size, topology={"fabric": {"required": level}}), TABLES)
        ]
        assert largest == max(sizes, default=0)
    alone = [
        size for size in range(1, 9) if can_place(cluster, wanted(gpus=size, topology={"gpusPerNode": size}), TABLES)
    ]
    assert found.largest_inside["host"] == max(alone, default=0)


def test_on_rails_every_node_gives_the_same_indexes() -> None:
    dgx = graph("dgx-1v")
    words = ("0 1 2 3 a a a a", "0 1 2 3 4 5 a a", "a a a a 4 5 6 7", "0 1 2 3 4 5 6 7")
    nodes = (node(f"n{number}", dgx, gpus=gpus) for number, gpus in enumerate(words))
    cluster = cluster_of(*nodes, fabric={"railIsolated": True})
    found = measured(cluster)
    assert (found.free_gpus, found.largest_gang) == (22, 12)
    assert can_place(cluster, wanted(gpus=12), TABLES)
    assert not can_place(cluster, wanted(gpus=13), TABLES)


def test_machines_that_nobody_has_seen_are_counted_and_not_searched() -> None:
    chance = random.Random(1)  # noqa: S311
    nodes = []
    for number in range(12):
        machine = irregular(number)
        words = " ".join(str(gpu.index) if chance.random() < 0.7 else "job" for gpu in machine.gpus)
        nodes.append(node(f"n{number:02}", machine, gpus=words))
    cluster = cluster_of(*nodes)
    begun = time.process_time()
    found = measured(cluster)
    assert time.process_time() - begun < 10  # 0.1 s measured; a search takes minutes
    assert found.largest_gang == found.free_gpus == sum(len(view.free) for view in cluster.nodes.values())
