"""The chart's admission policies on a real API server: agents write their own node only.

They log in with real tokens bound to Pods.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.admission import creation_refusal, policies_on_nodes, refusal
from harness.crd_cases import manifest
from harness.local_cluster import LocalCluster
from harness.machines import AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, agent_pod, agent_pod_name

OWN, OTHER = "fence-own", "fence-other"


@pytest.fixture(scope="module")
def cluster(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    with policies_on_nodes(local_cluster, OWN, OTHER) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def agent(cluster: LocalCluster) -> Path:
    """The kubeconfig of the agent on OWN: its token is bound to its Pod."""
    cluster.apply(agent_pod(OWN))
    return cluster.service_account_kubeconfig(AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, pod=agent_pod_name(OWN))


def owner(cluster: LocalCluster, name: str) -> dict[str, Any]:
    uid = cluster.get("node", name)["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}


def topology(name: str, *owners: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    body = manifest("NodeTopology", name, {"source": {"method": "Simulated"}, "gpus": []})
    body["metadata"] |= {"ownerReferences": list(owners)} | metadata
    return body


def test_an_agent_publishes_its_own_node(cluster: LocalCluster, agent: Path) -> None:
    labels = {"closeknit.dev/gpu.count": "8", "closeknit.dev/health": "healthy"}
    own_labels = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": OWN, "labels": labels}}
    apply = ("apply", "--server-side", "--field-manager=closeknit-agent", "--filename=-")
    assert refusal(cluster, *apply, body=own_labels, kubeconfig=agent) == ""
    del labels["closeknit.dev/health"]  # what the next apply leaves out is removed, what is others' stays
    assert refusal(cluster, *apply, body=own_labels, kubeconfig=agent) == ""
    assert cluster.get("node", OWN)["metadata"]["labels"] == {"example.com/rack": "r1", "closeknit.dev/gpu.count": "8"}

    body = topology(OWN, owner(cluster, OWN))
    assert refusal(cluster, *apply, body=body, kubeconfig=agent) == ""
    status = body | {"status": {"agentVersion": "0.1.0"}}
    assert refusal(cluster, *apply, "--subresource=status", body=status, kubeconfig=agent) == ""
    assert cluster.get("nodetopology", OWN)["status"]["agentVersion"] == "0.1.0"
    changed = body | {"spec": {"source": {"method": "NVML"}, "gpus": []}}
    assert refusal(cluster, *apply, body=changed, kubeconfig=agent) == ""


OTHER_NODE = "the agent may only write the Node its token is bound to"
FOREIGN_LABEL = "the agent may only change Node labels with the prefix closeknit.dev/"
MORE_THAN_LABELS = "the agent may change nothing of a Node but its labels"
OTHER_TOPOLOGY = "the agent may only write the NodeTopology named after its own node"
WRONG_OWNER = "a NodeTopology has no finalizers and exactly one owner, the Node its agent runs on"
TAINT = {"spec": {"taints": [{"key": "closeknit.dev/broken", "effect": "NoExecute"}]}}
OWN_LABEL = {"metadata": {"labels": {"closeknit.dev/health": "degraded"}}}


WRITES: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "a label of another node": (OTHER, {"metadata": {"labels": {"closeknit.dev/health": "degraded"}}}, OTHER_NODE),
    "a changed foreign label": (OWN, {"metadata": {"labels": {"example.com/rack": "r2"}}}, FOREIGN_LABEL),
    "a removed foreign label": (OWN, {"metadata": {"labels": {"example.com/rack": None}}}, FOREIGN_LABEL),
    "a new foreign label": (OWN, {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}, FOREIGN_LABEL),
    "a look-alike prefix": (OWN, {"metadata": {"labels": {"closeknit.dev.evil/x": "x"}}}, FOREIGN_LABEL),
    "all labels removed": (OWN, {"metadata": {"labels": None}}, FOREIGN_LABEL),
    "a taint beside an own label": (OWN, OWN_LABEL | TAINT, MORE_THAN_LABELS),
    "a cordon": (OWN, {"spec": {"unschedulable": True}}, MORE_THAN_LABELS),
    "an annotation": (OWN, {"metadata": {"annotations": {"closeknit.dev/x": "x"}}}, MORE_THAN_LABELS),
    "a finalizer": (OWN, {"metadata": {"finalizers": ["closeknit.dev/x"]}}, MORE_THAN_LABELS),
    "wiped field owners": (OWN, {"metadata": {"managedFields": [{}]}}, MORE_THAN_LABELS),
}


@pytest.mark.parametrize("write", WRITES)
def test_an_agent_writes_nothing_else_of_a_node(cluster: LocalCluster, agent: Path, write: str) -> None:
    node, patch, words = WRITES[write]
    merge = ("patch", "node", node, "--type=merge", f"--patch={json.dumps(patch)}")
    before = cluster.get("node", node)["metadata"]["resourceVersion"]
    assert refusal(cluster, *merge, kubeconfig=agent) == words
    assert cluster.get("node", node)["metadata"]["resourceVersion"] == before


def test_an_agent_writes_no_other_topology(cluster: LocalCluster, agent: Path) -> None:
    other = topology(OTHER, owner(cluster, OTHER))
    assert creation_refusal(cluster, other, login=agent) == OTHER_TOPOLOGY
    cluster.apply(other)
    apply = ("apply", "--server-side", "--subresource=status", "--filename=-")
    status = other | {"status": {"agentVersion": "9"}}
    assert refusal(cluster, *apply, body=status, kubeconfig=agent) == OTHER_TOPOLOGY


def test_a_topology_is_owned_by_its_node_alone(cluster: LocalCluster, agent: Path) -> None:
    own, other = owner(cluster, OWN), owner(cluster, OTHER)
    bodies = {
        "none": topology(OWN),
        "another node": topology(OWN, other),
        "two": topology(OWN, own, other),
        "an earlier node of this name": topology(OWN, own | {"uid": other["uid"]}),
        "a Pod": topology(OWN, own | {"kind": "Pod"}),
        "its node, and a finalizer": topology(OWN, own, finalizers=["closeknit.dev/x"]),
    }
    said = {whose: creation_refusal(cluster, body, login=agent) for whose, body in bodies.items()}
    assert said == dict.fromkeys(bodies, WRONG_OWNER)


def test_a_token_that_is_bound_to_no_pod_writes_nothing(cluster: LocalCluster) -> None:
    unbound = cluster.service_account_kubeconfig(AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT)
    label = ("label", "node", OWN, "closeknit.dev/health=degraded", "--overwrite")
    assert refusal(cluster, *label, kubeconfig=unbound) == OTHER_NODE
    assert creation_refusal(cluster, topology(OWN, owner(cluster, OWN)), login=unbound) == OTHER_TOPOLOGY


@pytest.mark.parametrize(
    "verb",
    [
        ("get", "nodes"),
        ("get", "pods", "--all-namespaces"),
        ("get", "secrets", f"--namespace={AGENT_NAMESPACE}"),
        ("delete", "node", OWN),
        ("delete", "nodetopology", OWN),
        ("patch", "node", OWN, "--subresource=status", "--patch={}"),
    ],
    ids=" ".join,
)
def test_an_agent_has_no_right_to(cluster: LocalCluster, agent: Path, verb: tuple[str, ...]) -> None:
    said = refusal(cluster, *verb, kubeconfig=agent)
    assert said.startswith("Error from server (Forbidden)")
    assert f'User "system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_SERVICE_ACCOUNT}" cannot' in said
