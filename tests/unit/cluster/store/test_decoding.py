"""What is kept of the objects of others, and that odd shapes are met calmly."""

import json
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from closeknit.api.names import ChildName, JobKey, Role
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.job import InvalidJob, job_from_json
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.objects.pod_requests import amounts
from closeknit.cluster.pods.pod import ContainerState, Lodger, Pod
from closeknit.cluster.store.watched_kinds import KINDS, Kind, Stream, change, from_document
from scenarios.manifests import (
    Manifest,
    booked,
    cluster_topology,
    condition,
    device_class,
    device_taint_rule,
    node,
    node_topology,
    pod,
    priority_class,
    resource_claim,
    resource_slice,
    storage_class,
    training_job,
    uuids,
    volume,
    volume_claim,
    worker,
)

BY_STREAM = {kind.stream: kind for kind in KINDS}


def kept(manifest: Manifest) -> Pod:
    found = from_document(manifest)
    assert isinstance(found, Pod)
    return found


def of_job(version: str, kind: str, spec: Manifest) -> Manifest:
    """An object that a TrainingJob owns."""
    owner = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "name": "train", "uid": "u"}
    metadata = {"name": "x", "namespace": "team-b", "ownerReferences": [{**owner, "controller": True}]}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


EXAMPLES: dict[str, Manifest] = {
    "Node": node(labels={"a": "b"}, taints=[{"key": "x", "effect": "NoSchedule"}]),
    "NodeTopology": node_topology(heartbeatTime="2026-11-21T12:00:00Z"),
    "ClusterTopology": cluster_topology("block", "rack"),
    "TrainingJob": training_job(placement=booked(("gpu-1", [0, 1]))),
    "Pod": worker(gpus=uuids("gpu-1", 0)),
    "ResourceSlice": resource_slice(),
    "ResourceClaim": resource_claim("x", ("gpu-1", 0)),
    "PriorityClass": priority_class("high", 1000),
    "DeviceClass": device_class("fpga", "example.com/fpga"),
    "DeviceTaintRule": device_taint_rule(pool="gpu-1"),
    "PersistentVolumeClaim": volume_claim(volume="pv-1"),
    "PersistentVolume": volume(zones=["a"]),
    "StorageClass": storage_class(zones=["a"]),
    "Workload": of_job("kueue.x-k8s.io/v1beta2", "Workload", {"queueName": "research", "podSets": [{"count": 2}]}),
    "ResourceFlavor": {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "h200"},
        "spec": {"nodeLabels": {"pool": "h200"}, "tolerations": [{"key": "pool"}]},
    },
    "WorkloadPriorityClass": {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 9,
    },
    "ProvisioningRequest": of_job("autoscaling.x-k8s.io/v1", "ProvisioningRequest", {"provisioningClassName": "c"}),
}


@pytest.mark.parametrize("kind", KINDS, ids=[kind.stream for kind in KINDS])
def test_bytes_and_plain_dicts_give_the_same_object(kind: Kind) -> None:
    manifest = EXAMPLES[kind.kind]
    assert kind.decode(json.dumps(manifest).encode()) == kind.convert(manifest) == from_document(manifest)


def test_the_table_names_what_an_api_server_serves() -> None:
    assert [(kind.group, kind.version, kind.plural) for kind in KINDS] == [
        ("", "v1", "nodes"),
        ("closeknit.dev", "v1alpha1", "nodetopologies"),
        ("closeknit.dev", "v1alpha1", "clustertopologies"),
        ("closeknit.dev", "v1alpha1", "trainingjobs"),
        ("", "v1", "pods"),
        ("", "v1", "pods"),
        ("resource.k8s.io", "v1", "resourceslices"),
        ("resource.k8s.io", "v1", "resourceclaims"),
        ("scheduling.k8s.io", "v1", "priorityclasses"),
        ("resource.k8s.io", "v1", "deviceclasses"),
        ("resource.k8s.io", "v1", "devicetaintrules"),
        ("", "v1", "persistentvolumeclaims"),
        ("", "v1", "persistentvolumes"),
        ("storage.k8s.io", "v1", "storageclasses"),
        ("kueue.x-k8s.io", "v1beta2", "workloads"),
        ("kueue.x-k8s.io", "v1beta2", "resourceflavors"),
        ("kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses"),
        ("autoscaling.x-k8s.io", "v1", "provisioningrequests"),
    ]
    ours, others = BY_STREAM[Stream.CHILD_PODS], BY_STREAM[Stream.OTHER_PODS]
    assert (ours.label_selector, ours.field_selector) == ("closeknit.dev/job", None)
    assert (others.label_selector, others.field_selector) == (
        "!closeknit.dev/job",
        "status.phase!=Succeeded,status.phase!=Failed",
    )


