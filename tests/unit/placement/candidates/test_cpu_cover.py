"""GPUs that their node has no CPU for."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.placement.candidates.cpu_cover import cpu_cover
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, graph, node, wanted

CPUS = {"cpu": "96", "memory": "1Ti", "pods": "110"}  # of eight GPUs: nine go with each


@pytest.mark.parametrize(
    ("spare", "asked", "free", "gpus", "stranded"),
    [
        (96, 32, 8, 1, 0),  # 64 for seven
        (96, 34, 8, 1, 1),  # 62
        (48, 32, 3, 1, 1),  # 16 for two
        (50, 32, 3, 1, 0),
        (10, 10, 3, 1, 0),  # two had none before, and two have none after
        (10, 1, 3, 1, -1),  # it takes one of the two that had none
        (10, 1, 3, 3, -2),
        (27, 27, 3, 3, 0),  # none is left
        (27, 27, 3, 2, 1),
    ],
)
def test_gpus_more_without_cpu_are_counted(spare: int, asked: int, free: int, gpus: int, stranded: int) -> None:
    found = cpu_cover({"cpu": spare * 1000}, asked * 1000, 9, free)
    assert (found.stranded(free, gpus) if found else 0) == stranded


@given(st.integers(0, 400_000), st.integers(1, 400_000), st.integers(1, 30), st.integers(1, 16))
def test_nodes_are_told_apart_by_what_counts_alone(left: int, asked: int, each: int, free: int) -> None:
    """There are no more kinds of nodes than there are pairs of counts, and each says what whole numbers say."""
    found = cpu_cover({"cpu": left + asked}, asked, each, free)
    for gpus in range(1, free + 1):
        before = max(0, free - (left + asked) // (each * 1000))
        after = max(0, free - gpus - left // (each * 1000))
        assert (found.stranded(free, gpus) if found else 0) == after - before
    assert found is None or (0 <= found.now <= free and 0 <= found.then < free)


@pytest.mark.parametrize(
    ("spare", "asked", "each"),
    [(None, 1000, 9), ({"cpu": 10_000}, 0, 9), ({"cpu": 10_000}, 1000, 0), ({"cpu": 99_000}, 1000, 9)],
    ids=["nobody knows what is left", "nothing is asked for", "no CPU goes with a GPU", "it does for all"],
)
def test_most_nodes_are_as_they_are_without_it(spare: dict[str, int] | None, asked: int, each: int) -> None:
    assert cpu_cover(spare, asked, each, 8) is None


def test_a_job_that_asks_for_no_cpu_goes_where_it_did() -> None:
    full = node("gpu-02", graph("hgx-h200", "2"), gpus="a a a a a 5 6 7", has=CPUS, left={"cpu": "1"})
    cluster = cluster_of(node("gpu-01", graph("hgx-h200", "1"), has=CPUS), full)
    found = place(cluster, wanted(gpus=1), Tables())
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["gpu-02"]


def test_a_gang_is_judged_by_all_of_its_nodes() -> None:
    """Of three nodes two are taken: those that are left with CPU for their free GPUs, not the first."""
    left = {"gpu-01": "40", "gpu-02": "68", "gpu-03": "70"}  # four GPUs and 32 CPUs of each: 8, 36 and 38 for four
    nodes = [node(name, graph("hgx-h200", name), has=CPUS, left={"cpu": cpus}) for name, cpus in left.items()]
    asked = wanted(gpus=8, topology={"gpusPerNode": 4})
    found = place(cluster_of(*nodes), replace(asked, needs=(("cpu", 32_000),)), Tables())
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["gpu-02", "gpu-03"]
