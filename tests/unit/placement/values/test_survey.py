"""Which nodes a job may use, how its GPUs are bound there, and what Kubernetes alone would do."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from closeknit.api.names import NVLINK_DOMAIN_LEVEL
from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.node.node import NodeView, PluginOffer
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind, Taint
from closeknit.machine.graph import machine
from closeknit.placement.candidates.excluded import unhealthy
from closeknit.placement.candidates.node_filter import admits
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import NoFit, Placement, TransportChoice
from closeknit.placement.values.request import Request, Toleration
from harness.first_fit import first_fit
from scenarios.clusters import cluster_of, graph, held, node, wanted
from scenarios.manifests import node_topology

TABLES = Tables()


def toleration(key: str = "", operator: str = "Equal", value: str = "", effect: str = "") -> Toleration:
    return Toleration(key, operator, value, effect)


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        pytest.param((), False, id="none"),
        pytest.param((toleration("dedicated", value="ml"),), True, id="equal key and value"),
        pytest.param((toleration("dedicated", value="web"),), False, id="another value"),
        pytest.param((toleration("other", "Exists"),), False, id="another key"),
        pytest.param((toleration("dedicated", "Exists"),), True, id="the key, whatever its value"),
        pytest.param((toleration(operator="Exists"),), True, id="every taint"),
        pytest.param((toleration(),), False, id="an empty key that must be equal"),
        pytest.param((toleration("dedicated", "Exists", effect="NoExecute"),), False, id="another effect"),
        pytest.param((toleration("dedicated", "Exists", effect="NoSchedule"),), True, id="this effect"),
    ],
)
def test_tolerations_are_those_of_kubernetes(tolerations: tuple[Toleration, ...], expected: bool) -> None:
    view = replace(node("a", graph("a100x4")), taints=(Taint("dedicated", "ml", "NoSchedule"),))
    assert admits(view, replace(wanted(gpus=1), tolerations=tolerations)) is expected


@pytest.mark.parametrize(("effect", "expected"), [("NoSchedule", True), ("NoExecute", False)])
def test_the_usual_taint_of_gpu_nodes_is_tolerated_as_the_pods_tolerate_it(effect: str, expected: bool) -> None:
    view = replace(node("a", graph("a100x4")), taints=(Taint("nvidia.com/gpu", "present", effect),))
    assert admits(view, wanted(gpus=1)) is expected


def test_a_node_selector_names_labels() -> None:
    view = node("a", graph("a100x4"), labels={"pool": "train", "zone": "x"})
    assert admits(view, replace(wanted(gpus=1), node_selector=(("pool", "train"),)))
    assert not admits(view, replace(wanted(gpus=1), node_selector=(("pool", "train"), ("zone", "y"))))


def test_products_and_memory_choose_the_node() -> None:
    cluster = cluster_of(node("a", graph("dgx-1v")), node("b", graph("hgx-a100")), node("c", graph("hgx-h200")))
    for gpu, expected in (
        ({"products": ["NVIDIA-A100-SXM4-80GB"]}, "b"),
        ({"minMemory": "100Gi"}, "c"),
        ({"products": ["Tesla-V100-SXM2-16GB", "NVIDIA-H200"], "minMemory": "16Gi"}, "c"),
    ):
        decision = place(cluster, wanted(gpus=8, gpu=gpu), TABLES)
        assert isinstance(decision, Placement)
        assert [share.node for share in decision.shares] == [expected]


def bound(view: NodeView, request: Request) -> Binding | PendingReason:
    decision = place(cluster_of(view), request, TABLES)
    return decision.reason if isinstance(decision, NoFit) else decision.shares[0].binding


H200, V100 = graph("hgx-h200"), graph("dgx-1v")
PLUGIN_H200 = node("a", H200, offer="plugin")
PLUGIN_V100 = node("a", V100, offer="plugin")
UNSURE_V100 = node("a", V100, gpus="0 x 2 3 x x 6 7", offer="plugin")
NARROWED_V100 = replace(PLUGIN_V100, plugin=PluginOffer(8, 8, 0, 0, shared=False, is_narrowed=True))
# The agent knows that GPU 0 is broken, and the plugin does not.
BROKEN_H200 = replace(
    PLUGIN_H200,
    usable=tuple(range(1, 8)),
    free=tuple(range(1, 8)),
    unusable={0: Fault(FaultKind.UNHEALTHY, "XID79")},
)
REFUSED = PendingReason.INSUFFICIENT_GPUS


@pytest.mark.parametrize(
    ("view", "gpus", "binding", "expected"),
    [
        pytest.param(node("a", V100), 2, "Auto", Binding.DRA, id="auto takes DRA where it is"),
        pytest.param(node("a", V100), 8, "DRA", Binding.DRA, id="DRA by word"),
        pytest.param(node("a", V100), 8, "WholeNode", REFUSED, id="no whole node without a plugin"),
        pytest.param(node("a", V100), 2, "BestEffort", REFUSED, id="no best effort without a plugin"),
        pytest.param(PLUGIN_V100, 2, "DRA", REFUSED, id="no DRA with a plugin"),
        pytest.param(PLUGIN_V100, 8, "Auto", Binding.WHOLE_NODE, id="auto takes a whole node"),
        pytest.param(PLUGIN_V100, 8, "WholeNode", Binding.WHOLE_NODE, id="a whole node by word"),
        pytest.param(PLUGIN_V100, 4, "WholeNode", REFUSED, id="a part is no whole node"),
        pytest.param(PLUGIN_V100, 8, "BestEffort", Binding.BEST_EFFORT, id="best effort takes all, too"),
        pytest.param(PLUGIN_V100, 4, "Auto", Binding.BEST_EFFORT, id="auto takes what a plugin is sure to pick well"),
        pytest.param(UNSURE_V100, 4, "Auto", REFUSED, id="auto leaves no bad choice to a plugin"),
        pytest.param(NARROWED_V100, 4, "Auto", REFUSED, id="nor where the kubelet narrows what it picks from"),
        pytest.param(NARROWED_V100, 4, "BestEffort", Binding.BEST_EFFORT, id="unless the job takes any there"),
        pytest.param(PLUGIN_V100, 1, "Auto", Binding.BEST_EFFORT, id="one GPU is as good as another"),
        pytest.param(PLUGIN_V100, 4, "BestEffort", Binding.BEST_EFFORT, id="unless the job takes any"),
        pytest.param(PLUGIN_H200, 4, "Auto", Binding.BEST_EFFORT, id="behind switches no choice is bad"),
        pytest.param(held(PLUGIN_H200, 3), 8, "Auto", REFUSED, id="not whole while a GPU is held"),
        pytest.param(
            replace(PLUGIN_V100, plugin=PluginOffer(8, 8, 1, 1, shared=False)),
            8,
            "Auto",
            REFUSED,
            id="not whole while the plugin has given one to nobody knows whom",
        ),
        pytest.param(
            replace(PLUGIN_H200, plugin=PluginOffer(8, 8, 6, 0, shared=False)),
            4,
            "BestEffort",
            REFUSED,
            id="no more than the plugin still has",
        ),
        pytest.param(
            replace(PLUGIN_H200, plugin=PluginOffer(32, 32, 0, 0, shared=True)),
            2,
            "BestEffort",
            REFUSED,
            id="nothing of a plugin that shares GPUs",
        ),
        pytest.param(BROKEN_H200, 4, "Auto", REFUSED, id="auto takes nothing that may turn out to be broken"),
        pytest.param(BROKEN_H200, 4, "BestEffort", Binding.BEST_EFFORT, id="unless the job takes that, too"),
        pytest.param(replace(PLUGIN_H200, plugin=None), 2, "Auto", REFUSED, id="nothing where nothing offers"),
    ],
)
def test_how_a_share_is_bound(view: NodeView, gpus: int, binding: str, expected: Binding | PendingReason) -> None:
    assert bound(view, wanted(gpus=gpus, gpu={"binding": binding})) == expected


def test_a_plugin_may_pick_near_any_nic_so_that_all_are_named() -> None:
    views = [node(name, H200, gpus="0 1 2 3 4 5 a a", offer="plugin") for name in "ab"]
    decision = place(cluster_of(*views), wanted(gpus=8, topology={"gpusPerNode": 4}), TABLES)
    assert isinstance(decision, Placement)
    assert decision.transport is TransportChoice.RDMA
    assert {share.binding for share in decision.shares} == {Binding.BEST_EFFORT}
    assert {share.nics for share in decision.shares} == {tuple(f"mlx5_{number}:1" for number in range(6))}


def test_first_fit_takes_the_first_nodes_and_the_lowest_gpus() -> None:
    cluster = cluster_of(node("a", V100, gpus="0 a 2 3 b 5 6 7"), node("b", V100), node("c", V100, path=()), levels=())
    naive = first_fit(cluster, wanted(gpus=4), TABLES)
    assert naive is not None
    assert [(share.node, share.gpus) for share in naive.shares] == [("a", (0, 2, 3, 5))]
    # Over the sockets of a DGX-1, whose CPUs are Broadwells.
    assert (naive.predicted_bus_bandwidth_gb_s, naive.ideal_bus_bandwidth_gb_s) == (6.0, 80.0)
    two = first_fit(cluster, wanted(gpus=16), TABLES)
    assert two is not None
    assert [(share.node, share.first_rank) for share in two.shares] == [("b", 0), ("c", 8)]
    assert first_fit(cluster, wanted(gpus=32), TABLES) is None


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ([], {}),
        ([""], {"unhealthy": 1}),
        (["XID79", "XID79"], {"unhealthy (XID79)": 2}),
        (["XID79", "XID48", "XID79", "", "FabricNotReady"],
         {"unhealthy (2 XID79, 1 FabricNotReady, 1 XID48, 1 otherwise)": 5}),
        (["a", "b", "c", "d", "d", "e"], {"unhealthy (2 d, 1 a, 1 b, 2 otherwise)": 6}),
    ],
)  # fmt: skip
def test_the_unhealthy_are_counted_with_the_reasons_that_most_have(details: list[str], words: dict[str, int]) -> None:
    faults = Counter(Fault(FaultKind.UNHEALTHY, detail) for detail in details)
    assert unhealthy(Counter({Fault(FaultKind.MIG): 3}) + faults) == words


@pytest.mark.parametrize(
    ("job", "message"),
    [
        pytest.param(
            {"gpus": 16, "gpu": {"binding": "WholeNode"}},
            "needs 16 GPUs; 0 are free; 16 excluded: 15 free for DRA, not for binding WholeNode, 1 unhealthy (XID79); "
            "4 nodes excluded: 2 NotReady, 1 Tainted, 1 not selected by nodeSelector",
            id="many nodes are counted by reason",
        ),
        pytest.param(
            {"gpus": 17},
            "needs 17 GPUs; 15 are free on 2 nodes; 1 excluded: 1 unhealthy (XID79); "
            "4 nodes excluded: 2 NotReady, 1 Tainted, 1 not selected by nodeSelector",
            id="more than there are",
        ),
    ],
)
def test_what_is_excluded_is_counted(job: dict[str, Any], message: str) -> None:
    labels = {"pool": "train"}
    cluster = cluster_of(
        node("a", H200, labels=labels),
        node("b", H200, labels=labels, gpus="0 1 2 3 4 5 6 x"),
        node("c", H200, labels=labels, excluded=("NotReady", "KubeletNotReady")),
        node("d", H200, labels=labels, excluded=("NotReady", "KubeletNotReady")),
        node("e", H200, labels=labels, taint="maintenance"),
        node("f", H200),
    )
    request = replace(wanted(**job), node_selector=(("pool", "train"),))
    decision = place(cluster, request, TABLES)
    assert isinstance(decision, NoFit)
    assert decision.message == message


def test_many_holders_are_counted() -> None:
    view = node("a", H200, gpus="a b c d 4 5 6 7")
    decision = place(cluster_of(view), wanted(gpus=8), TABLES)
    assert decision == NoFit(
        PendingReason.INSUFFICIENT_GPUS, "needs 8 GPUs; 4 are free on 1 node; 4 excluded: 4 held by 4 jobs"
    )


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"gpus": 24}, "needs 24 GPUs; 12 are free on 2 nodes; the cluster has 16 at all: ask for fewer; "),
        ({"gpus": 16}, "needs 16 GPUs; 12 are free on 2 nodes; "),
        (
            {"gpus": 24, "topology": {"gpusPerNode": 8}},
            "needs 3 nodes with 8 free GPUs each; 1 has so many (a); 2 have so many at all: ask for fewer; ",
        ),
        ({"gpus": 16, "topology": {"gpusPerNode": 8}}, "needs 2 nodes with 8 free GPUs each; 1 has so many (a); "),
        (
            {"gpus": 32, "topology": {"gpusPerNode": 16}},
            "needs 2 nodes with 16 free GPUs each; 0 have so many; 0 have so many at all: lower topology.gpusPerNode; ",
        ),
    ],
)
def test_what_no_wait_brings_is_told(job: dict[str, Any], message: str) -> None:
    decision = place(cluster_of(node("a", H200), node("b", H200, gpus="a a a a 4 5 6 7")), wanted(**job), TABLES)
    assert decision == NoFit(PendingReason.INSUFFICIENT_GPUS, f"{message}4 excluded: 4 held by 1 job")


@pytest.mark.parametrize(
    ("least", "advice"),
    [
        (60, "lower topology.minBusBandwidthGBps, or wait for better ones"),
        (100, "nor would an empty cluster reach it: lower topology.minBusBandwidthGBps"),
    ],
)
def test_whether_waiting_for_more_bandwidth_helps_is_told(least: int, advice: str) -> None:
    """Four V100 of a quad have 80 GB/s, and the free ones 40."""
    view = node("a", V100, gpus="0 a 2 3 a a 6 7")
    decision = place(cluster_of(view), wanted(gpus=4, topology={"minBusBandwidthGBps": least}), TABLES)
    assert decision == NoFit(
        PendingReason.BANDWIDTH_BELOW_MINIMUM,
        f"needs {least} GB/s; the best placement now reaches 40 GB/s: NVLink ring inside a; {advice}",
    )


def test_a_cluster_where_no_agent_has_measured_a_gpu_is_not_one_without_gpus() -> None:
    assert place(cluster_of(), wanted(gpus=8), TABLES) == NoFit(
        PendingReason.INSUFFICIENT_GPUS, "needs 8 GPUs; no node agent has measured a GPU here"
    )
    assert place(cluster_of(), wanted(gpus=8, gpu={"minMemory": "80Gi"}), TABLES) == NoFit(
        PendingReason.NO_MATCHING_GPU,
        "needs 8 GPUs with at least 80 GiB of memory; no node agent has measured a GPU here",
    )


@pytest.mark.parametrize(
    ("product", "near"),
    [
        ("V100", " (for V100 probably Tesla-V100-SXM2-16GB)"),
        ("tesla-v100-sxm2-16gb", " (for tesla-v100-sxm2-16gb probably Tesla-V100-SXM2-16GB)"),
        ("Tesla V100-SXM2-16GB", " (for Tesla V100-SXM2-16GB probably Tesla-V100-SXM2-16GB)"),
        ("NVIDIA-P100-SXM2-16GB", ""),
        ("V10", ""),
        ("NVIDIA", ""),
    ],
)
def test_a_product_that_is_nearly_one_of_those_there_is_told(product: str, near: str) -> None:
    refused = place(cluster_of(node("a", V100)), wanted(gpus=8, gpu={"products": [product]}), TABLES)
    assert isinstance(refused, NoFit)
    assert refused.message.partition("; name one of these in ")[2] == f"gpu.products{near}"


@pytest.mark.parametrize("whole_nodes", [14, 15, 400], ids="{} nodes of eight".format)
def test_more_nodes_never_turn_a_fit_into_a_refusal(whole_nodes: int) -> None:
    """Twenty GPUs on whole nodes of eight and of six: the two fullest leave four, which no whole node is."""
    eight, six = (machine(NodeTopologySpec.parse(node_topology(count=count)["spec"])) for count in (8, 6))
    nodes = [node(f"a{number:03}", eight, offer="plugin") for number in range(whole_nodes)]
    small = [node(f"b{number}", six, offer="plugin") for number in range(2)]
    decision = place(cluster_of(*nodes, *small), wanted(gpus=20, gpu={"binding": "WholeNode"}), TABLES)
    assert isinstance(decision, Placement)
    assert sorted(len(share.gpus) for share in decision.shares) == [6, 6, 8]


CHANNELS = [
    pytest.param({"gpus": 8, "parallelism": {"tensor": 8}}, ["tray-2", "tray-3"], 720.0, id="a group over trays"),
    pytest.param({"gpus": 8}, ["tray-2", "tray-3"], 720.0, id="a gang without groups"),
    pytest.param(
        {"gpus": 8, "topology": {"minBusBandwidthGBps": 700}}, ["tray-2", "tray-3"], 720.0, id="as fast as so"
    ),
    pytest.param({"gpus": 12}, ["tray-2", "tray-3", "tray-1"], 192.0, id="more than a domain has"),
    pytest.param({"gpus": 8, "topology": {"gpusPerNode": 1}}, None, None, id="more nodes than there are"),
]


@pytest.mark.parametrize(("spec", "nodes", "gb_s"), CHANNELS)
def test_nvlink_joins_the_nodes_of_a_gang_in_one_domain(
    spec: dict[str, Any], nodes: list[str] | None, gb_s: float | None
) -> None:
    trays = [node(f"tray-{n}", graph("gb200-tray", str(n)), path=(f"d{(n + 2) // 2}",)) for n in (1, 2, 3)]
    found = place(cluster_of(*trays, levels=(NVLINK_DOMAIN_LEVEL,), imex=["DRA"]), wanted(**spec), Tables())
    if nodes is None:
        assert isinstance(found, NoFit)
        return
    assert isinstance(found, Placement)
    assert ([share.node for share in found.shares], found.predicted_bus_bandwidth_gb_s) == (nodes, gb_s)


@pytest.mark.parametrize(
    ("each", "shared", "gb_s"),
    [
        (1, False, 48.0),
        (2, False, 96.0),
        (3, False, 144.0),
        (4, False, 720.0),
        (1, True, 48.0),
        (2, True, 96.0),
        (3, True, 720.0),
        (4, True, 720.0),
    ],
)
def test_nvlink_joins_nodes_that_a_gang_has_whole_or_for_the_most_part(each: int, shared: bool, gb_s: float) -> None:
    """NVIDIA's driver gives a node one IMEX channel, and that to one claim: of two gangs that share a tray one goes
    without, and a stranger beside a gang may hold the channel."""
    fabric = {"sharedTrays": shared}
    trays = [node(f"tray-{n}", graph("gb200-tray", str(n)), path=("d1",)) for n in (1, 2)]
    spec = {"gpus": 2 * each, "topology": {"gpusPerNode": each}}
    cluster = cluster_of(*trays, levels=(NVLINK_DOMAIN_LEVEL,), imex=["DRA"], fabric=fabric)
    found = place(cluster, wanted(**spec), Tables())
    assert isinstance(found, Placement)
    assert found.predicted_bus_bandwidth_gb_s == gb_s


@pytest.mark.parametrize("elsewhere", ["a a a a", "0 a a a", "0 1 a a", "0 1 2 3"])
def test_a_larger_machine_elsewhere_takes_no_nvlink_from_smaller_trays(elsewhere: str) -> None:
    """More than half of a tray is more than half of its own GPUs, whatever other machines have."""
    one, four = (NodeTopologySpec.parse(behind_switches(count)) for count in (1, 4))
    trays = [node(f"tray-{n}", machine(one), path=("d1",), rdma=False) for n in range(8)]
    large = node("large", machine(four), gpus=elsewhere, path=("d2",), rdma=False)
    job = wanted(gpus=8, parallelism={"tensor": 8}, topology={"nvlink": "Required"})
    found = place(cluster_of(*trays, large, levels=(NVLINK_DOMAIN_LEVEL,), imex=["DRA"]), job, Tables())
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == [view.name for view in trays]


def test_a_node_gives_more_than_half_of_itself_beside_smaller_ones() -> None:
    """Two GPUs are half of the larger node, which another gang could have the rest of."""
    two, four = (machine(NodeTopologySpec.parse(behind_switches(count))) for count in (2, 4))
    nodes = [node(name, two, path=("d1",)) for name in ("a", "b")] + [node("c", four, path=("d1",))]
    cluster = cluster_of(*nodes, levels=(NVLINK_DOMAIN_LEVEL,), imex=["DRA"])
    job = wanted(gpus=4, parallelism={"tensor": 4}, topology={"nvlink": "Required", "gpusPerNode": 2})
    found = place(cluster, job, Tables())
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["a", "b"]


def behind_switches(count: int) -> dict[str, Any]:
    """Of so many GPUs of one product that nothing but NVSwitches joins."""
    spec: dict[str, Any] = node_topology(count=count)["spec"]
    gpus = [{**gpu, "computeCapability": "10.0"} for gpu in spec["gpus"]]
    return {**spec, "gpus": gpus, "nvlink": {"switched": True, "linksPerGPU": [18] * count}}


@pytest.mark.parametrize(
    ("job", "rdma", "but_for"),
    [
        ({}, False, ""),
        ({"network": {"rdma": "Required"}}, True, ""),
        ({"network": {"rdma": "Required"}}, False, " but for network.rdma: Required"),
        ({"topology": {"minBusBandwidthGBps": 5}}, True, ""),
        ({"topology": {"minBusBandwidthGBps": 100}}, True, " but for topology.minBusBandwidthGBps"),
        (
            {"network": {"rdma": "Required"}, "topology": {"minBusBandwidthGBps": 100}},
            False,
            " but for network.rdma: Required and topology.minBusBandwidthGBps",
        ),
    ],
)
def test_what_else_keeps_a_job_from_fitting_elsewhere_is_told(job: dict[str, Any], rdma: bool, but_for: str) -> None:
    views = [node(name, H200, path=(f"r{name}",), rdma=rdma) for name in "ab"]
    there = cluster_of(*views, levels=("rack",), fabric={"levelBandwidthGBps": {"rack": 10}})
    asked = {**job, "gpus": 16, "topology": {"fabric": {"required": "rack"}, **job.get("topology", {})}}
    decision = place(there, wanted(**asked), TABLES)
    assert decision == NoFit(
        PendingReason.NO_DOMAIN,
        "needs 16 GPUs in one rack; ra has the most free, 8 on 1 node; "
        f"it would fit over 2 domains of level rack (topology.fabric.preferred: rack){but_for}",
    )
