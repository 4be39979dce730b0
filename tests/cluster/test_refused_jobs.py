"""Jobs that the operator or the API server refuses: what is said, what is left behind, and what ends the wait."""

from typing import Any

import pytest

from harness.operator_bed import ON_DRA, ON_PLUGIN, Bed, others


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


def test_what_only_the_api_server_refuses_is_taken_back_and_never_called_placed(bed: Bed) -> None:
    bed.submit(gpus=16, template={"spec": {"containers": [{"name": "trainer"}]}})
    message = bed.wait_for_reason("TemplateInvalid")["message"]
    assert message.endswith("is invalid: spec.containers[0].image: Required value")
    bed.cluster.wait_for(lambda: bed.told() == ["TemplateInvalid"], "the Event")
    bed.cluster.wait_for(lambda: len(bed.writes()) == 6, "the audit log")
    writes = [(event.verb, event.resource, event.code) for event in sorted(bed.writes(), key=lambda each: each.at)]
    assert writes[:3] == [("update", "trainingjobs", 200), ("create", "services", 201), ("create", "pods", 422)]
    assert sorted(writes[3:]) == [
        ("create", "events", 201),
        ("delete", "services", 200),
        ("update", "trainingjobs", 200),
    ]
    assert bed.names("pods") == bed.names("services") == []
    assert "placement" not in bed.job()["status"]


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
