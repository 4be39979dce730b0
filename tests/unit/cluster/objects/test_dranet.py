"""DRANET's NICs as a node has them: which can be claimed, by which DeviceClass, and who has them."""

from dataclasses import replace

import pytest

from closeknit.cluster.node.node import NodeView
from closeknit.cluster.objects.nic_exposure import NicExposure
from closeknit.cluster.store.watched_kinds import change
from scenarios.manifests import (
    Manifest,
    booked,
    device_class,
    device_taint_rule,
    nic_claim,
    nic_slice,
    node,
    node_topology,
    resource_slice,
    training_job,
)
from scenarios.views import cluster, parsed, view

DRIVER = 'device.driver == "dra.net"'
RDMA = "device.attributes['dra.net'].rdma == true"
DRANET = device_class("dranet", selectors=[DRIVER])
ADDRESSES = [f"0000:{row:02x}:00.0" for row in (0x1A, 0x3A, 0x9A, 0xBA)]


def machine(name: str = "gpu-1", *, gpus: int | None = None, **allocatable: str) -> list[Manifest]:
    """A node of eight GPUs, by DRA unless a device plugin has them, with four NICs."""
    topology = node_topology(name)
    topology["spec"]["nics"] = [
        {"name": f"mlx5_{row}", "transport": "InfiniBand", "state": "Active", "pciAddress": address}
        for row, address in enumerate(ADDRESSES)
    ]
    offers = {f"rdma/{resource}": amount for resource, amount in allocatable.items()}
    slices = [] if gpus else [resource_slice(name)]
    return [node(name, gpus=gpus, allocatable=offers), topology, *slices]


def offered(found: NodeView) -> dict[int, str] | None:
    return None if found.nics is None else dict(found.nics.addresses)


def test_nics_are_found_by_their_pci_address_however_it_is_spelled() -> None:
    found = view(*machine(), nic_slice("gpu-1", [ADDRESSES[2], "00000000:3A:00.0"]), DRANET)
    assert offered(found) == {1: "00000000:3A:00.0", 2: ADDRESSES[2]}
    assert found.rdma is not None
    assert (found.rdma.exposure, found.rdma.free) == (NicExposure.DRANET, 2)
    assert found.rdma.resource == "deviceclass.resource.kubernetes.io/dranet"


def test_claims_come_before_shares_of_a_resource() -> None:
    found = view(*machine(hca="8"), nic_slice("gpu-1", ADDRESSES), DRANET)
    assert found.rdma is not None and found.rdma.exposure is NicExposure.DRANET


CLASSES: dict[str, tuple[list[str], bool]] = {
    "the driver": ([DRIVER], True),
    "the driver in other quotes": (["device.driver=='dra.net'"], True),
    "Google's": ([f"{DRIVER} && has(device.attributes['dra.net'].rdma) && {RDMA}"], True),
    "two selectors": ([DRIVER, 'device.attributes["dra.net"].rdma'], True),
    "no selector": ([], False),
    "another driver": (["device.driver == 'gpu.nvidia.com'"], False),
    "no driver": ([RDMA], False),
    "AWS' own adapters": ([f"{DRIVER} && device.attributes['dra.net'].pciDevice == 'EFA'"], False),
    "one network": ([DRIVER, 'has(device.attributes["dra.net"].cloudNetwork)'], False),
    "either of two": ([f"{DRIVER} || {RDMA}"], False),
    "not RDMA": ([f"{DRIVER} && !{RDMA}"], False),
}


@pytest.mark.parametrize(("selectors", "is_one"), CLASSES.values(), ids=CLASSES.keys())
def test_a_device_class_by(selectors: list[str], is_one: bool) -> None:
    found = view(*machine(), nic_slice("gpu-1", ADDRESSES), device_class("theirs", selectors=selectors))
    assert (found.nics is not None) is is_one
    assert (found.rdma is not None) is is_one


def test_of_several_classes_the_first_by_name_counts() -> None:
    other = device_class("a-class", selectors=[DRIVER])
    found = view(*machine(), nic_slice("gpu-1", ADDRESSES), DRANET, other)
    assert found.nics is not None and found.nics.device_class == "a-class"


