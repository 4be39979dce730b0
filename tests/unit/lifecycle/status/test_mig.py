"""A job of one rank on a MIG device: booked, bound, verified, and told why not."""

from typing import Any

import pytest

from closeknit.cluster.store.watched_kinds import ObjectChange, Stream
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.reservation.patience import patient
from scenarios.clusters import wanted
from scenarios.manifests import (
    allocation,
    cut,
    mig_slice,
    mig_uuids,
    node,
    node_topology,
    pod,
    priority_class,
    resource_claim,
    training_job,
)
from scenarios.stories import booked_nodes, ended, unschedulable
from scenarios.story import Story
from scenarios.views import NOON, cluster

SMALL = "nvidia.com/mig-1g.18gb"
POD = "train-a1-worker-00000"


def by_plugin(name: str = "gpu-1", *, count: int = 7, **others: Any) -> list[dict[str, Any]]:
    """A node of two GPUs, one of them cut, whose plugin has the strategy mixed."""
    return [
        node(name, gpus=1, allocatable={SMALL: str(count)}, **others),
        cut(node_topology(name, count=2), 0, count=count),
    ]


def by_dra(name: str = "gpu-1") -> list[dict[str, Any]]:
    return [node(name, gpus=None), cut(node_topology(name, count=1), 0), mig_slice(name)]


def job(name: str = "train", profile: str = "1g.18gb", **spec: Any) -> dict[str, Any]:
    gpu = {"mig": profile, **spec.pop("gpu", {})}
    return training_job(name, spec={"gpus": 1, "gpu": gpu, **spec})


def settled(*manifests: dict[str, Any]) -> Story:
    story = Story(*manifests)
    story.settle()
    return story


def tell(story: Story, pod_name: str, *devices: str, node: str = "gpu-1") -> None:
    """The node's agent says what the kubelet gave."""
    status = story.objects["NodeTopology", "", node].setdefault("status", {})
    status.setdefault("allocations", []).append(allocation("team-b", pod_name, devices))


def verified(story: Story, name: str = "train") -> tuple[str, str, str]:
    (found,) = [each for each in story.status(name).conditions if each.type == "PlacementVerified"]
    return found.status, found.reason, found.message


def refused(story: Story, name: str = "train") -> tuple[str, str]:
    pending = story.status(name).pending
    assert pending is not None
    return pending.reason, pending.message


def test_by_a_plugin_its_pod_asks_for_one_of_the_profile() -> None:
    story = settled(*by_plugin(), job())
    (share,) = booked_nodes(story)
    assert (share.gpus, share.mig_device, share.ranks, share.binding) == ([0], "MIG-gpu-1-0-0", "0", "BestEffort")
    spec = story.pod(POD)["spec"]
    (container,) = spec["containers"]
    assert container["resources"] == {"limits": {SMALL: "1"}, "requests": {SMALL: "1"}}
    assert "resourceClaims" not in spec
    assert story.notices[-1].note == "MIG device MIG-gpu-1-0-0 on gpu-1"


def test_its_environment_is_that_of_one_rank() -> None:
    """Which devices there are to see is the runtime's to say, and NCCL has nobody to talk to."""
    story = settled(*by_plugin(), job())
    (container,) = story.pod(POD)["spec"]["containers"]
    names = {entry["name"] for entry in container["env"]}
    assert names.isdisjoint({"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"})
    assert {name for name in names if name.startswith("NCCL_")} == {"NCCL_DEBUG"}


def test_the_choice_of_the_plugin_is_what_is_told() -> None:
    story = settled(*by_plugin(), job())
    story.run_all()
    story.settle()
    assert verified(story)[0] == "Unknown"
    tell(story, POD, "MIG-gpu-1-0-4")
    story.settle()
    (share,) = booked_nodes(story)
    assert (share.gpus, share.mig_device, share.actual) == ([0], "MIG-gpu-1-0-4", "Verified")
    status, reason, message = verified(story)
    assert (status, reason) == ("True", "Verified")
    assert message == "its Pod has MIG device MIG-gpu-1-0-4 (1g.18gb), of the planned profile"
    assert story.pods() == [POD]


