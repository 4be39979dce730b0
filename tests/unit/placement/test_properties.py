"""What holds for every placement, whatever the cluster and the job."""

from dataclasses import replace
from math import prod
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node import NodeView
from closeknit.machine.islands import islands
from closeknit.placement.first_fit import first_fit
from closeknit.placement.place import place
from closeknit.placement.placement import NoFit, Placement, TransportChoice
from closeknit.placement.request import Request
from closeknit.placement.tables import Tables
from scenarios.clusters import cluster_of, graph, node, wanted

TABLES = Tables()
MACHINES = ["dgx-1v", "hgx-h200", "a100x4-backwards", "pairs8", "pcie-only"]


@st.composite
def nodes(draw: st.DrawFn, name: str, *, offers: tuple[str, ...] = ("DRA",)) -> NodeView:
    machine = graph(draw(st.sampled_from(MACHINES)), name)
    held = draw(st.integers(0, 255)) & draw(st.integers(0, 255))
    return node(
        name,
        machine,
        gpus=" ".join("a" if held >> gpu.index & 1 else str(gpu.index) for gpu in machine.gpus),
        path=(draw(st.sampled_from(["r1", "r2", None])),),
        offer=draw(st.sampled_from(offers)),
        rdma=draw(st.booleans()),
    )


@st.composite
def clusters(draw: st.DrawFn, *, offers: tuple[str, ...] = ("DRA",)) -> Cluster:
    count = draw(st.integers(1, 6))
    views = [draw(nodes(f"gpu-{number}", offers=offers)) for number in range(count)]
    rails = draw(st.sampled_from([False, False, True]))
    return cluster_of(*views, levels=("rack",), fabric={"railIsolated": rails})


@st.composite
def jobs(draw: st.DrawFn) -> Request:
    degrees = [draw(st.sampled_from([1, 1, 2, 4])), draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 6))]
    topology: dict[str, Any] = {
        "nvlink": draw(st.sampled_from(["Required", "Preferred", "Ignored"])),
        "fabric": {"required": draw(st.sampled_from([None, None, "rack", "host"]))},
        "minBusBandwidthGBps": draw(st.sampled_from([None, None, 10, 100])),
    }
    network = {"rdma": draw(st.sampled_from(["Preferred", "Required", "Disabled"]))}
    return wanted(
        gpus=prod(degrees),
        parallelism={"tensor": degrees[0], "context": degrees[1]},
        topology=topology,
        network=network,
    )


@settings(max_examples=150, deadline=None)
@given(clusters(offers=("DRA", "plugin", "plugin-blind")), jobs())
def test_a_placement_is_whole_and_takes_only_what_is_free(cluster: Cluster, request: Request) -> None:
    decision = place(cluster, request, TABLES)
    assume(isinstance(decision, Placement))
    assert isinstance(decision, Placement)
    assert len({share.node for share in decision.shares}) == len(decision.shares)
    assert [rank for share in decision.shares for rank in share.ranks] == list(range(request.gpus))
    for share in decision.shares:
        view = cluster.nodes[share.node]
        machine = view.machine
        assert machine is not None
        assert len(set(share.gpus)) == len(share.gpus)
        assert set(share.gpus) <= set(view.free)
        positions = machine.positions(share.gpus)
        assert machine.in_bus_order(positions) == positions
        assert share.uuids == tuple(machine.gpus[position].uuid for position in positions)
        assert bool(share.nics) == (decision.transport is TransportChoice.RDMA)


@settings(max_examples=100, deadline=None)
@given(clusters(), jobs())
def test_required_groups_lie_inside_islands(cluster: Cluster, request: Request) -> None:
    request = replace(request, nvlink=NvlinkPolicy.REQUIRED)
    decision = place(cluster, request, TABLES)
    assume(isinstance(decision, Placement))
    assert isinstance(decision, Placement)
    for share in decision.shares:
        machine = cluster.nodes[share.node].machine
        assert machine is not None
        size = request.group if request.group > 1 else len(share.gpus)
        assert len(share.gpus) % size == 0
        for first in range(0, len(share.gpus), size):
            assert len(islands(machine, machine.positions(share.gpus[first : first + size]))) == 1


@settings(max_examples=100, deadline=None)
@given(clusters(offers=("DRA", "plugin")), jobs(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(cluster: Cluster, request: Request, random: Any) -> None:
    names = list(cluster.nodes)
    random.shuffle(names)
    assert place(replace(cluster, nodes={name: cluster.nodes[name] for name in names}), request, TABLES) == place(
        cluster, request, TABLES
    )


@settings(max_examples=150, deadline=None)
@given(clusters(), jobs(), st.data())
def test_one_more_free_gpu_never_makes_a_job_unplaceable(
    cluster: Cluster, request: Request, data: st.DataObject
) -> None:
    held = [(name, index) for name, view in cluster.nodes.items() for index in view.holders]
    assume(held)
    assume(isinstance(place(cluster, request, TABLES), Placement))
    name, index = data.draw(st.sampled_from(held))
    view = cluster.nodes[name]
    freed = replace(
        view,
        free=tuple(sorted((*view.free, index))),
        holders={other: holder for other, holder in view.holders.items() if other != index},
    )
    assert isinstance(place(replace(cluster, nodes={**cluster.nodes, name: freed}), request, TABLES), Placement)


@settings(max_examples=100, deadline=None)
@given(clusters(), jobs())
def test_a_prediction_is_never_above_the_ideal(cluster: Cluster, request: Request) -> None:
    decision = place(cluster, request, TABLES)
    assume(isinstance(decision, Placement))
    assert isinstance(decision, Placement)
    predicted, ideal = decision.predicted_bus_bandwidth_gb_s, decision.ideal_bus_bandwidth_gb_s
    assert predicted is None or ideal is None or predicted <= ideal


@settings(max_examples=100, deadline=None)
@given(clusters(), jobs())
def test_on_one_node_it_is_never_slower_than_first_fit(cluster: Cluster, request: Request) -> None:
    request = replace(request, nvlink=NvlinkPolicy.IGNORED, required_level=None, min_bus_bandwidth_gb_s=None)
    naive, ours = first_fit(cluster, request, TABLES), place(cluster, request, TABLES)
    assume(naive is not None and len(naive.shares) == 1 and naive.predicted_bus_bandwidth_gb_s is not None)
    assert naive is not None
    assert isinstance(ours, Placement)
    assert (ours.predicted_bus_bandwidth_gb_s or 0) >= (naive.predicted_bus_bandwidth_gb_s or 0)


@settings(max_examples=100, deadline=None)
@given(clusters(offers=("DRA", "plugin", "plugin-blind")), jobs())
def test_a_refusal_says_what_was_asked_and_what_was_found(cluster: Cluster, request: Request) -> None:
    decision = place(cluster, request, TABLES)
    assume(isinstance(decision, NoFit))
    assert isinstance(decision, NoFit)
    assert decision.message.startswith("needs ")
    assert "; " in decision.message
    assert decision.nearest == ()
