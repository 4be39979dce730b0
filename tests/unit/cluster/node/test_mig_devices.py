"""MIG devices of a node: how each can be had, and who has it."""

from typing import Any

import pytest

from closeknit.api.objects import NodeTopology
from closeknit.cluster.node.mig_devices import mig_resource
from closeknit.cluster.node.node import HolderKind
from closeknit.machine.checks import InvalidTopology
from closeknit.machine.graph import machine
from scenarios.manifests import (
    Manifest,
    allocation,
    booked,
    cut,
    mig_slice,
    mig_uuids,
    node,
    node_topology,
    pod,
    resource_claim,
    told,
    training_job,
    worker,
)
from scenarios.views import view

SMALL = "nvidia.com/mig-1g.18gb"
OFFERED = {SMALL: "7"}
ONE = {SMALL: "1"}


def counted(allocatable: dict[str, str] | None = None, **labels: str) -> Manifest:
    """A node whose device plugin offers one whole GPU, and MIG devices."""
    return node(gpus=1, allocatable=OFFERED if allocatable is None else allocatable, labels=labels)


def machine_of_two(**status: Any) -> Manifest:
    """GPU 0 in seven MIG devices, GPU 1 whole."""
    return cut(node_topology(count=2, **status), 0)


def job(name: str, device: str, binding: str = "BestEffort") -> Manifest:
    placement = booked(("gpu-1", [0]), binding=binding)
    placement["nodes"][0] |= {"ranks": "0", "migDevice": device}
    return training_job(name, spec={"gpus": 1, "gpu": {"mig": "1g.18gb"}}, attempt=1, placement=placement)


def said(*manifests: Manifest) -> list[str]:
    """Of each device in order `free`, why it is not usable, or who holds it."""
    found = []
    for device in view(*manifests).mig:
        holder = device.holder
        whose = (
            "" if holder is None else f"{holder.kind} {holder.name}" + "".join(f" or {n}" for _, n in holder.or_pods)
        )
        found.append("free" if device.is_free else str(device.fault) if device.fault is not None else whose)
    return found


@pytest.mark.parametrize(
    ("profile", "resource"),
    [("1g.18gb", "nvidia.com/mig-1g.18gb"), ("1g.18gb+me", "nvidia.com/mig-1g.18gb.me")],
)
def test_the_plugin_has_names_of_its_own_for_profiles(profile: str, resource: str) -> None:
    assert mig_resource(profile) == resource


def test_a_device_is_known_with_its_gpu_and_memory() -> None:
    found = view(counted(), machine_of_two())
    assert [(each.uuid, each.gpu, each.profile, each.memory_bytes) for each in found.mig] == [
        (uuid, 0, "1g.18gb", 16 << 30) for uuid in mig_uuids("gpu-1", 0)
    ]
    assert {str(each.binding) for each in found.mig} == {"BestEffort"}
    assert (found.usable, str(found.unusable[0])) == ((1,), "MIG")


def test_a_gpu_out_of_mig_mode_has_none() -> None:
    topology = machine_of_two()
    topology["spec"]["gpus"][0]["mig"]["mode"] = "Disabled"
    assert said(counted(), topology) == []


def test_those_of_a_broken_gpu_are_broken() -> None:
    topology = machine_of_two(gpus=[{"index": 0, "state": "Unhealthy", "reasons": ["XID79"]}])
    assert said(counted(), topology) == ["unhealthy: XID79"] * 7


def test_a_pod_of_others_has_what_the_kubelet_says() -> None:
    third = mig_uuids("gpu-1", 0)[2]
    expected = ["free", "free", "Pod notebook", "free", "free", "free", "free"]
    stranger = pod(requests=ONE)
    topology = machine_of_two(allocations=[allocation("ml", "notebook", [third])])
    assert said(counted(), topology, stranger) == expected
    assert said(counted(), machine_of_two(), told(stranger, (SMALL, [third]))) == expected


