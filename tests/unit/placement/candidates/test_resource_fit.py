"""Placement never puts a Pod where it does not fit, and keeps off no node where it does."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.api.reasons import PendingReason
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.pod_requests import Amounts, Needs
from closeknit.placement.candidates.resource_fit import fits, lacking, told
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import NoFit, Placement
from closeknit.placement.values.request import Request
from closeknit.placement.values.sentences import count
from scenarios.clusters import cluster_of, graph, held, node, wanted

TABLES = Tables()
HAS = {"cpu": 8, "memory": 8, "example.com/fpga": 2, "pods": 3}


@st.composite
def amounts(draw: st.DrawFn) -> Amounts:
    return {name: draw(st.integers(0, most)) for name, most in HAS.items() if draw(st.integers(0, 9))}


@st.composite
def needs(draw: st.DrawFn) -> Needs:
    found = {name: draw(st.integers(0, most)) for name, most in HAS.items()}
    return tuple(sorted((name, amount) for name, amount in {**found, "pods": 1}.items() if amount))


@st.composite
def views(draw: st.DrawFn, name: str) -> NodeView:
    view = node(
        name,
        graph("a100x4", name),
        path=(draw(st.sampled_from(["r1", "r2", None])),),
        offer=draw(st.sampled_from(["DRA", "plugin"])),
    )
    view = held(view, *draw(st.sets(st.integers(0, 3), max_size=2)))
    return replace(view, allocatable=HAS, spare=draw(st.none() | amounts()))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    return cluster_of(*(draw(views(f"gpu-{number}")) for number in range(draw(st.integers(1, 5)))), levels=("rack",))


@st.composite
def jobs(draw: st.DrawFn) -> Request:
    fabric = {"required": draw(st.sampled_from([None, None, "rack"]))}
    request = wanted(gpus=draw(st.integers(1, 12)), topology={"fabric": fabric})
    return replace(request, needs=draw(needs()))


@settings(max_examples=120, deadline=None)
@given(clusters(), jobs())
def test_a_job_is_placed_as_if_nodes_without_room_were_not_there(cluster: Cluster, request: Request) -> None:
    roomy = [view for view in cluster.nodes.values() if fits(view.spare, request.needs)]
    without = cluster_of(*roomy, levels=("rack",))
    decision, expected = place(cluster, request, TABLES), place(without, replace(request, needs=()), Tables())
    assert can_place(cluster, request, TABLES) == isinstance(decision, Placement)
    if isinstance(expected, Placement):
        assert isinstance(decision, Placement)
        # What the ideal is, the empty cluster says, which has nodes more.
        assert replace(decision, ideal_bus_bandwidth_gb_s=None) == replace(expected, ideal_bus_bandwidth_gb_s=None)
        return
    assert isinstance(decision, NoFit)
    loose = place(cluster, replace(request, needs=()), TABLES)
    if isinstance(loose, NoFit):
        assert decision.reason in {loose.reason, PendingReason.INSUFFICIENT_RESOURCES}
    short = [view.name for view in cluster.nodes.values() if lacking(view.spare, request.needs)]
    assert short or decision.reason is not PendingReason.INSUFFICIENT_RESOURCES
    if decision.reason is PendingReason.NO_DOMAIN and short:
        assert f"{count(len(short), 'node')} excluded" in decision.message


@settings(max_examples=15, deadline=None)
@given(st.lists(clusters(), min_size=2, max_size=5), st.lists(jobs(), min_size=1, max_size=3))
def test_what_was_kept_of_other_versions_changes_no_answer(versions: list[Cluster], requests: list[Request]) -> None:
    """Each version follows on the one before, node by node, so that searches find areas that they know."""
    kept = Tables()
    cluster = versions[0]
    for before, after in pairwise(versions):
        for name in sorted({**before.nodes, **after.nodes}):
            nodes = {key: view for key, view in {**cluster.nodes, name: after.nodes.get(name)}.items() if view}
            pair = (cluster.nodes.get(name), after.nodes.get(name))
            forest = cluster.forest.after([pair])
            cluster = replace(cluster, nodes=nodes, _grown=None)
            assert forest == cluster.forest
            object.__setattr__(cluster._grown, "forest", forest)
            for request in requests:
                assert place(cluster, request, kept) == place(cluster, request, Tables())
                assert can_place(cluster, request, kept) == can_place(cluster, request, Tables())


def test_a_change_that_leaves_room_or_leaves_none_is_no_new_ground() -> None:
    """Else each Pod that comes or goes anywhere would have every waiting job asked again."""
    cluster = cluster_of(
        *(
            replace(node(f"gpu-{number}", graph("a100x4"), path=(rack,)), allocatable=HAS, spare=HAS)
            for number, rack in enumerate(["r1", "r1", "r2"])
        ),
        levels=("rack",),
    )
    request = replace(wanted(gpus=2), needs=(("cpu", 4), ("pods", 1)))
    tables = Tables()
    root = tables.ground(cluster, request).root

    def with_cpu(amount: int) -> Cluster:
        view = cluster.nodes["gpu-1"]
        assert view.spare is not None
        changed = replace(view, spare={**view.spare, "cpu": amount})
        return replace(cluster, nodes={**cluster.nodes, "gpu-1": changed}, _grown=None)

    assert tables.ground(with_cpu(4), request).root is root
    cramped = tables.ground(with_cpu(3), request).root
    assert cramped is not root
    assert tables.ground(with_cpu(2), request).root is cramped


TOLD = {
    ("cpu", 24_000): "24",
    ("cpu", 1_500): "1500m",
    ("memory", 0): "0",
    ("memory", 1023): "1023",
    ("memory", 256 << 30): "256Gi",
    ("memory", (100 << 30) + (1 << 29) - 1): "100.4Gi",
    ("ephemeral-storage", 3 << 20): "3Mi",
    ("hugepages-2Mi", 4 << 20): "4Mi",
    ("example.com/fpga", 2048): "2048",
}


@pytest.mark.parametrize(("amount", "expected"), TOLD.items(), ids=TOLD.values())
def test_amounts_are_told_as_templates_have_them(amount: tuple[str, int], expected: str) -> None:
    assert told(*amount) == expected
