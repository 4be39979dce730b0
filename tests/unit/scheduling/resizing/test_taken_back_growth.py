"""A growth in place whose new Pods are refused after the dry run: it is taken back, and the ranks train on."""

from typing import Any

import pytest

from closeknit.api.reasons import EventReason
from closeknit.api.trainingjob_status import PlacementStatus, State, TrainingJobStatus
from scenarios.restarting_gangs import allow, begins, together, waits
from scenarios.stories import lose_nodes, nodes, placement
from scenarios.story import Story, dra_node, plugin_node
from unit.scheduling.resizing.test_growth_in_place import ADDED, KINDS, WORKERS, ends, grow, of_train, size_of, small

POLICY = 'admission webhook "limits.example" denied the request: no Pod of the night'
SECOND = "train-a1-worker-00004-r1"
MINUTE = 60

pytestmark = pytest.mark.usefixtures("no_mistakes")


def refusing(kind: Any = plugin_node, *refused: str, **spec: Any) -> Story:
    """A small job that is about to grow, whose added Pods pass the dry run and are refused all the same."""
    story = small(kind, **spec)
    story.forbidden |= dict.fromkeys(refused or (ADDED,), POLICY)
    story.passing_on_trial = True
    return story


def without_room(status: TrainingJobStatus) -> TrainingJobStatus:
    """What is to be as it was before: all but the room to grow, and the words that speak of it."""
    assert status.placement is not None
    placed: PlacementStatus = status.placement.model_copy(update={"room": None})
    return status.model_copy(update={"placement": placed, "message": None, "conditions": []})


def told(status: TrainingJobStatus) -> list[tuple[str, str, str]]:
    return [(each.type, each.status, each.message) for each in status.conditions]


@KINDS
def test_it_trains_on_as_it_was_and_says_why(kind: Any) -> None:
    story = refusing(kind)
    before = story.status()
    grow(story)
    after = story.status()
    assert without_room(after) == without_room(before)
    assert told(after) == told(before)
    assert [each.last_transition_time for each in after.conditions if each.type == "Running"] == [
        each.last_transition_time for each in before.conditions if each.type == "Running"
    ]
    room = placement(story).room
    assert room is not None
    assert (room.gpus, room.refused) == (32, f"the API server refuses Pod team-b/{ADDED}: {POLICY}")
    assert of_train(story) == WORKERS
    assert size_of(story, WORKERS[0]) == "3 24"
    notices = [each for each in story.notices if each.reason == EventReason.RESIZE_REFUSED]
    assert [each.note for each in notices] == [f"it goes on with 24 of its 32 GPUs: {room.refused}"]


def test_its_levels_and_its_bandwidth_are_those_of_before() -> None:
    story = refusing(racks="abcd")
    before = placement(story)
    assert before.levels == {"rack": 3}
    grow(story)
    assert placement(story) == before.model_copy(update={"room": placement(story).room})


def test_the_time_in_which_it_was_booked_is_no_lost_time() -> None:
    """A webhook fails first, and refuses the Pod half a minute later."""
    story = refusing()
    story.forbidden.clear()
    story.pass_time(5 * MINUTE)
    while not placement(story).swapping:
        story.write_once()
    story.failing = "failed calling webhook"
    for _ in range(6):
        story.pass_time(5)
        story.write_once()
    assert (story.status().state, size_of(story, WORKERS[0])) == (State.STARTING, "3 24")
    story.failing, story.forbidden = None, {ADDED: POLICY}
    story.settle()
    lost = story.status().cost
    assert story.status().state is State.RUNNING
    story.pass_time(5 * MINUTE)
    story.forbidden.clear()
    story.settle()
    cost = story.status().cost
    assert lost is not None
    assert cost is not None
    assert set(lost.lost_gpu_seconds) == set(cost.lost_gpu_seconds) == {"Starting"}
    assert cost.trained_seconds == (5 * MINUTE + 30 + 5 * MINUTE) * 24 // 32


def test_it_is_tried_again_by_the_same_back_off_and_told_once() -> None:
    story = refusing()
    tries = []
    for _ in range(20):
        grow(story)
        tries.append(len([each for each in story.written if each.startswith("resize")]))
        story.pass_time(5 * MINUTE)
    booked = sum(1 for each in story.written if each == "status Starting")
    assert 3 <= booked <= 6  # in three hours
    assert tries[-1] == 0
    assert [each.reason for each in story.notices].count(EventReason.RESIZE_REFUSED) == 1
    assert (story.status().restarts or 0, story.status().attempts) == (0, [])
    story.forbidden.clear()
    story.pass_time(60 * MINUTE)
    story.settle()
    together(story, 1)
    assert (story.status().state, placement(story).gpus, story.status().restarts) == (State.RUNNING, None, 1)
    assert [each.reason for each in story.status().attempts] == ["Grown"]


def test_after_a_growth_that_came_about_the_pauses_begin_again() -> None:
    story = refusing(gpus=40)
    grow(story)
    story.forbidden.clear()
    grow(story)
    together(story, 1)
    assert placement(story).gpus == 32
    assert [each.refused_change for each in story.answers.values() if each.refused_change is not None] == []


def test_an_edit_of_the_job_has_it_asked_again_at_once() -> None:
    story = refusing()
    story.pass_time(5 * MINUTE)
    while not placement(story).swapping:
        story.write_once()
    story.write_once()  # refused
    story.forbidden.clear()
    story.edit_job(expectedDuration="30h")
    story.settle()
    assert (placement(story).swapping, ADDED in story.pods()) == (True, True)


