"""Claims on nodes that a fabric manager cuts into partitions: NVIDIA's driver prepares no other set of GPUs.

Attributes as cmd/gpu-kubelet-plugin/deviceinfo.go of kubernetes-sigs/dra-driver-nvidia-gpu publishes them with its gate
FabricManagerPartitioning: of each GPU the ids of the partitions that have it, by their number of GPUs.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.cluster.cluster import build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import NoFit
from scenarios.clusters import wanted
from scenarios.manifests import Manifest, node, node_topology, resource_claim, resource_slice
from scenarios.manifests import training_job as job_of
from scenarios.story import Story

# Pairs are no neighbours, as on boards whose GPUs are numbered otherwise than the modules that they sit in.
HGX = [
    {0, 1, 2, 3, 4, 5, 6, 7},
    {0, 1, 2, 3},
    {4, 5, 6, 7},
    {0, 2},
    {1, 3},
    {4, 6},
    {5, 7},
    *({gpu} for gpu in range(8)),
]


def cut(
    name: str, partitions: Iterable[set[int]] = HGX, devices: Mapping[int, Manifest] | None = None
) -> list[Manifest]:
    """A node of eight H200 behind NVSwitches, with the slice of its GPUs."""
    topology = node_topology(name)
    topology["spec"]["nvlink"] = {"generation": 4, "switched": True, "linksPerGPU": [18] * 8}
    gpus = resource_slice(name, devices=devices)
    for number, members in enumerate(partitions, 1):
        for gpu in members:
            attributes = gpus["spec"]["devices"][gpu]["attributes"]
            attributes[f"partition{len(members)}"] = {"int": number}
            attributes["gpuModuleID"] = {"int": gpu + 1}
    return [node(name, gpus=None), topology, gpus]


def job(gpus: int, **topology: Any) -> Manifest:
    spec = {"containers": [{"name": "trainer", "image": "i"}]}
    return job_of("train", spec={"gpus": gpus, "topology": topology, "template": {"spec": spec}})


def settled(*manifests: Manifest) -> Story:
    story = Story(*manifests)
    story.settle()
    return story


def claimed(story: Story) -> list[set[int]]:
    """The GPUs of each claim of the job."""
    found = []
    for (kind, _, name), body in sorted(story.objects.items()):
        if kind == "ResourceClaim" and name.startswith("train-"):
            words = str(body["spec"])
            found.append({int(gpu) for gpu in re.findall(r"GPU-gpu-\d+-(\d)", words)})
    return found


@pytest.mark.parametrize(
    ("gpus", "held", "expected"),
    [
        pytest.param(2, (), [{0, 2}], id="no neighbours"),
        pytest.param(2, (0,), [{1, 3}], id="the pair that is whole, and of the quad that is not"),
        pytest.param(4, (5,), [{0, 1, 2, 3}], id="a quad"),
        pytest.param(1, (), [{0}], id="one"),
        pytest.param(1, (0, 3), [{1}], id="one out of a pair that is torn, and a torn quad"),
        pytest.param(8, (), [{0, 1, 2, 3, 4, 5, 6, 7}], id="all"),
    ],
)
def test_a_claim_has_exactly_a_partition(gpus: int, held: tuple[int, ...], expected: list[set[int]]) -> None:
    claims = [resource_claim("notebook", *(("gpu-1", gpu) for gpu in held))] if held else []
    assert claimed(settled(*cut("gpu-1"), *claims, job(gpus))) == expected


def test_the_shares_of_a_gang_are_partitions_each() -> None:
    held = resource_claim("notebook", ("gpu-1", 0), ("gpu-2", 7))
    assert claimed(settled(*cut("gpu-1"), *cut("gpu-2"), held, job(8, gpusPerNode=4))) == [{4, 5, 6, 7}, {0, 1, 2, 3}]


@pytest.mark.parametrize(
    ("held", "gpus", "topology"),
    [
        pytest.param((), 3, {"gpusPerNode": 3}, id="no partition has three"),
        pytest.param((0, 1), 2, {"gpusPerNode": 2, "nvlink": "Required"}, id="a pair is free elsewhere"),
        pytest.param((0, 1, 4, 5), 2, {"gpusPerNode": 2}, id="four are free, and no pair is whole"),
    ],
)
def test_what_is_no_partition_waits_and_is_told(held: tuple[int, ...], gpus: int, topology: dict[str, Any]) -> None:
    claims = [resource_claim("notebook", *(("gpu-1", gpu) for gpu in held))] if held else []
    story = settled(*cut("gpu-1"), *claims, job(gpus, **topology))
    if held == (0, 1):
        assert claimed(story) == [{4, 6}]
        return
    assert claimed(story) == []
    assert (
        "on 1 node a fabric manager has partitions of 1, 2, 4 or 8 GPUs, a claim can have nothing else, and the free "
        "ones do not add up: set topology.gpusPerNode to the size of one that is free"
    ) in (story.status().message or "")


def test_a_partition_with_a_gpu_that_the_driver_does_not_publish_is_none() -> None:
    manifests = cut("gpu-1")
    del manifests[2]["spec"]["devices"][2]
    assert claimed(settled(*manifests, job(2))) == [{1, 3}]


def test_a_partition_with_a_broken_gpu_is_not_given() -> None:
    taint = {"taints": [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]}
    manifests = cut("gpu-1")
    manifests[2]["spec"]["devices"][0] |= taint
    assert claimed(settled(*manifests, job(2))) == [{1, 3}]


def test_a_device_plugin_knows_no_partitions() -> None:
    _, topology, gpus = cut("gpu-1")
    story = settled(node("gpu-1", gpus=8), topology, gpus, job(2))
    assert story.pods()


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.frozensets(st.integers(0, 7), min_size=1), max_size=12, unique=True),
    st.frozensets(st.integers(0, 7), max_size=5),
    st.integers(1, 8),
)
def test_any_partitions_give_the_sets_that_brute_force_gives(
    drawn: list[frozenset[int]], held: frozenset[int], gpus: int
) -> None:
    # A GPU is in one partition of each size at most (fabricmanager/manager.go, GetPartitionsBySizeByModuleID).
    partitions: list[frozenset[int]] = []
    for each in drawn:
        if not any(len(each) == len(other) and each & other for other in partitions):
            partitions.append(each)
    claims = [resource_claim("notebook", *(("gpu-1", gpu) for gpu in sorted(held)))] if held else []
    manifests = [*cut("gpu-1", [set(each) for each in partitions]), *claims]
    cluster = build([kept for manifest in manifests if (kept := from_document(manifest)) is not None])
    found = place(cluster, wanted(gpus=gpus, topology={"gpusPerNode": gpus}), Tables())
    able = [each for each in partitions if len(each) == gpus and not each & held]
    if not partitions:  # nothing says that the node is cut
        able = [frozenset(range(8)) - held] if 8 - len(held) >= gpus else []
        assert isinstance(found, NoFit) != bool(able)
    elif isinstance(found, NoFit):
        assert able == []
    else:
        (share,) = found.shares
        assert frozenset(share.gpus) in able