def test_other_kinds_are_of_no_interest() -> None:
    assert from_document({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}) is None
    assert from_document({"apiVersion": "example.dev/v1", "kind": "Node", "metadata": {"name": "x"}}) is None
    assert from_document({}) is None


DROPPED = {
    "a Pod without a GPU that no node has taken": pod(requests={"cpu": "4"}, node=None),
    "a finished Pod without a GPU": pod(requests={"cpu": "4"}, phase="Succeeded"),
    "a finished Pod of somebody": pod(phase="Failed"),
    "a Pod without containers": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": None},
    "a claim that waits": resource_claim("x"),
    "a claim of another driver": resource_claim("x", ("gpu-1", 0), driver="sriov.example"),
    "a slice of another driver": resource_slice(driver="sriov.example"),
    "a slice of no node": {
        **resource_slice(),
        "spec": {"driver": "gpu.nvidia.com", "allNodes": True, "pool": {"name": "x"}},
    },
}


@pytest.mark.parametrize("manifest", DROPPED.values(), ids=DROPPED.keys())
def test_what_is_of_no_interest_is_dropped_at_once(manifest: Manifest) -> None:
    assert from_document(manifest) is None


LODGERS: dict[str, tuple[Manifest, tuple[Any, ...]]] = {
    "CPU and memory": (pod(requests={"cpu": "4", "memory": "1Gi"}), (4000, 1 << 30)),
    "an RDMA resource": (pod(requests={"rdma/hca": "1"}), (0, 0, (("rdma/hca", 1),))),
    "zero GPUs": (pod(requests={"nvidia.com/gpu": "0"}), ()),
    "nothing at all, but a place": (pod(requests={}), ()),
    "as long as it is not gone": (
        {**(going := pod(requests={})), "metadata": {**going["metadata"], "deletionTimestamp": "2026-11-21T12:00:00Z"}},
        (),
    ),
}


@pytest.mark.parametrize(("manifest", "expected"), LODGERS.values(), ids=LODGERS.keys())
def test_of_a_strangers_pod_without_gpus_only_what_it_takes_is_kept(
    manifest: Manifest, expected: tuple[Any, ...]
) -> None:
    assert from_document(manifest) == Lodger("ml", "notebook", "gpu-1", *expected)


def labelled(manifest: Manifest) -> Manifest:
    manifest["metadata"]["labels"] = {"closeknit.dev/job": "train"}
    return manifest


KEPT = {
    "a Pod with a GPU": pod(),
    "a Pod with a shared GPU": pod(requests={"nvidia.com/gpu.shared": "1"}),
    "a Pod with a MIG device": pod(requests={"nvidia.com/mig-1g.18gb": "1"}),
    "a Pod with a claim": pod(requests={}, claims=["x"]),
    "a Pod of ours without GPUs": worker(requests={}),
    "a finished Pod of ours": worker(phase="Succeeded"),
    "a Pod that only bears our label": labelled(pod(requests={}, phase="Failed")),
    "a Pod that has a name which a child may want": pod("train-a12-ps-00003", requests={}),
    "a claim that has a name which a child may want": resource_claim("train-a1-worker-00000"),
    "a claim with GPUs": resource_claim("x", ("gpu-1", 0)),
}


@pytest.mark.parametrize("manifest", KEPT.values(), ids=KEPT.keys())
def test_what_holds_or_is_ours_is_kept(manifest: Manifest) -> None:
    assert from_document(manifest) is not None


