"""GPUs that a device plugin shares: refused, unless the job says that it takes them; then one for each Pod."""

from typing import Any

import pytest

from scenarios.manifests import allocation, node, node_topology, pod, training_job, uuids
from scenarios.stories import booked_nodes
from scenarios.story import Story

SLICED = {"nvidia.com/gpu.replicas": "2"}


def sliced(name: str = "gpu-1", *, gpus: int = 4, allocatable: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """A node of two GPUs, each handed out twice."""
    return [node(name, gpus=gpus or None, labels=SLICED, allocatable=allocatable or {}), node_topology(name, count=2)]


def job(gpus: int = 1, name: str = "train", *, shared: bool = True, **spec: Any) -> dict[str, Any]:
    return training_job(name, spec={"gpus": gpus, "gpu": {"allowShared": shared}, **spec})


def settled(*manifests: dict[str, Any]) -> Story:
    story = Story(*manifests)
    story.settle()
    return story


def refused(story: Story, name: str = "train") -> str:
    pending = story.status(name).pending
    assert pending is not None and pending.reason == "InsufficientGPUs"
    return pending.message


def test_without_the_jobs_word_they_are_refused() -> None:
    assert "2 shared by a device plugin" in refused(settled(*sliced(), job(shared=False)))


def test_with_it_a_pod_gets_one() -> None:
    story = settled(*sliced(), job())
    (share,) = booked_nodes(story)
    assert (share.gpus, share.binding) == ([0], "BestEffort")
    (container,) = story.pod("train-a1-worker-00000")["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_with_it_a_pod_gets_one_of_gkes() -> None:
    labels = {
        "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
        "cloud.google.com/gke-max-shared-clients-per-gpu": "2",
    }
    nodes = [node(gpus=4, labels=labels), node_topology(count=2)]
    assert "2 shared by a device plugin" in refused(settled(*nodes, job(shared=False)))
    assert booked_nodes(settled(*nodes, job()))[0].gpus == [0]


def test_where_no_label_tells_of_sharing_it_is_said_what_is_missing() -> None:
    said = refused(settled(node(gpus=4), node_topology(count=2), job()))
    assert "4 nvidia.com/gpu for 2: run GPU feature discovery there" in said


def test_of_a_resource_of_its_own_name() -> None:
    story = settled(*sliced(gpus=0, allocatable={"nvidia.com/gpu.shared": "4"}), job())
    (container,) = story.pod("train-a1-worker-00000")["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu.shared": "1"}
    story.run_all()
    story.settle()
    assert story.status().state == "Running"


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_as_many_jobs_as_replicas(resource: str) -> None:
    """Those of Pods that are not bound yet count, and those of others."""
    gpus = 4 if resource == "nvidia.com/gpu" else 0
    offered = {} if gpus else {resource: "4"}
    stranger = pod("notebook", requests={resource: "1"})
    jobs = [job(name=f"job-{number}") for number in range(4)]
    story = settled(*sliced(gpus=gpus, allocatable=offered), stranger, *jobs)
    placed = [story.status(f"job-{number}").placement is not None for number in range(4)]
    assert placed == [True, True, True, False]
    story.run_all()
    told = allocation("ml", "notebook", [f"{uuid}::1" for uuid in uuids("gpu-1", 0)])
    story.objects["NodeTopology", "", "gpu-1"].setdefault("status", {})["allocations"] = [told]
    story.settle()
    assert story.status("job-3").placement is None
    refused(story, "job-3")
    del story.objects["Pod", "ml", "notebook"]
    story.settle()
    assert story.status("job-3").placement is not None


def test_two_of_one_node_may_be_of_the_same_gpu() -> None:
    said = refused(settled(*sliced(), job(2)))
    assert "shared by a device plugin, of which each Pod may have one" in said


def test_a_rank_on_each_node() -> None:
    story = settled(*sliced(), *sliced("gpu-2"), job(2, topology={"gpusPerNode": 1}))
    assert [(share.name, share.gpus) for share in booked_nodes(story)] == [("gpu-1", [0]), ("gpu-2", [0])]


def test_whole_gpus_are_taken_as_ever() -> None:
    story = settled(node("gpu-9", gpus=2), node_topology("gpu-9", count=2), job(2))
    assert booked_nodes(story)[0].binding == "WholeNode"


def test_parts_of_a_gpus_memory_are_seen_and_refused() -> None:
    """By a scheduler of its own, to which nobody has said how much."""
    story = settled(*sliced(allocatable={"aliyun.com/gpu-mem": "64"}), job())
    assert "2 shared by memory (aliyun.com/gpu-mem)" in refused(story)
