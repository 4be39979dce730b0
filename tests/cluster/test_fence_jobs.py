"""Real jobs through both fences: the policies, and rbac.namespaces with one namespace in it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.chart import NAMESPACE, render
from harness.install import OPERATOR
from harness.operator_bed import BOTH, ON_PLUGIN, Bed

CHILDREN = "closeknit-operator-children"


def may_create_pods(bed: Bed, namespace: str) -> bool:
    asked = ("auth", "can-i", "create", "pods", f"--namespace={namespace}")
    who = f"--as=system:serviceaccount:{NAMESPACE}:{OPERATOR}"
    return bed.cluster.kubectl(*asked, who, check=False) == "yes\n"


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
    bed.cluster.wait_for(lambda: bed.told() == ["NamespaceNotServed"], "the Event")
    # What it would have got is free, and it is not asked for again and again.
    bed.submit("other", gpus=64)
    bed.wait_for_reason("InsufficientGPUs", "other")
    assert [event.code for event in bed.writes() + bed.writes(dry_run=True) if event.resource == "services"] == [403]
    serve(bed)
    bed.change("trainingjob", "train", {"spec": {"queue": "again"}})  # another generation is asked about at once
    bed.wait_for_state("Running")
