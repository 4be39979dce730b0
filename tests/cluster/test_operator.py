"""The operator as its own process, with the chart's rights, on a real control plane with the stock kube-scheduler.

Each test is a story in a namespace of its own; the jobs of a story end with it, so that the next finds the nodes free.
"""

import itertools
import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from closeknit.agent.profile import gpu_uuid
from harness.audit import AuditEvent
from harness.install import NAMESPACE, OPERATOR, install, start_agents, start_operator
from harness.local_cluster import LocalCluster, is_running
from harness.machines import device_class, node_object, resource_slices

USER = f"system:serviceaccount:{NAMESPACE}:{OPERATOR}"
# Two nodes whose GPUs a device plugin binds, and two whose GPUs claims bind.
PLUGIN_NODES = ("gpu-1", "gpu-2")
DRA_NODES = ("gpu-3", "gpu-4")
PROFILES = {"gpu-1": "hgx-h200", "gpu-2": "hgx-h200", "gpu-3": "dgx1-v100", "gpu-4": "dgx1-v100"}
ON_PLUGIN: dict[str, Any] = {"gpus": 16, "gpu": {"products": ["NVIDIA-H200"]}}
ON_DRA: dict[str, Any] = {"gpus": 16, "gpu": {"binding": "DRA"}}
BOTH = pytest.mark.parametrize(
    ("spec", "nodes"), [pytest.param(ON_PLUGIN, PLUGIN_NODES, id="plugin"), pytest.param(ON_DRA, DRA_NODES, id="DRA")]
)
serials = itertools.count()


