"""A job that waits for GPUs asks an autoscaler for nodes, on the real control plane with the real kind. The autoscaler
is played by the test: its answer, and a node that comes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from harness.foreign_crds import provisioning_crd
from harness.install import start_agents
from harness.kubectl import KubectlError
from harness.machines import node_object
from harness.operator_bed import ON_PLUGIN_PROFILE, Bed, standing

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


class AskingBed(Bed):
    """Its jobs ask for nodes."""

    options: ClassVar[tuple[str, ...]] = (f"--provisioning-class={CLASS}",)
    chart: ClassVar[tuple[str, ...]] = ("--set=capacity.enabled=true",)


@pytest.fixture(scope="module")
def scaled() -> Iterator[AskingBed]:
    with standing(AskingBed, ("gpu-1",), ()) as bed:
        bed.cluster.apply(provisioning_crd())
        bed.cluster.wait_for(lambda: is_served(bed), "the kind to be served")
        bed.restart()  # which looks for kinds that were not served once a minute
        yield bed


def is_served(bed: Bed) -> bool:
    try:
        return not bed.cluster.get("provisioningrequests")["items"]
    except KubectlError:
        return False


def told(bed: Bed) -> str:
    found: str = bed.job()["status"].get("pending", {}).get("message", "")
    return found


def test_nodes_are_asked_for_measured_and_used(scaled: AskingBed) -> None:
    bed = scaled
    bed.begin("scaled")
    bed.submit(gpus=16)
    bed.wait_for_reason("InsufficientGPUs")
    # It asks half a minute later, and looks for who waits every five seconds.
    (asked,) = bed.cluster.wait_for(lambda: bed.all("provisioningrequests") or None, "the request", 60)
    assert (asked["spec"]["provisioningClassName"], asked["spec"]["podSets"][0]["count"]) == (CLASS, 2)
    name = asked["metadata"]["name"]
    template = bed.cluster.get("podtemplate", name, bed.namespace)
    assert template["metadata"]["ownerReferences"][0]["uid"] == asked["metadata"]["uid"]
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "8"

    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = {
        "type": "Provisioned",
        "status": "True",
        "reason": "Provisioned",
        "message": "",
        "lastTransitionTime": now,
    }
    bed.cluster.patch(
        "provisioningrequest", name, {"status": {"conditions": [answer]}}, bed.namespace, subresource="status"
    )
    node: dict[str, Any] = node_object("gpu-2", ON_PLUGIN_PROFILE, plugin=True, rdma=8)
    bed.cluster.apply(node)
    assert not bed.job()["status"].get("placement")  # it is there, and nobody has measured it
    start_agents(bed.cluster, [{"name": "gpu-2", "profile": ON_PLUGIN_PROFILE}])
    running = bed.wait_for_state("Running")
    assert [each["name"] for each in running["placement"]["nodes"]] == ["gpu-1", "gpu-2"]
    bed.cluster.wait_for(lambda: not bed.all("provisioningrequests"), "the request to be taken back")
