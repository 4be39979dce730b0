"""Spare nodes are lent to jobs that their owner may end, and taken back when it loses a node."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.trainingjob_status import State
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.silence import Quiet
from closeknit.cluster.store.watched_kinds import ObjectChange
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from scenarios.manifests import priority_class, training_job
from scenarios.restarting_gangs import running
from scenarios.stories import begin, end, finish, lose_nodes, nodes, submit
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])
HIGH: dict[str, Any] = {"priorityClassName": "high"}

pytestmark = pytest.mark.usefixtures("no_mistakes")


def site(kind: Any = plugin_node, *, nodes: int = 3, spares: int = 1, gpus: int = 16, **spec: Any) -> Story:
    """A job `owner` of high priority that runs on gpu-1 and gpu-2 of so many nodes, and holds others to spare."""
    machines = [each for number in range(1, nodes + 1) for each in kind(f"gpu-{number}")]
    classes = [priority_class("high", 100), priority_class("top", 200), priority_class("meek", 100, preempts=False)]
    story = Story(*machines, *classes, job("owner", gpus, spares=spares, **{**HIGH, **spec}))
    begin(story)
    return story


def job(name: str, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    return training_job(name, spec={"gpus": gpus, **spec})


def spares(story: Story, name: str = "owner") -> list[str]:
    placement = story.status(name).placement
    return [] if placement is None else [each.name for each in placement.spares or ()]


def live_pods_on(story: Story, node: str) -> list[str]:
    return [
        name
        for name in story.pods()
        if (pod := story.pod(name))["status"]["phase"] == "Running" and pod["spec"].get("nodeName") == node
    ]


@KINDS
def test_a_job_of_lower_priority_runs_on_them_where_nothing_else_is_free(kind: Any) -> None:
    story = site(kind)
    assert (nodes(story, "owner"), spares(story)) == (["gpu-1", "gpu-2"], ["gpu-3"])
    before = story.objects["TrainingJob", "team-b", "owner"]["metadata"]["resourceVersion"]
    submit(story, "low")
    assert (nodes(story, "low"), story.status("low").state) == (["gpu-3"], State.RUNNING)
    assert spares(story) == ["gpu-3"], "and it stays the owner's"
    assert story.objects["TrainingJob", "team-b", "owner"]["metadata"]["resourceVersion"] == before
    assert story.notices[-1].note == (
        "8 GPUs on gpu-3; gpu-3 is a spare node of another job, which takes it back when it loses a node: the job then "
        "waits again"
    )
    view = story.cluster.nodes["gpu-3"]
    assert {holder.name for holder in view.holders.values()} == {"low"}
    assert view.plugin is None or view.plugin.requested == 8


@KINDS
def test_it_gets_other_nodes_first(kind: Any) -> None:
    story = site(kind, nodes=4)
    submit(story, "low")
    assert nodes(story, "low") == ["gpu-4"]
    submit(story, "other")
    assert nodes(story, "other") == ["gpu-3"]


@KINDS
def test_the_owner_takes_it_back_when_it_loses_a_node(kind: Any) -> None:
    story = site(kind)
    submit(story, "low")
    lose_nodes(story, "gpu-2")
    assert story.status("low").state is State.RESTARTING
    (ended,) = story.status("low").attempts
    assert (ended.reason, ended.charged) == ("Preempted", False)
    assert ended.message == (
        "makes room for team-b/owner, which has lost nodes, and takes back spare nodes that were lent; the job keeps "
        "its age, is not charged for this, and starts again as soon as there is room for it"
    )
    pending = story.status("owner").pending
    assert pending is not None
    assert (pending.reason, pending.message) == (
        "NodesLost",
        "it lost gpu-2 and holds 1 node of 2; jobs that its spare nodes were lent to make room for it",
    )
    assert nodes(story, "owner") == ["gpu-1", "gpu-2"]
    assert live_pods_on(story, "gpu-3") == ["low-a1-worker-00000"], "it has its grace period"
    finish(story)
    assert (nodes(story, "owner"), story.status("owner").state) == (["gpu-1", "gpu-3"], State.RUNNING)
    waiting = story.status("low").pending
    assert waiting is not None
    assert waiting.reason == "InsufficientGPUs"


def test_a_free_node_is_taken_before_a_borrower_has_to_end() -> None:
    story = site(nodes=5)
    submit(story, "filler", 16)
    submit(story, "low")
    assert nodes(story, "low") == ["gpu-3"]
    end(story, "filler")
    lose_nodes(story, "gpu-2")
    assert (nodes(story, "owner"), nodes(story, "low")) == (["gpu-1", "gpu-4"], ["gpu-3"])
    assert spares(story) == ["gpu-5"]


def test_they_are_not_lent_to_a_job_of_the_same_priority() -> None:
    story = site()
    submit(story, "other", **HIGH)
    assert (nodes(story, "other"), spares(story)) == ([], ["gpu-3"])


def test_a_job_of_higher_priority_borrows_nothing_and_takes_the_room_for_good() -> None:
    story = site()
    submit(story, "other", priorityClassName="top")
    finish(story)
    assert [each.reason for each in story.status("owner").attempts] == ["Preempted"]
    assert (nodes(story, "other"), spares(story)) == (["gpu-3"], [])


def test_a_borrower_that_comes_to_have_the_owners_priority_is_not_ended_for_it() -> None:
    story = site()
    submit(story, "low")
    story.edit_job("low", **HIGH)
    lose_nodes(story, "gpu-2")
    assert (nodes(story, "low"), story.status("low").attempts) == (["gpu-3"], [])
    pending = story.status("owner").pending
    assert pending is not None
    assert "and there is none" in pending.message


def test_an_owner_that_may_end_nobody_lends_none() -> None:
    story = site(priorityClassName="meek")
    submit(story, "low")
    assert nodes(story, "low") == []
    assert spares(story) == ["gpu-3"]


@KINDS
def test_the_owner_ends_and_the_borrower_stays(kind: Any) -> None:
    story = site(kind)
    submit(story, "low")
    end(story, "owner")
    begin(story)
    assert (nodes(story, "low"), story.status("low").state, story.status("low").attempts) == (
        ["gpu-3"],
        State.RUNNING,
        [],
    )
    submit(story, "other", 8)
    assert nodes(story, "other") == ["gpu-1"]


@KINDS
def test_the_borrower_ends_and_nobody_else_gets_its_node(kind: Any) -> None:
    story = site(kind)
    submit(story, "low")
    end(story, "low")
    submit(story, "top", priorityClassName="high")
    assert nodes(story, "top") == []
    lose_nodes(story, "gpu-2")
    assert nodes(story, "owner") == ["gpu-1", "gpu-3"]


@KINDS
def test_a_borrower_may_be_larger_than_the_spares(kind: Any) -> None:
    story = site(kind, nodes=4)
    submit(story, "low", 16)
    assert sorted(nodes(story, "low")) == ["gpu-3", "gpu-4"]
    lose_nodes(story, "gpu-1")
    finish(story)
    assert (nodes(story, "owner"), spares(story)) == (["gpu-3", "gpu-2"], ["gpu-4"])
    assert story.status("low").state is State.RESTARTING


@KINDS
def test_two_borrow_parts_of_one_spare_node_and_only_who_must_ends(kind: Any) -> None:
    story = site(kind, nodes=4, spares=2)
    submit(story, "one", 4)
    submit(story, "two", 4)
    submit(story, "three", 8)
    assert [nodes(story, name) for name in ("one", "two", "three")] == [["gpu-3"], ["gpu-3"], ["gpu-4"]]
    lose_nodes(story, "gpu-2")
    assert [len(story.status(name).attempts) for name in ("one", "two", "three")] == [0, 0, 1]
    finish(story)
    assert (nodes(story, "owner"), story.status("owner").state) == (["gpu-1", "gpu-4"], State.RUNNING)
    assert spares(story) == ["gpu-3"], "the other one is still its own"


def test_what_is_left_of_a_spare_that_is_lent_in_part_is_nobody_elses() -> None:
    story = site(dra_node)
    submit(story, "low", 4)
    assert nodes(story, "low") == ["gpu-3"]
    submit(story, "top", 4, priorityClassName="high")
    assert nodes(story, "top") == []
    submit(story, "other", 4)
    assert nodes(story, "other") == ["gpu-3"]


@KINDS
def test_where_all_nodes_are_lost_the_lent_ones_take_their_place(kind: Any) -> None:
    story = site(kind, nodes=2, gpus=8)
    submit(story, "low")
    assert nodes(story, "low") == ["gpu-2"]
    lose_nodes(story, "gpu-1")
    finish(story)
    assert (nodes(story, "owner"), story.status("owner").state) == (["gpu-2"], State.RUNNING)


@KINDS
def test_nobody_ends_for_an_owner_of_one_node_that_fits_on_a_free_one(kind: Any) -> None:
    story = site(kind, nodes=3, gpus=8)
    submit(story, "filler")
    submit(story, "low")
    assert (nodes(story, "filler"), nodes(story, "low")) == (["gpu-3"], spares(story))
    end(story, "filler")
    lose_nodes(story, "gpu-1")
    finish(story)
    assert nodes(story, "owner") == ["gpu-3"]
    assert not story.status("low").attempts


@KINDS
def test_an_operator_that_starts_again_between_writes_goes_on(kind: Any) -> None:
    """Nothing is remembered from one write to the next, and each order of the writes leads to the same."""
    story = site(kind)
    submit(story, "low")
    story.lose_node("gpu-2")
    story.silence("gpu-2", Quiet.LONG)
    for _ in range(30):
        plans = [plan for plan in story.plans() if plan.writes]
        if not plans:
            break
        story.write(plans[-1])
        held = [node for name in ("owner", "low") for node in nodes(story, name) if node == "gpu-3"]
        assert len(held) <= 1
    assert live_pods_on(story, "gpu-3") == ["low-a1-worker-00000"]
    finish(story)
    assert (nodes(story, "owner"), nodes(story, "low")) == (["gpu-1", "gpu-3"], [])


def test_while_a_write_for_the_owner_is_under_way_nothing_of_it_is_lent() -> None:
    story = site()
    story.add(job("low"))
    plans = story.decide(Memory(busy=frozenset({JobKey("team-b", "owner")}))).plans
    assert not [plan for plan in plans if plan.actions]
    begin(story)
    assert nodes(story, "low") == ["gpu-3"]


def test_a_job_that_would_delay_the_first_that_waits_borrows_nothing() -> None:
    """It gets the owner's nodes, spares included, once that ends, and that is declared."""
    story = site(nodes=3, expectedDuration="1h")
    submit(story, "first", 24, priorityClassName="high")
    assert story.status("first").pending is not None
    submit(story, "low")
    assert nodes(story, "low") == []
    submit(story, "short", expectedDuration="10m")
    assert nodes(story, "short") == ["gpu-3"]


