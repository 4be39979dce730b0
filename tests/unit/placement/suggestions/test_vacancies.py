"""What Pods would have to leave of which nodes, in clusters of real objects."""

from typing import Any

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.suggestions.changes import Alternative, nearest_changes
from closeknit.placement.values.request import Request
from scenarios.clusters import graph, wanted
from scenarios.clusters import node as drawing
from scenarios.manifests import Manifest, booked, node, node_topology, pod, resource_claim, resource_slice, training_job
from scenarios.views import cluster

TABLES = Tables()


def machines(number: int, **quantities: str) -> list[Manifest]:
    """Each has 128 CPUs, and eight GPUs by DRA."""
    names = [f"gpu-{at}" for at in range(1, number + 1)]
    parts = [
        (node(name, gpus=None, allocatable=quantities), node_topology(name), resource_slice(name)) for name in names
    ]
    return [each for part in parts for each in part]


def asking(gpus: int, **requests: str) -> Request:
    containers = [{"name": "trainer", "resources": {"requests": requests}}]
    return wanted(gpus=gpus, template={"spec": {"containers": containers}})


def freeing(there: Cluster, request: Request) -> list[Alternative]:
    """What of the nearest changes frees something, each placed again by tables that know nothing of it."""
    assert not can_place(there, request, TABLES)
    found = [each for each in nearest_changes(there, request, TABLES) if each.freed is not None]
    for each in found:
        assert each.freed is not None
        assert place(each.freed.of(there), request, Tables()) == each.placement
    return found


def words(there: Cluster, request: Request) -> list[str]:
    return [each.what for each in freeing(there, request)]


def test_room_is_freed_on_as_few_nodes_as_it_takes_those_that_lack_least_first() -> None:
    pods = [pod(f"web-{at}", requests={"cpu": cpu}, node=f"gpu-{at}") for at, cpu in ((1, "100"), (2, "80"), (3, "90"))]
    there = cluster(*machines(3), *pods)
    assert words(there, asking(8, cpu="64")) == ["free room: 16 cpu of gpu-2, held by Pods without GPUs"]
    assert words(there, asking(16, cpu="64")) == [
        "free room: 16 cpu of gpu-2 and 26 cpu of gpu-3, held by Pods without GPUs"
    ]


def test_nodes_that_never_have_so_much_are_not_freed() -> None:
    there = cluster(*machines(1, cpu="32"), *machines(2)[3:], pod("web", requests={"cpu": "100"}, node="gpu-2"))
    assert words(there, asking(8, cpu="64")) == ["free room: 36 cpu of gpu-2, held by Pods without GPUs"]
    assert words(there, asking(16, cpu="64")) == []


def notebook(cpu: str, *gpus: int) -> list[Manifest]:
    """A Pod that claims these GPUs of the first node."""
    claim = resource_claim("notebook-gpus", *(("gpu-1", gpu) for gpu in gpus))
    return [claim, pod(requests={"cpu": cpu}, claims=["notebook-gpus"])]


def test_who_has_gpus_leaves_its_cpu_with_them() -> None:
    """Four GPUs are free, and CPU for none of them."""
    there = cluster(*machines(1), *notebook("100", 4, 5, 6, 7))
    assert words(there, asking(4, cpu="64")) == [
        "free room: 36 cpu of gpu-1, held by 1 Pod",
        "free GPUs: 4 5 6 7 of gpu-1, held by 1 claim",
    ]
    assert words(there, asking(8, cpu="64")) == ["free GPUs: 4 5 6 7 of gpu-1, held by 1 claim"]


def test_the_cpu_of_others_is_not_left_with_gpus() -> None:
    there = cluster(*machines(1), *notebook("20", 4, 5, 6, 7), pod("web", requests={"cpu": "70"}))
    assert words(there, asking(8, cpu="64")) == []


def test_a_job_whose_pods_are_still_to_come_leaves_what_they_need() -> None:
    containers: list[Any] = [{"name": "trainer", "image": "x", "resources": {"requests": {"cpu": "100"}}}]
    spec = {"gpus": 4, "template": {"spec": {"containers": containers}}}
    there = cluster(*machines(1), training_job(spec=spec, placement=booked(("gpu-1", [0, 1, 2, 3]), binding="DRA")))
    assert words(there, asking(4, cpu="64")) == [
        "free room: 36 cpu of gpu-1, held by 1 job",
        "free GPUs: 0 1 2 3 of gpu-1, held by 1 job",
    ]


@pytest.mark.parametrize("others", [0, 3])
def test_many_nodes_are_counted(others: int) -> None:
    number = 3 + others
    pods = [pod(f"web-{at}", requests={"cpu": "100"}, node=f"gpu-{at}") for at in range(1, number + 1)]
    (found,) = words(cluster(*machines(number), *pods), asking(8 * number, cpu="64"))
    end = " and room on 3 other nodes" if others else ""
    assert found.startswith("free room: 36 cpu of gpu-1, 36 cpu of gpu-2")
    assert found.endswith(f"36 cpu of gpu-3{end}, held by Pods without GPUs")


def test_nics_that_are_counted_are_left_like_cpu() -> None:
    has = {"cpu": "64", "rdma/hca": "4"}
    view = drawing("n0", graph("hgx-h200"), has=has, left={"cpu": "8", "rdma/hca": "1"})
    freed = view.freed((), {"cpu": 100_000, "rdma/hca": 2})
    assert freed.rdma is not None
    assert (freed.spare, freed.rdma.free) == ({"cpu": 64_000, "rdma/hca": 3}, 3)
