"""The chart's admission policies on a real API server: agents write their own node only, jobs lend nobody rights.

Agents log in with real tokens bound to Pods; users are impersonated, with the roles that the chart gives them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.chart import wait_for_policies
from harness.crd_cases import POD, manifest
from harness.install import install
from harness.kubectl import KubectlError
from harness.local_cluster import LocalCluster
from harness.machines import AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT, agent_pod, agent_pod_name

OWN, OTHER = "fence-own", "fence-other"
TEAM, LIFTED = "admission-team", "admission-lifted"  # namespaces
WRITER, EDITOR, VIEWER = "wilma", "edith", "victor"  # may write jobs but no Pods; built-in roles edit and view
LIFT = "; an administrator allows it by labelling the namespace closeknit.dev/unrestricted-templates=true"


@pytest.fixture(scope="module")
def cluster(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The installed chart, its policies in effect, two nodes."""
    install(local_cluster)
    foreign = {"example.com/rack": "r1"}
    for name in (OWN, OTHER):  # not by kubectl apply: a later server-side apply would take over what that owns
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": foreign}}
        local_cluster.kubectl("create", "--filename=-", stdin=json.dumps(node))
    wait_for_policies(local_cluster, OWN)
    yield local_cluster
    local_cluster.kubectl("delete", "node", OWN, OTHER)  # their NodeTopologies and Pods go with them


def refusal(cluster: LocalCluster, *arguments: str, body: object = None, kubeconfig: Path | None = None) -> str:
    """Why the API server refuses, without its preamble; empty where it accepts."""
    try:
        cluster.kubectl(*arguments, stdin=None if body is None else json.dumps(body), kubeconfig=kubeconfig)
    except KubectlError as error:
        return error.stderr.strip().rpartition("denied request: ")[2]
    return ""


# ---- agents


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
    create = ("create", "--filename=-", "--dry-run=server")
    other = topology(OTHER, owner(cluster, OTHER))
    assert refusal(cluster, *create, body=other, kubeconfig=agent) == OTHER_TOPOLOGY
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
    create = ("create", "--filename=-", "--dry-run=server")
    said = {whose: refusal(cluster, *create, body=body, kubeconfig=agent) for whose, body in bodies.items()}
    assert said == dict.fromkeys(bodies, WRONG_OWNER)


def test_a_token_that_is_bound_to_no_pod_writes_nothing(cluster: LocalCluster) -> None:
    unbound = cluster.service_account_kubeconfig(AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT)
    label = ("label", "node", OWN, "closeknit.dev/health=degraded", "--overwrite")
    assert refusal(cluster, *label, kubeconfig=unbound) == OTHER_NODE
    create = ("create", "--filename=-", "--dry-run=server")
    assert refusal(cluster, *create, body=topology(OWN, owner(cluster, OWN)), kubeconfig=unbound) == OTHER_TOPOLOGY


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


# ---- people


