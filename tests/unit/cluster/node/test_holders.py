"""Who holds which GPU of a node: bookings, claims, and what Pods have asked a device plugin for."""

from collections.abc import Sequence
from typing import Any

import pytest

from closeknit.cluster.node.node import PluginOffer
from closeknit.cluster.objects.taints_and_faults import Fault, FaultKind
from scenarios.manifests import (
    Manifest,
    allocation,
    booked,
    condition,
    node,
    node_topology,
    pod,
    resource_claim,
    resource_slice,
    told,
    training_job,
    uuids,
    worker,
)
from scenarios.views import view, words

GPU = "nvidia.com/gpu"
WHOLE = booked(("gpu-1", range(4)))
HOLDERS = {
    "nobody": ([], {}),
    "a job that has booked and has no Pod yet": (
        [training_job(placement=WHOLE)],
        {0: "job team-b/train", 1: "job team-b/train", 2: "job team-b/train", 3: "job team-b/train"},
    ),
    "a job whose booking has ended with its attempt": (
        [
            training_job(
                placement=WHOLE,
                attempt=2,
                attempts=[{"number": 2, "reason": "ChildDeleted", "charged": False, "ended": "2026-11-21T11:00:00Z"}],
            )
        ],
        {},
    ),
    "a job in its second attempt": (
        [
            training_job(
                placement=booked(("gpu-1", [2])),
                attempt=2,
                attempts=[{"number": 1, "reason": "ChildDeleted", "charged": False, "ended": "2026-11-21T11:00:00Z"}],
            )
        ],
        {2: "job team-b/train"},
    ),
    "a job that succeeded": ([training_job(placement=WHOLE, conditions=[condition("Succeeded")])], {}),
    "a job that failed": ([training_job(placement=WHOLE, conditions=[condition("Failed")])], {}),
    "a suspended job": ([training_job(placement=WHOLE, conditions=[condition("Suspended")])], {}),
    "a job that does not parse keeps its booking": (
        [training_job(spec={"gpus": 70_000}, placement=booked(("gpu-1", [1])))],
        {1: "job team-b/train"},
    ),
    "a booking on a node that nobody knows": ([training_job(placement=booked(("gpu-9", [1])))], {}),
    "a booking of indexes that the machine does not have": (
        [training_job(placement=booked(("gpu-1", [1, 9])))],
        {1: "job team-b/train"},
    ),
    "a Pod's annotation moves no booking": (
        [training_job(placement=booked(("gpu-1", [0, 1]))), worker(gpus=uuids("gpu-1", 6, 7))],
        {0: "job team-b/train", 1: "job team-b/train"},
    ),
    "nor adds to it": (
        [
            training_job(placement=booked(("gpu-1", [0, 1]))),
            worker(gpus=uuids("gpu-1", *range(8)), requests={"nvidia.com/gpu": "2"}),
        ],
        {0: "job team-b/train", 1: "job team-b/train"},
    ),
    "the Pod of an earlier attempt holds what the kubelet tells, beside the booking": (
        [
            training_job(placement=booked(("gpu-1", [0])), attempt=2),
            worker(gpus=uuids("gpu-1", 6)),
            node_topology(allocations=[allocation("team-b", "train-a1-worker-00000", uuids("gpu-1", 5))]),
        ],
        {0: "job team-b/train", 5: "Pod team-b/train-a1-worker-00000"},
    ),
    "so does the Pod of a deleted job": (
        [
            worker(gpus=uuids("gpu-1", 6)),
            node_topology(allocations=[allocation("team-b", "train-a1-worker-00000", uuids("gpu-1", 5))]),
        ],
        {5: "Pod team-b/train-a1-worker-00000"},
    ),
    "a Pod of a job's earlier namesake does not stand for the booking": (
        [
            training_job(placement=booked(("gpu-1", [0]))),
            worker(job_uid="uid-of-another"),
            node_topology(allocations=[allocation("team-b", "train-a1-worker-00000", uuids("gpu-1", 5))]),
        ],
        {0: "job team-b/train", 5: "Pod team-b/train-a1-worker-00000"},
    ),
    "a finished Pod of no booking holds nothing": (
        [
            worker(phase="Succeeded"),
            node_topology(allocations=[allocation("team-b", "train-a1-worker-00000", uuids("gpu-1", 5))]),
        ],
        {},
    ),
    "what the kubelet gave beats what was predicted": (
        [
            training_job(placement=booked(("gpu-1", [0, 1]), binding="BestEffort")),
            worker(gpus=uuids("gpu-1", 0, 1), requests={"nvidia.com/gpu": "2"}),
            node_topology(allocations=[allocation("team-b", "train-a1-worker-00000", uuids("gpu-1", 2, 3))]),
        ],
        {2: "job team-b/train", 3: "job team-b/train"},
    ),
    "a kubelet's word on a part of the Pod's GPUs adds to the booking": (
        [
            training_job(placement=booked(("gpu-1", [0, 1]), binding="BestEffort")),
            worker(gpus=uuids("gpu-1", 0, 1), requests={"nvidia.com/gpu": "2"}),
            node_topology(allocations=[allocation("team-b", "train-a1-worker-00000", uuids("gpu-1", 2))]),
        ],
        {0: "job team-b/train", 1: "job team-b/train", 2: "job team-b/train"},
    ),
    "somebody's Pod, by the kubelet's word": (
        [pod(), node_topology(allocations=[allocation("ml", "notebook", uuids("gpu-1", 4))])],
        {4: "Pod ml/notebook"},
    ),
    "a replica of a shared GPU": (
        [pod(), node_topology(allocations=[allocation("ml", "notebook", ["GPU-gpu-1-4::2"])])],
        {4: "Pod ml/notebook"},
    ),
    "somebody's Pod, by its status, where the agent cannot ask the kubelet": (
        [told(pod(), ("example.com/nic", ["GPU-gpu-1-1"]), (GPU, uuids("gpu-1", 4))), node_topology()],
        {4: "Pod ml/notebook"},
    ),
    "a replica of a shared GPU, by the Pod's status": (
        [told(pod(), (GPU, ["GPU-gpu-1-4::2"])), node_topology()],
        {4: "Pod ml/notebook"},
    ),
    "the agent's word before the status": (
        [
            told(pod(), (GPU, uuids("gpu-1", 4))),
            node_topology(allocations=[allocation("ml", "notebook", uuids("gpu-1", 5))]),
        ],
        {5: "Pod ml/notebook"},
    ),
    "a status with more GPUs than were asked for": (
        [told(pod(), (GPU, uuids("gpu-1", 4, 5))), node_topology()],
        {},
    ),
    "a device plugin that numbers its devices": ([told(pod(), (GPU, ["4"])), node_topology()], {}),
    "a Pod that asked for none": ([told(pod(requests={"cpu": "1"}), (GPU, uuids("gpu-1", 4))), node_topology()], {}),
    "a status without what it is to have": (
        [{**pod(), "status": {"phase": "Running", "containerStatuses": [{"allocatedResourcesStatus": [{}]}]}}],
        {},
    ),
    "the kubelet's word on a Pod that is gone": (
        [node_topology(allocations=[allocation("ml", "notebook", uuids("gpu-1", 4))])],
        {},
    ),
    "the kubelet's word on a Pod's earlier namesake": (
        [pod(uid="new"), node_topology(allocations=[allocation("ml", "notebook", uuids("gpu-1", 4), uid="old")])],
        {},
    ),
    "a stranger's annotation is worth nothing": (
        [
            {
                **pod(),
                "metadata": {
                    "name": "notebook",
                    "namespace": "ml",
                    "labels": {"closeknit.dev/job": "train"},
                    "annotations": {"closeknit.dev/gpus": "GPU-gpu-1-0"},
                },
            }
        ],
        {},
    ),
}
WITH_CLAIMS = {
    "a claim's devices": ([resource_claim("x", ("gpu-1", 0), ("gpu-1", 5))], {0: "claim ml/x", 5: "claim ml/x"}),
    "a claim with admin access holds nothing": ([resource_claim("x", ("gpu-1", 0), admin=True)], {}),
    "an agent that sees all GPUs by an admin's claim holds none, though the kubelet tells of them": (
        [
            pod("agent", requests={}, claims=["all"]),
            resource_claim("all", *(("gpu-1", index) for index in range(8)), admin=True),
            node_topology(allocations=[allocation("ml", "agent", uuids("gpu-1", *range(8)))]),
        ],
        {},
    ),
    "a claim of another driver holds nothing": ([resource_claim("x", ("gpu-1", 0), driver="dra.net")], {}),
    "a claim that waits holds nothing": ([resource_claim("x")], {}),
    "a claim on a device that the slice no longer names": ([resource_claim("x", ("gpu-1", 12))], {}),
    "a device that only an older generation names": (
        [resource_slice(indexes=(0, 1), generation=0), resource_claim("x", ("gpu-1", 1))],
        {1: "claim ml/x"},
    ),
    "our own claim shows as its job": (
        [
            training_job(placement=booked(("gpu-1", [3]), binding="DRA")),
            resource_claim("train-a1-worker-00000", ("gpu-1", 3), namespace="team-b", job="train"),
        ],
        {3: "job team-b/train"},
    ),
}


