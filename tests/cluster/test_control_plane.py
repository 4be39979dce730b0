"""The test control plane is a real one: what it runs, what it refuses and what it records."""

import json
import os
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import pytest

from harness.audit import AuditEvent
from harness.kubectl import KubectlError
from harness.local_cluster import LocalCluster
from harness.projects import CHOSEN, USUAL, control_plane

GPUS_PER_NODE = 8


def node(name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    resources = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": dict(annotations or {}), "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def pod(name: str, namespace: str, node_name: str, **spec: Any) -> dict[str, Any]:
    """A Pod that may run on this one node, which is still the scheduler's to choose."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node_name},
            "containers": [{"name": "trainer", "image": "trainer:1"}],
            **spec,
        },
    }


def wait_for_phase(cluster: LocalCluster, name: str, namespace: str, phase: str) -> dict[str, Any]:
    def in_phase() -> dict[str, Any] | None:
        found = cluster.get("pod", name, namespace)
        return found if found["status"].get("phase") == phase else None

    return cluster.wait_for(in_phase, f"Pod {name} to be {phase}")


def ready(found: Mapping[str, Any]) -> str | None:
    """The status of the node's Ready condition; None where nobody has reported one."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((condition["status"] for condition in conditions if condition["type"] == "Ready"), None)


@pytest.fixture
def kwok_node(local_cluster: LocalCluster, namespace: str) -> Iterator[str]:
    name = f"kwok-of-{namespace}"
    local_cluster.apply(node(name, {"kwok.x-k8s.io/node": "fake"}))
    local_cluster.wait_for(lambda: ready(local_cluster.get("node", name)) == "True", f"node {name} to be Ready")
    yield name
    local_cluster.kubectl("delete", "node", name)


def test_client_and_server_are_the_pinned_kubernetes(local_cluster: LocalCluster) -> None:
    versions = json.loads(local_cluster.kubectl("version", "--output=json"))
    pinned = next(project.version for project in control_plane() if project.name == "kubernetes")
    assert pinned.startswith(f"v{os.environ.get(CHOSEN) or USUAL}.")
    assert versions["clientVersion"]["gitVersion"] == pinned
    assert versions["serverVersion"]["gitVersion"] == pinned


class TestWhoMayDoWhat:
    def test_a_pod_bound_token_names_its_node(
        self, local_cluster: LocalCluster, namespace: str, kwok_node: str
    ) -> None:
        local_cluster.apply(pod("agent", namespace, kwok_node))
        wait_for_phase(local_cluster, "agent", namespace, "Running")
        login = local_cluster.service_account_kubeconfig(namespace, "default", pod="agent")
        who = json.loads(local_cluster.kubectl("auth", "whoami", "--output=json", kubeconfig=login))["status"][
            "userInfo"
        ]
        assert who["username"] == f"system:serviceaccount:{namespace}:default"
        assert who["extra"]["authentication.kubernetes.io/node-name"] == [kwok_node]
        assert who["extra"]["authentication.kubernetes.io/pod-name"] == ["agent"]

    def test_a_token_without_a_pod_names_no_node(self, local_cluster: LocalCluster, namespace: str) -> None:
        login = local_cluster.service_account_kubeconfig(namespace, "default")
        who = json.loads(local_cluster.kubectl("auth", "whoami", "--output=json", kubeconfig=login))["status"][
            "userInfo"
        ]
        assert who["username"] == f"system:serviceaccount:{namespace}:default"
        assert "authentication.kubernetes.io/node-name" not in who["extra"]

    def test_what_no_role_grants_is_forbidden(self, local_cluster: LocalCluster, namespace: str) -> None:
        login = local_cluster.service_account_kubeconfig(namespace, "default")
        with pytest.raises(KubectlError) as refusal:
            local_cluster.kubectl("get", "nodes", kubeconfig=login)
        assert refusal.value.returncode == 1
        assert refusal.value.stderr == (
            f'Error from server (Forbidden): nodes is forbidden: User "system:serviceaccount:{namespace}:default" '
            'cannot list resource "nodes" in API group "" at the cluster scope\n'
        )

    def test_blocking_an_owners_deletion_needs_a_right_on_the_owner(
        self, local_cluster: LocalCluster, namespace: str
    ) -> None:
        edit = ["--clusterrole=edit", f"--serviceaccount={namespace}:default", f"--namespace={namespace}"]
        local_cluster.kubectl("create", "rolebinding", "editor", *edit)
        login = local_cluster.service_account_kubeconfig(namespace, "default")
        may_create = ["auth", "can-i", "create", "configmaps", f"--namespace={namespace}"]
        local_cluster.wait_for(
            lambda: "yes" in local_cluster.kubectl(*may_create, kubeconfig=login, check=False),
            "the role binding to be effective",
        )
        owner = local_cluster.get("namespace", namespace)["metadata"]
        child = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "child",
                "namespace": namespace,
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Namespace",
                        "name": namespace,
                        "uid": owner["uid"],
                        "blockOwnerDeletion": True,
                    }
                ],
            },
        }
        with pytest.raises(KubectlError, match="cannot set blockOwnerDeletion"):
            local_cluster.kubectl("create", "--filename=-", stdin=json.dumps(child), kubeconfig=login)


