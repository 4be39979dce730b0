"""Gangs that start again, or do not, after an end of their own."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import EndedAttempt, LostTime, State
from closeknit.lifecycle.status.conditions import timestamp
from scenarios.manifests import node
from scenarios.stories import booked_nodes, disruption, end_trainer, ended, two_plugin_nodes
from scenarios.story import Story, plugin_node

FIRST, SECOND = 0, 1


def started(**spec: Any) -> Story:
    """Two nodes of eight GPUs, and a job that runs on both for two minutes."""
    story = two_plugin_nodes(**spec)
    run(story)
    story.pass_time(120)
    return story


def run(story: Story, *, after_s: float = 0) -> None:
    """All Pods run after so many seconds."""
    story.settle()
    story.pass_time(after_s)
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING


def crash(story: Story, code: int = 1, **words: Any) -> None:
    """A rank ends with an error, and the operator does what there is to do."""
    end_trainer(story, SECOND, code, **words)
    story.settle()


def last(story: Story) -> EndedAttempt:
    return story.status().attempts[-1]


def phases(story: Story) -> dict[str, str]:
    made = last(story).phases
    assert made is not None
    return made.wire()


def cost(story: Story) -> LostTime:
    found = story.status().cost
    assert found is not None
    return found


def over(story: Story) -> tuple[State | None, str]:
    return story.status().state, last(story).reason


def test_without_a_restart_policy_a_crash_ends_the_job() -> None:
    story = started()
    crash(story)
    assert over(story) == (State.FAILED, "PodFailed")
    assert (story.status().restarts, story.status().charges) == (0, None)


def test_a_crash_starts_the_gang_again_on_the_same_nodes_in_new_pods() -> None:
    story = started(restart={"limit": 2})
    before = [(each.name, each.gpus) for each in booked_nodes(story)]
    crash(story)
    assert ended(story) == [(1, "PodFailed", True)]
    assert [(each.name, each.gpus) for each in booked_nodes(story)] == before
    assert (story.status().state, story.status().attempt, story.status().restarts) == (State.STARTING, 2, 1)
    assert {"train-a2-worker-00000", "train-a2-worker-00001"} <= set(story.pods())
    run(story)
    assert (story.status().state, story.status().restarts) == (State.RUNNING, 1)


def test_the_end_tells_what_failed_and_what_is_charged() -> None:
    story = started(restart={"limit": 2, "window": "1h"})
    crash(story, 3, message="CUDA error")
    assert last(story).message == (
        "container trainer of Pod train-a1-worker-00001 on node gpu-2 ended with exit code 3: CUDA error; the job "
        "starts again, charged: 1 of 2 within 1h"
    )
    notice = story.notices[-1]
    assert (notice.reason, notice.action, notice.note) == ("PodFailed", "Restart", last(story).message)
    assert story.status().charges == [timestamp(story.now)]


def test_past_its_limit_the_job_fails_with_what_it_said_last() -> None:
    story = started(restart={"limit": 1})
    crash(story, 3)
    run(story)
    story.pass_time(120)
    crash(story, 4)
    assert over(story) == (State.FAILED, "RestartLimitExceeded")
    assert last(story).message == (
        "container trainer of Pod train-a2-worker-00001 on node gpu-2 ended with exit code 4; it has started again "
        "once within 24h, which is as often as restart.limit allows; before: exit code 3"
    )
    assert (story.status().restarts, story.notices[-1].reason) == (1, "RestartLimitExceeded")
    story.end_stopped()
    story.settle()
    assert not [name for name in story.pods() if story.pod(name)["status"]["phase"] == "Running"]


def test_a_limit_forgives_what_is_older_than_its_window() -> None:
    story = started(restart={"limit": 1, "window": "1h"})
    for _ in range(3):
        crash(story)
        run(story)
        story.pass_time(3601)
    crash(story)
    assert [each[1:] for each in ended(story)] == [("PodFailed", True)] * 4
    assert story.status().charges == [timestamp(story.now)]
    run(story)
    story.pass_time(120)
    crash(story)
    assert over(story) == (State.FAILED, "RestartLimitExceeded")


def test_a_gang_that_dies_at_once_again_and_again_ends_before_its_limit() -> None:
    story = two_plugin_nodes(restart={"limit": 100})
    for pause_s in (0, 2):
        story.pass_time(pause_s)
        run(story)
        story.pass_time(5)
        crash(story)
    story.pass_time(2)
    run(story)
    story.pass_time(5)
    crash(story)
    assert over(story) == (State.FAILED, "NoProgress")
    assert [each.ran for each in story.status().attempts] == ["5s", "5s", "5s"]


def test_a_gang_that_dies_before_all_its_ranks_run_makes_no_progress_either() -> None:
    story = two_plugin_nodes(restart={"limit": 100})
    for pause_s in (0, 2, 4):
        story.settle()
        story.pass_time(pause_s)
        story.settle()
        if story.status().state is State.FAILED:
            break
        end_trainer(story, FIRST)
        story.settle()
    assert over(story) == (State.FAILED, "NoProgress")
    assert [each.ran for each in story.status().attempts] == [None, None, None]


def test_restarts_in_quick_succession_wait_longer_each_time() -> None:
    story = started(restart={"limit": 9})
    crash(story)
    assert "train-a2-worker-00000" in story.pods()
    run(story)
    story.pass_time(61)
    crash(story)
    assert "train-a3-worker-00000" not in story.pods()
    story.pass_time(2)
    story.settle()
    assert "train-a3-worker-00000" in story.pods()


@pytest.mark.parametrize(
    ("action", "state", "charged"),
    [("Fail", State.FAILED, True), ("Restart", State.STARTING, True), ("RestartFree", State.STARTING, False)],
)
def test_a_rule_decides_by_the_exit_code(action: str, state: State, charged: bool) -> None:
    story = started(restart={"limit": 1, "rules": [{"exitCodes": [42], "action": action}]})
    crash(story, 42)
    assert story.status().state is state
    assert ended(story) == [(1, "PodFailed", charged)]


def test_the_earliest_exit_is_the_cause_and_not_those_that_died_of_it() -> None:
    story = started(restart={"limit": 1, "rules": [{"exitCodes": [42], "action": "Fail"}]})
    end_trainer(story, FIRST, 1, ago_s=2, message="NCCL: connection closed by peer")
    end_trainer(story, SECOND, 42, ago_s=5, message="the licence is gone")
    story.settle()
    assert over(story) == (State.FAILED, "PodFailed")
    assert [(each.pod, each.exit_code, each.message) for each in last(story).exits or ()] == [
        ("train-a1-worker-00001", 42, "the licence is gone"),
        ("train-a1-worker-00000", 1, "NCCL: connection closed by peer"),
    ]


def test_of_two_that_end_in_one_second_a_signal_is_not_the_cause() -> None:
    story = started(restart={"limit": 1})
    end_trainer(story, FIRST, 137)
    end_trainer(story, SECOND, 3)
    story.settle()
    assert [each.exit_code for each in last(story).exits or ()] == [3, 137]


def test_a_launcher_decides_over_those_whom_it_launches() -> None:
    story = started(framework="MPI", restart={"limit": 1, "rules": [{"exitCodes": [42], "action": "Fail"}]})
    end_trainer(story, SECOND, 255, ago_s=9)
    end_trainer(story, FIRST, 42)
    story.settle()
    assert over(story) == (State.FAILED, "PodFailed")


def test_want_of_memory_is_told_in_the_last_words() -> None:
    story = started(restart={"limit": 1})
    crash(story, 137, reason="OOMKilled")
    (only,) = [each.wire() for each in last(story).exits or []]
    assert only == {"pod": "train-a1-worker-00001", "node": "gpu-2", "exitCode": 137, "reason": "OOMKilled"}


def test_last_words_are_bounded() -> None:
    nodes = [part for number in range(10) for part in plugin_node(f"gpu-{number}", gpus=1)]
    story = two_plugin_nodes(gpus=10, restart={"limit": 1})
    for part in nodes:
        story.add(part)
    story.edit_job(topology={"gpusPerNode": 1})
    run(story)
    for index in range(10):
        end_trainer(story, index, message="a" * 5000 + "\x1b[31m", reason="R" * 500)
    story.settle()
    exits = last(story).exits or []
    assert len(exits) == 8
    assert all(len(each.message or "") <= 256 and len(each.reason or "") <= 64 for each in exits)


def test_what_the_job_has_not_caused_is_not_charged() -> None:
    story = started(restart={"limit": 0})
    mark = {**disruption("EvictionByEvictionAPI", "a drain"), "lastTransitionTime": timestamp(story.now)}
    story.pass_time(3)
    end_trainer(story, FIRST, 1)
    end_trainer(story, SECOND, 143)
    story.change_pod("train-a1-worker-00001", conditions=[mark])
    story.settle()
    assert ended(story) == [(1, "Disrupted", False)]
    assert (story.status().charges, story.status().restarts, phases(story)["detect"]) == (None, 1, "3s")


def test_a_gang_whose_node_is_no_longer_fit_starts_again_elsewhere() -> None:
    story = started(restart={"limit": 1})
    for part in plugin_node("gpu-3"):
        story.add(part)
    story.add(node("gpu-2", gpus=8, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]))
    crash(story)
    assert ended(story) == [(1, "PodFailed", True)]
    assert sorted(each.name for each in booked_nodes(story)) == ["gpu-1", "gpu-3"]


def test_a_restart_tells_how_long_each_phase_took() -> None:
    story = started(restart={"limit": 1})
    end_trainer(story, SECOND, ago_s=4)
    story.settle()
    assert phases(story) == {"detect": "4s", "decide": "0s"}
    assert last(story).ran == "116s"
    run(story, after_s=9)
    assert phases(story) == {"detect": "4s", "decide": "0s", "free": "0s", "bind": "9s", "start": "0s"}
    notice = story.notices[-1]
    assert (notice.reason, notice.action, notice.warning) == ("Restarted", "Restart", False)
    assert notice.note == (
        "runs again 13 s after the fault (PodFailed): detect 4 s, decide 0 s, free 0 s, bind 9 s, start 0 s"
    )


def test_the_phases_of_a_job_that_waits_for_room_add_up() -> None:
    story = started(restart={"limit": 1})
    story.add(node("gpu-2", gpus=8, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]))
    end_trainer(story, SECOND, ago_s=4)
    story.settle()
    assert phases(story) == {"detect": "4s"}
    story.pass_time(100)
    story.add(node("gpu-2", gpus=8))
    story.settle()
    assert phases(story)["decide"] == "100s"
    run(story, after_s=6)
    assert sum(int(length[:-1]) for length in phases(story).values()) == 110


@pytest.mark.parametrize("wrong_s", [-86400, 86400])
def test_a_wrong_clock_of_a_node_leaves_phases_that_add_up(wrong_s: int) -> None:
    story = started(restart={"limit": 1})
    end_trainer(story, SECOND, ago_s=wrong_s)
    story.settle()
    run(story, after_s=6)
    wanted = {-86400: 6, 86400: 126}[wrong_s]  # no earlier than it began to run
    assert sum(int(length[:-1]) for length in phases(story).values()) == wanted


def test_the_time_that_trained_and_the_time_that_did_not_is_counted_by_cause() -> None:
    story = two_plugin_nodes(restart={"limit": 1})
    run(story, after_s=10)
    assert cost(story).wire() == {"trainedSeconds": 0, "lostGPUSeconds": {"Starting": 160}, "ettr": 0.0}
    story.pass_time(980)
    end_trainer(story, SECOND, ago_s=4)
    story.settle()
    assert cost(story).trained_seconds == 976
    run(story, after_s=6)
    assert cost(story).wire() == {
        "trainedSeconds": 976,
        "lostGPUSeconds": {"PodFailed": 160, "Starting": 160},
        "ettr": 0.9799,
    }


def test_time_is_counted_by_writes_that_are_made_anyway() -> None:
    story = started(restart={"limit": 1})
    written = list(story.written)
    for _ in range(5):
        story.pass_time(60)
        story.settle()
    assert story.written == written


def test_suspended_time_is_neither_trained_nor_lost() -> None:
    story = started(restart={"limit": 1})
    story.edit_job(suspend=True)
    story.settle()
    assert (cost(story).trained_seconds, cost(story).lost_gpu_seconds) == (120, {"Starting": 0})
    assert (story.status().start_time, story.status().restarts) == (None, 1)
    story.pass_time(86400)
    story.end_stopped()
    story.edit_job(suspend=False)
    run(story, after_s=5)
    assert (cost(story).trained_seconds, cost(story).lost_gpu_seconds) == (120, {"Starting": 80})
    assert last(story).phases is None


def test_a_booking_that_is_taken_back_has_begun_nothing() -> None:
    story = two_plugin_nodes()
    story.failing = None
    story.forbidden["train-a1-worker-00000"] = "no such image here"
    story.settle()
    assert story.status().start_time is None
    story.pass_time(3600)
    del story.forbidden["train-a1-worker-00000"]
    run(story)
    assert cost(story).lost_gpu_seconds == {"Starting": 0}