@pytest.mark.parametrize(("manifests", "expected"), HOLDERS.values(), ids=HOLDERS.keys())
def test_who_holds_which_gpu(manifests: Sequence[Manifest], expected: dict[int, str]) -> None:
    found = view(node(), node_topology(), *manifests)
    assert words(found.holders) == expected
    assert list(found.holders) == sorted(expected)
    assert set(found.free) == set(range(8)) - expected.keys()


@pytest.mark.parametrize(("manifests", "expected"), WITH_CLAIMS.values(), ids=WITH_CLAIMS.keys())
def test_who_holds_which_gpu_under_dra(manifests: Sequence[Manifest], expected: dict[int, str]) -> None:
    found = view(node(gpus=None), node_topology(), resource_slice(), *manifests)
    assert words(found.holders) == expected
    assert set(found.free) == set(range(8)) - expected.keys()


def test_a_claim_on_a_mig_device_holds_the_gpu_that_it_is_cut_from() -> None:
    cut = resource_slice(
        indexes=(0,),
        devices={0: {"attributes": {"type": {"string": "mig"}, "parentUUID": {"string": "GPU-gpu-1-6"}}}},
        part=1,
        count=2,
    )
    rest = resource_slice(indexes=range(1, 8), count=2)
    found = view(node(gpus=None), node_topology(), cut, rest, resource_claim("x", ("gpu-1", 0)))
    assert words(found.holders) == {6: "claim ml/x"}
    assert found.unusable[0] == Fault(FaultKind.UNNAMED)


