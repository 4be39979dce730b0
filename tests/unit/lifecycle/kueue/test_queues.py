"""Jobs in Kueue's LocalQueues: quota first, then a place; and back into the queue where Kueue says so."""

from collections.abc import Mapping
from typing import Any

import pytest

from closeknit.api.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from closeknit.api.trainingjob_status import State
from closeknit.cluster.kueue.workload import workload_name
from closeknit.controller.metrics import Metrics
from closeknit.controller.writes.resources import WORKLOADS
from closeknit.controller.writes.workload_writes import AT_ONCE, write_workloads
from closeknit.controller.writes.write_slots import WriteSlots
from closeknit.kube.errors import Forbidden
from closeknit.lifecycle.kueue.workload_news import workload_news
from closeknit.lifecycle.status.conditions import timestamp
from faults import virtual_time
from faults.fault import Fault, Refuse
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.manifests import Manifest, training_job
from scenarios.story import Story, plugin_node

NAME = workload_name("train", "uid-of-train")


def queued_job(queue: str = "research", name: str = "train", **spec: Any) -> Manifest:
    job = training_job(name, spec={"gpus": 8, **spec})
    job["metadata"]["labels"] = {QUEUE_LABEL: queue}
    return job


def flavor(name: str, labels: Mapping[str, str] | None = None, **spec: Any) -> Manifest:
    body = {"nodeLabels": dict(labels or {}), **spec}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": body}


def kueue_story(*manifests: Manifest, job: Manifest | None = None) -> Story:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), flavor("h200"), *manifests, job or queued_job())
    story.serves_kueue = True
    return story


def workload(story: Story, name: str = NAME) -> dict[str, Any]:
    return story.objects["Workload", "team-b", name]


def says(
    story: Story, kind: str, is_so: bool = True, reason: str = "Test", message: str = "", name: str = NAME
) -> None:
    """Kueue sets a condition."""
    there = workload(story, name)
    conditions = there.setdefault("status", {}).setdefault("conditions", [])
    conditions[:] = [each for each in conditions if each["type"] != kind]
    conditions.append(
        {
            "type": kind,
            "status": str(is_so),
            "reason": reason,
            "message": message,
            "lastTransitionTime": timestamp(story.now),
        }
    )
    there["metadata"]["resourceVersion"] = story.next_version()


def admit(story: Story, *flavors: str, name: str = NAME, **assignment: Any) -> None:
    """As Kueue's scheduler does it."""
    pod_sets = workload(story, name)["spec"]["podSets"]
    assigned = [
        {
            "name": each["name"],
            "count": each["count"],
            "flavors": {f"resource-{number}": flavor for number, flavor in enumerate(flavors or ("h200",))},
            **assignment,
        }
        for each in pod_sets
    ]
    workload(story, name).setdefault("status", {})["admission"] = {
        "clusterQueue": "gpus",
        "podSetAssignments": assigned,
    }
    for kind in ("Evicted", "Preempted"):
        if any(each["type"] == kind for each in workload(story, name)["status"].get("conditions", [])):
            says(story, kind, False, "QuotaReserved", name=name)
    says(story, "QuotaReserved", reason="QuotaReserved", message="Quota reserved in ClusterQueue gpus", name=name)
    says(story, "Admitted", reason="Admitted", message="The workload is admitted", name=name)


def settle_later(story: Story) -> None:
    """New words for a job that waits are written once a minute."""
    story.pass_time(61)
    story.settle()


def evict(story: Story, reason: str = "Preempted", message: str = "Preempted to accommodate a workload") -> None:
    says(story, "Evicted", True, reason, message)


def condition(story: Story, kind: str) -> tuple[str, str]:
    (found,) = [each for each in workload(story)["status"]["conditions"] if each["type"] == kind]
    return found["status"], found["reason"]


def message(story: Story, name: str = "train") -> str:
    pending = story.status(name).pending
    assert pending is not None
    assert pending.reason == "WaitingForKueue"
    return pending.message


def started(story: Story) -> Story:
    story.settle()
    admit(story)
    story.settle()
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING
    return story


