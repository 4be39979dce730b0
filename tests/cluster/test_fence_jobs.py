"""Real jobs through both fences: the policies, and rbac.namespaces with one namespace in it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.admission import may
from harness.api_writer import Login
from harness.chart import NAMESPACE, OPERATOR_USER, render
from harness.install import OPERATOR
from harness.operator_bed import BOTH, ON_PLUGIN, Bed

CHILDREN = "closeknit-operator-children"


def may_create_pods(bed: Bed, namespace: str) -> bool:
    return may(bed.cluster, Login(OPERATOR_USER), "create", "pods", namespace)


@pytest.fixture(scope="module")
def everywhere(running: Bed) -> Iterator[list[dict[str, Any]]]:
    """Takes the right to all namespaces away for this file."""
    (bound,) = (
        each
        for each in render(running.cluster.binaries.helm)
        if each["kind"] == "ClusterRoleBinding" and each["metadata"]["name"] == CHILDREN
    )
    running.cluster.kubectl("delete", "clusterrolebinding", CHILDREN)
    running.cluster.wait_for(lambda: not may_create_pods(running, "default"), "the right to be gone")
    yield [bound]
    running.cluster.apply(bound)
    running.cluster.wait_for(lambda: may_create_pods(running, "default"), "the right to be back")


def serve(bed: Bed) -> None:
    """What the chart makes of rbac.namespaces with this story's namespace in it."""
    value = f"--set-json=rbac.namespaces={json.dumps([bed.namespace])}"
    bindings = [each for each in render(bed.cluster.binaries.helm, value) if each["metadata"]["name"] == CHILDREN]
    assert "ClusterRoleBinding" not in [each["kind"] for each in bindings]
    bed.cluster.apply(*(each for each in bindings if each["kind"] == "RoleBinding"))
    bed.cluster.wait_for(lambda: may_create_pods(bed, bed.namespace), "the right in this namespace")
    assert not may_create_pods(bed, "default")


@pytest.mark.usefixtures("everywhere")
@BOTH
def test_a_job_starts_restarts_pauses_and_ends(bed: Bed, spec: dict[str, Any], nodes: tuple[str, ...]) -> None:
    serve(bed)
    bed.submit(**spec)
    bed.wait_for_state("Running")
    assert bed.nodes_of_pods() == list(nodes)
    bed.delete("pod", "train-a1-worker-00001")
    bed.cluster.wait_for(lambda: bed.job()["status"].get("attempt") == 2, "the next attempt")
    bed.wait_for_state("Running")
    assert bed.names("services") == ["train-a2"]
    bed.change("trainingjob", "train", {"spec": {"suspend": True}})
    bed.wait_for_state("Suspended")
    bed.wait_for_nothing()
    bed.change("trainingjob", "train", {"spec": {"suspend": False}})
    bed.wait_for_state("Running")
    for pod in bed.names("pods"):
        bed.finish(pod, "succeed")
    bed.wait_for_state("Succeeded")
    bed.delete("trainingjob", "train")
    bed.wait_for_nothing()
    assert {event.code for event in bed.writes() if event.resource != "events"} <= {200, 201, 404}


@pytest.mark.usefixtures("everywhere")
def test_pods_that_the_operator_may_not_delete_any_more_are_told_of_until_they_are_gone(bed: Bed) -> None:
    serve(bed)
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    bed.cluster.kubectl("delete", "rolebinding", CHILDREN, f"--namespace={bed.namespace}")
    bed.cluster.wait_for(lambda: not may_create_pods(bed, bed.namespace), "the right to be gone")
    bed.change("trainingjob", "train", {"spec": {"suspend": True}})
    bed.cluster.wait_for(lambda: "no right to delete Pods" in placed(bed), "the status to say so")
    assert placed(bed) == (
        "spec.suspend is true: Pod train-a1-worker-00000 and 1 more could not be deleted, and may run on and keep "
        f"GPUs: the operator has no right to delete Pods in namespace {bed.namespace}; have an administrator add "
        f"{bed.namespace} to rbac.namespaces of closeknit's chart again, or delete them yourself"
    )
    assert len(bed.names("pods")) == 2
    serve(bed)
    bed.cluster.wait_for(lambda: bed.names("pods") == [], "the Pods to be gone", 60)  # asked for every 30 s by then
    bed.cluster.wait_for(lambda: "no right" not in placed(bed), "the status to say that")