def test_a_whole_gpu_that_shares_counters_with_its_mig_devices_is_whole_until_one_of_them_is_claimed() -> None:
    """As NVIDIA's driver publishes a node under its gate DynamicMIG, from Kubernetes 1.35: the counters in a slice
    without devices, then each GPU beside the MIG devices that can be cut from it, which have no uuid yet."""

    def counters(index: int) -> dict[str, object]:
        return {"consumesCounters": [{"counterSet": f"gpu-{index}-counter-set", "counters": {}}]}

    none = resource_slice(indexes=(), count=3)
    whole = resource_slice(indexes=range(8), part=1, count=3, devices={index: counters(index) for index in range(8)})
    cut = resource_slice(indexes=range(8), part=2, count=3)
    cut["spec"]["devices"] = [
        {
            "name": f"gpu-{index}-mig-1g18gb-0",
            "attributes": {"type": {"string": "mig"}, "parentUUID": {"string": f"GPU-gpu-1-{index}"}},
            **counters(index),
        }
        for index in range(8)
    ]
    slices = (none, whole, cut)
    found = view(node(gpus=None), node_topology(), *slices)
    assert (found.unusable, found.free) == ({}, tuple(range(8)))
    claim = resource_claim("x", ("gpu-1", 0))
    claim["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-6-mig-1g18gb-0"
    held = view(node(gpus=None), node_topology(), *slices, claim)
    assert words(held.holders) == {6: "claim ml/x"}
    assert set(held.free) == set(range(8)) - {6}


REQUESTED = {
    "a Pod that nobody explains": ([pod(requests={"nvidia.com/gpu": "3"})], 3, 3),
    "a Pod explained by the kubelet": (
        [pod(), node_topology(allocations=[allocation("ml", "notebook", uuids("gpu-1", 4))])],
        1,
        0,
    ),
    "a Pod explained in part": (
        [
            pod(requests={"nvidia.com/gpu": "2"}),
            node_topology(allocations=[allocation("ml", "notebook", uuids("gpu-1", 4))]),
        ],
        2,
        1,
    ),
    "a booking whose Pod is not there yet": ([training_job(placement=WHOLE)], 4, 0),
    "a booking whose Pod is not bound": (
        [training_job(placement=WHOLE), worker(node=None, requests={"nvidia.com/gpu": "4"}, phase="Pending")],
        4,
        0,
    ),
    "a booking whose Pod is bound": (
        [training_job(placement=WHOLE), worker(requests={"nvidia.com/gpu": "4"})],
        4,
        0,
    ),
    "a booking whose Pod is done, its job not yet": (
        [training_job(placement=WHOLE), worker(requests={"nvidia.com/gpu": "4"}, phase="Succeeded")],
        0,
        0,
    ),
    "a finished Pod of somebody": ([pod(phase="Succeeded")], 0, 0),
    "a Pod that waits for a node": ([pod(node=None, phase="Pending")], 0, 0),
    "a Pod on another node": ([pod(node="gpu-2")], 0, 0),
    "Pods that hold all there is, so that nobody need say which": (
        [pod("a", requests={"nvidia.com/gpu": "5"}), pod("b", requests={"nvidia.com/gpu": "3"})],
        8,
        0,
    ),
    "sidecars count beside the containers, init containers only at their peak": (
        [
            {
                **pod(),
                "spec": {
                    "nodeName": "gpu-1",
                    "initContainers": [
                        {"resources": {"limits": {"nvidia.com/gpu": 1}}, "restartPolicy": "Always"},
                        {"resources": {"limits": {"nvidia.com/gpu": 2}}},
                    ],
                    "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}, {"resources": None}],
                },
            }
        ],
        3,
        3,
    ),
}


@pytest.mark.parametrize(("manifests", "requested", "unnamed"), REQUESTED.values(), ids=REQUESTED.keys())
def test_what_the_device_plugin_has_handed_out(manifests: Sequence[Manifest], requested: int, unnamed: int) -> None:
    found = view(node(), node_topology(), *manifests)
    assert found.plugin == PluginOffer(8, 8, requested, unnamed, shared=False)


def test_pods_that_hold_all_there_is_hold_every_gpu() -> None:
    found = view(
        node(gpus=3),
        node_topology(count=3, allocations=[allocation("ml", "a", uuids("gpu-1", 1))]),
        pod("a"),
        pod("b", requests={"nvidia.com/gpu": "1"}),
        pod("c", requests={"nvidia.com/gpu": "1"}),
    )
    assert words(found.holders) == {0: "Pod ml/b or ml/c", 1: "Pod ml/a", 2: "Pod ml/b or ml/c"}
    assert found.free == ()


def test_pods_may_hold_gpus_that_only_the_agent_knows_to_be_broken() -> None:
    broken = [{"index": index, "state": "Unhealthy"} for index in (0, 1)]
    found = view(node(), node_topology(gpus=broken), pod(requests={"nvidia.com/gpu": "6"}))
    assert found.plugin == PluginOffer(8, 8, 6, 6, shared=False)
    assert (words(found.holders), found.free) == ({}, (2, 3, 4, 5, 6, 7))


def by_count(*manifests: Manifest, **topology: Any) -> tuple[dict[int, str], dict[str, int], object, int]:
    """Who is known to hold what, who has how much that nobody can name, what is a guess, and how much is free."""
    found = view(node(), node_topology(**topology), *manifests)
    unnamed = {words({0: holder})[0]: gpus for holder, gpus in found.unnamed.items()}
    assert found.plugin is not None
    assert found.plugin.unnamed == sum(unnamed.values())
    assert len(found.free) - found.plugin.unnamed == found.plugin.free
    return words(found.holders), unnamed, found.guessed, found.free_gpus


FORESEEN = training_job(placement=booked(("gpu-1", [0, 1]), binding="BestEffort"))
ITS_POD = worker(gpus=uuids("gpu-1", 0, 1), requests={"nvidia.com/gpu": "2"})
BY_COUNT = {
    "a Pod that nobody explains": ([pod(requests={"nvidia.com/gpu": "3"})], ({}, {"Pod ml/notebook": 3}, (), 5)),
    "a job whose Pod is not there yet": (
        [FORESEEN, pod()],
        ({0: "job team-b/train", 1: "job team-b/train"}, {"Pod ml/notebook": 1}, ((0, 1),), 5),
    ),
    "a job whose Pod is bound": (
        [FORESEEN, ITS_POD, pod()],
        ({0: "job team-b/train", 1: "job team-b/train"}, {"Pod ml/notebook": 1}, ((0, 1),), 5),
    ),
    "a job that takes what it is given": (
        [{**FORESEEN, "spec": {**FORESEEN["spec"], "gpu": {"binding": "BestEffort"}}}, ITS_POD],
        ({0: "job team-b/train", 1: "job team-b/train"}, {}, ((0,), (1,)), 6),
    ),
}


@pytest.mark.parametrize(("manifests", "expected"), BY_COUNT.values(), ids=BY_COUNT.keys())
def test_what_nobody_can_name_is_counted(manifests: Sequence[Manifest], expected: object) -> None:
    assert by_count(*manifests) == expected


def test_what_was_foreseen_gives_way_to_what_is_known() -> None:
    """The kubelet tells of the notebook's GPU, which was foreseen for the job; the job has two all the same."""
    told = [allocation("ml", "notebook", uuids("gpu-1", 0))]
    holders, unnamed, guessed, free = by_count(FORESEEN, ITS_POD, pod(), allocations=told)
    assert holders == {0: "Pod ml/notebook", 1: "job team-b/train"}
    assert (unnamed, guessed, free) == ({"job team-b/train": 1}, ((1,),), 5)
    told.append(allocation("team-b", "train-a1-worker-00000", uuids("gpu-1", 6, 7)))
    holders, unnamed, guessed, free = by_count(FORESEEN, ITS_POD, pod(), allocations=told)
    assert holders == {0: "Pod ml/notebook", 6: "job team-b/train", 7: "job team-b/train"}
    assert (unnamed, guessed, free) == ({}, (), 5)


def test_no_more_is_free_than_the_plugin_has() -> None:
    lacking = node(allocatable={"nvidia.com/gpu": "6"})
    lacking["status"] = {**lacking["status"], "capacity": {**lacking["status"]["capacity"], "nvidia.com/gpu": "8"}}
    assert view(lacking, node_topology(), pod()).free_gpus == 5
    broken = node_topology(gpus=[{"index": 3, "state": "Unhealthy"}])
    assert view(node(), broken, pod()).free_gpus == 0  # it may give the broken one
    assert view(node(gpus=7), broken, pod()).free_gpus == 6


def test_a_pod_of_the_plugin_that_dra_has_replaced_may_hold_any_gpu() -> None:
    old = pod("old", requests={"nvidia.com/gpu": "6"})
    found = view(node(gpus=0), node_topology(), resource_slice(), old, resource_claim("x", ("gpu-1", 3)))
    assert (found.dra, found.free) == (True, ())
    held = words(found.holders)
    assert (held[0], held[3]) == ("Pod ml/old", "claim ml/x")


def test_a_pod_that_asks_a_node_for_what_its_kubelet_never_knew_has_no_gpu() -> None:
    idle = pod("idle", requests={"nvidia.com/gpu": "1"})
    found = view(node(gpus=None), node_topology(), resource_slice(), idle)
    assert (found.dra, len(found.free), words(found.holders)) == (True, 8, {})
