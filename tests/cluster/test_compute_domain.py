"""NVLink between nodes on the real control plane: the ComputeDomain of an attempt, its Pods' channels, and their fence.

NVIDIA's driver is played by this test: its kind, its DeviceClass, a channel on each node, and its controller's one act.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from closeknit.api.names import IMEX_CHANNELS
from harness.chart import NAMESPACE, wait_for_policies
from harness.install import OPERATOR
from harness.kubectl import KubectlError
from harness.operator_bed import DRA_NODES, ON_DRA, Bed

Object = dict[str, Any]
GROUP, DRIVER = "resource.nvidia.com", "compute-domain.nvidia.com"
OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"computedomains.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "ComputeDomain", "plural": "computedomains", "singular": "computedomain"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OPEN}}],
    },
}
CLASS: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": IMEX_CHANNELS},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}


def channel(node: str) -> Object:
    """The node's one IMEX channel."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "channel-0"}],
        },
    }


def template(name: str, namespace: str) -> Object:
    """What NVIDIA's controller makes of a ComputeDomain."""
    request = {"name": "channel", "exactly": {"deviceClassName": IMEX_CHANNELS, "count": 1}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


@pytest.fixture(scope="module")
def trays(running: Bed) -> Iterator[Bed]:
    """Two of the nodes are of one NVLink domain, with NVIDIA's driver."""
    running.cluster.apply(CRD, CLASS, *map(channel, DRA_NODES))
    for node in DRA_NODES:
        running.cluster.kubectl("label", "node", node, "nvidia.com/gpu.clique=c0ffee.1")
    running.cluster.wait_for(lambda: _is_served(running), "the kind to be served")
    yield running
    for node in DRA_NODES:
        running.cluster.kubectl("label", "node", node, "nvidia.com/gpu.clique-")
        running.cluster.delete("resourceslice", f"{node}-{DRIVER}")
    running.cluster.delete("deviceclass", IMEX_CHANNELS)
    running.cluster.delete("crd", CRD["metadata"]["name"])


def _is_served(bed: Bed) -> bool:
    try:
        return not bed.cluster.get("computedomains")["items"]
    except KubectlError:
        return False


def test_every_pod_gets_a_channel_of_its_attempts_domain(trays: Bed, bed: Bed) -> None:  # noqa: ARG001 - it labels
    bed.submit(**ON_DRA)
    (domain,) = bed.cluster.wait_for(lambda: bed.all("computedomains"), "the ComputeDomain")
    (service,) = bed.all("services")
    assert domain["metadata"]["ownerReferences"][0]["uid"] == service["metadata"]["uid"]
    wanted = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    assert (domain["metadata"]["name"], wanted) == ("train-a1", "train-a1-imex")
    bed.cluster.apply(template(wanted, bed.namespace))
    bed.wait_for_state("Running")
    held = [each["status"]["allocation"]["devices"]["results"][0] for each in bed.all("resourceclaims")]
    channels = sorted((each["pool"], each["device"]) for each in held if each["driver"] == DRIVER)
    assert channels == [(node, "channel-0") for node in DRA_NODES]
    assert all("NCCL_MNNVL_ENABLE" not in _names(pod) for pod in bed.all("pods"))


def _names(pod: Object) -> set[str]:
    return {each["name"] for each in pod["spec"]["containers"][0]["env"]}


DOMAIN: Object = {
    "apiVersion": f"{GROUP}/v1beta1",
    "kind": "ComputeDomain",
    "metadata": {
        "name": "gone-a1",
        "labels": {"closeknit.dev/job": "gone", "closeknit.dev/attempt": "1"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Service", "name": "gone-a1", "uid": "b3e7a5c0", "controller": True}
        ],
    },
    "spec": {
        "numNodes": 0,
        "channel": {"allocationMode": "Single", "resourceClaimTemplate": {"name": "gone-a1-imex"}},
    },
}
ONE_CHANNEL = "the operator's ComputeDomain hands out one channel a Pod, by a claim template of its attempt"
ATTEMPTS: dict[str, tuple[Callable[[Object], object], str]] = {
    "as launch makes it": (lambda _: None, ""),
    "of nobody": (
        lambda body: body["metadata"].update(ownerReferences=[]),
        "ConfigMap and ComputeDomain, as its controller",
    ),
    "by a name of its own": (lambda body: body["metadata"].update(name="bank"), "a ComputeDomain by job and attempt"),
    "all channels": (lambda body: body["spec"]["channel"].update(allocationMode="All"), ONE_CHANNEL),
    "another's template": (
        lambda body: body["spec"]["channel"].update(resourceClaimTemplate={"name": "theirs"}),
        ONE_CHANNEL,
    ),
    "a number of nodes": (lambda body: body["spec"].update(numNodes=4), ONE_CHANNEL),
}


def test_nothing_else_is_made(trays: Bed) -> None:
    wait_for_policies(trays.cluster, "gpu-1")
    token = trays.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
    said = {}
    for what, (change, _) in ATTEMPTS.items():
        body = deepcopy(DOMAIN)
        change(body)
        said[what] = refusal(trays, token, body)
    assert {what: words for what, words in said.items() if not words.endswith(ATTEMPTS[what][1])} == {}
    assert not said["as launch makes it"]


def refusal(bed: Bed, token: Path, body: Object) -> str:
    try:
        bed.cluster.kubectl(
            "create",
            "--filename=-",
            "--namespace=default",
            "--dry-run=server",
            stdin=json.dumps(body),
            kubeconfig=token,
        )
    except KubectlError as error:
        return error.stderr.strip().rpartition("denied request: ")[2]
    return ""
