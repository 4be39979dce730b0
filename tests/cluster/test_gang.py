"""A gang's life on a real control plane with the stock kube-scheduler, on nodes of both bindings.

The jobs of a story end with it, so that the next finds the nodes free.
"""

import json
from http import HTTPStatus
from typing import Any

from closeknit.agent.discovery.simulated.simulation import gpu_uuid
from closeknit.api.names import UNRESTRICTED_TEMPLATES_LABEL
from harness.audit import AuditEvent
from harness.machines import device_class
from harness.operator_bed import BOTH, ON_DRA, ON_PLUGIN, Bed, others

OTHER_WRITES = ["create events", "create services", "update trainingjobs", "update trainingjobs"]
"""What a gang needs until it runs, but for its Pods and their claims."""


def planned_uuids(job: dict[str, Any]) -> dict[str, set[str]]:
    """UUIDs of the booked GPUs by node, from the very names that the simulated machines have."""
    return {
        node["name"]: {gpu_uuid(node["name"], index) for index in node["gpus"]}
        for node in job["status"]["placement"]["nodes"]
    }


def written_until_running(bed: Bed) -> list[AuditEvent]:
    """All writes for a gang that runs: the log has the last ones a moment after everybody sees what they did."""
    return bed.cluster.wait_for(
        lambda: found if len(others(found := bed.writes())) >= len(OTHER_WRITES) else None, "the audit log"
    )


