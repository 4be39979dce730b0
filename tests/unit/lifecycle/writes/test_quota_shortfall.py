"""A gang against its namespace's quotas: what it asks, what is left, what is told, and when it is asked again."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from closeknit.api.names import INDEX_LABEL, JOB_LABEL, ROLE_LABEL
from closeknit.api.trainingjob_status import State
from closeknit.cluster.pods.pod import Pod, WirePod
from closeknit.cluster.pods.pod import pod as kept
from closeknit.lifecycle.writes.quota_demand import (
    QuotaDemand,
    admitted_pod,
    as_admitted,
    given_back,
    quota_demand,
    refused_pod,
)
from closeknit.lifecycle.writes.quota_shortfall import shortfalls, words
from closeknit.lifecycle.writes.resource_quotas import Quota, ScopeRequirement, quotas
from scenarios.manifests import owner, training_job
from scenarios.stories import ended, two_dra_nodes, two_plugin_nodes
from scenarios.story import Story, plugin_node
from scenarios.views import NOON

GPUS = "requests.nvidia.com/gpu"
BYTES = 2**30


def pod(**spec: Any) -> dict[str, Any]:
    labels = {ROLE_LABEL: "worker", INDEX_LABEL: "0"}
    return {"kind": "Pod", "metadata": {"labels": labels}, "spec": {"containers": [{"name": "trainer"}], **spec}}


def trainer(**resources: Any) -> dict[str, Any]:
    return {"name": "trainer", "resources": resources}


def of(*manifests: dict[str, Any]) -> QuotaDemand:
    return quota_demand(manifests, may_be_counted=False)


def test_the_demand_is_the_sum_over_the_gang_under_the_names_of_quotas() -> None:
    limits = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "8", "hugepages-2Mi": "2Mi"}
    side = {"name": "side", "resources": {"requests": {"cpu": "500m"}}}
    one = pod(
        containers=[trainer(limits=limits), side], overhead={"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1"}
    )
    claim = {"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8}}
    asked = of(
        {"kind": "Service"}, one, one, {"kind": "ResourceClaim", "spec": {"devices": {"requests": [claim, claim]}}}
    )
    assert asked.pods == {
        "pods": 2,
        "count/pods": 2,
        "cpu": 6000,
        "requests.cpu": 6000,
        "limits.cpu": 5000,
        "memory": 4 * BYTES,
        "requests.memory": 4 * BYTES,
        "limits.memory": 4 * BYTES,
        "ephemeral-storage": 2,
        "requests.ephemeral-storage": 2,
        GPUS: 16,
        "hugepages-2Mi": 2**22,
        "requests.hugepages-2Mi": 2**22,
    }
    assert asked.others == {
        "services": 1,
        "count/services": 1,
        "count/resourceclaims.resource.k8s.io": 1,
        "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": 16,
    }


def test_the_limits_of_the_init_phase_count_where_they_are_more() -> None:
    first = {"name": "first", "resources": {"limits": {"cpu": "8"}}}
    beside = {"name": "beside", "restartPolicy": "Always", "resources": {"limits": {"cpu": "2"}}}
    asked = of(pod(initContainers=[beside, first], containers=[trainer(limits={"cpu": "4"})]))
    assert asked.pods["limits.cpu"] == 10_000


def test_a_pod_that_cannot_be_read_counts_as_one() -> None:
    assert of(pod(containers=[trainer(requests="many")])).pods == {"pods": 1, "count/pods": 1}


@pytest.mark.parametrize(
    ("hard", "used", "exceeds"),
    [
        pytest.param({GPUS: "16"}, {GPUS: "0"}, False, id="just enough"),
        pytest.param({GPUS: "16"}, {GPUS: "1"}, True, id="one too few"),
        pytest.param({GPUS: "8"}, {GPUS: "20"}, True, id="more used than there is"),
        pytest.param({"requests.cpu": "3"}, {"requests.cpu": "999m"}, False, id="thousandths of a core"),
        pytest.param({"requests.cpu": "3"}, {"requests.cpu": "1001m"}, True, id="a thousandth too few"),
        pytest.param({"requests.memory": "2Gi"}, {"requests.memory": "1025Mi"}, True, id="bytes"),
        pytest.param({"limits.cpu": "0"}, {"limits.cpu": "0"}, False, id="what the gang has none of"),
        pytest.param({GPUS: "8"}, {}, False, id="nobody has counted yet"),
        pytest.param({GPUS: "many"}, {GPUS: "0"}, False, id="no number"),
        pytest.param({GPUS: "9" * 5000}, {GPUS: "0"}, False, id="too long a number"),
        pytest.param({"count/pods": "1"}, {"count/pods": "0"}, True, id="objects"),
        pytest.param({"secrets": "0"}, {"secrets": "0"}, False, id="another kind"),
    ],
)
def test_what_is_left_is_compared_number_by_number(hard: Any, used: Any, exceeds: bool) -> None:
    requests = {"cpu": "1", "memory": "512Mi", "nvidia.com/gpu": "8"}
    asked = of(*[pod(containers=[trainer(requests=requests)])] * 2)
    assert bool(shortfalls(asked, [Quota("q", hard, used)])) is exceeds


CPUS = [trainer(requests={"cpu": "1"})]


def test_what_admission_makes_of_one_pod_it_makes_of_all_of_its_role() -> None:
    server = pod(containers=[{"name": "server"}])
    server["metadata"]["labels"] = {ROLE_LABEL: "ps", INDEX_LABEL: "0"}
    sent = pod(containers=[trainer(limits={"nvidia.com/gpu": "8", "memory": "2Gi"})])
    asked = of(sent, sent, sent, server)
    limits = {"nvidia.com/gpu": "8", "memory": "1Gi"}  # a policy of the site lowers what a Pod may have
    made = pod(
        containers=[trainer(limits=limits, requests={"cpu": "500m"})],
        overhead={"cpu": "250m"},  # of its RuntimeClass
        priorityClassName="default",
        activeDeadlineSeconds=60,
    )
    found = as_admitted(asked, [admitted_pod(sent, made)])
    assert (found.priority_class, found.has_deadline, found.pods["pods"], found.pods[GPUS]) == ("default", True, 4, 24)
    assert (found.pods["requests.cpu"], found.pods["limits.memory"]) == (3 * 750, 3 * BYTES)
    assert as_admitted(asked, [admitted_pod(sent, sent)]) == replace(asked, is_class_known=True)


def test_what_is_made_of_the_first_pod_alone_counts_once_where_another_one_was_seen() -> None:
    sent = pod(containers=CPUS)
    second = pod(containers=CPUS)
    second["metadata"]["labels"] = {ROLE_LABEL: "worker", INDEX_LABEL: "1"}
    beside = pod(containers=[*CPUS, {"name": "logs", "resources": {"requests": {"cpu": "4"}}}])
    asked = of(sent, second, second)
    found = as_admitted(asked, [admitted_pod(second, second), admitted_pod(sent, beside)])
    assert (asked.pods["cpu"], found.pods["cpu"]) == (3000, 7000)
    one = as_admitted(of(second), [admitted_pod(second, second), admitted_pod(sent, beside)])
    assert one.pods["cpu"] == 1000  # a smaller gang has not both


def test_what_a_quota_says_of_a_pod_that_it_refuses_is_taken_for_all() -> None:
    sent = pod(containers=CPUS)
    before = [admitted_pod(sent, pod(containers=[trainer(requests={"cpu": "1", "memory": "1Gi"})]))]
    found = as_admitted(of(sent, sent), [refused_pod(sent, {"requests.cpu": 3000, "pods": 1}, before)])
    assert (found.pods["requests.cpu"], found.pods["requests.memory"], found.pods["pods"]) == (6000, 2 * BYTES, 2)
    unknown = as_admitted(of(sent, sent), [refused_pod(sent, {"requests.cpu": 3000}, ())])
    assert (unknown.pods["requests.cpu"], unknown.is_class_known) == (6000, False)


@pytest.mark.parametrize(
    ("quota", "is_enough"),
    [
        pytest.param(Quota("q", {"limits.memory": "2Gi"}, {"limits.memory": "2Gi"}), True, id="limits"),
        pytest.param(
            Quota("q", {"pods": "1"}, {"pods": "1"}, (ScopeRequirement("PriorityClass", "In", ["low"]),)),
            True,
            id="counts both",
        ),
        pytest.param(
            Quota("q", {"pods": "1"}, {"pods": "1"}, (ScopeRequirement("NotTerminating", "Exists"),)),
            False,
            id="counts the asking one alone",
        ),
    ],
)
def test_pods_that_make_room_give_back_what_the_quota_counts_of_them(quota: Quota, is_enough: bool) -> None:
    limits = {"memory": "2Gi"}
    spec = {"containers": [trainer(limits=limits)], "priorityClassName": "low"}
    going = convert(
        {"metadata": {"name": "a", "labels": {JOB_LABEL: "a"}}, "spec": {**spec, "activeDeadlineSeconds": 60}}
    )
    demand = replace(of(pod(**spec)), given_back=given_back([going], NOON))
    assert (not shortfalls(demand, [quota])) is is_enough


@pytest.mark.parametrize(
    ("deleted", "phase", "is_given"),
    [
        pytest.param(None, "Running", True, id="runs"),
        pytest.param("2026-11-21T12:00:00Z", "Running", True, id="ends"),
        pytest.param("2026-11-21T11:59:00Z", "Running", False, id="has stayed too long"),
        pytest.param("2026-11-21T12:00:00Z", "Failed", False, id="is over"),
    ],
)
def test_a_pod_gives_back_what_it_holds_if_it_goes_soon(deleted: str | None, phase: str, is_given: bool) -> None:
    metadata = {"name": "a", "labels": {JOB_LABEL: "a"}} | ({} if deleted is None else {"deletionTimestamp": deleted})
    going = convert({"metadata": metadata, "spec": pod()["spec"], "status": {"phase": phase}})
    assert bool(given_back([going], NOON)) is is_given


def convert(wire: dict[str, Any]) -> Pod:
    found = kept(msgspec.convert(wire, WirePod))
    assert isinstance(found, Pod)
    return found


@pytest.mark.parametrize(
    ("spec", "scope", "counts"),
    [
        pytest.param({}, ScopeRequirement("BestEffort", "Exists"), True, id="BestEffort"),
        pytest.param({"containers": CPUS}, ScopeRequirement("BestEffort", "Exists"), False, id="BestEffort, with CPUs"),
        pytest.param({"containers": CPUS}, ScopeRequirement("NotBestEffort", "Exists"), True, id="NotBestEffort"),
        pytest.param({}, ScopeRequirement("NotTerminating", "Exists"), True, id="NotTerminating"),
        pytest.param({"activeDeadlineSeconds": 60}, ScopeRequirement("Terminating", "Exists"), True, id="Terminating"),
        pytest.param({"priorityClassName": "a"}, ScopeRequirement("PriorityClass", "In", ["a"]), True, id="its class"),
        pytest.param(
            {"priorityClassName": "a"}, ScopeRequirement("PriorityClass", "In", ["b"]), False, id="another class"
        ),
        pytest.param(
            {"priorityClassName": "a"}, ScopeRequirement("PriorityClass", "NotIn", ["b"]), True, id="not another"
        ),
        pytest.param({"priorityClassName": "a"}, ScopeRequirement("PriorityClass", "Exists"), True, id="any class"),
        pytest.param({}, ScopeRequirement("PriorityClass", "NotIn", ["b"]), False, id="the default class, unknown"),
        pytest.param({}, ScopeRequirement("CrossNamespacePodAffinity", "Exists"), False, id="what is not evaluated"),
    ],
)
def test_a_scope_that_is_not_sure_to_hold_limits_nothing(spec: Any, scope: ScopeRequirement, counts: bool) -> None:
    quota = Quota("q", {"pods": "1", "services": "0"}, {"pods": "0", "services": "0"}, (scope,))
    found = shortfalls(of(pod(**spec), pod(**spec), {"kind": "Service"}), [quota])
    assert [shortfall.resource for shortfall in found] == (["pods"] if counts else [])


@pytest.mark.parametrize(("hard", "used"), [("0", "0"), ("2", "2"), ("2", "3")])
def test_a_ban_on_best_effort_leaves_it_to_the_first_pod_which_a_limit_range_may_make_another(
    hard: str, used: str
) -> None:
    quota = Quota("q", {"pods": hard}, {"pods": used}, (ScopeRequirement("BestEffort", "Exists"),))
    assert shortfalls(of(pod(), pod()), [quota]) == ()


def test_quotas_are_read_as_they_come_and_odd_ones_are_left_out() -> None:
    odd = [b"{", b'{"metadata": {"name": 7}}', b'{"metadata": {"name": "q"}, "status": {"hard": []}}']
    whole = (
        b'{"metadata": {"name": "b"}, "spec": {"scopes": ["BestEffort"], "scopeSelector": {"matchExpressions":'
        b' [{"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}]}}, "status": {"hard": {"pods": "1"}}}'
    )
    read = quotas([*odd, whole, b'{"metadata": {"name": "a"}}'])
    assert [quota.name for quota in read] == ["a", "b"]
    assert read[1].scopes == (ScopeRequirement("BestEffort", "Exists"), ScopeRequirement("PriorityClass", "In", ["a"]))


def test_many_shortfalls_are_told_in_few_words() -> None:
    found = shortfalls(of(pod()), [Quota(f"q{number}", {"pods": "0"}, {"pods": "0"}) for number in range(9)])
    assert words(found, "ml").count("quota q") == 4
    assert "; and 5 more; " in words(found, "ml")


def test_a_gang_that_exceeds_a_quota_is_told_the_numbers_and_nothing_is_made_of_it() -> None:
    story = two_plugin_nodes()
    story.quotas = [Quota("gpus", {GPUS: "12"}, {GPUS: "4"})]
    story.settle()
    pending = story.status().pending or pytest.fail("not pending")
    assert pending.reason == "QuotaExceeded"
    assert pending.message == (
        "the whole gang is more than is left of the quotas of namespace team-b: "
        "quota gpus: requests.nvidia.com/gpu: asked 16, hard 12, used 4, left 8; "
        "free some of it, ask for less, or have an administrator raise it"
    )
    assert story.written == ["status Queued"]
    waits = []
    for _ in range(8):
        (wait,) = (plan.wake_after_s for plan in story.plans() if plan.wake_after_s)
        waits.append(wait)
        story.pass_time(wait)
        story.settle()
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]
    assert story.pods() == []
    story.quotas = [Quota("gpus", {GPUS: "20"}, {GPUS: "4"})]
    story.pass_time(60)
    story.settle()
    assert (story.status().state, len(story.pods())) == (State.STARTING, 2)


def test_a_gang_that_waits_for_its_quota_keeps_no_gpus_from_others() -> None:
    story = Story(*plugin_node("gpu-1"), training_job("a", spec={"gpus": 8}))
    story.quotas = [Quota("gpus", {GPUS: "4"}, {GPUS: "0"})]
    story.settle()
    story.quotas = []
    story.add(training_job("b", namespace="team-c", spec={"gpus": 8}))
    story.settle()
    assert (story.status("a").state, story.status("b", "team-c").state) == (State.QUEUED, State.STARTING)


def test_a_quota_that_still_counts_the_pods_of_before_is_asked_again_and_refuses_nothing() -> None:
    story = two_dra_nodes()
    story.settle()
    story.run_all()
    story.settle()
    story.quotas = [Quota("pods", {"pods": "3"}, {"pods": "2"})]
    story.remove_pod("train-a1-worker-00000")
    for _ in range(4):
        for plan in story.plans():
            story.write(plan)
    assert (story.pods(), story.status().state, story.status().pending) == ([], State.STARTING, None)
    story.quotas = [Quota("pods", {"pods": "3"}, {"pods": "0"})]
    story.settle()
    assert story.pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]
    assert ended(story) == [(1, "ChildDeleted", False)]


def test_a_quota_that_was_lowered_meanwhile_takes_the_booking_of_the_next_attempt_back() -> None:
    story = two_dra_nodes()
    story.settle()
    story.run_all()
    story.settle()
    story.quotas = [Quota("pods", {"pods": "1"}, {"pods": "0"})]
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    assert (story.pods(), story.names("Service")) == ([], [])
    assert story.status().placement is None
    assert (story.status().pending or pytest.fail("not pending")).reason == "QuotaExceeded"


def test_a_service_that_a_killed_operator_left_does_not_keep_its_own_job_waiting_for_ever() -> None:
    story = two_plugin_nodes()
    story.settle()
    left = story.objects["Service", "team-b", "train-a1"]
    story.edit_job(suspend=True)
    story.settle()
    story.add(left)  # the status was stored, and its deletion never sent
    resumes_under_a_quota_of_one_service(story)
    assert story.pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]


def test_nor_does_one_of_a_gang_that_was_taken_back() -> None:
    story = two_plugin_nodes()
    story.forbidden["train-a1-worker-00001"] = "not this one"
    story.settle()
    metadata = {"name": "train-a1", "namespace": "team-b", "ownerReferences": [owner("train", uid="uid-of-train")]}
    story.add({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    story.forbidden.clear()
    resumes_under_a_quota_of_one_service(story)
    assert story.pods() == ["train-a1-worker-00000", "train-a1-worker-00001"]


def resumes_under_a_quota_of_one_service(story: Story) -> None:
    """A new operator meets a quota that counts the Service that is there."""
    story.answers.clear()
    story.pass_time(60)
    story.edit_job(suspend=False)
    for _ in range(3):
        story.quotas = [Quota("one", {"services": "1"}, {"services": str(len(story.names("Service")))})]
        story.settle()
        story.pass_time(60)
