"""DeviceTaintRules on a real control plane: GPUs that an admin has fenced off are left out, the rest of their node is
not. Elsewhere the API server serves none, as is usual: see test_plan_agrees.py.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.operator_bed import Bed

ONE: dict[str, Any] = {"gpus": 1, "gpu": {"binding": "DRA"}}
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
            "apiVersion": "resource.k8s.io/v1beta2",
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
