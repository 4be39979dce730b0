"""Pods for real nodes, what they say, and what is published of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.local_cluster import LocalCluster
from harness.node.image import IMAGE

START_TIMEOUT_S = 30  # it takes one second


def pod(name: str, node: str, *arguments: str, gpus: int = 0, namespace: str = "default") -> dict[str, Any]:
    """A Pod of one container `main`, which runs the harness' program with these arguments."""
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": list(arguments),
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def wait_for_phase(cluster: LocalCluster, name: str, *phases: str, namespace: str = "default") -> Mapping[str, Any]:
    """The Pod's status once it is in one of these phases."""

    def status() -> Mapping[str, Any] | None:
        found: Mapping[str, Any] = cluster.get("pod", name, namespace)["status"]
        return found if found.get("phase") in phases else None

    return cluster.wait_for(status, f"Pod {name} to be {' or '.join(phases)}", START_TIMEOUT_S)


def environment(cluster: LocalCluster, name: str, namespace: str = "default") -> dict[str, str]:
    """What the Pod's program found around it; it prints that when it starts."""
    lines = cluster.wait_for(
        lambda: cluster.kubectl("logs", name, f"--namespace={namespace}"), f"the log of Pod {name}"
    )
    return dict(line.split("=", 1) for line in lines.splitlines() if "=" in line)


def delete(cluster: LocalCluster, names: Sequence[str], namespace: str = "default") -> None:
    """Deletes Pods, and waits until their nodes have let go of them."""
    cluster.kubectl("delete", "pod", *names, f"--namespace={namespace}", "--wait")


def status(cluster: LocalCluster, node: str) -> dict[str, Any]:
    """The status of the node's NodeTopology."""
    found = [each for each in cluster.get("nodetopologies")["items"] if each["metadata"]["name"] == node]
    status: dict[str, Any] = found[0].get("status", {}) if found else {}
    return status


def held(cluster: LocalCluster, node: str) -> dict[str, list[str]] | None:
    """Container -> uuids, as the node's agent has published it; None where nobody knows."""
    allocations = status(cluster, node).get("allocations")
    if allocations is None:
        return None
    return {f"{each['namespace']}/{each['pod']}/{each['container']}": each["devices"] for each in allocations}


def allocations_known(cluster: LocalCluster, node: str) -> tuple[str, str, str] | None:
    """Status, reason and message of that condition of the node's NodeTopology."""
    for each in status(cluster, node).get("conditions", []):
        if each["type"] == "AllocationsKnown":
            return each["status"], each["reason"], each["message"]
    return None
