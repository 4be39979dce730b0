"""What a ClusterTopology's status tells of this cluster, and what of its spec does nothing."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.clustertopology import MAX_LEVELS, ClusterTopologyStatus
from closeknit.api.objects import ClusterTopology
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import change
from closeknit.lifecycle.topology_status import silences, topology_news
from scenarios.manifests import Manifest, booked, node, node_topology, resource_slice, training_job
from scenarios.views import NOON, cluster, parsed

RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": "r3", "f": "r3", "g": "r4", "h": "r4"}
BLOCKS = {"r1": "b1", "r2": "b1", "r3": "b2", "r4": "b2"}
BLOCK, RACK = ({"name": name, "nodeLabel": f"net.example/{name}"} for name in ("block", "rack"))


def topology(*levels: Mapping[str, str], name: str = "default", **fabric: Any) -> Manifest:
    return {
        "apiVersion": "closeknit.dev/v1alpha1",
        "kind": "ClusterTopology",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1", "generation": 3},
        "spec": {"levels": list(levels), "fabric": fabric},
    }


def site(*topologies: Manifest, racks: Mapping[str, str] = RACKS, gpus: int = 8, **of_node: Any) -> Cluster:
    """Eight nodes in four racks in two blocks."""
    nodes = []
    for name, rack in racks.items():
        labels = {"net.example/rack": rack, "net.example/block": BLOCKS[rack]} if rack else {}
        nodes += [node(name, labels=labels, gpus=gpus, **of_node), node_topology(name, count=gpus)]
    return cluster(*nodes, node("cpu", gpus=None, labels={"net.example/rack": "r9"}), *topologies)


def told(found: Cluster, name: str = "default") -> ClusterTopologyStatus:
    (news,) = [each for each in topology_news(found, NOON) if each.topology.metadata.name == name]
    return news.status


def ready(found: Cluster, name: str = "default") -> tuple[str, str, str]:
    (condition,) = [each for each in told(found, name).conditions if each.type == "Ready"]
    assert condition.observed_generation == 3
    return condition.status, condition.reason, condition.message


def test_levels_are_counted_over_nodes_with_gpus() -> None:
    found = site(topology(BLOCK, RACK), training_job("one", placement=booked(("a", range(8)))))
    levels = [(each.name, each.domains, each.gpus, each.free_gpus) for each in told(found).levels]
    assert levels == [("block", 2, 64, 56), ("rack", 4, 64, 56), ("host", 8, 64, 56)]
    assert ready(found) == ("True", "InUse", "this cluster has block, rack and host")


def test_what_is_not_free_is_not_counted_as_free() -> None:
    """A GPU that is not well, and those of a node that gets no job; a node that lacks a label is in no domain."""
    found = site(topology(BLOCK, RACK), racks={**RACKS, "h": ""})
    lost, ill = node("a", labels={"net.example/rack": "r1", "net.example/block": "b1"}), node_topology("b")
    lost["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    ill["status"] = {"gpus": [{"index": 0, "state": "Unhealthy"}]}
    found = found.after(change(parsed(each)) for each in (lost, ill))
    levels = [(each.name, each.domains, each.gpus, each.free_gpus) for each in told(found).levels]
    assert levels == [("block", 2, 56, 47), ("rack", 4, 56, 47), ("host", 8, 64, 55)]
    assert ready(found) == (
        "True",
        "InUse",
        "this cluster has block, rack and host; h lacks label net.example/block of level block, and is in no domain of "
        "it; h lacks label net.example/rack of level rack, and is in no domain of it",
    )


def test_levels_that_were_found_are_counted_too() -> None:
    labels = {"network.topology.nvidia.com/spine": "s1", "network.topology.nvidia.com/leaf": "l1"}
    found = cluster(node("a", labels=labels), node_topology("a"), topology())
    assert [each.name for each in told(found).levels] == ["spine", "leaf", "host"]


def test_a_label_that_no_node_with_gpus_has_is_told_with_the_one_that_was_meant() -> None:
    wrong = {"name": "rack", "nodeLabel": "net.example/rak"}
    assert ready(site(topology(BLOCK, wrong))) == (
        "False",
        "UnknownLabel",
        "no node with GPUs has label net.example/rak of level rack (they have net.example/rack), so that each is a "
        "domain of its own there and at every level inside it; correct levels, or label the nodes",
    )
    on_cpus_alone = site(topology(RACK), racks=dict.fromkeys(RACKS, ""))
    assert ready(on_cpus_alone)[1] == "UnknownLabel"


@pytest.mark.parametrize("slips", [0, 1])
def test_a_level_inside_what_it_contains_is_told(slips: int) -> None:
    racks = {f"{name}{number}": rack for name, rack in RACKS.items() for number in range(3)}
    found = site(topology(RACK, BLOCK), racks=racks)
    if slips and (view := found.nodes["a0"]):  # one node bears a wrong label
        moved = node("a0", labels={**view.labels, "net.example/block": "b2"})
        racks_of_many = {f"n{number}": f"r{number}" for number in range(10, 40)}
        more = [
            each
            for name, rack in racks_of_many.items()
            for each in (
                node(name, labels={"net.example/rack": rack, "net.example/block": "b2"}),
                node_topology(name),
            )
        ]
        found = found.after(change(parsed(each)) for each in (moved, *more))
    status, reason, words = ready(found)
    assert (status, reason) == ("False", "LevelsReversed")
    assert words.startswith("level block is listed inside rack, and block b")
    assert words.endswith("levels go from the outermost to the innermost, so list block before rack")


def test_names_that_are_used_again_in_every_domain_are_no_mistake() -> None:
    """Rack r1 of block b1 and rack r1 of block b2 are two domains."""
    labels = [(f"n{block}{rack}", f"b{block}", f"r{rack}") for block in range(6) for rack in range(2)]
    nodes = [
        each
        for name, block, rack in labels
        for each in (
            node(name, labels={"net.example/block": block, "net.example/rack": rack}),
            node_topology(name),
        )
    ]
    assert ready(cluster(*nodes, topology(BLOCK, RACK)))[:2] == ("True", "InUse")


@pytest.mark.parametrize("levels", [(BLOCK, RACK), (BLOCK,), (RACK,), ()])
def test_the_right_order_is_no_mistake(levels: tuple[Mapping[str, str], ...]) -> None:
    assert ready(site(topology(*levels)))[:2] == ("True", "InUse")


def test_a_bandwidth_of_a_level_that_there_is_not_is_told() -> None:
    assert ready(site(topology(BLOCK, RACK, levelBandwidthGBps={"rak": 50, "rack": 50}))) == (
        "False",
        "UnknownLevel",
        "fabric.levelBandwidthGBps names rak; this cluster has block, rack and host: name one of these",
    )
    known = {"rack": 50, "host": 100, "nvlink-domain": 400}
    assert ready(site(topology(RACK, levelBandwidthGBps=known)))[1] == "InUse"


def test_functions_that_no_node_offers_and_classes_that_mark_nothing_are_told() -> None:
    networks = [{"resource": "example.com/rail0", "network": "ops/rail0"}]
    classes = {"gold": {}, "training": {"dscp": 26}}
    found = site(topology(RACK, sriovNetworks=networks, trafficClasses=classes))
    status, reason, words = ready(found)
    assert (status, reason) == ("False", "UnknownResource")
    assert words == (
        "no node with GPUs offers example.com/rail0 of fabric.sriovNetworks; correct the name, or have the SR-IOV "
        "device plugin offer it; fabric.trafficClasses has neither dscp nor serviceLevel for gold, and marks nothing; "
        "set one of them"
    )
    offered = site(topology(RACK, sriovNetworks=networks), allocatable={"example.com/rail0": "1"})
    assert ready(offered)[1] == "InUse"


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = {"name": "row", "nodeLabel": "net.example/row"}
    status, reason, words = ready(site(topology(wrong, RACK, BLOCK, levelBandwidthGBps={"rak": 50})))
    assert (status, reason) == ("False", "UnknownLabel")
    assert [each in words for each in ("label net.example/row", "is listed inside", "names rak")] == [True] * 3


def test_another_object_than_default_says_that_it_does_not_count() -> None:
    found = site(topology(RACK), topology(RACK, name="main"))
    assert ready(found, "main") == (
        "False",
        "NotUsed",
        "only the ClusterTopology called default counts; create it under that name, and delete this one",
    )
    assert told(found, "main").levels == []
    assert [each.type for each in told(found, "main").conditions] == ["Ready"]
    assert ready(found)[1] == "InUse"


def test_without_a_machine_nothing_is_called_a_mistake() -> None:
    found = cluster(node("a", gpus=None), topology(RACK, levelBandwidthGBps={"rak": 50}))
    assert ready(found)[1] == "InUse"


def stored(found: Cluster) -> Cluster:
    """As it is when all news was written."""
    written = (each.topology.model_copy(update={"status": each.status}) for each in topology_news(found, NOON))
    return found.after(map(change, written))


def test_what_is_stored_is_no_news_until_something_changes() -> None:
    found = stored(site(topology(BLOCK, RACK), topology(name="main")))
    assert topology_news(found, NOON + timedelta(hours=1)) == ()
    beat = node_topology("a", heartbeatTime="2026-11-21T12:05:00Z")
    found = found.after([change(parsed(beat))])
    assert topology_news(found, NOON + timedelta(hours=1)) == ()
    held = found.after([change(parsed(training_job("one", placement=booked(("a", range(8))))))])
    (news,) = topology_news(held, NOON + timedelta(hours=1))
    assert {each.last_transition_time for each in news.status.conditions} == {"2026-11-21T12:00:00Z"}


def test_the_status_changes_no_decision() -> None:
    before = site(topology(BLOCK, RACK, railIsolated=True))
    after = stored(before)
    assert after is not before
    assert after.is_same(before)
    assert after.fabric is before.fabric


def test_a_silent_agent_is_told_there_and_of_its_node() -> None:
    found = site(topology(RACK)).after([change(parsed(node_topology("a", heartbeatTime="2026-11-21T11:00:00Z")))])
    found = found.at(NOON)
    (condition,) = [each for each in told(found).conditions if each.type == "AgentsReport"]
    assert (condition.status, condition.reason, condition.message) == (
        "False",
        "AgentsSilent",
        "1 of 8 agents is silent, and no job is placed on a",
    )
    events = silences(found)
    assert list(events) == ["a"]
    assert (events["a"].reason, events["a"].warning) == ("AgentStale", True)
    assert events["a"].note.startswith(
        "no job is placed here: its agent's last heartbeat was at 2026-11-21T11:00:00Z, more than 15 min ago; "
    )
    assert silences(found.at(NOON + timedelta(hours=9)))["a"] == events["a"]
    assert topology_news(stored(found), NOON) == ()
    again = found.after([change(parsed(node_topology("a", heartbeatTime="2026-11-21T11:59:00Z")))])
    assert silences(again) == {}
    (condition,) = [each for each in told(again).conditions if each.type == "AgentsReport"]
    assert (condition.status, condition.reason) == ("True", "AllReport")


def offered(found: Cluster) -> tuple[str, str, str]:
    (condition,) = [each for each in told(found).conditions if each.type == "GPUsOffered"]
    return condition.status, condition.reason, condition.message


def test_nodes_whose_gpus_nothing_gives_to_pods_are_told_with_what_to_do() -> None:
    """As where the GPU operator has a ClusterPolicy beside a GPUCluster, and sets up neither."""
    found = site(topology(RACK))
    assert offered(found) == ("True", "AllOffered", "")
    bare = {name: node(name, labels={"net.example/rack": RACKS[name]}, gpus=None) for name in ("a", "c")}
    found = found.after(change(parsed(each)) for each in bare.values())
    status, reason, words = offered(found)
    assert (status, reason) == ("False", "NotOffered")
    assert words == (
        "2 of 8 nodes with GPUs give Pods none: neither a device plugin nor a ResourceSlice offers any of a, c; have "
        "NVIDIA's GPU operator set them up, by a ClusterPolicy (device plugin) or a GPUCluster (DRA), not both, or "
        "see why it does not: kubectl get clusterpolicies.nvidia.com, kubectl get gpuclusters.nvidia.com"
    )
    found = found.after([change(parsed(resource_slice("a")))])
    assert offered(found)[2].startswith(
        "1 of 8 nodes with GPUs gives Pods none: neither a device plugin nor a Resource"
    )
    stopped = node("c", labels={"net.example/rack": "r2"}, gpus=8)  # the kubelet remembers a device plugin that ended
    stopped["status"]["allocatable"] = {**stopped["status"]["capacity"], "nvidia.com/gpu": "0"}
    assert offered(found.after([change(parsed(stopped))]))[1] == "NotOffered"
    again = found.after([change(parsed(node("c", labels={"net.example/rack": "r2"}, gpus=8)))])
    assert offered(again) == ("True", "AllOffered", "")


def test_the_most_that_can_be_told_fits_into_the_schema() -> None:
    levels = [{"name": f"l{number}", "nodeLabel": f"net.example/{number}"} for number in range(MAX_LEVELS)]
    long = "n" * 251
    members = [node(f"{long}{number}") for number in range(40)]
    machines = [node_topology(f"{long}{number}", heartbeatTime="2026-11-21T11:00:00Z") for number in range(40)]
    for each in machines:
        for gpu in each["spec"]["gpus"]:
            del gpu["uuid"]  # made of the node's name
        each["spec"]["nvlink"] = {"domain": {"clusterUUID": "0d9fbd36-5f3c-4fdb-a3b9-8f9a5f3d4f7e", "cliqueID": 1}}
    bandwidths = {"x" * 300 + str(number): 1 for number in range(16)}
    found = cluster(*members, *machines, topology(*levels, levelBandwidthGBps=bandwidths)).at(NOON)
    status = told(found)
    assert len(status.levels) == MAX_LEVELS + 2
    ClusterTopology.parse({**topology(*levels), "status": status.wire()})
    assert all(len(each.message) <= 4096 for each in status.conditions)
    assert max(len(each.name) for each in silences(found).values()) <= 253


def test_only_so_many_objects_are_looked_at_and_the_one_that_counts_is_among_them() -> None:
    many = [topology(name=f"a-{number}") for number in range(40)]
    found = site(*many, topology(RACK))
    assert len(topology_news(found, NOON)) == 16
    assert ready(found)[1] == "InUse"
