"""Levels of the network and the domains of nodes, from ClusterTopology and from the labels of clouds and tools."""

from collections.abc import Mapping, Sequence

import pytest

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import ObjectChange, Stream, change, from_document
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import NoFit, Placement, Share
from scenarios.clusters import wanted
from scenarios.manifests import Manifest, cluster_topology, node, node_topology

Labels = Mapping[str, str]

FABRIC = "0d9fbd36-5f3c-4fdb-a3b9-8f9a5f3d4f7e"


def net(**values: str) -> dict[str, str]:
    return {f"net.example/{level}": value for level, value in values.items()}


def clique(name: str, fabric: str, number: int = 1) -> Manifest:
    topology = node_topology(name)
    topology["spec"]["nvlink"] = {"domain": {"clusterUUID": fabric, "cliqueID": number}}
    return topology


def cluster(labels: Mapping[str, Labels], *others: Manifest) -> Cluster:
    manifests = [*(node(name, labels=found) for name, found in labels.items()), *others]
    return build(value for manifest in manifests if (value := from_document(manifest)) is not None)


def placed_of(answer: Placement | NoFit) -> Sequence[Share]:
    assert isinstance(answer, Placement)
    return answer.shares


def domains(found: Cluster) -> dict[str, Sequence[str | None]]:
    return {name: view.domains for name, view in found.nodes.items()}


def test_without_any_word_there_is_only_the_host() -> None:
    found = cluster({"a": {}, "b": {}})
    assert (found.levels, domains(found)) == (("host",), {"a": ("a",), "b": ("b",)})


def test_levels_of_the_cluster_topology_outermost_first() -> None:
    found = cluster({"a": net(block="b1", rack="r1")}, cluster_topology("block", "rack"))
    assert (found.levels, domains(found)) == (("block", "rack", "host"), {"a": ("b1", "b1/r1", "b1/r1/a")})


def test_equal_racks_of_different_blocks_are_different_domains() -> None:
    found = cluster(
        {"a": net(block="b1", rack="r1"), "b": net(block="b2", rack="r1")}, cluster_topology("block", "rack")
    )
    assert [found.nodes[name].domains[1] for name in ("a", "b")] == ["b1/r1", "b2/r1"]


def test_a_node_without_a_label_has_no_domain_there_nor_inside() -> None:
    found = cluster(
        {"a": net(rack="r1"), "b": net(block="b1"), "c": net(block="", rack="r1")}, cluster_topology("block", "rack")
    )
    assert domains(found) == {"a": (None, None, "a"), "b": ("b1", None, "b1/b"), "c": (None, None, "c")}


def test_only_the_cluster_topology_called_default_counts() -> None:
    found = cluster({"a": net(rack="r1")}, cluster_topology("rack", name="other"))
    assert found.levels == ("host",)


def test_a_cluster_topology_without_levels_leaves_them_to_be_found() -> None:
    found = cluster(
        {"a": {"cloud.google.com/gce-topology-block": "b1"}}, cluster_topology(fabric={"railIsolated": True})
    )
    assert (found.levels, found.fabric.rail_isolated) == (("block", "host"), True)


