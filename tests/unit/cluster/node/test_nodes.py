"""How a NodeView is derived: exclusions, usable GPUs, plugin and RDMA offers."""

from collections.abc import Sequence
from typing import Any

import pytest

from closeknit.cluster.node.node import PluginOffer, RdmaOffer
from closeknit.cluster.objects.taints_and_faults import Taint
from scenarios.manifests import (
    Manifest,
    booked,
    condition,
    device_taint_rule,
    node,
    node_topology,
    pod,
    resource_slice,
    training_job,
)
from scenarios.views import view, words


def without(manifest: Manifest, *path: str | int) -> Manifest:
    target: Any = manifest
    for part in path[:-1]:
        target = target[part]
    del target[path[-1]]
    return manifest


def asymmetric() -> Manifest:
    topology = node_topology(count=2)
    topology["spec"]["pcie"] = {"levels": ["X PIX", "SYS X"]}
    return topology


EXCLUDED = {
    "a node without a NodeTopology": (
        [node(gpus=None)],
        "NoTopology: it has no NodeTopology",
    ),
    "a node whose device plugin offers GPUs that no agent has measured": (
        [node()],
        "NoTopology: it offers 8 nvidia.com/gpu and has no NodeTopology: does its node agent run?",
    ),
    "the same where DRA offers them": (
        [node(gpus=None), resource_slice("gpu-1", range(4))],
        "NoTopology: it offers 4 GPUs by DRA and has no NodeTopology: does its node agent run?",
    ),
    "one GPU by DRA that no agent has measured": (
        [node(gpus=None), resource_slice("gpu-1", range(1))],
        "NoTopology: it offers 1 GPU by DRA and has no NodeTopology: does its node agent run?",
    ),
    "a NodeTopology that does not parse": (
        [node(), without(node_topology(), "spec", "gpus", 3, "pciAddress")],
        "InvalidTopology: spec.gpus[3].pciAddress: Field required",
    ),
    "a matrix that contradicts itself": (
        [node(), asymmetric()],
        "InvalidTopology: pcie.levels[1]: is SYS to GPU 0, but pcie.levels[0] is PIX back; both must be the same",
    ),
    "a node that is not Ready": (
        [node(ready="Unknown"), node_topology()],
        "NotReady: the Node's Ready condition is Unknown (NodeStatusUnknown)",
    ),
    "a node that never told whether it is Ready": (
        [without(node(), "status", "conditions"), node_topology()],
        "NotReady: the Node has no Ready condition",
    ),
    "a NodeTopology whose Node is gone": (
        [node("gpu-2"), node_topology()],
        "NotReady: it has a NodeTopology but no Node",
    ),
    "an agent that fell silent": (
        [node(), node_topology(heartbeatTime="2026-11-21T11:44:59Z")],
        "AgentStale: its agent's last heartbeat was at 2026-11-21T11:44:59Z, more than 15 min ago",
    ),
    "an agent that says the machine is unfit": (
        [node(), node_topology(conditions=[condition("Ready", "False", "DriverGone")])],
        "Unhealthy: its agent says DriverGone",
    ),
    "a machine without a healthy GPU": (
        [
            node(gpus=2),
            node_topology(count=2, gpus=[{"index": i, "state": "Unhealthy", "reasons": ["XID79"]} for i in (0, 1)]),
        ],
        "Unhealthy: none of its 2 GPUs is healthy",
    ),
    "a machine whose one GPU is not healthy": (
        [
            node(gpus=1),
            node_topology(count=1, gpus=[{"index": 0, "state": "Unhealthy", "reasons": ["XID79"]}]),
        ],
        "Unhealthy: its one GPU is unhealthy",
    ),
    "a machine without any GPU": ([node(gpus=0), node_topology(count=0)], "Unhealthy: its agent found no GPU"),
    "a broken matrix on a node that is not Ready: what only a person can repair comes first": (
        [node(ready="False"), asymmetric()],
        "InvalidTopology: pcie.levels[1]: is SYS to GPU 0, but pcie.levels[0] is PIX back; both must be the same",
    ),
}


