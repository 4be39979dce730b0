"""Jobs that wait for GPUs ask an autoscaler for nodes: in which shape, when, how many, and until when."""

from typing import Any

import pytest

from closeknit.api.names import PROVISIONING_CLASS_ANNOTATION
from closeknit.cluster.capacity.provisioning import ProvisioningRequest
from closeknit.cluster.cluster import build
from closeknit.cluster.kueue.flavors import ServedKind
from closeknit.cluster.requested_capacity import PROVISIONING_SERVED
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.controller.metrics import Metrics
from closeknit.controller.writes.capacity_writes import CapacityWrites
from closeknit.controller.writes.resources import POD_TEMPLATES, PROVISIONING_REQUESTS
from closeknit.controller.writes.write_slots import WriteSlots
from closeknit.kube.api import Resource
from closeknit.kube.errors import Unavailable
from closeknit.lifecycle.capacity.capacity_news import MOST_REQUESTS, CapacityNews, CapacityPolicy, capacity_news
from closeknit.lifecycle.capacity.gang_shape import NodeGroup, node_groups
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.queue.entries import queue_place
from faults import virtual_time
from faults.fault import Fault, LoseReply, Refuse
from faults.kinds import Kind
from faults.memory_api import MemoryApi
from faults.store import Store
from scenarios.manifests import Manifest, training_job
from scenarios.story import Story, plugin_node
from scenarios.views import NOON

ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
POLICY = CapacityPolicy(ATOMIC)


def waiting(*manifests: Manifest, nodes: int = 1, **spec: Any) -> Story:
    """A job that has waited for a minute."""
    there = [each for number in range(nodes) for each in plugin_node(f"gpu-{number}")]
    story = Story(*there, *manifests, training_job(spec={"gpus": 16, **spec}))
    story.settle()
    story.pass_time(60)
    return story


def news(story: Story, policy: CapacityPolicy = POLICY, *, is_served: bool = True) -> CapacityNews:
    decoded = [value for each in story.objects.values() if (value := from_document(each)) is not None]
    served = [ServedKind(PROVISIONING_SERVED)] if is_served else []
    return capacity_news(build([*decoded, *served]).at(story.now), Tables(), policy, story.now, queue_place)


def shape(found: CapacityNews) -> tuple[int, str]:
    """Pods, and GPUs of each."""
    (asked,) = found.missing
    (pod_set,) = asked.request["spec"]["podSets"]
    assert pod_set["podTemplateRef"]["name"] == asked.template["metadata"]["name"]
    (container,) = asked.template["template"]["spec"]["containers"]
    return pod_set["count"], container["resources"]["requests"]["nvidia.com/gpu"]


def asked(story: Story, *conditions: tuple[str, str]) -> ProvisioningRequest:
    """The request as it is made, and as the autoscaler answers it."""
    (found,) = news(story).missing
    told = [
        {"type": kind, "status": "True", "message": words, "lastTransitionTime": timestamp(story.now)}
        for kind, words in conditions
    ]
    metadata = {**found.request["metadata"], "creationTimestamp": timestamp(story.now)}
    story.add({**found.request, "metadata": metadata, "status": {"conditions": told}})
    (there,) = story.cluster.capacity.requests
    return there


def test_a_job_that_fits_nowhere_asks_for_nodes_like_those_that_are_there() -> None:
    assert shape(news(waiting())) == (2, "8")


def test_its_own_word_on_gpus_for_each_node_counts() -> None:
    assert shape(news(waiting(topology={"gpusPerNode": 4}))) == (4, "4")