def test_what_a_pod_has_that_nobody_names_is_counted() -> None:
    stranger = pod(requests={SMALL: "2"})
    assert said(counted(), machine_of_two(), stranger) == ["free"] * 5 + ["Pod notebook"] * 2


def test_it_is_counted_on_a_node_that_tells_no_capacity() -> None:
    """As in files that people write for `closeknit plan`."""
    offered = counted()
    del offered["status"]["capacity"]
    assert said(offered, machine_of_two(), pod(requests=ONE)) == ["free"] * 6 + ["Pod notebook"]


def test_a_pod_that_asks_for_what_its_node_never_had_has_none() -> None:
    parts = (node(gpus=None), cut(node_topology(count=1), 0), mig_slice())
    assert said(*parts, pod(requests=ONE)) == ["free"] * 7


def test_a_pod_that_is_over_has_none() -> None:
    assert said(counted(), machine_of_two(), pod(requests=ONE, phase="Succeeded")) == ["free"] * 7


def test_a_booking_has_its_device_before_its_pod_is_there_and_after() -> None:
    second = mig_uuids("gpu-1", 0)[1]
    expected = ["free", "job train", "free", "free", "free", "free", "free"]
    assert said(counted(), machine_of_two(), job("train", second)) == expected
    bound = worker(requests=ONE)
    assert said(counted(), machine_of_two(), job("train", second), bound) == expected


def test_a_booking_has_what_the_plugin_chose() -> None:
    second, fourth = mig_uuids("gpu-1", 0)[1], mig_uuids("gpu-1", 0)[3]
    topology = machine_of_two(allocations=[allocation("team-b", "train-a1-worker-00000", [fourth])])
    expected = ["free", "free", "free", "job train", "free", "free", "free"]
    assert said(counted(), topology, job("train", second), worker(requests=ONE)) == expected


def test_a_pod_that_asks_for_something_else_is_not_that_of_the_booking() -> None:
    second = mig_uuids("gpu-1", 0)[1]
    namesake = worker(requests={"nvidia.com/mig-2g.35gb": "1"})
    assert said(counted(), machine_of_two(), job("train", second), namesake)[1] == "job train"


def test_one_device_that_two_bookings_come_to_have_leaves_no_more_than_the_plugin_has() -> None:
    """The plugin gave the first what was booked for the second, whose Pod is not there yet."""
    first, second = mig_uuids("gpu-1", 0)[:2]
    topology = cut(
        node_topology(count=2, allocations=[allocation("team-b", "a-a1-worker-00000", [second])]), 0, count=2
    )
    bound = worker("a", requests=ONE)
    assert said(counted({SMALL: "2"}), topology, job("a", first), job("b", second), bound) == ["job a", "job a"]


def test_what_the_plugin_holds_unhealthy_is_not_offered() -> None:
    offered = counted({SMALL: "6"})
    offered["status"]["capacity"] = {**offered["status"]["capacity"], SMALL: "7"}
    assert said(offered, machine_of_two()) == ["free"] * 6 + ["neither a device plugin nor a ResourceSlice offers it"]


def test_replicas_are_refused() -> None:
    assert set(said(counted({SMALL: "14"}), machine_of_two())) == {
        "shared by the device plugin, which offers more of them than there are"
    }


@pytest.mark.parametrize(
    "label",
    [{"nvidia.com/mig.strategy": "single"}, {"cloud.google.com/gke-gpu-partition-size": "1g.18gb"}, {}],
    ids=["NVIDIA's label", "GKE's", "no label"],
)
def test_under_the_strategy_single_they_are_refused(label: dict[str, str]) -> None:
    whole = node(gpus=7, labels=label)
    assert set(said(whole, cut(node_topology(count=1), 0))) == {
        "offered as a whole GPU (the device plugin's MIG strategy is single; gpu.mig needs mixed)"
    }