def test_a_job_in_a_queue_asks_for_quota_and_holds_nothing_until_it_is_admitted() -> None:
    story = kueue_story()
    story.settle()
    made = workload(story)
    assert story.pods() == []
    assert "LocalQueue research" in message(story)
    (pod_set,) = made["spec"]["podSets"]
    (container,) = pod_set["template"]["spec"]["containers"]
    assert (pod_set["count"], container["resources"]["requests"]) == (8, {"nvidia.com/gpu": "1"})
    assert (made["spec"]["queueName"], made["spec"]["priority"]) == ("research", 0)
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("TrainingJob", "uid-of-train", True)
    words = "insufficient quota for nvidia.com/gpu in flavor h200, 4 more needed"
    says(story, "QuotaReserved", False, "Pending", words)
    settle_later(story)
    assert words in message(story)
    admit(story)
    story.settle()
    assert story.status().state is State.STARTING


def test_a_job_with_a_share_for_each_node_asks_for_all_that_its_pods_request() -> None:
    container = {
        "name": "trainer",
        "image": "registry.example/train:1",
        "resources": {"requests": {"cpu": "1500m", "memory": "64Gi"}},
    }
    story = kueue_story(
        job=queued_job(gpus=16, topology={"gpusPerNode": 8}, template={"spec": {"containers": [container]}})
    )
    story.settle()
    (pod_set,) = workload(story)["spec"]["podSets"]
    (asked,) = pod_set["template"]["spec"]["containers"]
    wanted = {"cpu": "1500m", "memory": str(64 << 30), "nvidia.com/gpu": "8"}
    assert (pod_set["count"], asked["resources"]["requests"]) == (2, wanted)


def test_it_is_placed_inside_its_flavour() -> None:
    taint = {"key": "pool", "value": "reserved", "effect": "NoSchedule"}
    tolerated = {"key": "pool", "operator": "Equal", "value": "reserved", "effect": "NoSchedule"}
    story = kueue_story(flavor("reserved", {"pool": "reserved"}, tolerations=[tolerated]))
    node = story.objects["Node", "", "gpu-2"]
    node["metadata"].setdefault("labels", {})["pool"] = "reserved"
    node["spec"] = {"taints": [taint]}
    story.settle()
    admit(story, "reserved")
    story.settle()
    placement = story.status().placement
    assert placement is not None
    assert [each.name for each in placement.nodes] == ["gpu-2"]
    spec = story.pod("train-a1-worker-00000")["spec"]
    assert spec["nodeSelector"] == {"pool": "reserved"}
    assert tolerated in spec["tolerations"]
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING  # nothing is taken for another demand
    assert [name for name in story.written if name.startswith("delete Workload")] == []


