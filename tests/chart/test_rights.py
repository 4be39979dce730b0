"""What the chart's roles grant to operator and agent, and what never."""

from pathlib import Path
from typing import Any

import pytest

from closeknit.cluster.store.watched_kinds import KINDS
from closeknit.controller.leader.leadership import LEASE_NAME
from harness.chart import NAMESPACE, render

Object = dict[str, Any]


def granted(role: Object) -> set[tuple[str, str]]:
    """(resource, verb) of a role."""
    return {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


def test_the_agent_may_read_and_patch_a_node_and_its_topology_and_read_slices(objects: dict[str, Object]) -> None:
    assert granted(objects["ClusterRole closeknit-agent"]) == {
        ("nodes", "get"),
        ("nodes", "patch"),
        ("nodetopologies", "get"),
        ("nodetopologies", "create"),
        ("nodetopologies", "patch"),
        ("nodetopologies/status", "patch"),
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
        ("resourceslices", "list"),
    }


def test_the_operator_may_not_do_what_would_make_it_an_administrator(objects: dict[str, Object]) -> None:
    may = granted(objects["ClusterRole closeknit-operator"])
    resources = {resource for resource, _ in may}
    assert "*" not in {word for grant in may for word in grant}
    assert not resources & {"secrets", "pods/exec", "nodes/proxy", "serviceaccounts", "serviceaccounts/token", "roles"}
    assert not {verb for _, verb in may} & {"escalate", "bind", "impersonate", "deletecollection"}
    assert {verb for resource, verb in may if resource == "trainingjobs"} == {
        "get",
        "list",
        "watch",
        "delete",  # of jobs that are over and say so: the policy closeknit-operator-jobs
    }
    assert {verb for resource, verb in may if resource == "nodes"} == {"list", "watch"}
    # What it writes of a job's children is a role of its own.
    assert {resource for resource, verb in may if verb not in ("get", "list", "watch")} == {
        "trainingjobs",
        "trainingjobs/status",
        "clustertopologies/status",
        "nodetopologies/status",  # runEnds and lemon alone: the policy closeknit-operator-nodetopologies
        "events",
        "tokenreviews",
        "subjectaccessreviews",
    }
    # Its own Lease, and no other.
    lease = objects["Role closeknit-operator"]
    assert lease["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [LEASE_NAME],
            "verbs": ["get", "patch"],
        },
    ]
    assert lease["metadata"]["namespace"] == NAMESPACE
    assert granted(objects["ClusterRole closeknit-operator-children"]) == {
        ("pods", "create"),
        ("pods", "delete"),
        ("pods", "patch"),  # activeDeadlineSeconds alone: the policy closeknit-prefix
        ("pods/status", "patch"),  # the condition DisruptionTarget alone: closeknit-operator-disruptions
        ("services", "create"),
        ("services", "delete"),
        ("resourceclaims", "create"),
        ("configmaps", "create"),
        ("configmaps", "get"),
        ("secrets", "create"),
        ("computedomains", "create"),
        ("computedomains", "get"),
    }


def test_the_operator_taints_devices_only_where_that_is_wanted(helm_program: Path) -> None:
    def rights(*options: str) -> set[str]:
        found = {f"{each['kind']} {each['metadata']['name']}": each for each in render(helm_program, *options)}
        role = granted(found["ClusterRole closeknit-operator"])
        has_policy = "ValidatingAdmissionPolicy closeknit-operator-devicetaintrules" in found
        (container,) = found["Deployment closeknit-operator"]["spec"]["template"]["spec"]["containers"]
        told = {each for each in container["args"] if each.startswith("--device-taints")}
        return told | {verb for resource, verb in role if resource == "devicetaintrules"} | {f"policy {has_policy}"}

    reads = {"list", "watch"}
    assert rights() == reads | {"policy False"}
    for taints in ("DryRun", "NoSchedule"):
        wanted = reads | {"create", "delete", f"--device-taints={taints}", "policy True"}
        assert rights(f"--set=operator.deviceTaints={taints}") == wanted


