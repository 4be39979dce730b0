"""A gang that loses nodes holds the rest, gets others in their place, and starts again once."""

from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.cluster.objects.silence import Quiet
from scenarios.manifests import cluster_topology, training_job
from scenarios.stories import end_trainer, ended, nodes
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])


def running(kind: Any, gpus: int, *, nodes: int, **spec: Any) -> Story:
    """A job of whole nodes that runs, in a cluster of so many."""
    manifests = [each for number in range(1, nodes + 1) for each in kind(f"gpu-{number}")]
    topology = {"gpusPerNode": 8, **spec.pop("topology", {})}
    story = Story(*manifests, training_job(spec={"gpus": gpus, "topology": topology, **spec}))
    run(story)
    return story


def run(story: Story) -> None:
    story.settle()
    story.run_all()
    story.settle()


def lose(story: Story, *nodes: str) -> None:
    """They die, and the taint manager gives up on their Pods."""
    for node in nodes:
        story.lose_node(node)
    for name in story.pods():
        if story.pod(name)["spec"].get("nodeName") in nodes and "deletionTimestamp" not in story.pod(name)["metadata"]:
            story.mark_deleted(name)


def lost(story: Story) -> str | None:
    placement = story.status().placement
    return placement.lost if placement is not None else "all"


@KINDS
def test_ranks_keep_their_places_and_the_lost_ones_are_others(kind: Any) -> None:
    story = running(kind, 24, nodes=5)
    before = nodes(story)
    lose(story, before[1])
    run(story)
    (other,) = set(nodes(story)) - set(before)
    assert nodes(story) == [before[0], other, before[2]]
    assert (ended(story), story.status().attempt) == ([(1, "ChildDeleted", False)], 2)
    for name in story.pods():  # those on living nodes end
        if name.startswith("train-a1") and story.pod(name)["spec"]["nodeName"] != before[1]:
            story.remove_pod(name)
    run(story)
    assert story.status().state is State.RUNNING
    ranks = [each.ranks for each in (story.status().placement or pytest.fail("not placed")).nodes]
    assert ranks == ["0-7", "8-15", "16-23"]


@KINDS
def test_the_rest_is_held_and_nobody_gets_it(kind: Any) -> None:
    story = running(kind, 16, nodes=2)
    lose(story, "gpu-2")
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.settle()
    assert (nodes(story), lost(story), story.status().state) == (["gpu-1", "gpu-2"], "1", State.RESTARTING)
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.NODES_LOST
    assert "train-a1-worker-00000" not in story.pods()
    for _ in range(9):
        story.pass_time(60)
        story.settle()
        assert story.status("waiting").state is State.QUEUED
    for manifest in kind("gpu-3"):
        story.add(manifest)
    run(story)
    assert (nodes(story), story.status().state) == (["gpu-1", "gpu-3"], State.RUNNING)
    assert story.status().pending is None


@KINDS
def test_several_losses_before_it_starts_again_are_one_restart(kind: Any) -> None:
    story = running(kind, 24, nodes=5)
    before = nodes(story)
    for name in story.pods():  # their kubelets take their time
        story.mark_deleted(name)
    lose(story, before[1])
    story.settle()
    lose(story, before[2])
    story.settle()
    assert len(ended(story)) == 1
    assert nodes(story)[0] == before[0]
    assert set(nodes(story)).isdisjoint(before[1:])
    assert lost(story) is None


@KINDS
def test_one_that_can_be_replaced_is_and_the_other_is_waited_for(kind: Any) -> None:
    story = running(kind, 24, nodes=4)
    before = nodes(story)
    lose(story, before[0], before[2])
    story.settle()
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.settle()
    assert (nodes(story)[:2], lost(story)) == (["gpu-4", before[1]], "2")
    assert story.status("waiting").state is State.QUEUED
    for manifest in kind("gpu-5"):
        story.add(manifest)
    story.settle()
    assert (nodes(story), lost(story)) == (["gpu-4", before[1], "gpu-5"], None)


