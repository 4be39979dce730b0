"""Spare nodes of a queue: no job starts there, a job of the queue takes one in place of a lost node, and others borrow
them until then."""

from typing import Any

import pytest

from closeknit.api.names import IMEX_CHANNELS, SPARE_FOR_LABEL
from closeknit.api.trainingjob_status import State
from closeknit.cluster.objects.silence import Quiet
from closeknit.lifecycle.overview.summary import summary
from closeknit.lifecycle.topology_status import levels_of
from closeknit.placement.fragmentation import fragmentation
from closeknit.placement.gang.cache import Tables
from scenarios.fleets import Followed
from scenarios.manifests import device_class, priority_class
from scenarios.restarting_gangs import running
from scenarios.stories import begin, end, end_trainer, finish, lose_nodes, nodes, submit
from scenarios.story import Story, dra_node, plugin_node
from unit.scheduling.test_incremental import dra_nodes

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])
HIGH: dict[str, Any] = {"priorityClassName": "high"}
RESEARCH: dict[str, Any] = {"queue": "research", **HIGH}

pytestmark = pytest.mark.usefixtures("no_mistakes")


def site(kind: Any = plugin_node, *, nodes: int = 3, spares: int = 1, queue: str = "research") -> Story:
    """Nodes gpu-1, gpu-2 ... of eight GPUs, the last ones spares of a queue."""
    machines = [each for number in range(1, nodes + 1) for each in kind(f"gpu-{number}")]
    classes = [priority_class("high", 100), priority_class("top", 200), priority_class("meek", 100, preempts=False)]
    story = Story(*machines, *classes)
    for number in range(nodes - spares + 1, nodes + 1):
        label(story, f"gpu-{number}", queue)
    return story


def label(story: Story, node: str, queue: str | None = "research") -> None:
    labels = story.objects["Node", "", node]["metadata"]["labels"]
    if queue is None:
        labels.pop(SPARE_FOR_LABEL, None)
    else:
        labels[SPARE_FOR_LABEL] = queue


def refusal(story: Story, name: str) -> tuple[str, str]:
    pending = story.status(name).pending
    assert pending is not None
    return pending.reason, pending.message


def placed(story: Story, name: str) -> str:
    return next(each.message for each in story.status(name).conditions if each.type == "Placed")


@KINDS
@pytest.mark.parametrize("queue", ["research", "other", None])
def test_no_job_starts_there_and_that_is_told(kind: Any, queue: str | None) -> None:
    story = site(kind)
    submit(story, "large", 24, **({"queue": queue} if queue else {}))
    assert refusal(story, "large") == (
        "InsufficientGPUs",
        "needs 24 GPUs; 16 are free on 2 nodes; 1 node excluded: gpu-3 (spare for queue research)",
    )


def test_many_are_counted_apart() -> None:
    story = site(nodes=6, spares=4)
    submit(story, "large", 24)
    assert refusal(story, "large")[1].endswith("; 4 nodes excluded: 4 spare for queue research")
    label(story, "gpu-6", "other")
    story.pass_time(600)
    story.settle()
    assert refusal(story, "large")[1].endswith("excluded: 3 spare for queue research, 1 spare for queue other")


@KINDS
def test_one_takes_the_place_of_a_lost_node_before_a_free_one(kind: Any) -> None:
    story = site(kind, nodes=4)
    submit(story, "owner", 16, **RESEARCH)
    assert nodes(story, "owner") == ["gpu-1", "gpu-2"]
    lose_nodes(story, "gpu-2")
    assert nodes(story, "owner") == ["gpu-1", "gpu-4"]
    assert placed(story, "owner") == "booked on gpu-1, gpu-4; lent: gpu-4 is a spare node of its queue"
    finish(story)
    assert story.status("owner").state is State.RUNNING


@KINDS
def test_spares_of_the_job_are_taken_before_those_of_its_queue(kind: Any) -> None:
    story = site(kind, nodes=4)
    submit(story, "owner", 16, spares=1, **RESEARCH)
    lose_nodes(story, "gpu-2")
    assert nodes(story, "owner") == ["gpu-1", "gpu-3"]
    finish(story)
    lose_nodes(story, "gpu-1")
    finish(story)
    assert sorted(nodes(story, "owner")) == ["gpu-3", "gpu-4"]


@KINDS
def test_a_gang_of_one_node_takes_it_too(kind: Any) -> None:
    story = site(kind, nodes=3)
    submit(story, "owner", 8, **RESEARCH)
    lose_nodes(story, "gpu-1")
    finish(story)
    assert (nodes(story, "owner"), story.status("owner").state) == (["gpu-3"], State.RUNNING)