def test_without_nodes_every_device_is_offered() -> None:
    assert said(machine_of_two()) == ["free"] * 7


def claimed(*numbers: int, **others: Any) -> Manifest:
    claim = resource_claim("notebook-gpus", *(("gpu-1", number) for number in numbers), **others)
    for number, result in zip(numbers, claim["status"]["allocation"]["devices"]["results"], strict=True):
        result["device"] = f"gpu-0-mig-1g.18gb-19-{number}"
    return claim


def test_claims_bind_what_slices_name() -> None:
    found = view(node(gpus=None), cut(node_topology(count=1), 0), mig_slice())
    assert {str(each.binding) for each in found.mig} == {"DRA"}
    assert all(each.is_free for each in found.mig)


def test_a_claim_has_the_very_devices_that_it_was_given() -> None:
    expected = ["free", "claim notebook-gpus", "free", "free", "claim notebook-gpus", "free", "free"]
    assert said(node(gpus=None), cut(node_topology(count=1), 0), mig_slice(), claimed(1, 4)) == expected


def test_a_claim_counts_though_no_device_tells_its_gpu() -> None:
    part = mig_slice()
    for each in part["spec"]["devices"]:
        del each["attributes"]["parentUUID"]
    found = said(node(gpus=None), cut(node_topology(count=1), 0), part, claimed(0))
    assert found == ["claim notebook-gpus"] + ["free"] * 6


def test_an_admins_claim_has_none() -> None:
    parts = (node(gpus=None), cut(node_topology(count=1), 0), mig_slice())
    assert said(*parts, claimed(1, admin=True)) == ["free"] * 7


def test_slices_of_an_incomplete_pool_offer_none() -> None:
    part = mig_slice()
    part["spec"]["pool"]["resourceSliceCount"] = 2
    assert set(said(node(gpus=None), cut(node_topology(count=1), 0), part)) == {
        "its pool of ResourceSlices is incomplete (1 of 2)"
    }


def test_a_device_that_the_driver_has_tainted_is_not_to_be_had() -> None:
    part = mig_slice()
    part["spec"]["devices"][3]["taints"] = [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]
    found = said(node(gpus=None), cut(node_topology(count=1), 0), part)
    assert found[3] == "unhealthy: its DRA device is tainted gpu.nvidia.com/xid:NoSchedule"
    assert found.count("free") == 6


def test_a_pod_of_the_plugin_before_keeps_all_of_its_profile() -> None:
    remembered = node(gpus=None)
    remembered["status"]["capacity"] = {**remembered["status"]["capacity"], SMALL: "0"}
    parts = (remembered, cut(node_topology(count=1), 0), mig_slice())
    assert set(said(*parts, pod(requests=ONE))) == {"Pod notebook"}


def test_a_machine_that_names_one_device_twice_is_refused() -> None:
    topology = machine_of_two()
    devices = topology["spec"]["gpus"][0]["mig"]["devices"]
    devices[3]["uuid"] = devices[1]["uuid"]
    with pytest.raises(InvalidTopology, match=r"gpus\[0\].mig.devices\[3\].uuid: MIG-gpu-1-0-1 is also that of"):
        machine(NodeTopology.parse(topology).spec)


def test_holders_are_of_their_kinds() -> None:
    found = view(counted(), machine_of_two(), job("train", mig_uuids("gpu-1", 0)[0]))
    assert found.mig[0].holder is not None and found.mig[0].holder.kind is HolderKind.JOB


def test_a_pod_of_before_whose_claim_is_not_seen_may_have_any() -> None:
    """The scheduler gives a claim its devices before it binds, and Pods and claims come by streams of their own."""
    parts = (node(gpus=None), cut(node_topology(count=1), 0), mig_slice())
    late = worker(requests={}, claims=["train-a1-worker-00000"])
    assert set(said(*parts, training_job(attempt=2), late)) == {"Pod train-a1-worker-00000"}
