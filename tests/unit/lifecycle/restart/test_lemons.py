"""Nodes and GPUs that ended two runs within seven days are taken last, and their evidence is kept, told and cleared."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from closeknit.api.nodetopology_status import MAX_RUN_ENDS
from closeknit.cluster.objects.silence import Quiet
from closeknit.lifecycle.restart.lemons import Lemon, lemons
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.topology_status import lemon_news
from scenarios.manifests import cluster_topology, training_job, uuids
from scenarios.stories import booked_nodes, end_trainer
from scenarios.story import NOW, Story, dra_node, plugin_node

DAY = timedelta(days=1)


def days_ago(days: float) -> datetime:
    return NOW - days * DAY


def ended_by(
    story: Story, node: str, *ended: datetime, gpu: int | None = None, reason: str = "NodeLost", job: str = "team-b/old"
) -> None:
    """Runs ended by the node, or by one of its GPUs, and that is stored with it."""
    told = {} if gpu is None else {"gpu": uuids(node, gpu)[0]}
    ends = [{"job": job, "reason": reason, "ended": timestamp(each), **told} for each in ended]
    story.objects[("NodeTopology", "", node)]["status"].setdefault("runEnds", []).extend(ends)


def tell(story: Story) -> list[str]:
    """What is to be stored with NodeTopologies is stored; the words of Events."""
    news = lemon_news(story.cluster, story.now)
    for each in news:
        status = story.objects[("NodeTopology", "", each.node)]["status"]
        status["runEnds"] = [end.wire() for end in each.run_ends or ()]
        status["lemon"] = each.lemon.wire() if each.lemon is not None else None
    assert lemon_news(story.cluster, story.now) == (), "told once"
    return [each.notice.note for each in news if each.notice is not None]


def names(story: Story) -> list[str]:
    return [each.name for each in booked_nodes(story)]


def known(story: Story) -> list[tuple[str, str | None]]:
    return [(each.node, each.gpu) for each in lemons(story.cluster, story.now)]


def eight(kind: Any = plugin_node, count: int = 2, **spec: Any) -> Story:
    """A job of one whole node, which lies on gpu-1 by its name, and `count` nodes."""
    nodes = [each for number in range(1, count + 1) for each in kind(f"gpu-{number}")]
    return Story(*nodes, training_job(spec={"gpus": 8, **spec}))


def test_a_node_that_ended_two_runs_is_taken_last() -> None:
    story = eight()
    ended_by(story, "gpu-1", days_ago(6), days_ago(1))
    story.settle()
    assert names(story) == ["gpu-2"]


def test_one_that_ended_one_is_as_good_as_any() -> None:
    story = eight()
    ended_by(story, "gpu-1", days_ago(1))
    story.settle()
    assert names(story) == ["gpu-1"]


def test_it_is_taken_where_nothing_else_has_room_and_that_is_told() -> None:
    story = eight(gpus=16)
    ended_by(story, "gpu-1", days_ago(6), days_ago(1))
    story.settle()
    assert sorted(names(story)) == ["gpu-1", "gpu-2"]
    (placed,) = [each for each in story.notices if each.reason == "Placed"]
    assert placed.warning
    assert (
        "node gpu-1 ended 2 runs within 7 days (team-b/old at 2026-11-20T10:00:00Z: NodeLost; team-b/old at "
        "2026-11-15T10:00:00Z: NodeLost), and nothing else had room" in placed.note
    )


def test_a_gang_that_must_take_some_takes_those_that_ended_the_fewest_runs() -> None:
    story = eight(count=4, gpus=24)
    ended_by(story, "gpu-1", days_ago(5), days_ago(3), days_ago(1))
    ended_by(story, "gpu-2", days_ago(3), days_ago(1))
    story.settle()
    assert sorted(names(story)) == ["gpu-2", "gpu-3", "gpu-4"]


def test_a_gpu_that_ended_two_runs_is_taken_last_and_the_others_of_its_node_as_before() -> None:
    story = Story(*dra_node("gpu-1"), training_job(spec={"gpus": 4}), training_job("two", spec={"gpus": 3}))
    ended_by(story, "gpu-1", days_ago(2), days_ago(1), gpu=0, reason="GPULost")
    story.settle()
    held = [each for job in ("train", "two") for each in story.status(job).placement.nodes]  # type: ignore[union-attr]
    assert sorted(gpu for each in held for gpu in each.gpus) == [1, 2, 3, 4, 5, 6, 7]
    story.add(training_job("three", spec={"gpus": 1}))
    story.settle()
    assert story.status("three").placement.nodes[0].gpus == [0]  # type: ignore[union-attr]


def test_where_a_plugin_chooses_gpus_the_node_of_such_a_gpu_is_taken_last() -> None:
    story = eight()
    ended_by(story, "gpu-1", days_ago(2), days_ago(1), gpu=3, reason="GPULost")
    story.settle()
    assert names(story) == ["gpu-2"]


def test_two_gpus_of_a_node_that_ended_a_run_each_make_the_node_a_lemon() -> None:
    story = eight(dra_node)
    ended_by(story, "gpu-1", days_ago(2), gpu=3, reason="GPULost")
    ended_by(story, "gpu-1", days_ago(1), gpu=5, reason="GPULost")
    assert known(story) == [("gpu-1", None)]


def test_a_gpu_that_was_replaced_is_no_evidence() -> None:
    story = eight(dra_node)
    ended_by(story, "gpu-1", days_ago(2), days_ago(1), gpu=3, reason="GPULost")
    for gpu in story.objects[("NodeTopology", "", "gpu-1")]["spec"]["gpus"]:
        gpu["uuid"] += "-new"
    assert known(story) == []


@pytest.mark.parametrize(
    ("ended", "is_one"),
    [
        ((8, 1), False),
        ((6.9, 0), True),
        ((-0.1, 1), False),  # by a clock that was set back
        ((1, 1 + 5 / 1440), False),
        ((1, 1 + 11 / 1440), True),
    ],
    ids=["one is over", "within", "in the future", "one fault", "two faults"],
)
def test_two_faults_within_seven_days_count(ended: tuple[float, ...], is_one: bool) -> None:
    story = eight()
    ended_by(story, "gpu-1", *sorted(map(days_ago, ended)))
    assert bool(known(story)) is is_one


def test_a_fault_that_ends_many_jobs_counts_once() -> None:
    jobs = [training_job(f"job-{number}", spec={"gpus": 1}) for number in range(8)]
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), *jobs)
    story.settle()
    story.run_all()
    story.settle()
    (node,) = {each.name for job in range(8) for each in story.status(f"job-{job}").placement.nodes}  # type: ignore[union-attr]
    die(story, node)
    assert all(each.blamed for number in range(8) for each in story.status(f"job-{number}").attempts)
    assert known(story) == []
    story.pass_time(3600)
    die(story, node)  # nothing runs there
    assert known(story) == []


def die(story: Story, node: str) -> None:
    """Kubernetes and the kubelet's Lease tell that it is dead; what runs there starts again; and it comes back."""
    story.lose_node(node)
    story.silence(node, Quiet.LONG)
    story.settle()
    for name in story.pods():
        if story.pod(name)["spec"].get("nodeName") == node:
            story.remove_pod(name)
    story.settle()
    story.recover_node(node)
    story.silent.clear()
    story.settle()
    story.run_all()
    story.settle()