@KINDS
@pytest.mark.parametrize("spec", [HIGH, {"queue": "other", **HIGH}], ids=["none", "other"])
def test_a_job_of_another_queue_takes_none(kind: Any, spec: dict[str, Any]) -> None:
    story = site(kind)
    submit(story, "owner", 16, **spec)
    lose_nodes(story, "gpu-2")
    finish(story)
    assert nodes(story, "owner") == ["gpu-1", "gpu-2"]
    assert refusal(story, "owner")[0] == "NodesLost"


@KINDS
def test_a_broken_gpu_is_replaced_there(kind: Any) -> None:
    story = site(kind)
    submit(story, "owner", 16, **RESEARCH)
    topology = story.objects["NodeTopology", "", "gpu-2"]
    topology["status"]["gpus"] = [
        {
            "index": 0,
            "uuid": "GPU-gpu-2-0",
            "state": "Unhealthy",
            "reasons": ["GPULost"],
            "since": "2026-11-21T10:00:00Z",
        }
    ]
    story.settle()
    finish(story)
    assert nodes(story, "owner") == ["gpu-1", "gpu-3"]


@KINDS
def test_pods_that_stay_in_place_get_a_new_one_there(kind: Any) -> None:
    story = running(kind, nodes=4, queue="research")
    label(story, "gpu-4")
    lose_nodes(story, "gpu-2")
    finish(story)
    assert (nodes(story, "train"), story.status("train").attempt) == (["gpu-1", "gpu-4", "gpu-3"], 1)


@KINDS
def test_a_job_of_lower_priority_borrows_it_and_ends_when_a_job_of_the_queue_needs_it(kind: Any) -> None:
    story = site(kind)
    submit(story, "owner", 16, **RESEARCH)
    submit(story, "low")
    assert (nodes(story, "low"), story.status("low").state) == (["gpu-3"], State.RUNNING)
    words = (
        "gpu-3 is a spare node of queue research, whose jobs take it back when they lose a node: the job then waits "
        "again"
    )
    assert story.notices[-1].note == f"8 GPUs on gpu-3; {words}"
    assert placed(story, "low") == f"booked on gpu-3; lent: {words}"
    lose_nodes(story, "gpu-2")
    (ended,) = story.status("low").attempts
    assert (ended.reason, ended.charged) == ("Preempted", False)
    assert ended.message is not None
    assert ended.message.startswith(
        "makes room for team-b/owner, which has lost nodes, and takes back spare nodes that"
    )
    assert refusal(story, "owner") == (
        "NodesLost",
        "it lost gpu-2 and holds 1 node of 2; jobs that its spare nodes were lent to make room for it",
    )
    finish(story)
    assert (nodes(story, "owner"), story.status("owner").state) == (["gpu-1", "gpu-3"], State.RUNNING)
    assert refusal(story, "low")[0] == "InsufficientGPUs"


@KINDS
def test_other_nodes_are_taken_before_one_is_borrowed(kind: Any) -> None:
    story = site(kind, nodes=4)
    submit(story, "owner", 16, **RESEARCH)
    submit(story, "low")
    submit(story, "other")
    assert (nodes(story, "low"), nodes(story, "other")) == (["gpu-3"], ["gpu-4"])


@KINDS
def test_a_free_node_is_taken_before_a_borrower_has_to_end(kind: Any) -> None:
    story = site(kind, nodes=4)
    submit(story, "owner", 16, **RESEARCH)
    submit(story, "filler")
    submit(story, "low")
    assert (nodes(story, "filler"), nodes(story, "low")) == (["gpu-3"], ["gpu-4"])
    end(story, "filler")
    lose_nodes(story, "gpu-2")
    assert (nodes(story, "owner"), nodes(story, "low")) == (["gpu-1", "gpu-3"], ["gpu-4"])


@KINDS
def test_nobody_ends_for_a_gang_of_one_node_that_fits_on_a_free_one(kind: Any) -> None:
    story = site(kind)
    submit(story, "owner", 8, **RESEARCH)
    submit(story, "filler")
    submit(story, "low")
    assert (nodes(story, "filler"), nodes(story, "low")) == (["gpu-2"], ["gpu-3"])
    end(story, "filler")
    lose_nodes(story, "gpu-1")
    finish(story)
    assert (nodes(story, "owner"), nodes(story, "low")) == (["gpu-2"], ["gpu-3"])
    assert not story.status("low").attempts


