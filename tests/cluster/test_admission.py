"""The chart's admission policies on a real API server: jobs lend nobody rights.

Users are impersonated, with the roles that the chart gives them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.admission import creation_refusal, may, policies_on_nodes, refusal
from harness.api_writer import Login
from harness.crd_cases import POD, manifest
from harness.local_cluster import LocalCluster

NODE = "admission-node"
TEAM, LIFTED = "admission-team", "admission-lifted"  # namespaces
WRITER, EDITOR, VIEWER = "wilma", "edith", "victor"  # may write jobs but no Pods; built-in roles edit and view
LIFT = "; an administrator allows it by labelling the namespace closeknit.dev/unrestricted-templates=true"


@pytest.fixture(scope="module")
def cluster(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    with policies_on_nodes(local_cluster, NODE) as cluster:
        yield cluster


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
        asked = (Login(user), verb, "trainingjobs", LIFTED, "closeknit.dev")
        cluster.wait_for(lambda asked=asked: may(cluster, *asked), f"{user} to have a role")  # type: ignore[misc]
    yield cluster
    cluster.kubectl("delete", "namespace", TEAM, LIFTED, "--wait=false")


def job(template: Any, name: str = "train", *, servers: Any = None) -> dict[str, Any]:
    """A job with this template, and where given with parameter servers of that one."""
    spec = {"gpus": 1, "template": template}
    return manifest(
        "TrainingJob", name, spec | ({"parameterServers": {"replicas": 1, "template": servers}} if servers else {})
    )


@pytest.fixture
def nothing_is_stored(team: LocalCluster) -> Iterator[None]:
    """No job, and no grant of a test's own, is there when a test has ended, wherever that was."""
    yield
    team.delete("trainingjobs", namespace=TEAM)
    team.kubectl("delete", "rolebinding", "use-granted", f"--namespace={TEAM}", "--ignore-not-found")


def create_refusal(
    cluster: LocalCluster, body: Mapping[str, Any], *, user: str = EDITOR, namespace: str = TEAM, store: bool = False
) -> str:
    return creation_refusal(cluster, body, namespace, login=Login(user), store=store)


NO_PODS = (
    "to create a TrainingJob, or to change what it asks for, you need the right to create Pods in its namespace, for "
    "that is what the job does for you"
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


OURS = (
    "closeknit sets spec.hostname, spec.subdomain and spec.nodeName of each Pod itself; leave them out of the template"
)
PRIORITY = (
    "the priority class of the Pods is spec.priorityClassName of the TrainingJob; set it there, and leave it out of "
    "the template"
)


def test_creating_jobs_needs_the_right_to_create_pods(team: LocalCluster) -> None:
    assert create_refusal(team, job({"spec": POD}), user=WRITER) == NO_PODS
    assert create_refusal(team, job({"spec": POD}), user=WRITER, namespace=LIFTED) == NO_PODS
    assert create_refusal(team, job({"spec": POD}), user=EDITOR) == ""


@pytest.mark.usefixtures("nothing_is_stored")
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


@pytest.mark.usefixtures("nothing_is_stored")
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


@pytest.mark.usefixtures("nothing_is_stored")
def test_an_edit_of_what_a_job_asks_for_is_judged_like_a_new_job(team: LocalCluster) -> None:
    """It is possible until the job is booked, and must lend no more than creating one would."""
    assert create_refusal(team, job({"spec": POD}, "edited"), store=True) == ""

    def refused(user: str, **spec: Any) -> str:
        said = team.writer.patch("trainingjob", "edited", {"spec": spec}, TEAM, login=Login(user), dry_run=True)
        return said.refusal.rpartition("denied request: ")[2]

    other = {"containers": [{"name": "trainer", "image": "other"}]}
    large = {"containers": [{"name": f"c{each}", "image": "a", "args": ["x" * 10_000]} for each in range(20)]}
    assert refused(EDITOR, gpus=2, template={"spec": other}) == refused(EDITOR, template={"spec": large}) == ""
    assert refused(WRITER, gpus=2) == refused(WRITER, template={"spec": other}) == NO_PODS
    assert refused(WRITER, framework="MPI") == NO_PODS
    assert refused(WRITER, queue="b", elastic={"minGPUs": 1}, ttlSecondsAfterFinished=9) == ""
    assert refused(EDITOR, template={"spec": {"serviceAccountName": "stronger"}}) == NO_USE
    assert refused(EDITOR, template={"spec": {"hostNetwork": True}}) == keys("spec.hostNetwork")
    status = {"placement": {"nodeCount": 0, "nodes": []}}
    assert team.writer.patch("trainingjob", "edited", {"status": status}, TEAM, subresource="status").refusal == ""
    assert "immutable once the job was booked" in refused(EDITOR, template={"spec": other})


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
    Template("nodeName", OURS, pod={"nodeName": NODE}, lifted=False),
    Template("hostname", OURS, pod={"hostname": "rank-0"}, lifted=False),
    Template(
        "an affinity to Pods",
        keys("spec.affinity.podAntiAffinity"),
        pod={"affinity": {"nodeAffinity": {}, "podAntiAffinity": {}}},
    ),
    Template("a scheduler of its own", keys("spec.schedulerName"), pod={"schedulerName": "mine"}),
    Template("a priority of its own", PRIORITY, pod={"priorityClassName": "high"}, lifted=False),
    Template("text in the place of a flag", keys("spec.hostNetwork"), pod={"hostNetwork": ""}),
    Template("a flag in the place of a scheduler", keys("spec.schedulerName"), pod={"schedulerName": False}),
    Template("a flag in the place of a node", OURS, pod={"nodeName": False}, lifted=False),
    Template("a field that nobody knows yet, set to false", keys("spec.novelty"), pod={"novelty": False}),
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
            "annotations": {
                "example.com/note": "b",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "kubernetes.io/egress-bandwidth": "1G",
            },
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
            "resources": {"limits": {"cpu": "8", "memory": "64Gi"}},
            "restartPolicy": "Never",
            # What generators of manifests write where nothing is set.
            **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), False),
            **dict.fromkeys(("hostname", "subdomain", "nodeName", "priorityClassName"), ""),
            "schedulerName": "default-scheduler",
        },
    }
    assert create_refusal(team, job(body)) == ""