@pytest.mark.parametrize(("manifests", "expected"), EXCLUDED.values(), ids=EXCLUDED.keys())
def test_a_node_is_left_out_with_its_reason(manifests: Sequence[Manifest], expected: str) -> None:
    exclusion = view(*manifests).exclusion
    assert exclusion is not None
    assert f"{exclusion.reason}: {exclusion.message}" == expected


NOT_EXCLUDED = {
    "a healthy node": [node(), node_topology()],
    "an agent heard of within 15 min": [node(), node_topology(heartbeatTime="2026-11-21T11:45:00Z")],
    "an agent whose clock runs ahead": [node(), node_topology(heartbeatTime="2026-11-21T13:00:00+00:00")],
    "an agent that gives no heartbeat": [node(), node_topology()],
    "a heartbeat that is no time": [node(), node_topology(heartbeatTime="yesterday")],
    "one unhealthy GPU of eight": [node(), node_topology(gpus=[{"index": 3, "state": "Unhealthy"}])],
    "degraded GPUs only": [
        node(gpus=1),
        node_topology(count=1, gpus=[{"index": 0, "state": "Degraded", "reasons": ["ECC"]}]),
    ],
    "no Node in the input at all": [node_topology()],
    "a cordoned node: whether its taint is tolerated is the job's affair": [node(unschedulable=True), node_topology()],
}


@pytest.mark.parametrize("manifests", NOT_EXCLUDED.values(), ids=NOT_EXCLUDED.keys())
def test_a_node_takes_part(manifests: Sequence[Manifest]) -> None:
    assert view(*manifests).exclusion is None


def test_a_node_without_topology_keeps_what_its_node_says() -> None:
    found = view(node(labels={"tier": "gold"}), node_topology("gpu-2"))
    assert (found.labels["tier"], found.machine, found.usable, found.domains) == ("gold", None, (), ("gpu-1",))


def test_taints_that_keep_pods_away_are_kept_in_order() -> None:
    found = view(
        node(
            unschedulable=True,
            taints=[
                {"key": "team", "value": "b", "effect": "NoSchedule"},
                {"key": "slow", "effect": "PreferNoSchedule"},
                {"key": "broken", "effect": "NoExecute"},
            ],
        ),
        node_topology(),
    )
    assert found.taints == (
        Taint("broken", "", "NoExecute"),
        Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
        Taint("team", "b", "NoSchedule"),
    )


MIG = {"mode": "Enabled"}


def with_mig(manifest: Manifest, *indexes: int) -> Manifest:
    for index in indexes:
        manifest["spec"]["gpus"][index]["mig"] = MIG
    return manifest


def without_uuid(manifest: Manifest, index: int) -> Manifest:
    return without(manifest, "spec", "gpus", index, "uuid")


def with_capacity(manifest: Manifest, gpus: int) -> Manifest:
    """A node whose device plugin has had so many GPUs, whatever it offers now."""
    manifest["status"]["capacity"] = {"nvidia.com/gpu": str(gpus)}
    return manifest


TAINTED = {"taints": [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]}
UNMONITORED = {"taints": [{"key": "gpu.nvidia.com/unmonitored", "effect": "None"}]}

RULE = "unhealthy: a DeviceTaintRule taints its DRA device example.com/broken"
BY_DRA = [node(gpus=None), node_topology(count=4), resource_slice(indexes=range(4))]

