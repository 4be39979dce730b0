"""What would make a gang fit: each change is placed again, and says what it costs."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.suggestions import bisection, lower_requests, releases, vacancies
from closeknit.placement.suggestions import changes as module
from closeknit.placement.suggestions.changes import MOST_TOLD, inquiry, nearest_changes
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.reservation.patience import patient
from scenarios.clusters import cluster_of, drawn, graph, node, wanted

TABLES = Tables()  # which change no answer
SPEEDS = {"levelBandwidthGBps": {"rack": 25, "block": 10}}


def fabric_of(*free: str) -> Cluster:
    """DGX-1Vs in two racks of each of two blocks, each with these GPUs free."""
    nodes = [
        node(f"n{number}", graph("dgx-1v"), gpus=words, path=(f"b{number // 4}", f"r{number // 2}"))
        for number, words in enumerate(free)
    ]
    return cluster_of(*nodes, levels=("block", "rack"), fabric=SPEEDS)


ALL = "0 1 2 3 4 5 6 7"
NONE = "x x x x x x x x"
HALF = "0 1 2 3 a a a a"


def told(cluster: Cluster, **spec: Any) -> list[str]:
    request = wanted(**spec)
    assert not can_place(cluster, request, TABLES)
    return [each.what for each in nearest_changes(cluster, request, TABLES)]


CASES = [
    ("an outer level", {"gpus": 16, "topology": {"fabric": {"required": "rack"}}}, "topology.fabric.required: block"),
    ("no level", {"gpus": 24, "topology": {"fabric": {"required": "block"}}}, "topology.fabric.required: none"),
    ("fewer on each node", {"gpus": 16, "topology": {"gpusPerNode": 8, "fabric": {"required": "rack"}}}, "gpus: 8"),
    ("links", {"gpus": 20, "topology": {"nvlink": "Required", "fabric": {"required": "block"}}}, "gpus: 16"),
    ("another product", {"gpus": 8, "gpu": {"products": ["NVIDIA-H200"]}}, "gpu.products: any"),
    ("other nodes", {"gpus": 8, "template": {"spec": {"nodeSelector": {"zone": "a"}, "containers": [{"name": "t"}]}}},
     "nodeSelector and affinity: none"),
    ("less speed", {"gpus": 16, "topology": {"minBusBandwidthGBps": 500}}, "topology.minBusBandwidthGBps: none"),
    ("fewer GPUs", {"gpus": 64}, "gpus: 28"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "change"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_change_that_makes_it_fit_is_told(spec: dict[str, Any], change: str) -> None:
    cluster = fabric_of(ALL, NONE, ALL, NONE, ALL, HALF, NONE, NONE)
    assert change in told(cluster, **spec)


def test_two_changes_are_told_where_none_alone_is_enough() -> None:
    cluster = fabric_of(ALL, NONE, ALL, NONE)
    spec = {"fabric": {"required": "rack"}, "minBusBandwidthGBps": 500}
    assert "topology.fabric.required: block and topology.minBusBandwidthGBps: none" in told(
        cluster, gpus=16, topology=spec
    )


@pytest.mark.parametrize(
    ("fabric", "change"),
    [({}, "topology.nvlink: Ignored"), ({"preferred": "host"}, "topology.fabric.patience: 0s")],
    ids=["by default", "as it says"],
)
def test_how_not_to_wait_for_a_machine_is_told_first(fabric: dict[str, str], change: str) -> None:
    cluster = fabric_of(HALF, HALF)
    waiting = patient(wanted(gpus=8, topology={"fabric": fabric}), cluster, TABLES)
    assert waiting is not None
    (first, *_) = nearest_changes(cluster, waiting, TABLES)
    assert first.what == change
    assert len(first.placement.shares) == 2


def test_shares_are_cut_smaller() -> None:
    cluster = fabric_of(HALF, HALF, HALF, NONE)
    assert told(cluster, gpus=8, topology={"gpusPerNode": 8})[0] == "topology.gpusPerNode: 4"


def test_what_the_change_costs_is_told() -> None:
    cluster = fabric_of(ALL, "a a a a a a a a", ALL, NONE)
    (found, *_) = nearest_changes(cluster, wanted(gpus=16, topology={"fabric": {"required": "rack"}}), TABLES)
    predicted = found.placement.predicted_bus_bandwidth_gb_s
    assert predicted is not None
    assert found.ideal_gb_s is not None
    assert found.ideal_gb_s > predicted
    words = f"16 GPUs on 2 nodes, {predicted:.1f} GB/s: {found.ideal_gb_s - predicted:.1f} less than the "
    assert (
        str(found) == f"with topology.fabric.required: block: {words}{found.ideal_gb_s:.1f} that it could have at best"
    )


def test_nothing_is_told_where_nothing_is_free() -> None:
    assert told(fabric_of(NONE, NONE), gpus=8, topology={"nvlink": "Required"}) == []


@pytest.mark.parametrize("seed", range(12))
def test_every_change_that_is_told_is_placed_by_a_search_that_remembers_nothing_of_it(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    cluster = fabric_of(*(" ".join(str(gpu) if chance.random() < 0.6 else "a" for gpu in range(8)) for _ in range(8)))
    again = Tables()
    for _ in range(4):
        request = wanted(
            gpus=chance.choice([8, 16, 24, 32, 48]),
            parallelism={"tensor": chance.choice([1, 2, 4])},
            topology={
                "nvlink": chance.choice(["Required", "Preferred"]),
                "fabric": {"required": chance.choice(["rack", "block", None])},
                "gpusPerNode": chance.choice([None, 4, 8]),
                "minBusBandwidthGBps": chance.choice([None, 20]),
            },
        )
        if can_place(cluster, request, TABLES):
            continue
        found = nearest_changes(cluster, request, TABLES)
        assert len(found) <= MOST_TOLD
        for each in found:
            assert (each.request == request) == (each.freed is not None)
            then = each.freed.of(cluster) if each.freed else cluster
            assert place(then, each.request, again) == each.placement


def test_the_gpus_to_be_freed_are_of_few_holders_and_only_those_that_would_be_taken() -> None:
    """On the first node c and d hold two each, on the second b holds four, on the others a large job holds all."""
    views = [
        node("n0", graph("dgx-1v"), gpus="0 1 2 3 c c d d", path=("b0", "r0")),
        node("n1", graph("dgx-1v"), gpus="0 1 2 b b b b 7", path=("b0", "r0")),
        node("n2", graph("dgx-1v"), gpus="a a a a a a a a", path=("b0", "r1")),
        node("n3", graph("dgx-1v"), gpus="a a a a a a a a", path=("b0", "r1")),
    ]
    cluster = cluster_of(*views, levels=("block", "rack"), fabric=SPEEDS)
    request = wanted(gpus=8, topology={"gpusPerNode": 8})
    (free, *_) = [each for each in nearest_changes(cluster, request, TABLES) if each.freed]
    assert free.what == "free GPUs: 4 5 6 7 of n0, held by 2 jobs"
    assert free.freed is not None
    assert free.freed.gpus == {"n0": (4, 5, 6, 7)}
    larger = nearest_changes(cluster, wanted(gpus=24), TABLES)
    (free,) = [each for each in larger if each.freed]
    assert free.what == "free GPUs: 0 1 2 3 4 5 6 7 of n2 and 0 1 2 3 4 5 6 7 of n3, held by 1 job"


def test_in_a_required_rack_gpus_of_that_rack_are_freed() -> None:
    words = ("0 1 2 3 a a a a", "0 1 2 3 a a a a", "0 1 2 3 4 5 6 7", "0 1 2 3 4 5 b b")
    cluster = fabric_of(*words)
    request = wanted(gpus=16, topology={"fabric": {"required": "rack"}})
    (free,) = [each for each in nearest_changes(cluster, request, TABLES) if each.freed]
    assert free.freed is not None
    assert free.freed.gpus == {"n3": (6, 7)}


def test_gpus_that_are_broken_are_not_to_be_freed() -> None:
    cluster = fabric_of("0 1 2 3 4 5 6 x", NONE)
    assert [each for each in nearest_changes(cluster, wanted(gpus=8), TABLES) if each.freed] == []


def test_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def never(*_: object) -> bool:
        nonlocal asked
        asked += 1
        return False

    monkeypatch.setattr(module, "can_place", never)
    everything = wanted(
        gpus=65_536,
        gpu={"products": ["A"], "minMemory": "1Gi", "binding": "DRA"},
        network={"rdma": "Required"},
        topology={"nvlink": "Required", "gpusPerNode": 64, "minBusBandwidthGBps": 1, "fabric": {"required": "rack"}},
        template={"spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "t"}]}},
    )
    assert nearest_changes(fabric_of(ALL), everything, TABLES) == ()
    assert asked < 200
    assert isinstance(place(fabric_of(ALL), wanted(gpus=8), TABLES), Placement)


QUESTIONS = [
    (module, ("place", "can_place", "ideal_gb_s")),
    (releases, ("place", "can_place", "could_place")),
    (vacancies, ("place", "can_place")),
    (bisection, ("can_place",)),
    (lower_requests, ("can_place",)),
]


@pytest.mark.parametrize(
    "spec",
    [
        {"gpus": 24},
        {"gpus": 8, "topology": {"gpusPerNode": 8}},
        {"gpus": 24, "topology": {"minBusBandwidthGBps": 1, "fabric": {"required": "block"}}},
        {"gpus": 64},
    ],
    ids=["too many", "too wide", "too slow", "too many for the cluster"],
)
def test_others_have_a_turn_after_each_question(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One question is a decision, which nobody else may have to wait for more than once."""
    asked = 0

    def counting(question: Callable[..., object]) -> Callable[..., object]:
        def ask(*about: object) -> object:
            nonlocal asked
            asked += 1
            return question(*about)

        return ask

    for where, names in QUESTIONS:
        for name in names:
            monkeypatch.setattr(where, name, counting(getattr(where, name)))
    steps = [0]
    for _ in inquiry(fabric_of(HALF, HALF, HALF, NONE), wanted(**spec), Tables()):
        steps.append(asked)
    steps.append(asked)
    assert asked > 3
    assert max(then - before for before, then in pairwise(steps)) == 1