@dataclass
class Bed:
    """A control plane with four nodes, their agents, and one operator."""

    cluster: LocalCluster
    port: int
    pid: int = 0
    namespace: str = ""

    def submit(self, name: str = "train", **spec: Any) -> None:
        container = {"name": "trainer", "image": "registry.example/train:1"}
        job = {
            "apiVersion": "closeknit.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"template": {"spec": {"containers": [container]}}, **spec},
        }
        self.cluster.apply(job)

    def change(self, kind: str, name: str, patch: dict[str, Any], *, namespaced: bool = True) -> None:
        where = [f"--namespace={self.namespace}"] if namespaced else []
        self.cluster.kubectl("patch", kind, name, *where, "--type=merge", f"--patch={json.dumps(patch)}")

    def job(self, name: str = "train") -> dict[str, Any]:
        return self.cluster.get("trainingjob", name, self.namespace)

    def wait_for_state(self, state: str, name: str = "train") -> dict[str, Any]:
        def status() -> dict[str, Any] | None:
            found: dict[str, Any] = self.job(name).get("status", {})
            return found if found.get("state") == state else None

        return self.cluster.wait_for(status, f"{name} to be {state}")

    def wait_for_reason(self, reason: str, name: str = "train") -> dict[str, Any]:
        def pending() -> dict[str, Any] | None:
            found: dict[str, Any] = self.job(name).get("status", {}).get("pending", {})
            return found if found.get("reason") == reason else None

        return self.cluster.wait_for(pending, f"{name} to wait for {reason}")

    def all(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.get(kind, namespace=self.namespace)["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def names(self, kind: str) -> list[str]:
        return [each["metadata"]["name"] for each in self.all(kind)]

    def nodes_of_pods(self) -> list[str | None]:
        return [pod["spec"].get("nodeName") for pod in self.all("pods")]

    def finish(self, pod: str, how: str) -> None:
        """Has kwok end a Pod: succeed or fail."""
        self.change("pod", pod, {"metadata": {"annotations": {"harness.closeknit.dev/exit": how}}})

    def wait_for_nothing(self) -> None:
        """Waits until nothing is left of what the operator makes."""
        kinds = ("pods", "services", "resourceclaims")
        self.cluster.wait_for(lambda: not any(self.names(kind) for kind in kinds), "all children to be gone")

    def delete(self, kind: str, name: str) -> None:
        self.cluster.kubectl("delete", kind, name, f"--namespace={self.namespace}", "--wait=false")

    def writes(self, *, dry_run: bool = False) -> list[AuditEvent]:
        """What the operator wrote in this story's namespace, in etcd's order."""
        events = [
            event
            for event in self.cluster.audit_events()
            if event.user == USER and event.namespace == self.namespace and event.dry_run is dry_run
        ]
        return sorted(events, key=lambda event: (event.revision or 0, event.at))

    def told(self) -> list[str]:
        """Reasons of the job's Events, in their order."""
        events = [each for each in self.all("events.events.k8s.io") if each["regarding"]["kind"] == "TrainingJob"]
        return [each["reason"] for each in sorted(events, key=lambda each: each["eventTime"])]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return 0.0

    def restart(self, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid, how)
        self.cluster.wait_for(lambda: not is_running(self.pid), "the operator to end")
        self.pid = start_operator(self.cluster, self.port)


@pytest.fixture(scope="module")
def running() -> Iterator[Bed]:
    """A control plane of our own: an operator would touch other tests' jobs."""
    with LocalCluster() as cluster:
        install(cluster)
        plugin = [node_object(name, PROFILES[name], plugin=True, rdma=8) for name in PLUGIN_NODES]
        dra = [node_object(name, PROFILES[name], plugin=False) for name in DRA_NODES]
        slices = [each for name in DRA_NODES for each in resource_slices(name, PROFILES[name])]
        cluster.apply(*plugin, *dra, device_class(), *slices)
        start_agents(cluster, [{"name": name, "profile": profile} for name, profile in PROFILES.items()])
        bed = Bed(cluster, free_port())
        cluster.wait_for(lambda: len(cluster.get("nodetopologies")["items"]) == len(PROFILES), "the agents")
        bed.pid = start_operator(cluster, bed.port)
        yield bed


@pytest.fixture
def bed(running: Bed) -> Iterator[Bed]:
    running.namespace = f"story-{next(serials)}"
    running.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": running.namespace}})
    running.cluster.wait_for(
        lambda: (
            running.cluster.kubectl("get", "serviceaccounts", "default", f"-n{running.namespace}", check=False) != ""
        ),
        "the default ServiceAccount",
    )
    yield running
    running.cluster.kubectl("delete", "trainingjobs", "--all", f"--namespace={running.namespace}")
    running.cluster.kubectl("delete", "namespace", running.namespace, "--wait=false")
    running.cluster.wait_for(
        lambda: not [pod for pod in running.all("pods") if pod["status"].get("phase") not in {"Succeeded", "Failed"}],
        "the story's Pods to be gone",
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def planned_uuids(job: dict[str, Any]) -> dict[str, set[str]]:
    """UUIDs of the booked GPUs by node, from the very names that the simulated machines have."""
    return {
        node["name"]: {gpu_uuid(node["name"], index) for index in node["gpus"]}
        for node in job["status"]["placement"]["nodes"]
    }


def others(writes: list[AuditEvent]) -> list[str]:
    """Writes that are neither the creation of a Pod or claim nor the release of a Pod."""
    return [f"{event.verb} {event.resource}" for event in writes if event.resource not in {"pods", "resourceclaims"}]


@BOTH
def test_a_gang_is_bound_where_it_was_booked_and_released_as_a_whole(
    bed: Bed, spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    bed.submit(**spec)
    bed.wait_for_state("Running")
    assert [node["name"] for node in bed.job()["status"]["placement"]["nodes"]] == list(nodes)
    assert bed.nodes_of_pods() == list(nodes)
    assert bed.told() == ["Placed"]

    writes = bed.cluster.wait_for(
        lambda: found if others(found := bed.writes()).count("update trainingjobs") == 2 else None, "the audit log"
    )
    assert sorted(others(writes)) == ["create events", "create services", "update trainingjobs", "update trainingjobs"]
    created = [event for event in writes if event.verb == "create" and event.resource == "pods"]
    released = [event for event in writes if event.verb == "patch" or event.resource == "resourceclaims"]
    booking = next(event for event in writes if event.resource == "trainingjobs")
    assert (len(created), len(released)) == (2, 2)
    assert max(event.revision or 0 for event in created) < min(event.revision or 0 for event in released)
    assert (booking.revision or 0) < min(event.revision or 0 for event in writes if event is not booking)
    assert max(event.at for event in created) <= min(event.received for event in released)


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


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"gpus": 64}, "InsufficientGPUs", id="too many GPUs"),
        pytest.param({"gpus": 8, "preflight": "Warn"}, "NotSupported", id="a field that is not built"),
        pytest.param({"gpus": 8, "topology": {"fabric": {"required": "orbit"}}}, "UnknownLevel", id="an unknown level"),
        pytest.param(
            {
                "gpus": 8,
                "template": {"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}},
            },
            "TemplateInvalid",
            id="two containers and no trainer",
        ),
        pytest.param(
            {
                "gpus": 8,
                "template": {
                    "spec": {
                        "containers": [
                            {"name": "trainer", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
                        ]
                    }
                },
            },
            "TemplateInvalid",
            id="a template that asks for GPUs itself",
        ),
        pytest.param(
            {"gpus": 8, "template": {"spec": {"containers": [{"name": "trainer"}]}}},
            "TemplateInvalid",
            id="a template without an image, which only the API server sees",
        ),
    ],
)
def test_a_refused_job_writes_its_status_and_one_event(bed: Bed, spec: dict[str, Any], reason: str) -> None:
    bed.submit(**spec)
    pending = bed.wait_for_reason(reason)
    assert pending["message"]
    bed.cluster.wait_for(lambda: bed.told() == [reason], "the Event")
    bed.cluster.wait_for(lambda: len(bed.writes()) == 2, "the audit log")
    assert sorted(others(bed.writes())) == ["create events", "update trainingjobs"]
    assert bed.names("pods") == bed.names("services") == []


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


def test_a_failed_pod_fails_the_job_and_the_rest_goes(bed: Bed) -> None:
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    bed.finish("train-a1-worker-00001", "fail")
    status = bed.wait_for_state("Failed")
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert failed["message"].startswith("container trainer of Pod train-a1-worker-00001 on node gpu-2 ended with exit")
    bed.cluster.wait_for(lambda: bed.names("pods") == ["train-a1-worker-00001"], "the other Pod to be gone")
    assert bed.told() == ["Placed", "PodFailed"]


def test_the_deletion_of_a_job_removes_everything_it_made(bed: Bed) -> None:
    bed.submit(**ON_DRA)
    bed.wait_for_state("Running")
    before = len(bed.writes())
    bed.delete("trainingjob", "train")
    bed.wait_for_nothing()
    assert len(bed.writes()) == before


@BOTH
def test_a_child_deleted_after_release_is_followed_by_an_attempt_at_the_same_place(
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
    assert bed.names("pods") == ["train-a2-worker-00000", "train-a2-worker-00001"]
    assert bed.names("services") == ["train-a2"]
    assert bed.nodes_of_pods() == list(nodes)


def test_a_child_deleted_before_release_is_made_again_under_its_name(bed: Bed) -> None:
    """An admission policy keeps the operator from releasing, and so gives time."""
    policy = hold_releases(bed)
    bed.submit(**ON_PLUGIN)
    bed.cluster.wait_for(lambda: len(bed.names("pods")) == 2, "both Pods")
    uid = bed.all("pods")[0]["metadata"]["uid"]
    bed.delete("pod", "train-a1-worker-00000")
    bed.cluster.wait_for(
        lambda: len(pods := bed.all("pods")) == 2 and pods[0]["metadata"]["uid"] != uid, "the Pod to be made again"
    )
    assert bed.names("pods") == ["train-a1-worker-00000", "train-a1-worker-00001"]
    bed.cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", policy)
    assert bed.wait_for_state("Running")["attempt"] == 1


def hold_releases(bed: Bed) -> str:
    """Name of a policy, in force, that keeps the operator from changing Pods in the story's namespace."""
    name = f"hold-{bed.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
    namespaces = {"matchLabels": {"kubernetes.io/metadata.name": bed.namespace}}
    admission = "admissionregistration.k8s.io/v1"
    bed.cluster.apply(
        {
            "apiVersion": admission,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [{"name": "operator", "expression": f"request.userInfo.username == '{USER}'"}],
                "validations": [{"expression": "false", "message": "the test holds it back"}],
            },
        },
        {
            "apiVersion": admission,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": namespaces},
            },
        },
    )
    # It takes a moment to come into force: a Pod of the test's own shows when.
    pod = {"schedulingGates": [{"name": "test"}], "containers": [{"name": "c", "image": "i"}]}
    probe = {"name": "probe", "namespace": bed.namespace}
    bed.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": probe, "spec": pod})
    patch = json.dumps([{"op": "remove", "path": "/spec/schedulingGates/0"}])
    asked = ("patch", "pod", "probe", f"--namespace={bed.namespace}", "--type=json", f"--patch={patch}")
    asked_as_operator = (*asked, f"--as={USER}", "--dry-run=server", "--output=name")
    bed.cluster.wait_for(
        lambda: bed.cluster.kubectl(*asked_as_operator, check=False) == "", "the policy to be in force"
    )
    bed.cluster.kubectl("delete", "pod", "probe", f"--namespace={bed.namespace}")
    return name


def test_suspend_frees_everything_and_resume_begins_the_next_attempt(bed: Bed) -> None:
    bed.submit(**ON_DRA)
    bed.wait_for_state("Running")
    bed.change("trainingjob", "train", {"spec": {"suspend": True}})
    bed.wait_for_state("Suspended")
    bed.wait_for_nothing()
    bed.change("trainingjob", "train", {"spec": {"suspend": False}})
    assert bed.wait_for_state("Running")["attempt"] == 2


@pytest.mark.parametrize(
    ("foreign", "binding"),
    [
        pytest.param(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "train-a1-worker-00000"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
            },
            ON_DRA,
            id="ResourceClaim",
        ),
        pytest.param(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "train-a1-worker-00001"},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
            ON_PLUGIN,
            id="Pod",
        ),
        pytest.param(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "train-a1"},
                "spec": {"clusterIP": "None", "selector": {"a": "b"}},
            },
            ON_PLUGIN,
            id="Service",
        ),
    ],
)
def test_a_name_that_somebody_has_is_waited_for(bed: Bed, foreign: dict[str, Any], binding: dict[str, Any]) -> None:
    kind, name = foreign["kind"], foreign["metadata"]["name"]
    bed.cluster.apply({**foreign, "metadata": {**foreign["metadata"], "namespace": bed.namespace}})
    uid = bed.cluster.get(kind, name, bed.namespace)["metadata"]["uid"]
    bed.submit(**binding)
    message = bed.wait_for_reason("NameConflict")["message"]
    assert message == (
        f"{kind} {bed.namespace}/{name} exists and belongs to nobody that it names; "
        "delete it, or delete this job and give it another name"
    )
    kinds = ("pods", "services", "resourceclaims")
    bed.cluster.wait_for(
        lambda: [each["metadata"]["uid"] for kind in kinds for each in bed.all(kind)] == [uid],
        "what was made to be gone",
    )
    assert "placement" not in bed.job()["status"]
    bed.cluster.kubectl("delete", kind, name, f"--namespace={bed.namespace}")
    assert bed.wait_for_state("Running")["attempt"] == 1