@pytest.mark.usefixtures("everywhere")
def test_a_job_under_an_account_that_the_operator_may_not_use_is_refused_before_anything_is_made(bed: Bed) -> None:
    serve(bed)
    rbac, here = "rbac.authorization.k8s.io/v1", {"name": "robot", "namespace": bed.namespace}
    bed.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here})
    container = {"name": "trainer", "image": "registry.example/train:1"}
    bed.submit(**ON_PLUGIN, template={"spec": {"containers": [container], "serviceAccountName": "robot"}})
    message = bed.wait_for_reason("TemplateInvalid")["message"]
    assert message.startswith("spec.template.spec.serviceAccountName is robot, which the operator has no right to use")
    rule = {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["robot"], "verbs": ["use"]}
    user = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "robot"}
    bed.cluster.apply(
        {"apiVersion": rbac, "kind": "Role", "metadata": here, "rules": [rule]},
        {"apiVersion": rbac, "kind": "RoleBinding", "metadata": here, "roleRef": role, "subjects": [user]},
    )
    may_use = ("auth", "can-i", "use", "serviceaccounts/robot", f"--namespace={bed.namespace}")
    who = f"--as=system:serviceaccount:{NAMESPACE}:{OPERATOR}"
    bed.cluster.wait_for(lambda: bed.cluster.kubectl(*may_use, who, check=False) == "yes\n", "the right to be there")
    assert [event for event in bed.writes() + bed.writes(dry_run=True) if event.resource in {"services", "pods"}] == []
    bed.change("trainingjob", "train", {"spec": {"queue": "again"}})  # another generation is asked about at once
    bed.wait_for_state("Running")
    assert {pod["spec"]["serviceAccountName"] for pod in bed.all("pods")} == {"robot"}


@pytest.mark.usefixtures("everywhere")
def test_a_template_with_fields_that_say_nothing_runs_through_both_policies(bed: Bed) -> None:
    serve(bed)
    unset = {"hostNetwork": False, "hostPID": False, "hostIPC": False, "schedulerName": "", "nodeName": ""}
    unset |= {"hostname": "", "subdomain": "", "priorityClassName": ""}
    container = {"name": "trainer", "image": "registry.example/train:1"}
    bed.submit(**ON_PLUGIN, template={"spec": {"containers": [container], **unset}})
    bed.wait_for_state("Running")


def placed(bed: Bed) -> str:
    (condition,) = (each for each in bed.job()["status"]["conditions"] if each["type"] == "Placed")
    return str(condition["message"])


@pytest.mark.usefixtures("everywhere")
def test_a_job_elsewhere_is_refused_by_name_and_served_once_it_may_be(bed: Bed) -> None:
    bed.submit(**ON_PLUGIN)
    message = bed.wait_for_reason("NamespaceNotServed")["message"]
    assert message == (
        f"the operator has no right to create a Service in namespace {bed.namespace}; have an administrator add "
        f"{bed.namespace} to rbac.namespaces of closeknit's chart, or create the job in a namespace that is listed "
        "there"
    )
    assert bed.names("pods") == bed.names("services") == []
    assert "placement" not in bed.job()["status"]
    bed.cluster.wait_for(lambda: bed.told()[-1:] == ["NamespaceNotServed"], "the Event")
    # What it would have got is free, and it is not asked for again and again.
    bed.submit("other", gpus=64)
    bed.wait_for_reason("InsufficientGPUs", "other")
    assert [event.code for event in bed.writes() + bed.writes(dry_run=True) if event.resource == "services"] == [403]
    serve(bed)
    bed.change("trainingjob", "train", {"spec": {"queue": "again"}})  # another generation is asked about at once
    bed.wait_for_state("Running")