def test_a_whole_gpu_in_place_of_a_mig_device() -> None:
    drawing = {"machine": "hgx-h200", "mig": {0: "1g.18gb a b", 1: "3g.71gb 0"}}
    asked = wanted(gpus=1, gpu={"mig": "1g.18gb"})
    (found,) = nearest_changes(drawn({"nodes": {"gpu-01": drawing}}), asked, Tables())
    assert str(found) == "with gpu.mig: none: 1 GPU on 1 node, bandwidth unknown"


def test_a_mig_device_of_another_gpu() -> None:
    drawing = {"machine": "hgx-h200", "gpus": "a a a a a a a a", "mig": {0: "1g.18gb 0 1"}}
    asked = wanted(gpus=1, gpu={"mig": "1g.18gb", "products": ["NVIDIA-B200"]})
    (found,) = nearest_changes(drawn({"nodes": {"gpu-01": drawing}}), asked, Tables())
    assert str(found) == "with gpu.products: any: 1 MIG device on 1 node, bandwidth unknown"


def test_more_gpus_may_fit_where_fewer_do_not() -> None:
    """Nodes that can only be given whole: 8 fit in a rack, 12 do not, 24 do."""
    whole = [node(f"n{n}", graph("dgx-1v"), offer="plugin-blind", path=("r0",)) for n in range(3)]
    half = node("n3", graph("a100x4"), offer="plugin-blind", path=("r1",))
    cluster = cluster_of(*whole, half, levels=("rack",))
    spec = {"gpu": {"binding": "WholeNode"}, "topology": {"fabric": {"required": "rack"}}}
    assert [gpus for gpus in range(4, 32, 4) if can_place(cluster, wanted(gpus=gpus, **spec), TABLES)] == [4, 8, 16, 24]
    assert "gpus: 24" in told(cluster, gpus=28, **spec)


