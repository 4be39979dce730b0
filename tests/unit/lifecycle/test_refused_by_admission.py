"""What admission says of a gang's Pods: whose fault it is. What is read of it is what the chart's policy says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.cluster.pods.symptoms import FENCE, FENCED_NAMESPACES, Symptom, of_denial
from closeknit.lifecycle.writes.resource_quotas import Quota
from scenarios.manifests import training_job
from scenarios.networks import job, machine, nics
from scenarios.story import Story, dra_node, plugin_node

ADMISSION = Path(__file__).parents[3] / "helm/closeknit/templates/admission"
DENIES = f"ValidatingAdmissionPolicy '{FENCE}' with binding '{FENCE}' denied request: "


def test_the_names_and_words_that_are_read_are_those_of_the_chart() -> None:
    assert f"name: {FENCE}" in (ADMISSION / "operator.yaml").read_text()
    assert FENCED_NAMESPACES in (ADMISSION / "_children.tpl").read_text()


@pytest.mark.parametrize(
    ("message", "symptom"),
    [
        (f"{DENIES}a Pod of the operator goes through the default scheduler", Symptom.CHANGED_ON_THE_WAY),
        (f"{DENIES}{FENCED_NAMESPACES} (kube-...) nor in its own", Symptom.SYSTEM_NAMESPACE),
        ("unable to create new content in namespace team-b because it is being terminated", Symptom.NAMESPACE_GOING),
        ("ValidatingAdmissionPolicy 'no-latest' denied request: use no latest", Symptom.POD_DENIED),
        ('admission webhook "validate.kyverno.svc-fail" denied the request: no', Symptom.POD_DENIED),
        ('violates PodSecurity "restricted:latest": host namespaces', Symptom.POD_DENIED),
    ],
)
def test_whose_word_it_is(message: str, symptom: Symptom) -> None:
    assert of_denial(f'pods "train-a1-worker-00000" is forbidden: {message}') is symptom


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public"])
def test_in_a_namespace_of_kubernetes_nothing_is_asked_and_the_job_is_told_to_go(namespace: str) -> None:
    job = training_job(spec={"gpus": 8})
    job["metadata"]["namespace"] = namespace
    story = Story(*plugin_node("gpu-1"), job)
    story.settle()
    pending = story.status(namespace=namespace).pending
    assert pending is not None
    assert (pending.reason, story.written) == ("NamespaceNotServed", ["status Queued"])
    assert pending.message.startswith("closeknit makes no Pods in the namespaces of Kubernetes (kube-...)")


def test_in_the_operators_own_namespace_the_policys_words_are_told_in_ours() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.forbidden["train-a1-worker-00000"] = f"{DENIES}{FENCED_NAMESPACES} (kube-...) nor in its own"
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, story.pods()) == ("NamespaceNotServed", [])
    assert "create the job in another namespace" in pending.message


WEBHOOK = 'failed calling webhook "validate.example.com": connect: connection refused'


@pytest.mark.parametrize("made", [0, 1])
def test_a_webhook_that_is_down_for_long_is_told_and_the_gpus_are_for_others(made: int) -> None:
    """None of the gang's Pods was made before, or one of them."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), training_job(spec={"gpus": 16}))
    if made:
        story.settle()
        story.remove_pod("train-a1-worker-00001")
        story.pass_time(60)
    story.failing = WEBHOOK
    story.write_once()
    for _ in range(6):
        assert story.status().placement is not None
        story.pass_time(4.9)
        story.write_once()
    story.pass_time(1)
    story.write_once()
    story.write_once()
    status = story.status()
    assert status.pending is not None
    assert (status.pending.reason, status.placement, story.pods()) == ("AdmissionUnavailable", None, [])
    assert f": Internal error occurred: {WEBHOOK}; have an administrator see to the webhook" in status.pending.message
    assert (status.restarts, status.attempts) == (0, [])
    booked = len(story.written)
    for _ in range(6):
        story.pass_time(20)
        story.write_once()
    assert story.written[booked:] == []  # it is asked by dry runs, and told once
    story.failing = None
    story.pass_time(300)
    story.settle()
    assert story.pods() == ["train-a1-worker-00000", "train-a1-worker-00001"]


@pytest.mark.parametrize("kind", ["Service", "ConfigMap"])
def test_what_was_made_without_an_answer_and_refused_then_keeps_its_job_from_nothing(kind: str) -> None:
    """Its deletion has failed, too. No watch tells that it is there."""
    machines, job = [*plugin_node("gpu-1"), *plugin_node("gpu-2")], training_job(spec={"gpus": 16, "framework": "MPI"})
    well, story = Story(*machines, job), Story(*machines, job)
    well.settle()
    (name,) = well.names(kind)
    story.forbidden[f"{kind} {name}"] = 'admission webhook "children.example" denied the request: not now'
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, story.pods()) == ("TemplateInvalid", [])
    for key, made in well.objects.items():
        if key[0] in {"Service", kind}:
            story.add(made)
    story.forbidden.clear()
    story.pass_time(300)
    story.settle()
    assert story.pods() == ["train-a1-worker-00000", "train-a1-worker-00001"]


def test_a_webhook_that_is_down_for_a_moment_costs_a_gang_nothing() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    for _ in range(3):
        story.failing = WEBHOOK
        for _ in range(3):
            story.write_once()
            story.pass_time(8)
        story.failing = None
        story.settle()
        assert story.pods() == ["train-a1-worker-00000"]
        story.remove_pod("train-a1-worker-00000")
        story.pass_time(120)
    assert story.status().pending is None


NO_ACCOUNT = (
    'pods "train-a1-worker-00000" is forbidden: error looking up service account team-b/default: serviceaccount '
    '"default" not found'
)