@KINDS
def test_pods_that_stay_in_place_wait_for_a_borrower_too(kind: Any) -> None:
    story = running(kind, nodes=4, spares=1, **HIGH)
    story.add(priority_class("high", 100))
    submit(story, "low")
    assert (nodes(story, "low"), spares(story, "train")) == (["gpu-4"], ["gpu-4"])
    lose_nodes(story, "gpu-2")
    assert [each.reason for each in story.status("low").attempts] == ["Preempted"]
    assert "train-a1-worker-00001-r1" not in story.pods()
    finish(story)
    assert (nodes(story, "train"), story.status("train").attempt) == (["gpu-1", "gpu-4", "gpu-3"], 1)
    assert "train-a1-worker-00001-r1" in story.pods()


def test_who_waits_behind_a_reservation_borrows_what_is_not_kept() -> None:
    story = site(nodes=4)
    submit(story, "long", expectedDuration="1h")
    submit(story, "both", 16, **HIGH)
    submit(story, "low")
    assert nodes(story, "low") == ["gpu-3"]


def test_after_ten_minutes_the_owner_waits_no_longer() -> None:
    """The borrower's Pod does not go: its kubelet confirms nothing."""
    story = site()
    submit(story, "low")
    lose_nodes(story, "gpu-2")
    story.dead.add("gpu-3")
    for seconds, reason in ((599, "NodesLost"), (2, "PreemptionPending")):
        story.pass_time(seconds)
        story.settle()
        pending = story.status("owner").pending
        assert pending is not None
        assert pending.reason == reason


