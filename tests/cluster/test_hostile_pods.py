"""Pods that say more of themselves than they ask for: a tenant may write them, and they hold nothing by it."""

from collections.abc import Iterator
from typing import Any

import pytest

from closeknit.agent.discovery.simulated.simulation import gpu_uuid
from harness.chart import prefix_lifted
from harness.operator_bed import DRA_NODES, ON_DRA, ON_PLUGIN, PLUGIN_NODES, Bed

NODES = (*PLUGIN_NODES, *DRA_NODES)
NEVER = "11111111-2222-3333-4444-555555555555"  # uid of a TrainingJob that never existed
STAYS = "example.com/stays"  # else the garbage collector takes what has an owner that never was


def lie(bed: Bed, node: str, *, name: str, job: str, uid: str, index: int = 0) -> dict[str, Any]:
    """A Pod on a node that asks for nothing, and says that it has all GPUs there."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": bed.namespace,
            "finalizers": [STAYS],
            "labels": {
                "closeknit.dev/job": job,
                "closeknit.dev/attempt": "1",
                "closeknit.dev/role": "worker",
                "closeknit.dev/index": str(index),
            },
            "annotations": {"closeknit.dev/gpus": ",".join(gpu_uuid(node, gpu) for gpu in range(8))},
            "ownerReferences": [
                {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "name": job, "uid": uid}
            ],
        },
        "spec": {"nodeName": node, "containers": [{"name": "lies", "image": "registry.example/lies:1"}]},
    }


@pytest.fixture
def tenant(bed: Bed) -> Iterator[Bed]:
    """A namespace whose Pods say what they like, as where no policy is, and go at the end, finalizers or not."""
    name = bed.namespace
    with prefix_lifted(bed.cluster):
        yield bed
    bed.namespace = name
    for pod in bed.names("pods"):
        bed.change("pod", pod, {"metadata": {"finalizers": None}})


def forbid_gpus(bed: Bed) -> None:
    hard = {"requests.nvidia.com/gpu": "0", "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "0"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": bed.namespace}}
    bed.cluster.apply({**quota, "spec": {"hard": hard}})


def test_a_pod_that_asks_for_no_gpu_holds_none(tenant: Bed) -> None:
    bed = tenant
    attacker = bed.namespace
    forbid_gpus(bed)
    lies = [
        lie(bed, node, name=f"gone-a1-worker-{index:05d}", job="gone", uid=NEVER, index=index)
        for index, node in enumerate(NODES)
    ]
    bed.cluster.apply(*lies)
    bed.namespace = f"{attacker}-victim"
    bed.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bed.namespace}})
    try:
        bed.submit("plugin", **ON_PLUGIN)
        bed.submit("dra", **ON_DRA)
        for name in ("plugin", "dra"):
            status = bed.wait_for_state("Running", name)
            assert (status["attempt"], status.get("attempts", [])) == (1, [])
        bed.cluster.wait_for(lambda: bed.metric("closeknit_gpus", state="free") == 0, "every GPU to be counted")
    finally:
        bed.cluster.kubectl("delete", "namespace", bed.namespace, "--wait=false")
        bed.namespace = attacker
        bed.cluster.kubectl("delete", "pods", "--all", f"--namespace={attacker}", "--wait=false")


def test_a_tenants_own_child_holds_what_is_booked_for_it(tenant: Bed) -> None:
    bed = tenant
    of_plugin = {"products": ["NVIDIA-H200"]}
    bed.submit("one", gpus=1, gpu=of_plugin)
    bed.wait_for_state("Running", "one")
    node = str(bed.nodes_of_pods()[0])
    every = ",".join(gpu_uuid(node, gpu) for gpu in range(8))
    bed.change("pod", "one-a1-worker-00000", {"metadata": {"annotations": {"closeknit.dev/gpus": every}}})
    bed.cluster.apply(lie(bed, node, name="one-too", job="one", uid=bed.job("one")["metadata"]["uid"]))
    bed.submit("eight", gpus=8, gpu=of_plugin)
    bed.wait_for_state("Running", "eight")
    bed.submit("seven", gpus=7, gpu=of_plugin)
    bed.wait_for_state("Running", "seven")
    for name in ("one", "eight", "seven"):
        assert bed.job(name)["status"]["attempt"] == 1
    assert node in {pod["spec"]["nodeName"] for pod in bed.all("pods") if pod["metadata"]["name"].startswith("seven")}
