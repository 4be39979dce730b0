"""A job that is launched over ssh on the real control plane: its files and keys, and the fence around them."""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from harness.chart import NAMESPACE, wait_for_policies
from harness.install import OPERATOR
from harness.kubectl import KubectlError
from harness.operator_bed import ON_PLUGIN, Bed

Object = dict[str, Any]
Change = Callable[[Object], object]
UID = "b3e7a5c0-0000-4000-8000-000000000000"
OWNERS = (
    "a TrainingJob owns the operator's Secret, and the Service of an attempt its ConfigMap and ComputeDomain, as its "
    "controller"
)
NAMES = (
    "the operator names a Secret by job and uid, a ConfigMap by job, attempt and content, and a ComputeDomain by job "
    "and attempt"
)
MARKS = "the operator sets no other label and annotation under closeknit.dev/ than those of a child"
WHAT = "the operator's Secret is a key pair, its ConfigMap is text, and neither can be changed"
FINALIZERS = "the operator's children have no finalizers"
PLACE = (
    "the operator works neither in the namespaces of Kubernetes (kube-...) nor in its own; "
    "create the job in another one"
)
CHANGES = (
    "the operator makes ConfigMaps, Secrets and ComputeDomains, and changes and deletes none; they go with their owner"
)


def test_keys_go_with_the_job_files_with_the_attempt_and_the_launcher_ends_it(bed: Bed) -> None:
    bed.submit(framework="MPI", **ON_PLUGIN)
    bed.wait_for_state("Running")
    uid = bed.job()["metadata"]["uid"]
    (secret,) = [each for each in bed.all("secrets") if "train" in each["metadata"]["name"]]
    assert secret["metadata"]["name"] == f"train-ssh-{uid}"
    assert b64decode(secret["data"]["ssh-publickey"]).startswith(b"ssh-ed25519 ")
    (files,) = [each for each in bed.all("configmaps") if "train" in each["metadata"]["name"]]
    (service,) = bed.all("services")
    assert files["metadata"]["ownerReferences"][0]["uid"] == service["metadata"]["uid"]
    assert files["data"]["hostfile"].splitlines() == [
        f"train-a1-worker-0000{index}.train-a1.{bed.namespace}.svc slots=8" for index in range(2)
    ]
    made = [event.resource for event in bed.writes() if event.verb == "create" and event.resource != "events"]
    assert sorted(made) == ["configmaps", "pods", "pods", "secrets", "services"]
    bed.finish("train-a1-worker-00000", "succeed")
    bed.wait_for_state("Succeeded")
    bed.cluster.wait_for(lambda: not bed.live_pods(), "the server to have ended")


@pytest.fixture(scope="module")
def token(running: Bed) -> Path:
    """A kubeconfig with a token of the operator; the policies are in effect."""
    wait_for_policies(running.cluster, "gpu-1")
    return running.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)


def owner(kind: str, version: str, name: str) -> Object:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": UID, "controller": True}


SECRET: Object = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": f"gone-ssh-{UID}",
        "labels": {"closeknit.dev/job": "gone"},
        "ownerReferences": [owner("TrainingJob", "closeknit.dev/v1alpha1", "gone")],
    },
    "immutable": True,
    "data": {"ssh-privatekey": "", "ssh-publickey": ""},
}
FILES: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "gone-a1-0123456789",
        "labels": {"closeknit.dev/job": "gone", "closeknit.dev/attempt": "1"},
        "ownerReferences": [owner("Service", "v1", "gone-a1")],
    },
    "immutable": True,
    "data": {"hostfile": "here slots=1\n"},
}


def meta(**fields: Any) -> Change:
    return lambda body: body["metadata"].update(fields)


def of(**fields: Any) -> Change:
    return lambda body: body.update(fields)


