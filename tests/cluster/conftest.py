"""The one control plane that has an operator; each test of it is a story in a namespace of its own."""

import itertools
from collections.abc import Iterator

import pytest

from harness.install import free_port, install, start_agents, start_operator
from harness.local_cluster import LocalCluster
from harness.machines import device_class, node_object, resource_slices
from harness.operator_bed import DRA_NODES, PLUGIN_NODES, PROFILES, Bed

serials = itertools.count()


@pytest.fixture(scope="session")
def running() -> Iterator[Bed]:
    """A control plane of our own: an operator would touch other tests' jobs."""
    with LocalCluster() as cluster:
        install(cluster)
        plugin = [node_object(name, PROFILES[name], plugin=True, rdma=8) for name in PLUGIN_NODES]
        dra = [node_object(name, PROFILES[name], plugin=False) for name in DRA_NODES]
        slices = [each for name in DRA_NODES for each in resource_slices(name, PROFILES[name])]
        cluster.apply(*plugin, *dra, device_class(), *slices)
        start_agents(cluster, [{"name": name, "profile": profile} for name, profile in PROFILES.items()])
        bed = Bed(cluster, free_port())
        cluster.wait_for(lambda: len(cluster.get("nodetopologies")["items"]) == len(PROFILES), "the agents")
        bed.pid = start_operator(cluster, bed.port)
        yield bed


@pytest.fixture
def bed(running: Bed) -> Iterator[Bed]:
    running.namespace = f"story-{next(serials)}"
    running.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": running.namespace}})
    running.cluster.wait_for(
        lambda: (
            running.cluster.kubectl("get", "serviceaccounts", "default", f"-n{running.namespace}", check=False) != ""
        ),
        "the default ServiceAccount",
    )
    yield running
    running.cluster.kubectl("delete", "trainingjobs", "--all", f"--namespace={running.namespace}")
    running.cluster.kubectl("delete", "namespace", running.namespace, "--wait=false")
    running.cluster.wait_for(
        lambda: not [pod for pod in running.all("pods") if pod["status"].get("phase") not in {"Succeeded", "Failed"}],
        "the story's Pods to be gone",
    )
