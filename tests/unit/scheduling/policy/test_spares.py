"""Spare nodes of a job: held near, by nobody else, without Pods, and taken first when a node is lost."""

from collections.abc import Sequence
from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.cluster.booking.booking import booking
from closeknit.cluster.objects.silence import Quiet
from scenarios.manifests import cluster_topology, training_job
from scenarios.restarting_gangs import running
from scenarios.stories import lose_nodes, nodes, placement
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])


def site(kind: Any = plugin_node, *, nodes: int = 6, racks: int = 1) -> list[dict[str, Any]]:
    """Nodes gpu-1, gpu-2 ... of eight GPUs, as many in each rack."""
    manifests = [each for number in range(1, nodes + 1) for each in kind(f"gpu-{number}")]
    for manifest in manifests:
        if manifest["kind"] == "Node":
            number = int(manifest["metadata"]["name"].removeprefix("gpu-"))
            labels = manifest["metadata"].setdefault("labels", {})
            labels["net.example/rack"] = f"r{(number - 1) * racks // nodes}"
    return [*manifests, cluster_topology("rack")]


def with_job(manifests: Sequence[dict[str, Any]], *, spares: int, gpus: int = 16, **spec: Any) -> Story:
    story = Story(*manifests, training_job(spec={"gpus": gpus, "spares": spares, **spec}))
    run(story)
    return story


def run(story: Story) -> None:
    story.settle()
    story.run_all()
    story.settle()


def spares(story: Story, name: str = "train") -> list[str]:
    return [each.name for each in placement(story, name).spares or ()]


def placed(story: Story) -> str:
    return next(each.message for each in story.status().conditions if each.type == "Placed")


@KINDS
def test_they_are_held_near_without_pods_and_nobody_else_gets_them(kind: Any) -> None:
    story = with_job(site(kind, racks=2), spares=1)
    assert (nodes(story), spares(story)) == (["gpu-1", "gpu-2"], ["gpu-3"])
    assert story.pods() == ["train-a1-worker-00000", "train-a1-worker-00001"]
    assert placed(story) == "booked on gpu-1, gpu-2; spare: gpu-3"
    (spare,) = placement(story).spares or []
    assert (spare.gpus, spare.ranks) == (list(range(8)), "")
    story.add(training_job("other", spec={"gpus": 8}))
    run(story)
    assert nodes(story, "other") == ["gpu-4"]


@KINDS
def test_one_takes_the_place_of_a_lost_node_and_another_becomes_a_spare(kind: Any) -> None:
    story = with_job(site(kind, racks=2), spares=1)
    lose_nodes(story, "gpu-2")
    assert (nodes(story), spares(story)) == (["gpu-1", "gpu-3"], ["gpu-4"])
    assert story.status().attempts[-1].reason == "NodeLost"


@KINDS
def test_it_is_there_where_everything_else_is_taken(kind: Any) -> None:
    story = with_job(site(kind, nodes=3), spares=1)
    story.add(training_job("waiting", spec={"gpus": 8}))
    run(story)
    assert story.status("waiting").state is State.QUEUED
    lose_nodes(story, "gpu-1")
    assert (nodes(story), spares(story)) == (["gpu-3", "gpu-2"], [])
    assert placed(story) == (
        "booked on gpu-3, gpu-2; spare: none, 0 of 1: no more nodes like its own were free near them"
    )


@KINDS
@pytest.mark.parametrize(("wanted", "found"), [(1, 1), (4, 4), (5, 4), (64, 4)])
def test_a_gang_starts_with_fewer_than_it_wants_and_that_is_told(kind: Any, wanted: int, found: int) -> None:
    story = with_job(site(kind), spares=wanted)
    assert story.status().state is State.RUNNING
    assert len(spares(story)) == found
    more = f", {found} of {wanted}: no more nodes like its own were free near them" if found < wanted else ""
    assert placed(story) == f"booked on gpu-1, gpu-2; spare: {', '.join(spares(story))}{more}"


def test_they_lie_inside_the_level_that_is_required() -> None:
    story = with_job(site(racks=2), spares=4, topology={"fabric": {"required": "rack"}})
    assert (nodes(story), spares(story)) == (["gpu-1", "gpu-2"], ["gpu-3"])


def test_more_are_lost_than_there_are_spares() -> None:
    story = with_job(site(nodes=5), spares=1)
    lose_nodes(story, "gpu-1", "gpu-2")
    assert (sorted(nodes(story)), len(spares(story))) == (["gpu-3", "gpu-4"], 1)