def test_kueue_and_autoscalers_are_reached_only_where_that_is_wanted(helm_program: Path) -> None:
    kinds = {"workloads", "workloads/status", "resourceflavors", "workloadpriorityclasses"}
    asked = {"provisioningrequests", "podtemplates"}

    def found(*options: str) -> tuple[dict[str, set[str]], set[str]]:
        """Verbs by resource, and the arguments about it."""
        objects = {f"{each['kind']} {each['metadata']['name']}": each for each in render(helm_program, *options)}
        roles = (objects["ClusterRole closeknit-operator"], objects["ClusterRole closeknit-operator-children"])
        rights: dict[str, set[str]] = {}
        for resource, verb in (right for role in roles for right in granted(role)):
            if resource in kinds | asked:
                rights.setdefault(resource, set()).add(verb)
        (container,) = objects["Deployment closeknit-operator"]["spec"]["template"]["spec"]["containers"]
        options_of = ("--provisioning-class", "--node-groups", "--placeholder-image")
        told = {each for each in container["args"] if each.startswith(options_of)}
        fences = {f"ValidatingAdmissionPolicy closeknit-operator-{each}" for each in ("workloads", "placeholders")}
        return rights, told | (fences | {"PriorityClass closeknit-placeholder"}) & objects.keys()

    reads = {"list", "watch"}
    assert found() == ({}, set())
    rights, fenced = found("--set=kueue.enabled=true")
    assert rights == {
        "workloads": reads | {"create", "delete", "patch"},
        "workloads/status": {"patch"},
        "resourceflavors": reads,
        "workloadpriorityclasses": reads,
    }
    assert fenced == {"ValidatingAdmissionPolicy closeknit-operator-workloads"}
    rights, told = found("--set=capacity.enabled=true,capacity.nodeGroups[0].name=a,capacity.nodeGroups[0].gpus=8")
    assert rights == {"provisioningrequests": reads | {"create", "delete"}, "podtemplates": {"create"}}
    (image,) = (each for each in told if each.startswith("--placeholder-image="))
    assert image.endswith("/closeknit/operator:0.1.0")
    assert told - {image} == {
        "--provisioning-class=Never",
        '--node-groups=[{"gpus":8,"name":"a"}]',
        "PriorityClass closeknit-placeholder",
        "ValidatingAdmissionPolicy closeknit-operator-placeholders",
    }


def test_the_operator_may_list_and_watch_the_kinds_that_it_watches_and_no_others(helm_program: Path) -> None:
    group = "capacity.enabled=true,capacity.nodeGroups[0].name=a,capacity.nodeGroups[0].gpus=8"
    (role,) = (
        each
        for each in render(helm_program, f"--set=kueue.enabled=true,{group}")
        if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", "closeknit-operator")
    )
    watched = {
        (group, resource)
        for rule in role["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert watched == {(kind.group, kind.plural) for kind in KINDS}


def test_of_leases_the_operator_may_list_those_of_kubelets(objects: dict[str, Object]) -> None:
    role, binding = (objects[f"{kind} closeknit-operator-node-leases"] for kind in ("Role", "RoleBinding"))
    assert granted(role) == {("leases", "list")}
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {"kube-node-lease"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "closeknit-operator", "namespace": NAMESPACE}]


def test_what_the_operator_writes_can_be_bound_to_namespaces(helm_program: Path) -> None:
    def bound(*options: str) -> list[tuple[str, str]]:
        """(kind, namespace) of the bindings of what it writes."""
        role = "closeknit-operator-children"
        bindings = [each for each in render(helm_program, *options) if each.get("roleRef", {}).get("name") == role]
        subject = {"kind": "ServiceAccount", "name": "closeknit-operator", "namespace": NAMESPACE}
        assert all(each["subjects"] == [subject] for each in bindings)
        return [(each["kind"], each["metadata"].get("namespace", "")) for each in bindings]

    assert bound() == [("ClusterRoleBinding", "")]
    assert bound('--set-json=rbac.namespaces=["team","123"]') == [("RoleBinding", "team"), ("RoleBinding", "123")]


@pytest.mark.parametrize("is_on", [True, False])
def test_the_map_is_served_to_those_whom_a_role_of_its_own_lets(helm_program: Path, *, is_on: bool) -> None:
    rendered = render(helm_program, f"--set=map.enabled={str(is_on).lower()}")
    found = {f"{each['kind']} {each['metadata']['name']}": each for each in rendered}
    (container,) = found["Deployment closeknit-operator"]["spec"]["template"]["spec"]["containers"]
    assert ("--no-map" in container["args"]) is not is_on
    role = found.get("ClusterRole closeknit-map-viewer")
    assert (role and role["rules"]) == ([{"nonResourceURLs": ["/map/stream"], "verbs": ["get"]}] if is_on else None)
