"""Jobs that the operator or the API server refuses: what is said, what is left behind, and what ends the wait."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.lifecycle.status.conditions import timestamp
from harness.operator_bed import ON_DRA, ON_PLUGIN, Bed, others
from harness.projects import kubernetes_version


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"gpus": 64}, "InsufficientGPUs", id="too many GPUs"),
        pytest.param(
            {"gpus": 8, "elastic": {"minGPUs": 4}, "spares": 1}, "NotSupported", id="fields that contradict each other"
        ),
        pytest.param({"gpus": 8, "topology": {"fabric": {"required": "orbit"}}}, "UnknownLevel", id="an unknown level"),
        pytest.param(
            {**ON_DRA, "gpus": 16, "network": {"rdma": "Required"}}, "RDMAUnavailable", id="RDMA where there is none"
        ),
        pytest.param(
            {"gpus": 16, "network": {"trafficClass": "gold"}}, "UnknownTrafficClass", id="an unknown traffic class"
        ),
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
    bed.wait_for_told(reason)
    bed.cluster.wait_for(lambda: len(bed.writes()) == 2, "the audit log")
    assert sorted(others(bed.writes())) == ["create events", "update trainingjobs"]
    assert bed.names("pods") == bed.names("services") == []


def test_harmful_settings_are_told_and_leave_nothing(bed: Bed) -> None:
    """They are the user's, so that the job runs; reserved names, NCCL's, more processes than GPUs, and a preferred
    level that nobody has described."""
    env = [{"name": "PET_NODE_RANK", "value": "0"}, {"name": "NCCL_ALGO", "value": "Ring"}]
    container = {"name": "trainer", "image": "i", "command": ["torchrun", "--nproc-per-node=9", "t.py"], "env": env}
    preferred = {"fabric": {"preferred": "orbit", "patience": "1h"}}
    bed.submit(gpus=16, topology=preferred, template={"spec": {"containers": [container]}})
    status = bed.wait_for_state("Running")
    (admitted,) = [each for each in status["conditions"] if each["type"] == "Admitted"]
    assert (admitted["status"], admitted["reason"]) == ("True", "PreferredLevelUnknown")
    told = [warning.partition(":")[0] for warning in status["environment"]["warnings"]]
    assert told == ["--nproc-per-node=9", "NCCL_ALGO=Ring", "PET_NODE_RANK=0"]
    (degraded,) = [each for each in status["conditions"] if each["type"] == "Degraded"]
    assert (degraded["status"], degraded["reason"]) == ("True", "HarmfulSettings")
    bed.wait_for_told("Placed")
    (event,) = [each for each in bed.all("events.events.k8s.io") if each["reason"] == "Placed"]
    assert event["type"] == "Warning"
    assert "--nproc-per-node, NCCL_ALGO, PET_NODE_RANK" in event["note"]
    assert "prefers level orbit, and is placed without it" in event["note"]
    bed.cluster.kubectl("delete", "trainingjob", "train", f"--namespace={bed.namespace}")
    gone_s = 90  # the collector looks for new kinds of objects every 30 s
    bed.cluster.wait_for(lambda: not bed.names("pods") + bed.names("services"), "what was made to be gone", gone_s)


def test_what_only_the_api_server_refuses_is_taken_back_and_never_called_placed(bed: Bed) -> None:
    bed.submit(gpus=16, template={"spec": {"containers": [{"name": "trainer"}]}})
    message = bed.wait_for_reason("TemplateInvalid")["message"]
    assert "is invalid: spec.containers[0].image: Required value; change spec.template" in message
    bed.wait_for_told("TemplateInvalid")
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
    assert (status["attempt"], status["attempts"], bed.told()) == (1, [], ["Placed"])


def test_no_pod_is_made_of_a_gang_that_exceeds_a_quota_until_that_is_raised(bed: Bed) -> None:
    resource = "requests.nvidia.com/gpu"
    set_quota(bed, {resource: "8", "pods": "10"})
    bed.submit(**ON_PLUGIN)
    assert bed.wait_for_reason("QuotaExceeded")["message"] == (
        f"the whole gang is more than is left of the quotas of namespace {bed.namespace}: "
        f"quota gpus: {resource}: asked 16, hard 8, used 0, left 8; "
        "free some of it, ask for less, or have an administrator raise it"
    )
    bed.cluster.wait_for(lambda: bed.told()[-1:] == ["QuotaExceeded"], "the Event")
    assert "placement" not in bed.job()["status"]
    assert "pods" not in {event.resource for event in bed.writes()}
    set_quota(bed, {resource: "16", "pods": "2"})
    status = bed.wait_for_state("Running")
    assert (status["attempt"], status.get("pending")) == (1, None)
    bed.delete("pod", "train-a1-worker-00000")  # both are still counted when the next two are to be made
    bed.cluster.wait_for(lambda: bed.job()["status"]["attempt"] == 2, "the second attempt")
    bed.wait_for_state("Running")
    assert "QuotaExceeded" not in bed.told()[2:]
    assert {event.code for event in bed.writes() if (event.verb, event.resource) == ("create", "pods")} == {201}


def test_an_elastic_job_starts_with_the_part_that_a_quota_leaves_and_grows_once_it_leaves_more(bed: Bed) -> None:
    resource = "requests.nvidia.com/gpu"
    set_quota(bed, {resource: "8"})
    bed.submit(**ON_PLUGIN, elastic={"minGPUs": 8})
    message = bed.wait_for_reason("QuotaExceeded")["message"]
    assert message.endswith("; after a minute it starts with fewer, 8 at least, where so many fit and delay nobody")
    long_ago = timestamp(datetime.now(UTC) - timedelta(minutes=6))
    pending = {"status": {"pending": {"since": long_ago, "queuedSince": long_ago}}}
    bed.cluster.patch("trainingjob", "train", pending, bed.namespace, subresource="status")
    status = bed.wait_for_state("Running")
    assert (status["placement"]["gpus"], status["attempt"], status.get("pending")) == (8, 1, None)
    set_quota(bed, {resource: "16"})
    bed.cluster.wait_for(lambda: bed.job()["status"]["placement"].get("room"), "room to be told")
    room = {"status": {"placement": {"room": {"gpus": 16, "since": long_ago}}}}
    bed.cluster.patch("trainingjob", "train", room, bed.namespace, subresource="status")
    bed.cluster.wait_for(lambda: bed.job()["status"]["attempt"] == 2, "the job to grow")
    assert "gpus" not in bed.wait_for_state("Running")["placement"]


def test_what_a_limit_range_adds_is_known_by_the_first_pod_and_asked_for_the_gang_from_then_on(bed: Bed) -> None:
    """The quota has room for one Pod with the memory that each of the two is given, and no name of it is in the
    template. One Pod is made and taken back once, and never again until the quota is raised."""
    set_limit_range(bed, {"memory": "2Gi"})
    set_quota(bed, {"requests.memory": "3Gi"})
    bed.submit(**ON_PLUGIN)
    assert bed.wait_for_reason("QuotaExceeded")["message"] == (
        f"the whole gang is more than is left of the quotas of namespace {bed.namespace}: "
        "quota gpus: requests.memory: asked 4Gi, hard 3Gi, used 0, left 3Gi; "
        "free some of it, ask for less, or have an administrator raise it"
    )
    bed.cluster.wait_for(lambda: bed.names("pods") == bed.names("services") == [], "what was made to be gone")
    bed.cluster.wait_for(lambda: made(bed, dry_run=True) > 1, "a Pod to be tried twice")
    assert (made(bed), "placement" in bed.job()["status"]) == (1, False)
    set_quota(bed, {"requests.memory": "4Gi"})
    assert bed.wait_for_state("Running")["attempt"] == 1
    assert made(bed) == 1 + len(bed.names("pods")) == 3


def made(bed: Bed, *, dry_run: bool = False) -> int:
    """How many Pods the operator has made so far, or tried."""
    return sum((each.verb, each.resource) == ("create", "pods") for each in bed.writes(dry_run=dry_run))


def set_limit_range(bed: Bed, requests: dict[str, str]) -> None:
    """Each container of the story's namespace that asks for none of these is given them."""
    limits = {"type": "Container", "defaultRequest": requests}
    metadata = {"name": "defaults", "namespace": bed.namespace}
    bed.cluster.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [limits]}})


