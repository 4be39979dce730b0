"""The agent as its own process while the API server ends and comes back, tokens end, and its Node is made again."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from closeknit.agent.discovery.readings import dump
from harness.chart import wait_for_policies
from harness.install import install
from harness.kubectl import KubectlError, token_of, write_private
from harness.local_cluster import LocalCluster, is_running
from harness.machines import AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, agent_pod, agent_pod_name, node_object, readings

NODE = "survivor"
NOT_ITS_NODE = "exactly one owner, the Node its agent runs on"  # of the policy's words


class Agent:
    """A process, its machine in a file that a test may change, and its token in another."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self.machine = folder / "machine.json"
        self.token = folder / "token"
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            f"clusters: [{{name: c, cluster: {{server: '{cluster.server}', "
            f"certificate-authority: '{cluster.directory}/ca.crt'}}}}]\n"
            f"users: [{{name: u, user: {{tokenFile: '{self.token}'}}}}]\n"
            "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        )
        self.play("hgx-h200")

    def play(self, profile: str) -> None:
        staged = self.machine.with_suffix(".new")
        staged.write_bytes(dump.encode(readings(NODE, profile)))
        staged.rename(self.machine)

    def log_in(self) -> None:
        pod = agent_pod_name(NODE)
        made = self.cluster.service_account_kubeconfig(AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, pod=pod)
        staged = self.token.with_suffix(".new")
        write_private(staged, token_of(made)).rename(self.token)

    def start(self) -> int:
        options = ["--source", "recorded", "--dump", str(self.machine), "--node", NODE, "--interval", "0.2"]
        options += ["--kubeconfig", str(self.kubeconfig)]
        return self.cluster.start_program("survivor", sys.executable, "-m", "closeknit.agent.main", *options)

    def started_anew(self, pid: int) -> int:
        """After it was killed."""
        os.kill(pid, signal.SIGKILL)
        self.cluster.wait_for(lambda: not is_running(pid), "the agent to end")
        return self.start()

    def wait_for_gpus(self, count: int) -> dict[str, Any]:
        def shown() -> dict[str, Any] | None:
            try:
                found = self.cluster.get("nodetopology", NODE)
            except KubectlError:
                return None
            return found if len(found["spec"]["gpus"]) == count and "status" in found else None

        return self.cluster.wait_for(shown, f"{count} GPUs", 60)

    @property
    def log(self) -> str:
        return (self.cluster.directory / "logs" / "survivor.log").read_text()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One of its own: others need their API server."""
    with LocalCluster() as cluster:
        install(cluster)
        make_node(cluster)
        wait_for_policies(cluster, NODE)
        yield cluster


def make_node(cluster: LocalCluster) -> None:
    cluster.apply(node_object(NODE, "pcie-8", plugin=True))
    cluster.apply(agent_pod(NODE))


def is_gone(cluster: LocalCluster, kind: str, name: str, namespace: str = "") -> bool:
    try:
        cluster.get(kind, name, namespace)
    except KubectlError:
        return True
    return False


def test_what_an_agent_survives(cluster: LocalCluster, tmp_path: Path) -> None:
    agent = Agent(cluster, tmp_path)
    agent.log_in()
    pid = agent.start()
    first = agent.wait_for_gpus(8)

    # Its Node is made again under its name while its Pod lives on, and the old facts are collected. The token still
    # names the old Node: nothing is written by it, and all by the next one, which a kubelet that began again fetches.
    # While the API server is there: a garbage collector that missed the end of a Node keeps what it owned.
    cluster.kubectl("delete", "node", NODE)
    make_node(cluster)
    cluster.wait_for(
        lambda: is_gone(cluster, "nodetopology", NODE), "the garbage collector to take the NodeTopology", 90
    )
    agent.play("hgx-a100-4")  # or it would look for what it wrote a minute or two later
    cluster.wait_for(lambda: NOT_ITS_NODE in agent.log, "the agent to say why it writes nothing")
    agent.log_in()
    pid = agent.started_anew(pid)  # in a Pod it reads its token once a minute: tests/unit/kube/login/test_login.py
    second = agent.wait_for_gpus(4)
    uid = cluster.get("node", NODE)["metadata"]["uid"]
    assert [owner["uid"] for owner in second["metadata"]["ownerReferences"]] == [uid]
    assert second["metadata"]["uid"] != first["metadata"]["uid"]

    # The API server is away, and the machine changes meanwhile.
    with cluster.without_api_server():
        agent.play("hgx-h200")
        cluster.wait_for(lambda: "not published, trying again: no answer" in agent.log, "a complaint")
    assert agent.wait_for_gpus(8)["metadata"]["uid"] == second["metadata"]["uid"]

    # Its Pod is made again, too: the old token ends.
    cluster.kubectl("delete", "pod", agent_pod_name(NODE), f"--namespace={AGENT_NAMESPACE}", "--force", "--wait=false")
    cluster.wait_for(lambda: is_gone(cluster, "pod", agent_pod_name(NODE), AGENT_NAMESPACE), "the Pod to be gone")
    agent.play("hgx-a100-4")
    make_node(cluster)
    agent.log_in()  # as the kubelet does: a new token in the same file
    agent.wait_for_gpus(4)
    labels = cluster.get("node", NODE)["metadata"]["labels"]
    assert labels["closeknit.dev/gpu.count"] == "4"

    # Killed, and started again: nothing is written twice.
    before = cluster.get("nodetopology", NODE)["metadata"]["resourceVersion"]
    pid = agent.started_anew(pid)
    cluster.wait_for(lambda: "wrote nothing, all is up to date" in agent.log, "the next one to look")
    assert cluster.get("nodetopology", NODE)["metadata"]["resourceVersion"] == before
    assert "Traceback" not in agent.log
    os.kill(pid, signal.SIGTERM)