@pytest.mark.parametrize(
    ("spec", "offer", "most"),
    [
        ({"gpus": 28, "parallelism": {"context": 2, "expert": 4}}, "DRA", 20),
        ({"gpus": 40, "parallelism": {"tensor": 2, "context": 2, "expert": 2}}, "DRA", 20),
        ({"gpus": 36, "parallelism": {"pipeline": 6}, "topology": {"gpusPerNode": 4}}, "DRA", 12),
        ({"gpus": 36, "topology": {"gpusPerNode": 3, "nvlink": "Ignored"}, "parallelism": {"tensor": 2}}, "DRA", 6),
        ({"gpus": 40, "parallelism": {"tensor": 4}, "gpu": {"binding": "WholeNode"}}, "plugin", 16),
    ],
    ids=["expert groups", "beside tensor groups", "stages over shares", "groups over shares", "whole nodes"],
)
def test_the_most_gpus_are_all_that_the_degrees_and_the_nodes_allow(
    spec: dict[str, Any], offer: str, most: int
) -> None:
    """Halving finds the most only among numbers of which each that is smaller fits, too."""
    words = (ALL, ALL, "0 1 2 3 a a a a")
    views = [node(f"n{at}", graph("dgx-1v"), gpus=gpus, offer=offer) for at, gpus in enumerate(words)]
    cluster, again = cluster_of(*views), Tables()
    assert f"gpus: {most}" in told(cluster, **spec)
    for gpus in range(most + 1, spec["gpus"]):
        try:
            request = wanted(**{**spec, "gpus": gpus})
        except ValueError:
            continue
        assert not can_place(cluster, request, again)


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        ({"topology": {"fabric": {"required": "row"}}}, "topology.fabric.required: none"),
        ({"network": {"trafficClass": "gold"}}, "network.trafficClass: none"),
    ],
    ids=["level", "traffic class"],
)
def test_what_the_cluster_does_not_know_is_told_to_be_left_out(spec: dict[str, Any], change: str) -> None:
    assert told(fabric_of(ALL), gpus=8, **spec) == [change]