@pytest.mark.parametrize(
    ("spec", "is_apart"),
    [
        pytest.param({"topology": {"gpusPerNode": 4}}, True, id="two of them would fit on one node"),
        pytest.param({}, False, id="whole nodes"),
        pytest.param({"gpus": 4}, False, id="one"),
    ],
)
def test_pods_of_which_a_node_has_room_for_two_are_asked_for_apart(spec: dict[str, Any], is_apart: bool) -> None:
    """Else an autoscaler would add one node for two."""
    ours = {"matchLabels": {"team": "b"}}
    own = {"labelSelector": ours, "topologyKey": "topology.kubernetes.io/zone"}
    terms = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own]}}
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}], "affinity": terms}}
    (found,) = news(waiting(training_job("big", spec={"gpus": 8}), template=template, **spec)).missing
    made = found.template["template"]
    first, *more = made["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert first == own
    assert [each["labelSelector"]["matchLabels"] for each in more] == ([made["metadata"]["labels"]] if is_apart else [])


@pytest.mark.parametrize("own", ["none", {"requiredDuringSchedulingIgnoredDuringExecution": {"a": "b"}}])
def test_rules_that_the_api_server_refuses_are_its_to_refuse(own: Any) -> None:
    template = {"spec": {"containers": [{"name": "t", "image": "i"}], "affinity": {"podAntiAffinity": own}}}
    (found,) = news(waiting(template=template, topology={"gpusPerNode": 4})).missing
    assert found.template["template"]["spec"]["affinity"] == {"podAntiAffinity": own}


@pytest.mark.parametrize(
    ("refused", "kept"),
    [
        pytest.param("ProvisioningRequest", "provisioningrequests.autoscaling.x-k8s.io", id="the request"),
        pytest.param("PodTemplate", "podtemplates", id="its template"),
    ],
)
def test_a_refused_request_is_told_and_not_tried_at_every_look(refused: str, kept: str) -> None:
    story = waiting()
    story.serves_provisioning = True
    (asked,) = news(story).missing
    story.forbidden[f"{refused} {asked.request['metadata']['name']}"] = "exceeded quota: objects"
    story.ask(POLICY)
    assert story.names("ProvisioningRequest") == []
    story.pass_time(61)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert f"no nodes are asked for: the API server refuses one of its {kept}: exceeded quota: obj" in pending.message
    assert story.ask(POLICY) == CapacityNews()
    story.forbidden.clear()
    story.pass_time(600)
    story.ask(POLICY)
    story.ask(POLICY)
    assert len(story.names("ProvisioningRequest")) == 1


@pytest.mark.parametrize("lost", [POD_TEMPLATES, PROVISIONING_REQUESTS], ids=str)
@pytest.mark.parametrize("effect", [LoseReply(), Refuse(Unavailable("down", code=503))], ids=["unanswered", "refused"])
def test_a_write_that_fails_in_between_leaves_no_request_without_its_template(
    lost: Resource, effect: LoseReply | Refuse
) -> None:
    """Which its autoscaler would never answer, or call failed."""
    found = news(waiting())
    for each in (found.missing[0].template, found.missing[0].request):
        del each["metadata"]["ownerReferences"]  # their job is not in the store
    store = Store([Kind(POD_TEMPLATES, "PodTemplate"), Kind(PROVISIONING_REQUESTS, "ProvisioningRequest")])
    api = MemoryApi(store, [Fault(effect, "create", lost, nth=1)])
    writes = CapacityWrites(WriteSlots(api, Metrics().count_write), lambda: NOON)
    virtual_time.run(writes.ask(found))
    if not store.objects(PROVISIONING_REQUESTS):  # which the watch shows: then it is not asked for again
        virtual_time.run(writes.ask(found))
    assert [len(store.objects(each)) for each in (POD_TEMPLATES, PROVISIONING_REQUESTS)] == [1, 1]


def test_a_job_that_is_changed_asks_for_what_it_needs_now() -> None:
    story = waiting()
    story.serves_provisioning = True
    story.ask(POLICY)
    (before,) = story.names("ProvisioningRequest")
    story.edit_job(gpus=32)
    story.settle()
    story.ask(POLICY)
    story.pass_time(60)
    story.ask(POLICY)
    (after,) = story.names("ProvisioningRequest")
    assert after != before
    assert story.objects[("ProvisioningRequest", "team-b", after)]["spec"]["podSets"][0]["count"] == 4


def test_requests_that_came_to_nothing_keep_no_others_from_asking() -> None:
    """Else as many jobs as ask at a time, for which an autoscaler finds nothing, would be the only ones for ever."""
    story = waiting(*(training_job(f"aa-{number}", spec={"gpus": 16}) for number in range(MOST_REQUESTS)))
    story.serves_provisioning = True
    story.ask(POLICY)
    assert len(story.names("ProvisioningRequest")) == MOST_REQUESTS
    failed = {"type": "Failed", "status": "True", "message": "", "lastTransitionTime": timestamp(story.now)}
    for (kind, _, _), each in story.objects.items():
        if kind == "ProvisioningRequest":
            each["status"] = {"conditions": [failed]}
    story.ask(POLICY)
    assert [name for name in story.names("ProvisioningRequest") if name.startswith("train")] != []


def test_what_its_pods_need_and_select_comes_along() -> None:
    container = {"name": "trainer", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}
    tolerated = {"key": "pool", "operator": "Exists"}
    spec = {"containers": [container], "tolerations": [tolerated]}
    (found,) = news(waiting(template={"spec": spec})).missing
    made = found.template["template"]["spec"]
    assert made["containers"][0]["resources"]["requests"]["cpu"] == "1500m"
    assert tolerated in made["tolerations"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"gpu": {"products": ["NVIDIA-B300"]}}, id="another product"),
        pytest.param({"topology": {"gpusPerNode": 16}}, id="more GPUs on a node than any has"),
        pytest.param({"topology": {"fabric": {"required": "rack"}}}, id="a level that the cluster does not have"),
        pytest.param({"topology": {"minBusBandwidthGBps": 100000}}, id="a bandwidth that no nodes give"),
        pytest.param({"network": {"rdma": "Required"}}, id="RDMA that its nodes do not have"),
        pytest.param(
            {"template": {"spec": {"containers": [{"name": "t", "image": "i"}], "nodeSelector": {"pool": "x"}}}},
            id="nodes that it does not select",
        ),
        pytest.param(
            {
                "template": {
                    "spec": {"containers": [{"name": "t", "image": "i", "resources": {"requests": {"cpu": "100000"}}}]}
                }
            },
            id="more CPUs than a node has",
        ),
    ],
)
def test_nothing_is_asked_for_that_placement_would_refuse(spec: dict[str, Any]) -> None:
    assert news(waiting(**spec))._replace(hopeless=()) == CapacityNews()


