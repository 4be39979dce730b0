"""NVLink between nodes in a job's life: when its Pods may use it, and what is told while their channels are missing."""

from typing import Any

import pytest

from closeknit.api.names import GPU_RESOURCE, IMEX_CHANNELS
from closeknit.api.reasons import ConditionType
from closeknit.lifecycle.status.conditions import found
from closeknit.lifecycle.status.degraded import FIXED
from scenarios.manifests import Manifest, cluster_topology, device_class, training_job
from scenarios.story import Story, dra_node, plugin_node

DRIVER = device_class(IMEX_CHANNELS)
TWOFOLD = device_class("gpu.nvidia.com", GPU_RESOURCE)


def trays(kind: Any, *classes: Manifest, spec: Manifest | None = None) -> Story:
    """A job of two whole nodes of one NVLink domain, or of another spec, on two nodes of eight GPUs each."""
    nodes = [each for name in ("gpu-1", "gpu-2") for each in kind(name)]
    for node in nodes:
        if node["kind"] == "Node":
            node["metadata"].setdefault("labels", {})["nvidia.com/gpu.clique"] = "c0ffee.1"
        if node["kind"] == "NodeTopology":
            node["spec"]["nvlink"] = {"switched": True, "linksPerGPU": [18] * 8}
    story = Story(*nodes, *classes, training_job(spec={"gpus": 16, **(spec or {})}))
    story.settle()
    return story


@pytest.mark.parametrize(
    ("kind", "classes", "has_channels"),
    [
        pytest.param(plugin_node, [DRIVER], True, id="a device plugin"),
        pytest.param(dra_node, [DRIVER], True, id="DRA"),
        pytest.param(dra_node, [DRIVER, TWOFOLD], True, id="DRA, and a class that stands for GPUs"),
        pytest.param(plugin_node, [DRIVER, TWOFOLD], False, id="a device plugin, and a class that stands for its GPUs"),
        pytest.param(plugin_node, [], False, id="no driver"),
    ],
)
def test_channels_are_claimed_where_they_can_be(kind: Any, classes: list[Manifest], has_channels: bool) -> None:
    story = trays(kind, *classes)
    pod = story.pod("train-a1-worker-00000")
    assert ("closeknit-imex" in [each["name"] for each in pod["spec"].get("resourceClaims", [])]) is has_channels
    variables = [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    assert ("NCCL_MNNVL_ENABLE" in variables) is not has_channels
    assert ("create ComputeDomain train-a1" in story.written) is has_channels


GROUP = {"parallelism": {"tensor": 16}, "topology": {"nvlink": "Required"}}
OWN = {"containers": [{"name": "trainer", "image": "i", "env": [{"name": "NCCL_MNNVL_ENABLE", "value": "1"}]}]}


@pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["a device plugin", "DRA"])
def test_a_group_over_nodes_has_channels(kind: Any) -> None:
    story = trays(kind, DRIVER, spec=GROUP)
    assert "create ComputeDomain train-a1" in story.written
    assert [node.name for node in story.status().placement.nodes] == ["gpu-1", "gpu-2"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "classes", "spec", "why"),
    [
        pytest.param(dra_node, [], GROUP, "needs NVIDIA's driver for ComputeDomains", id="no driver"),
        pytest.param(plugin_node, [DRIVER, TWOFOLD], GROUP, "no nvlink-domain has room", id="by other bindings alone"),
        pytest.param(
            dra_node,
            [DRIVER],
            {**GROUP, "template": {"spec": OWN}},
            "is left to the job's own NCCL_MNNVL_ENABLE",
            id="the user's own word",
        ),
    ],
)
def test_without_channels_a_group_waits_for_one_machine(
    kind: Any, classes: list[Manifest], spec: Manifest, why: str
) -> None:
    pending = trays(kind, *classes, spec=spec).status().pending
    assert pending is not None
    assert pending.reason == "NoNVLinkIsland"
    assert why in pending.message


SHARED = cluster_topology(fabric={"sharedTrays": True})