def set_quota(bed: Bed, hard: dict[str, str], **spec: Any) -> None:
    """The quota of the story's namespace is this, and counted."""
    metadata = {"name": "gpus", "namespace": bed.namespace}
    bed.cluster.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard, **spec}}
    )

    def is_counted() -> bool:
        status = bed.cluster.get("resourcequota", "gpus", bed.namespace).get("status", {})
        return bool(status.get("hard") == hard and status.get("used", {}).keys() == hard.keys())

    bed.cluster.wait_for(is_counted, "the quota to be counted")


def test_a_policy_that_refuses_one_rank_takes_all_back_and_is_asked_before_anything_starts_again(bed: Bed) -> None:
    policy = refuse_rank_1(bed)
    bed.submit(**ON_PLUGIN)
    message = bed.wait_for_reason("TemplateInvalid")["message"]
    assert message.startswith(f"the API server refuses Pod {bed.namespace}/train-a1-worker-00001: ")
    assert message.endswith("denied request: not this one; change spec.template, or have an administrator allow it")
    bed.cluster.wait_for(lambda: bed.names("pods") == bed.names("services") == [], "what was made to be gone")
    assert "placement" not in bed.job()["status"]
    for probed, queue in enumerate(("a", "b", "c")):  # a job that changes is asked about at once
        bed.change("trainingjob", "train", {"spec": {"queue": queue}})
        wait_for_probes(bed, probed + 1)
    assert {(event.verb, event.name) for event in bed.writes(dry_run=True)} == {("create", "train-a1-worker-00001")}
    made = [event for event in bed.writes() if (event.verb, event.resource) == ("create", "pods")]
    assert [(event.name, event.code) for event in sorted(made, key=lambda event: event.at)] == [
        ("train-a1-worker-00000", 201),
        ("train-a1-worker-00001", 422),
    ]
    bed.cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", policy)
    wait_for_rank_1(bed, is_refused=False)
    bed.change("trainingjob", "train", {"spec": {"queue": "d"}})
    assert bed.wait_for_state("Running")["attempt"] == 1


