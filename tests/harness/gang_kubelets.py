"""What kubelets tell of a gang that restarts in place, whose Pods kwok plays: kwok runs no sidecar."""

import json
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from closeknit.api.names import BARRIER_CONTAINER
from harness.local_cluster import LocalCluster

SIDECAR_IMAGE = "registry.example/agent:1"
OPTIONS = (f"--sidecar-image={SIDECAR_IMAGE}",)
TRAINER = {"name": "trainer", "image": "registry.example/train:1", "command": ["train"]}
RESTARTS: dict[str, Any] = {"restart": {"limit": 3}, "template": {"spec": {"containers": [TRAINER]}}}
"""Of the spec of a job whose gang restarts in place."""
_FEATURE = {"status": {"declaredFeatures": ["RestartAllContainersOnContainerExits"]}}
_AT_ONCE = 8


def allow_restarts_in_place(cluster: LocalCluster, nodes: Collection[str]) -> None:
    """Their kubelets can start all containers of a Pod again."""

    def allow(node: str) -> None:
        cluster.patch("node", node, _FEATURE, subresource="status")

    with ThreadPoolExecutor(_AT_ONCE) as several:
        list(several.map(allow, nodes))


def begin_run(cluster: LocalCluster, namespace: str, pods: Collection[str], run: int) -> None:
    """The barriers of these Pods have let them go for this run."""
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"exitCode": 0, "reason": "Completed", "message": json.dumps({"run": run}), "finishedAt": at}
    barrier = {
        "name": BARRIER_CONTAINER,
        "image": SIDECAR_IMAGE,
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"terminated": ended},
    }

    def tell(pod: str) -> None:
        cluster.patch("pod", pod, {"status": {"initContainerStatuses": [barrier]}}, namespace, subresource="status")

    with ThreadPoolExecutor(_AT_ONCE) as several:
        list(several.map(tell, pods))