TAINT = {"taints": [{"key": "example.com/bad", "effect": "NoSchedule"}]}
SLICES: dict[str, tuple[list[Manifest], list[int] | None]] = {
    "an incomplete pool": ([nic_slice("gpu-1", ADDRESSES, count=2)], None),
    "an older generation": (
        [nic_slice("gpu-1", ADDRESSES), nic_slice("gpu-1", ADDRESSES[:1], generation=2)],
        [0],
    ),
    "two parts": (
        [nic_slice("gpu-1", ADDRESSES[:1], count=2), nic_slice("gpu-1", ADDRESSES[1:2], part=1, count=2)],
        [0, 1],
    ),
    "a tainted device": ([nic_slice("gpu-1", ADDRESSES, devices={1: TAINT})], [0, 2, 3]),
    "a device that a DeviceTaintRule taints": (
        [nic_slice("gpu-1", ADDRESSES), device_taint_rule(driver="dra.net", device="nic-2")],
        [0, 1, 3],
    ),
    "a device for several claims": (
        [nic_slice("gpu-1", ADDRESSES, devices={3: {"allowMultipleAllocations": True}})],
        [0, 1, 2],
    ),
    "NICs that the machine does not have": ([nic_slice("gpu-1", ["0000:ff:00.0"])], None),
    "another node's": ([nic_slice("gpu-2", ADDRESSES)], None),
}


@pytest.mark.parametrize(("slices", "rows"), SLICES.values(), ids=SLICES.keys())
def test_what_can_be_claimed_of(slices: list[Manifest], rows: list[int] | None) -> None:
    found = offered(view(*machine(), *slices, DRANET))
    assert (None if found is None else list(found)) == rows


def test_what_claims_and_bookings_hold_is_not_free() -> None:
    placement = booked(("gpu-1", range(2)), nics=["mlx5_0"], rdma_resource="deviceclass.resource.kubernetes.io/dranet")
    found = view(
        *machine(),
        nic_slice("gpu-1", ADDRESSES),
        DRANET,
        nic_claim("notebook", ("gpu-1", 2)),
        training_job(placement=placement),
    )
    assert found.nics is not None and found.rdma is not None
    assert dict(found.nics.holders) == {0: ("team-b", "train"), 2: ("ml", "notebook")}
    assert found.rdma.free == 2
    freed = found.freed([0, 1])
    assert freed.nics is not None and dict(freed.nics.holders) == {2: ("ml", "notebook")}
    assert freed.rdma is not None and freed.rdma.free == 3


def test_who_keeps_a_gpu_keeps_its_nics() -> None:
    placement = booked(("gpu-1", range(2)), nics=["mlx5_0"], rdma_resource="deviceclass.resource.kubernetes.io/dranet")
    found = view(*machine(), nic_slice("gpu-1", ADDRESSES), DRANET, training_job(placement=placement)).freed([0])
    assert found.nics is not None and 0 in found.nics.holders


def test_a_claim_of_gpus_and_one_of_nics_are_told_apart() -> None:
    """Both drivers name their pools after the node."""
    found = view(*machine(), nic_slice("gpu-1", ADDRESSES), DRANET, nic_claim("notebook", ("gpu-1", 0)))
    assert found.holders == {}


TWOFOLD = device_class("gpu.nvidia.com", "nvidia.com/gpu")


@pytest.mark.parametrize(("gpus", "is_offered"), [(8, False), (None, True)], ids=["by a device plugin", "by DRA"])
def test_where_a_class_stands_for_gpus(gpus: int | None, is_offered: bool) -> None:
    """The scheduler of Kubernetes 1.36 binds no Pod with such GPUs and a claim of another kind."""
    found = view(*machine(gpus=gpus, hca="8"), nic_slice("gpu-1", ADDRESSES), DRANET, TWOFOLD)
    assert (found.nics is not None) is is_offered
    assert found.rdma is not None
    assert found.rdma.exposure is (NicExposure.DRANET if is_offered else NicExposure.SHARED)


def test_a_node_is_seen_anew_as_objects_come_and_go() -> None:
    objects = [*machine(), nic_slice("gpu-1", ADDRESSES), DRANET, nic_claim("notebook", ("gpu-1", 0))]
    whole = cluster(*objects)
    for left_out in objects[3:]:
        less = cluster(*(each for each in objects if each is not left_out))
        come = change(parsed(left_out))
        assert less.nodes != whole.nodes
        assert less.after((come,)) == whole
        assert whole.after((replace(come, new=None),)) == less


def test_an_empty_copy_of_the_cluster_follows_what_is_offered() -> None:
    """What is held there is free; what DRANET does not offer is not."""
    few, all_four = (nic_slice("gpu-1", ADDRESSES[:rows]) for rows in (2, 4))
    held = nic_claim("notebook", ("gpu-1", 0))
    found = cluster(*machine(), few, DRANET, held)
    (group,) = found.forest.now.counts
    (emptied,) = found.forest.empty.counts
    assert (group.nics_taken, emptied.nics_taken) == (0b1101, 0b1100)
    (emptied,) = found.after((change(parsed(all_four)),)).forest.empty.counts
    assert emptied.nics_taken == 0
