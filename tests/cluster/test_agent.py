"""The agent, as its own process with a token bound to its Pod, against a real API server."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeknit.agent.discovery.readings import dump
from closeknit.agent.discovery.simulated.profile import Faults, LinkFault
from harness.chart import wait_for_policies
from harness.install import install
from harness.local_cluster import LocalCluster, is_running
from harness.machines import AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, agent_pod, agent_pod_name, node_object, readings

PREFIX = "closeknit.dev/"


@dataclass
class Bed:
    """A control plane in which agents may run."""

    cluster: LocalCluster
    started: list[int] = field(default_factory=list)

    def node(self, name: str, profile: str) -> Path:
        """Makes a node, and gives the kubeconfig of its agent."""
        self.cluster.apply(node_object(name, profile, plugin=True))
        self.cluster.apply(agent_pod(name))
        return self.cluster.service_account_kubeconfig(AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, pod=agent_pod_name(name))

    def start(self, name: str, *options: str) -> int:
        self.started.append(self.cluster.start_program(name, sys.executable, "-m", "closeknit.agent.main", *options))
        return self.started[-1]

    def end(self) -> None:
        """Ends what was started: an agent that looks five times a second costs whatever runs after it."""
        for pid in filter(is_running, self.started):
            os.kill(pid, signal.SIGTERM)
        self.cluster.wait_for(lambda: not any(map(is_running, self.started)), "the agents to end")

    def start_and_wait(self, name: str, *options: str, log: str) -> int:
        """Starts an agent and waits until its log has these words."""
        pid = self.start(name, *options)
        file = self.cluster.directory / "logs" / f"{name}.log"
        self.cluster.wait_for(lambda: file.exists() and log in file.read_text(), f"{log!r} in the log of {name}")
        return pid

    def labels(self, node: str) -> dict[str, str]:
        labels: dict[str, str] = self.cluster.get("node", node)["metadata"].get("labels", {})
        return {key.removeprefix(PREFIX): value for key, value in labels.items() if key.startswith(PREFIX)}

    def topology(self, node: str) -> dict[str, Any] | None:
        found = self.cluster.get("nodetopologies")["items"]
        return next((each for each in found if each["metadata"]["name"] == node), None)

    def wait_for_heartbeat(self, node: str) -> dict[str, Any]:
        def beating() -> dict[str, Any] | None:
            topology = self.topology(node)
            return topology if topology and topology.get("status", {}).get("heartbeatTime") else None

        return self.cluster.wait_for(beating, f"the NodeTopology of {node} with a heartbeat")

    def writes(self, node: str) -> list[tuple[str, str]]:
        """Resource and subresource of all that any agent wrote about this node."""
        return [
            (event.resource, event.subresource)
            for event in self.cluster.audit_events()
            if event.user == f"system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_SERVICE_ACCOUNT}" and event.name == node
        ]


@pytest.fixture(scope="module")
def installed(local_cluster: LocalCluster) -> LocalCluster:
    """The installed chart, with its policies in effect: the agents below have its rights and no others."""
    install(local_cluster)
    local_cluster.apply(node_object("agent-probe", "pcie-8", plugin=False))
    wait_for_policies(local_cluster, "agent-probe")
    return local_cluster


@pytest.fixture
def bed(installed: LocalCluster) -> Iterator[Bed]:
    bed = Bed(installed)
    yield bed
    bed.end()


def test_publishes_labels_and_topology_and_writes_nothing_more_when_started_again(bed: Bed) -> None:
    kubeconfig = bed.node("agent-quiet", "dgx1-v100")
    options = ["--source", "simulated", "--profile", "dgx1-v100", "--node", "agent-quiet", "--interval", "0.2"]
    options += ["--kubeconfig", str(kubeconfig)]
    bed.start_and_wait("agent-quiet-1", *options, log="wrote NodeTopology, status, labels")

    topology = bed.topology("agent-quiet")
    assert topology is not None
    node = bed.cluster.get("node", "agent-quiet")
    assert topology["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "agent-quiet", "uid": node["metadata"]["uid"]}
    ]
    assert topology["spec"]["gpus"][3]["uuid"] == readings("agent-quiet", "dgx1-v100").gpus[3].uuid
    assert {"a": 0, "b": 3, "links": 2} in topology["spec"]["nvlink"]["pairs"]
    assert [condition["type"] for condition in topology["status"]["conditions"] if condition["status"] == "True"] == [
        "Ready",
        "GPUDirectRDMAReady",
    ]
    labels = bed.labels("agent-quiet")
    assert labels["nvlink.kind"] == "mesh"
    assert labels["health"] == "healthy"

    bed.start_and_wait("agent-quiet-2", *options, log="wrote nothing, all is up to date")
    assert sorted(bed.writes("agent-quiet")) == [
        ("nodes", ""),
        ("nodetopologies", ""),
        ("nodetopologies", "status"),
    ]


def test_a_topology_deleted_by_hand_is_written_again(bed: Bed) -> None:
    """By the next agent here; one that runs looks once in one to two minutes (test_agent_at_rest.py)."""
    kubeconfig = bed.node("agent-deleted", "pcie-8")
    options = ["--source", "simulated", "--profile", "pcie-8", "--node", "agent-deleted", "--interval", "0.2"]
    options += ["--kubeconfig", str(kubeconfig)]
    pid = bed.start_and_wait("agent-deleted-1", *options, log="wrote NodeTopology")
    before = bed.wait_for_heartbeat("agent-deleted")
    os.kill(pid, signal.SIGTERM)
    bed.cluster.kubectl("delete", "nodetopology", "agent-deleted")
    bed.start_and_wait("agent-deleted-2", *options, log="wrote NodeTopology, status")
    after = bed.wait_for_heartbeat("agent-deleted")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"] == before["spec"]


def test_a_label_goes_with_its_fact_and_others_stay(bed: Bed, tmp_path: Path) -> None:
    kubeconfig = bed.node("agent-change", "hgx-a100-8")
    bed.cluster.kubectl("label", "node", "agent-change", "team=vision", "closeknit.dev/reserved=by-hand")
    machine = readings("agent-change", "hgx-a100-8")
    file = tmp_path / "machine.json"
    file.write_bytes(dump.encode(machine))
    options = ["--source", "recorded", "--dump", str(file), "--node", "agent-change", "--interval", "0.2"]
    bed.start_and_wait("agent-change", *options, "--kubeconfig", str(kubeconfig), log="wrote NodeTopology")
    bed.cluster.wait_for(lambda: bed.labels("agent-change").get("rdma.nics") == "8", "the label of eight NICs")

    file.write_bytes(dump.encode(msgspec.structs.replace(machine, rdma=())))
    bed.cluster.wait_for(lambda: bed.labels("agent-change")["rdma.transport"] == "none", "the label of no NICs")
    labels = bed.labels("agent-change")
    assert "rdma.nics" not in labels
    assert labels["reserved"] == "by-hand"
    assert bed.cluster.get("node", "agent-change")["metadata"]["labels"]["team"] == "vision"

    broken = readings("agent-change", "hgx-a100-8", Faults(dead_gpus=(5,), links_down=(LinkFault(1, 4),)))
    file.write_bytes(dump.encode(broken))
    bed.cluster.wait_for(lambda: bed.labels("agent-change")["health"] == "degraded", "the label of bad health")
    topology = bed.topology("agent-change")
    assert topology is not None
    assert topology["status"]["gpus"] == [{"index": 5, "state": "Unhealthy", "reasons": ["GPULost"]}]
    assert topology["status"]["linksDown"] == [{"gpu": 1, "link": 4}]
    assert bed.labels("agent-change")["nvlink.islands"] == "7"


@pytest.mark.skipif(any(Path("/proc/driver/nvidia").glob("version")), reason="there is a driver here")
def test_a_driver_that_is_gone_is_published_and_costs_no_fact(bed: Bed, tmp_path: Path) -> None:
    kubeconfig = bed.node("agent-blind", "hgx-a100-4")
    options = ["--node", "agent-blind", "--kubeconfig", str(kubeconfig), "--interval", "0.2"]
    simulated = ["--source", "simulated", "--profile", "hgx-a100-4", *options]
    before = bed.start_and_wait("agent-blind", *simulated, log="wrote NodeTopology, status, labels")
    topology, labels = bed.topology("agent-blind"), bed.labels("agent-blind")
    assert topology is not None
    os.kill(before, signal.SIGTERM)

    pid = bed.start_and_wait("agent-blind-2", "--root", str(tmp_path), *options, log="wrote status, labels")
    blind = bed.topology("agent-blind")
    assert blind is not None
    assert (blind["spec"], blind["metadata"]["generation"]) == (topology["spec"], topology["metadata"]["generation"])
    ready = blind["status"]["conditions"][0]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "DriverNotFound")
    assert bed.labels("agent-blind") == labels | {"health": "degraded"}
    assert is_running(pid)


def test_one_process_is_the_agents_of_a_fleet_each_with_its_own_token(bed: Bed, tmp_path: Path) -> None:
    profiles = {"agent-fleet-1": "hgx-h200", "agent-fleet-2": "dgx1-p100"}
    fleet = [{"name": n, "profile": p, "kubeconfig": str(bed.node(n, p))} for n, p in profiles.items()]
    file = tmp_path / "fleet.yaml"
    file.write_text(json.dumps({"nodes": fleet}))
    bed.start("agent-fleet", "--simulate", str(file))
    for node in profiles:
        bed.wait_for_heartbeat(node)
        bed.cluster.wait_for(lambda node=node: bed.labels(node), "labels")  # type: ignore[misc]
    assert bed.labels("agent-fleet-1")["gpu.product"] == "NVIDIA-H200"
    assert bed.labels("agent-fleet-2")["gpu.product"] == "Tesla-P100-SXM2-16GB"


@pytest.mark.alone
def test_ends_at_once_when_it_is_told_to(bed: Bed) -> None:
    kubeconfig = bed.node("agent-end", "pcie-8")
    options = ["--source", "simulated", "--profile", "pcie-8", "--node", "agent-end", "--kubeconfig", str(kubeconfig)]
    began = time.monotonic()
    pid = bed.start_and_wait("agent-end", *options, log="wrote NodeTopology")
    told = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    bed.cluster.wait_for(lambda: not is_running(pid), "the agent to end")
    # It waits for nothing. On a busy machine even that takes its time, though less than the start, 1 s, did.
    assert time.monotonic() - told < max(1.0, told - began)
    assert bed.topology("agent-end") is not None  # its facts stay