def test_a_pod_of_ours_in_full() -> None:
    manifest = worker(index=3, attempt=2, gpus=uuids("gpu-1", 4, 5), node=None, phase="Pending", claims=["c"])
    manifest["metadata"] |= {"resourceVersion": "17", "deletionTimestamp": "2026-11-21T12:00:00Z"}
    manifest["spec"] |= {"schedulingGates": [{"name": "x"}], "priority": 7}
    manifest["status"] |= {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "waits"},
            {"type": "ContainersReady", "status": "False"},
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
        ],
        "initContainerStatuses": [{"name": "ssh", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
        "containerStatuses": [
            {"name": "trainer", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            {"name": "log", "state": {"running": {"startedAt": "2026-11-21T12:00:00Z"}}},
            {"name": "late", "state": {}},
        ],
        "resourceClaimStatuses": [{"name": "y", "resourceClaimName": "made-of-template"}, {"name": "z"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "b", "requestMappings": []},
    }
    found = kept(manifest)
    assert (found.job, found.child) == (JobKey("team-b", "train"), ChildName("train", 2, Role.WORKER, 3))
    assert (found.gpu_count, found.claims) == (2, ("b", "c", "made-of-template"))
    assert (found.node, found.phase, found.priority, found.resource_version) == ("", "Pending", 7, "17")
    assert found.deletion_timestamp == "2026-11-21T12:00:00Z"
    assert [entry.type for entry in found.conditions] == ["DisruptionTarget", "PodScheduled"]
    scheduled = found.condition("PodScheduled")
    assert scheduled is not None
    assert (scheduled.reason, scheduled.message) == ("SchedulingGated", "waits")
    assert found.condition("Ready") is None
    assert found.containers == (
        ContainerState("ssh", init=True, exit_code=0, reason="Completed"),
        ContainerState("trainer", waiting=True, reason="ImagePullBackOff", message="no such image"),
        ContainerState("log", running=True),
        ContainerState("late"),
    )


def test_what_changes_often_on_a_strangers_pod_is_not_kept() -> None:
    before, after = pod(), pod()
    after["metadata"]["resourceVersion"] = "18"
    after["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    after["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
    assert kept(before) == kept(after)


def test_a_heartbeat_of_the_kubelet_changes_nothing() -> None:
    before, after = node(), node()
    after["status"]["conditions"][1]["lastHeartbeatTime"] = "2026-11-21T12:05:00Z"
    after["metadata"]["resourceVersion"] = "18"
    assert from_document(before) == from_document(after)


NOT_OURS: dict[str, Any] = {
    "no owner": [],
    "an owner of another kind": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}],
    "a TrainingJob of another group": [
        {"apiVersion": "kubeflow.org/v1", "kind": "TrainingJob", "name": "train", "uid": "u"}
    ],
    "another TrainingJob than its label says": [
        {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "name": "other", "uid": "u"}
    ],
}


@pytest.mark.parametrize("owners", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_a_label_alone_makes_no_child(owners: list[Manifest]) -> None:
    manifest = worker()
    manifest["metadata"]["ownerReferences"] = owners
    assert kept(manifest).job is None


def test_absent_and_null_are_the_same() -> None:
    bare = {"metadata": {"name": "x"}}
    nulls = {
        "metadata": {"name": "x", "labels": None, "annotations": None, "ownerReferences": None},
        "spec": {"taints": None, "unschedulable": None},
        "status": {"conditions": None, "allocatable": None, "capacity": None},
    }
    convert = BY_STREAM[Stream.NODES].convert
    assert convert(bare) == convert(nulls)


QUANTITIES = {"8": 8, "1k": 1000, "2e1": 20, "1500m": 2, "eight": 0, "": 0}


@pytest.mark.parametrize(("text", "expected"), QUANTITIES.items(), ids=QUANTITIES.keys())
def test_countable_quantities(text: str, expected: int) -> None:
    manifest = worker(requests={"nvidia.com/gpu": text})
    assert kept(manifest).gpu_count == expected


def test_what_a_pod_is_to_its_job_is_told_by_its_name() -> None:
    manifest = worker(index=7, attempt=2)
    manifest["metadata"]["labels"] |= {"closeknit.dev/attempt": "1", "closeknit.dev/index": "0"}
    assert (kept(manifest).attempt, kept(manifest).index) == (2, 7)
    for name in ("train-a02-worker-00007", "train-a2-worker-7", "other-a2-worker-00007", "train-a2-boss-00007", "x"):
        manifest["metadata"]["name"] = name
        assert (kept(manifest).attempt, kept(manifest).index) == (None, None)


OWNERS = {"kind": "Job", "apiVersion": "closeknit.dev/v1", "uid": "another", "name": "other"}


@pytest.mark.parametrize("field", ["kind", "apiVersion", "name"])
def test_an_owner_that_is_no_training_job_of_ours_is_none(field: str) -> None:
    manifest = worker()
    assert kept(manifest).job is not None
    manifest["metadata"]["ownerReferences"][0][field] = OWNERS[field]
    assert kept(manifest).job is None


IMPOSSIBLE: dict[str, tuple[Manifest, str]] = {
    "no metadata": ({"apiVersion": "v1", "kind": "Node"}, "Object missing required field `metadata`"),
    "a nameless object": (
        {"apiVersion": "v1", "kind": "Pod", "metadata": {}},
        "Object missing required field `name` - at `$.metadata`",
    ),
    "labels that are a list": (
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x", "labels": ["a"]}},
        "Expected `object | null`, got `array` - at `$.metadata.labels`",
    ),
    "a nameless TrainingJob": (
        {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "metadata": {}},
        "Object missing required field `name` - at `$.metadata`",
    ),
}


@pytest.mark.parametrize(("manifest", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_a_shape_that_cannot_be_read_is_refused_with_its_field(manifest: Manifest, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refusal:
        from_document(manifest)
    assert str(refusal.value) == message


def test_a_cluster_topology_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"spec\.levels\.0\.name"):
        from_document(cluster_topology("Not A Level"))


def test_a_node_topology_that_cannot_be_read_is_a_report_with_its_fault() -> None:
    found = from_document({**node_topology(), "spec": {"gpus": []}})
    assert isinstance(found, AgentReport)
    assert (found.name, found.machine, found.invalid) == ("gpu-1", None, "spec.source: Field required")


INVALID_JOBS: dict[str, tuple[Manifest, str]] = {
    "no GPU": ({"gpus": 0}, "spec.gpus: Input should be greater than or equal to 1"),
    "degrees that do not divide": (
        {"parallelism": {"tensor": 3}},
        "spec.parallelism: tensor x context x pipeline must divide gpus",
    ),
    "a framework that nobody knows": (
        {"framework": "Fortran"},
        "spec.framework: Input should be 'PyTorch', 'DeepSpeed', 'Horovod', 'MPI', 'TensorFlow', 'JAX' or 'Custom'",
    ),
    "a template that is no object": (
        {"template": "x"},
        "spec.template: Input should be an object",
    ),
}


@pytest.mark.parametrize(("spec", "error"), INVALID_JOBS.values(), ids=INVALID_JOBS.keys())
def test_a_job_that_cannot_be_read_keeps_its_status_and_its_fault(spec: Manifest, error: str) -> None:
    manifest = training_job(spec=spec, placement=booked(("gpu-1", [0])), conditions=[condition("Placed")])
    manifest["metadata"] |= {"resourceVersion": "17", "generation": 3}
    found = from_document(manifest)
    assert isinstance(found, InvalidJob)
    assert found.error == error
    assert found.key == JobKey("team-b", "train")
    assert (found.metadata.resource_version, found.metadata.generation) == ("17", 3)
    assert found.status.placement is not None
    assert change(found).stream is Stream.TRAINING_JOBS


def test_a_job_whose_status_cannot_be_read_either_has_none() -> None:
    found = from_document(training_job(spec={"gpus": 0}, placement="somewhere"))
    assert isinstance(found, InvalidJob)
    assert found.status.placement is None


@pytest.mark.parametrize(
    "large",
    [
        pytest.param([[[[]]]] * 60_000, id="lists in lists"),
        pytest.param("x" * 300_000, id="one text"),
    ],
)
def test_a_template_larger_than_any_valid_one_is_refused_before_it_is_read(
    large: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = training_job(placement=booked(("gpu-1", [0])))
    manifest["spec"]["template"]["spec"]["large"] = large
    monkeypatch.setattr(TrainingJob, "model_validate_json", lambda *_: pytest.fail("all of it was read"))
    found = from_document(manifest)
    assert isinstance(found, InvalidJob)
    assert "bytes as JSON, more than 262144; move what is large into a ConfigMap" in found.error
    assert found.status.placement is not None


def test_how_an_api_server_writes_a_script_makes_it_no_larger() -> None:
    script = "a && b > c; " * 20_000
    manifest = training_job()
    manifest["spec"]["template"]["spec"]["containers"][0]["command"] = [script]
    document = json.dumps(manifest).replace("&", "\\u0026").replace(">", "\\u003e").encode()
    assert len(document) > 2 * len(script)
    assert isinstance(job_from_json(document), TrainingJob)


def test_a_job_without_a_spec() -> None:
    found = from_document({**training_job(), "spec": None})
    assert isinstance(found, InvalidJob)
    assert found.error.startswith("spec: ")


@pytest.mark.parametrize(("amount", "expected"), [(8, 8), ("8", 8), ("8k", 8000), ("eight", 0), (float("inf"), 0)])
def test_a_countable_resource_is_a_whole_number_whatever_a_file_says(amount: str | float, expected: int) -> None:
    assert amounts({"rdma/hca": amount}) == {"rdma/hca": expected}