class TestNodesAndPods:
    def test_kwok_keeps_the_capacity_that_its_node_was_created_with(
        self, local_cluster: LocalCluster, kwok_node: str
    ) -> None:
        status = local_cluster.get("node", kwok_node)["status"]
        assert status["capacity"]["nvidia.com/gpu"] == str(GPUS_PER_NODE)
        assert status["allocatable"]["nvidia.com/gpu"] == str(GPUS_PER_NODE)
        assert status["addresses"] == [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": kwok_node},
        ]

    def test_kwok_leaves_other_nodes_alone(self, local_cluster: LocalCluster, kwok_node: str, namespace: str) -> None:
        name = f"real-of-{namespace}"
        local_cluster.apply(node(name))
        later = f"{kwok_node}-later"  # once kwok has played this one it had seen the other, too
        local_cluster.apply(node(later, {"kwok.x-k8s.io/node": "fake"}))
        local_cluster.wait_for(lambda: ready(local_cluster.get("node", later)) == "True", f"node {later} to be Ready")
        assert ready(local_cluster.get("node", name)) is None
        local_cluster.kubectl("delete", "node", name, later)

    @pytest.mark.parametrize(
        ("end", "phase", "exit_code"),
        [
            pytest.param("succeed", "Succeeded", 0, id="a Pod told to succeed ends with exit code 0"),
            pytest.param("fail", "Failed", 1, id="a Pod told to fail ends with exit code 1"),
        ],
    )
    def test_a_pod_is_bound_runs_and_ends(
        self, local_cluster: LocalCluster, namespace: str, kwok_node: str, end: str, phase: str, exit_code: int
    ) -> None:
        local_cluster.apply(pod("rank-0", namespace, kwok_node))
        running = wait_for_phase(local_cluster, "rank-0", namespace, "Running")
        assert running["spec"]["nodeName"] == kwok_node
        assert ready(running) == "True"
        local_cluster.kubectl(
            "annotate", "pod", "rank-0", f"--namespace={namespace}", f"harness.closeknit.dev/exit={end}"
        )
        ended = wait_for_phase(local_cluster, "rank-0", namespace, phase)
        assert ready(ended) == "False"
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == exit_code

    def test_a_deleted_pods_children_are_collected(
        self, local_cluster: LocalCluster, namespace: str, kwok_node: str
    ) -> None:
        local_cluster.apply(pod("owner", namespace, kwok_node))
        owner = wait_for_phase(local_cluster, "owner", namespace, "Running")["metadata"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner["uid"]}
        metadata = {"name": "child", "namespace": namespace, "ownerReferences": [reference]}
        local_cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        local_cluster.kubectl("delete", "pod", "owner", f"--namespace={namespace}")
        local_cluster.wait_for(
            lambda: (
                not local_cluster.kubectl("get", "configmap", "child", f"--namespace={namespace}", "--ignore-not-found")
            ),
            "the child to be collected",
        )

    def test_a_claim_gets_the_one_device_that_it_names(
        self, local_cluster: LocalCluster, namespace: str, kwok_node: str
    ) -> None:
        driver = f"{namespace}.example.com"
        devices = [{"name": f"gpu-{i}", "attributes": {"uuid": {"string": f"GPU-{i}"}}} for i in range(4)]
        selector = f"device.attributes['{driver}'].uuid == 'GPU-2'"
        request = {
            "name": "gpus",
            "exactly": {"deviceClassName": driver, "selectors": [{"cel": {"expression": selector}}]},
        }
        local_cluster.apply(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": driver},
                "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
            },
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": driver},
                "spec": {
                    "driver": driver,
                    "nodeName": kwok_node,
                    "pool": {"name": kwok_node, "generation": 1, "resourceSliceCount": 1},
                    "devices": devices,
                },
            },
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "pinned", "namespace": namespace},
                "spec": {"devices": {"requests": [request]}},
            },
            pod("rank-0", namespace, kwok_node, resourceClaims=[{"name": "gpus", "resourceClaimName": "pinned"}]),
        )
        wait_for_phase(local_cluster, "rank-0", namespace, "Running")
        claim = local_cluster.get("resourceclaim", "pinned", namespace)
        assert [result["device"] for result in claim["status"]["allocation"]["devices"]["results"]] == ["gpu-2"]
        local_cluster.kubectl("delete", "deviceclass,resourceslice", driver)