@pytest.fixture(scope="module")
def team(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Two namespaces, one with the lists lifted, in which three users have their roles."""
    for namespace, labels in ((TEAM, {}), (LIFTED, {"closeknit.dev/unrestricted-templates": "true"})):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
        rules = [{"apiGroups": ["closeknit.dev"], "resources": ["trainingjobs"], "verbs": ["*"]}]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rules}
        cluster.apply(role | {"metadata": {"name": "jobs-without-pods", "namespace": namespace}})
        bind = ("create", "rolebinding", f"--namespace={namespace}")
        cluster.kubectl(*bind, "writer", f"--user={WRITER}", "--role=jobs-without-pods")
        cluster.kubectl(*bind, "editor", f"--user={EDITOR}", "--clusterrole=edit")
        cluster.kubectl(*bind, "viewer", f"--user={VIEWER}", "--clusterrole=view")
    for user, verb in ((WRITER, "create"), (EDITOR, "create"), (VIEWER, "get")):
        can = ("auth", "can-i", verb, "trainingjobs.closeknit.dev", f"--namespace={LIFTED}", f"--as={user}")
        cluster.wait_for(lambda can=can: cluster.kubectl(*can, check=False) == "yes\n", f"{user} to have a role")  # type: ignore[misc]
    yield cluster
    cluster.kubectl("delete", "namespace", TEAM, LIFTED, "--wait=false")


def job(template: Any, name: str = "train", *, servers: Any = None) -> dict[str, Any]:
    """A job with this template, and where given with parameter servers of that one."""
    spec = {"gpus": 1, "template": template}
    return manifest(
        "TrainingJob", name, spec | ({"parameterServers": {"replicas": 1, "template": servers}} if servers else {})
    )


def create_refusal(
    cluster: LocalCluster, body: Mapping[str, Any], *, user: str = EDITOR, namespace: str = TEAM, store: bool = False
) -> str:
    options = () if store else ("--dry-run=server",)
    return refusal(cluster, "create", "--filename=-", f"--namespace={namespace}", f"--as={user}", *options, body=body)


NO_PODS = (
    "to create a TrainingJob you need the right to create Pods in its namespace, for that is what the job does for you"
)
NO_USE = (
    "the template names a service account that you have no right to use; leave serviceAccountName out, or ask for the "
    "verb use on that service account"
)
RESERVED_LABEL = (
    "the template has a label whose prefix is reserved (closeknit.dev, kueue.x-k8s.io, k8s.io, and kubernetes.io but "
    "for app.kubernetes.io); leave it out"
)
RESERVED_ANNOTATION = (
    "the template has an annotation whose prefix is reserved (closeknit.dev, kubernetes.io, k8s.io); leave it out"
)


def test_creating_jobs_needs_the_right_to_create_pods(team: LocalCluster) -> None:
    assert create_refusal(team, job({"spec": POD}), user=WRITER) == NO_PODS
    assert create_refusal(team, job({"spec": POD}), user=WRITER, namespace=LIFTED) == NO_PODS
    assert create_refusal(team, job({"spec": POD}), user=EDITOR) == ""


def test_the_built_in_roles_reach_jobs_but_never_their_status(team: LocalCluster) -> None:
    assert create_refusal(team, job({"spec": POD}, "roles"), store=True) == ""
    here = f"--namespace={TEAM}"
    assert refusal(team, "get", "trainingjob", "roles", here, f"--as={VIEWER}") == ""
    assert 'User "victor" cannot create resource "trainingjobs"' in create_refusal(
        team, job({"spec": POD}), user=VIEWER
    )
    status = job({"spec": POD}, "roles") | {"status": {"epoch": 9}}
    apply = ("apply", "--server-side", "--subresource=status", "--filename=-", here, f"--as={EDITOR}")
    assert 'User "edith" cannot patch resource "trainingjobs/status"' in refusal(team, *apply, body=status)
    assert refusal(team, "delete", "trainingjob", "roles", here, f"--as={EDITOR}") == ""


def test_an_update_asks_for_no_right_to_create_pods(team: LocalCluster) -> None:
    assert create_refusal(team, job({"spec": POD}, "suspended"), store=True) == ""
    patch = (
        "patch",
        "trainingjob",
        "suspended",
        f"--namespace={TEAM}",
        "--type=merge",
        '--patch={"spec":{"suspend":true}}',
    )
    assert refusal(team, *patch, f"--as={WRITER}") == ""
    assert team.get("trainingjob", "suspended", TEAM)["spec"]["suspend"] is True


@dataclass(frozen=True, slots=True)
class Template:
    """A template that is refused; `lifted`: not where an administrator lifts the lists."""

    what: str
    words: str
    pod: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    lifted: bool = True

    @property
    def body(self) -> dict[str, Any]:
        metadata = {"metadata": self.metadata} if self.metadata else {}
        return {**metadata, "spec": {"containers": [{"name": "trainer", "image": "a", **self.container}], **self.pod}}


def keys(*names: str) -> str:
    return f"not allowed in a TrainingJob template: {', '.join(names)}{LIFT}"


def container(what: str) -> str:
    return f"a container of the template {what}, which is not allowed{LIFT}"


def security(**context: Any) -> dict[str, Any]:
    return {"securityContext": context}


def reserved(of: str, key: str) -> Template:
    words = RESERVED_LABEL if of == "labels" else RESERVED_ANNOTATION
    return Template(f"{key} among its {of}", words, metadata={of: {key: "x"}}, lifted=False)


TEMPLATES = (
    Template("hostNetwork", keys("spec.hostNetwork"), pod={"hostNetwork": True}),
    Template("hostPID", keys("spec.hostPID"), pod={"hostPID": True}),
    Template("hostIPC", keys("spec.hostIPC"), pod={"hostIPC": True}),
    Template("nodeName", keys("spec.nodeName"), pod={"nodeName": OWN}),
    Template(
        "an affinity to Pods",
        keys("spec.affinity.podAntiAffinity"),
        pod={"affinity": {"nodeAffinity": {}, "podAntiAffinity": {}}},
    ),
    Template("a scheduler of its own", keys("spec.schedulerName"), pod={"schedulerName": "mine"}),
    Template("a priority of its own", keys("spec.priorityClassName"), pod={"priorityClassName": "high"}),
    Template("a field that nobody knows yet", keys("spec.novelty"), pod={"novelty": True}),
    Template(
        "hostPath",
        keys("volume root (hostPath)"),
        pod={"volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "root", "hostPath": {"path": "/"}}]},
    ),
    Template("a privileged container", container("is privileged"), container=security(privileged=True)),
    Template(
        "a privileged init container",
        container("is privileged"),
        pod={"initContainers": [{"name": "setup", **security(privileged=True)}]},
    ),
    Template(
        "allowPrivilegeEscalation",
        container("sets allowPrivilegeEscalation"),
        container=security(allowPrivilegeEscalation=True),
    ),
    Template(
        "SYS_ADMIN",
        container("adds a capability other than IPC_LOCK"),
        container=security(capabilities={"add": ["IPC_LOCK", "SYS_ADMIN"]}),
    ),
    Template("procMount", container("sets procMount"), container=security(procMount="Unmasked")),
    Template(
        "a port of the host",
        container("takes a port of the host"),
        container={"ports": [{"containerPort": 80, "hostPort": 80}]},
    ),
    Template("a foreign service account", NO_USE, pod={"serviceAccountName": "stronger"}, lifted=False),
    reserved("labels", "closeknit.dev/job"),
    reserved("labels", "sub.closeknit.dev/x"),
    reserved("labels", "kueue.x-k8s.io/queue-name"),
    reserved("labels", "node-role.kubernetes.io/control-plane"),
    reserved("annotations", "closeknit.dev/gpus"),
    reserved("annotations", "container.apparmor.security.beta.kubernetes.io/trainer"),
)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.what)
def test_a_template_may_not_have(team: LocalCluster, template: Template) -> None:
    assert create_refusal(team, job(template.body)) == template.words
    assert create_refusal(team, job({"spec": POD}, servers=template.body)) == template.words
    lifted = "" if template.lifted else template.words
    assert create_refusal(team, job(template.body), namespace=LIFTED) == lifted


def test_what_every_pod_has_is_allowed(team: LocalCluster) -> None:
    body = {
        "metadata": {
            "labels": {"example.com/team": "a", "app.kubernetes.io/name": "b"},
            "annotations": {"example.com/note": "b"},
        },
        "spec": {
            "containers": [
                {
                    "name": "trainer",
                    "image": "a",
                    "ports": [{"containerPort": 80}],
                    **security(capabilities={"add": ["IPC_LOCK"], "drop": ["ALL"]}, allowPrivilegeEscalation=False),
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "serviceAccountName": "default",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "nodeSelector": {"example.com/rack": "r1"},
            "affinity": {"nodeAffinity": {}},
            "restartPolicy": "Never",
        },
    }
    assert create_refusal(team, job(body)) == ""


def test_a_third_key_and_wrong_types_are_refused(team: LocalCluster) -> None:
    assert (
        create_refusal(team, job({"spec": POD, "podSpec": POD})) == "a template has metadata and spec, and nothing else"
    )
    for spec in ("trainer", [POD], 7):
        assert create_refusal(team, job({"spec": spec})) == "the spec of a template must be an object, a PodSpec"
    assert "containers" in create_refusal(team, job({"spec": {"containers": "trainer"}}))
    assert create_refusal(team, job({"spec": {"containers": [{"name": "trainer", "securityContext": [1]}]}})) != ""


def test_the_old_name_of_a_service_account_is_judged_like_the_new_one(team: LocalCluster) -> None:
    """A Pod's `serviceAccount` still works, and the label that lifts the lists would let it through."""
    old = {"spec": POD | {"serviceAccount": "stronger"}}
    assert create_refusal(team, job(old)) == NO_USE
    assert create_refusal(team, job(old), namespace=LIFTED) == NO_USE


def test_a_service_account_may_be_used_by_whom_it_was_granted_to(team: LocalCluster) -> None:
    body = {"spec": POD | {"serviceAccountName": "granted"}}
    assert create_refusal(team, job(body)) == NO_USE
    here = f"--namespace={TEAM}"
    rule = {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["granted"], "verbs": ["use"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [rule]}
    team.apply(role | {"metadata": {"name": "use-granted", "namespace": TEAM}})
    team.kubectl("create", "rolebinding", "use-granted", here, "--role=use-granted", f"--user={EDITOR}")
    team.wait_for(lambda: create_refusal(team, job(body)) == "", "the grant to be in effect")
    assert create_refusal(team, job({"spec": POD | {"serviceAccountName": "other"}})) == NO_USE


def test_a_template_of_great_size_is_judged_within_the_cost_budget(team: LocalCluster) -> None:
    ports = [{"containerPort": number} for number in range(1, 51)]
    environment = [{"name": f"NAME_{number}", "value": "x" * 16} for number in range(500)]
    containers = [{"name": f"c{number}", "image": "a", "ports": ports, "env": environment} for number in range(20)]
    assert create_refusal(team, job({"spec": {"containers": containers}})) == ""
    containers[-1] = containers[-1] | security(privileged=True)
    assert create_refusal(team, job({"spec": {"containers": containers}})) == container("is privileged")