def test_the_evidence_outlives_the_job_and_the_operator() -> None:
    story = eight()
    story.settle()
    story.run_all()
    story.settle()
    die(story, "gpu-1")
    assert names(story) == ["gpu-2"]
    assert tell(story) == []
    story.pass_time(3600)
    story.add(training_job("other", spec={"gpus": 8}))
    story.settle()
    story.run_all()
    story.settle()
    die(story, "gpu-1")
    (words,) = tell(story)
    assert words.startswith(
        "node gpu-1 ended 2 runs within 7 days (team-b/other at 2026-11-21T11:00:00Z: NodeLost; team-b/train at "
        "2026-11-21T10:00:00Z: NodeLost): jobs are placed there last. Once it is mended: kubectl annotate "
        "nodetopology gpu-1 --overwrite closeknit.dev/lemon-cleared="
    )
    status = story.objects[("NodeTopology", "", "gpu-1")]["status"]
    assert (status["lemon"]["since"], len(status["runEnds"])) == ("2026-11-21T11:00:00Z", 2)
    for key in [key for key in story.objects if key[0] not in {"Node", "NodeTopology"}]:
        del story.objects[key]
    later = Story(*story.objects.values(), training_job("new", spec={"gpus": 8}))
    later.now = story.now
    later.settle()
    assert [each.name for each in later.status("new").placement.nodes] == ["gpu-2"]  # type: ignore[union-attr]
    assert tell(later) == []