class TestAuditLog:
    def test_it_orders_the_writes_and_tells_who_wrote_what(
        self, local_cluster: LocalCluster, namespace: str, kwok_node: str
    ) -> None:
        local_cluster.apply(pod("rank-0", namespace, kwok_node, schedulingGates=[{"name": "closeknit.dev/gang"}]))
        ungate = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
        patch = ["patch", "pod", "rank-0", f"--namespace={namespace}"]
        local_cluster.kubectl(*patch, "--type=json", f"--patch={ungate}", "--dry-run=server")
        local_cluster.kubectl(*patch, "--type=json", f"--patch={ungate}")
        wait_for_phase(local_cluster, "rank-0", namespace, "Running")
        local_cluster.kubectl("delete", "pod", "rank-0", f"--namespace={namespace}")

        def pod_writes() -> list[AuditEvent] | None:
            writes = [
                event
                for event in local_cluster.audit_events()
                if (event.namespace, event.resource, event.name) == (namespace, "pods", "rank-0") and event.code < 300
            ]
            return writes if (writes[-1].verb, writes[-1].user) == ("delete", "kwok") else None

        writes = local_cluster.wait_for(pod_writes, "the audit log to have the deletion by kwok")
        told = [(each.user, each.verb, each.subresource, each.code, each.dry_run) for each in writes]
        assert [each for each, _ in groupby(told)] == [  # kwok deletes twice where it hears of the first too late
            ("admin", "create", "", 201, False),
            ("admin", "patch", "", 200, True),
            ("admin", "patch", "", 200, False),
            ("system:kube-scheduler", "create", "binding", 201, False),
            ("kwok", "patch", "status", 200, False),
            ("admin", "delete", "", 200, False),
            ("kwok", "delete", "", 200, False),
        ]
        created, dry_run, ungated = writes[0], writes[1], next(each for each in writes[2:] if each.verb == "patch")
        assert created.body["spec"]["schedulingGates"] == [{"name": "closeknit.dev/gang"}]
        assert ungated.body == json.loads(ungate)
        assert "schedulingGates" not in ungated.response["spec"]
        assert created.revision is not None and ungated.revision is not None
        assert created.revision < ungated.revision
        assert dry_run.revision is None
        assert created.received <= created.at <= ungated.received <= ungated.at

    def test_it_holds_refusals_and_no_tokens(self, local_cluster: LocalCluster, namespace: str) -> None:
        login = local_cluster.service_account_kubeconfig(namespace, "default")
        local_cluster.kubectl(
            "create", "configmap", "refused", f"--namespace={namespace}", kubeconfig=login, check=False
        )

        def refusal() -> AuditEvent | None:
            user = f"system:serviceaccount:{namespace}:default"
            return next((event for event in local_cluster.audit_events() if event.user == user), None)

        refused = local_cluster.wait_for(refusal, "the refusal in the audit log")
        assert (refused.verb, refused.resource, refused.code, refused.revision) == ("create", "configmaps", 403, None)
        events = local_cluster.audit_events()
        token_request = next(each for each in events if (each.namespace, each.subresource) == (namespace, "token"))
        assert (token_request.user, token_request.body, token_request.response) == ("admin", None, None)