def test_it_goes_elsewhere_where_all_of_it_fits_and_no_swap_is_there() -> None:
    rack = {"gpu-1": "r1", "gpu-2": "r1", "gpu-3": "r2", "gpu-4": "r2"}
    story = Story(cluster_topology("rack"))
    for name, at in rack.items():
        for manifest in plugin_node(name):
            story.add(manifest)
        story.objects["Node", "", name]["metadata"]["labels"]["net.example/rack"] = at
    story.add(training_job(spec={"gpus": 16, "topology": {"gpusPerNode": 8, "fabric": {"required": "rack"}}}))
    run(story)
    assert nodes(story) == ["gpu-1", "gpu-2"]
    lose(story, "gpu-1")
    story.settle()
    assert (nodes(story), lost(story)) == (["gpu-3", "gpu-4"], None)


def test_a_dead_node_that_is_gone_for_good_is_replaced_too() -> None:
    story = running(plugin_node, 16, nodes=3)
    del story.objects["Node", "", "gpu-1"]
    del story.objects["NodeTopology", "", "gpu-1"]
    story.mark_deleted("train-a1-worker-00000")
    run(story)
    assert nodes(story) == ["gpu-3", "gpu-2"]


def test_servers_go_with_the_worker_of_their_node() -> None:
    story = running(
        plugin_node, 16, nodes=3, framework="TensorFlow",
        parameterServers={"replicas": 2, "template": {"spec": {"containers": [{"name": "ps", "image": "i"}]}}},
    )  # fmt: skip
    lose(story, "gpu-2")
    story.settle()
    placement = story.status().placement
    assert placement is not None
    assert nodes(story) == ["gpu-1", "gpu-3"]
    assert [each.node for each in placement.parameter_servers or ()] == ["gpu-1", "gpu-3"]


def test_a_suspended_job_holds_nothing_of_it() -> None:
    story = running(plugin_node, 16, nodes=2)
    lose(story, "gpu-2")
    story.settle()
    story.objects["TrainingJob", "team-b", "train"]["spec"]["suspend"] = True
    story.settle()
    assert story.status().placement is None
    assert story.status().state is State.SUSPENDED


@KINDS
def test_a_gang_that_ends_by_itself_beside_an_ill_gpu_holds_its_other_nodes(kind: Any) -> None:
    story = running(kind, 16, nodes=2, restart={"limit": 3})
    ill = {"index": 3, "state": "Unhealthy", "reasons": ["RowRemapFailed"]}
    story.objects["NodeTopology", "", "gpu-2"]["status"]["gpus"] = [ill]
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.settle()
    end_trainer(story, 0, 137, "OOMKilled")
    story.settle()
    story.end_stopped()
    story.settle()
    assert (ended(story), nodes(story), lost(story)) == ([(1, "PodFailed", True)], ["gpu-1", "gpu-2"], "1")
    assert story.status("waiting").state is State.QUEUED


@KINDS
def test_a_node_that_is_lost_before_the_gang_runs_again_costs_the_others_nothing(kind: Any) -> None:
    story = running(kind, 24, nodes=4)
    lose(story, "gpu-2")
    story.settle()
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.lose_node("gpu-4")
    story.pass_time(31)
    story.settle()
    assert [reason for _, reason, _ in ended(story)] == ["ChildDeleted", "NodeChanged"]
    assert (nodes(story), lost(story)) == (["gpu-1", "gpu-4", "gpu-3"], "1")
    assert story.status("waiting").state is State.QUEUED


@KINDS
def test_a_blip_of_a_node_that_is_held_costs_nothing(kind: Any) -> None:
    story = running(kind, 16, nodes=2)
    lose(story, "gpu-2")
    story.settle()
    story.add(training_job("waiting", spec={"gpus": 8}))
    story.silence("gpu-1", Quiet.LONG)
    story.settle()
    assert (nodes(story), lost(story)) == (["gpu-1", "gpu-2"], "1")
    story.silent.clear()
    story.settle()
    assert (lost(story), story.status("waiting").state) == ("1", State.QUEUED)
    for manifest in kind("gpu-3"):
        story.add(manifest)
    run(story)
    assert (nodes(story), story.status().state) == (["gpu-1", "gpu-3"], State.RUNNING)


def test_a_held_node_that_is_not_ready_is_replaced_with_the_others_or_given_back_with_them() -> None:
    story = running(plugin_node, 24, nodes=3)
    lose(story, "gpu-2")
    story.settle()
    story.lose_node("gpu-3")
    story.settle()
    for number in (4, 5):
        for manifest in plugin_node(f"gpu-{number}"):
            story.add(manifest)
        story.settle()
    assert (nodes(story), lost(story)) == (["gpu-1", "gpu-4", "gpu-5"], None)
    lose(story, *nodes(story))
    story.pass_time(601)
    story.settle()
    assert story.status().placement is None


