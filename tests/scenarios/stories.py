"""How the stories of a job's life begin, and what they look at."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from closeknit.api.trainingjob_status import NodeAssignment, PlacementStatus
from closeknit.cluster.objects.silence import Quiet
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.writes.resource_quotas import Quota
from scenarios.manifests import training_job
from scenarios.story import Story, dra_node, plugin_node

GPUS = "requests.nvidia.com/gpu"
WHOLE = {"gpus": 16}  # two whole nodes


class TeamStory(Story):
    """One whose namespace has a quota that counts the Pods that are there and have not ended; none without `hard`."""

    hard: Mapping[str, str] = {}

    @property
    def quotas(self) -> list[Quota]:
        there = [pod for pod in map(self.pod, self.pods()) if pod["status"].get("phase") not in {"Succeeded", "Failed"}]
        requests = [each["resources"].get("requests", {}) for pod in there for each in pod["spec"]["containers"]]
        used = {"pods": len(there), GPUS: sum(int(each.get("nvidia.com/gpu", 0)) for each in requests)}
        return [Quota("team", self.hard, {name: str(used[name]) for name in self.hard})] if self.hard else []

    @quotas.setter
    def quotas(self, _: list[Quota]) -> None:
        pass


def two_plugin_nodes(**spec: object) -> Story:
    """Two nodes of 8 GPUs with a device plugin, and a job that takes both."""
    return Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), training_job(spec={**WHOLE, **spec}))


def two_dra_nodes() -> Story:
    return Story(*dra_node("gpu-1"), *dra_node("gpu-2"), training_job(spec=WHOLE))


def conditions(story: Story) -> dict[str, str]:
    return {condition.type: condition.status for condition in story.status().conditions}


def unschedulable(message: str, since: str = "2026-11-21T10:00:00Z") -> dict[str, str]:
    """What the scheduler says of a Pod that it refuses; by default since the beginning of the story."""
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": since,
    }


def disruption(reason: str, message: str) -> dict[str, str]:
    """What Kubernetes says of a Pod that it is about to end."""
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}


def end_trainer(
    story: Story, rank: int, code: int = 1, reason: str | None = None, *, ago_s: float = 0, message: str = ""
) -> None:
    """The trainer of a Pod of the current attempt has ended."""
    at = timestamp(story.now - timedelta(seconds=ago_s))
    why = reason or ("Error" if code else "Completed")
    state = {"terminated": {"exitCode": code, "reason": why, "message": message, "finishedAt": at, "startedAt": at}}
    phase = "Failed" if code else "Succeeded"
    name = f"train-a{story.status().attempt}-worker-{rank:05d}"
    story.change_pod(name, phase=phase, containerStatuses=[{"name": "trainer", "state": state}])


def placement(story: Story, name: str = "train") -> PlacementStatus:
    found = story.status(name).placement
    assert found is not None
    return found


def booked_nodes(story: Story) -> list[NodeAssignment]:
    return placement(story).nodes


def nodes(story: Story, name: str = "train") -> list[str]:
    """Names of a job's nodes in the order of its ranks; none while it waits."""
    found = story.status(name).placement
    return [] if found is None else [each.name for each in found.nodes]


def kill_nodes(story: Story, *names: str) -> None:
    """These nodes are silent, and node rank 0's sidecar, where it is alive, misses their Pods."""
    for name in names:
        story.lose_node(name)
        story.silence(name, Quiet.LONG)


def lose_nodes(story: Story, *names: str) -> None:
    """These nodes are silent, and the operator has done what follows."""
    kill_nodes(story, *names)
    story.settle()


def ended(story: Story) -> list[tuple[int, str, bool]]:
    return [(attempt.number, attempt.reason, attempt.charged) for attempt in story.status().attempts]


def begin(story: Story) -> None:
    """All Pods run, and their containers with them."""
    story.settle()
    run_trainers(story)
    story.settle()


def run_trainers(story: Story) -> None:
    """Every Pod that is bound runs, and its trainer with it."""
    story.run_all()
    for name in story.pods():
        if story.pod(name)["status"].get("phase") == "Running":
            states = [{"name": "trainer", "state": {"running": {"startedAt": "2026-11-21T10:00:00Z"}}}]
            story.change_pod(name, containerStatuses=states)


def submit(story: Story, name: str, gpus: int = 8, **spec: Any) -> None:
    story.add(training_job(name, spec={"gpus": gpus, **spec}))
    begin(story)


def end(story: Story, name: str) -> None:
    """A job is deleted, and all that it owns."""
    del story.objects["TrainingJob", "team-b", name]
    for pod in [each for each in story.pods() if each.startswith(f"{name}-a")]:
        story.remove_pod(pod)


def finish(story: Story) -> None:
    """Kubelets end what they were told to end, and Kubernetes frees the claims of that."""
    story.end_stopped()
    for (kind, _, name), pod in story.objects.items():
        claim = story.objects.get(("ResourceClaim", "team-b", name))
        if kind == "Pod" and pod["status"]["phase"] == "Failed" and claim is not None:
            claim.pop("status", None)
    begin(story)
