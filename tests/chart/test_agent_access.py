"""How the agent's Pod reaches the GPUs: by NVIDIA's runtime class, or by a claim that the API server admits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.chart import CHART, render
from harness.kubectl import KubectlError
from harness.local_cluster import LocalCluster
from harness.machines import OTHER_TEAM, device_class, node_object, notebook, resource_slices

CLAIM = "--set=agent.access=Claim"
WANTED = ("ServiceAccount", "DaemonSet", "ResourceClaimTemplate")
NODE = "access-gpu"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
ADMIN = {"resource.kubernetes.io/admin-access": "true"}


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (daemonset,) = (each for each in objects if each["kind"] == "DaemonSet")
    pod: dict[str, Any] = daemonset["spec"]["template"]["spec"]
    return pod


def test_either_way_is_all_of_it(helm_program: Path) -> None:
    by_class, by_claim = pod_of(render(helm_program)), pod_of(render(helm_program, CLAIM))
    assert (by_class["runtimeClassName"], by_class.get("resourceClaims")) == ("nvidia", None)
    assert "runtimeClassName" not in by_claim
    assert by_claim["containers"][0]["resources"]["claims"] == [{"name": "gpus"}]
    names = [[variable["name"] for variable in pod["containers"][0]["env"]] for pod in (by_class, by_claim)]
    assert names == [["NODE_NAME", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"], ["NODE_NAME"]]
    assert "ResourceClaimTemplate" not in {each["kind"] for each in render(helm_program)}
    assert "ResourceClaimTemplate" not in {
        each["kind"] for each in render(helm_program, CLAIM, "--set=agent.enabled=false")
    }


def test_who_sees_the_processes_of_others_has_the_user_of_none(helm_program: Path) -> None:
    container = pod_of(render(helm_program, "--set=agent.hostPID=true"))["containers"][0]["securityContext"]
    assert (container["runAsUser"], container["runAsGroup"]) == (65532, 65532)


def test_images_and_pods_have_one_user(helm_program: Path) -> None:
    files = (CHART.parents[1] / folder / "Dockerfile" for folder in ("operator", "node-agent"))
    users = {re.search(r"^USER (\d+):(\d+)$", file.read_text(), re.MULTILINE) for file in files}
    security = pod_of(render(helm_program))["securityContext"]
    assert {match and match.groups() for match in users} == {
        (str(security["runAsUser"]), str(security["runAsGroup"])),
    }
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 1000)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    container = pod_of(render(helm_program))["containers"][0]["securityContext"]
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_namespace_without_the_label_is_told(local_cluster: LocalCluster, helm_program: Path) -> None:
    name = "access-unlabelled"
    local_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    objects = render(helm_program, CLAIM, namespace=name)
    (template,) = (each for each in objects if each["kind"] == "ResourceClaimTemplate")
    with pytest.raises(
        KubectlError, match=r"admin access to devices requires the `?resource.kubernetes.io/admin-access"
    ):
        local_cluster.kubectl("create", "--filename=-", stdin=json.dumps(template))
    local_cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_an_upgrade_changes_no_claim_template(local_cluster: LocalCluster, helm_program: Path) -> None:
    """The API server lets nothing in one be changed, and each version of the chart has labels of its own."""
    name = "access-upgrade"
    local_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": ADMIN}})
    for options in ((), ("--set=commonLabels.team=infra",), ()):
        objects = render(helm_program, CLAIM, *options, namespace=name)
        (template,) = (each for each in objects if each["kind"] == "ResourceClaimTemplate")
        local_cluster.kubectl("apply", "--filename=-", stdin=json.dumps(template))
        named = [claim["resourceClaimTemplateName"] for claim in pod_of(objects)["resourceClaims"]]
        assert named == [template["metadata"]["name"]]
    local_cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_the_claim_looks_at_gpus_that_others_hold(local_cluster: LocalCluster, helm_program: Path) -> None:
    """Under Pod Security's restricted level; somebody holds all of them."""
    name = "access-claim"
    for namespace, labels in ((name, RESTRICTED | ADMIN), (OTHER_TEAM, {})):
        metadata = {"name": namespace, "labels": labels}
        local_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    local_cluster.wait_for_default_account(OTHER_TEAM)
    labels = {"nvidia.com/gpu.present": "true"}
    local_cluster.apply(node_object(NODE, "dgx1-v100", plugin=False, labels=labels))
    local_cluster.apply(device_class(), *resource_slices(NODE, "dgx1-v100"))
    local_cluster.apply(*notebook(NODE, range(8)))

    def claims(namespace: str) -> list[list[dict[str, Any]]]:
        """The devices of each claim that has any."""
        found = local_cluster.get("resourceclaims", namespace=namespace)["items"]
        done = [each for each in found if "allocation" in each.get("status", {})]
        return [each["status"]["allocation"]["devices"]["results"] for each in done]

    (held,) = local_cluster.wait_for(lambda: claims(OTHER_TEAM), "the notebook to hold all GPUs")
    objects = render(helm_program, CLAIM, namespace=name)
    local_cluster.apply(*(each for each in objects if each["kind"] in WANTED))
    seen = local_cluster.wait_for(lambda: claims(name), "the agent's claim")
    assert {each["device"] for each in seen[0]} == {each["device"] for each in held}
    assert len(held) == 8
    assert all(each["adminAccess"] for each in seen[0])

    def runs() -> bool:
        pods = local_cluster.get("pods", namespace=name)["items"]
        return any(pod["spec"].get("nodeName") == NODE and pod["status"].get("phase") == "Running" for pod in pods)

    local_cluster.wait_for(runs, "the agent to run")
    local_cluster.kubectl("delete", "namespace", name, "--wait=false")
    local_cluster.kubectl("delete", "pod,resourceclaim", "--all", f"--namespace={OTHER_TEAM}", "--wait=false")
    local_cluster.kubectl("delete", "resourceslice", f"{NODE}-gpu.nvidia.com")
    local_cluster.kubectl("delete", "node", NODE)
