"""A cluster's objects at the size that `kubectl get -o yaml` really prints them: for `make bench-plan` and tests."""

from collections.abc import Iterator
from typing import Any

from closeknit.agent.discovery.topology import discover
from closeknit.api.names import API_VERSION, GPU_DRA_DRIVER
from closeknit.api.nodetopology import Method
from harness.machines import node_object, readings, resource_slices

IMAGES_PER_NODE = 50  # the kubelet's nodeStatusMaxImages
PODS_PER_NODE = 4


def objects(nodes: int) -> list[dict[str, Any]]:
    """Nodes in racks of eight, alternately HGX H200s with a device plugin and DGX-1Vs with DRA, and their Pods."""
    found: list[dict[str, Any]] = [
        {
            "apiVersion": API_VERSION,
            "kind": "ClusterTopology",
            "metadata": {"name": "default"},
            "spec": {"levels": [{"name": "rack", "nodeLabel": "example.com/rack"}]},
        }
    ]
    for index in range(nodes):
        found += _node(index)
    return found


def _node(index: int) -> Iterator[dict[str, Any]]:
    name = f"gpu-{index:04d}"
    profile, dra = (("hgx-h200", False), ("dgx1-v100", True))[index % 2]
    node = node_object(name, profile, plugin=not dra, labels={"example.com/rack": f"r{index // 8:03d}"})
    node["metadata"] |= {"uid": _uid(index), "resourceVersion": str(1000 + index)}
    node["status"]["images"] = [
        {"names": [f"images.example.com/team/{image:03d}@sha256:{image:064x}"], "sizeBytes": 10**9 + image}
        for image in range(IMAGES_PER_NODE)
    ]
    node["status"]["nodeInfo"] = {"kernelVersion": "6.8.0", "kubeletVersion": "v1.36.3", "machineID": f"{index:032x}"}
    yield node
    found = discover(readings(name, profile), Method.SIMULATED)
    yield {
        "apiVersion": API_VERSION,
        "kind": "NodeTopology",
        "metadata": {"name": name, "uid": _uid(10_000 + index), "generation": 1},
        "spec": found.spec.wire(),
        "status": {"heartbeatTime": "2026-11-21T12:00:00Z"},
    }
    if dra:
        yield from resource_slices(name, profile)
    for pod in range(PODS_PER_NODE):
        yield _pod(name, index * PODS_PER_NODE + pod, gpus=0 if dra or pod else index % 3)


def _pod(node: str, number: int, gpus: int) -> dict[str, Any]:
    """A Pod of somebody; the first on some plugin nodes holds GPUs, the rest hold none."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    environment = [{"name": f"SETTING_{key}", "value": f"value-{key}"} for key in range(40)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:05d}",
            "namespace": "team-a",
            "uid": _uid(100_000 + number),
            "labels": {"app.kubernetes.io/name": "service", "driver": GPU_DRA_DRIVER.split(".", maxsplit=1)[0]},
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "main", "image": "images.example.com/main:1", "env": environment, "resources": resources}
            ],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")],
            "podIP": f"10.0.{number // 250}.{number % 250}",
        },
    }


def _uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"