def test_an_administrator_clears_it_until_a_moment_and_it_is_gone_from_the_status() -> None:
    story = eight()
    ended_by(story, "gpu-1", days_ago(3), days_ago(2))
    tell(story)
    topology = story.objects[("NodeTopology", "", "gpu-1")]
    topology["metadata"]["annotations"] = {"closeknit.dev/lemon-cleared": timestamp(days_ago(1))}
    assert known(story) == []
    tell(story)
    assert (topology["status"]["runEnds"], topology["status"]["lemon"]) == ([], None)
    ended_by(story, "gpu-1", days_ago(0.5), days_ago(0.1))
    assert known(story) == [("gpu-1", None)], "what comes later counts"


@pytest.mark.parametrize("cleared", ["soon", "2126-01-01T00:00:00Z", "", "2026-11-21"])
def test_what_is_no_moment_of_the_past_clears_nothing(cleared: str) -> None:
    story = eight()
    ended_by(story, "gpu-1", days_ago(3), days_ago(2))
    story.objects[("NodeTopology", "", "gpu-1")]["metadata"]["annotations"] = {"closeknit.dev/lemon-cleared": cleared}
    assert known(story) == [("gpu-1", None)]


def test_a_machine_that_was_made_since_has_no_past() -> None:
    story = eight()
    ended_by(story, "gpu-1", days_ago(3))
    story.settle()
    story.run_all()
    story.settle()
    die(story, "gpu-1")
    assert known(story) == [("gpu-1", None)]
    story.objects[("NodeTopology", "", "gpu-1")]["metadata"]["creationTimestamp"] = "2026-11-21T10:00:01Z"
    assert known(story) == []


def test_the_evidence_is_bounded_and_old_evidence_goes() -> None:
    story = eight(gpus=1)
    ended_by(story, "gpu-1", days_ago(9), *(days_ago(6 - number / 10) for number in range(MAX_RUN_ENDS - 1)))
    story.settle()
    story.run_all()
    story.settle()
    ended_by(story, "gpu-2", days_ago(9))
    for node in (*names(story), "gpu-1"):
        die(story, node)
    tell(story)
    status = {node: story.objects[("NodeTopology", "", node)]["status"]["runEnds"] for node in ("gpu-1", "gpu-2")}
    assert [each["ended"] for each in status["gpu-2"]] == [timestamp(story.now)]
    assert (len(status["gpu-1"]), status["gpu-1"][-1]["ended"]) == (MAX_RUN_ENDS, timestamp(story.now))


def test_a_node_that_ends_more_runs_at_once_than_are_kept_is_a_lemon_by_its_second_fault() -> None:
    """As one with 16 GPUs, or with MIG devices, where each is a job's."""
    story = eight()
    for number in range(MAX_RUN_ENDS + 1):
        job = story.add(training_job(f"old-{number:02}", spec={"gpus": 1, "suspend": True}))
        blamed = {"charged": False, "reason": "NodeLost", "blamed": [{"node": "gpu-1"}]}
        ended = [timestamp(at + timedelta(seconds=number)) for at in (days_ago(3), days_ago(1))]
        job["status"] = {"attempts": [{"number": 1 + run, "ended": at, **blamed} for run, at in enumerate(ended)]}
    tell(story)
    assert known(story) == [("gpu-1", None)]
    assert len(story.objects[("NodeTopology", "", "gpu-1")]["status"]["runEnds"]) == MAX_RUN_ENDS
    for kind, namespace, name in list(story.objects):
        if name.startswith("old-"):
            del story.objects[kind, namespace, name]
    assert known(story) == [("gpu-1", None)], "by what is stored with its NodeTopology"


