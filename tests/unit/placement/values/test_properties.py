"""What holds for every placement, whatever the cluster and the job."""

from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from closeknit.api.trainingjob import NvlinkPolicy
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.node.node import NodeView
from closeknit.machine.islands import islands
from closeknit.placement.allreduce.rings import rings
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gpusets.masks import mask_of
from closeknit.placement.gpusets.set_facts import SetFacts
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import NoFit, Placement, TransportChoice
from closeknit.placement.values.request import Request
from harness.first_fit import first_fit
from scenarios.clusters import cluster_of, graph, held, node, wanted

TABLES = Tables()
MACHINES = ["dgx-1v", "hgx-h200", "a100x4-backwards", "pairs8", "pcie-only"]


@st.composite
def nodes(draw: st.DrawFn, name: str, kind: str | None, *, offers: tuple[str, ...] = ("DRA",)) -> NodeView:
    """A node with some of its GPUs held, of a kind of machine or of any."""
    machine = graph(kind or draw(st.sampled_from(MACHINES)), name)
    bits = draw(st.integers(0, 2**24 - 1))
    taken = bits & bits >> 8 & bits >> 16  # one in eight
    return node(
        name,
        machine,
        gpus=" ".join("a" if taken >> gpu.index & 1 else str(gpu.index) for gpu in machine.gpus),
        path=(draw(st.sampled_from(["r1", "r2", None])),),
        offer=draw(st.sampled_from(offers)),
        rdma=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def clusters(draw: st.DrawFn, *, offers: tuple[str, ...] = ("DRA",)) -> Cluster:
    """Mostly of one kind of machine, so that a gang often goes over several nodes, and over RDMA where they have it."""
    count = draw(st.sampled_from([1, 2, 2, 3, 3, 4, 6]))
    kind = draw(st.sampled_from([*MACHINES, "hgx-h200", "dgx-1v", None, None]))
    views = [draw(nodes(f"gpu-{number}", kind, offers=offers)) for number in range(count)]
    fabric: dict[str, Any] = {"railIsolated": draw(st.sampled_from([False, False, True]))}
    if draw(st.booleans()):
        fabric["levelBandwidthGBps"] = {"rack": 15}
    return cluster_of(*views, levels=("rack",), fabric=fabric)


@st.composite
def situations(draw: st.DrawFn, *, offers: tuple[str, ...] = ("DRA",)) -> tuple[Cluster, Request]:
    """A cluster, and a job that it has GPUs for most of the time."""
    cluster = draw(clusters(offers=offers))
    tensor, context = draw(st.sampled_from([1, 1, 2, 4])), draw(st.sampled_from([1, 1, 2]))
    free = sum(len(view.free) for view in cluster.nodes.values())
    data = max(1, draw(st.integers(1, free + 2)) // (tensor * context))
    topology: dict[str, Any] = {
        "nvlink": draw(st.sampled_from(["Required", "Preferred", "Ignored"])),
        "fabric": {"required": draw(st.sampled_from([None, None, None, "rack", "host"]))},
        "minBusBandwidthGBps": draw(st.sampled_from([None, None, None, 10, 100])),
    }
    network = {"rdma": draw(st.sampled_from(["Preferred", "Preferred", "Required", "Disabled"]))}
    return cluster, wanted(
        gpus=tensor * context * data,
        parallelism={"tensor": tensor, "context": context},
        topology=topology,
        network=network,
    )


@settings(max_examples=50, deadline=None)
@given(situations(offers=("DRA", "plugin", "plugin-blind")))
def test_a_placement_is_whole_and_takes_only_what_is_free(situation: tuple[Cluster, Request]) -> None:
    cluster, request = situation
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


@settings(max_examples=60, deadline=None)
@given(clusters(offers=("DRA", "plugin")), st.lists(st.integers(1, 20), min_size=2, max_size=6))
def test_each_job_gets_all_of_its_gpus_or_none_and_no_gpu_is_given_twice(cluster: Cluster, sizes: list[int]) -> None:
    """One job after another, each with what those before it have left."""
    given_before: set[str] = set()
    for gpus in sizes:
        request = wanted(gpus=gpus)
        decision = place(cluster, request, TABLES)
        assert can_place(cluster, request, TABLES) == isinstance(decision, Placement)
        if isinstance(decision, NoFit):
            continue
        uuids = [uuid for share in decision.shares for uuid in share.uuids]
        assert len(set(uuids)) == len(uuids) == sum(len(share.gpus) for share in decision.shares) == gpus
        assert not given_before & set(uuids)
        given_before |= set(uuids)
        taken = {share.node: held(cluster.nodes[share.node], *share.gpus) for share in decision.shares}
        cluster = replace(cluster, nodes={**cluster.nodes, **taken})


@settings(max_examples=50, deadline=None)
@given(situations())
def test_required_groups_lie_inside_islands(situation: tuple[Cluster, Request]) -> None:
    cluster, request = situation
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


@settings(max_examples=50, deadline=None)
@given(situations())
def test_kinds_are_mixed_only_where_no_kind_alone_will_do(situation: tuple[Cluster, Request]) -> None:
    cluster, request = situation
    demanding = replace(request, mixes_kinds=False)
    alone, mixed = place(cluster, demanding, TABLES), place(cluster, request, TABLES)
    for decision in (alone, mixed):
        if isinstance(decision, Placement):
            machines = [cluster.nodes[share.node].machine for share in decision.shares]
            kinds = {machine.gpus[0].product for machine in machines if machine is not None}
            assert len(kinds) == 1 or (decision is mixed and request.mixes_kinds and not isinstance(alone, Placement))


@settings(max_examples=60, deadline=None)
@given(situations(offers=("DRA", "plugin")), st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(situation: tuple[Cluster, Request], random: Any) -> None:
    cluster, request = situation
    names = list(cluster.nodes)
    random.shuffle(names)
    assert place(replace(cluster, nodes={name: cluster.nodes[name] for name in names}), request, TABLES) == place(
        cluster, request, TABLES
    )


@settings(max_examples=8, deadline=None)
@given(situations(offers=("DRA", "plugin")))
def test_equal_questions_have_equal_answers_whatever_was_asked_before(situation: tuple[Cluster, Request]) -> None:
    assert place(*situation, TABLES) == place(*situation, Tables())


@settings(max_examples=30, deadline=None)
@given(situations(), st.randoms(use_true_random=False))
def test_names_of_nodes_decide_only_between_equals(situation: tuple[Cluster, Request], random: Any) -> None:
    cluster, request = situation
    names = list(cluster.nodes)
    random.shuffle(names)
    views = [
        replace(view, name=name, domains=(*view.domains[:-1], f"{view.domains[-2] or '?'}/{name}"))
        for view, name in zip(cluster.nodes.values(), names, strict=True)
    ]
    renamed = replace(cluster, nodes={view.name: view for view in views})
    found, other = place(cluster, request, TABLES), place(renamed, request, TABLES)
    assert isinstance(found, Placement) == isinstance(other, Placement)
    if isinstance(found, Placement) and isinstance(other, Placement):
        assert found.levels == other.levels
        assert found.predicted_bus_bandwidth_gb_s == other.predicted_bus_bandwidth_gb_s
        assert sorted(len(share.gpus) for share in found.shares) == sorted(len(share.gpus) for share in other.shares)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(MACHINES), st.data())
def test_on_one_node_what_is_healthier_never_scores_worse(name: str, data: st.DataObject) -> None:
    whole = graph(name)
    broken = data.draw(st.sets(st.sampled_from([gpu.index for gpu in whole.gpus]), min_size=1))
    mended = broken - {data.draw(st.sampled_from(sorted(broken)))}
    rated = []
    for down in (broken, mended):
        words = " ".join("x" if gpu.index in down else str(gpu.index) for gpu in whole.gpus)
        request = wanted(gpus=max(1, len(whole.gpus) - len(broken)), topology={"nvlink": "Ignored"})
        found = place(cluster_of(node("gpu-0", whole, gpus=words)), request, TABLES)
        rated.append(found.predicted_bus_bandwidth_gb_s or 0 if isinstance(found, Placement) else -1)
    assert rated[0] <= rated[1]


@settings(max_examples=50, deadline=None)
@given(situations(), st.data())
def test_one_more_free_gpu_never_makes_a_job_unplaceable(
    situation: tuple[Cluster, Request], data: st.DataObject
) -> None:
    cluster, request = situation
    free = [(name, index) for name, view in cluster.nodes.items() for index in view.free]
    assume(free)
    name, index = data.draw(st.sampled_from(free))
    less = replace(cluster, nodes={**cluster.nodes, name: held(cluster.nodes[name], index)})
    if isinstance(place(less, request, TABLES), Placement):
        assert isinstance(place(cluster, request, TABLES), Placement)


def emptied(cluster: Cluster) -> Cluster:
    """The same machines with nothing on them, nothing broken, and every GPU to be had by name."""
    nodes = {}
    for name, view in cluster.nodes.items():
        assert view.machine is not None
        every = tuple(gpu.index for gpu in view.machine.gpus)
        nodes[name] = replace(view, usable=every, free=every, holders={}, unusable={}, dra=True, plugin=None)
    return replace(cluster, nodes=nodes)


@settings(max_examples=75, deadline=None)
@given(situations())
def test_the_ideal_is_what_the_same_machines_would_give_if_they_were_empty(situation: tuple[Cluster, Request]) -> None:
    cluster, request = situation
    decision = place(cluster, request, TABLES)
    assume(isinstance(decision, Placement))
    assert isinstance(decision, Placement)
    free = place(emptied(cluster), replace(request, min_bus_bandwidth_gb_s=None), TABLES)
    assert isinstance(free, Placement)
    predicted, ideal = decision.predicted_bus_bandwidth_gb_s, free.predicted_bus_bandwidth_gb_s
    # In an empty cluster merit may take fewer domains and less bandwidth; the gang could lie there as it does now, too.
    assert decision.ideal_bus_bandwidth_gb_s == (ideal if ideal is None else max(ideal, predicted or 0.0))


def test_the_ideal_is_not_below_what_merit_now_gives_over_more_nodes() -> None:
    """Empty, the eight cards of one node are taken, over PCIe; with one of them held, two trays over fast NICs."""
    trays = [node(f"tray-{number}", graph("gb200-tray", str(number)), path=("r1",)) for number in (0, 1)]
    cards = [node("cards", graph("pairs8"), gpus=gpus, path=("r1",)) for gpus in ("", "a 1 2 3 4 5 6 7")]
    request = wanted(gpus=8)
    empty, used = (place(cluster_of(*trays, view, levels=("rack",)), request, TABLES) for view in cards)
    assert isinstance(empty, Placement)
    assert isinstance(used, Placement)
    assert ([share.node for share in empty.shares], len(used.shares)) == (["cards"], 2)
    slow, fast = empty.predicted_bus_bandwidth_gb_s, used.predicted_bus_bandwidth_gb_s
    assert slow is not None
    assert fast is not None
    assert slow < fast
    assert (empty.ideal_bus_bandwidth_gb_s, used.ideal_bus_bandwidth_gb_s) == (slow, fast)


@cache
def fastest_gb_s(machine: str, count: int) -> float:
    """Of all sets of so many GPUs of a machine, what the best reaches."""
    whole = graph(machine)
    facts = SetFacts(whole, rings)
    return max(facts.reached_gb_s(mask_of(positions)) for positions in combinations(range(len(whole.gpus)), count))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.lists(st.sampled_from(MACHINES), min_size=1, max_size=3), st.integers(2, 8))
def test_on_one_node_the_ideal_is_the_fastest_set_of_any_machine(
    data: st.DataObject, machines: list[str], count: int
) -> None:
    able = [name for name in machines if len(graph(name).gpus) >= count]
    assume(able)
    views = []
    for number, name in enumerate(machines):
        whole = graph(name, f"gpu-{number}")
        taken = data.draw(st.integers(0, (1 << len(whole.gpus)) - 1))
        words = " ".join("a" if taken >> gpu.index & 1 else str(gpu.index) for gpu in whole.gpus)
        views.append(node(f"gpu-{number}", whole, gpus=words))
    request = wanted(gpus=count, topology={"nvlink": "Ignored", "fabric": {"required": "host"}})
    decision = place(cluster_of(*views), request, TABLES)
    assume(isinstance(decision, Placement))
    assert isinstance(decision, Placement)
    best = max(fastest_gb_s(name, count) for name in able)
    assert decision.ideal_bus_bandwidth_gb_s == best
    assert decision.predicted_bus_bandwidth_gb_s is not None
    assert decision.predicted_bus_bandwidth_gb_s <= best


@settings(max_examples=50, deadline=None)
@given(situations())
def test_on_one_node_it_is_never_slower_than_first_fit(situation: tuple[Cluster, Request]) -> None:
    cluster, request = situation
    request = replace(request, nvlink=NvlinkPolicy.IGNORED, required_level=None, min_bus_bandwidth_gb_s=None)
    naive, ours = first_fit(cluster, request, TABLES), place(cluster, request, TABLES)
    assume(naive is not None and len(naive.shares) == 1 and naive.predicted_bus_bandwidth_gb_s is not None)
    assert naive is not None
    assert isinstance(ours, Placement)
    assert (ours.predicted_bus_bandwidth_gb_s or 0) >= (naive.predicted_bus_bandwidth_gb_s or 0)


@settings(max_examples=60, deadline=None)
@given(situations(offers=("DRA", "plugin", "plugin-blind")))
def test_a_refusal_says_what_was_asked_and_what_was_found(situation: tuple[Cluster, Request]) -> None:
    cluster, request = situation
    decision = place(cluster, request, TABLES)
    assume(isinstance(decision, NoFit))
    assert isinstance(decision, NoFit)
    assert decision.message.startswith("needs ")
    assert "; " in decision.message
