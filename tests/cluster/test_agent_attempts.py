"""An agent's token in somebody else's hands, against the chart's fence on a real API server: nothing else moves."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from harness.admission import policies_on_nodes
from harness.agent_attempts import NODES, PATCHES, TOPOLOGIES, Attempt, Caller, on_node, on_topology
from harness.crd_cases import manifest
from harness.kubectl import token_of
from harness.local_cluster import LocalCluster
from harness.machines import AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, agent_pod, agent_pod_name

OWN, OTHER = "attempts-own", "attempts-other"
MISSING = "attempts-missing"
ACCOUNT = f"system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_SERVICE_ACCOUNT}"


@pytest.fixture(scope="module")
def cluster(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    with policies_on_nodes(local_cluster, OWN, OTHER) as cluster:
        for node in (OWN, OTHER):
            cluster.apply(agent_pod(node))
            body = topology(cluster, node)
            cluster.kubectl("create", "--filename=-", stdin=json.dumps(body))
            status = json.dumps({"status": {"agentVersion": "0.1.0"}})
            cluster.kubectl("patch", "nodetopology", node, "--subresource=status", "--type=merge", f"--patch={status}")
            # Somebody who applies: whose ownership an agent might take.
            rack = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"example.com/row": "1"}}}
            cluster.kubectl("apply", "--server-side", "--field-manager=racks", "--filename=-", stdin=json.dumps(rack))
        yield cluster


def topology(cluster: LocalCluster, node: str, **metadata: Any) -> dict[str, Any]:
    uid = cluster.get("node", node)["metadata"]["uid"]
    body = manifest("NodeTopology", node, {"source": {"method": "Simulated"}, "gpus": []})
    body["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]
    body["metadata"] |= metadata
    return body


def caller(cluster: LocalCluster, pod: str | None) -> Caller:
    kubeconfig = cluster.service_account_kubeconfig(AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, pod=pod)
    return Caller(cluster.server, token_of(kubeconfig), str(cluster.directory / "ca.crt"))


@pytest.fixture(scope="module")
def agent(cluster: LocalCluster) -> Iterator[Caller]:
    with closing(caller(cluster, agent_pod_name(OWN))) as agent:
        yield agent


def everything(cluster: LocalCluster) -> dict[str, Any]:
    """What nobody may have touched: with who owns which field."""
    found = {}
    for kind in ("nodes", "nodetopologies"):
        text = cluster.kubectl("get", kind, "--output=json", "--show-managed-fields")
        for item in json.loads(text)["items"]:
            found[f"{kind}/{item['metadata']['name']}"] = item
    return found


def node_attempts() -> Iterator[Attempt]:
    add = {"op": "add"}
    label = {"metadata": {"labels": {"closeknit.dev/health": "degraded"}}}
    yield from on_node(OTHER, "a label of ours on another node", label, [
        {**add, "path": "/metadata/labels/closeknit.dev~1health", "value": "degraded"}
    ])  # fmt: skip
    changes: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
        "a foreign label": (
            {"metadata": {"labels": {"example.com/rack": "r2"}}},
            [{**add, "path": "/metadata/labels/example.com~1rack", "value": "r2"}],
        ),
        "a role": (
            {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
            [{**add, "path": "/metadata/labels/node-role.kubernetes.io~1control-plane", "value": ""}],
        ),
        "an annotation": (
            {"metadata": {"annotations": {"closeknit.dev/x": "x"}}},
            [{**add, "path": "/metadata/annotations", "value": {"closeknit.dev/x": "x"}}],
        ),
        "a taint": (
            {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
            [{**add, "path": "/spec/taints", "value": [{"key": "x", "effect": "NoExecute"}]}],
        ),
        "a cordon": ({"spec": {"unschedulable": True}}, [{**add, "path": "/spec/unschedulable", "value": True}]),
        "a provider": ({"spec": {"providerID": "x"}}, [{**add, "path": "/spec/providerID", "value": "x"}]),
        "a finalizer": (
            {"metadata": {"finalizers": ["closeknit.dev/x"]}},
            [{**add, "path": "/metadata/finalizers", "value": ["closeknit.dev/x"]}],
        ),
        "an owner": (
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}},
            [{**add, "path": "/metadata/ownerReferences", "value": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}],
        ),
    }  # fmt: skip
    for what, (merge, operations) in changes.items():
        yield from on_node(OWN, what, merge, operations)
    forged = {"manager": "closeknit-agent", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    grabs: dict[str, list[dict[str, Any]]] = {
        "wiped": [{}],
        "taken": [{**forged, "fieldsV1": {"f:metadata": {"f:labels": {"f:example.com/row": {}}}}}],
        "given": [
            {**forged, "manager": "kubelet", "fieldsV1": {"f:metadata": {"f:labels": {"f:example.com/row": {}}}}}
        ],
    }
    for what, fields in grabs.items():
        for kind in ("merge", "strategic"):
            body = {"metadata": {"managedFields": fields}}
            yield Attempt(f"owners {what}, {kind}", "PATCH", f"{NODES}/{OWN}", body, PATCHES[kind])
        operations = [{"op": "replace", "path": "/metadata/managedFields", "value": fields}]
        yield Attempt(f"owners {what}, json", "PATCH", f"{NODES}/{OWN}", operations, PATCHES["json"])


def other_node_attempts(node: dict[str, Any]) -> Iterator[Attempt]:
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}], "capacity": {"nvidia.com/gpu": "99"}}}
    for name in (OWN, OTHER):
        for subresource in ("/status", "/proxy", "/scale"):
            for kind in ("merge", "strategic", "apply"):
                body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **unready}
                query = "?fieldManager=closeknit-agent&force=true" if kind == "apply" else ""
                path = f"{NODES}/{name}{subresource}{query}"
                yield Attempt(f"{subresource} of {name}, {kind}", "PATCH", path, body, PATCHES[kind])
        yield Attempt(f"put {name}", "PUT", f"{NODES}/{name}", node)
        yield Attempt(f"put the status of {name}", "PUT", f"{NODES}/{name}/status", node)
        yield Attempt(f"delete {name}", "DELETE", f"{NODES}/{name}")
    yield Attempt("delete all nodes", "DELETE", NODES)
    fresh = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": MISSING}}
    yield Attempt("make a node", "POST", NODES, fresh)
    path = f"{NODES}/{MISSING}?fieldManager=closeknit-agent&force=true"
    yield Attempt("apply a node that is not there", "PATCH", path, fresh, PATCHES["apply"])


def topology_attempts(own: dict[str, Any], other: dict[str, Any]) -> Iterator[Attempt]:
    yield from on_topology(OTHER, "another's spec", {"spec": {"gpus": [], "source": {"method": "NVML"}}})
    yield from on_topology(OTHER, "another's status", {"status": {"agentVersion": "9"}}, "/status")
    yield from on_topology(OTHER, "another's owners", {"metadata": {"ownerReferences": own["ownerReferences"]}})
    yield from on_topology(OWN, "another owner", {"metadata": {"ownerReferences": other["ownerReferences"]}})
    yield from on_topology(OWN, "a finalizer", {"metadata": {"finalizers": ["closeknit.dev/x"]}})
    for kind in ("merge", "json"):
        body: Any = {"metadata": {"ownerReferences": None}}
        if kind == "json":
            body = [{"op": "remove", "path": "/metadata/ownerReferences"}]
        yield Attempt(f"no owner, {kind}", "PATCH", f"{TOPOLOGIES}/{OWN}", body, PATCHES[kind])
        yield Attempt(f"no owner by the status, {kind}", "PATCH", f"{TOPOLOGIES}/{OTHER}/status", body, PATCHES[kind])
    for name in (OWN, OTHER):
        yield Attempt(f"delete {name}'s", "DELETE", f"{TOPOLOGIES}/{name}")
        yield Attempt(f"scale {name}'s", "PATCH", f"{TOPOLOGIES}/{name}/scale", {"spec": {}}, PATCHES["merge"])
    yield Attempt("delete all", "DELETE", TOPOLOGIES)
    made = manifest("NodeTopology", MISSING, {"source": {"method": "Simulated"}, "gpus": []})
    made["metadata"]["ownerReferences"] = own["ownerReferences"]
    yield Attempt("make one of no node", "POST", TOPOLOGIES, made)
    by_chance = {**made, "metadata": {"generateName": OWN, "ownerReferences": own["ownerReferences"]}}
    yield Attempt("make one under a chosen prefix", "POST", TOPOLOGIES, by_chance)
    path = f"{TOPOLOGIES}/{MISSING}?fieldManager=closeknit-agent&force=true"
    yield Attempt("apply one of no node", "PATCH", path, made, PATCHES["apply"])


def detours(cluster: LocalCluster) -> Iterator[Attempt]:
    label = {"metadata": {"labels": {"closeknit.dev/health": "degraded"}}}
    named = {"Impersonate-User": ACCOUNT, "Impersonate-Extra-authentication.kubernetes.io%2fnode-name": OTHER}
    yield Attempt("as another agent", "PATCH", f"{NODES}/{OTHER}", label, PATCHES["merge"], named)
    admin = {"Impersonate-User": "root", "Impersonate-Group": "system:masters"}
    yield Attempt("as an admin", "PATCH", f"{NODES}/{OTHER}", label, PATCHES["merge"], admin)
    account = f"/api/v1/namespaces/{AGENT_NAMESPACE}/serviceaccounts/{AGENT_SERVICE_ACCOUNT}/token"
    pod = cluster.get("pod", agent_pod_name(OTHER), AGENT_NAMESPACE)["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
    yield Attempt("another agent's token", "POST", account, request)
    pods = f"/api/v1/namespaces/{AGENT_NAMESPACE}/pods"
    yield Attempt("another agent's Pod", "POST", pods, agent_pod(OTHER))
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    yield Attempt("no fence", "DELETE", f"{policies}/closeknit-agent-node")


def test_nothing_that_is_not_its_own_moves(cluster: LocalCluster, agent: Caller) -> None:
    before = everything(cluster)
    own, other = before[f"nodetopologies/{OWN}"], before[f"nodetopologies/{OTHER}"]
    attempts = [
        *node_attempts(),
        *other_node_attempts(before[f"nodes/{OWN}"]),
        *topology_attempts(own["metadata"], other["metadata"]),
        *detours(cluster),
    ]
    assert len(attempts) > 150
    answers = {each.name: agent.send(each) for each in attempts}
    assert {name: said for name, said in answers.items() if said[0] < 400} == {}
    assert everything(cluster) == before
    # Refused for what they want, and not for how they say it; of the rest there is nothing, or it is no object.
    codes = Counter(code for code, _ in answers.values())
    assert codes[403] > 0.9 * len(attempts), {name: said for name, said in answers.items() if said[0] != 403}


def test_what_is_its_own_it_may_write_by_any_patch(cluster: LocalCluster, agent: Caller) -> None:
    label = {"metadata": {"labels": {"closeknit.dev/health": "degraded"}}}
    operations = [{"op": "add", "path": "/metadata/labels/closeknit.dev~1health", "value": "healthy"}]
    refused = {each.name: said for each in on_node(OWN, "", label, operations) if (said := agent.send(each))[0] >= 400}
    assert refused == {}
    # Also where an admin has set one of ours by hand: the apply takes it over, and the admin's entry goes.
    cluster.kubectl("label", "node", OWN, "closeknit.dev/health=by-hand", "--overwrite", "--field-manager=admin")
    applied = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": OWN, "labels": {"closeknit.dev/health": "h"}}}
    path = f"{NODES}/{OWN}?fieldManager=closeknit-agent&force=true"
    assert agent.send(Attempt("", "PATCH", path, applied, PATCHES["apply"]))[0] == 200
    assert cluster.get("node", OWN)["metadata"]["labels"]["example.com/row"] == "1"


def test_tokens_that_name_no_node_or_another_write_nothing(cluster: LocalCluster) -> None:
    homeless = agent_pod(OWN)
    homeless["metadata"]["name"] = "attempts-homeless"
    del homeless["spec"]["nodeName"]
    homeless["spec"]["schedulerName"] = "nobody"
    cluster.apply(homeless)
    pods = {"unbound": None, "of a Pod on no node": "attempts-homeless", "of another": agent_pod_name(OTHER)}
    before = everything(cluster)
    label = {"metadata": {"labels": {"closeknit.dev/health": "stolen"}}}
    for whose, pod in pods.items():
        attempts = [
            *on_node(OWN, whose, label, [{"op": "add", "path": "/metadata/labels/closeknit.dev~1health", "value": ""}]),
            *on_topology(OWN, f"{whose}: spec", {"spec": {"gpus": [], "source": {"method": "NVML"}}}),
            *on_topology(OWN, f"{whose}: status", {"status": {"agentVersion": "9"}}, "/status"),
        ]
        with closing(caller(cluster, pod)) as thief:
            for attempt in attempts:
                assert thief.send(attempt)[0] == 403, attempt.name
    assert everything(cluster) == before
    cluster.kubectl("delete", "pod", "attempts-homeless", f"--namespace={AGENT_NAMESPACE}", "--wait=false")