UNUSABLE = {
    "a DeviceTaintRule on one device": (
        [*BY_DRA, device_taint_rule(driver="gpu.nvidia.com", pool="gpu-1", device="gpu-2")],
        {2: f"{RULE}:NoSchedule"},
    ),
    "one on a whole pool, by the version of 1.36": (
        [*BY_DRA, device_taint_rule(pool="gpu-1", version="v1beta2", effect="NoExecute")],
        dict.fromkeys(range(4), f"{RULE}:NoExecute"),
    ),
    "one on devices of one name, wherever they are, by the version of 1.35": (
        [*BY_DRA, device_taint_rule(device="gpu-0", version="v1alpha3")],
        {0: f"{RULE}:NoSchedule"},
    ),
    "one on all that there is": ([*BY_DRA, device_taint_rule()], dict.fromkeys(range(4), f"{RULE}:NoSchedule")),
    "DeviceTaintRules on other devices": (
        [
            *BY_DRA,
            device_taint_rule("a", driver="nic.example.com"),
            device_taint_rule("b", pool="gpu-2"),
            device_taint_rule("c", pool="gpu-1", device="gpu-7"),
        ],
        {},
    ),
    "rules that keep nobody away": (
        [*BY_DRA, device_taint_rule("a", effect="None"), device_taint_rule("b", effect="Whatever")],
        {},
    ),
    "a rule without a selector, which selects nothing": (
        [*BY_DRA, {**device_taint_rule(), "spec": {"taint": {"key": "a", "effect": "NoSchedule"}}}],
        {},
    ),
    "rules of 1.34, by what is the scheduler's to judge": (
        [
            *BY_DRA,
            device_taint_rule("a", version="v1alpha3", deviceClassName="gpu.nvidia.com"),
            device_taint_rule("b", version="v1alpha3", selectors=[{"cel": {"expression": "true"}}]),
        ],
        {},
    ),
    "an unhealthy GPU, with its reasons": (
        [node(gpus=4), node_topology(count=4, gpus=[{"index": 1, "state": "Unhealthy", "reasons": ["XID79", "Lost"]}])],
        {1: "unhealthy: XID79, Lost"},
    ),
    "an unhealthy GPU without reasons": (
        [node(gpus=4), node_topology(count=4, gpus=[{"index": 1, "state": "Unhealthy"}])],
        {1: "unhealthy"},
    ),
    "a GPU cut by MIG": ([node(gpus=4), with_mig(node_topology(count=4), 0, 3)], {0: "MIG", 3: "MIG"}),
    "a GPU that no slice names": (
        [node(gpus=None), node_topology(count=4), resource_slice(indexes=(0, 1, 2))],
        {3: "no ResourceSlice names it"},
    ),
    "under DRA a GPU whose uuid nobody knows": (
        [node(gpus=None), without_uuid(node_topology(count=4), 2), resource_slice(indexes=range(4))],
        {2: "no ResourceSlice names it"},
    ),
    "a device with a taint that keeps claims away": (
        [node(gpus=None), node_topology(count=4), resource_slice(indexes=range(4), devices={0: TAINTED})],
        {0: "unhealthy: its DRA device is tainted gpu.nvidia.com/xid:NoSchedule"},
    ),
    "a device with a taint that keeps nobody away": (
        [node(gpus=None), node_topology(count=4), resource_slice(indexes=range(4), devices={0: UNMONITORED})],
        {},
    ),
    "a device that several claims may have at once": (
        [
            node(gpus=None),
            node_topology(count=4),
            resource_slice(indexes=range(4), devices={2: {"allowMultipleAllocations": True}}),
        ],
        {2: "its device allows multiple allocations"},
    ),
    "no device plugin and no slice": (
        [node(gpus=None), node_topology(count=2)],
        dict.fromkeys((0, 1), "neither a device plugin nor a ResourceSlice offers it"),
    ),
    "a pool of which a part is missing": (
        [node(gpus=None), node_topology(count=2), resource_slice(indexes=(0, 1), count=2)],
        dict.fromkeys((0, 1), "its pool of ResourceSlices is incomplete (1 of 2)"),
    ),
    "a pool whose new generation is not complete yet": (
        [
            node(gpus=None),
            node_topology(count=2),
            resource_slice(indexes=(0, 1)),
            resource_slice(indexes=(0,), generation=2, count=2),
        ],
        dict.fromkeys((0, 1), "its pool of ResourceSlices is incomplete (1 of 2)"),
    ),
    "an incomplete pool on a node that once had a device plugin": (
        [with_capacity(node(gpus=0), 8), node_topology(count=1), resource_slice(indexes=(0,), count=2)],
        {0: "its pool of ResourceSlices is incomplete (1 of 2)"},
    ),
    "slices of another driver": (
        [node(gpus=None), node_topology(count=1), resource_slice(indexes=(0,), driver="dra.net")],
        {0: "neither a device plugin nor a ResourceSlice offers it"},
    ),
}


