"""NICs by SR-IOV functions on networks of Multus: one function of each declared resource, and its network."""

from typing import Any

import pytest
from pydantic import ValidationError

from closeknit.api.clustertopology import EQUAL_RESOURCES_MESSAGE
from closeknit.api.objects import ClusterTopology
from closeknit.cluster.cluster import build
from closeknit.cluster.node.node import RdmaOffer
from closeknit.cluster.store.watched_kinds import change, from_document
from scenarios.manifests import Manifest, cluster_topology, pod
from scenarios.networks import degraded, environment, job, nics, pods, two
from scenarios.story import Story

MULTUS = "k8s.v1.cni.cncf.io/networks"
RAILS = {"nvidia.com/rail0": "8", "nvidia.com/rail1": "8"}
NETWORKS = [
    {"resource": "nvidia.com/rail1", "network": "default/rail1"},
    {"resource": "nvidia.com/rail0", "network": "default/rail0"},
]
OFFER = RdmaOffer("k8s.v1.cni.cncf.io/nvidia.com/rail0", 8, ("nvidia.com/rail0", "nvidia.com/rail1"))
#                   gpu-1                          gpu-2
#            mlx5_0       mlx5_1            mlx5_0       mlx5_1
#           8 of rail0   8 of rail1        8 of rail0   8 of rail1      a Pod on each: one of rail0, one of rail1


def declared(*networks: dict[str, str]) -> Manifest:
    return cluster_topology(fabric={"sriovNetworks": list(networks or NETWORKS)})


def rails(made: Manifest) -> dict[str, str]:
    limits = made["spec"]["containers"][0]["resources"].get("limits") or {}
    assert limits == made["spec"]["containers"][0]["resources"].get("requests", limits)
    return {name: amount for name, amount in limits.items() if "rail" in name}


def annotated(work: Manifest, value: str) -> Manifest:
    work["spec"]["template"]["metadata"] = {"annotations": {MULTUS: value}}
    return work


def half(name: str, **container: Any) -> Manifest:
    work = job("Required", **container)
    work["metadata"] |= {"name": name, "uid": f"uid-of-{name}"}
    work["spec"] |= {"gpus": 8, "topology": {"gpusPerNode": 4}}
    return work