DETECTED = {
    "topograph": (
        {
            "fabric.topograph.run/tier-0": "leaf1",
            "fabric.topograph.run/tier-1": "spine1",
            "fabric.topograph.run/tier-2": "core1",
        },
        ("tier-2", "tier-1", "tier-0", "host"),
        ("core1", "core1/spine1", "core1/spine1/leaf1", "core1/spine1/leaf1/a"),
    ),
    "topograph with an accelerator domain": (
        {"fabric.topograph.run/tier-0": "leaf1", "accelerator.topograph.run/domain": "nvl1"},
        ("tier-0", "nvlink-domain", "host"),
        ("leaf1", "leaf1/nvl1", "leaf1/nvl1/a"),
    ),
    "topograph with a part of an accelerator domain": (
        {
            "fabric.topograph.run/tier-0": "leaf1",
            "accelerator.topograph.run/domain": "nvl1",
            "accelerator.topograph.run/sub-domain": "p1",
        },
        ("tier-0", "nvlink-domain", "host"),
        ("leaf1", "leaf1/nvl1/p1", "leaf1/nvl1/p1/a"),
    ),
    "topograph with a part whose name goes on from its domain's": (
        {"accelerator.topograph.run/domain": "nvl1", "accelerator.topograph.run/sub-domain": "nvl1.rack01"},
        ("nvlink-domain", "host"),
        ("nvl1.rack01", "nvl1.rack01/a"),
    ),
    "topograph's older labels": (
        {
            "network.topology.nvidia.com/accelerator": "nvl1",
            "network.topology.nvidia.com/leaf": "s1",
            "network.topology.nvidia.com/spine": "s2",
            "network.topology.nvidia.com/core": "s3",
        },
        ("core", "spine", "leaf", "nvlink-domain", "host"),
        ("s3", "s3/s2", "s3/s2/s1", "s3/s2/s1/nvl1", "s3/s2/s1/nvl1/a"),
    ),
    "AWS": (
        {
            "topology.k8s.aws/network-node-layer-1": "nn-1",
            "topology.k8s.aws/network-node-layer-2": "nn-2",
            "topology.k8s.aws/network-node-layer-3": "nn-3",
        },
        ("layer-1", "layer-2", "layer-3", "host"),
        ("nn-1", "nn-1/nn-2", "nn-1/nn-2/nn-3", "nn-1/nn-2/nn-3/a"),
    ),
    "GCP": (
        {
            "cloud.google.com/gce-topology-block": "b1",
            "cloud.google.com/gce-topology-subblock": "s1",
            "cloud.google.com/gce-topology-host": "h1",
        },
        ("block", "subblock", "host"),
        ("b1", "b1/s1", "b1/s1/a"),
    ),
    "OCI": (
        {
            "oci.oraclecloud.com/rdma.hpc_island_id": "i1",
            "oci.oraclecloud.com/rdma.network_block_id": "n1",
            "oci.oraclecloud.com/rdma.local_block_id": "l1",
            "oci.oraclecloud.com/rdma.host_id": "h1",
        },
        ("hpc-island", "network-block", "local-block", "host"),
        ("i1", "i1/n1", "i1/n1/l1", "i1/n1/l1/a"),
    ),
    "CoreWeave, whose labels are there without a value on nodes outside the fabric": (
        {
            "backend.coreweave.cloud/fabric": "f1",
            "backend.coreweave.cloud/superpod": "1",
            "backend.coreweave.cloud/leafgroup": "3",
            "ds.coreweave.com/nvlink.domain": "",
        },
        ("fabric", "superpod", "leafgroup", "host"),
        ("f1", "f1/1", "f1/1/3", "f1/1/3/a"),
    ),
    "Nebius": (
        {
            "topology.nebius.com/gpu-cluster-id": "c1",
            "topology.nebius.com/tier-2": "spine1",
            "topology.nebius.com/tier-1": "leaf1",
        },
        ("gpu-cluster", "tier-2", "tier-1", "host"),
        ("c1", "c1/spine1", "c1/spine1/leaf1", "c1/spine1/leaf1/a"),
    ),
    "Nebius with NVLink between nodes": (
        {
            "topology.nebius.com/tier-1": "leaf1",
            "topology.nebius.com/tier-0": "nvl1",
            "topology.nebius.com/nvl-instance-group-id": "g1",
        },
        ("tier-1", "nvlink-domain", "host"),
        ("leaf1", "leaf1/nvl1/g1", "leaf1/nvl1/g1/a"),
    ),
    "Crusoe": (
        {"crusoe.ai/ib.partition.id": "ib1", "crusoe.ai/pod.id": "p1"},
        ("ib-partition", "pod", "host"),
        ("ib1", "ib1/p1", "ib1/p1/a"),
    ),
    "GPU feature discovery's clique alone": (
        {"nvidia.com/gpu.clique": "c0ffee.1"},
        ("nvlink-domain", "host"),
        ("c0ffee.1", "c0ffee.1/a"),
    ),
    "a clique beside a cloud's own name for it": (
        {"nvidia.com/gpu.clique": "c0ffee.1", "topology.k8s.aws/ultraserver-id": "us-1"},
        ("nvlink-domain", "host"),
        ("c0ffee.1", "c0ffee.1/a"),
    ),
    "topograph beside the cloud's labels": (
        {"fabric.topograph.run/tier-0": "leaf1", "cloud.google.com/gce-topology-block": "b1"},
        ("tier-0", "host"),
        ("leaf1", "leaf1/a"),
    ),
}


@pytest.mark.parametrize(("labels", "levels", "expected"), DETECTED.values(), ids=DETECTED.keys())
def test_levels_are_found_by_labels(labels: Labels, levels: Sequence[str], expected: Sequence[str]) -> None:
    found = cluster({"a": labels})
    assert (found.levels, found.nodes["a"].domains) == (levels, expected)


def test_the_cluster_topology_wins_over_labels() -> None:
    found = cluster({"a": {**net(rack="r1"), "cloud.google.com/gce-topology-block": "b1"}}, cluster_topology("rack"))
    assert found.levels == ("rack", "host")


def test_multi_node_nvlink_is_a_level_inside_the_innermost() -> None:
    found = cluster(
        {"a": net(rack="r1"), "b": net(rack="r1"), "c": net(rack="r1")},
        cluster_topology("rack"),
        clique("a", "c0ffee"),
        clique("b", "c0ffee", 2),
        node_topology("c"),
    )
    assert found.levels == ("rack", "nvlink-domain", "host")
    assert domains(found) == {
        "a": ("r1", "r1/c0ffee.1", "r1/c0ffee.1/a"),
        "b": ("r1", "r1/c0ffee.2", "r1/c0ffee.2/b"),
        "c": ("r1", None, "r1/c"),
    }


