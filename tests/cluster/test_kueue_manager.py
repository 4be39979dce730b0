"""The same with Kueue's own manager, of the version that kueue_manager pins: it admits, evicts and admits again."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from harness.foreign_crds import shortened
from harness.kubectl import KubectlError
from harness.kueue_manager import all_crds, start_manager
from harness.operator_bed import DRA_NODES, PLUGIN_NODES, Bed, standing

pytestmark = pytest.mark.long
KUEUE = "kueue.x-k8s.io/v1beta2"
POOL = "example.com/pool"
JOB: dict[str, Any] = {"gpus": 8, "topology": {"gpusPerNode": 8}, "gpu": {"products": ["NVIDIA-H200"]}}


def of_kueue(kind: str, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, **fields}


def queue_of(gpus: int) -> dict[str, Any]:
    """A ClusterQueue of so many GPUs, in which the urgent preempt others."""
    quota = {"name": "nvidia.com/gpu", "nominalQuota": gpus}
    cpus = {"name": "cpu", "nominalQuota": 1000}
    group = {
        "coveredResources": ["nvidia.com/gpu", "cpu"],
        "flavors": [{"name": "reserved", "resources": [quota, cpus]}],
    }
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [group],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    return of_kueue("ClusterQueue", "gpus", spec=spec)


def is_served(bed: Bed) -> bool:
    try:
        return bool(bed.cluster.get("clusterqueues,localqueues,workloads,resourceflavors") is not None)
    except KubectlError:
        return False


@pytest.fixture(scope="module")
def managed() -> Iterator[Bed]:
    with standing(Bed, PLUGIN_NODES, DRA_NODES) as bed:
        files = sorted(all_crds().glob("*.yaml"))
        bed.cluster.apply(*(shortened(yaml.load(each.read_text(), Loader=yaml.CSafeLoader)) for each in files))
        bed.cluster.wait_for(lambda: is_served(bed), "Kueue's kinds to be served")
        bed.cluster.kubectl("label", "node", PLUGIN_NODES[1], f"{POOL}=reserved")
        start_manager(bed.cluster)
        bed.cluster.apply(
            of_kueue("ResourceFlavor", "reserved", spec={"nodeLabels": {POOL: "reserved"}}),
            of_kueue("WorkloadPriorityClass", "urgent", value=1000),
            queue_of(gpus=8),
        )
        bed.restart()
        yield bed


def submit(bed: Bed, name: str, **labels: str) -> None:
    container = {"name": "trainer", "image": "registry.example/train:1", "resources": {"requests": {"cpu": "2"}}}
    queued = {"kueue.x-k8s.io/queue-name": "research", **labels}
    bed.cluster.apply(
        {
            "apiVersion": "closeknit.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": bed.namespace, "labels": queued},
            "spec": {"template": {"spec": {"containers": [container]}}, **JOB},
        }
    )


def condition(bed: Bed, job: str, kind: str) -> tuple[str, str] | None:
    for each in bed.all("workloads"):
        if each["metadata"]["ownerReferences"][0]["name"] == job:
            conditions = each.get("status", {}).get("conditions", [])
            return next(((one["status"], one["reason"]) for one in conditions if one["type"] == kind), None)
    return None


def test_kueue_admits_evicts_and_admits_again(managed: Bed) -> None:
    bed = managed
    bed.begin("queued")
    bed.cluster.apply(of_kueue("LocalQueue", "research", bed.namespace, spec={"clusterQueue": "gpus"}))
    submit(bed, "train")
    first = bed.wait_for_state("Running", "train")
    assert [node["name"] for node in first["placement"]["nodes"]] == [PLUGIN_NODES[1]]
    bed.cluster.wait_for(lambda: condition(bed, "train", "PodsReady") == ("True", "Started"), "the Pods to be told of")

    submit(bed, "waits")
    pending = bed.wait_for_reason("WaitingForKueue", "waits")
    assert "LocalQueue research" in pending["message"]

    submit(bed, "urgent", **{"kueue.x-k8s.io/priority-class": "urgent"})
    bed.wait_for_state("Running", "urgent")  # once the quota of the first was given back
    status = bed.job("train")["status"]
    assert [each["reason"] for each in status["attempts"]] == ["EvictedByKueue"]
    assert condition(bed, "train", "QuotaReserved") in {("False", "Pending"), ("False", "PendingEvaluation")}

    bed.finish("urgent-a1-worker-00000", "succeed")
    bed.wait_for_state("Succeeded", "urgent")
    bed.cluster.wait_for(lambda: condition(bed, "urgent", "Finished") == ("True", "Succeeded"), "the end to be told")
    bed.wait_for_state("Running", "train")  # it has waited longer than the other
    assert bed.job("waits")["status"]["pending"]["reason"] == "WaitingForKueue"

    name = next(each["metadata"]["name"] for each in bed.all("workloads") if "-train-" in each["metadata"]["name"])
    bed.change("workload", name, {"spec": {"active": False}})  # by hand: Kueue evicts it
    bed.wait_for_state("Running", "waits")
    bed.change("workload", name, {"spec": {"active": True}})
    bed.finish("waits-a1-worker-00000", "succeed")
    bed.wait_for_state("Running", "train")
    assert [each["reason"] for each in bed.job("train")["status"]["attempts"]] == ["EvictedByKueue"] * 2


def test_kueues_own_webhook_looks_at_workloads(managed: Bed) -> None:
    """Else the story above would say nothing about what it takes."""
    bed = managed
    bed.begin("hooked")
    container = {"name": "trainer", "resources": {"requests": {"pods": "1"}}}
    pod_set = {"name": "workers", "count": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"queueName": "research", "podSets": [pod_set]}
    made = of_kueue("Workload", "odd", bed.namespace, spec=spec)
    refused = bed.cluster.writer.create(made, dry_run=True).refusal or ""
    assert "the key is reserved for internal kueue use" in refused