@pytest.mark.parametrize("given", ["MIG-gpu-1-0-5", "GPU-gpu-1-1", "MIG-nobody-knows"])
def test_another_profile_or_a_whole_gpu_is_a_mismatch(given: str) -> None:
    mixed = [
        node(gpus=1, allocatable={SMALL: "5", "nvidia.com/mig-2g.35gb": "1"}),
        cut(cut(node_topology(count=2), 0, count=5), 0, "2g.35gb", count=1),
    ]
    story = settled(*mixed, job())
    story.run_all()
    tell(story, POD, given)
    story.settle()
    status, reason, message = verified(story)
    assert (status, reason) == ("False", "Mismatch")
    assert message.startswith("other GPUs than planned: gpu-1 was to give MIG-gpu-1-0-0 and gave ")
    (share,) = booked_nodes(story)
    assert (share.mig_device, share.actual) == ("MIG-gpu-1-0-0", "Mismatch")


def test_by_dra_a_claim_names_the_very_device() -> None:
    story = settled(*by_dra(), job())
    (share,) = booked_nodes(story)
    assert (share.mig_device, share.binding) == ("MIG-gpu-1-0-0", "DRA")
    (request,) = story.objects["ResourceClaim", "team-b", POD]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "mig.nvidia.com"
    assert request["exactly"]["count"] == 1
    (selector,) = request["exactly"]["selectors"]
    assert selector["cel"]["expression"].endswith("in ['MIG-gpu-1-0-0']")
    (container,) = story.pod(POD)["spec"]["containers"]
    assert SMALL not in container["resources"].get("limits", {})
    story.run_all()
    story.settle()
    assert verified(story)[0] == "True"


def test_a_claim_that_was_given_another_device_is_a_mismatch() -> None:
    story = settled(*by_dra(), job())
    story.run_all()
    story.allocate(story.objects["ResourceClaim", "team-b", POD], "gpu-1", ["MIG-gpu-1-0-6"])
    story.settle()
    assert verified(story)[:2] == ("False", "Mismatch")


@pytest.mark.parametrize("nodes", [by_plugin, by_dra])
def test_no_two_jobs_get_one_device(nodes: Any) -> None:
    jobs = [job(f"job-{number}") for number in range(8)]
    story = settled(*nodes(), *jobs)
    given = [story.status(f"job-{number}").placement for number in range(8)]
    devices = [placement.nodes[0].mig_device for placement in given if placement is not None]
    assert devices == mig_uuids("gpu-1", 0)
    assert given[7] is None
    expected = "needs a MIG device 1g.18gb; 0 of 7 are free; 7 excluded: 7 held by 7 jobs"
    assert refused(story, "job-7") == ("InsufficientGPUs", expected)


def test_what_a_job_leaves_is_the_next_ones() -> None:
    story = settled(*by_plugin(count=1), job("first"), job("second"))
    assert story.status("second").placement is None
    story.run_all()
    story.change_pod("first-a1-worker-00000", phase="Succeeded")
    story.settle()
    assert story.status("first").state == "Succeeded"
    assert story.status("second").placement is not None


def test_a_device_that_a_claim_gives_back_is_seen_by_those_who_wait() -> None:
    """Nothing else of the node changes with it, so that what was answered before would stand."""
    stranger = resource_claim("notebook-gpus", ("gpu-1", 0))
    (result,) = stranger["status"]["allocation"]["devices"]["results"]
    result["device"] = "gpu-0-mig-1g.18gb-19-0"
    parts = (node(gpus=None), cut(node_topology(count=1), 0, count=1), mig_slice(count=1))
    taken, tables = cluster(*parts, stranger, job()), Tables()
    waiting = decide(taken, tables, Memory(), NOON)
    (plan,) = waiting.plans
    assert plan.status is not None and plan.status.pending is not None
    given_back = taken.after((ObjectChange(Stream.RESOURCE_CLAIMS, ("ml", "notebook-gpus"), None),))
    memory = Memory(schedule=waiting.schedule, followed=waiting.followed)
    (plan,) = decide(given_back, tables, memory, NOON).plans
    assert plan.status is not None and plan.status.placement is not None
    assert given_back.forest.now is taken.forest.now  # for whole GPUs nothing has changed


