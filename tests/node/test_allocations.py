"""The agent names who holds which GPUs, as a real kubelet tells it; the Pods themselves say what they got."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from closeknit.cluster.pods.pod import Pod, WirePod
from closeknit.cluster.pods.pod import pod as operators_pod
from harness.local_cluster import LocalCluster, is_running
from harness.machines import AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT
from harness.node.local_node import LocalNode
from harness.node.stand import PROFILE, Stand
from node.pods import allocations_known, delete, environment, held, pod, wait_for_phase

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("no_pods_are_left")]

SEEN_WITHIN_S = 10
KNOWN = ("True", "Listed")


class Agent:
    """The agent of a node, as a process of this machine that reaches the kubelet's socket and logs in as its Pod."""

    def __init__(self, cluster: LocalCluster, node: LocalNode) -> None:
        self._cluster = cluster
        self._node = node
        login = pod("agent", node.site.name, "pause", namespace=AGENT_NAMESPACE)
        login["spec"]["serviceAccountName"] = AGENT_SERVICE_ACCOUNT
        cluster.apply(login)
        wait_for_phase(cluster, "agent", "Running", namespace=AGENT_NAMESPACE)
        self._kubeconfig = cluster.service_account_kubeconfig(AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, pod="agent")
        self.start()

    def start(self, socket: Path | None = None) -> None:
        self._pid = self._cluster.start_program(
            "agent",
            sys.executable,
            "-m",
            "closeknit.agent.main",
            "--source=simulated",
            f"--profile={PROFILE}",
            f"--node={self._node.site.name}",
            f"--kubeconfig={self._kubeconfig}",
            f"--pod-resources={socket or self._node.pod_resources}",
            "--interval=5",
        )

    def stop(self) -> None:
        os.kill(self._pid, signal.SIGTERM)
        self._cluster.wait_for(lambda: not is_running(self._pid), "the agent to end")

    def wait_until_held(self, expected: dict[str, list[str]] | None, timeout_s: float = SEEN_WITHIN_S) -> None:
        node = self._node.site.name
        self._cluster.wait_for(
            lambda: held(self._cluster, node) == expected, f"allocations to be {expected}", timeout_s
        )

    def condition(self) -> tuple[str, str]:
        known = allocations_known(self._cluster, self._node.site.name)
        return known[:2] if known else ("", "")


def devices(cluster: LocalCluster, name: str) -> list[str]:
    """The GPUs of a Pod, as the operator reads its status."""
    kept = operators_pod(msgspec.convert(cluster.get("pods", name), WirePod))
    assert isinstance(kept, Pod)
    return list(kept.devices)


@pytest.fixture(scope="module")
def agent(stand: Stand, node_cluster: LocalCluster, node: LocalNode) -> Iterator[Agent]:
    node.offer_gpus(stand.machine(node))
    yield (agent := Agent(node_cluster, node))
    agent.stop()
    delete(node_cluster, ["agent"], AGENT_NAMESPACE)
    node.withdraw_gpus()


def test_two_pods_hold_gpus(node_cluster: LocalCluster, node: LocalNode, agent: Agent) -> None:
    agent.wait_until_held({}, timeout_s=30)  # the agent starts meanwhile
    assert agent.condition() == KNOWN
    node_cluster.apply(pod("five", node.site.name, "pause", gpus=5), pod("two", node.site.name, "pause", gpus=2))
    for name in ("five", "two"):
        wait_for_phase(node_cluster, name, "Running")
    told = {name: environment(node_cluster, name)["NVIDIA_VISIBLE_DEVICES"].split(",") for name in ("five", "two")}
    expected = {f"default/{name}/main": sorted(uuids) for name, uuids in told.items()}
    assert sorted(map(len, expected.values())) == [2, 5]
    agent.wait_until_held(expected)
    node_cluster.wait_for(  # what stands for the agent where it cannot ask
        lambda: {f"default/{name}/main": devices(node_cluster, name) for name in told} == expected,
        "the kubelet to write into the status of both what they have",
    )

    agent.stop()
    agent.start()
    node.stop_program("kubelet")
    node.start_kubelet()
    agent.wait_until_held(expected)
    assert agent.condition() == KNOWN

    delete(node_cluster, ["five"])
    agent.wait_until_held({"default/two/main": expected["default/two/main"]})
    delete(node_cluster, ["two"])
    agent.wait_until_held({})


def test_a_kubelet_that_is_gone_is_not_an_empty_node(node_cluster: LocalCluster, node: LocalNode, agent: Agent) -> None:
    node_cluster.apply(pod("one", node.site.name, "pause", gpus=1))
    wait_for_phase(node_cluster, "one", "Running")
    uuid = environment(node_cluster, "one")["NVIDIA_VISIBLE_DEVICES"]
    agent.wait_until_held({"default/one/main": [uuid]})
    node.stop_program("kubelet")
    try:
        agent.wait_until_held(None, timeout_s=30)  # the last answer counts for 10 s
        assert agent.condition() == ("False", "KubeletUnreachable")
    finally:
        node.start_kubelet()
    agent.wait_until_held({"default/one/main": [uuid]})