def wait_for_probes(bed: Bed, count: int) -> None:
    bed.cluster.wait_for(lambda: len(bed.writes(dry_run=True)) == count, f"{count} dry runs")


def refuse_rank_1(bed: Bed) -> str:
    """Name of a policy, in force, that refuses every Pod of index 1 in the story's namespace."""
    name = f"no-rank-1-{bed.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    admission = "admissionregistration.k8s.io/v1"
    bed.cluster.apply(
        {
            "apiVersion": admission,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "!object.metadata.name.endsWith('-00001')", "message": "not this one"}],
            },
        },
        {
            "apiVersion": admission,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bed.namespace}}
                },
            },
        },
    )
    wait_for_rank_1(bed, is_refused=True)
    return name


def wait_for_rank_1(bed: Bed, *, is_refused: bool) -> None:
    """Until a policy is in force, or no longer: it takes a moment."""
    container = {"name": "c", "image": "registry.example/c:1"}
    metadata = {"name": "probe-00001", "namespace": bed.namespace}
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
    sent = ("create", "--filename=-", "--dry-run=server", "--output=name")
    bed.cluster.wait_for(
        lambda: (bed.cluster.kubectl(*sent, stdin=pod, check=False) == "") is is_refused, "the policy to be followed"
    )


def test_a_ban_on_best_effort_pods_is_none_on_a_gang_to_which_a_limit_range_gives_requests(bed: Bed) -> None:
    set_quota(bed, {"pods": "0"}, scopes=["BestEffort"])
    bed.submit(**ON_PLUGIN)
    assert "exceeded quota: gpus" in bed.wait_for_reason("QuotaExceeded")["message"]
    set_limit_range(bed, {"cpu": "1m", "memory": "1Mi"})
    bed.delete("trainingjob", "train")
    bed.submit("other", **ON_PLUGIN)
    bed.wait_for_state("Running", "other")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param("schedulerName: 'site-scheduler'", "goes through the default scheduler", id="scheduler"),
        pytest.param(
            "containers: [Object.spec.containers{name: 'trainer', resources: Object.spec.containers.resources"
            "{limits: {'nvidia.com/gpu': '4'}, requests: {'nvidia.com/gpu': '4'}}}]",
            "it asks for 4 nvidia.com/gpu instead of 8 nvidia.com/gpu",
            id="GPUs",
        ),
        pytest.param(
            "containers: [Object.spec.containers{name: 'trainer', env: [Object.spec.containers.env"
            "{name: 'CUDA_DEVICE_ORDER', value: 'FASTEST_FIRST'}]}]",
            'CUDA_DEVICE_ORDER in its container trainer is "FASTEST_FIRST" instead of "PCI_BUS_ID"',
            id="a variable",
        ),
    ],
)
@pytest.mark.skipif(kubernetes_version() < (1, 36), reason="MutatingAdmissionPolicies are v1 from Kubernetes 1.36 on")
def test_pods_that_a_policy_of_the_site_changes_on_their_way_are_told_as_that(
    bed: Bed, change: str, words: str
) -> None:
    """It gives each Pod of the namespace a scheduler of the site's own, as a cost tool's policy would; or other GPUs,
    for which one attempt after the other would end; or another value of a variable of ours."""
    name = {"name": "site-scheduler"}
    policy = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bed.namespace}},
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
        },
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"Object{{spec: Object.spec{{{change}}}}}"},
            }
        ],
    }
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": name}
    bed.cluster.apply({**api, "kind": "MutatingAdmissionPolicy", "spec": policy})
    bed.cluster.apply({**api, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "site-scheduler"}})
    try:
        probe = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe", "namespace": bed.namespace},
            "spec": {"containers": [{"name": "trainer", "image": "i"}]},
        }

        def is_changed() -> bool:
            made = bed.cluster.kubectl("create", "--dry-run=server", "-ojson", "-f-", stdin=json.dumps(probe))
            spec = json.loads(made)["spec"]
            container = spec["containers"][0]
            return spec["schedulerName"] == "site-scheduler" or bool(container["resources"]) or "env" in container

        bed.cluster.wait_for(is_changed, "the policy to be in force")
        bed.submit(**ON_PLUGIN)
        message = bed.wait_for_reason("ChangedOnTheWay")["message"]
        assert words in message
        assert "a mutating policy or webhook of the site changes Pods on their way" in message
        bed.cluster.wait_for(lambda: not bed.names("pods"), "what was made to be gone")
        assert bed.job()["status"]["restarts"] == 0
    finally:
        bed.cluster.kubectl("delete", "mutatingadmissionpolicybinding,mutatingadmissionpolicy", "site-scheduler")