def test_a_namespace_that_is_so_new_that_it_has_no_account_costs_its_job_nothing() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.forbidden["train-a1-worker-00000"] = NO_ACCOUNT
    story.write_once()
    story.forbidden.clear()
    story.pass_time(0.1)
    story.settle()
    assert (story.pods(), [each.reason for each in story.notices]) == (["train-a1-worker-00000"], ["Placed"])
    assert story.status().pending is None


def test_a_namespace_that_has_no_account_is_told_so_and_holds_no_gpus() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.forbidden["train-a1-worker-00000"] = NO_ACCOUNT
    for _ in range(4):
        story.write_once()
        story.pass_time(11)
    story.write_once()
    status = story.status()
    assert status.pending is not None
    assert (status.pending.reason, status.placement) == ("TemplateInvalid", None)
    assert "create that ServiceAccount in namespace team-b, or have an administrator" in status.pending.message


def test_a_namespace_that_is_being_deleted_is_no_fault_of_a_template() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    words = "unable to create new content in namespace team-b because it is being terminated"
    story.forbidden["train-a1-worker-00000"] = words
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, pending.message) == (
        "NamespaceNotServed",
        "namespace team-b is being deleted and takes nothing new; create the job in another namespace",
    )


def test_one_whose_policy_takes_it_by_now_is_told_of_the_quota_as_a_whole() -> None:
    """A quota refuses a Pod on trial, too, and that is no fault of the template."""
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.forbidden["train-a1-worker-00000"] = "use no latest"
    story.settle()
    assert _told(story)[0] == PendingReason.TEMPLATE_INVALID
    story.quotas = [Quota("team", {"pods": "1"}, {"pods": "1"})]
    by_quota = "exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1"
    story.forbidden["train-a1-worker-00000"] = by_quota
    story.pass_time(301)
    story.settle()
    reason, message = _told(story)
    assert reason == PendingReason.QUOTA_EXCEEDED
    assert message.startswith("the whole gang is more than is left of the quotas of namespace team-b")


def test_who_is_refused_a_parameter_server_is_asked_for_that_and_makes_no_pods_meanwhile() -> None:
    """A server's index is its own: it is no position among all Pods."""
    server = {"containers": [{"name": "server", "image": "registry.example/ps:1"}]}
    servers = {"replicas": 2, "template": {"spec": server}}
    spec = {"gpus": 16, "framework": "TensorFlow", "topology": {"gpusPerNode": 8}, "parameterServers": servers}
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), training_job(spec=spec))
    story.forbidden |= {f"train-a1-ps-0000{index}": "no servers here" for index in range(2)}
    for _ in range(12):
        story.settle()
        story.pass_time(301)
    assert _told(story)[0] == PendingReason.TEMPLATE_INVALID
    assert story.written.count("create Pod train-a1-worker-00000") == 1
    assert set(story.tried) == {"Pod train-a1-ps-00000"}


def test_after_a_quota_s_refusal_two_pods_of_each_role_are_tried_before_anything_is_made() -> None:
    """What admission adds to servers is not what it adds to workers, and the first Pod may get something of its own."""
    server = {"containers": [{"name": "server", "image": "registry.example/ps:1"}]}
    servers = {"replicas": 2, "template": {"spec": server}}
    spec = {"gpus": 24, "framework": "TensorFlow", "topology": {"gpusPerNode": 8}, "parameterServers": servers}
    story = Story(*(each for number in range(3) for each in plugin_node(f"gpu-{number}")), training_job(spec=spec))
    story.forbidden["train-a1-ps-00001"] = "exceeded quota: team, requested: pods=1, used: pods=4, limited: pods=4"
    story.settle()
    assert (_told(story)[0], story.pods()) == (PendingReason.QUOTA_EXCEEDED, [])
    story.forbidden.clear()
    story.pass_time(16)
    (booking,) = story.plans()
    tried = [each["metadata"]["name"].removeprefix("train-a1-") for each in booking.probes]
    assert tried == ["ps-00001", "worker-00000", "worker-00001", "ps-00000"]


class FewGpusStory(Story):
    """One whose policy takes no claim of more than four GPUs."""

    def denial(self, manifest: Mapping[str, Any]) -> str | None:
        if manifest["kind"] != "ResourceClaim":
            return None
        return "too many" if manifest["spec"]["devices"]["requests"][0]["exactly"]["count"] > 4 else None


@pytest.mark.parametrize("edit", [{"gpus": 4}, {"topology": {"gpusPerNode": 4}}], ids=["fewer", "smaller Pods"])
def test_a_refused_claim_is_asked_again_as_the_edited_job_would_have_it(edit: dict[str, Any]) -> None:
    story = FewGpusStory(*dra_node("gpu-1"), *dra_node("gpu-2"), training_job(spec={"gpus": 8}))
    story.settle()
    assert _told(story)[0] == PendingReason.TEMPLATE_INVALID
    story.edit_job(**edit)
    story.pass_time(3)
    story.settle()
    assert story.status().placement is not None


def test_a_quota_that_refuses_a_pod_is_no_word_on_what_is_added_to_it() -> None:
    """It is tried again with IPC_LOCK."""
    story = Story(*machine("gpu-1", nics("InfiniBand"), hca="8"), *machine("gpu-2", nics("InfiniBand"), hca="8"), job())
    story.forbidden["train-a1-worker-00000"] = "exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2"
    story.settle()
    story.forbidden.clear()
    story.pass_time(301)
    story.settle()
    contexts = [story.pod(name)["spec"]["containers"][0]["securityContext"] for name in story.pods()]
    assert contexts == [{"capabilities": {"add": ["IPC_LOCK"]}}] * 2


def _told(story: Story) -> tuple[str, str]:
    pending = story.status().pending
    assert pending is not None
    return pending.reason, pending.message
