"""The chart's agent as a Pod of a real node: who may ask the kubelet, and that the agent does."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.machines import AGENT_NAMESPACE
from harness.node.stand import Stand
from node.pods import START_TIMEOUT_S, allocations_known, delete, environment, held, pod, wait_for_phase

pytestmark = pytest.mark.nodes

NODE = "node-1"


@pytest.fixture(scope="module", autouse=True)
def gpus(stand: Stand) -> Iterator[None]:
    """Of one of the nodes."""
    node = stand.nodes[0]
    node.offer_gpus(stand.machine(node))
    yield
    node.withdraw_gpus()
    stand.cluster.kubectl("delete", "daemonset", "--all", f"--namespace={AGENT_NAMESPACE}", "--wait")


def agent(stand: Stand) -> dict[str, Any]:
    """The chart's DaemonSet, on that node alone."""
    found = stand.agents("agent.podResources=true")
    found["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    return found


def test_the_agent_pod_says_who_holds_which_gpus(stand: Stand) -> None:
    cluster = stand.cluster
    cluster.apply(pod("three", NODE, "pause", gpus=3))
    wait_for_phase(cluster, "three", "Running")
    expected = sorted(environment(cluster, "three")["NVIDIA_VISIBLE_DEVICES"].split(","))
    cluster.apply(agent(stand))
    wanted = {"default/three/main": expected}
    cluster.wait_for(lambda: held(cluster, NODE) == wanted, "the Pod's GPUs to be named", START_TIMEOUT_S)
    delete(cluster, ["three"])
    cluster.wait_for(lambda: held(cluster, NODE) == {}, "the Pod's GPUs to be free", 10)


def test_whoever_is_not_root_may_not_ask(stand: Stand) -> None:
    """Why the chart makes the container root where it asks; a group of root's is not enough."""
    changed = agent(stand)
    spec = changed["spec"]["template"]["spec"]
    spec["containers"][0]["securityContext"] |= {"runAsNonRoot": True, "runAsUser": 65532}
    spec["securityContext"]["supplementalGroups"] = [0]
    stand.cluster.apply(changed)

    def is_refused() -> bool:
        known = allocations_known(stand.cluster, NODE)
        return known is not None and known[:2] == ("False", "KubeletUnreachable") and "Permission denied" in known[2]

    stand.cluster.wait_for(is_refused, f"the agent of {NODE} to be refused", START_TIMEOUT_S)
    assert held(stand.cluster, NODE) is None