def test_nobody_ends_for_a_gang_that_fits_on_free_nodes_of_its_nvlink_domain() -> None:
    trays = dra_nodes("t-1", "t-2", "t-3", "t-4", gpus=4, **{"nvidia.com/gpu.clique": "c0ffee.1"})
    story = Story(*trays, device_class(IMEX_CHANNELS), priority_class("high", 100))
    label(story, "t-4")
    submit(story, "owner", 8, parallelism={"tensor": 8}, topology={"nvlink": "Required"}, **RESEARCH)
    submit(story, "filler", 4)
    submit(story, "low", 4)
    assert (nodes(story, "owner"), nodes(story, "low")) == (["t-1", "t-2"], ["t-4"])
    end(story, "filler")
    lose_nodes(story, "t-2")
    finish(story)
    assert (nodes(story, "owner"), nodes(story, "low")) == (["t-1", "t-3"], ["t-4"])
    assert not story.status("low").attempts


@pytest.mark.parametrize(
    ("owner", "borrower"),
    [
        pytest.param(RESEARCH, HIGH, id="equal"),
        pytest.param(RESEARCH, {"priorityClassName": "top"}, id="higher"),
        pytest.param({**RESEARCH, "priorityClassName": "meek"}, {}, id="an owner that may end nobody"),
        pytest.param(HIGH, {}, id="no job of the queue"),
    ],
)
def test_it_is_lent_to_none_that_no_job_of_the_queue_could_end(owner: dict[str, Any], borrower: dict[str, Any]) -> None:
    story = site()
    submit(story, "owner", 16, **owner)
    submit(story, "other", **borrower)
    assert "gpu-3" not in nodes(story, "other")


def test_it_is_lent_by_all_jobs_of_the_queue_or_not_at_all() -> None:
    story = site(nodes=4)
    submit(story, "owner", 16, **RESEARCH)
    submit(story, "small", queue="research")
    assert nodes(story, "small") == ["gpu-3"]
    submit(story, "low")
    assert nodes(story, "low") == [], "small could not end it"
    end(story, "small")
    begin(story)
    assert nodes(story, "low") == ["gpu-3"]
    submit(story, "other")
    assert nodes(story, "other") == ["gpu-4"]


def test_a_job_of_the_queue_borrows_as_any_other() -> None:
    story = site()
    submit(story, "owner", 16, **RESEARCH)
    submit(story, "small", queue="research")
    assert nodes(story, "small") == ["gpu-3"]
    lose_nodes(story, "gpu-2")
    finish(story)
    assert (nodes(story, "owner"), nodes(story, "small")) == (["gpu-1", "gpu-3"], [])


def test_no_more_of_many_borrowers_end_than_have_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("closeknit.scheduling.victims.borrowers.MOST_SPARED", 2)
    story = site(nodes=7, spares=5)
    submit(story, "owner", 16, **RESEARCH)
    lows = [f"low-{number}" for number in range(5)]
    for low in lows:
        submit(story, low)
    lose_nodes(story, "gpu-2")
    assert sorted(len(story.status(low).attempts) for low in lows) == [0, 0, 0, 0, 1]
    finish(story)
    assert story.status("owner").state is State.RUNNING


@KINDS
def test_jobs_that_lose_nodes_at_once_take_them_back_at_once(kind: Any) -> None:
    story = site(kind, nodes=7, spares=3)
    submit(story, "one", 16, **RESEARCH)
    submit(story, "two", 16, **RESEARCH)
    lows = ("low-1", "low-2", "low-3")
    for low in lows:
        submit(story, low)
    lose_nodes(story, "gpu-2", "gpu-4")
    assert sorted(len(story.status(low).attempts) for low in lows) == [0, 1, 1]
    finish(story)
    assert [story.status(name).state for name in ("one", "two")] == [State.RUNNING, State.RUNNING]


@KINDS
def test_what_one_borrower_leaves_is_enough_for_two_jobs_that_lose_nodes_at_once(kind: Any) -> None:
    story = site(kind, nodes=7, spares=3)
    submit(story, "one", 16, **RESEARCH)
    submit(story, "two", 16, **RESEARCH)
    submit(story, "small")
    story.pass_time(300)
    submit(story, "large", 16)
    lose_nodes(story, "gpu-2", "gpu-4")
    assert [len(story.status(name).attempts) for name in ("small", "large")] == [0, 1]
    finish(story)
    assert [story.status(name).state for name in ("one", "two", "small")] == [State.RUNNING] * 3


def test_nothing_is_lent_while_a_job_of_the_queue_waits_for_other_nodes() -> None:
    story = site(nodes=4)
    submit(story, "owner", 24, **RESEARCH)
    story.silence("gpu-3", Quiet.OVERDUE)  # nothing is done until it is known whether that is lost, too
    lose_nodes(story, "gpu-2")
    assert nodes(story, "owner") == ["gpu-1", "gpu-2", "gpu-3"]
    submit(story, "low")
    assert nodes(story, "low") == []
    story.pass_time(11)
    begin(story)
    assert (nodes(story, "owner"), nodes(story, "low")) == (["gpu-1", "gpu-4", "gpu-3"], [])