@pytest.mark.parametrize("ended", ["soon", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_an_odd_moment_costs_only_itself(ended: str) -> None:
    story = eight()
    story.objects[("NodeTopology", "", "gpu-1")]["status"]["runEnds"] = [
        {"job": "team-b/old", "reason": "NodeLost", "ended": ended}
    ] * 3
    assert known(story) == []
    story.settle()
    assert names(story) == ["gpu-1"]


def test_a_lost_node_is_not_replaced_by_a_lemon_where_another_would_do() -> None:
    story = eight(count=4, gpus=16)
    ended_by(story, "gpu-3", days_ago(2), days_ago(1))
    story.settle()
    story.run_all()
    story.settle()
    assert names(story) == ["gpu-1", "gpu-2"]
    die(story, "gpu-1")
    assert names(story) == ["gpu-4", "gpu-2"]


def test_a_nearer_lemon_gives_way_to_a_farther_node_inside_what_is_required() -> None:
    nodes = [each for number in range(1, 5) for each in plugin_node(f"gpu-{number}")]
    for manifest in nodes:
        number = int(manifest["metadata"]["name"][-1])
        manifest["metadata"].setdefault("labels", {})["net.example/rack"] = f"r{(number + 1) // 2}"
    spec = {"gpus": 16, "topology": {"fabric": {"required": "rack"}}}
    story = Story(*nodes, cluster_topology("rack"), training_job(spec=spec))
    ended_by(story, "gpu-2", days_ago(2), days_ago(1))
    story.settle()
    assert sorted(names(story)) == ["gpu-3", "gpu-4"]


def blamed(story: Story) -> list[tuple[str, str | None]]:
    found = [each for attempt in story.status().attempts for each in attempt.blamed or ()]
    return [(each.node, each.gpu) for each in found]


def running(kind: Any = dra_node, **spec: Any) -> Story:
    story = eight(kind, count=3, gpus=4, **spec)
    story.settle()
    story.run_all()
    story.settle()
    return story


def ill(story: Story, *gpus: int, reason: str = "XID79") -> None:
    told = [{"index": gpu, "state": "Unhealthy", "reasons": [reason]} for gpu in gpus]
    story.objects[("NodeTopology", "", "gpu-1")]["status"]["gpus"] = told
    story.settle()


def test_a_gpu_that_dies_is_blamed_and_several_of_a_node_are_the_nodes() -> None:
    one, more = running(), running()
    ill(one, 2)
    ill(more, 0, 1, 2, 3)
    assert (blamed(one), blamed(more)) == ([("gpu-1", "GPU-gpu-1-2")], [("gpu-1", None)])


def test_a_gpu_that_is_ill_when_a_rank_exits_is_blamed() -> None:
    story = running()
    ill(story, 1, reason="XID74")
    assert blamed(story) == [], "the run goes on"
    end_trainer(story, 0)
    story.settle()
    assert blamed(story) == [("gpu-1", "GPU-gpu-1-1")]


def test_a_node_that_restarts_under_its_pods_is_blamed() -> None:
    story = running()
    state = {"terminated": {"exitCode": 255, "reason": "Unknown"}}
    story.change_pod("train-a1-worker-00000", phase="Failed", containerStatuses=[{"name": "trainer", "state": state}])
    story.settle()
    assert (story.status().attempts[0].reason, blamed(story)) == ("NodeLost", [("gpu-1", None)])


def test_a_rank_that_exits_with_an_error_is_no_evidence_however_often() -> None:
    story = running(restart={"limit": 5})
    for _ in range(3):
        story.pass_time(3600)
        end_trainer(story, 0)
        story.settle()
        story.pass_time(60)
        story.settle()
        for pod in story.pods():
            if not pod.startswith(f"train-a{story.status().attempt}-"):
                story.remove_pod(pod)
        story.settle()
        story.run_all()
        story.settle()
    assert (len(story.status().attempts), blamed(story), known(story)) == (3, [], [])


def gang() -> Story:
    """A job that runs on gpu-1 and gpu-2."""
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), training_job(spec={"gpus": 16}))
    story.settle()
    story.run_all()
    story.settle()
    return story


def test_all_nodes_are_blamed_that_are_silent_under_ranks_that_end() -> None:
    story = gang()
    for rank, node in enumerate(("gpu-1", "gpu-2")):
        story.lose_node(node)
        end_trainer(story, rank)
    story.settle()
    assert blamed(story) == [("gpu-1", None), ("gpu-2", None)]


def test_a_silent_node_is_not_blamed_for_a_rank_that_ends_elsewhere_until_it_is_known_to_be_dead() -> None:
    blip, death = gang(), gang()
    for story in (blip, death):
        story.lose_node("gpu-2")
        end_trainer(story, 0)
    death.silence("gpu-2", Quiet.LONG)
    blip.settle()
    death.settle()
    assert [(each.reason, each.charged) for each in blip.status().attempts] == [("NodeLost", False)]
    assert (blamed(blip), blamed(death)) == ([], [("gpu-2", None)])


def test_a_node_that_was_taken_away_is_not_blamed() -> None:
    story = running(plugin_node)
    del story.objects[("Node", "", "gpu-1")]
    story.settle()
    assert (story.status().attempts[0].reason, blamed(story)) == ("NodeLost", [])


def test_a_drain_is_no_evidence() -> None:
    story = running(plugin_node)
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    story.change_pod("train-a1-worker-00000", phase="Failed", conditions=[mark])
    story.settle()
    assert (story.status().attempts[0].reason, blamed(story)) == ("Disrupted", [])


def test_a_lemon_is_a_value_with_words() -> None:
    story = eight()
    ended_by(story, "gpu-1", days_ago(2), days_ago(1))
    (found,) = lemons(story.cluster, story.now)
    assert found == Lemon("gpu-1", None, found.ends, 2, days_ago(1))