def with_room(*left: dict[str, str], **more: str) -> Cluster:
    """DGX-1Vs with all GPUs free, each with this left of 64 CPUs, 512 GiB and 110 places for Pods."""
    has = {"cpu": "64", "memory": "512Gi", "pods": "110", **more}
    return cluster_of(*(node(f"n{at}", graph("dgx-1v"), has=has, left=each) for at, each in enumerate(left)))


def asking(**requests: str) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "trainer", "resources": {"requests": requests}}]}}}


OTHERS = "held by Pods without GPUs"
LESS = [
    ("of one", [{"cpu": "24"}, {"cpu": "16500m"}, {}], asking(cpu="32", memory="256Gi"),
     ["requests: 24 cpu on each node", f"free room: 8 cpu of n0, {OTHERS}", "gpus: 8"]),
    ("rounded down", [{"memory": "100.27Gi"}, {}], asking(memory="256Gi"),
     ["requests: 100.2Gi memory on each node", f"free room: 155.8Gi memory of n0, {OTHERS}", "gpus: 8"]),
    ("of either", [{"cpu": "24"}, {"memory": "100Gi"}, {}, {"pods": "0"}], asking(cpu="32", memory="256Gi"),
     ["requests: 24 cpu on each node", "requests: 100Gi memory on each node", f"free room: 8 cpu of n0, {OTHERS}",
      "gpus: 8"]),
    ("of both", [{"cpu": "24", "memory": "100Gi"}, {"cpu": "24", "memory": "200Gi"}], asking(cpu="32", memory="256Gi"),
     ["requests: 24 cpu and 100Gi memory on each node",
      f"free room: 8 cpu and 156Gi memory of n0 and 8 cpu and 56Gi memory of n1, {OTHERS}"]),
    ("of none at all", [{"cpu": "0"}, {}], asking(cpu="32"),
     ["requests: no cpu on each node", f"free room: 32 cpu of n0, {OTHERS}", "gpus: 8"]),
]  # fmt: skip


@pytest.mark.parametrize(("left", "spec", "changes"), [case[1:] for case in LESS], ids=[case[0] for case in LESS])
def test_how_much_less_its_pods_could_ask_for_is_told(
    left: list[dict[str, str]], spec: dict[str, Any], changes: list[str]
) -> None:
    assert told(with_room(*left), gpus=16, **spec) == changes


def test_less_is_told_beside_another_change_where_it_takes_both() -> None:
    cluster = with_room({"cpu": "24"}, {"cpu": "16"})
    spec = {"gpus": 16, "topology": {"minBusBandwidthGBps": 500}, **asking(cpu="32")}
    assert "topology.minBusBandwidthGBps: none and requests: 16 cpu on each node" in told(cluster, **spec)


def test_a_place_for_a_pod_cannot_be_done_without() -> None:
    changes = told(with_room({"pods": "0"}, {}), gpus=16, **asking(cpu="1"))
    assert changes == [f"free room: a place for a Pod of n0, {OTHERS}", "gpus: 8"]


@pytest.mark.parametrize("seed", range(12))
def test_no_more_than_the_least_that_is_left_could_be_asked_for(seed: int) -> None:
    """One unit more of what is told does not fit, of any of the resources that were cut."""
    chance = random.Random(seed)  # noqa: S311
    left = [{"cpu": f"{chance.randrange(40)}", "memory": f"{chance.randrange(300)}Gi"} for _ in range(4)]
    cluster, again = with_room(*left), Tables()
    request = wanted(gpus=chance.choice([8, 16, 24]), **asking(cpu="40", memory="300Gi"))
    found = [each for each in nearest_changes(cluster, request, TABLES) if each.what.startswith("requests: ")]
    assert found
    for each in found:
        now = dict(each.request.needs)
        assert isinstance(place(cluster, each.request, again), Placement)
        for resource, asked in request.needs:
            if now.get(resource, 0) < asked:
                more = {**now, resource: now.get(resource, 0) + 1}
                assert not can_place(cluster, replace(request, needs=tuple(sorted(more.items()))), again)


