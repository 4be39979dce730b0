"""The fence around the operator's own writes, climbed with its own token: each attempt is refused by a policy."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.admission import creation_refusal
from harness.chart import NAMESPACE, wait_for_policies
from harness.install import OPERATOR
from harness.kubectl import KubectlError
from harness.operator_bed import ON_PLUGIN, Bed

Object = dict[str, Any]
Change = Callable[[Object], object]

NAME = "gone-a1-worker-00007"
LIFT = "; an administrator allows it by labelling the namespace closeknit.dev/unrestricted-templates=true"
OWNER = "the operator makes only what one TrainingJob, or of a claim its Pod, owns as its controller"
NAMES = "the operator names its children by job, attempt, role and index, as their labels do"
MARKS = "the operator sets no other label and annotation under closeknit.dev/ than those of a child"
PLACE = (
    "the operator works neither in the namespaces of Kubernetes (kube-...) nor in its own; "
    "create the job in another one"
)
FINALIZERS = "the operator's children have no finalizers"
SERVICE = "the operator's Services are headless, select the Pods of their attempt, and have nothing else"
CLAIM = (
    "the operator's claims ask for devices of the class gpu.nvidia.com or mig.nvidia.com, and for NICs of the driver "
    "dra.net by their PCI addresses, without admin access and without a config"
)
CHANGES = (
    "the operator makes, stops and deletes its children, tells a gang its size, and changes nothing else of them; a "
    "claim goes with its Pod"
)
ROOM = "the operator adds the condition DisruptionTarget to a Pod's status, once, and changes nothing else of it"
DELETES = "the operator deletes only Pods and Services that a TrainingJob owns and that have the name of its child"
ACCOUNT = (
    "a Pod of the operator has the default service account, or one that the operator has the verb use on, too; leave "
    "serviceAccountName out of the template, or have an administrator give "
    f"system:serviceaccount:{NAMESPACE}:{OPERATOR} that verb"
)
OWN_SCHEDULE = "a Pod of the operator goes through the default scheduler and uses no claim but its own"


@pytest.fixture(scope="module")
def token(running: Bed) -> Path:
    """A kubeconfig with a token of the operator; the policies are in effect."""
    wait_for_policies(running.cluster, "gpu-1")
    return running.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)


def refusal(bed: Bed, token: Path, *arguments: str, body: object = None) -> str:
    """Why the API server refuses, without its preamble; empty where it accepts."""
    try:
        bed.cluster.kubectl(*arguments, stdin=None if body is None else json.dumps(body), kubeconfig=token)
    except KubectlError as error:
        return error.stderr.strip().rpartition("denied request: ")[2]
    return ""


def labels(job: str = "gone", attempt: str = "1", role: str = "worker", index: str = "7") -> dict[str, str]:
    words = {"job": job, "attempt": attempt, "role": role, "index": index}
    return {f"closeknit.dev/{name}": value for name, value in words.items()}


def owner(kind: str = "TrainingJob", name: str = "gone") -> Object:
    version = "v1" if kind == "Pod" else "closeknit.dev/v1alpha1"
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": "b3e7a5c0-0000-4000-8000-000000000000",
        "controller": True,
    }


def pod() -> Object:
    """A Pod as the operator makes it, of a job that was."""
    trainer = {"name": "trainer", "image": "registry.example/train:1"}
    trainer["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}  # type: ignore[assignment]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": NAME,
            "labels": labels() | {"team": "vision"},
            "annotations": {"closeknit.dev/gpus": "GPU-0"},
            "ownerReferences": [owner()],
        },
        "spec": {
            "containers": [trainer],
            "hostname": NAME,
            "subdomain": "gone-a1",
            "restartPolicy": "Never",
            "volumes": [{"name": "closeknit-shm", "emptyDir": {"medium": "Memory"}}],
            "resourceClaims": [{"name": "gpus", "resourceClaimName": NAME}],
        },
    }


def service() -> Object:
    selector = {key: value for key, value in labels().items() if key.endswith(("job", "attempt"))}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "gone-a1", "labels": selector, "ownerReferences": [owner()]},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector},
    }


def claim() -> Object:
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": NAME, "labels": labels(), "ownerReferences": [owner("Pod", NAME)]},
        "spec": {"devices": {"requests": [request]}},
    }


GOOD: Mapping[str, Callable[[], Object]] = {"Pod": pod, "Service": service, "ResourceClaim": claim}


def meta(**fields: Any) -> Change:
    return lambda body: body["metadata"].update(fields)


def named(name: str, **fields: Any) -> Change:
    """A Pod of another name, whose claim has it, too: of two policies that refuse it, either may be told of."""

    def change(body: Object) -> None:
        body["metadata"].update(fields, name=name)
        body["spec"]["resourceClaims"][0]["resourceClaimName"] = name

    return change


def spec(**fields: Any) -> Change:
    return lambda body: body["spec"].update(fields)


def trainer(**fields: Any) -> Change:
    return lambda body: body["spec"]["containers"][0].update(fields)


def asking(**fields: Any) -> Change:
    return lambda body: body["spec"]["devices"]["requests"][0]["exactly"].update(fields)


def field_words(*names: str) -> str:
    return f"not allowed in a Pod of the operator: {', '.join(names)}{LIFT}"


def container(what: str) -> str:
    return f"a container of a Pod of the operator {what}, which is not allowed{LIFT}"


ROOT = {"name": "root", "hostPath": {"path": "/"}}
DRIVER_CONFIG = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"apiVersion": "a/v1", "kind": "K"}}}
ATTEMPTS: Mapping[str, tuple[str, Change, str]] = {
    "a privileged container": ("Pod", trainer(securityContext={"privileged": True}), container("is privileged")),
    "a capability": (
        "Pod",
        trainer(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
        container("adds a capability other than IPC_LOCK"),
    ),
    "a port of the host": (
        "Pod",
        trainer(ports=[{"containerPort": 80, "hostPort": 80}]),
        container("takes a port of the host"),
    ),
    "hostPath": ("Pod", spec(volumes=[ROOT]), field_words("volume root (hostPath)")),
    "hostNetwork": ("Pod", spec(hostNetwork=True), field_words("spec.hostNetwork")),
    "hostPID": ("Pod", spec(hostPID=True), field_words("spec.hostPID")),
    "a node without the scheduler": ("Pod", spec(nodeName="gpu-1"), field_words("spec.nodeName")),
    "a scheduler": ("Pod", spec(schedulerName="mine"), OWN_SCHEDULE),
    "another Pod's claim": (
        "Pod",
        spec(resourceClaims=[{"name": "gpus", "resourceClaimName": "theirs"}]),
        OWN_SCHEDULE,
    ),
    "a service account": ("Pod", spec(serviceAccountName="strong"), ACCOUNT),
    "an old service account": ("Pod", spec(serviceAccount="strong"), ACCOUNT),
    "no owner": ("Pod", meta(ownerReferences=[]), OWNER),
    "an owner of another kind": ("Pod", meta(ownerReferences=[owner("NodeTopology")]), OWNER),
    "an owner of a group that looks alike": (
        "Pod",
        meta(ownerReferences=[owner() | {"apiVersion": "closeknit.dev.evil/v1alpha1"}]),
        OWNER,
    ),
    "another job's owner": ("Pod", meta(ownerReferences=[owner(name="other")]), OWNER),
    "two owners": ("Pod", meta(ownerReferences=[owner(), owner("Pod", NAME) | {"controller": False}]), OWNER),
    "an owner that controls nothing": ("Pod", meta(ownerReferences=[owner() | {"controller": False}]), OWNER),
    "no job": ("Pod", meta(labels={}), OWNER),
    "a name of its own": ("Pod", named("gone-a1-worker-7"), NAMES),
    "a Pod that replaces none": ("Pod", named(f"{NAME}-r0"), NAMES),
    "a Pod that replaces another of many": ("Pod", named(f"{NAME}-r1000"), NAMES),
    "a name with more behind it": ("Pod", named(f"{NAME}-r1-x"), NAMES),
    "another index's name": ("Pod", meta(labels=labels(index="8")), NAMES),
    "another attempt's name": ("Pod", meta(labels=labels(attempt="2")), NAMES),
    "a role that is none": ("Pod", named("gone-a1-king-00007", labels=labels(role="king")), NAMES),
    "another label of ours": ("Pod", meta(labels=labels() | {"closeknit.dev/health": "fine"}), MARKS),
    "another annotation of ours": ("Pod", meta(annotations={"closeknit.dev/x": "y"}), MARKS),
    "a Pod that stays": ("Pod", meta(finalizers=["example.com/stays"]), FINALIZERS),
    "a Service that stays": ("Service", meta(finalizers=["example.com/stays"]), FINALIZERS),
    "a claim that stays": ("ResourceClaim", meta(finalizers=["example.com/stays"]), FINALIZERS),
    "a Service with an address": ("Service", spec(clusterIP="", ports=[{"port": 80}]), SERVICE),
    "a Service with an externalIP": ("Service", spec(externalIPs=["203.0.113.7"]), SERVICE),
    "a Service with ports": ("Service", spec(ports=[{"port": 80}]), SERVICE),
    "a Service for others' Pods": ("Service", spec(selector={"app": "bank"}), SERVICE),
    "a Service of no attempt": ("Service", meta(name="bank"), NAMES),
    "a Service that no job owns": ("Service", meta(ownerReferences=[owner("Pod")]), OWNER),
    "a claim with admin access": ("ResourceClaim", asking(adminAccess=True), CLAIM),
    "a claim of another class": ("ResourceClaim", asking(deviceClassName="vfio.example.com"), CLAIM),
    "a claim that configures": (
        "ResourceClaim",
        lambda body: body["spec"]["devices"].update(config=[DRIVER_CONFIG]),
        CLAIM,
    ),
    "a claim of another Pod": ("ResourceClaim", meta(ownerReferences=[owner("Pod", "other")]), OWNER),
    "a claim of a job": ("ResourceClaim", meta(ownerReferences=[owner(name=NAME)]), OWNER),
}


@pytest.mark.parametrize("number", [1, 999])
def test_a_pod_that_takes_the_place_of_others_is_let_through_and_goes_again(bed: Bed, token: Path, number: int) -> None:
    name = f"{NAME}-r{number}"
    body = pod()
    named(name, annotations={"closeknit.dev/gpus": "GPU-0", "closeknit.dev/settings": "0a"})(body)
    assert creation_refusal(bed.cluster, body, bed.namespace, login=token) == ""
    own = claim()
    meta(name=name, ownerReferences=[owner("Pod", name)])(own)
    assert creation_refusal(bed.cluster, own, bed.namespace, login=token) == ""
    here = f"--namespace={bed.namespace}"
    assert refusal(bed, token, "create", "--filename=-", here, body=body) == ""
    assert refusal(bed, token, "delete", "pod", name, here, "--ignore-not-found", "--wait=false") == ""


@pytest.mark.parametrize("kind", GOOD)
def test_what_launch_makes_is_let_through(bed: Bed, token: Path, kind: str) -> None:
    assert creation_refusal(bed.cluster, GOOD[kind](), bed.namespace, login=token) == ""


def test_nothing_else_is(bed: Bed, token: Path) -> None:
    bed.cluster.kubectl("create", "serviceaccount", "strong", f"--namespace={bed.namespace}")
    # Where the API server asks for it: the fence's word is what is asked here.
    bed.cluster.kubectl("label", "namespace", bed.namespace, "resource.kubernetes.io/admin-access=true")
    said = {}
    for what, (kind, change, _) in ATTEMPTS.items():
        body = GOOD[kind]()
        change(body)
        said[what] = creation_refusal(bed.cluster, body, bed.namespace, login=token, strict=False)
    assert said == {what: words for what, (_, _, words) in ATTEMPTS.items()}


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", NAMESPACE])
def test_nothing_at_all_is_in_the_systems_namespaces(bed: Bed, token: Path, namespace: str) -> None:
    bodies = [make() for make in GOOD.values()]
    said = [creation_refusal(bed.cluster, body, namespace, login=token, strict=False) for body in bodies]
    assert said == [PLACE] * 3


def test_a_service_account_is_lent_to_the_operator_by_the_verb_use(bed: Bed, token: Path) -> None:
    here = f"--namespace={bed.namespace}"
    bed.cluster.kubectl("create", "serviceaccount", "lent", here)
    rule = {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["lent"], "verbs": ["use"]}
    bed.cluster.apply(
        _in(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "lent"},
                "rules": [rule],
            },
            bed,
        )
    )
    bed.cluster.kubectl(
        "create", "rolebinding", "lent", "--role=lent", f"--serviceaccount={NAMESPACE}:{OPERATOR}", here
    )
    body = pod()
    body["spec"]["serviceAccountName"] = "lent"
    bed.cluster.wait_for(
        lambda: creation_refusal(bed.cluster, body, bed.namespace, login=token) == "", "the verb to be known"
    )


def test_what_is_anothers_stays(bed: Bed, token: Path) -> None:
    here = f"--namespace={bed.namespace}"
    plain = {"metadata": {"name": "bank"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    # The name of a child alone makes none, and neither does an owner of the same kind's name.
    cuckoo = {**plain, "metadata": {"name": NAME}}
    bed.cluster.apply(*({"apiVersion": "v1", "kind": "Pod", **each} for each in (_in(plain, bed), _in(cuckoo, bed))))
    bed.cluster.kubectl("create", "service", "clusterip", "bank", "--clusterip=None", here)
    delete = ("delete", "--wait=false", here)
    assert refusal(bed, token, *delete, "pod", "bank") == DELETES
    assert refusal(bed, token, *delete, "pod", NAME) == DELETES
    assert refusal(bed, token, *delete, "service", "bank") == DELETES
    assert bed.names("pods") == ["bank", NAME]


def _in(body: Object, bed: Bed) -> Object:
    return {**body, "metadata": {**body["metadata"], "namespace": bed.namespace}}


def test_a_running_pod_is_not_changed_even_with_a_right_to_it(bed: Bed, token: Path) -> None:
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    here = f"--namespace={bed.namespace}"
    image = '--patch={"spec":{"containers":[{"name":"trainer","image":"registry.example/miner:1"}]}}'
    change = ("patch", "pod", "train-a1-worker-00000", here, image)
    assert refusal(bed, token, *change) == CHANGES
    service = ("label", "service", "train-a1", "a=b", here)
    assert f'User "system:serviceaccount:{NAMESPACE}:{OPERATOR}" cannot patch resource "services"' in refusal(
        bed, token, *service
    )
    subresources = "pods/binding,pods/ephemeralcontainers,pods/eviction,pods/exec"
    resources = f"pods,{subresources},services,resourceclaims.resource.k8s.io"
    bed.cluster.kubectl("create", "role", "too-much", "--verb=*", f"--resource={resources}", here)
    bed.cluster.kubectl(
        "create", "rolebinding", "too-much", "--role=too-much", f"--serviceaccount={NAMESPACE}:{OPERATOR}", here
    )
    bed.cluster.wait_for(lambda: "cannot patch" not in refusal(bed, token, *service), "the right to be known")
    assert refusal(bed, token, *change) == CHANGES
    assert refusal(bed, token, *service) == CHANGES
    assert refusal(bed, token, "exec", "train-a1-worker-00000", here, "--", "sh").endswith(CHANGES)
    for way in ("binding", "eviction"):
        version, kind = ("v1", "Binding") if way == "binding" else ("policy/v1", "Eviction")
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": "train-a1-worker-00000"}}
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-1"}} if way == "binding" else {}
        raw = f"--raw=/api/v1/namespaces/{bed.namespace}/pods/train-a1-worker-00000/{way}"
        assert refusal(bed, token, "create", "--filename=-", raw, body=body | target) == CHANGES
    assert refusal(bed, token, "debug", "train-a1-worker-00000", here, "--image=sh", "--attach=false").endswith(CHANGES)
    bed.cluster.apply(
        _in(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "theirs"},
                "spec": claim()["spec"],
            },
            bed,
        )
    )
    assert refusal(bed, token, "delete", "resourceclaim", "theirs", here) == CHANGES


def test_a_pod_may_be_stopped_and_nothing_else_with_it(bed: Bed, token: Path) -> None:
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    here, first = f"--namespace={bed.namespace}", "train-a1-worker-00000"
    plain = {"metadata": {"name": "bank"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    bed.cluster.apply({"apiVersion": "v1", "kind": "Pod", **_in(plain, bed)})

    def tried(pod: str, *more: tuple[str, Any], seconds: int = 1) -> str:
        values = [("/spec/activeDeadlineSeconds", seconds), *more]
        patch = [{"op": "add", "path": path, "value": value} for path, value in values]
        how = ("--dry-run=server", "--type=json", f"--patch={json.dumps(patch)}")
        return refusal(bed, token, "patch", "pod", pod, here, *how)

    image = ("/spec/containers/0/image", "registry.example/miner:1")
    label, finalizer = ("/metadata/labels/app", "bank"), ("/metadata/finalizers", ["example.com/stays"])
    toleration = ("/spec/tolerations/-", {"operator": "Exists"})
    assert [tried(first, each) for each in (image, label, finalizer, toleration)] == [CHANGES] * 4
    assert (tried(first, seconds=2), tried("bank"), tried(first)) == (CHANGES, CHANGES, "")
    attempt, index = "/metadata/labels/closeknit.dev~1attempt", "/metadata/labels/closeknit.dev~1index"
    assert tried(first, (attempt, "")) == "", "a replaced Pod leaves its Service"
    others = (
        [(attempt, "2")],
        [(index, "")],
        [(attempt, ""), label],
        [(attempt, ""), image],
        [(attempt, ""), (index, "1")],
    )
    assert [tried(first, *each) for each in others] == [CHANGES] * len(others)
    assert tried(first, (attempt, ""), seconds=2) == CHANGES


def test_a_pod_may_be_said_to_make_room_once_and_nothing_else_of_its_status(bed: Bed, token: Path) -> None:
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    here, first = f"--namespace={bed.namespace}", "train-a1-worker-00000"
    plain = {"metadata": {"name": "bank"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    bed.cluster.apply({"apiVersion": "v1", "kind": "Pod", **_in(plain, bed)})

    def tried(
        *more: tuple[str, Any], pod: str = first, dry: bool = True, other: Mapping[str, str] | None = None
    ) -> str:
        usual = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        condition = usual | dict(other or {})
        values = [("/status/conditions/-", condition), *more]
        patch = [{"op": "add", "path": path, "value": value} for path, value in values]
        how = ("--subresource=status", "--type=json", f"--patch={json.dumps(patch)}")
        return refusal(bed, token, "patch", "pod", pod, here, *how, *(("--dry-run=server",) if dry else ()))

    others: list[tuple[str, Any]] = [
        ("/status/phase", "Failed"),
        ("/status/podIP", "10.0.0.1"),
        ("/status/reason", "Evicted"),
        ("/status/conditions/0/status", "False"),
        ("/metadata/labels/app", "bank"),
        ("/metadata/annotations/app", "bank"),
        ("/metadata/finalizers", ["example.com/stays"]),
    ]
    # kubectl reads what it patches, and the operator does not.
    account = f"--serviceaccount={NAMESPACE}:{OPERATOR}"
    bed.cluster.kubectl("create", "role", "reader", "--verb=get", "--resource=pods/status", here)
    bed.cluster.kubectl("create", "rolebinding", "reader", "--role=reader", account, here)
    bed.cluster.wait_for(lambda: "cannot get" not in tried(others[0]), "the right to be known")
    assert [tried(each) for each in others] == [ROOM] * len(others)
    wrong = [{"type": "Ready"}, {"status": "False"}, {"reason": "EvictionByEvictionAPI"}]
    assert [tried(other=each) for each in wrong] == [ROOM] * len(wrong)
    assert tried(pod="bank") == CHANGES
    assert tried(dry=False, other={"message": "why", "lastTransitionTime": "2026-11-21T10:00:00Z"}) == ""
    assert tried() == ROOM, "it says so once"


@pytest.mark.usefixtures("token")
def test_a_job_in_a_namespace_of_the_system_is_refused_before_anything_is_asked(bed: Bed) -> None:
    story, bed.namespace = bed.namespace, "kube-public"
    try:
        bed.submit(**ON_PLUGIN)
        message = bed.wait_for_reason("NamespaceNotServed")["message"]
        assert message.startswith("closeknit makes no Pods in the namespaces of Kubernetes")
        bed.delete("trainingjob", "train")
    finally:
        bed.namespace = story