def test_pod_security_is_told_in_its_own_words_and_asked_again_when_the_job_changes(bed: Bed) -> None:
    enforce = "pod-security.kubernetes.io/enforce"
    bed.cluster.kubectl("label", "namespace", bed.namespace, f"{enforce}=restricted")
    bed.submit(**ON_PLUGIN)
    message = bed.wait_for_reason("TemplateInvalid")["message"]
    assert message.startswith(
        f"the API server refuses Pod {bed.namespace}/train-a1-worker-00000: "
        'pods "train-a1-worker-00000" is forbidden: violates PodSecurity "restricted:latest": '
    )
    assert bed.names("pods") == []
    bed.cluster.kubectl("label", "namespace", bed.namespace, f"{enforce}-")
    bed.change("trainingjob", "train", {"spec": {"queue": "research"}})
    bed.wait_for_state("Running")


def test_where_pod_security_refuses_ipc_lock_the_gang_goes_without_and_says_so(bed: Bed) -> None:
    enforce = "pod-security.kubernetes.io/enforce=baseline"
    bed.cluster.kubectl("label", "namespace", bed.namespace, enforce)
    bed.submit(**ON_PLUGIN)
    status = bed.wait_for_state("Running")
    degraded = next(condition for condition in status["conditions"] if condition["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"], degraded["message"]) == (
        "True",
        "IPCLockRefused",
        "the namespace's Pod Security level refuses IPC_LOCK; RDMA may fail to register memory",
    )
    assert [pod["spec"]["containers"][0].get("securityContext") for pod in bed.all("pods")] == [None, None]


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


