"""A gang that hangs, by the words of its sidecars: what is told of it, and how it starts again."""

import json
from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from scenarios.stories import conditions, two_plugin_nodes
from scenarios.story import Story

PODS = ("train-a1-worker-00000", "train-a1-worker-00001")
RESTARTS = {"limit": 2, "stallDeadline": "10m"}
SILENT = {"stillSeconds": 41, "silent": True, "ranks": [{"index": 1, "host": "10.244.2.7", "local": 3}]}


def containers(sidecar_said: str = "", barrier: dict[str, Any] | None = None) -> dict[str, list[dict[str, Any]]]:
    last = {"terminated": {"exitCode": 78, "message": sidecar_said}} if sidecar_said else {}
    ended = {"terminated": {"exitCode": 0, "message": json.dumps(barrier or {"run": 0})}}
    return {
        "initContainerStatuses": [{"name": "closeknit-barrier", "state": ended}],
        "containerStatuses": [
            {"name": "trainer", "state": {"running": {}}},
            {"name": "closeknit-sidecar", "state": {"running": {}}, "lastState": last},
        ],
    }


def running(**restart: Any) -> Story:
    story = two_plugin_nodes(restart={**RESTARTS, **restart})
    story.settle()
    story.run_all()
    for pod in PODS:
        story.change_pod(pod, **containers())
    story.settle()
    assert story.status().state is State.RUNNING
    return story


def degraded(story: Story) -> tuple[str, str, str]:
    (found,) = (each for each in story.status().conditions if each.type == "Degraded")
    return found.status, found.reason, found.message or ""


def say(story: Story, hang: dict[str, Any] | None, run: int = 0) -> None:
    said = json.dumps({"run": run, "hang": hang})
    story.change_pod(PODS[0], **containers(said))
    story.settle()


def test_the_rank_is_named_with_its_gpu_and_its_node_and_nothing_ends() -> None:
    story = running()
    say(story, SILENT)
    status, reason, words = degraded(story)
    assert (status, reason) == ("True", "Hangs")
    assert words.startswith(
        "the gang hangs: rank 11 (GPU 3 of node gpu-2) does not answer, and no rank called a collective for 41 s; "
        "restart.onHang: Restart would start it again"
    )
    assert story.status().state is State.RUNNING
    assert story.status().attempts == []
    assert [str(each.reason) for each in story.notices][-1] == "Hangs"
    say(story, None)
    assert "the gang hangs" not in degraded(story)[2]


@pytest.mark.parametrize(
    ("hang", "words"),
    [
        ({**SILENT, "silent": False}, "rank 11 (GPU 3 of node gpu-2) is behind the others"),
        ({**SILENT, "ranks": [{"local": 3, "host": "10.9.9.9"}]}, "local rank 3 of the Pod with the address 10.9.9.9"),
        ({**SILENT, "ranks": [{"index": 77, "local": 0, "host": "h"}]}, "local rank 0 of the Pod with the address h"),
        ({"stillSeconds": 700, "stalled": 1}, "the Pod of node gpu-2 made no progress for 700 s by its file"),
    ],
)
def test_what_is_told_of_it(hang: dict[str, Any], words: str) -> None:
    story = running()
    say(story, hang)
    assert words in degraded(story)[2]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "[]",
        "nonsense",
        '{"run": 0, "hang": 7}',
        '{"run": 0, "hang": {"stillSeconds": "x"}}',
        json.dumps({"run": 1, "hang": SILENT}),
        json.dumps({"run": 0, "hang": {**SILENT, "ranks": []}}),
        json.dumps({"run": 0, "hang": {**SILENT, "stillSeconds": -1}}),
        json.dumps({"run": 0, "hang": {**SILENT, "stillSeconds": 10**23}}),
        json.dumps({"run": 0, "hang": {**SILENT, "at": 10**23}}),
        json.dumps({"run": 0, "hang": {**SILENT, "at": -1}}),
    ],
)
def test_words_that_cannot_be_read_or_are_of_another_run_say_nothing(said: str) -> None:
    story = running()
    before = story.status()
    story.change_pod(PODS[0], **containers(said))
    story.settle()
    assert story.status() == before


def test_a_hung_gang_that_has_started_again_is_charged_and_the_rank_is_named() -> None:
    story = running(onHang="Restart")
    story.change_pod(PODS[0], **containers(barrier={"run": 1, "hang": SILENT}))
    story.change_pod(PODS[1], **containers(barrier={"run": 1}))
    story.settle()
    (ended,) = story.status().attempts
    assert (ended.number, ended.reason, ended.charged, ended.in_place) == (1, "Hung", True, True)
    assert "rank 11 (GPU 3 of node gpu-2) does not answer" in (ended.message or "")
    assert story.status().attempt == 1
    assert story.status().restarts == 1
    assert story.pods() == list(PODS)
    assert conditions(story)["Placed"] == "True"


def test_without_a_sidecar_a_deadline_for_progress_means_nothing_and_that_is_told() -> None:
    story = two_plugin_nodes(restart=RESTARTS)
    story.settle()
    assert degraded(story)[0] == "True"
    assert "restart.stallDeadline means nothing: no progress is seen, because" in degraded(story)[2]


def test_a_hang_was_noticed_late_and_the_time_before_is_no_training() -> None:
    story = running(onHang="Restart")
    story.pass_time(600)
    hung_at = story.now.timestamp() - 50
    hang = {**SILENT, "at": hung_at + 41}
    story.change_pod(PODS[0], **containers(barrier={"run": 1, "hang": hang}))
    story.change_pod(PODS[1], **containers(barrier={"run": 1}))
    story.settle()
    (ended,) = story.status().attempts
    assert (ended.ran, ended.phases and ended.phases.detect) == ("550s", "50s")