def with_the_second_refused(kind: Any) -> Story:
    """A job that grows by two nodes: the first added Pod is there, and the second is to be refused."""
    story = refusing(kind, SECOND, gpus=40, number=4)
    for each in kind("gpu-5"):
        story.add(each)
    allow(story)
    story.settle()
    story.pass_time(5 * MINUTE)
    while ADDED not in story.pods():
        story.write_once()
    story.run_all()
    return story


@KINDS
def test_what_was_made_before_the_refusal_goes_and_its_gpus_are_taken_until_then(kind: Any) -> None:
    """Of two added Pods the second is refused. The first is on its node, whose kubelet takes its time."""
    story = with_the_second_refused(kind)
    story.dead.add(story.pod(ADDED)["spec"]["nodeName"])
    story.settle()
    assert (placement(story).gpus, story.status().state) == (24, State.RUNNING)
    assert "deletionTimestamp" in story.pod(ADDED)["metadata"]
    node = story.pod(ADDED)["spec"]["nodeName"]
    view = story.cluster.nodes[node]
    assert len([holder for holder in view.holders.values() if holder is not None]) == 8
    story.forbidden.clear()
    story.pass_time(30 * MINUTE)
    story.settle()
    assert placement(story).gpus == 24  # its name is needed
    story.dead.clear()
    story.remove_pod(ADDED)
    story.settle()
    story.pass_time(5 * MINUTE)
    story.settle()
    assert (placement(story).gpus, story.status().attempt) == (None, 1)
    together(story, 1)
    assert story.status().state is State.RUNNING


def test_what_waits_already_is_deleted_and_not_kept() -> None:
    story = with_the_second_refused(plugin_node)
    waits(story, ADDED)
    story.settle()
    assert of_train(story) == WORKERS
    assert story.status().state is State.RUNNING


@pytest.mark.parametrize("refused", [f"ResourceClaim {ADDED}"])
def test_a_claim_that_is_refused_takes_its_pod_with_it(refused: str) -> None:
    story = refusing(dra_node, refused)
    grow(story)
    assert (of_train(story), story.names("ResourceClaim")) == (WORKERS, WORKERS)
    assert story.status().state is State.RUNNING


def test_what_a_webhook_fails_at_for_long_is_taken_back() -> None:
    story = small()
    story.pass_time(5 * MINUTE)
    while not placement(story).swapping:
        story.write_once()
    story.failing = "failed calling webhook"
    for _ in range(60):
        story.pass_time(5)
        story.write_once()
    room = placement(story).room
    assert (story.status().state, placement(story).gpus) == (State.RUNNING, 24)
    assert room is not None
    assert "failed calling webhook" in (room.refused or "")


def test_the_pods_are_told_the_size_once_all_new_ones_are_there() -> None:
    story = small(dra_node, gpus=40)
    for each in dra_node("gpu-5"):
        story.add(each)
    allow(story)
    story.settle()
    grow(story)
    changes = [each for each in story.written if not each.startswith("status") and "Service" not in each]
    assert (len(changes), changes[-1]) == (5, f"resize Pod {WORKERS[0]}")


def test_a_rank_that_failed_meanwhile_is_a_failure_of_its_own() -> None:
    story = refusing()
    story.pass_time(5 * MINUTE)
    while not placement(story).swapping:
        story.write_once()
    for pod in WORKERS:
        waits(story, pod)
    for pod in WORKERS:
        begins(story, pod, 1, code=1 if pod == WORKERS[1] else None)
    story.settle()
    status = story.status()
    assert [(each.reason, each.in_place, each.charged) for each in status.attempts] == [("PodFailed", True, True)]
    assert (status.attempt, status.restarts, status.state, placement(story).run) == (1, 1, State.RUNNING, 1)


def test_a_node_that_is_lost_meanwhile_is_replaced_in_the_gang_of_before() -> None:
    story = refusing(number=5, other=16)
    story.pass_time(5 * MINUTE)
    while not placement(story).swapping:
        story.write_once()
    story.write_once()  # refused
    lost = nodes(story)[1]
    lose_nodes(story, lost)
    assert (placement(story).gpus, placement(story).replaced, lost in nodes(story)) == (24, {"1": 1}, False)
    together(story, 1)
    status = story.status()
    assert [each.reason for each in status.attempts] == ["NodeLost"]
    assert (status.state, status.attempt, status.restarts) == (State.RUNNING, 1, 1)


def test_ranks_that_end_well_meanwhile_end_the_job_well() -> None:
    story = refusing()
    story.pass_time(5 * MINUTE)
    while not placement(story).swapping:
        story.write_once()
    story.write_once()  # refused
    for pod in WORKERS:
        ends(story, pod)
        story.remove_pod(pod)
    status = story.status()
    assert (status.state, status.restarts) == (State.SUCCEEDED, 0)
    assert [(each.reason, each.message) for each in status.attempts] == [
        ("Succeeded", "all 3 Pods ended with exit code 0")
    ]


def test_a_refusal_after_the_size_was_told_is_one_of_the_job() -> None:
    """Its Pods never become smaller again: somebody has deleted the added Pod, and a policy is new."""
    story = small()
    grow(story)
    assert size_of(story, WORKERS[0]) == "4 32"
    story.forbidden[ADDED] = POLICY
    story.remove_pod(ADDED)
    story.pass_time(MINUTE)
    story.settle()
    assert story.status().placement is None


def test_where_a_node_is_not_told_of_its_bandwidth_is_unknown() -> None:
    story = refusing()
    before = placement(story).limited_by
    story.pass_time(5 * MINUTE)
    while not placement(story).swapping:
        story.write_once()
    gone = nodes(story)[1]
    story.write_once()  # refused
    topology = story.objects.pop(("NodeTopology", "", gone))
    story.write_once()
    assert (placement(story).gpus, placement(story).limited_by) == (24, None)
    story.objects["NodeTopology", "", gone] = topology
    assert before is not None
