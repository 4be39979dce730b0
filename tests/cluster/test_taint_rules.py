"""DeviceTaintRules on a real control plane: GPUs that an admin has fenced off are left out, the rest of their node is
not. Elsewhere Kubernetes 1.36 serves none, as is usual: see test_plan_agrees.py.
"""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.api_writer import Login
from harness.chart import render
from harness.install import start_operator
from harness.local_cluster import is_running
from harness.operator_bed import DRA_NODES, USER, Bed
from harness.programs import NO_TAINT_RULES_BEFORE
from harness.projects import kubernetes_version

pytestmark = pytest.mark.skipif(
    kubernetes_version() < NO_TAINT_RULES_BEFORE,
    reason="no DeviceTaintRules that closeknit reads are served",
)

ONE: dict[str, Any] = {"gpus": 1, "gpu": {"binding": "DRA"}}
MANAGED_BY = "app.kubernetes.io/managed-by"
TOLD_AFTER_S = 1.0  # its watches rest up to a tenth of a second, and two tests share the machine


@pytest.fixture
def fence(bed: Bed) -> Iterator[list[str]]:
    """Names of rules that go with the story."""
    names: list[str] = []
    yield names
    for name in names:
        bed.cluster.delete("devicetaintrules", name)


def taint(bed: Bed, fence: list[str], name: str, **selector: str) -> None:
    fence.append(name)
    bed.cluster.apply(
        {
            "apiVersion": bed.cluster.taint_rule_api,
            "kind": "DeviceTaintRule",
            "metadata": {"name": name},
            "spec": {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": "NoSchedule"}},
        }
    )


def given(bed: Bed, name: str) -> tuple[str, str]:
    """Pool and device that a running job of one GPU has."""
    bed.wait_for_state("Running", name)
    claim = bed.cluster.get("resourceclaim", f"{name}-a1-worker-00000", bed.namespace)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    return result["pool"], result["device"]


def test_a_gpu_that_a_rule_taints_is_not_booked_and_another_of_its_node_is(bed: Bed, fence: list[str]) -> None:
    bed.submit("before", **ONE)
    pool, device = given(bed, "before")
    bed.finish("before-a1-worker-00000", "succeed")
    bed.wait_for_state("Succeeded", "before")
    taint(bed, fence, f"one-{bed.namespace}", driver="gpu.nvidia.com", pool=pool, device=device)
    time.sleep(TOLD_AFTER_S)
    bed.submit("after", **ONE)
    now_pool, now_device = given(bed, "after")
    assert (now_pool == pool, now_device == device) == (True, False)
    assert bed.job("after")["status"].get("attempts", []) == []


def test_a_node_of_which_a_rule_taints_everything_is_told_as_unhealthy(bed: Bed, fence: list[str]) -> None:
    for node in ("gpu-3", "gpu-4"):
        taint(bed, fence, f"{node}-{bed.namespace}", pool=node)
    time.sleep(TOLD_AFTER_S)
    bed.submit(**ONE)
    message = bed.wait_for_reason("InsufficientGPUs")["message"]
    assert "gpu-3 (Unhealthy: none of its 8 GPUs is healthy), gpu-4 (Unhealthy: " in message
    bed.cluster.delete("devicetaintrules", fence.pop())
    assert given(bed, "train")[0] == "gpu-4"


def test_the_operator_taints_a_gpu_that_its_agent_calls_unhealthy_and_nothing_else(bed: Bed) -> None:
    """With the rights that the chart gives for it, and the policy around them."""
    cluster, node = bed.cluster, DRA_NODES[0]
    rendered = render(cluster.binaries.helm, "--set=operator.deviceTaints=NoSchedule")
    named = {"closeknit-operator", "closeknit-operator-devicetaintrules"}
    kinds = {"ClusterRole", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    cluster.apply(*(each for each in rendered if each["kind"] in kinds and each["metadata"]["name"] in named))

    def say(*states: dict[str, Any]) -> None:
        said = cluster.writer.patch("nodetopology", node, {"status": {"gpus": list(states)}}, subresource="status")
        assert said.refusal == ""

    def rules() -> list[dict[str, Any]]:
        found = cluster.get("devicetaintrules")["items"]
        return [each for each in found if each["metadata"].get("labels", {}).get(MANAGED_BY) == "closeknit"]

    for left in rules():  # by a first try: it counts for this one no more than for others
        cluster.delete("devicetaintrules", left["metadata"]["name"])
    say({"index": 2, "state": "Unhealthy", "reasons": ["XID79"]})
    os.kill(bed.pid, signal.SIGKILL)
    try:
        cluster.wait_for(lambda: not is_running(bed.pid), "the operator to end")
        bed.pid = start_operator(cluster, bed.port, *bed.options, "--device-taints=NoSchedule")
        (rule,) = cluster.wait_for(rules, "the rule", 120)  # an agent looks and the operator tells each half minute
        selector, taint = rule["spec"]["deviceSelector"], rule["spec"]["taint"]
        assert (selector["driver"], selector["pool"]) == ("gpu.nvidia.com", node)
        assert (taint["key"], taint["value"], taint["effect"]) == ("closeknit.dev/unhealthy", "XID79", "NoSchedule")
        kept = {"key": "closeknit.dev/unhealthy", "effect": "NoSchedule"}
        for wrong in ({**kept, "key": "example.com/broken"}, {**kept, "effect": "NoExecute"}):
            bad = {"apiVersion": cluster.taint_rule_api, "kind": "DeviceTaintRule", "metadata": {"name": "wrong"}}
            spec = {"deviceSelector": {"driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0"}, "taint": wrong}
            refused = cluster.writer.create({**bad, "spec": spec}, login=Login(USER), dry_run=True).refusal
            assert "the operator taints single GPUs of gpu.nvidia.com with closeknit.dev/unhealthy" in refused
        say()
        cluster.wait_for(lambda: not rules(), "the rule to be taken back", 90)
    finally:
        say()
        bed.restart()
        for name in sorted(named - {"closeknit-operator"}):
            cluster.delete("validatingadmissionpolicybinding", name)
            cluster.delete("validatingadmissionpolicy", name)
