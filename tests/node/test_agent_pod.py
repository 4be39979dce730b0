"""The chart's agent as a Pod of a real node: who may ask the kubelet, and that the agent does."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.machines import AGENT_NAMESPACE
from harness.node.stand import Stand
from node.pods import START_TIMEOUT_S, allocations_known, delete, environment, held, pod, wait_for_phase

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("no_pods_are_left")]

NODE = "node-1"


@pytest.fixture(scope="module", autouse=True)
def gpus(stand: Stand) -> Iterator[None]:
    """Of one of the nodes."""
    node = stand.nodes[0]
    node.offer_gpus(stand.machine(node))
    yield
    node.withdraw_gpus()
    stand.cluster.kubectl("delete", "daemonset", "--all", f"--namespace={AGENT_NAMESPACE}", "--wait")


def viewer_rights() -> list[dict[str, Any]]:
    """What docs/topology.md says that whoever looks needs, and no more."""
    api, subject = "rbac.authorization.k8s.io/v1", {"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}
    everywhere = [
        {"apiGroups": ["closeknit.dev"], "resources": ["nodetopologies"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    there = [
        {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]},
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "resourceNames": ["closeknit-live"],
            "verbs": ["create"],
        },
    ]
    found: list[dict[str, Any]] = []
    for kind, rules, where in (("ClusterRole", everywhere, {}), ("Role", there, {"namespace": AGENT_NAMESPACE})):
        metadata = {"name": "viewer", **where}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "viewer"}
        found.append({"apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules})
        binding = {"apiVersion": api, "kind": f"{kind}Binding", "metadata": metadata, "roleRef": role}
        found.append(binding | {"subjects": [subject]})
    return found


def look(kubeconfig: Path) -> "subprocess.CompletedProcess[str]":
    """`closeknit topology NODE --live`, once, since a program reads it."""
    closeknit = str(Path(sys.executable).with_name("closeknit"))
    program = [closeknit, "topology", NODE, "--live", f"--kubeconfig={kubeconfig}"]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)


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


def test_a_person_sees_live_values_through_the_api_server(stand: Stand) -> None:
    """As docs/topology.md has it: the API server takes the caller's login off, the agent asks it about the token."""
    cluster = stand.cluster
    for gone in (("viewer", "--namespace=default"), ("closeknit-live", f"--namespace={AGENT_NAMESPACE}")):
        cluster.kubectl("delete", "serviceaccount", *gone, "--ignore-not-found")  # of a first try
    cluster.kubectl("delete", "clusterrolebinding", "closeknit-live", "--ignore-not-found")
    cluster.kubectl("create", "serviceaccount", "viewer", "--namespace=default")
    cluster.apply(*viewer_rights())
    viewer = cluster.service_account_kubeconfig("default", "viewer")
    refused = look(viewer)
    assert refused.returncode and "kubectl create serviceaccount closeknit-live" in refused.stderr

    cluster.kubectl("create", "serviceaccount", "closeknit-live", f"--namespace={AGENT_NAMESPACE}")
    without_right = look(viewer)
    assert without_right.returncode and "answered 403" in without_right.stderr, without_right
    account = f"--serviceaccount={AGENT_NAMESPACE}:closeknit-live"
    role = "--clusterrole=closeknit-metrics-reader"
    cluster.kubectl("create", "clusterrolebinding", "closeknit-live", role, account)
    shown = cluster.wait_for(lambda: look(viewer).stdout, "the agent to show its values")  # it forgets a no
    assert shown.splitlines()[1].split()[-5:] == ["BUSY", "MEMORY", "HEAT", "POWER", "STATE"]


def test_whoever_is_not_root_may_not_ask(stand: Stand) -> None:
    """Why the chart makes the container root where it asks; a group of root's is not enough."""
    changed = agent(stand)
    spec = changed["spec"]["template"]["spec"]
    spec["containers"][0]["securityContext"] |= {"runAsNonRoot": True, "runAsUser": 1000}
    spec["securityContext"]["supplementalGroups"] = [0]
    stand.cluster.apply(changed)

    def is_refused() -> bool:
        known = allocations_known(stand.cluster, NODE)
        return known is not None and known[:2] == ("False", "KubeletUnreachable") and "Permission denied" in known[2]

    stand.cluster.wait_for(is_refused, f"the agent of {NODE} to be refused", START_TIMEOUT_S)
    assert held(stand.cluster, NODE) is None