def test_what_is_held_of_a_gang_that_waits_is_held_once() -> None:
    story = with_job(site(nodes=4), spares=1, gpus=24)
    lose_nodes(story, "gpu-1", "gpu-2")  # gpu-3 is left, and the spare takes one place
    held = booking(story.cluster.jobs[next(iter(story.cluster.jobs))])
    assert held is not None
    assert (sorted(share.node for share in held.shares if not share.lost), held.spares) == (["gpu-3", "gpu-4"], ())
    view = story.cluster.nodes["gpu-4"]
    assert view.plugin is not None
    assert (view.plugin.requested, sorted(view.holders)) == (8, list(range(8)))


def test_a_job_that_is_over_or_suspended_holds_none() -> None:
    story = with_job(site(nodes=3), spares=1)
    story.edit_job(suspend=True)
    story.settle()
    assert story.cluster.nodes["gpu-3"].holders == {}


def test_a_restart_of_its_own_keeps_them() -> None:
    story = with_job(site(), spares=2, restart={"limit": 3})
    before = spares(story)
    state = {"terminated": {"exitCode": 1, "reason": "Error"}}
    for pod in story.pods():
        story.change_pod(pod, phase="Failed", containerStatuses=[{"name": "trainer", "state": state}])
    story.settle()
    assert (story.status().attempts[0].reason, spares(story)) == ("PodFailed", before)


@KINDS
def test_one_takes_a_place_beside_pods_that_stay(kind: Any) -> None:
    story = running(kind, spares=1)
    lost, (spare,) = nodes(story)[1], spares(story)
    lose_nodes(story, lost)
    assert (nodes(story)[1], story.status().attempt) == (spare, 1)
    assert "train-a1-worker-00001-r1" in story.pods()
    assert not {lost, *nodes(story)} & set(spares(story))
    (ended,) = story.status().attempts
    assert [(each.node, each.gpu) for each in ended.blamed or ()] == [(lost, None)], "and the dead node is to blame"


def test_a_lemon_is_no_spare() -> None:
    manifests = site()
    ends = [{"job": "team-b/old", "reason": "NodeLost", "ended": f"2026-11-{day}T10:00:00Z"} for day in (18, 20)]
    for manifest in manifests:
        if manifest["kind"] == "NodeTopology" and manifest["metadata"]["name"] == "gpu-3":
            manifest["status"]["runEnds"] = ends
    assert spares(with_job(manifests, spares=1)) == ["gpu-4"]


def test_a_part_of_a_node_has_parts_of_nodes_as_spares() -> None:
    story = with_job(site(dra_node, nodes=2), spares=1, gpus=4)
    (spare,) = placement(story).spares or []
    assert (nodes(story), spare.name, len(spare.gpus)) == (["gpu-1"], "gpu-2", 4)


def test_a_spare_that_is_given_up_is_free_for_others_once_that_is_stored() -> None:
    """No GPU is ever of two jobs, whichever status is stored first."""
    story = Story(*site(nodes=10, racks=2), training_job("filler", spec={"gpus": 16}))
    run(story)
    story.add(training_job(spec={"gpus": 24, "spares": 1}))
    run(story)
    (spare,) = spares(story)
    story.objects["Node", "", spare]["metadata"]["labels"]["only"] = "here"
    ends = [{"job": "team-b/old", "reason": "NodeLost", "ended": f"2026-11-{day}T10:00:00Z"} for day in (18, 20)]
    story.objects["NodeTopology", "", spare]["status"]["runEnds"] = ends
    template = {"spec": {"containers": [{"name": "trainer", "image": "train"}], "nodeSelector": {"only": "here"}}}
    story.add(training_job("waiting", spec={"gpus": 8, "template": template}))
    story.settle()
    del story.objects["TrainingJob", "team-b", "filler"]
    for pod in [name for name in story.pods() if name.startswith("filler")]:
        story.remove_pod(pod)
    for node in nodes(story)[:2]:
        story.lose_node(node)
        story.silence(node, Quiet.LONG)
    for _ in range(6):
        for plan in reversed(story.plans()):
            if plan.writes:
                story.write(plan)
                break
        given = story.status("waiting").placement
        assert given is None or spare not in spares(story)
    assert spares(story) != [spare]
    assert nodes(story, "waiting") == [spare]


@KINDS
@pytest.mark.parametrize("gpus", [8, 16], ids=["its only node", "both nodes"])
def test_where_all_nodes_are_lost_the_spares_take_their_place_before_others_do(kind: Any, gpus: int) -> None:
    story = with_job(site(kind, nodes=gpus // 4), spares=gpus // 8, gpus=gpus)
    story.add(training_job("a-waiting", spec={"gpus": 8}))
    run(story)
    lost, held = nodes(story), spares(story)
    lose_nodes(story, *lost)
    assert (nodes(story), spares(story)) == (held, [])
    assert story.status("a-waiting").state is State.QUEUED