def test_nothing_is_asked_before_half_a_minute_without_a_class_or_where_it_is_not_served() -> None:
    story = waiting()
    assert news(story, CapacityPolicy()) == CapacityNews()
    assert news(story, is_served=False) == CapacityNews()
    story.now = story.now.replace(minute=0, second=29)
    assert news(story) == CapacityNews()


def test_a_jobs_own_word_goes_before_its_administrators() -> None:
    story = waiting()
    metadata = story.objects["TrainingJob", "team-b", "train"]["metadata"]
    metadata["annotations"] = {PROVISIONING_CLASS_ANNOTATION: "Never"}
    assert news(story) == CapacityNews()
    metadata["annotations"] = {PROVISIONING_CLASS_ANNOTATION: "queued-provisioning.gke.io"}
    (found,) = news(story, CapacityPolicy()).missing
    assert found.request["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"


def test_a_group_that_is_scaled_to_zero_is_known_by_its_administrators_word() -> None:
    story = waiting(nodes=0)
    groups = node_groups('[{"name": "h200", "gpus": 8, "product": "NVIDIA-H200", "labels": {"pool": "h200"}}]')
    assert shape(news(story, CapacityPolicy(ATOMIC, groups))) == (2, "8")
    other = waiting(nodes=0, gpu={"products": ["NVIDIA-B300"]})
    assert news(other, CapacityPolicy(ATOMIC, groups))._replace(hopeless=()) == CapacityNews()


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"name": "a"}]', '[{"name": "a", "gpus": 0}]', '[{"x": 1}]', "[" * 99]
)
def test_groups_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        node_groups(text)