def test_what_an_admission_check_adds_comes_into_the_pods() -> None:
    story = kueue_story()
    story.settle()
    update = {
        "name": "workers",
        "labels": {"team": "a", "kueue.x-k8s.io/queue-name": "x", "closeknit.dev/job": "y"},
        "annotations": {"autoscaling.x-k8s.io/consume-provisioning-request": "train-1"},
        "nodeSelector": {"kubernetes.io/hostname": "gpu-2"},
    }
    check = {"name": "capacity", "state": "Ready", "message": "", "podSetUpdates": [update]}
    workload(story).setdefault("status", {})["admissionChecks"] = [check]
    for name in ("gpu-1", "gpu-2"):
        story.objects["Node", "", name]["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = name
    admit(story)
    story.settle()
    metadata = story.pod("train-a1-worker-00000")["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert "kueue.x-k8s.io/queue-name" not in metadata["labels"]
    assert metadata["labels"]["closeknit.dev/job"] == "train"
    assert metadata["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"] == "train-1"
    assert story.pod("train-a1-worker-00000")["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "gpu-2"}


@pytest.mark.parametrize(
    ("reason", "requeued"), [("Preempted", "True"), ("PodsReadyTimeout", "False"), ("ClusterQueueStopped", "False")]
)
def test_an_evicted_job_gives_its_quota_back_once_its_pods_are_gone(reason: str, requeued: str) -> None:
    story = started(kueue_story())
    story.lose_node("gpu-1")  # its kubelet confirms no end
    evict(story, reason)
    story.settle()
    assert story.status().placement is None
    ended = story.status().attempts[-1]
    assert (ended.reason, ended.charged) == ("EvictedByKueue", None if ended.charged is None else False)
    if story.pods():
        assert condition(story, "QuotaReserved")[0] == "True"
        story.recover_node("gpu-1")
        for name in story.pods():
            story.change_pod(name, phase="Failed")
        story.settle()
    assert condition(story, "QuotaReserved") == ("False", "Pending")
    assert condition(story, "Admitted") == ("False", "NoReservation")
    assert condition(story, "Requeued") == (requeued, reason)
    assert "admission" not in workload(story)["status"]
    assert story.status().pending is not None
    story.pass_time(60)
    admit(story)
    story.settle()
    story.run_all()
    story.settle()
    assert (story.status().state, story.status().attempt) == (State.RUNNING, 2)


def test_kueue_hears_that_the_gang_runs_and_how_it_ended() -> None:
    story = started(kueue_story())
    assert condition(story, "PodsReady") == ("True", "Started")
    story.change_pod("train-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert story.status().state is State.SUCCEEDED
    assert condition(story, "Finished") == ("True", "Succeeded")


def test_a_job_that_is_evicted_before_it_has_room_gives_its_quota_back_at_once() -> None:
    story = kueue_story(job=queued_job(gpus=64))
    story.settle()
    admit(story)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == "InsufficientGPUs"
    evict(story)
    settle_later(story)
    assert condition(story, "QuotaReserved") == ("False", "Pending")
    assert "LocalQueue research" in message(story)


def test_where_kueue_is_not_there_the_job_says_so() -> None:
    story = kueue_story()
    story.serves_kueue = False
    story.settle()
    assert story.names("Workload") == []
    assert "install Kueue" in message(story)


def test_a_running_job_stays_while_kueue_cannot_be_read() -> None:
    story = started(kueue_story())
    there = workload(story)
    del story.objects["Workload", "team-b", NAME]
    story.serves_kueue = False
    story.settle()
    assert story.status().state is State.RUNNING
    story.objects["Workload", "team-b", NAME] = there
    story.serves_kueue = True
    story.settle()
    assert (story.status().state, story.status().restarts) == (State.RUNNING, 0)


def test_a_workload_that_somebody_deletes_is_asked_for_again_and_the_job_waits_for_it() -> None:
    story = started(kueue_story())
    del story.objects["Workload", "team-b", NAME]
    story.settle()
    assert story.status().placement is None
    assert not [name for name in story.pods() if story.pod(name)["status"]["phase"] == "Running"]
    admit(story)
    story.settle()
    assert story.status().placement is not None


def test_workloads_that_are_refused_keep_no_other_job_from_kueue() -> None:
    """By a quota of one namespace, or a webhook: as many of them as are written at one look, and before the others."""
    story = kueue_story(job=queued_job())
    for number in range(AT_ONCE):
        job = queued_job(name=f"j-{number:03d}")
        job["metadata"] |= {"namespace": "aa", "uid": f"uid-of-{number}"}
        story.add(job)
    story.write_once()
    news = workload_news(story.cluster, story.now)
    assert len(news.missing) == AT_ONCE + 1
    refused = Refuse(Forbidden("exceeded quota: objects", code=403, reason="Forbidden"))
    store = Store([Kind(WORKLOADS, "Workload")])
    for each in news.missing:
        del each["metadata"]["ownerReferences"]  # their jobs are not in the store
    api = MemoryApi(store, [Fault(refused, "create", WORKLOADS, when=lambda call: call.key.namespace == "aa")])
    for look in range(2):
        virtual_time.run(write_workloads(WriteSlots(api, Metrics().count_write), news, look))
    assert [each["metadata"]["name"] for each in store.objects(WORKLOADS)] == [NAME]


@pytest.mark.parametrize("field", ["count", "requests", "template"])
def test_a_workload_edited_by_hand_to_ask_for_less_is_made_again(field: str) -> None:
    story = kueue_story()
    story.settle()
    uid = workload(story)["metadata"]["uid"]
    (pod_set,) = workload(story)["spec"]["podSets"]
    if field == "count":
        pod_set["count"] = 1
    elif field == "requests":
        pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "0"
    else:
        pod_set["template"]["spec"]["nodeSelector"] = {"pool": "cheap"}
    story.settle()
    assert workload(story)["metadata"]["uid"] != uid
    assert workload(story)["spec"]["podSets"][0]["count"] == 8


def test_an_admission_edited_by_hand_to_fewer_pods_starts_nothing() -> None:
    story = kueue_story()
    story.settle()
    admit(story, count=1)
    settle_later(story)
    assert "admitted with 1 of the 8 Pods" in message(story)


def test_a_deactivated_workload_stops_the_job_once_kueue_evicts_it_and_says_how_to_go_on() -> None:
    story = started(kueue_story())
    workload(story)["spec"]["active"] = False
    evict(story, "Deactivated", "The workload is deactivated")
    story.settle()
    assert "deactivated" in message(story)
    assert "kubectl patch workload" in message(story)


@pytest.mark.parametrize("said", [None, 7, "yes", [], {"conditions": "none"}, {"admission": 3}])
def test_a_workload_that_cannot_be_read_costs_no_job_what_it_holds(said: Any) -> None:
    story = kueue_story()
    story.settle()
    workload(story)["status"] = said
    del story.objects["Workload", "team-b", NAME]  # as the stream leaves it out
    story.settle()
    assert story.status().placement is None


def test_a_foreign_workload_of_that_owner_counts_for_nothing() -> None:
    story = kueue_story()
    story.settle()
    forged = {
        **workload(story),
        "metadata": {**workload(story)["metadata"], "name": "forged", "uid": "forged"},
    }
    story.add(forged)
    admit(story, name="forged")
    story.settle()
    assert story.status().placement is None
    assert "forged" in story.names("Workload")


def test_a_job_that_is_suspended_or_taken_out_of_its_queue_gives_its_workload_up() -> None:
    story = started(kueue_story())
    story.edit_job(suspend=True)
    story.settle()
    assert story.names("Workload") == []
    story.edit_job(suspend=False)
    story.settle()
    assert story.names("Workload") == [NAME]
    story.objects["TrainingJob", "team-b", "train"]["metadata"]["labels"] = {}
    story.settle()
    assert story.names("Workload") == []
    assert story.status().state is State.STARTING


def test_a_job_that_runs_keeps_its_quota_whatever_its_label_says() -> None:
    story = started(kueue_story())
    story.objects["TrainingJob", "team-b", "train"]["metadata"]["labels"] = {QUEUE_LABEL: "other"}
    story.settle()
    assert workload(story)["spec"]["queueName"] == "research"
    assert story.status().state is State.RUNNING


def test_another_queue_or_priority_of_a_waiting_job_reaches_its_workload() -> None:
    urgent = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 900,
    }
    story = kueue_story(urgent)
    story.settle()
    labels = {QUEUE_LABEL: "other", QUEUE_PRIORITY_LABEL: "urgent"}
    story.objects["TrainingJob", "team-b", "train"]["metadata"]["labels"] = labels
    story.settle()
    spec = workload(story)["spec"]
    assert (spec["queueName"], spec["priority"], spec["priorityClassRef"]["kind"]) == (
        "other",
        900,
        "WorkloadPriorityClass",
    )


def test_a_priority_class_of_kueue_that_is_not_there_is_named() -> None:
    job = queued_job()
    job["metadata"]["labels"][QUEUE_PRIORITY_LABEL] = "urgent"
    story = kueue_story(job=job)
    story.settle()
    assert "no such WorkloadPriorityClass" in message(story)
    assert story.names("Workload") == []


def test_a_flavour_against_the_templates_own_selector_is_named() -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}], "nodeSelector": {"pool": "a"}}}
    story = kueue_story(flavor("b", {"pool": "b"}), job=queued_job(template=template))
    story.settle()
    admit(story, "b")
    settle_later(story)
    assert "pool=b" in message(story)
    assert "asks for a" in message(story)


def test_a_flavour_that_is_gone_is_named() -> None:
    story = kueue_story()
    story.settle()
    admit(story, "gone")
    settle_later(story)
    assert "ResourceFlavor gone, which is not there" in message(story)
    story.add(flavor("gone"))
    story.settle()
    assert story.status().placement is not None