def test_a_quota_that_only_the_creates_show_takes_back_what_was_made(bed: Bed) -> None:
    quota = {"name": "one", "namespace": bed.namespace}
    bed.cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": quota, "spec": {"hard": {"pods": "1"}}})
    bed.cluster.wait_for(
        lambda: bed.cluster.get("resourcequota", "one", bed.namespace).get("status", {}).get("used"), "the quota"
    )
    bed.submit(**ON_PLUGIN)
    message = bed.wait_for_reason("TemplateInvalid")["message"]
    assert "is forbidden: exceeded quota: one, requested: pods=1, used: pods=1, limited: pods=1" in message
    bed.cluster.wait_for(lambda: bed.names("pods") == bed.names("services") == [], "what was made to be gone")
    assert "placement" not in bed.job()["status"]


def test_an_operator_that_was_killed_goes_on_and_one_at_rest_writes_nothing(bed: Bed) -> None:
    bed.submit(**ON_PLUGIN)
    bed.wait_for_state("Running")
    bed.submit("waiting", **ON_PLUGIN)
    bed.wait_for_reason("InsufficientGPUs", "waiting")
    bed.cluster.wait_for(lambda: len(bed.told()) == 2, "the Events")
    written = 10  # two Pods and their releases, a Service, two statuses, an Event; a status and an Event of the other
    bed.cluster.wait_for(lambda: len(bed.writes()) == written, "the audit log")
    bed.restart()
    # The cluster changes without meaning anything to a job: another decision, and nothing to write.
    cycles = "closeknit_scheduling_cycle_duration_seconds_count"
    decided = bed.metric(cycles)
    bed.cluster.kubectl("label", "node", "gpu-4", f"example.com/story={bed.namespace}", "--overwrite")
    bed.cluster.wait_for(lambda: bed.metric(cycles) > decided, "another decision")
    bed.submit("last", gpus=64)  # what the operator writes for it is logged after all that it wrote before
    bed.wait_for_reason("InsufficientGPUs", "last")
    bed.cluster.wait_for(lambda: len(bed.writes()) >= written + 2, "the audit log")
    assert [(event.resource, event.verb) for event in bed.writes()[written:]] == [
        ("trainingjobs", "update"),
        ("events", "create"),
    ]
    assert bed.writes()[written].name == "last"