def needing(cpus: int) -> dict[str, Any]:
    """A job whose Pods request so many CPUs."""
    requests = {"requests": {"cpu": str(cpus)}}
    trainer = {"name": "trainer", "image": "registry.example/train:1", "resources": requests}
    return {"template": {"spec": {"containers": [trainer]}}}


@KINDS
def test_what_a_borrower_leaves_of_a_spares_cpus_is_nobody_elses(kind: Any) -> None:
    story = site(kind, nodes=2, gpus=4, **needing(100))
    for filler in ("f1", "f2"):
        submit(story, filler, 4, **needing(20))
    (spare,) = spares(story)
    submit(story, "low", 4, **needing(1))
    assert nodes(story, "low") == [spare]
    end(story, "f1" if nodes(story, "f1") == [spare] else "f2")
    submit(story, "greedy", 4, **{**HIGH, **needing(100)})
    assert nodes(story, "greedy") == [], "it would leave the owner no CPUs there"
    lose_nodes(story, *nodes(story, "owner"))
    finish(story)
    assert (nodes(story, "owner"), story.status("owner").state) == ([spare], State.RUNNING)


def test_an_owner_waits_for_the_pods_of_a_borrower_that_was_deleted() -> None:
    story = site(nodes=2, gpus=8)
    submit(story, "low")
    del story.objects["TrainingJob", "team-b", "low"]
    (pod,) = (each for each in story.pods() if each.startswith("low-"))
    story.mark_deleted(pod, grace_s=30)
    lose_nodes(story, "gpu-1")
    assert spares(story) == ["gpu-2"]
    rival = job("rival", **HIGH)
    rival["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
    story.add(rival)
    story.settle()
    story.remove_pod(pod)
    story.settle()
    assert (nodes(story, "owner"), nodes(story, "rival")) == (["gpu-2"], [])


@pytest.mark.parametrize("are_alike", [True, False])
def test_many_who_borrow_in_vain_are_not_asked_again(*, are_alike: bool) -> None:
    """Alike: they fit on a spare node and would delay the first that waits. Else each asks for more than there is."""
    story = site(gpus=16, expectedDuration="1h")
    if are_alike:
        submit(story, "first", 24, **HIGH)
    for number in range(80):  # a namespace asks for 64 jobs in one decision
        story.add(job(f"low-{number:02}", 8 if are_alike else 8 * (4 + number)))
    memory, cluster = Memory(answers=story.answers), story.cluster
    for _ in range(8):
        made = decide(cluster, story.tables, replace(memory, answers=story.answers, epoch=7), story.now)
        for plan in made.plans:
            story.write(plan)
        cluster = story.cluster if any(plan.writes for plan in made.plans) else cluster
        memory = Memory(schedule=made.schedule, followed=made.followed)
    assert not any(plan.writes for plan in made.plans)
    assert made.schedule.wake_at is None or made.schedule.wake_at > story.now + timedelta(minutes=1)


def test_the_spares_of_many_owners_are_taken_away_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked is the cluster without all of them: to make one without each after the other took two seconds."""
    story = Story(
        *[each for number in range(40) for each in plugin_node(f"gpu-{number:02}")], priority_class("high", 1)
    )
    for number in range(20):
        story.add(job(f"owner-{number:02}", spares=1, **HIGH))
    begin(story)
    story.add(job("low"))
    made: list[int] = []

    def counted(cluster: Cluster, changes: Iterable[ObjectChange]) -> Cluster:
        made.append(len(there := tuple(changes)))
        return after(cluster, there)

    after = Cluster.after
    cluster, memory = story.cluster, Memory(answers=story.answers)
    monkeypatch.setattr(Cluster, "after", counted)
    decide(cluster, story.tables, memory, story.now)
    assert max(made) == 20 and len(made) < 10
    monkeypatch.undo()
    begin(story)
    assert story.status("low").state is State.RUNNING