def test_of_an_nvlink_domain_over_several_racks_the_part_in_each_is_a_domain() -> None:
    found = cluster(
        {
            "a": net(block="b1", rack="r1"),
            "b": net(block="b1", rack="r2"),
            "c": net(block="b1"),
            "d": net(block="b1", rack="r1"),
        },
        cluster_topology("block", "rack"),
        clique("a", "c0ffee"),
        clique("b", "c0ffee"),
        clique("c", "c0ffee"),
        node_topology("d"),
    )
    assert found.levels == ("block", "rack", "nvlink-domain", "host")
    assert domains(found) == {
        "a": ("b1", "b1/r1", "b1/r1/c0ffee.1", "b1/r1/c0ffee.1/a"),
        "b": ("b1", "b1/r2", "b1/r2/c0ffee.1", "b1/r2/c0ffee.1/b"),
        "c": ("b1", None, None, "b1/c"),
        # A machine without multi-node NVLink keeps its rack.
        "d": ("b1", "b1/r1", None, "b1/r1/d"),
    }


def test_what_one_agent_says_of_its_nvlink_moves_no_other_node() -> None:
    labels = {name: net(rack="r1" if name < "c" else "r2") for name in "abcd"}
    honest = [clique("a", "c0ffee"), clique("b", "c0ffee"), clique("c", "beef")]
    true = cluster(labels, cluster_topology("rack"), *honest, clique("d", "beef"))
    false = cluster(labels, cluster_topology("rack"), *honest, clique("d", "c0ffee"))
    assert false.levels == true.levels == ("rack", "nvlink-domain", "host")
    assert {name: domains(false)[name] for name in "abc"} == {name: domains(true)[name] for name in "abc"}
    assert domains(false)["d"] == ("r2", "r2/c0ffee.1", "r2/c0ffee.1/d")


def test_a_rack_is_found_where_nvlink_domains_straddle_racks() -> None:
    racks = {name: net(rack=rack) for name, rack in zip("abcd", ("r1", "r1", "r2", "r2"), strict=True)}
    found = cluster(racks, cluster_topology("rack"), clique("b", FABRIC), clique("c", FABRIC), node_topology("a"))
    job = wanted(gpus=16, topology={"required": "rack"})
    answer = place(found, job, Tables())
    assert isinstance(answer, Placement)
    assert [share.node for share in answer.shares] == ["a", "b"]


def test_a_lone_false_nvlink_domain_changes_no_other_nodes_placement() -> None:
    racks = {name: net(rack=rack) for name, rack in zip("abcd", ("r1", "r1", "r2", "r2"), strict=True)}
    honest = [node_topology(name) for name in "abc"]
    before = cluster(racks, cluster_topology("rack"), *honest, node_topology("d"))
    after = cluster(racks, cluster_topology("rack"), *honest, clique("d", FABRIC))
    assert (before.levels, after.levels) == (("rack", "host"), ("rack", "nvlink-domain", "host"))
    for gpus in (1, 8, 16, 24, 13):
        answers = [place(found, wanted(gpus=gpus), Tables()) for found in (before, after)]
        first, second = ([(share.node, share.gpus) for share in placed_of(answer)] for answer in answers)
        assert first == second


def test_what_one_agent_says_takes_no_label_of_the_cloud_from_the_others() -> None:
    labels = {name: {"topology.k8s.aws/ultraserver-id": "us-1"} for name in "ab"}
    found = cluster({**labels, "c": {}}, clique("c", "c0ffee"))
    assert domains(found) == {"a": ("us-1", "us-1/a"), "b": ("us-1", "us-1/b"), "c": ("c0ffee.1", "c0ffee.1/c")}


def test_a_rack_that_a_cloud_names_is_one_domain_for_each_partition_that_its_agents_are_in() -> None:
    labels = {name: {"topology.k8s.aws/ultraserver-id": "us-1"} for name in "abc"}
    found = cluster(labels, clique("a", FABRIC), clique("b", FABRIC, 2), clique("c", FABRIC, 2))
    first, *second = (domains(found)[name][0] for name in "abc")
    assert first == f"us-1/{FABRIC}.1"
    assert second == [f"us-1/{FABRIC}.2"] * 2


def test_a_label_that_says_what_the_agent_does_is_said_once() -> None:
    labels = {
        "a": {"accelerator.topograph.run/domain": f"{FABRIC}.1"},
        "b": {"accelerator.topograph.run/domain": FABRIC},
    }
    found = cluster(labels, clique("a", FABRIC), clique("b", FABRIC))
    assert [domains(found)[name][0] for name in "ab"] == [f"{FABRIC}.1"] * 2


def test_nvidias_label_beats_what_an_agent_says() -> None:
    found = cluster({"a": {"nvidia.com/gpu.clique": "beef.7"}}, clique("a", "c0ffee"))
    assert domains(found) == {"a": ("beef.7", "beef.7/a")}


def test_levels_come_and_go_with_what_they_are_read_from() -> None:
    plain = cluster({"a": {}, "b": {}})
    labelled = from_document(node("a", labels={"cloud.google.com/gce-topology-block": "b1"}))
    assert labelled is not None
    found = plain.after([change(labelled)])
    assert (found.levels, domains(found)) == (("block", "host"), {"a": ("b1", "b1/a"), "b": (None, "b")})
    assert found.after([ObjectChange(Stream.NODES, ("", "a"), None)]).levels == ("host",)
