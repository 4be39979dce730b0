"""Gangs that restart in place, in stories: what their kubelets tell of barriers and sidecars."""

import json
from typing import Any

from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER
from closeknit.api.trainingjob_status import State
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node

TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "train", "command": ["train"]}]}}


def running(kind: Any = plugin_node, *, nodes: int = 5, gpus: int = 24, image: str = "agent:1", **spec: Any) -> Story:
    """A gang of whole nodes that can restart in place, and has run for two minutes."""
    manifests = [each for number in range(1, nodes + 1) for each in kind(f"gpu-{number}")]
    spec = {"gpus": gpus, "topology": {"gpusPerNode": 8}, "template": TEMPLATE, "restart": {"limit": 2}, **spec}
    story = Story(*manifests, training_job(spec=spec))
    story.sidecar_image = image
    allow(story)
    story.settle()
    story.run_all()
    for pod in story.pods():
        begins(story, pod, 0)
    story.settle()
    assert story.status().state is State.RUNNING
    story.pass_time(120)
    story.written.clear()
    story.notices.clear()
    return story


def allow(story: Story) -> None:
    for (kind, _, _), found in story.objects.items():
        if kind == "Node":
            found["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]


def begins(story: Story, pod: str, run: int, code: int | None = None) -> None:
    """Its barrier has let a Pod go for this run."""
    said: dict[str, Any] = {"run": run}
    if code is not None:
        said["ended"] = {"code": code, "at": story.now.timestamp() - 2, "was_told": False, "words": ""}
    at = story.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    state = {"terminated": {"exitCode": 0, "message": json.dumps(said), "finishedAt": at}}
    _say(story, pod, "Running", state)


def waits(story: Story, pod: str) -> None:
    """Its containers have ended, and its barrier waits."""
    _say(story, pod, "Pending", {"running": {}})


def alive(story: Story) -> list[str]:
    """The Pods on no dead node."""
    return [name for name in story.pods() if story.pod(name)["spec"].get("nodeName") not in story.dead]


def together(story: Story, run: int) -> None:
    """The new Pods are bound, the barriers of all Pods on live nodes wait for each other, and all begin this run."""
    story.run_all()
    pods = alive(story)
    for pod in pods:
        waits(story, pod)
        story.settle()
    for pod in pods:
        begins(story, pod, run)
    story.settle()


def _say(story: Story, pod: str, phase: str, barrier: dict[str, Any]) -> None:
    trainer = {"running": {}} if phase == "Running" else {"waiting": {"reason": "PodInitializing"}}
    states = [{"name": "trainer", "state": trainer}, {"name": SIDECAR_CONTAINER, "state": {"running": {}}}]
    inits = [{"name": BARRIER_CONTAINER, "state": barrier}]
    story.change_pod(pod, phase=phase, initContainerStatuses=inits, containerStatuses=states)


def fails_at_barrier(story: Story, pod: str) -> None:
    why = json.dumps({"run": None, "why": "the gang has not come together in 900 s"})
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": why}}
    story.change_pod(pod, phase="Failed", initContainerStatuses=[{"name": BARRIER_CONTAINER, "state": state}])
