"""The chart's agent as a Pod of a real node: who may ask the kubelet, and that the agent does."""

from collections.abc import Iterator
from typing import Any

import pytest

from closeknit.agent.discovery.simulation import gpu_uuid
from harness.chart import render
from harness.install import install
from harness.local_cluster import LocalCluster
from harness.machines import AGENT_NAMESPACE
from harness.node.host_python import AGENT_IMAGE, HOST_FOLDERS, RUNTIME_CLASS, write_agent_image
from harness.node.local_node import LocalNode
from node.pods import START_TIMEOUT_S, allocations_known, delete, environment, held, pod, wait_for_phase

pytestmark = pytest.mark.nodes

REPOSITORY, _, TAG = AGENT_IMAGE.rpartition(":")


@pytest.fixture(scope="module")
def node(node_cluster: LocalCluster) -> Iterator[LocalNode]:
    with LocalNode(node_cluster, "node-1", 1, host_folders=HOST_FOLDERS) as node:
        archive = node.folder / "agent.tar"
        write_agent_image(archive)
        node.import_image(archive)
        node.offer_gpus([gpu_uuid(node.site.name, index) for index in range(8)])
        node_cluster.kubectl("label", "node", node.site.name, "nvidia.com/gpu.present=true")
        node_cluster.apply(RUNTIME_CLASS)
        install(node_cluster)
        yield node


def agents(cluster: LocalCluster, *options: str) -> dict[str, Any]:
    """The chart's DaemonSet; all that is changed is that the machine is simulated, and looked at more often."""
    values = (f"agent.image.repository={REPOSITORY}", f"image.tag={TAG}", "image.pullPolicy=Never", *options)
    objects = render(cluster.binaries.helm, *(f"--set={value}" for value in values))
    (found,) = (each for each in objects if each["kind"] == "DaemonSet")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    container["args"] = ["--source=simulated", "--profile=hgx-h200", "--interval=2", *container["args"][1:]]
    return found


def test_the_agent_pod_says_who_holds_which_gpus(node_cluster: LocalCluster, node: LocalNode) -> None:
    node_cluster.apply(pod("three", node.site.name, "pause", gpus=3))
    wait_for_phase(node_cluster, "three", "Running")
    expected = sorted(environment(node_cluster, "three")["NVIDIA_VISIBLE_DEVICES"].split(","))
    node_cluster.apply(agents(node_cluster, "agent.podResources=true"))
    wanted = {"default/three/main": expected}
    node_cluster.wait_for(lambda: held(node_cluster) == wanted, "the Pod's GPUs to be named", START_TIMEOUT_S)
    delete(node_cluster, ["three"])
    node_cluster.wait_for(lambda: held(node_cluster) == {}, "the Pod's GPUs to be free", 10)


def test_whoever_is_not_root_may_not_ask(node_cluster: LocalCluster, node: LocalNode) -> None:
    """Why the chart makes the container root where it asks; a group of root's is not enough."""
    changed = agents(node_cluster, "agent.podResources=true")
    spec = changed["spec"]["template"]["spec"]
    spec["containers"][0]["securityContext"] |= {"runAsNonRoot": True, "runAsUser": 65532}
    spec["securityContext"]["supplementalGroups"] = [0]
    node_cluster.apply(changed)

    def is_refused() -> bool:
        known = allocations_known(node_cluster)
        return known is not None and known[:2] == ("False", "KubeletUnreachable") and "Permission denied" in known[2]

    node_cluster.wait_for(is_refused, f"the agent of {node.site.name} to be refused", START_TIMEOUT_S)
    assert held(node_cluster) is None
    node_cluster.kubectl("delete", "daemonset", "closeknit-agent", f"--namespace={AGENT_NAMESPACE}", "--wait=false")