FIELDS = (
    *("volumes", "initContainers", "affinity", "tolerations", "nodeSelector", "imagePullSecrets", "securityContext"),
    *("serviceAccountName", "serviceAccount", "hostNetwork", "schedulerName", "hostname", "priorityClassName"),
    *("topologySpreadConstraints", "hostAliases"),
)
OF_A_CONTAINER = ("ports", "env", "volumeMounts", "resources", "securityContext")
OF_SECURITY = ("privileged", "allowPrivilegeEscalation", "procMount", "capabilities")


def test_a_field_that_is_null_is_not_set(team: LocalCluster) -> None:
    """A Pod may have those, and a chart writes one where a list has no entries."""
    container = {"name": "trainer", "image": "a"}
    spec: dict[str, Any] = {"containers": [container | dict.fromkeys(OF_A_CONTAINER)], **dict.fromkeys(FIELDS)}
    assert create_refusal(team, job({"spec": spec}), store=True) == ""
    assert team.get("trainingjob", "train", TEAM)["spec"]["template"]["spec"]["volumes"] is None
    team.kubectl("delete", "trainingjob", "train", f"--namespace={TEAM}")
    deeper = container | security(**dict.fromkeys(OF_SECURITY)) | {"ports": [{"containerPort": 80, "hostPort": None}]}
    last = container | {"name": "last"} | security(capabilities={"add": None})
    volumes: list[dict[str, Any]] = [{"name": "scratch", "emptyDir": {}, "hostPath": None}]
    spec = {"containers": [deeper, last], "volumes": volumes, "affinity": {"podAffinity": None}}
    assert create_refusal(team, job({"spec": spec})) == ""


def test_a_third_key_and_wrong_types_are_refused(team: LocalCluster) -> None:
    assert (
        create_refusal(team, job({"spec": POD, "podSpec": POD})) == "a template has metadata and spec, and nothing else"
    )
    for spec in ("trainer", [POD], 7):
        assert create_refusal(team, job({"spec": spec})) == "the spec of a template must be an object, a PodSpec"
    lists = "in a template, spec.{} must be a list of objects"
    for part in ("containers", "initContainers", "volumes"):
        for value in ("trainer", {"name": "trainer"}, ["trainer"]):
            assert create_refusal(team, job({"spec": POD | {part: value}})) == lists.format(part)
    for wrong in (
        {"securityContext": [1]},
        security(capabilities="IPC_LOCK"),
        security(capabilities={"add": "IPC_LOCK"}),
        {"ports": {"containerPort": 80}},
        {"ports": [80]},
    ):
        trainer = {"name": "trainer", "image": "a", **wrong}
        assert create_refusal(team, job({"spec": {"containers": [trainer]}})) == (
            "in a template, a container's securityContext and its capabilities are objects, capabilities.add is a "
            "list, and ports is a list of objects"
        )
    unquoted = create_refusal(team, job({"spec": POD | {"serviceAccountName": 7}}))
    assert unquoted == "in a template, spec.serviceAccountName is text; write it in quotes"


def test_the_old_name_of_a_service_account_is_judged_like_the_new_one(team: LocalCluster) -> None:
    """A Pod's `serviceAccount` still works, and the label that lifts the lists would let it through."""
    old = {"spec": POD | {"serviceAccount": "stronger"}}
    assert create_refusal(team, job(old)) == NO_USE
    assert create_refusal(team, job(old), namespace=LIFTED) == NO_USE


@pytest.mark.usefixtures("nothing_is_stored")
def test_a_service_account_may_be_used_by_whom_it_was_granted_to(team: LocalCluster) -> None:
    body = {"spec": POD | {"serviceAccountName": "granted"}}
    team.wait_for(lambda: create_refusal(team, job(body)) == NO_USE, "nobody to be granted it")  # as by a first try
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