def freed_of(cluster: Cluster, request: Request) -> str:
    (found,) = [each for each in nearest_changes(cluster, request, TABLES) if each.freed]
    return found.what


def test_gpus_are_freed_where_as_many_as_are_wanted_are_free_without_links_between_them() -> None:
    """0 and 1 are a pair, 2 and 3 are: a count of free GPUs finds nothing missing."""
    cluster = cluster_of(node("n0", graph("pairs8"), gpus="0 a b 3 c c c c"))
    asked = wanted(gpus=2, topology={"nvlink": "Required", "fabric": {"required": "host"}})
    assert freed_of(cluster, asked) == "free GPUs: 1 of n0, held by 1 job"


def test_gpus_are_freed_where_as_many_as_are_wanted_are_free_without_nics() -> None:
    views = [
        node("n0", graph("hgx-h200"), rdma=False),
        node("n1", graph("hgx-h200"), gpus="a a a a a a a a"),
        node("n2", graph("hgx-h200"), gpus="0 1 2 3 b b b b"),
        node("n3", graph("hgx-h200")),
    ]
    asked = wanted(gpus=16, network={"rdma": "Required"}, topology={"gpusPerNode": 8})
    assert freed_of(cluster_of(*views), asked) == "free GPUs: 4 5 6 7 of n2, held by 1 job"


def test_gpus_are_freed_of_one_kind_for_a_gang_that_takes_one_kind_alone() -> None:
    """The holders of the A100s have fewer each, and more in all."""
    views = (
        node("h0", graph("hgx-h200")),
        node("h1", graph("hgx-h200"), gpus="a a a a a a a a"),
        node("h2", graph("hgx-h200"), gpus="0 1 2 3 a a a a"),
        node("a0", graph("hgx-a100"), gpus="b c d e f g h i"),
        node("a1", graph("hgx-a100"), gpus="j k l m n o p q"),
    )
    asked = wanted(gpus=16, topology={"nvlink": "Required"})
    assert freed_of(cluster_of(*views), asked) == "free GPUs: 0 1 2 3 4 5 6 7 of h1, held by 1 job"


def test_a_whole_node_is_freed_where_a_device_plugin_gives_no_less() -> None:
    """On the first node one GPU of two holders is broken, so that it is never whole."""
    views = [
        node("n0", graph("hgx-h200"), gpus="0 1 2 3 4 5 a x", offer="plugin-blind"),
        node("n1", graph("hgx-h200"), gpus="0 1 2 b b b c c", offer="plugin-blind"),
    ]
    asked = wanted(gpus=8, topology={"gpusPerNode": 8})
    assert freed_of(cluster_of(*views), asked) == "free GPUs: 3 4 5 6 7 of n1, held by 2 jobs"


@pytest.mark.parametrize("seed", range(16))
def test_gpus_to_be_freed_are_told_whenever_it_fits_without_their_holders(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    machine, offer = graph(chance.choice(["pairs8", "dgx-1v", "a100x4"])), chance.choice(["DRA", "plugin-blind"])
    views = [
        node(
            f"n{at}",
            machine,
            gpus=" ".join(chance.choice([str(gpu.index), "a", f"h{at}", "x"]) for gpu in machine.gpus),
            path=(f"r{at // 2}",),
            rdma=chance.random() < 0.7,
            offer=offer,
        )
        for at in range(4)
    ]
    cluster = cluster_of(*views, levels=("rack",))
    everything = {view.name: [gpu for gpu in view.holders if gpu not in view.unusable] for view in views}
    for _ in range(6):
        request = wanted(
            gpus=chance.choice([2, 4, 6, 8]),
            network={"rdma": chance.choice(["Required", "Preferred"])},
            topology={
                "nvlink": chance.choice(["Required", "Preferred"]),
                "fabric": {"required": chance.choice(["rack", "host", None])},
            },
        )
        if not can_place(cluster, request, TABLES):
            is_told = any(each.freed for each in nearest_changes(cluster, request, TABLES))
            assert is_told == can_place(cluster.freed(everything), request, TABLES)
