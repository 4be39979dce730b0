"""The search against every choice there is, on random clusters of up to three nodes with four GPUs each."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import NoFit, Placement
from closeknit.placement.values.request import Request
from scenarios.choices import QUAD, SHAPES, best_merit, chosen_by, every_choice, merit
from scenarios.clusters import cluster_of, node, wanted

TABLES = Tables()
HAS = {"cpu": "16", "memory": "1Ti", "pods": "110"}  # three CPUs go with each GPU
CPUS = st.sampled_from([16, 13, 10, 7, 4])
HOLDERS = st.sampled_from(["a", "a", "b", "c"])


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    shapes = draw(st.lists(st.sampled_from(sorted(SHAPES)), min_size=1, max_size=3))
    same = draw(st.booleans())
    nodes = []
    for number, shape in enumerate(shapes):
        held = draw(st.integers(0, 15)) & draw(st.integers(0, 15))
        nodes.append(
            node(
                f"gpu-{number}",
                SHAPES[shapes[0] if same else shape],
                gpus=" ".join(draw(HOLDERS) if held >> index & 1 else str(index) for index in range(4)),
                path=(draw(st.sampled_from(["b1", "b2"])), draw(st.sampled_from(["r1", "r2", None]))),
                rdma=draw(st.sampled_from([True, True, False])),
                has=HAS,
                left={"cpu": str(draw(CPUS))},
            )
        )
    fabric = draw(st.sampled_from([{}, {"levelBandwidthGBps": {"rack": 15}}, {"levelBandwidthGBps": {"host": 5}}]))
    return cluster_of(*nodes, levels=("block", "rack"), fabric=fabric)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Cluster, Request]:
    """A cluster, and a job that it has GPUs for most of the time."""
    cluster = draw(clusters())
    free = sum(len(view.free) for view in cluster.nodes.values())
    gpus = draw(st.integers(1, free + 1))
    tensor = draw(st.sampled_from([degree for degree in (1, 2, 3, 4, 6) if gpus % degree == 0]))
    each = draw(st.sampled_from([None, None, None, *(size for size in (1, 2, 3, 4) if gpus % size == 0)]))
    topology: dict[str, Any] = {
        "nvlink": draw(st.sampled_from(["Required", "Preferred", "Ignored"])),
        "fabric": {"required": draw(st.sampled_from([None, None, None, "block", "rack", "host"]))},
        "gpusPerNode": each,
        "minBusBandwidthGBps": draw(st.sampled_from([None, None, None, None, 5, 12, 40])),
    }
    expert = draw(st.sampled_from([1, 1, *(degree for degree in (2, 3, 4) if gpus // tensor % degree == 0)]))
    wish = wanted(gpus=gpus, parallelism={"tensor": tensor, "expert": expert}, topology=topology)
    cpus = draw(st.sampled_from([0, 1, 3, 5, 7, 8]))
    return cluster, replace(wish, needs=(("cpu", cpus * 1000),) if cpus else ())


@settings(max_examples=150, deadline=None)
@given(situations())
def test_no_choice_has_more_merit_than_the_one_taken(situation: tuple[Cluster, Request]) -> None:
    cluster, request = situation
    merits = [found for chosen in every_choice(cluster, request.gpus) if (found := merit(cluster, request, chosen))]
    decision = place(cluster, request, TABLES)
    assert best_merit(cluster, request) == min(merits, default=None)
    if not merits:
        assert isinstance(decision, NoFit)
        return
    assert isinstance(decision, Placement), decision
    taken = merit(cluster, request, chosen_by(decision, cluster))
    assert taken is not None
    if len(cluster.nodes) > 1:  # of domains that are alike the one with the first node is taken, whichever nodes inside
        assert taken[:-2] == min(merits)[:-2]
    else:
        assert taken == min(merits)


def test_brute_force_sees_what_it_should() -> None:
    """Guards the oracle itself: two double links are there, and a cluster with both prefers them."""
    cluster = cluster_of(node("gpu-0", QUAD, path=("b1", "r1")), levels=("block", "rack"))
    merits = {
        chosen: found
        for chosen in every_choice(cluster, 2)
        if (found := merit(cluster, wanted(gpus=2), chosen)) is not None
    }
    assert min(merits, key=lambda chosen: merits[chosen]) == ((0, 3),)
    assert len(merits) == 6