@KINDS
@pytest.mark.parametrize("spec", [{}, RESEARCH], ids=["other", "queue"])
def test_a_label_ends_nothing_and_counts_for_what_comes_next(kind: Any, spec: dict[str, Any]) -> None:
    story = site(kind, nodes=2, spares=0)
    submit(story, "train", 16, restart={"limit": 2}, **spec)
    written = len(story.written)
    label(story, "gpu-2")
    begin(story)
    assert (nodes(story, "train"), len(story.written)) == (["gpu-1", "gpu-2"], written)
    label(story, "gpu-2", None)
    begin(story)
    assert (nodes(story, "train"), len(story.written)) == (["gpu-1", "gpu-2"], written)
    label(story, "gpu-2")
    end_trainer(story, 0)
    story.settle()
    finish(story)
    story.pass_time(300)
    begin(story)
    assert (nodes(story, "train"), story.status("train").attempt) == (["gpu-1", "gpu-2"], 2)
    end(story, "train")
    submit(story, "next", 16)
    assert nodes(story, "next") == []
    label(story, "gpu-2", None)
    begin(story)
    assert nodes(story, "next") == ["gpu-1", "gpu-2"]


@KINDS
def test_a_node_that_others_leave_to_a_job_may_be_labelled_meanwhile(kind: Any) -> None:
    story = site(kind, nodes=2, spares=0)
    submit(story, "one")
    submit(story, "two")
    submit(story, "urgent", **HIGH)
    (left,) = nodes(story, "urgent")
    label(story, left)
    story.settle()
    finish(story)
    assert (nodes(story, "urgent"), story.status("urgent").state) == ([left], State.RUNNING)
    assert [len(story.status(name).attempts) for name in ("one", "two")] == [1, 0]


def test_a_node_that_a_gang_keeps_may_be_labelled_when_it_loses_another() -> None:
    story = site(nodes=3, spares=0)
    submit(story, "train", 16)
    label(story, "gpu-1")
    lose_nodes(story, "gpu-2")
    assert nodes(story, "train") == ["gpu-1", "gpu-3"]


def test_a_spare_of_a_job_stays_its_own_when_its_node_is_labelled() -> None:
    story = site(nodes=3, spares=0)
    submit(story, "train", 16, spares=1)
    label(story, "gpu-3", "other")
    lose_nodes(story, "gpu-2")
    assert nodes(story, "train") == ["gpu-1", "gpu-3"]


@pytest.mark.parametrize("value", ["", "-", "two words", "ä", "x" * 64, "research\n"])
def test_what_names_no_queue_is_no_label(value: str) -> None:
    story = site(queue=value)
    submit(story, "train", 24, queue=value[:63] or None)
    assert nodes(story, "train") == ["gpu-1", "gpu-2", "gpu-3"]


def test_many_queues_are_only_counted() -> None:
    story = site(nodes=9, spares=8)
    for number in range(2, 10):
        label(story, f"gpu-{number}", f"{number}" + "q" * 62)
    submit(story, "train", 24)
    assert refusal(story, "train")[1] == ("needs 24 GPUs; 8 are free on 1 node; 8 nodes excluded: 8 spare for 8 queues")


@KINDS
def test_an_operator_that_starts_again_between_writes_goes_on(kind: Any) -> None:
    story = site(kind)
    submit(story, "owner", 16, **RESEARCH)
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
    finish(story)
    assert (nodes(story, "owner"), nodes(story, "low")) == (["gpu-1", "gpu-3"], [])


def test_the_overview_counts_it_as_held() -> None:
    story = site()
    told = summary(story.cluster, fragmentation(story.cluster, Tables()), story.now, "")
    assert (told.gpus.free, told.gpus.held, told.largest_gang) == (16, 8, 16)
    assert [(each.gpus, each.free_gpus) for each in levels_of(story.cluster)] == [(24, 16)]


def test_the_spare_nodes_of_a_queue_follow_its_labels() -> None:
    story = site(nodes=4, spares=2)
    followed = Followed()
    for node, queue in (("gpu-4", "other"), ("gpu-3", None), ("gpu-1", "other"), ("gpu-4", None), ("gpu-1", "")):
        before = followed.of(story.objects, story.now)
        assert before.queue_spares == story.cluster.queue_spares
        label(story, node, queue)
        after = followed.of(story.objects, story.now)
        assert (after.queue_spares, after.forest) == (story.cluster.queue_spares, story.cluster.forest)
        assert before.forest.empty != after.forest.empty, "for no job that has not lost a node it could ever be free"
    del story.objects["Node", "", "gpu-2"]
    assert not followed.of(story.objects, story.now).queue_spares
