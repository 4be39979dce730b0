"""A GPU or a NIC of a running gang falls ill: what ends the run, what is only told, and where the next attempt goes."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from scenarios.manifests import training_job
from scenarios.stories import booked_nodes, conditions, ended
from scenarios.story import Story, dra_node, plugin_node


def running(node_of: Any = dra_node, **spec: Any) -> Story:
    """A gang of four GPUs that runs on the first of two nodes of eight."""
    story = Story(*node_of("gpu-1"), *node_of("gpu-2"), training_job(spec={"gpus": 4, **spec}))
    story.settle()
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING
    return story


def report(story: Story, *gpus: tuple[int, str, list[str]], node: str = "gpu-1") -> None:
    told = [{"index": index, "state": state, "reasons": reasons} for index, state, reasons in gpus]
    story.objects[("NodeTopology", "", node)]["status"]["gpus"] = told


def exit_with(story: Story, code: int, reason: str = "Error") -> None:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-11-21T10:00:10Z"}}
    for pod in story.pods():
        story.change_pod(pod, phase="Failed", containerStatuses=[{"name": "trainer", "state": state}])


def degraded(story: Story) -> tuple[str, str, str]:
    (found,) = (each for each in story.status().conditions if each.type == "Degraded")
    return found.status, found.reason, found.message or ""


@pytest.mark.parametrize("reason", ["XID79", "XID48", "XID95", "XID119", "GPULost"])
def test_a_gpu_that_computes_no_more_ends_the_run_at_once_and_is_not_taken_again(reason: str) -> None:
    story = running()
    report(story, (2, "Unhealthy", ["ForeignProcess", reason]))
    story.settle()
    assert ended(story) == [(1, "GPULost", False)]
    assert story.status().attempts[0].message == (
        f"GPU 2 of node gpu-1 (ForeignProcess, {reason}) computes no more until it is reset; the job starts again "
        "without it"
    )
    (share,) = booked_nodes(story)
    assert (share.name, 2 in share.gpus) == ("gpu-1", False), "the node's other GPUs are as good"


def test_several_that_compute_no_more_are_told_together() -> None:
    story = running()
    report(story, (0, "Unhealthy", ["XID79"]), (2, "Unhealthy", ["XID79"]))
    story.settle()
    assert story.status().attempts[0].message == (
        "GPU 0 of node gpu-1 (XID79), GPU 2 of node gpu-1 (XID79) compute no more until they are reset; the job starts "
        "again without them"
    )


def test_where_a_plugin_chooses_the_gpus_the_whole_node_is_avoided() -> None:
    story = running(plugin_node)
    report(story, (0, "Unhealthy", ["XID79"]))
    story.settle()
    (share,) = booked_nodes(story)
    assert share.name == "gpu-2"


@pytest.mark.parametrize("reason", ["RowRemapFailed", "FabricNotReady", "XID74", "RecoveryNeeded", "XID790", ""])
def test_any_other_illness_is_told_and_the_run_goes_on(reason: str) -> None:
    story = running()
    report(story, (1, "Unhealthy", [reason] if reason else []))
    story.settle()
    assert ended(story) == []
    assert degraded(story) == (
        "True",
        "DeviceUnhealthy",
        f"GPU 1 of node gpu-1 ({reason or 'unhealthy'}); the run goes on, and a restart takes other devices",
    )
    report(story)
    story.settle()
    assert conditions(story)["Degraded"] == "True", "it may fall ill again in a moment"
    story.pass_time(300)
    story.settle()
    assert conditions(story)["Degraded"] == "False", "it is well again"


@pytest.mark.parametrize(
    ("node_of", "name", "device"),
    [
        pytest.param(dra_node, "claim:gpus/gpus", "gpu.nvidia.com/gpu-1/gpu-1", id="a claim's"),
        pytest.param(plugin_node, "nvidia.com/gpu", "GPU-gpu-1-1", id="a device plugin's"),
        pytest.param(plugin_node, "nvidia.com/gpu", "GPU-gpu-1-1::0", id="a replica"),
    ],
)
def test_a_gpu_that_its_kubelet_calls_unhealthy_is_told_and_the_run_goes_on(
    node_of: Any, name: str, device: str
) -> None:
    """By what NVIDIA's driver (NVMLDeviceHealthCheck) or its device plugin reports of it (KEP-4680)."""
    story = running(node_of)
    (pod,) = story.pods()

    def say(health: str, *devices: str) -> None:
        told = [{"resourceID": each, "health": health} for each in devices]
        status = {
            "name": "trainer",
            "state": {"running": {}},
            "allocatedResourcesStatus": [{"name": name, "resources": told}],
        }
        story.change_pod(pod, containerStatuses=[status])
        story.settle()

    for health, devices in (
        ("Healthy", [device]),
        ("Unknown", [device]),
        ("Unhealthy", ["GPU-gpu-1-6", "gpu.nvidia.com/gpu-1/gpu-6", "dra.net/gpu-1/gpu-1", "gpu.nvidia.com/x", ""]),
    ):
        say(health, *devices)
        assert "Degraded" not in conditions(story), (health, devices)
    say("Unhealthy", device)
    assert ended(story) == []
    words = "GPU 1 of node gpu-1 (its kubelet calls it unhealthy); the run goes on, and a restart takes other devices"
    assert degraded(story) == ("True", "DeviceUnhealthy", words)