def operator_writes(bed: Bed) -> list[AuditEvent]:
    return [event for event in bed.cluster.audit_events() if event.user == USER]


def test_kopf_writes_nothing(bed: Bed) -> None:
    bed.submit(gpus=8)
    bed.wait_for_state("Running")
    metadata = bed.job()["metadata"]
    assert "finalizers" not in metadata
    assert set(metadata["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
    kinds = {(event.verb, event.resource, event.subresource) for event in operator_writes(bed)}
    assert kinds <= {
        ("create", "events", ""),
        ("create", "pods", ""),
        ("create", "resourceclaims", ""),
        ("create", "services", ""),
        ("delete", "pods", ""),
        ("delete", "services", ""),
        ("patch", "pods", ""),
        ("update", "trainingjobs", "status"),
    }


def test_metrics_tell_of_jobs_and_gpus(bed: Bed) -> None:
    bed.submit(**ON_PLUGIN, queue="research")
    bed.wait_for_state("Running")
    bed.cluster.wait_for(
        lambda: bed.metric("closeknit_jobs", queue="research", state="Running") == 1, "the gauges to be set"
    )
    assert bed.metric("closeknit_gpus", state="held") == 16
    assert bed.metric("closeknit_gpus", state="free") == 16
    assert bed.metric("closeknit_placement_attempts_total", result="placed") >= 1
    assert bed.metric("closeknit_reflector_last_event_age_seconds", resource="nodes") < 70
    assert bed.get("/healthz") == bed.get("/readyz") == "ok"


def test_beyond_localhost_metrics_need_a_token_that_may_get_them(bed: Bed) -> None:
    port = free_port()
    kubeconfig = bed.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
    # A second operator in a cluster without work for it: what it serves is all that counts.
    pid = bed.cluster.start_program(
        "second-operator",
        str(Path(sys.executable).parent / "closeknit-operator"),
        f"--kubeconfig={kubeconfig}",
        f"--metrics-address=:{port}",
    )
    try:
        bed.cluster.wait_for(lambda: status_of(port, "/readyz") == 200, "the second operator to be ready")
        where = f"--namespace={bed.namespace}"
        rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
        rbac = "rbac.authorization.k8s.io/v1"
        bed.cluster.apply(
            {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": bed.namespace}, "rules": [rule]}
        )
        for name in ("scraper", "stranger"):
            bed.cluster.kubectl("create", "serviceaccount", name, where)
        account = f"--serviceaccount={bed.namespace}:scraper"
        bed.cluster.kubectl("create", "clusterrolebinding", bed.namespace, f"--clusterrole={bed.namespace}", account)
        tokens = {name: bed.cluster.kubectl("create", "token", name, where).strip() for name in ("scraper", "stranger")}
        assert status_of(port, "/metrics") == 401
        assert status_of(port, "/metrics", "nonsense") == 401
        assert status_of(port, "/metrics", tokens["stranger"]) == 403
        assert status_of(port, "/metrics", tokens["scraper"]) == 200
        bed.cluster.kubectl("delete", "clusterrole,clusterrolebinding", bed.namespace)
    finally:
        os.kill(pid, signal.SIGTERM)


def status_of(port: int, path: str, token: str = "") -> int | None:
    """Status of one answer; None while nobody listens."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers), timeout=5
        ) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_sigterm_ends_it_at_once(bed: Bed) -> None:
    os.kill(bed.pid, signal.SIGTERM)
    bed.cluster.wait_for(lambda: not is_running(bed.pid), "the operator to end", timeout_s=1.5)
    bed.pid = start_operator(bed.cluster, bed.port)
