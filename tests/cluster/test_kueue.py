"""Jobs in Kueue's queues on the real control plane, with Kueue's own CRDs. Its manager is played by the test; the long
form, test_kueue_manager.py, has Kueue's own."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.api_writer import Login
from harness.foreign_crds import kueue_crds
from harness.kubectl import KubectlError
from harness.kueue_stand_in import KueueStandIn
from harness.operator_bed import PLUGIN_NODES, USER, Bed

QUEUE = {"kueue.x-k8s.io/queue-name": "research"}
GPUS: dict[str, Any] = {"gpus": 8, "topology": {"gpusPerNode": 8}, "gpu": {"products": ["NVIDIA-H200"]}}
POOL = "example.com/pool"


def flavor(name: str, node_labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": node_labels or {}},
    }


def is_served(bed: Bed) -> bool:
    try:
        return not bed.cluster.get("workloads")["items"]
    except KubectlError:
        return False


@pytest.fixture(scope="module")
def with_kueue(running: Bed) -> Iterator[Bed]:
    """Its kinds are served, and the second node is of a pool."""
    running.cluster.apply(*kueue_crds())
    running.cluster.wait_for(lambda: is_served(running), "Kueue's kinds to be served")
    running.cluster.kubectl("label", "node", PLUGIN_NODES[1], f"{POOL}=reserved")
    running.cluster.apply(flavor("reserved", {POOL: "reserved"}))
    running.restart()  # which looks for kinds that were not served once a minute
    yield running
    running.cluster.kubectl("label", "node", PLUGIN_NODES[1], f"{POOL}-")
    for each in kueue_crds():
        running.cluster.delete("crd", each["metadata"]["name"])


def submit(bed: Bed, **spec: Any) -> None:
    container = {"name": "trainer", "image": "registry.example/train:1", "resources": {"requests": {"cpu": "2"}}}
    bed.cluster.apply(
        {
            "apiVersion": "closeknit.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "train", "namespace": bed.namespace, "labels": QUEUE},
            "spec": {"template": {"spec": {"containers": [container]}}, **GPUS, **spec},
        }
    )


def test_a_job_is_admitted_evicted_and_admitted_again(with_kueue: Bed, bed: Bed) -> None:  # noqa: ARG001 - it serves
    kueue = KueueStandIn(bed.cluster, bed.namespace)
    submit(bed)
    pending = bed.wait_for_reason("WaitingForKueue")
    assert "LocalQueue research" in pending["message"]
    made = kueue.workload()
    (pod_set,) = made["spec"]["podSets"]
    requests = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert (pod_set["count"], requests) == (1, {"cpu": "2000m", "nvidia.com/gpu": "8"})
    assert bed.names("pods") == []
    kueue.admit("reserved")
    running = bed.wait_for_state("Running")
    assert [node["name"] for node in running["placement"]["nodes"]] == [PLUGIN_NODES[1]]
    (pod,) = bed.all("pods")
    assert pod["spec"]["nodeSelector"] == {POOL: "reserved"}
    bed.cluster.wait_for(lambda: kueue.status("PodsReady") == ("True", "Started"), "Kueue to hear of the Pods")
    kueue.say("Evicted", "True", "Preempted", "Preempted to accommodate a workload of team b")
    bed.cluster.wait_for(lambda: kueue.status("QuotaReserved") == ("False", "Pending"), "the quota to be given back")
    assert bed.live_pods() == []
    assert kueue.status("Requeued") == ("True", "Preempted")
    status = bed.job()["status"]
    assert status["attempts"][-1]["reason"] == "EvictedByKueue"
    kueue.admit("reserved")
    bed.wait_for_state("Running")
    bed.finish("train-a2-worker-00000", "succeed")
    bed.cluster.wait_for(lambda: kueue.status("Finished") == ("True", "Succeeded"), "Kueue to hear of the end")


def test_a_killed_operator_goes_on_from_what_kueue_says(with_kueue: Bed, bed: Bed) -> None:  # noqa: ARG001 - it serves
    kueue = KueueStandIn(bed.cluster, bed.namespace)
    submit(bed)
    kueue.admit("reserved")
    bed.wait_for_state("Running")
    kueue.say("Evicted", "True", "Preempted", "Preempted")
    bed.restart()
    bed.cluster.wait_for(lambda: kueue.status("QuotaReserved") == ("False", "Pending"), "the quota to be given back")
    assert bed.live_pods() == []


def test_the_operator_gives_quota_back_and_gives_none(with_kueue: Bed, bed: Bed) -> None:  # noqa: ARG001 - it serves
    """Nor does it write a Workload that is no TrainingJob's."""
    kueue = KueueStandIn(bed.cluster, bed.namespace)
    submit(bed)
    there = kueue.workload()
    name, writer = there["metadata"]["name"], bed.cluster.writer

    def patched(status: dict[str, Any]) -> str:
        said = writer.patch(
            "workload", name, {"status": status}, bed.namespace, subresource="status", login=Login(USER), dry_run=True
        )
        return said.refusal or ""

    def made(change: dict[str, Any]) -> str:
        metadata = {"name": "other", "namespace": bed.namespace, **change}
        said = writer.create({**there, "metadata": metadata}, login=Login(USER), dry_run=True)
        return said.refusal or ""

    said = {"reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    assert not patched({"conditions": [{"type": "PodsReady", "status": "True", **said}]})
    for kind in ("Admitted", "QuotaReserved"):
        assert "gives none" in patched({"conditions": [{"type": kind, "status": "True", **said}]})
    assert "gives none" in patched({"admission": {"clusterQueue": "gpus", "podSetAssignments": []}})
    owners = there["metadata"]["ownerReferences"]
    assert not made({"ownerReferences": owners})
    job = {**owners[0], "apiVersion": "batch/v1", "kind": "Job"}
    for others in ([], [job], [{**owners[0], "controller": False}]):
        assert "that a TrainingJob owns" in made({"ownerReferences": others})