def test_whole_gpus_of_the_node_are_placed_as_ever() -> None:
    story = settled(*by_plugin(), job(), training_job("whole", spec={"gpus": 1}))
    placement = story.status("whole").placement
    assert placement is not None
    assert (placement.nodes[0].gpus, placement.nodes[0].mig_device) == ([1], None)


def test_a_pod_that_was_deleted_is_made_again_for_the_same_device() -> None:
    story = settled(*by_plugin(), job())
    story.remove_pod(POD)
    story.pass_time(61)
    story.settle()
    assert story.pods() == [POD]
    assert booked_nodes(story)[0].mig_device == "MIG-gpu-1-0-0"


def test_a_job_whose_pod_was_deleted_keeps_its_device_before_others() -> None:
    story = settled(priority_class("high", 10, preempts=False), *by_plugin(count=1), job())
    story.run_all()
    story.add(job("second", priorityClassName="high"))
    story.settle()
    story.remove_pod(POD)
    story.settle()
    assert (story.status().attempt, story.status("second").placement) == (2, None)
    assert booked_nodes(story)[0].mig_device == "MIG-gpu-1-0-0"


def test_one_whose_gpu_broke_meanwhile_goes_elsewhere() -> None:
    story = settled(*by_plugin(), *by_plugin("gpu-2"), job())
    story.run_all()
    story.settle()
    unhealthy = [{"index": 0, "state": "Unhealthy", "reasons": ["XID79"]}]
    story.objects["NodeTopology", "", "gpu-1"]["status"] = {"gpus": unhealthy}
    story.remove_pod(POD)
    story.settle()
    assert booked_nodes(story)[0].name == "gpu-2"


@pytest.mark.parametrize(
    ("nodes", "words", "last"),
    [
        (by_plugin, f"1 Insufficient {SMALL}", ("gpu-2", "MIG-gpu-2-0-0")),
        (by_dra, "1 cannot allocate all claims", ("gpu-1", "MIG-gpu-1-0-1")),
    ],
)
def test_a_device_that_the_scheduler_finds_taken_twice_is_left_alone_for_a_while(
    nodes: Any, words: str, last: tuple[str, str]
) -> None:
    """And another one of the node is tried where a claim says which it is."""
    story = settled(*nodes("gpu-1"), *nodes("gpu-2"), job())
    for number, expected in ((1, ("gpu-1", "MIG-gpu-1-0-0")), (2, last)):
        refusal = unschedulable(f"0/2 nodes are available: {words}", timestamp(story.now))
        story.change_pod(f"train-a{number}-worker-00000", conditions=[refusal])
        story.pass_time(3)
        story.settle()
        assert ended(story)[-1] == (number, "GPUTaken", False)
        story.pass_time(61)
        story.settle()
        (booked,) = booked_nodes(story)
        assert (booked.name, booked.mig_device) == expected


def test_patience_gains_it_nothing() -> None:
    request = wanted(gpus=1, gpu={"mig": "1g.18gb"}, topology={"fabric": {"preferred": "host"}})
    assert patient(request, cluster(*by_plugin()), Tables()) is None


def test_a_device_that_is_gone_ends_the_attempt() -> None:
    story = settled(*by_plugin(), *by_plugin("gpu-2"), job())
    story.remove_pod(POD)
    topology = story.objects["NodeTopology", "", "gpu-1"]
    topology["spec"]["gpus"][0]["mig"]["devices"] = []
    topology["metadata"]["generation"] = 5
    story.pass_time(61)
    story.settle()
    assert booked_nodes(story)[0].name == "gpu-2"


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ({}, "needs a MIG device 3g.71gb; this cluster has 7 1g.18gb (NVIDIA-H200)"),
        (
            {"products": ["B200"]},
            "needs a MIG device 3g.71gb of product B200; this cluster has 7 1g.18gb (NVIDIA-H200)",
        ),
    ],
)
def test_a_profile_that_no_node_has_is_refused_with_those_that_there_are(gpu: dict[str, Any], message: str) -> None:
    words = f"{message}; ask for one of these, or leave gpu.mig out for a whole GPU"
    assert refused(settled(*by_plugin(), job(profile="3g.71gb", gpu=gpu))) == ("NoMatchingGPU", words)


