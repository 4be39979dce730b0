"""Installs closeknit's chart into a LocalCluster, and runs its programs as processes of this machine.

What is real: the chart's CRDs, RBAC, admission policies and ServiceAccounts, and the programs, which log in as those
ServiceAccounts. Left out are only the Deployment and the DaemonSet, for kwok's nodes run no containers.
"""

import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from harness.chart import NAMESPACE, render
from harness.local_cluster import LocalCluster
from harness.machines import AGENT_SERVICE_ACCOUNT, agent_pod, agent_pod_name

OPERATOR = "closeknit-operator"
_WORKLOADS = ("Deployment", "DaemonSet")


def install(cluster: LocalCluster, *options: str) -> None:
    """Applies what the chart renders with these options, CRDs first, and waits until they are served."""
    objects = render(cluster.binaries.helm, *options)
    crds = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    others = [each for each in objects if each not in crds and each["kind"] not in _WORKLOADS]
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *crds)
    names = [each["metadata"]["name"] for each in crds]
    cluster.wait_for(lambda: all(_is_established(cluster, name) for name in names), "the CRDs to be established")
    cluster.apply(*others)


def _is_established(cluster: LocalCluster, name: str) -> bool:
    conditions = cluster.get("crd", name).get("status", {}).get("conditions") or []  # null of one that is new
    return {"type": "Established", "status": "True"} in [
        {key: each[key] for key in ("type", "status")} for each in conditions
    ]


# Below those that the kernel gives to whoever connects (from 32768), one of which may be taken between two starts of a
# program, and apart from those that our own programs have by default. Each process begins elsewhere.
PORTS = range(20000, 29000)
_ports = count(os.getpid() * 131)


def free_port() -> int:
    """A port that nobody listens on, and that this process has not been given for long."""
    while True:
        port = PORTS[next(_ports) % len(PORTS)]
        with socket.socket() as found, suppress(OSError):
            found.bind(("", port))
            return port


def start_operator(cluster: LocalCluster, port: int, *options: str, timeout_s: float = 30) -> int:
    """Process id of an operator that is ready within so long; its metrics and health are served on 127.0.0.1:port. One
    that is not does not stay: it would decide beside the next."""
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
    pid = cluster.start_program(
        "operator",
        str(Path(sys.executable).parent / "closeknit-operator"),
        f"--kubeconfig={kubeconfig}",
        f"--metrics-address=127.0.0.1:{port}",
        *options,
    )
    try:
        cluster.wait_for(lambda: is_ready(port), "the operator to be ready", timeout_s)
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        raise
    return pid


def start_agents(cluster: LocalCluster, fleet: Sequence[dict[str, Any]]) -> int:
    """Process id of one process that plays these nodes' agents; each is {name, profile or dump}, as in a fleet file.

    Each agent logs in with a token of the chart's ServiceAccount that is bound to a Pod on its own node.
    """
    cluster.apply(*(agent_pod(node["name"]) for node in fleet))
    nodes = [{**node, "kubeconfig": str(_agent_kubeconfig(cluster, node["name"]))} for node in fleet]
    path = cluster.directory / "fleet.yaml"
    path.write_text(json.dumps({"nodes": nodes}))
    return cluster.start_program("agents", str(Path(sys.executable).parent / "closeknit-agent"), f"--simulate={path}")


def _agent_kubeconfig(cluster: LocalCluster, node: str) -> Path:
    return cluster.service_account_kubeconfig(NAMESPACE, AGENT_SERVICE_ACCOUNT, pod=agent_pod_name(node))


def is_ready(port: int) -> bool:
    """Whether the operator that serves on this port of 127.0.0.1 is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
