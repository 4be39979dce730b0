"""CPUs of their own for trainers whose template leaves them open, where the kubelet puts them beside their GPUs."""

from typing import Any

import pytest

from closeknit.launch.cpus import fair
from scenarios.manifests import node, node_topology, resource_slice, training_job
from scenarios.stories import ended, unschedulable
from scenarios.story import Story

MEMORY = {"limits": {"memory": "64Gi"}}


def started(
    resources: dict[str, Any] = MEMORY,
    *,
    policy: str | None = "restricted",
    dra: bool = False,
    whole: dict[str, Any] | None = None,
    before: list[dict[str, Any]] | None = None,
) -> Story:
    """A job of four of eight GPUs on a node of 128 CPUs."""
    topology = node_topology("gpu-1")
    if policy is not None:
        topology["spec"]["capabilities"] = {"topologyManagerPolicy": policy}
    container = {"name": "trainer", "image": "i", "resources": resources}
    template = {"spec": {"containers": [container], "initContainers": before or [], "resources": whole}}
    spec = {"gpus": 4, "gpu": {"binding": "DRA" if dra else "BestEffort"}, "template": template}
    slices = [resource_slice("gpu-1", range(8))] if dra else []
    story = Story(node("gpu-1", gpus=None if dra else 8), topology, *slices, training_job(spec=spec))
    story.settle()
    return story


def cpus(story: Story, attempt: int = 1) -> tuple[Any, Any, Any]:
    """Request, limit, and threads of the trainer."""
    (container,) = story.pod(f"train-a{attempt}-worker-00000")["spec"]["containers"]
    asked = container["resources"]
    threads = {entry["name"]: entry["value"] for entry in container["env"]}.get("OMP_NUM_THREADS")
    return asked.get("requests", {}).get("cpu"), asked.get("limits", {}).get("cpu"), threads


def test_they_go_with_the_gpus_and_threads_with_them() -> None:
    story = started()
    assert cpus(story) == ("48", "48", "12")  # three quarters of half of 128
    (container,) = story.pod("train-a1-worker-00000")["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "64Gi"


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param({"policy": None}, (None, None, None), id="nobody knows what the kubelet does"),
        pytest.param({"policy": "none"}, (None, None, None), id="it aligns nothing"),
        pytest.param({"dra": True}, (None, None, None), id="it knows nothing of devices that claims bind"),
        pytest.param(
            {"resources": {"limits": {"cpu": "8", "memory": "64Gi"}}}, (None, "8", "2"), id="the template says"
        ),
        pytest.param({"resources": {"requests": {"cpu": "8"}}}, ("8", None, "2"), id="the template asks"),
        pytest.param({"resources": {}}, (None, None, None), id="without a limit of memory no CPU is its own"),
        pytest.param(
            {"resources": {"requests": {"memory": "8Gi"}, **MEMORY}}, (None, None, None), id="or with another request"
        ),
        pytest.param({"before": [{"name": "fetch"}]}, (None, None, None), id="of all"),
        pytest.param({"whole": {"limits": {"cpu": "8"}}}, (None, None, "2"), id="the Pod as a whole has some"),
    ],
)
def test_otherwise_they_are_left_open(case: dict[str, Any], expected: tuple[Any, Any, Any]) -> None:
    assert cpus(started(**case)) == expected


def test_once_a_scheduler_has_refused_it_goes_without() -> None:
    """Others hold the CPUs: the job ran before without asking for them."""
    story = started()
    refused = unschedulable("0/1 nodes are available: 1 Insufficient cpu.")
    story.change_pod("train-a1-worker-00000", conditions=[refused])
    story.pass_time(31)
    story.settle()
    assert ended(story) == [(1, "Unschedulable", False)]
    story.pass_time(601)  # the node is avoided for a while
    story.settle()
    assert cpus(story, attempt=2) == (None, None, None)


def test_a_share_of_less_than_one_for_each_rank_is_none() -> None:
    assert (fair(128_000, 8, 8), fair(10_700, 8, 8), fair(10_600, 8, 8), fair(0, 1, 0)) == (96, 8, None, None)