def test_a_device_too_small_is_refused() -> None:
    reason, message = refused(settled(*by_plugin(), job(gpu={"minMemory": "17Gi"})))
    assert reason == "NoMatchingGPU"
    assert message.startswith("needs a MIG device 1g.18gb with at least 17 GiB of memory")
    assert settled(*by_plugin(), job(gpu={"minMemory": "16Gi"})).status().placement is not None


def test_without_mig_devices_it_says_what_to_do() -> None:
    reason, message = refused(settled(node(), node_topology(), job()))
    assert reason == "NoMatchingGPU"
    assert message.endswith("no node of this cluster has MIG devices; leave gpu.mig out for a whole GPU")


def test_devices_of_others_count() -> None:
    story = settled(*by_plugin(count=2), pod(requests={SMALL: "2"}), job())
    expected = "needs a MIG device 1g.18gb; 0 of 2 are free; 2 excluded: 2 held by 1 Pod"
    assert refused(story) == ("InsufficientGPUs", expected)
    del story.objects["Pod", "ml", "notebook"]
    story.settle()
    assert story.status().placement is not None


@pytest.mark.parametrize(
    ("binding", "nodes"), [("DRA", by_plugin), ("WholeNode", by_plugin), ("WholeNode", by_dra), ("BestEffort", by_dra)]
)
def test_a_binding_that_the_node_has_not_is_refused(binding: str, nodes: Any) -> None:
    reason, message = refused(settled(*nodes(), job(gpu={"binding": binding})))
    assert reason == "InsufficientGPUs"
    assert f"7 not for binding {binding}" in message
    pending = settled(*nodes(), job(gpu={"binding": binding})).status().pending
    assert pending is not None


def test_room_beside_it_counts() -> None:
    template = {"spec": {"containers": [{"name": "trainer", "resources": {"requests": {"memory": "2Ti"}}}]}}
    reason, message = refused(settled(*by_plugin(), job(template=template)))
    assert reason == "InsufficientResources"
    assert message.endswith("1 node excluded: gpu-1 (too little memory)")


def test_nodes_that_it_does_not_select_or_tolerate_are_left_out() -> None:
    template = {"spec": {"containers": [{"name": "trainer"}], "nodeSelector": {"pool": "small"}}}
    taint = [{"key": "example.com/other", "effect": "NoSchedule"}]
    nodes = [*by_plugin("gpu-1"), *by_plugin("gpu-2", labels={"pool": "small"}, taints=taint)]
    reason, message = refused(settled(*nodes, job(template=template)))
    assert reason == "InsufficientGPUs"
    told = "gpu-1 (not selected by nodeSelector), gpu-2 (Tainted: example.com/other)"
    assert message.endswith(f"2 nodes excluded: {told}")
    nodes = [*by_plugin("gpu-1"), *by_plugin("gpu-2", labels={"pool": "small"})]
    assert booked_nodes(settled(*nodes, job(template=template)))[0].name == "gpu-2"


def test_the_answer_does_not_follow_the_order_of_the_objects() -> None:
    manifests = [*by_plugin("gpu-2", count=3), *by_plugin("gpu-1", count=3), *by_dra("gpu-3")]
    request = wanted(gpus=1, gpu={"mig": "1g.18gb"})
    one, other = (place(cluster(*order), request, Tables()) for order in (manifests, manifests[::-1]))
    assert one == other
    assert isinstance(one, Placement) and one.shares[0].node == "gpu-1"


@pytest.mark.parametrize(
    "profile", ["", "1g", "one", "0g.5gb", "1g.18gb\n", "1g.18gb/../gpu", "9g.99999gb", "🦄", "1g.18GB"]
)
def test_an_absurd_profile_is_refused_by_its_field(profile: str) -> None:
    assert invalid(settled(*by_plugin(), job(profile=profile))).startswith(
        "this version cannot read it: spec.gpu.mig: "
    )


def test_two_ranks_are_refused() -> None:
    two = training_job(spec={"gpus": 2, "gpu": {"mig": "1g.18gb"}})
    assert "gpu.mig needs gpus: 1" in invalid(settled(*by_plugin(), two))


def invalid(story: Story) -> str:
    """What is said of a spec that does not parse."""
    message: str = story.objects["TrainingJob", "team-b", "train"]["status"]["pending"]["message"]
    return message