@pytest.mark.parametrize(("manifests", "expected"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_gpu_is_not_usable_with_its_reason(manifests: Sequence[Manifest], expected: dict[int, str]) -> None:
    found = view(*manifests)
    assert found.machine is not None
    everything = {gpu.index for gpu in found.machine.gpus}
    assert (words(found.unusable), set(found.usable)) == (expected, everything - expected.keys())


OFFERS = {
    "a device plugin": ([node(), node_topology()], False, PluginOffer(8, 8, 0, 0, shared=False)),
    "a complete pool and no device plugin": ([node(gpus=None), node_topology(), resource_slice()], True, None),
    "a complete pool, and the plugin's last word is 0": ([node(gpus=0), node_topology(), resource_slice()], True, None),
    "a complete pool beside a device plugin, which wins": (
        [node(), node_topology(), resource_slice()],
        False,
        PluginOffer(8, 8, 0, 0, shared=False),
    ),
    "the newest generation of a pool in two slices": (
        [
            node(gpus=None),
            node_topology(),
            resource_slice(indexes=range(4), generation=2, part=0, count=2),
            resource_slice(indexes=range(4, 8), generation=2, part=1, count=2),
            resource_slice(indexes=range(8)),
        ],
        True,
        None,
    ),
    "no Node at all: a device plugin offers what is healthy and whole": (
        [with_mig(node_topology(gpus=[{"index": 7, "state": "Unhealthy"}]), 0)],
        False,
        PluginOffer(6, 7, 0, 0, shared=False),
    ),
    "no Node at all, but slices": ([node_topology(), resource_slice()], True, None),
    "time slices": (
        [node(gpus=32, labels={"nvidia.com/gpu.replicas": "4"}), node_topology()],
        False,
        PluginOffer(32, 32, 0, 0, shared=True, is_replicated=True),
    ),
    "one replica is no sharing": (
        [node(labels={"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}), node_topology()],
        False,
        PluginOffer(8, 8, 0, 0, shared=False),
    ),
    "MPS": (
        [node(labels={"nvidia.com/gpu.sharing-strategy": "mps"}), node_topology()],
        False,
        PluginOffer(8, 8, 0, 0, shared=True, is_replicated=True),
    ),
    "time slices of GKE": (
        [
            node(
                gpus=16,
                labels={
                    "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
                    "cloud.google.com/gke-max-shared-clients-per-gpu": "2",
                },
            ),
            node_topology(),
        ],
        False,
        PluginOffer(16, 16, 0, unnamed=0, shared=True, is_replicated=True),
    ),
    "GKE's label of the strategy alone": (
        [node(labels={"cloud.google.com/gke-gpu-sharing-strategy": "mps"}), node_topology()],
        False,
        PluginOffer(8, 8, 0, unnamed=0, shared=True, is_replicated=True),
    ),
    "one client is no sharing": (
        [
            node(
                labels={
                    "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
                    "cloud.google.com/gke-max-shared-clients-per-gpu": "1",
                }
            ),
            node_topology(),
        ],
        False,
        PluginOffer(8, 8, 0, unnamed=0, shared=False),
    ),
    "MIG devices of GKE that look like GPUs": (
        [
            node(gpus=56, labels={"cloud.google.com/gke-gpu-partition-size": "1g.10gb"}),
            with_mig(node_topology(), *range(8)),
        ],
        False,
        PluginOffer(56, 56, 0, unnamed=0, shared=True),
    ),
    "MIG devices of GKE of which the agent knows nothing": (
        [node(labels={"cloud.google.com/gke-gpu-partition-size": "7g.80gb"}), node_topology()],
        False,
        PluginOffer(8, 8, 0, unnamed=0, shared=True),
    ),
    "more than there are of GPUs that are all split": (
        [node(gpus=56), with_mig(node_topology(), *range(8))],
        False,
        PluginOffer(56, 56, 0, unnamed=0, shared=True),
    ),
    "several times as many as there are, and nobody tells why": ([node(gpus=32), node_topology()], False, None),
    "several times as many as are not split": ([node(gpus=21), with_mig(node_topology(), 3)], False, None),
    "MIG devices that look like GPUs": (
        [node(gpus=56, labels={"nvidia.com/mig.strategy": "single"}), with_mig(node_topology(), *range(8))],
        False,
        PluginOffer(56, 56, 0, 0, shared=True),
    ),
    "the single strategy without any MIG device": (
        [node(labels={"nvidia.com/mig.strategy": "single"}), node_topology()],
        False,
        PluginOffer(8, 8, 0, 0, shared=False),
    ),
    "shared GPUs under a name of their own": (
        [node(gpus=None, allocatable={"nvidia.com/gpu.shared": "80"}), node_topology()],
        False,
        PluginOffer(*(80, 80, 0, 0), shared=True, is_replicated=True, resource="nvidia.com/gpu.shared"),
    ),
    "parts of their memory": (
        [node(gpus=8, allocatable={"aliyun.com/gpu-mem": "1120"}), node_topology()],
        False,
        None,
    ),
}


@pytest.mark.parametrize(("manifests", "dra", "plugin"), OFFERS.values(), ids=OFFERS.keys())
def test_what_offers_the_gpus(manifests: Sequence[Manifest], dra: bool, plugin: PluginOffer | None) -> None:
    found = view(*manifests)
    assert (found.dra, found.plugin) == (dra, plugin)


def test_a_gpu_that_only_the_plugin_holds_unhealthy_is_missing_from_allocatable() -> None:
    assert view(with_capacity(node(gpus=7), 8), node_topology()).plugin == PluginOffer(7, 8, 0, 0, shared=False)


RDMA = {
    "no RDMA resource": ({}, [], None),
    "one": ({"rdma/hca": "63"}, [], RdmaOffer("rdma/hca", 63)),
    "the first by name of those that have any": (
        {"rdma/b": "4", "rdma/c": "8", "rdma/a": "0"},
        [],
        RdmaOffer("rdma/b", 4),
    ),
    "less what live Pods asked for": (
        {"rdma/hca": "2"},
        [pod(requests={"nvidia.com/gpu": "1", "rdma/hca": "1"}), pod("done", phase="Failed")],
        RdmaOffer("rdma/hca", 1),
    ),
    "less what bookings will ask for": (
        {"rdma/hca": "2"},
        [training_job(placement=booked(("gpu-1", [0]), nics=["mlx5_0"]))],
        RdmaOffer("rdma/hca", 1),
    ),
    "a booking that goes over sockets asks for none": (
        {"rdma/hca": "2"},
        [training_job(placement=booked(("gpu-1", [0])))],
        RdmaOffer("rdma/hca", 2),
    ),
    "NICs that are not named again are those of the node before": (
        {"rdma/hca": "2"},
        [training_job(placement=booked(("gpu-2", [0]), ("gpu-1", [0]), nics=["mlx5_0"]))],
        RdmaOffer("rdma/hca", 1),
    ),
}


@pytest.mark.parametrize(("resources", "manifests", "expected"), RDMA.values(), ids=RDMA.keys())
def test_the_rdma_resource(
    resources: dict[str, str], manifests: Sequence[Manifest], expected: RdmaOffer | None
) -> None:
    assert view(node(allocatable=resources), node_topology(), *manifests).rdma == expected


def test_a_nic_that_failed_since_is_down_in_the_machine() -> None:
    topology = node_topology(count=1, nics=[{"name": "mlx5_1", "state": "Down", "reasons": ["PortDown"]}])
    topology["spec"]["nics"] = [
        {"name": name, "transport": "InfiniBand", "state": "Active", "gpuLevels": ["PIX"]}
        for name in ("mlx5_0", "mlx5_1")
    ]
    found = view(node(), topology).machine
    assert found is not None
    assert [(nic.name, str(nic.state)) for nic in found.nics] == [("mlx5_0", "Active"), ("mlx5_1", "Down")]


def test_a_link_that_is_down_is_not_in_the_machine() -> None:
    topology = node_topology(count=2, linksDown=[{"gpu": 0, "link": 1}, {"gpu": 1, "link": 1}])
    topology["spec"]["nvlink"] = {"generation": 4, "linkBandwidthGBps": 26.562, "pairs": [{"a": 0, "b": 1, "links": 4}]}
    found = view(node(), topology).machine
    assert found is not None
    assert found.links == ((0, 3), (3, 0))