@BOTH
def test_a_gang_is_booked_and_then_made_and_needs_four_other_writes(
    bed: Bed, spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    bed.submit(**spec)
    bed.wait_for_state("Running")
    assert [node["name"] for node in bed.job()["status"]["placement"]["nodes"]] == list(nodes)
    assert bed.nodes_of_pods() == list(nodes)
    bed.wait_for_told("Placed")

    writes = written_until_running(bed)
    assert bed.writes(dry_run=True) == []
    assert sorted(others(writes)) == OTHER_WRITES
    assert {event.verb for event in writes if event.resource in {"pods", "resourceclaims"}} == {"create"}
    booking = next(event for event in writes if event.resource == "trainingjobs")
    assert (booking.revision or 0) < min(event.revision or 0 for event in writes if event is not booking)
    of_the_gang = [event for event in writes if event.resource in {"pods", "resourceclaims"}]
    made = [event.name for event in of_the_gang if event.resource == "pods"]
    assert made == ["train-a1-worker-00000", "train-a1-worker-00001"]
    if spec is ON_DRA:
        assert [(event.resource, event.name) for event in of_the_gang] == [
            (kind, name) for name in made for kind in ("pods", "resourceclaims")
        ]


@BOTH
def test_nodes_with_the_usual_taint_of_gpu_nodes_are_used(
    bed: Bed, spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    bed.cluster.kubectl("taint", "nodes", *nodes, "nvidia.com/gpu=present:NoSchedule")
    try:
        bed.submit(**spec)
        bed.wait_for_state("Running")
        assert bed.nodes_of_pods() == list(nodes)
    finally:
        bed.cluster.kubectl("taint", "nodes", *nodes, "nvidia.com/gpu-")


def test_claims_are_given_exactly_the_planned_gpus(bed: Bed) -> None:
    bed.submit(gpus=4, gpu={"binding": "DRA"}, parallelism={"tensor": 4}, topology={"nvlink": "Required"})
    bed.wait_for_state("Running")
    (pod,) = bed.all("pods")
    (claim,) = bed.all("resourceclaims")
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    by_device = {
        device["name"]: device["attributes"]["uuid"]["string"]
        for each in bed.cluster.get("resourceslices")["items"]
        if each["spec"]["nodeName"] == pod["spec"]["nodeName"]
        for device in each["spec"]["devices"]
    }
    got = {by_device[result["device"]] for result in claim["status"]["allocation"]["devices"]["results"]}
    assert planned_uuids(bed.job()) == {pod["spec"]["nodeName"]: got}
    assert len(got) == 4
    assert {c["type"]: c["status"] for c in bed.job()["status"]["conditions"]} == {
        "Admitted": "True",
        "Placed": "True",
        "PlacementVerified": "True",
        "Running": "True",
    }


def test_the_end_of_a_job_frees_its_gpus(bed: Bed) -> None:
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    bed.submit("next", **ON_PLUGIN)
    bed.wait_for_reason("InsufficientGPUs", "next")
    for pod in bed.names("pods"):
        bed.finish(pod, "succeed")
    status = bed.wait_for_state("Succeeded")
    assert status["placement"]["nodeCount"] == 2
    bed.wait_for_state("Running", "next")
    assert bed.names("pods") == [
        "next-a1-worker-00000", "next-a1-worker-00001", "train-a1-worker-00000", "train-a1-worker-00001",
    ]  # fmt: skip


def test_a_failed_pod_fails_the_job_and_the_rest_is_stopped_and_stays(bed: Bed) -> None:
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    bed.finish("train-a1-worker-00001", "fail")
    status = bed.wait_for_state("Failed")
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert failed["message"].startswith("container trainer of Pod train-a1-worker-00001 on node gpu-2 ended with exit")
    bed.cluster.wait_for(lambda: not bed.live_pods(), "the other Pod to have ended")
    assert bed.names("pods") == ["train-a1-worker-00000", "train-a1-worker-00001"]
    bed.wait_for_told("Placed", "PodFailed")


def test_the_deletion_of_a_job_removes_everything_it_made(bed: Bed) -> None:
    bed.submit(**ON_DRA)
    bed.wait_for_state("Running")
    before = written_until_running(bed)
    bed.delete("trainingjob", "train")
    bed.wait_for_nothing()
    # The operator may hear of a Pod's end before the job's: what it writes of that into the job is refused.
    assert [event for event in bed.writes() if event.code != HTTPStatus.NOT_FOUND] == before


@BOTH
def test_a_pod_deleted_after_its_gang_has_run_is_followed_by_an_attempt_at_the_same_place(
    bed: Bed, spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    bed.submit(**spec)
    bed.wait_for_state("Running")
    bed.delete("pod", "train-a1-worker-00000")
    bed.cluster.wait_for(lambda: bed.job()["status"]["attempt"] == 2, "the second attempt")
    status = bed.wait_for_state("Running")
    assert [(each["number"], each["reason"], each["charged"]) for each in status["attempts"]] == [
        (1, "ChildDeleted", False)
    ]
    assert bed.live_pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]
    assert bed.names("services") == ["train-a2"]
    assert bed.nodes_of_pods() == list(nodes)


def test_a_pod_deleted_before_its_gang_has_run_is_made_again_under_its_name(bed: Bed) -> None:
    """A gate of the user's own keeps the Pods from their nodes, and so gives time."""
    container = {"name": "trainer", "image": "registry.example/train:1"}
    bed.cluster.kubectl("label", "namespace", bed.namespace, f"{UNRESTRICTED_TEMPLATES_LABEL}=true")
    held = {"schedulingGates": [{"name": "example.com/wait"}], "containers": [container]}
    bed.submit(**ON_PLUGIN, template={"spec": held})
    bed.cluster.wait_for(lambda: len(bed.names("pods")) == 2, "both Pods")
    uid = bed.all("pods")[0]["metadata"]["uid"]
    bed.delete("pod", "train-a1-worker-00000")
    bed.cluster.wait_for(
        lambda: len(pods := bed.all("pods")) == 2 and pods[0]["metadata"]["uid"] != uid, "the Pod to be made again"
    )
    for name in bed.names("pods"):
        patch = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
        bed.cluster.kubectl("patch", "pod", name, f"--namespace={bed.namespace}", "--type=json", f"--patch={patch}")
    assert bed.wait_for_state("Running")["attempt"] == 1
    assert bed.names("pods") == ["train-a1-worker-00000", "train-a1-worker-00001"]
    assert bed.job()["status"]["attempts"] == []


def test_a_pod_that_was_deleted_before_its_gang_has_run_and_does_not_go_is_left_behind(bed: Bed) -> None:
    """A gate keeps the Pods from their nodes, and a finalizer keeps one from going."""
    container = {"name": "trainer", "image": "registry.example/train:1"}
    bed.cluster.kubectl("label", "namespace", bed.namespace, f"{UNRESTRICTED_TEMPLATES_LABEL}=true")
    held = {"schedulingGates": [{"name": "example.com/wait"}], "containers": [container]}
    bed.submit(**ON_PLUGIN, template={"spec": held})
    bed.cluster.wait_for(lambda: len(bed.names("pods")) == 2, "both Pods")
    bed.change("pod", "train-a1-worker-00000", {"metadata": {"finalizers": ["example.com/hold"]}})
    try:
        bed.cluster.kubectl("delete", "pod", "train-a1-worker-00000", f"--namespace={bed.namespace}", "--wait=false")
        bed.cluster.wait_for(lambda: len(bed.names("pods")) == 3, "the next attempt", timeout_s=60)
        assert bed.names("pods") == ["train-a1-worker-00000", "train-a2-worker-00000", "train-a2-worker-00001"]
        assert [each["reason"] for each in bed.job()["status"]["attempts"]] == ["ChildDeleted"]
    finally:
        bed.change("pod", "train-a1-worker-00000", {"metadata": {"finalizers": None}})


def test_nothing_of_the_next_attempt_is_made_before_what_it_needs_is_free(bed: Bed) -> None:
    """A process that takes its time to end keeps a Pod of the first attempt, and with it the GPUs of its node."""
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    bed.finish("train-a1-worker-00001", "late")
    bed.delete("pod", "train-a1-worker-00000")

    def waits() -> str | None:
        conditions = bed.job()["status"]["conditions"]
        running = next(condition for condition in conditions if condition["type"] == "Running")
        return running["message"] if running["reason"] == "Restarting" else None

    message = bed.cluster.wait_for(waits, "the status to tell")
    assert message == (
        "waits until what is left of its Pods of before is gone: Pod train-a1-worker-00001 on node gpu-2"
    )
    assert bed.names("pods") == ["train-a1-worker-00001"]
    bed.finish("train-a1-worker-00001", "fail")
    assert bed.wait_for_state("Running")["attempt"] == 2
    assert bed.live_pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]


def test_suspend_frees_everything_and_resume_begins_the_next_attempt(bed: Bed) -> None:
    bed.submit(**ON_DRA)
    bed.wait_for_state("Running")
    bed.change("trainingjob", "train", {"spec": {"suspend": True}})
    bed.wait_for_state("Suspended")
    bed.wait_for_nothing()
    bed.change("trainingjob", "train", {"spec": {"suspend": False}})
    assert bed.wait_for_state("Running")["attempt"] == 2


def test_a_gang_whose_gpus_the_scheduler_finds_taken_is_placed_anew(bed: Bed) -> None:
    """A DeviceClass that no device matches has the scheduler say what it says of devices that another claim took."""
    nothing = {"spec": {"selectors": [{"cel": {"expression": "false"}}]}}
    bed.change("deviceclass", "gpu.nvidia.com", nothing, namespaced=False)
    bed.submit(gpus=4, gpu={"binding": "DRA"}, parallelism={"tensor": 4}, topology={"nvlink": "Required"})
    bed.cluster.wait_for(lambda: len(bed.job().get("status", {}).get("attempts", [])) >= 1, "the end of an attempt")
    bed.cluster.apply(device_class())
    status = bed.wait_for_state("Running")
    assert {(each["reason"], each["charged"]) for each in status["attempts"]} == {("GPUTaken", False)}
    assert bed.names("pods") == [f"train-a{status['attempt']}-worker-00000"]
    assert bed.told()[:2] == ["Placed", "GPUTaken"]
