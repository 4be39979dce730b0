"""What a node has left for one Pod more: what it has, less live Pods, less bookings whose Pod is not bound yet."""

from collections.abc import Sequence
from typing import Any

import pytest

from closeknit.cluster.node.node import RdmaOffer
from closeknit.cluster.store.watched_kinds import ObjectChange, Stream, from_document
from closeknit.placement.candidates.resource_fit import fits
from scenarios.manifests import Manifest, booked, device_class, node, node_topology, pod, training_job, worker
from scenarios.views import cluster, view

GI = 1 << 30
HAS = {"cpu": 128_000, "memory": 1056 * GI, "pods": 110}
FOUR = {"cpu": "4", "memory": "8Gi"}


def asking(**requests: str) -> Manifest:
    container = {"name": "trainer", "image": "registry.example/train:1", "resources": {"requests": requests}}
    return {"gpus": 2, "template": {"spec": {"containers": [container]}}}


BOOKED = training_job(spec=asking(cpu="32", memory="256Gi"), placement=booked(("gpu-1", [0, 1])))
WITH_NICS: dict[str, Any] = {"placement": booked(("gpu-1", [0, 1]), nics=["mlx5_0"])}

SPARE: dict[str, tuple[list[Manifest], dict[str, int]]] = {
    "nobody is there": ([], {}),
    "somebody's Pod without GPUs": ([pod(requests=FOUR)], {"cpu": 124_000, "memory": 1048 * GI, "pods": 109}),
    "two of them": (
        [pod("a", requests=FOUR), pod("b", requests={"cpu": "500m"})],
        {"cpu": 123_500, "memory": 1048 * GI, "pods": 108},
    ),
    "somebody's Pod with GPUs": (
        [pod(requests={**FOUR, "nvidia.com/gpu": "1"})],
        {"cpu": 124_000, "memory": 1048 * GI, "pods": 109},
    ),
    "a Pod that is not bound": ([pod(requests=FOUR, node=None)], {}),
    "a Pod on another node": ([pod(requests=FOUR, node="gpu-2")], {}),
    "a finished Pod": ([pod(requests=FOUR, phase="Succeeded")], {}),
    "a finished Pod of ours": ([worker(requests=FOUR, phase="Failed")], {}),
    "more than there is": ([pod(requests={"cpu": "200"})], {"cpu": 0, "pods": 109}),
    "a booking whose Pod is not there yet": ([BOOKED], {"cpu": 96_000, "memory": 800 * GI, "pods": 109}),
    "a booking whose Pod is not bound yet": (
        [BOOKED, worker(node=None, requests={"cpu": "32"})],
        {"cpu": 96_000, "memory": 800 * GI, "pods": 109},
    ),
    "a booking whose Pod is bound counts by what the Pod really takes": (
        [BOOKED, worker(requests={"cpu": "33", "nvidia.com/gpu": "2"})],
        {"cpu": 95_000, "pods": 109},
    ),
    "a booking whose Pod has finished": (
        [BOOKED, worker(requests={"cpu": "33", "nvidia.com/gpu": "2"}, phase="Succeeded")],
        {},
    ),
    "a booking whose Pod has finished and was removed": (
        [training_job(spec=asking(cpu="32"), placement={**booked(("gpu-1", [0, 1])), "succeeded": "0"})],
        {},
    ),
    "a booking of a job that cannot be read": (
        [training_job(spec={"gpus": 0}, placement=booked(("gpu-1", [0, 1])))],
        {},
    ),
}


@pytest.mark.parametrize(("manifests", "changed"), SPARE.values(), ids=SPARE.keys())
def test_what_is_left_of_a_node(manifests: Sequence[Manifest], changed: dict[str, int]) -> None:
    found = view(node(gpus=None), node_topology(), *manifests)
    assert found.allocatable == HAS
    assert found.spare == {**HAS, **changed}


def test_of_nodes_that_no_job_can_use_and_of_files_without_nodes_nothing_is_known() -> None:
    assert view(node()).spare is None
    assert view(node_topology()).spare is None


FPGA = device_class("fpga", "example.com/fpga")
ASKS = (("example.com/fpga", 2),)


@pytest.mark.parametrize(
    ("has", "classes", "expected"),
    [
        ({}, [FPGA], True),
        ({"example.com/fpga": "0"}, [FPGA], True),
        ({"example.com/fpga": "1"}, [FPGA], False),  # where a node counts them, the scheduler goes by its count
        ({"example.com/fpga": "2"}, [], True),
        ({}, [], False),
        ({}, [device_class("fpga")], False),
        ({}, [device_class("other", "example.com/other")], False),
    ],
)
def test_what_a_device_class_stands_for_is_anywhere(
    has: dict[str, str], classes: list[Manifest], expected: bool
) -> None:
    assert fits(view(node(allocatable=has), node_topology(), *classes).spare, ASKS) is expected


def test_a_node_is_seen_anew_when_a_device_class_comes_and_goes() -> None:
    before = cluster(node(), node_topology())
    stream = Stream.DEVICE_CLASSES
    seen = before.after([ObjectChange(stream, ("", "fpga"), from_document(FPGA))])
    assert fits(seen.nodes["gpu-1"].spare, ASKS)
    assert seen.after([ObjectChange(stream, ("", "fpga"), None)]).nodes == before.nodes


def test_nics_that_only_claims_give_are_not_offered() -> None:
    found = view(node(allocatable={}), node_topology(), device_class("nics", "rdma/hca"))
    assert found.rdma is None


def test_pods_of_nodes_without_gpus_change_no_view() -> None:
    before = cluster(node("cpu-1"), node("gpu-1"), node_topology())
    after = cluster(node("cpu-1"), node("gpu-1"), node_topology(), pod(node="cpu-1", requests=FOUR))
    assert before.nodes == after.nodes


RDMA: dict[str, tuple[dict[str, str], list[Manifest], RdmaOffer]] = {
    "the first by name that is left, and not one that is exhausted": (
        {"rdma/a": "1", "rdma/b": "4"},
        [pod(requests={"rdma/a": "1"})],
        RdmaOffer("rdma/b", 4),
    ),
    "the first by name where all are exhausted": (
        {"rdma/a": "1", "rdma/b": "1"},
        [pod(requests={"rdma/a": "1", "rdma/b": "1"})],
        RdmaOffer("rdma/a", 0),
    ),
    "less what is booked of this very one": (
        {"rdma/a": "8", "rdma/hca": "8"},
        [training_job(**WITH_NICS)],
        RdmaOffer("rdma/a", 8),
    ),
    "less what a template asks for itself, and no more": (
        {"rdma/hca": "8"},
        [training_job(spec=asking(**{"rdma/hca": "3"}), **WITH_NICS)],
        RdmaOffer("rdma/hca", 5),
    ),
}


@pytest.mark.parametrize(("resources", "manifests", "expected"), RDMA.values(), ids=RDMA.keys())
def test_which_nics_a_pod_would_be_given(
    resources: dict[str, str], manifests: Sequence[Manifest], expected: RdmaOffer
) -> None:
    found = view(node(allocatable=resources), node_topology(), *manifests)
    assert found.rdma == expected
