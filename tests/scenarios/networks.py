"""Machines with network adapters, a job on them, and what its Pods and its status then say."""

from typing import Any

from closeknit.api.wire import Condition
from scenarios.manifests import node, node_topology, resource_slice, training_job
from scenarios.stories import WHOLE
from scenarios.story import Story


def nics(transport: str, count: int = 2, state: str = "Active") -> list[dict[str, Any]]:
    """Adapters as a NodeTopology has them."""
    return [{"name": f"{transport.lower()}-{port}", "transport": transport, "state": state} for port in range(count)]


def machine(
    name: str, ports: list[dict[str, Any]], *, domain: str | None = None, **allocatable: str
) -> list[dict[str, Any]]:
    """A node of eight GPUs with these NICs; `allocatable` is what its device plugins offer, under rdma/ where the name
    has no slash."""
    topology = node_topology(name)
    topology["spec"]["nics"] = ports
    if domain:
        topology["spec"]["nvlink"] = {"domain": {"clusterUUID": domain, "cliqueID": 1}}
    offers = {resource if "/" in resource else f"rdma/{resource}": amount for resource, amount in allocatable.items()}
    return [node(name, gpus=None, allocatable=offers), topology, resource_slice(name, range(8))]


def job(rdma: str = "Preferred", **container: object) -> dict[str, Any]:
    """On both nodes, of a trainer with these fields."""
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", **container}]}}
    return training_job(spec={**WHOLE, "network": {"rdma": rdma}, "template": template})


def environment(story: Story) -> dict[str, str]:
    """Of the Pod of node rank 0."""
    pods = [manifest for (kind, _, name), manifest in story.objects.items() if kind == "Pod" and "00000" in name]
    return {entry["name"]: entry["value"] for entry in pods[0]["spec"]["containers"][0]["env"]}


def degraded(story: Story) -> Condition | None:
    """What the job says of its network; None where all is well."""
    return next((condition for condition in story.status().conditions if condition.type == "Degraded"), None)


def pods(story: Story) -> list[dict[str, Any]]:
    """All there are."""
    return [manifest for (kind, *_), manifest in sorted(story.objects.items()) if kind == "Pod"]


def two(ports: list[dict[str, Any]], *, labels: Any = None, **offers: str) -> list[dict[str, Any]]:
    """Two such machines, gpu-1 and gpu-2."""
    nodes = [*machine("gpu-1", ports, **offers), *machine("gpu-2", ports, **offers)]
    for manifest in nodes:
        if manifest["kind"] == "Node":
            manifest["metadata"]["labels"].update(labels or {})
    return nodes
