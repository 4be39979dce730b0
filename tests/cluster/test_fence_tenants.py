"""Labels and annotations under our prefix: a tenant with the built-in role edit, and an admin, try to forge them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from harness.admission import creation_refusal, may
from harness.api_writer import Login
from harness.chart import prefix_lifted, wait_for_policies
from harness.kubectl import KubectlError
from harness.operator_bed import ON_PLUGIN, Bed

Object = dict[str, Any]

FENCE = (
    "labels and annotations under closeknit.dev/ of Pods and ResourceClaims are the operator's alone; leave them out, "
    "and those that are there as they are"
)
TENANT = "--as=edith"
CHILD = "train-a1-worker-00000"
FORGED = {"closeknit.dev/job": "train"}
POD = {"containers": [{"name": "c", "image": "i"}]}
CLAIM = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}


@pytest.fixture
def team(bed: Bed) -> Iterator[Bed]:
    """The policies in effect, and a tenant who may edit this namespace."""
    wait_for_policies(bed.cluster, "gpu-1")
    here = f"--namespace={bed.namespace}"
    bed.cluster.kubectl("create", "rolebinding", "edith", "--user=edith", "--clusterrole=edit", here)
    edith = Login("edith")
    bed.cluster.wait_for(lambda: may(bed.cluster, edith, "create", "pods", bed.namespace), "edith to have her role")
    yield bed


def refusal(bed: Bed, *arguments: str, body: object = None) -> str:
    """Why the API server refuses, without its preamble; empty where it accepts."""
    try:
        here = f"--namespace={bed.namespace}"
        bed.cluster.kubectl(*arguments, here, stdin=None if body is None else json.dumps(body))
    except KubectlError as error:
        return error.stderr.strip().rpartition("denied request: ")[2]
    return ""


def made(kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> Object:
    version = "resource.k8s.io/v1" if kind == "ResourceClaim" else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


@pytest.mark.parametrize(
    "login",
    [Login("edith"), Login("system:kube-scheduler"), Login("edith", groups=("system:masters",))],
    ids=["a tenant", "the scheduler", "an admin"],
)
def test_nobody_else_makes_what_carries_our_prefix(team: Bed, login: Login) -> None:
    if "scheduler" in login.user:
        team.cluster.kubectl(
            "create",
            "rolebinding",
            "scheduler",
            "--user=system:kube-scheduler",
            "--clusterrole=edit",
            f"-n{team.namespace}",
        )
    bodies = [
        made("Pod", "forged", POD, labels=FORGED),
        made("Pod", "forged", POD, annotations={"closeknit.dev/gpus": "GPU-0"}),
        made("ResourceClaim", "forged", CLAIM, labels=FORGED),
        made("ResourceClaim", "forged", CLAIM, annotations=FORGED),
    ]

    def refusals(some: Sequence[Object]) -> list[str]:
        return [creation_refusal(team.cluster, body, team.namespace, login=login) for body in some]

    team.cluster.wait_for(lambda: refusals(bodies) == [FENCE] * 4, "each of them to be refused")
    fine = [
        made("Pod", "fine", POD, labels={"closeknit.dev.example/job": "x", "app": "y"}),
        made("ResourceClaim", "fine", CLAIM, annotations={"a": "b"}),
    ]
    assert refusals(fine) == ["", ""]


def test_what_is_there_is_not_given_any(team: Bed) -> None:
    team.cluster.apply(
        made("Pod", "mine", POD, namespace=team.namespace),
        made("ResourceClaim", "mine", CLAIM, namespace=team.namespace),
    )
    for kind in ("pod", "resourceclaim"):
        assert refusal(team, "label", kind, "mine", "closeknit.dev/index=0", TENANT) == FENCE
        assert refusal(team, "annotate", kind, "mine", "closeknit.dev/gpus=GPU-0", TENANT) == FENCE
        assert refusal(team, "label", kind, "mine", "app=y", TENANT) == ""


def test_a_child_keeps_what_it_has(team: Bed) -> None:
    team.submit(**ON_PLUGIN)
    team.wait_for_state("Running")
    assert refusal(team, "label", "pod", CHILD, "closeknit.dev/index=1", "--overwrite", TENANT) == FENCE
    assert refusal(team, "label", "pod", CHILD, "closeknit.dev/job-", TENANT) == FENCE
    assert refusal(team, "annotate", "pod", CHILD, "closeknit.dev/gpus=GPU-0", "--overwrite", TENANT) == FENCE
    assert refusal(team, "annotate", "pod", CHILD, "closeknit.dev/gpus-", TENANT) == FENCE
    everything = ("patch", "pod", CHILD, "--type=merge", '--patch={"metadata":{"labels":null}}', TENANT)
    assert refusal(team, *everything) == FENCE
    # All that may be done to a Pod may be done to a child: its other labels, its ephemeral containers, its end.
    assert refusal(team, "label", "pod", CHILD, "app=y", TENANT) == ""
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "sh"}]}}
    assert (
        refusal(team, "patch", "pod", CHILD, "--subresource=ephemeralcontainers", f"--patch={json.dumps(debug)}") == ""
    )
    assert refusal(team, "delete", "pod", CHILD, "--wait=false", TENANT) == ""


def test_a_write_of_the_status_neither_makes_nor_unmakes_a_child(team: Bed) -> None:
    team.submit(**ON_PLUGIN)
    team.wait_for_state("Running")
    team.cluster.apply(made("Pod", "mine", POD | {"nodeSelector": {"no": "where"}}, namespace=team.namespace))

    def written(pod: str, **words: str | None) -> str:
        labels = {f"closeknit.dev/{name}": word for name, word in words.items()}
        change = json.dumps({"metadata": {"labels": labels}})
        return refusal(team, "patch", "pod", pod, "--subresource=status", "--type=merge", f"--patch={change}")

    assert written("mine", job="train") == FENCE
    assert written("mine", index="0") == FENCE
    assert written(CHILD, job=None) == FENCE
    # Of a child that stays one nothing is asked: who writes its status may end its job.
    assert written(CHILD, index="1") == ""
    assert written(CHILD, index="0") == ""


def test_no_way_round_leads_to_a_pods_metadata(team: Bed) -> None:
    team.cluster.apply(made("Pod", "mine", POD | {"nodeSelector": {"no": "where"}}, namespace=team.namespace))
    forged = json.dumps({"metadata": {"annotations": {"closeknit.dev/gpus": "GPU-0"}}})
    ways = {}
    for way in ("status", "resize", "ephemeralcontainers"):
        sent = (f"--subresource={way}", "--type=strategic", f"--patch={forged}")
        ways[way] = refusal(team, "patch", "pod", "mine", *sent)
    # The API server itself takes nothing of the metadata there.
    assert ways == {"status": FENCE, "resize": "", "ephemeralcontainers": ""}
    # What a binding carries is written to its Pod.
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "mine", "annotations": {"closeknit.dev/gpus": "GPU-0"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-1"},
    }
    for path in ("pods/mine/binding", "bindings"):
        raw = f"--raw=/api/v1/namespaces/{team.namespace}/{path}"
        assert refusal(team, "create", "--filename=-", raw, body=binding) == FENCE
    assert "closeknit.dev/gpus" not in team.all("pods")[0]["metadata"].get("annotations", {})


def test_no_way_round_leads_to_a_claims_metadata(team: Bed) -> None:
    team.cluster.apply(made("ResourceClaim", "mine", CLAIM, namespace=team.namespace))
    forged = json.dumps({"metadata": {"annotations": {"closeknit.dev/gpus": "GPU-0"}, "labels": FORGED}})
    status = ("--subresource=status", "--type=merge", f"--patch={forged}")
    team.cluster.kubectl("patch", "resourceclaim", "mine", f"--namespace={team.namespace}", *status)
    metadata = team.all("resourceclaims")[0]["metadata"]
    assert "closeknit.dev" not in json.dumps([metadata.get("annotations"), metadata.get("labels")])


def test_what_was_forged_before_the_fence_stood_lives_and_goes_like_any_pod(team: Bed) -> None:
    with prefix_lifted(team.cluster):
        forged = made("Pod", "forged", POD | {"nodeName": "gpu-1"}, namespace=team.namespace, labels=FORGED)
        team.cluster.apply(forged)
    team.cluster.wait_for(lambda: team.all("pods")[0]["status"].get("phase") == "Running", "it to run")
    assert refusal(team, "label", "pod", "forged", "closeknit.dev/job-", TENANT) == FENCE
    assert refusal(team, "delete", "pod", "forged", TENANT) == ""


def test_a_controller_that_copies_labels_says_why_it_makes_no_pod(team: Bed) -> None:
    template = {"metadata": {"labels": {"app": "copy", **FORGED}}, "spec": POD}
    copy = {"selector": {"matchLabels": {"app": "copy"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "copy"}, "spec": copy}
    assert refusal(team, "create", "--filename=-", TENANT, body=body) == ""

    def failure() -> str | None:
        conditions = team.cluster.get("replicaset", "copy", team.namespace)["status"].get("conditions", [])
        return next((str(each["message"]) for each in conditions if each["type"] == "ReplicaFailure"), None)

    assert team.cluster.wait_for(failure, "the ReplicaSet to fail").endswith(FENCE)