def test_a_pod_gets_one_function_of_each_declared_resource_and_its_network() -> None:
    story = Story(declared(), *two(nics("RoCE"), **RAILS), job("Required"))
    story.settle()
    for made in pods(story):
        assert rails(made) == {"nvidia.com/rail0": "1", "nvidia.com/rail1": "1"}
        assert made["metadata"]["annotations"][MULTUS] == "default/rail0,default/rail1"
        assert made["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    found = environment(story)
    assert (found["NCCL_NET"], found["NCCL_SOCKET_IFNAME"]) == ("IB", "=eth0")
    assert "NCCL_IB_HCA" not in found  # functions have names of their own
    assert degraded(story) is None


def test_what_no_clustertopology_declares_is_not_handed_out() -> None:
    story = Story(*two(nics("RoCE"), **RAILS), job())
    story.settle()
    assert [rails(made) for made in pods(story)] == [{}, {}]
    found = degraded(story)
    assert found is not None
    assert found.reason == "RDMANotOffered"


def test_a_node_gives_what_it_has_of_the_declared() -> None:
    story = Story(declared(), *two(nics("RoCE"), **{"nvidia.com/rail0": "8"}), job("Required"))
    story.settle()
    assert [rails(made) for made in pods(story)] == [{"nvidia.com/rail0": "1"}] * 2
    assert {made["metadata"]["annotations"][MULTUS] for made in pods(story)} == {"default/rail0"}


def test_it_comes_before_shares_of_a_resource() -> None:
    story = Story(declared(), *two(nics("RoCE"), hca="8", **RAILS), job("Required"))
    story.settle()
    placement = story.status().placement
    assert placement is not None
    assert placement.nodes[0].rdma_resource == "k8s.v1.cni.cncf.io/nvidia.com/rail0"
    assert all("rdma/hca" not in made["spec"]["containers"][0]["resources"]["limits"] for made in pods(story))


def test_a_declaration_that_comes_later_reaches_every_node() -> None:
    """Levels stay as they are."""
    machines = [found for each in two(nics("RoCE"), **RAILS) if (found := from_document(each)) is not None]
    before, after = from_document(cluster_topology()), from_document(declared())
    assert before is not None
    assert after is not None
    cluster = build([*machines, before]).after([change(after)])
    assert [view.rdma for _, view in sorted(cluster.nodes.items())] == [OFFER, OFFER]
    assert cluster == build([*machines, after])


def test_functions_that_others_hold_are_not_promised() -> None:
    """Of one of two resources all, on one node."""
    other = pod("other", node="gpu-2", requests={"nvidia.com/rail1": "8"})
    story = Story(declared(), *two(nics("RoCE"), **RAILS), other, job("Required"))
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == "RDMAUnavailable"


def test_functions_of_bookings_are_held_before_their_pods_are_bound() -> None:
    one = {"nvidia.com/rail0": "1", "nvidia.com/rail1": "2"}
    story = Story(declared(), *two(nics("RoCE"), **one), half("first"), half("second"))
    story.settle()
    states = [story.status(name).pending for name in ("first", "second")]
    waiting = [pending.reason for pending in states if pending is not None]
    assert waiting == ["RDMAUnavailable"]


def test_a_booking_holds_one_of_each_resource() -> None:
    """It is booked while rail0 is the first of equals; then somebody takes one of rail1."""
    story = Story(declared(), *two(nics("RoCE"), **dict.fromkeys(RAILS, "2")), half("first"))
    story.settle()
    story.add(pod("other", node="gpu-2", requests={"nvidia.com/rail1": "1"}))
    story.add(half("second"))
    story.settle()
    pending = story.status("second").pending
    assert pending is not None
    assert pending.reason == "RDMAUnavailable"


def test_functions_that_a_template_asks_for_are_held_once() -> None:
    offers = {"openshift.io/rail0": "2"}
    ours = {"resource": "openshift.io/rail0", "network": "default/rail0"}
    asked = {"limits": {"openshift.io/rail0": "1"}}
    story = Story(declared(ours), *two(nics("RoCE"), **offers), half("first", resources=asked))
    story.settle()
    story.add(half("second", resources=asked))
    story.settle()
    assert (story.status("second").pending, len(pods(story))) == (None, 4)


MERGED = {
    "names": ("storage, ops/logs@net9", "storage,ops/logs@net9,default/rail0,default/rail1"),
    "one of ours": ("default/rail0@rdma0", "default/rail0@rdma0,default/rail1"),
    "a list": (
        '[{"name":"storage","interface":"net9"},{"name":"rail1","namespace":"default"}]',
        '[{"name":"storage","interface":"net9"},{"name":"rail1","namespace":"default"},'
        '{"name":"rail0","namespace":"default"}]',
    ),
    "no list": ('{"name":"storage"}', '{"name":"storage"}'),
    "no JSON": ('[{"name":', '[{"name":'),
    "thousands of lists in each other": ("[" * 4096, "[" * 4096),
    "as many that end": ("[" * 2048 + "]" * 2048, "[" * 2048 + "]" * 2048),
    "nothing": (" ", "default/rail0,default/rail1"),
}


@pytest.mark.parametrize(("value", "merged"), MERGED.values(), ids=MERGED.keys())
def test_networks_are_added_to_the_templates_own(value: str, merged: str) -> None:
    story = Story(declared(), *two(nics("RoCE"), **RAILS), annotated(job("Required"), value))
    story.settle()
    assert {made["metadata"]["annotations"][MULTUS] for made in pods(story)} == {merged}


def test_a_template_that_asks_for_functions_itself_is_left_as_it_is() -> None:
    asked = {"openshift.io/rail0": "2"}
    ours = [{"resource": f"openshift.io/rail{rail}", "network": f"default/rail{rail}"} for rail in range(2)]
    offers = {each["resource"]: "8" for each in ours}
    work = annotated(job("Required", resources={"limits": asked, "requests": asked}), "ml/mine")
    story = Story(declared(*ours), *two(nics("RoCE"), **offers), work)
    story.settle()
    assert [rails(made) for made in pods(story)] == [asked, asked]
    assert {made["metadata"]["annotations"][MULTUS] for made in pods(story)} == {"ml/mine"}
    assert environment(story)["NCCL_NET"] == "IB"


def test_on_the_network_of_its_nodes_no_interface_is_named_and_that_is_told() -> None:
    """Where those of nodes are called otherwise, NCCL would find none by the name of a Pod's."""
    work = job("Required")
    work["spec"]["template"]["spec"]["hostNetwork"] = True
    story = Story(declared(), *two(nics("RoCE"), **RAILS), work)
    story.settle()
    assert "NCCL_SOCKET_IFNAME" not in environment(story)
    assert environment(story)["MASTER_PORT"] == "29500"
    found = degraded(story)
    assert found is not None
    assert (found.reason, found.message.partition(",")[0]) == (
        "RDMANotOffered",
        "its template puts the Pods on their nodes' network",
    )


def test_a_job_on_one_node_gets_none() -> None:
    work = job()
    work["spec"] |= {"gpus": 8}
    story = Story(declared(), *two(nics("RoCE"), **RAILS), work)
    story.settle()
    assert [rails(made) for made in pods(story)] == [{}]
    assert MULTUS not in pods(story)[0]["metadata"]["annotations"]


def test_nodes_by_functions_and_by_shares_are_not_mixed() -> None:
    one, other = two(nics("RoCE"), **RAILS), two(nics("RoCE"), hca="8")
    story = Story(declared(), *one[:3], *other[3:], job())
    story.settle()
    found = degraded(story)
    assert found is not None
    assert "gpu-1: 2 RoCE NICs by SRIOV; gpu-2: 2 RoCE NICs by Shared" in found.message


REFUSED: dict[str, tuple[Any, str]] = {
    "one resource twice": ([NETWORKS[0], NETWORKS[0]], EQUAL_RESOURCES_MESSAGE),
    "a resource without a domain": ([{"resource": "rail0", "network": "default/rail0"}], "resource"),
    "a network without a namespace": ([{"resource": "nvidia.com/rail0", "network": "rail0"}], "network"),
    "two networks in one": ([{"resource": "nvidia.com/rail0", "network": "default/a,kube-system/b"}], "network"),
    "an interface": ([{"resource": "nvidia.com/rail0", "network": "default/rail0@eth0"}], "network"),
    "more than a machine has": ([{"resource": f"x.io/r{n}", "network": "a/b"} for n in range(33)], "sriovNetworks"),
}


@pytest.mark.parametrize(("networks", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_declaration_that_means_nothing_is_refused(networks: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ClusterTopology.parse_strictly(cluster_topology(fabric={"sriovNetworks": networks}))