def test_lost_nodes_of_several_sizes_are_told() -> None:
    manifests = [*plugin_node("gpu-1"), *plugin_node("gpu-2"), *plugin_node("gpu-3", gpus=4)]
    story = Story(*manifests, training_job(spec={"gpus": 20}))
    run(story)
    lose(story, "gpu-2")
    story.settle()
    del story.objects["Node", "", "gpu-3"]
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert "2 nodes more with 4 or 8 free GPUs like its others would do" in pending.message


def hears(story: Story, *, is_whole: bool) -> None:
    """What the sidecar of node rank 0 is told to say by its kubelet: whether it hears the whole gang."""
    states: list[dict[str, Any]] = [
        {"name": name, "state": {"running": {}}, "ready": is_whole} for name in ("trainer", "closeknit-sidecar")
    ]
    story.change_pod("train-a1-worker-00000", containerStatuses=states)


@pytest.mark.parametrize(
    ("silent", "is_whole", "is_lost"),
    [
        pytest.param(1, False, True, id="a rank is missed: dead after 20 s"),
        pytest.param(1, True, False, id="all ranks are heard: a blip"),
        pytest.param(0, False, False, id="the one that tells is itself silent"),
        pytest.param(0, True, False, id="likewise, and its words are old"),
    ],
)
def test_a_silent_node_is_dead_soon_only_where_the_gang_itself_misses_a_rank(
    silent: int, is_whole: bool, is_lost: bool
) -> None:
    story = running(plugin_node, 16, nodes=3)
    hears(story, is_whole=is_whole)
    story.silence(nodes(story)[silent], Quiet.SILENT)
    story.settle()
    assert ended(story) == ([(1, "NodeLost", False)] if is_lost else [])


def test_a_rank_that_has_not_started_yet_says_nothing_of_a_silent_node() -> None:
    """Node rank 0 hears no whole gang while another node pulls its image."""
    manifests = (each for number in "1234" for each in plugin_node(f"gpu-{number}"))
    story = Story(*manifests, training_job(spec={"gpus": 24}))
    story.settle()
    for rank, node in enumerate(nodes(story)):
        story.change_pod(f"train-a1-worker-{rank:05d}", node=node, phase="Pending" if rank == 2 else "Running")
    hears(story, is_whole=False)
    story.settle()
    story.silence(nodes(story)[1], Quiet.SILENT)
    story.settle()
    assert ended(story) == []
    story.silent.clear()
    story.run_all()
    story.change_pod("train-a1-worker-00002", phase="Running")
    story.settle()
    assert story.status().state is State.RUNNING


def test_a_gang_that_loses_a_node_again_and_again_pauses_before_it_takes_another() -> None:
    story = running(plugin_node, 16, nodes=8)
    drain(story, 1)
    assert lost(story) is None, "the first time is bad luck"
    for name in story.pods():
        if name.startswith("train-a1-"):
            story.remove_pod(name)
    run(story)
    drain(story, 2)
    assert lost(story) == "1"
    story.pass_time(3)
    story.settle()
    assert lost(story) is None


def drain(story: Story, attempt: int) -> None:
    """The node of its second Pod is cordoned, and the Pod evicted."""
    story.objects["Node", "", nodes(story)[1]]["spec"] |= {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    story.mark_deleted(f"train-a{attempt}-worker-00001")
    story.settle()


@pytest.mark.parametrize(("back_s", "is_held"), [(3600, True), (86400, False)], ids=["an hour", "a day"])
def test_a_clock_that_is_set_back_an_hour_makes_a_hold_longer_by_that(back_s: float, *, is_held: bool) -> None:
    """Set back by more, it may be wrong by any time: the gang gives back what it holds."""
    story = running(plugin_node, 24, nodes=3)
    lose(story, "gpu-2")
    story.settle()
    assert lost(story) == "1"
    story.pass_time(-back_s)
    story.settle()
    assert (lost(story) == "1") is is_held
    story.pass_time(back_s + 601)
    story.settle()
    assert nodes(story) == []