def test_few_are_asked_at_a_time_those_that_come_first_in_the_queue() -> None:
    jobs = [training_job(f"job-{number}", spec={"gpus": 16}) for number in range(MOST_REQUESTS + 3)]
    story = Story(*plugin_node("gpu-0"), *jobs)
    story.settle()
    story.pass_time(60)
    found = [each.request["metadata"]["ownerReferences"][0]["name"] for each in news(story).missing]
    assert found == [f"job-{number}" for number in range(MOST_REQUESTS)]


def test_a_short_job_asks_before_a_long_one_that_came_a_little_earlier() -> None:
    """It goes before it in the queue, too."""
    jobs = [training_job(f"job-{number}", spec={"gpus": 16}) for number in range(MOST_REQUESTS)]
    for each in jobs:
        each["metadata"]["creationTimestamp"] = "2026-11-21T08:00:00Z"
    story = waiting(*jobs, expectedDuration="1h")
    found = [each.request["metadata"]["ownerReferences"][0]["name"] for each in news(story).missing]
    assert found == ["train", *(f"job-{number}" for number in range(MOST_REQUESTS - 1))]


def test_what_is_asked_for_is_told_and_asked_once() -> None:
    story = waiting()
    there = asked(story, ("Accepted", "it was accepted"))
    assert news(story) == CapacityNews()
    story.pass_time(61)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert f"ProvisioningRequest {there.name} of class {ATOMIC}" in pending.message
    assert "it was accepted" in pending.message


def test_an_autoscaler_that_has_given_up_is_asked_again_after_ten_minutes() -> None:
    story = waiting()
    there = asked(story, ("Failed", "no node group fits"))
    story.pass_time(61)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert "no node group fits" in pending.message
    assert "it asks again at 2026-11-21T10:11:00Z" in pending.message
    assert news(story) == CapacityNews()
    story.pass_time(600)
    assert news(story).gone == (there,)


@pytest.mark.parametrize("end", ["placed", "suspended", "another class"])
def test_a_request_is_taken_back_once_the_job_needs_it_no_more(end: str) -> None:
    story = waiting()
    there = asked(story)
    if end == "placed":
        for each in plugin_node("gpu-1"):
            story.add(each)
    elif end == "suspended":
        story.edit_job(suspend=True)
    story.settle()
    policy = CapacityPolicy("other") if end == "another class" else POLICY
    assert news(story, policy).gone == (there,)


def test_a_node_that_comes_counts_once_it_is_measured() -> None:
    story = waiting()
    asked(story, ("Provisioned", ""))
    node, topology = plugin_node("gpu-1")
    story.add(node)
    story.settle()
    assert story.status().placement is None
    assert news(story).gone == ()
    story.add(topology)
    story.settle()
    assert story.status().placement is not None


def test_a_request_of_somebody_elses_is_left_alone() -> None:
    story = waiting()
    foreign = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": "theirs", "namespace": "team-b"},
        "spec": {},
    }
    story.add(foreign)
    assert news(story).gone == ()
    assert NodeGroup("a", 8).labels == {}


def test_a_job_that_may_start_with_fewer_gpus_asks_once_it_could_have() -> None:
    """It starts with 8 after a minute, and what was asked before would be taken back."""
    story = waiting(training_job("other", spec={"gpus": 8}), nodes=2, elastic={"minGPUs": 8})
    story.run_all()
    assert news(story) == CapacityNews()
    story.settle()
    assert story.status().placement is not None
    story.pass_time(60)
    assert news(story) == CapacityNews()


def test_an_elastic_job_of_which_no_size_fits_asks_for_all_of_its_gpus() -> None:
    story = waiting(training_job("other", spec={"gpus": 16}), nodes=2, elastic={"minGPUs": 8})
    assert news(story) == CapacityNews()
    story.settle()
    story.pass_time(30)
    assert shape(news(story)) == (2, "8")