@pytest.mark.parametrize(
    ("gpus", "classes", "has_channels"),
    [
        pytest.param(8, [], False, id="half of each node"),
        pytest.param(10, [], False, id="more than half, and strangers may have the rest"),
        pytest.param(16, [], True, id="all of each node"),
        pytest.param(8, [SHARED], False, id="half, where the site shares trays"),
        pytest.param(10, [SHARED], True, id="more than half, where it does"),
    ],
)
def test_no_pod_beside_a_gang_with_channels_can_claim_one(
    gpus: int, classes: list[Manifest], has_channels: bool
) -> None:
    """NVIDIA's driver prepares one claim on channel 0 of a node (assertImexChannelNotAllocated), and labels the node
    with one ComputeDomain (AddNodeLabel): a second Pod with a channel waits for the end of the first."""
    story = trays(dra_node, DRIVER, *classes, spec={"gpus": gpus, "topology": {"gpusPerNode": gpus // 2}})
    assert ("create ComputeDomain train-a1" in story.written) is has_channels


@pytest.mark.parametrize(("classes", "is_placed"), [([], False), ([SHARED], True)])
def test_a_group_that_needs_channels_waits_for_whole_trays_and_is_told_of_the_other_way(
    classes: list[Manifest], is_placed: bool
) -> None:
    spec = {"gpus": 10, "parallelism": {"tensor": 10}, "topology": {"nvlink": "Required", "gpusPerNode": 5}}
    pending = trays(dra_node, DRIVER, *classes, spec=spec).status().pending
    if is_placed:
        assert pending is None
        return
    assert pending is not None
    assert (
        "no nvlink-domain has room for all on whole nodes, which NVLink between them takes (ClusterTopology "
        "fabric.sharedTrays: true would share them)"
    ) in pending.message


UUID = "0123abcd-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("cliques", "labels", "has_channels", "told"),
    [
        pytest.param((1, 1), (1, 1), True, None, id="both say the same"),
        pytest.param((None, None), (1, 1), True, None, id="the agent read none"),
        pytest.param((2, 2), (1, 1), True, "on gpu-1, gpu-2 ", id="a label that is behind on both nodes"),
        pytest.param((1, 2), (1, 1), False, "on gpu-2 ", id="a label that joins what NVML does not"),
    ],
)
def test_a_clique_label_that_nvml_contradicts(
    cliques: tuple[int | None, ...], labels: tuple[int, ...], has_channels: bool, told: str | None
) -> None:
    """GPU feature discovery and NVIDIA's DRA driver both write it; NCCL and the driver's daemons ask NVML."""
    nodes = [each for name in ("gpu-1", "gpu-2") for each in dra_node(name)]
    for node in nodes:
        at = 0 if "gpu-1" in node["metadata"]["name"] else 1
        if node["kind"] == "Node":
            node["metadata"].setdefault("labels", {})["nvidia.com/gpu.clique"] = f"{UUID}.{labels[at]}"
        if node["kind"] == "NodeTopology":
            node["spec"]["nvlink"] = {"switched": True, "linksPerGPU": [18] * 8}
            if cliques[at] is not None:
                node["spec"]["nvlink"]["domain"] = {"clusterUUID": UUID, "cliqueID": cliques[at]}
    story = Story(*nodes, DRIVER, training_job(spec={"gpus": 16}))
    story.settle()
    assert ("create ComputeDomain train-a1" in story.written) is has_channels
    environment = story.status().environment
    warnings = environment.warnings if environment else []
    found = [line for line in warnings if line.startswith(f"nvidia.com/gpu.clique={UUID}.1: on ")]
    assert len(found) == (told is not None)
    assert told is None or (told in found[0] and f"reads {UUID}.2 of NVML" in found[0])


def test_a_controller_that_makes_no_claims_is_told_of() -> None:
    story = trays(dra_node, DRIVER)
    story.pass_time(30)
    story.settle()
    running = found(story.status().conditions, ConditionType.RUNNING)
    assert running is not None
    assert running.message == (
        "no scheduler has looked at its Pods for 30 s: they wait for claims that NVIDIA's controller makes of the "
        "ComputeDomain train-a1; have an administrator see whether it runs, or do without NVLink between nodes by "
        f"NCCL_MNNVL_ENABLE=0 in the template; {FIXED}"
    )
    assert story.status().attempts == []