def test_a_gpu_that_flaps_costs_a_write_every_five_minutes() -> None:
    story = running()
    story.written.clear()
    for number in range(150):  # a quarter of an hour of an agent that looks every six seconds
        report(
            story, *([] if number % 2 else [(1, "Unhealthy", ["XID74"]), (2, "Unhealthy", ["XID63"])][: 1 + number % 3])
        )
        story.settle()
        story.pass_time(6)
    assert 2 <= len(story.written) <= 4
    report(story)
    story.pass_time(300)
    story.settle()
    story.pass_time(300)
    story.settle()
    assert conditions(story)["Degraded"] == "False"


def test_a_gpu_that_dies_after_it_has_flapped_ends_the_run_at_once() -> None:
    story = running()
    report(story, (1, "Unhealthy", ["XID74"]))
    story.settle()
    report(story, (1, "Unhealthy", ["XID79"]))
    story.settle()
    assert ended(story) == [(1, "GPULost", False)]


@pytest.mark.parametrize("gpu", [(6, "Unhealthy", ["XID79"]), (1, "Degraded", ["ThermalSlowdown"])])
def test_a_gpu_of_another_or_one_that_is_only_slower_is_no_news(gpu: tuple[int, str, list[str]]) -> None:
    story = running()
    before = story.status()
    report(story, gpu)
    story.settle()
    assert story.status() == before


@pytest.mark.parametrize("reason", ["XID79", "XID74"])
def test_a_rank_that_ends_beside_an_ill_gpu_is_not_charged(reason: str) -> None:
    story = running()
    report(story, (3, "Unhealthy", [reason]))
    exit_with(story, 1)
    story.settle()
    dead = reason == "XID79"
    assert ended(story) == [(1, "GPULost" if dead else "GPUUnhealthy", False)]
    story.run_all()
    story.settle()
    assert all(3 not in share.gpus or share.name != "gpu-1" for share in booked_nodes(story))


def test_a_rank_that_was_killed_for_its_memory_is_its_own_fault_whatever_the_gpu() -> None:
    story = running()
    report(story, (3, "Unhealthy", ["XID74"]))
    exit_with(story, 137, "OOMKilled")
    story.settle()
    assert story.status().state is State.FAILED


def test_a_pod_that_is_deleted_does_not_come_back_on_an_ill_gpu() -> None:
    story = running()
    report(story, (3, "Unhealthy", ["RowRemapFailed"]))
    story.settle()
    for pod in story.pods():
        story.remove_pod(pod)
    story.settle()
    (share,) = booked_nodes(story)
    assert 3 not in share.gpus


NODES = ("gpu-1", "gpu-2", "gpu-3")
NIC = {"name": "mlx5_0", "port": 1, "transport": "RoCE", "state": "Active", "rateGbps": 400, "gpuLevels": ["PIX"] * 8}


def test_a_rank_that_ends_while_a_port_is_down_is_not_charged_and_the_node_is_avoided() -> None:
    story = Story(*(each for node in NODES for each in plugin_node(node)), training_job(spec={"gpus": 16}))
    for node in NODES:
        story.objects[("Node", "", node)]["status"]["allocatable"]["rdma/hca"] = "8"
        story.objects[("NodeTopology", "", node)]["spec"]["nics"] = [NIC]
    story.settle()
    assert booked_nodes(story)[0].nics == ["mlx5_0"]
    story.run_all()
    story.settle()
    story.objects[("NodeTopology", "", "gpu-2")]["status"]["nics"] = [{"name": "mlx5_0", "state": "Down"}]
    story.settle()
    assert degraded(story)[2].startswith("NIC mlx5_0:1 of node gpu-2 (its port is down); the run goes on")
    assert ended(story) == []
    exit_with(story, 1)
    story.settle()
    assert ended(story) == [(1, "NICDown", False)]
    assert [share.name for share in booked_nodes(story)] == ["gpu-1", "gpu-3"]


def test_a_tainted_device_is_told_and_the_run_goes_on() -> None:
    story = running()
    (part,) = (
        value
        for (kind, _, _), value in story.objects.items()
        if kind == "ResourceSlice" and value["spec"]["nodeName"] == "gpu-1"
    )
    part["spec"]["devices"][0]["taints"] = [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]
    story.settle()
    assert ended(story) == []
    assert degraded(story)[:2] == ("True", "DeviceUnhealthy")
    assert "its DRA device is tainted gpu.nvidia.com/xid:NoSchedule" in degraded(story)[2]