ATTEMPTS: Mapping[str, tuple[Object, Change, str]] = {
    "a Secret that nobody owns": (SECRET, meta(ownerReferences=[]), OWNERS),
    "a Secret of a Service": (SECRET, meta(ownerReferences=[owner("Service", "v1", "gone")]), OWNERS),
    "a Secret of another job": (
        SECRET,
        meta(ownerReferences=[owner("TrainingJob", "closeknit.dev/v1alpha1", "other")]),
        OWNERS,
    ),
    "a Secret by a name of its own": (SECRET, meta(name="bank"), NAMES),
    "a Secret with another uid": (SECRET, meta(name=f"gone-ssh-{UID[:-1]}1"), NAMES),
    "a Secret that says of which attempt": (
        SECRET,
        meta(labels={"closeknit.dev/job": "gone", "closeknit.dev/attempt": "1"}),
        MARKS,
    ),
    "a Secret that stays": (SECRET, meta(finalizers=["example.com/stays"]), FINALIZERS),
    "a Secret that can be changed": (SECRET, of(immutable=False), WHAT),
    "a Secret of another type": (SECRET, of(type="example.com/other"), WHAT),
    "a Secret with something else": (SECRET, of(data={"ssh-privatekey": "", "password": ""}), WHAT),
    "a ConfigMap of a job": (
        FILES,
        meta(ownerReferences=[owner("TrainingJob", "closeknit.dev/v1alpha1", "gone")]),
        OWNERS,
    ),
    "a ConfigMap of another attempt's Service": (
        FILES,
        meta(ownerReferences=[owner("Service", "v1", "gone-a2")]),
        OWNERS,
    ),
    "a ConfigMap by a name of its own": (FILES, meta(name="kube-root-ca"), NAMES),
    "a ConfigMap with another annotation of ours": (FILES, meta(annotations={"closeknit.dev/x": "y"}), MARKS),
    "a ConfigMap with bytes": (FILES, of(binaryData={"a": "AA=="}), WHAT),
}


def refusal(bed: Bed, token: Path, body: Object, namespace: str = "default") -> str:
    """Why the API server refuses to make it, without its preamble; empty where it accepts."""
    return denied(bed, token, "create", "--filename=-", f"--namespace={namespace}", body=body)


def denied(bed: Bed, token: Path, *arguments: str, body: Object | None = None) -> str:
    stdin = None if body is None else json.dumps(body)
    try:
        bed.cluster.kubectl(*arguments, "--dry-run=server", stdin=stdin, kubeconfig=token)
    except KubectlError as error:
        return error.stderr.strip().rpartition("denied request: ")[2]
    return ""


@pytest.mark.parametrize(("good", "change", "why"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_nothing_else_is_made(running: Bed, token: Path, good: Object, change: Change, why: str) -> None:
    body = deepcopy(good)
    change(body)
    assert refusal(running, token, body) == why


@pytest.mark.parametrize("good", [SECRET, FILES], ids=["Secret", "ConfigMap"])
def test_what_the_operator_makes_is_made(running: Bed, token: Path, good: Object) -> None:
    assert refusal(running, token, good) == ""


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", NAMESPACE])
def test_nothing_is_made_in_the_systems_namespaces(running: Bed, token: Path, namespace: str) -> None:
    assert [refusal(running, token, body, namespace) for body in (SECRET, FILES)] == [PLACE] * 2


def test_neither_is_changed_or_deleted_even_with_a_right_to_it(bed: Bed, token: Path) -> None:
    here = f"--namespace={bed.namespace}"
    bed.cluster.kubectl("create", "role", "too-much", "--verb=*", "--resource=configmaps,secrets", here)
    account = f"--serviceaccount={NAMESPACE}:{OPERATOR}"
    bed.cluster.kubectl("create", "rolebinding", "too-much", "--role=too-much", account, here)
    bed.cluster.kubectl("create", "configmap", "theirs", here)
    bed.cluster.kubectl("create", "secret", "generic", "theirs", here)
    kinds = ("configmap", "secret")
    tried = [("annotate", kind, "theirs", "a=b", here) for kind in kinds] + [
        ("delete", kind, "theirs", here) for kind in kinds
    ]
    bed.cluster.wait_for(
        lambda: [denied(bed, token, *each) for each in tried] == [CHANGES] * 4, "the right to be known, and of no use"
    )


@pytest.mark.parametrize("verb", ["get", "list", "watch", "update", "patch", "delete"])
def test_no_secret_is_read_or_changed(running: Bed, token: Path, verb: str) -> None:
    with pytest.raises(KubectlError):  # the answer no is an exit status
        running.cluster.kubectl("auth", "can-i", verb, "secrets", "--all-namespaces", kubeconfig=token)
