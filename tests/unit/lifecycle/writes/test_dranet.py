"""Jobs whose NICs are claimed one by one: which they get, what their Pods claim, and when they go without."""

from typing import Any

import pytest

from closeknit.agent.sources.simulated import load_profile
from closeknit.lifecycle.attempt.own_gpus import with_own_gpus_free
from closeknit.lifecycle.writes.quota_demand import quota_demand
from scenarios.machines import published
from scenarios.manifests import (
    Manifest,
    device_class,
    nic_claim,
    nic_slice,
    node,
    node_topology,
    resource_claim,
    resource_slice,
)
from scenarios.manifests import training_job as job_of
from scenarios.networks import degraded, environment
from scenarios.story import Story

DRANET = device_class("dranet", selectors=['device.driver == "dra.net"'])
ADDRESSES = [f"0000:{row:02x}:00.0" for row in (0x1A, 0x3A, 0x9A, 0xBA)]


def machine(name: str, *, gpus: int | None = None, transport: str = "InfiniBand", **allocatable: str) -> list[Manifest]:
    """Eight GPUs, by DRA unless a device plugin has them, and four NICs, each beside two of them."""
    topology = node_topology(name)
    topology["spec"]["nics"] = [
        {
            "name": f"mlx5_{row}",
            "transport": transport,
            "state": "Active",
            "pciAddress": address,
            "gpuLevels": ["PIX" if gpu // 2 == row else "SYS" for gpu in range(8)],
        }
        for row, address in enumerate(ADDRESSES)
    ]
    offers = {f"rdma/{resource}": amount for resource, amount in allocatable.items()}
    return [node(name, gpus=gpus, allocatable=offers), topology, *([] if gpus else [resource_slice(name)])]


def two(**fields: Any) -> list[Manifest]:
    """Two such machines of DRANET."""
    machines = [each for name in ("gpu-1", "gpu-2") for each in machine(name, **fields)]
    return [*machines, nic_slice("gpu-1", ADDRESSES), nic_slice("gpu-2", ADDRESSES), DRANET]


def job(name: str = "train", gpus: int = 16, *, rdma: str = "Preferred", **pod: Any) -> Manifest:
    spec = {"containers": [{"name": "trainer", "image": "i"}], **pod}
    network, topology = {"rdma": rdma}, {"gpusPerNode": gpus // 2}
    return job_of(name, spec={"gpus": gpus, "network": network, "topology": topology, "template": {"spec": spec}})


def settled(*manifests: Manifest) -> Story:
    story = Story(*manifests)
    story.settle()
    return story


def claim(story: Story, name: str) -> list[Manifest]:
    (body,) = [each for (kind, _, found), each in story.objects.items() if (kind, found) == ("ResourceClaim", name)]
    requests: list[Manifest] = body["spec"]["devices"]["requests"]
    return requests


def nics(story: Story, name: str) -> Manifest:
    (request,) = [each for each in claim(story, name) if each["name"] == "nics"]
    exactly: Manifest = request["exactly"]
    return exactly


def pinned(story: Story, name: str = "train-a1-worker-00000") -> list[str]:
    words = nics(story, name)["selectors"][0]["cel"]["expression"]
    return [address for address in ADDRESSES if repr(address) in words]


def test_one_claim_has_the_gpus_and_their_nics() -> None:
    story = settled(*two(), job())
    assert [each["name"] for each in claim(story, "train-a1-worker-00001")] == ["gpus", "nics"]
    address = "device.attributes['dra.net'].pciAddress"
    assert nics(story, "train-a1-worker-00001") == {
        "deviceClassName": "dranet",
        "count": 4,
        "selectors": [
            {"cel": {"expression": f"device.driver == 'dra.net' && has({address}) && {address} in {ADDRESSES!r}"}}
        ],
    }
    pod = story.pod("train-a1-worker-00001")["spec"]
    assert pod["resourceClaims"] == [{"name": "gpus", "resourceClaimName": "train-a1-worker-00001"}]
    assert pod["containers"][0]["resources"] == {"claims": [{"name": "gpus"}]}
    assert degraded(story) is None


def test_gpus_of_a_device_plugin_stand_beside_a_claim_of_nics() -> None:
    story = settled(*two(gpus=8), job())
    assert [each["name"] for each in claim(story, "train-a1-worker-00000")] == ["nics"]
    pod = story.pod("train-a1-worker-00000")["spec"]
    assert pod["resourceClaims"] == [{"name": "closeknit-nics", "resourceClaimName": "train-a1-worker-00000"}]
    resources = pod["containers"][0]["resources"]
    assert (resources["requests"], resources["claims"]) == ({"nvidia.com/gpu": "8"}, [{"name": "closeknit-nics"}])
    story.run_all()
    story.settle()
    assert story.status().state == "Running"


def test_nccl_is_told_the_nics_and_the_pods_own_interface() -> None:
    told = environment(settled(*two(), job()))
    assert told["NCCL_NET"] == "IB"
    assert told["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"
    assert told["NCCL_SOCKET_IFNAME"] == "=eth0"


def test_pods_that_have_roce_nics_to_themselves_need_no_host_network() -> None:
    body = job()
    body["spec"]["network"]["allowHostNetwork"] = True
    story = settled(*two(transport="RoCE"), body)
    assert "hostNetwork" not in story.pod("train-a1-worker-00000")["spec"]


def test_each_of_two_jobs_gets_the_nics_beside_its_gpus() -> None:
    story = settled(*two(), job(gpus=8))
    assert story.status().placement is not None
    first = pinned(story)
    assert len(first) == 2
    story.add(job("other", gpus=8))
    story.settle()
    assert sorted(first + pinned(story, "other-a1-worker-00000")) == ADDRESSES


def test_a_job_leaves_the_others_their_part_of_the_nics() -> None:
    """One GPU beside each NIC would have them all; nothing would be left for the other four GPUs."""
    held = [resource_claim("notebook", *(("gpu-1", gpu) for gpu in (0, 2, 4, 6)))]
    story = settled(*two(), *held, job(gpus=8))
    assert [len(pinned(story, f"train-a1-worker-0000{rank}")) for rank in (0, 1)] == [2, 2]


def test_what_a_stranger_has_claimed_is_left_to_him() -> None:
    """The GPUs beside it get the next one."""
    story = settled(*two(), nic_claim("notebook", ("gpu-1", 3)), job())
    assert pinned(story) == ADDRESSES[:3]
    assert pinned(story, "train-a1-worker-00001") == ADDRESSES
    assert environment(story)["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1,mlx5_2:1"


def test_a_job_waits_for_nics_that_are_all_held() -> None:
    held = [nic_claim("notebook", *(("gpu-1", row) for row in range(4)))]
    story = settled(*two(), *held, job(rdma="Required"))
    assert story.pods() == []
    assert environment(settled(*two(), *held, job())).get("NCCL_IB_HCA") is None


@pytest.mark.parametrize("rdma", ["Required", "Preferred"])
def test_nodes_that_differ_in_it_are_not_mixed(rdma: str) -> None:
    nodes = [*machine("gpu-1"), nic_slice("gpu-1", ADDRESSES), DRANET, *machine("gpu-2", hca="8")]
    story = settled(*nodes, job(rdma=rdma))
    if rdma == "Required":
        assert story.pods() == []
        return
    said = degraded(story)
    assert said is not None and said.reason == "OverSockets"
    assert (
        "come into Pods in different ways: gpu-1: 4 InfiniBand NICs by DRANET; gpu-2: 4 InfiniBand NICs by Shared"
        in (said.message)
    )
    assert environment(story)["NCCL_NET"] == "Socket"
    assert [each["name"] for each in claim(story, "train-a1-worker-00000")] == ["gpus"]


OWN: dict[str, Manifest] = {
    "a claim": {"resourceClaims": [{"name": "theirs", "resourceClaimTemplateName": "nics"}]},
    "devices of a class": {
        "containers": [
            {
                "name": "trainer",
                "image": "i",
                "resources": {"limits": {"deviceclass.resource.kubernetes.io/dranet": "4"}},
            }
        ]
    },
}


@pytest.mark.parametrize("pod", OWN.values(), ids=OWN.keys())
def test_a_template_that_claims_itself(pod: Manifest) -> None:
    """Which devices, nobody reads: a claim of ours could want the same."""
    story = settled(*two(), job(**pod))
    assert [each["name"] for each in claim(story, "train-a1-worker-00000")] == ["gpus"]
    assert "NCCL_NET" not in environment(story)


def test_a_job_on_one_node_claims_no_nic() -> None:
    body = job(gpus=8)
    body["spec"]["topology"] = {"gpusPerNode": 8}
    story = settled(*two(), body)
    assert [each["name"] for each in claim(story, "train-a1-worker-00000")] == ["gpus"]


def test_a_claim_that_is_gone_is_made_again() -> None:
    story = settled(*two(gpus=8), job())
    del story.objects["ResourceClaim", "team-b", "train-a1-worker-00001"]
    story.settle()
    assert pinned(story, "train-a1-worker-00001") == ADDRESSES


def test_nics_that_are_offered_no_more_are_lost() -> None:
    story = settled(*two(gpus=8), job())
    del story.objects["ResourceClaim", "team-b", "train-a1-worker-00001"]
    del story.objects["DeviceClass", "", "dranet"]
    story.decide()
    story.settle()
    ended = story.status().attempts[0]
    assert "no longer offers deviceclass.resource.kubernetes.io/dranet for mlx5_0:1" in (ended.message or "")


def test_the_next_attempt_counts_on_the_nics_of_its_own_claims() -> None:
    """They go with its Pods, which are waited for."""
    story = settled(*two(gpus=8), job(rdma="Required"))
    story.run_all()
    story.settle()
    story.mark_deleted("train-a1-worker-00001", grace_s=600)
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    story.pass_time(30)
    story.settle()
    assert story.status().placement is not None
    assert story.status().attempt == 2
    assert story.pods() == ["train-a1-worker-00001"]
    story.remove_pod("train-a1-worker-00001")
    story.settle()
    assert pinned(story, "train-a2-worker-00001") == ADDRESSES


def test_claims_of_pods_that_are_gone_are_waited_for_and_no_hindrance() -> None:
    """The garbage collector is behind: they hold every NIC, which nobody else is to have."""
    story = settled(*two(gpus=8), job(rdma="Required"))
    story.run_all()
    story.settle()
    for name in story.pods():
        del story.objects["Pod", "team-b", name]
    story.settle()
    story.pass_time(30)
    story.settle()
    assert (story.status().attempt, story.pods()) == (2, [])
    assert story.status().placement is not None
    for name in story.names("ResourceClaim"):
        del story.objects["ResourceClaim", "team-b", name]
    story.settle()
    assert story.pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]


def test_nics_of_its_own_claims_count_as_free_for_the_job() -> None:
    """Its booking is gone with the attempt, and its Pods are gone; the claims, on NICs alone, are not yet."""
    story = settled(*two(gpus=8), job())
    story.run_all()
    story.settle()
    for name in story.pods():
        del story.objects["Pod", "team-b", name]
    story.objects["TrainingJob", "team-b", "train"]["status"].pop("placement")
    seen = story.cluster
    (own,) = [with_own_gpus_free(body, seen.pods_of(key), seen) for key, body in seen.jobs.items()]
    rdma = [[each.nodes[name].rdma for name in ("gpu-1", "gpu-2")] for each in (seen, own)]
    assert [[offer.free for offer in offers if offer is not None] for offers in rdma] == [[0, 0], [4, 4]]


def test_of_guessed_gpus_those_beside_the_likeliest_count() -> None:
    """A share of a resource has all NICs that could be near; claimed ones would be all that others could have."""
    body = job(gpus=8)
    body["spec"]["gpu"] = {"binding": "BestEffort"}
    assert [len(pinned(settled(*two(gpus=8), body), f"train-a1-worker-0000{rank}")) for rank in (0, 1)] == [2, 2]


def test_a_template_has_no_claim_under_our_name() -> None:
    body = job(resourceClaims=[{"name": "closeknit-nics", "resourceClaimTemplateName": "theirs"}])
    (pending,) = [job.status.pending for job in settled(*two(), body).cluster.jobs.values()]
    assert pending is not None
    assert "resourceClaims[0].name is closeknit-nics, a name that closeknit uses itself" in pending.message


def test_quotas_of_devices_count_both_classes() -> None:
    story = settled(*two(), job())
    claims = [each for (kind, *_), each in story.objects.items() if kind == "ResourceClaim"]
    asked = quota_demand(claims, may_be_counted=False).others
    assert asked["dranet.deviceclass.resource.k8s.io/devices"] == 8
    assert asked["gpu.nvidia.com.deviceclass.resource.k8s.io/devices"] == 16


@pytest.mark.parametrize(
    ("held", "names", "addresses"),
    [
        pytest.param((), ["mlx5_1:1"], ["0002:03:00.0"], id="the first GPU"),
        pytest.param((0,), ["mlx5_0:1"], ["0000:03:00.0"], id="the second GPU"),
        pytest.param((0, 1), ["mlx5_3:1"], ["0012:03:00.0"], id="the third GPU"),
    ],
)
def test_beside_data_direct_the_nic_of_a_gpu_is_that_of_its_dma_function(
    held: tuple[int, ...], names: list[str], addresses: list[str]
) -> None:
    """On a GB300 tray no NIC shares a PCIe root with a GPU, and addresses are not in the order of the pairs. NVIDIA's
    GPUDirect RDMA guide for Grace Blackwell with ConnectX-8 has 0002:03:00.0 with the first GPU, 0008:06:00.0."""
    every = ["0000:03:00.0", "0002:03:00.0", "0010:03:00.0", "0012:03:00.0"]
    spec = published(load_profile("gb300-tray"), "0").wire()
    manifests = []
    for name in ("gpu-1", "gpu-2"):
        topology = node_topology(name, count=4)
        uuids = [gpu["uuid"] for gpu in topology["spec"]["gpus"]]
        gpus = [{**gpu, "uuid": uuid} for gpu, uuid in zip(spec["gpus"], uuids, strict=True)]
        topology["spec"] = {**spec, "gpus": gpus, "nvlink": {**spec["nvlink"], "domain": None}}
        del topology["spec"]["nvlink"]["domain"]
        manifests += [node(name, gpus=None), topology, resource_slice(name, range(4)), nic_slice(name, every)]
    claims = [resource_claim("notebook", *((name, gpu) for name in ("gpu-1", "gpu-2") for gpu in held))] if held else []
    story = settled(*manifests, DRANET, *claims, job(gpus=2))
    words = nics(story, "train-a1-worker-00000")["selectors"][0]["cel"]["expression"]
    assert [address for address in every if repr(address) in words] == addresses
    assert environment(story)["NCCL_IB_HCA"] == f"={','.join(names)}"
