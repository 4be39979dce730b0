"""`python -m harness.example_jobs` writes examples/clusters/busy.yaml: the example cluster with jobs that live on it.

What the jobs say is what the operator's own lifecycle writes; kubelets and scheduler are played.
"""

from pathlib import Path
from typing import Any

import yaml

from closeknit.api.names import API_VERSION, JobKey
from closeknit.cli.plan.plan_decision import PlanRefused, decided
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.lifecycle.status.conditions import timestamp
from harness import example_cluster
from scenarios.story import Story

FILE = Path(__file__).parents[2] / "examples" / "clusters" / "busy.yaml"
_HEAD = """\
# The cluster of ../cluster.yaml with jobs that live on it, as `kubectl get -o yaml` prints them, with less around it:
#
#   ml/llama-70b       16 GPUs of gpu-01 and gpu-05; its first run ended, and it started again
#   ml/moe-16          waits: no NVLink island is large enough for a group of 16
#   ml/tensor-4        4 V100s of gpu-03, which are joined in a ring
#   team-b/vision      has failed; its script is wrong
#   team-b/eval        waits for 16 GPUs of one product
#   team-b/night       is suspended
#
#   closeknit status --cluster examples/clusters/busy.yaml
#   closeknit explain moe-16 -n ml --cluster examples/clusters/busy.yaml
#
# Written by tests/harness/example_jobs.py.
"""
_KEPT_OF_PODS = ("nodeName", "restartPolicy")
H200 = {"products": ["NVIDIA-H200"]}


def job(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    """A TrainingJob with the smallest template."""
    container = {"name": "trainer", "image": "registry.example.com/train:1", "command": ["torchrun", "train.py"]}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"containers": [container]}}, **spec},
    }


def world() -> Story:
    """What has become of them."""
    story = Story(*_machines())
    story.sidecar_image = "registry.example.com/closeknit-sidecar:1"
    _submit(story, job("ml", "llama-70b", gpus=16, gpu=H200, parallelism={"tensor": 8}, restart={"limit": 3}))
    story.settle()
    story.pass_time(8)
    story.run_all()
    story.settle()
    story.pass_time(3 * 3600)
    _fail(story, "llama-70b-a1-worker-00001", 1, "RuntimeError: CUDA error: an illegal memory access was encountered")
    story.settle()
    for name in [name for name in story.pods() if name.startswith("llama-70b-a1")]:
        story.remove_pod(name)
    story.pass_time(6)
    story.settle()
    story.pass_time(9)
    story.run_all()
    story.settle()
    _submit(story, job("ml", "tensor-4", gpus=4, parallelism={"tensor": 4}, gpu={"products": ["Tesla-V100-SXM2-32GB"]}))
    _submit(story, job("team-b", "vision", gpus=2, gpu={"products": ["NVIDIA-RTX-A6000"]}))
    story.settle()
    story.pass_time(5)
    story.run_all()
    story.settle()
    story.pass_time(40)
    _fail(story, "vision-a1-worker-00000", 2, "ModuleNotFoundError: No module named 'timm'")
    story.settle()
    story.remove_pod("vision-a1-worker-00000")
    _submit(story, job("ml", "moe-16", gpus=16, parallelism={"tensor": 16}, topology={"nvlink": "Required"}))
    story.settle()
    story.pass_time(25 * 60)
    _submit(story, job("team-b", "night", gpus=8, suspend=True))
    _submit(story, job("team-b", "eval", gpus=16, gpu=H200))
    story.settle()
    story.pass_time(12 * 60)
    story.settle()
    _beat(story)
    _tell_nearest(story)
    return story


def _machines() -> list[dict[str, Any]]:
    found = [each for each in yaml.safe_load_all(example_cluster.text()) if each]
    for each in found:
        if each["kind"] == "Node":
            each["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    return found


def _submit(story: Story, body: dict[str, Any]) -> None:
    body["metadata"]["creationTimestamp"] = timestamp(story.now)
    story.add(body)


def _fail(story: Story, pod: str, code: int, words: str) -> None:
    ended = {"terminated": {"exitCode": code, "reason": "Error", "message": words}}
    story.change_pod(pod, phase="Failed", containerStatuses=[{"name": "trainer", "state": ended}])


def _beat(story: Story) -> None:
    for (kind, _, _), body in story.objects.items():
        if kind == "NodeTopology":
            body.setdefault("status", {})["heartbeatTime"] = timestamp(story.now)


def _tell_nearest(story: Story) -> None:
    """What the operator looks for apart, and later: changes with which jobs would fit."""
    objects = [each for each in map(from_document, story.objects.values()) if each is not None]
    for key, waiting in story.cluster.jobs.items():
        if waiting.status.pending is None:
            continue
        answer = decided(waiting, objects, story.now)
        if isinstance(answer, PlanRefused):
            stored = story.objects["TrainingJob", *JobKey(*key)]
            stored["status"]["pending"]["nearest"] = list(answer.pending.nearest)


def text() -> str:
    """The file."""
    documents = [_shown(kind, body) for (kind, _, _), body in world().objects.items() if kind != "Service"]
    parts = [yaml.dump(each, Dumper=example_cluster._Dumper, sort_keys=False, width=1000) for each in documents]
    return _HEAD + "---\n" + "---\n".join(parts)


def _shown(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in body["metadata"].items() if key not in ("resourceVersion", "finalizers")}
    shown = {**body, "metadata": metadata}
    if kind == "Pod":
        trainer = body["spec"]["containers"][0]
        container = {"name": trainer["name"], "image": trainer["image"], "resources": trainer.get("resources", {})}
        kept = {key: body["spec"][key] for key in _KEPT_OF_PODS if key in body["spec"]}
        shown["spec"] = {**kept, "containers": [container]}
    return shown


if __name__ == "__main__":
    FILE.write_text(text())
