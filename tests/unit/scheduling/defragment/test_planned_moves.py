"""A job that allows it moves while it runs, once, where a gang that waits then starts, and never otherwise."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.reasons import EventReason, PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.writes.plan import Plan
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from scenarios.manifests import priority_class, training_job
from scenarios.stories import nodes
from scenarios.story import Story, dra_node, plugin_node
from unit.scheduling.resizing.test_elastic_jobs import begin, ends, finish

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])
MINUTE, HOUR = 60, 3600
WHOLE_NODE = {"topology": {"gpusPerNode": 8}}

pytestmark = pytest.mark.usefixtures("no_mistakes")


def job(name: str, gpus: int = 4, **spec: Any) -> dict[str, Any]:
    return training_job(name, spec={"gpus": gpus, **spec})


def scattered(kind: Any = plugin_node, waited: int = 10 * MINUTE, gang: str = "big", **spec: Any) -> Story:
    """y on gpu-1 and z on gpu-2 leave half of each node free, and a gang has waited for a whole one."""
    story = Story(*(each for number in (1, 2) for each in kind(f"gpu-{number}")), priority_class("high", 100))
    for name in ("x", "y", "z"):
        story.add(job(name, **(spec if name == "z" else {})))
        begin(story)
    finish(story, "x")
    begin(story)
    story.add(job(gang, 8, **WHOLE_NODE))
    begin(story)
    if waited:
        story.pass_time(waited)
        begin(story)
    return story


@pytest.mark.parametrize("gang", ["big", "zz-big"])  # of one age the queue goes by the name
@KINDS
def test_it_moves_where_a_gang_that_waits_starts_by_that(kind: Any, gang: str) -> None:
    story = scattered(kind, waited=0, gang=gang, defragment="Planned")
    story.pass_time(5 * MINUTE - 1)
    begin(story)
    assert (nodes(story, "z"), nodes(story, gang)) == (["gpu-2"], [])
    story.pass_time(5 * MINUTE)
    begin(story)
    assert (nodes(story, "z"), nodes(story, gang)) == (["gpu-1"], ["gpu-2"])
    assert (story.status("z").state, story.status(gang).state) == (State.RUNNING, State.RUNNING)
    assert (ends(story, "z"), ends(story, "y")) == ([("Moved", False)], [])
    (told,) = [each for each in story.notices if each.reason == "Moved"]
    assert told.note == (
        "moves from gpu-2 to gpu-1, as spec.defragment: Planned allows, which gives "
        f"team-b/{gang} room for its 8 GPUs; "
        "it starts again in new Pods, and is not charged for this"
    )


@pytest.mark.parametrize("gang", ["big", "zz-big"])
def test_the_gang_holds_its_gpus_while_a_job_moves(gang: str) -> None:
    story = scattered(waited=0, gang=gang, defragment="Planned")
    story.pass_time(10 * MINUTE)
    story.write_once()
    pending = story.status(gang).pending
    assert pending is not None
    assert (pending.reason, nodes(story, gang)) == (PendingReason.MOVE_PENDING, ["gpu-2"])
    assert pending.message == "team-b/z moves elsewhere, which gives it room; it starts once its Pods are gone"
    story.add(job("zzz-thief", 4))  # it would fit where z was
    for _ in range(3):
        story.write_once()
        assert nodes(story, gang) == ["gpu-2"]
    begin(story)
    assert (nodes(story, gang), story.status(gang).state) == (["gpu-2"], State.RUNNING)
    assert nodes(story, "zzz-thief") == []


def test_it_stays_if_another_job_gets_its_new_place_first() -> None:
    story = scattered(waited=0, defragment="Planned")
    story.pass_time(10 * MINUTE)
    story.add(job("zzz-quick", 4))
    begin(story)
    assert (ends(story, "z"), nodes(story, "z"), nodes(story, "zzz-quick")) == ([], ["gpu-2"], ["gpu-1"])
    story.pass_time(MINUTE)
    begin(story)
    assert (ends(story, "z"), nodes(story, "big")) == ([], [])


@pytest.mark.parametrize("defragment", ["Never", "OnRestart"])
def test_one_that_does_not_allow_it_stays(defragment: str) -> None:
    story = scattered(waited=24 * HOUR, defragment=defragment)
    assert (nodes(story, "z"), ends(story, "z"), nodes(story, "big")) == (["gpu-2"], [], [])


def test_it_stays_while_it_would_do_more_again_than_the_gang_has_lost() -> None:
    """It has run with 4 GPUs for an hour when the gang of 8 comes: that has lost as much after half an hour."""
    story = Story(*(each for number in (1, 2) for each in plugin_node(f"gpu-{number}")))
    for name in ("x", "y", "z"):
        story.add(job(name, defragment="Planned" if name == "z" else "Never"))
        begin(story)
    finish(story, "x")
    begin(story)
    story.pass_time(HOUR)
    story.add(job("big", 8, **WHOLE_NODE))
    begin(story)
    story.pass_time(HOUR)
    begin(story)
    assert (ends(story, "z"), nodes(story, "big")) == ([], [])
    story.pass_time(5 * MINUTE)
    begin(story)
    assert (ends(story, "z"), nodes(story, "big")) == ([("Moved", False)], ["gpu-2"])


def test_nobody_moves_for_a_gang_that_does_not_fit_by_that() -> None:
    story = scattered(waited=0, defragment="Planned")
    story.edit_job("big", gpus=16)
    story.pass_time(24 * HOUR)
    begin(story)
    assert (ends(story, "z"), nodes(story, "big")) == ([], [])


def test_nobody_moves_for_a_gang_that_starts_sooner_by_itself() -> None:
    story = Story(*(each for number in (1, 2) for each in plugin_node(f"gpu-{number}")))
    story.add(job("x"))
    begin(story)
    story.add(job("y", expectedDuration="12m"))
    begin(story)
    story.add(job("z", defragment="Planned"))
    begin(story)
    finish(story, "x")
    begin(story)
    story.add(job("big", 8, **WHOLE_NODE))
    begin(story)
    for _ in range(11):
        story.pass_time(MINUTE)
        begin(story)
    assert (ends(story, "z"), nodes(story, "big")) == ([], [])


def test_it_never_moves_for_a_job_of_lower_priority() -> None:
    story = scattered(waited=24 * HOUR, defragment="Planned", priorityClassName="high")
    assert ends(story, "z") == []


def test_where_the_api_server_refuses_it_elsewhere_it_stays_and_the_gang_gives_back() -> None:
    story = scattered(waited=0, defragment="Planned")
    story.forbidden["z-a2-worker-00000"] = "no Pods on gpu-1"
    story.pass_time(10 * MINUTE)
    begin(story)
    begin(story)
    assert (ends(story, "z"), story.status("z").state, nodes(story, "z")) == ([], State.RUNNING, ["gpu-2"])
    pending = story.status("big").pending
    assert pending is not None
    assert (pending.reason, nodes(story, "big")) == (PendingReason.INSUFFICIENT_GPUS, [])
    assert [each.reason for each in story.notices].count(EventReason.MOVE_REFUSED) == 1


def test_where_the_api_server_refuses_the_gang_nobody_moves() -> None:
    story = scattered(waited=0, defragment="Planned")
    story.forbidden["big-a1-worker-00000"] = "no such Pods"
    story.pass_time(10 * MINUTE)
    begin(story)
    assert (ends(story, "z"), nodes(story, "big")) == ([], [])


def test_it_stays_if_the_gang_fits_without_it_meanwhile() -> None:
    story = scattered(waited=0, defragment="Planned")
    story.pass_time(10 * MINUTE)
    story.write_once()  # the gang holds what z is to leave
    assert story.status("big").placement is not None
    finish(story, "y")
    begin(story)
    assert (ends(story, "z"), story.status("big").state, nodes(story, "big")) == ([], State.RUNNING, ["gpu-1"])


def test_it_stays_if_its_new_place_is_gone() -> None:
    story = scattered(waited=0, defragment="Planned")
    story.pass_time(10 * MINUTE)
    story.write_once()
    story.lose_node("gpu-1")
    begin(story)
    story.pass_time(MINUTE)
    begin(story)
    assert (ends(story, "z"), nodes(story, "z"), nodes(story, "big")) == ([], ["gpu-2"], [])


def next_plan(story: Story, name: str) -> Plan:
    (plan,) = [plan for plan in story.plans() if plan.writes and plan.job.name == name]
    return plan


@KINDS
def test_a_move_is_finished_by_the_next_operator(kind: Any) -> None:
    """Whichever of its writes were the last ones of the operator before."""

    def ready() -> Story:
        story = scattered(kind, waited=0, defragment="Planned")
        story.pass_time(10 * MINUTE)
        story.write(next_plan(story, "big"))
        return story

    for done in range(len(next_plan(ready(), "z").actions) + 1):
        story = ready()
        plan = next_plan(story, "z")
        story.write(replace(plan, actions=plan.actions[:done], notice=None))
        story.answers.clear()
        begin(story)
        assert (nodes(story, "z"), nodes(story, "big")) == (["gpu-1"], ["gpu-2"])
        assert (story.status("z").state, story.status("big").state) == (State.RUNNING, State.RUNNING)
        assert (ends(story, "z"), story.status("z").restarts) == ([("Moved", False)], 1)


def test_names_of_other_namespaces_are_told_to_nobody() -> None:
    story = scattered(waited=0, defragment="Planned")
    finish(story, "big")
    big = job("secret", 8, **WHOLE_NODE)
    big["metadata"]["namespace"] = "team-a"
    story.add(big)
    story.settle()
    story.pass_time(10 * MINUTE)
    story.write_once()
    pending = story.status("secret", "team-a").pending
    assert pending is not None
    assert pending.message.startswith("a job of another namespace moves elsewhere")
    begin(story)
    (told,) = [each for each in story.notices if each.reason == "Moved"]
    assert "gives a job of another namespace room for its 8 GPUs" in told.note
    assert "secret" not in told.note


def test_two_gangs_for_which_nobody_can_move_are_looked_at_once_a_minute() -> None:
    story = Story(*(each for number in (1, 2, 3) for each in plugin_node(f"gpu-{number}")))
    container = {"name": "trainer", "image": "train:1"}
    for number in (1, 2, 3):  # nowhere else
        on = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": f"gpu-{number}"}}
        story.add(job(f"low-{number}", defragment="Planned", expectedDuration="9h", template={"spec": on}))
    begin(story)
    for name in ("big", "other"):
        story.add(job(name, 8, **WHOLE_NODE))
        begin(story)
    story.pass_time(30 * MINUTE)
    story.settle()
    cluster, memory, decisions, until = story.cluster, Memory(), 0, story.now + timedelta(minutes=5)
    while story.now < until:
        decision = decide(cluster, story.tables, memory, story.now)
        assert not [plan for plan in decision.plans if plan.writes]
        memory = Memory(schedule=decision.schedule, followed=decision.followed)
        decisions += 1
        assert decision.wake_at is not None
        story.now = decision.wake_at
    assert decisions <= 2 * 5 + 2
