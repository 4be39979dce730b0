"""What an elastic job declares is for all of its GPUs: with fewer it takes longer, costs less, and grows while that
pays."""

from typing import Any

import pytest

from closeknit.api.reasons import PendingReason
from scenarios.stories import placement
from scenarios.story import Story
from unit.lifecycle.kueue.test_queues import admit, kueue_story, queued_job
from unit.scheduling.resizing.test_elastic_jobs import (
    MINUTE,
    ROOM_LASTS,
    begin,
    elastic,
    ends,
    finish,
    fixed,
    site,
    size,
    small,
)

pytestmark = pytest.mark.usefixtures("no_mistakes")


def fail(story: Story, pod: str) -> None:
    states = [{"name": "trainer", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]
    story.change_pod(pod, phase="Failed", containerStatuses=states)


def behind_a_reservation(declared: str) -> Story:
    """16 of 32 GPUs are free, `first` gets all of them in two hours, and an elastic job has waited for its 32."""
    story = site(fixed("a", 16, expectedDuration="2h"))
    story.add(fixed("first", 32))
    story.settle()
    story.pass_time(MINUTE)
    story.add(elastic("e", 32, 8, expectedDuration=declared))
    story.settle()
    story.pass_time(MINUTE + 1)
    begin(story)
    return story


def test_it_passes_no_reservation_by_what_it_declares_for_all_of_its_gpus() -> None:
    """With 16 of 32 GPUs it takes 220 minutes, and `first` would wait."""
    assert behind_a_reservation("110m").status("e").placement is None
    assert size(behind_a_reservation("50m"), "e") == 16


def test_its_end_is_expected_later_with_fewer() -> None:
    story = site(fixed("other", 24))
    story.add(elastic(least=8, expectedDuration="1h"))
    story.settle()
    story.pass_time(MINUTE)
    begin(story)
    assert size(story) == 8
    story.add(fixed("next", 8))
    story.settle()
    pending = story.status("next").pending
    assert pending is not None
    assert pending.estimated_start == "2026-11-21T14:01:00Z"


@pytest.mark.parametrize("spec", [{"expectedDuration": "7m"}, {"activeDeadlineSeconds": 420}])
def test_it_does_not_grow_minutes_before_its_end(spec: dict[str, Any]) -> None:
    story = small(**spec)
    finish(story, "other")
    story.settle()
    story.pass_time(ROOM_LASTS)
    begin(story)
    assert (size(story), ends(story)) == (24, [])


def test_what_it_loses_and_trains_counts_with_the_gpus_that_it_has() -> None:
    story = small(restart={"limit": 5})
    story.pass_time(1000)
    fail(story, "train-a1-worker-00000")
    story.settle()
    story.pass_time(100)
    begin(story)
    assert size(story) == 24
    cost = story.status().cost
    assert cost is not None
    assert (cost.trained_seconds, cost.lost_gpu_seconds) == (1000 * 24 // 32, {"PodFailed": 24 * 100, "Starting": 0})


def test_nine_jobs_that_no_cluster_could_hold_keep_nobody_small() -> None:
    story = small()
    for number in range(9):
        story.add(fixed(f"giant-{number}", 4096 + 8 * number))
    story.settle()
    finish(story, "other")
    story.settle()
    room = placement(story).room
    assert room is not None
    assert room.gpus == 32


def test_it_waits_for_all_of_its_gpus_from_its_admission_on() -> None:
    story = kueue_story(fixed("other", 8), job=queued_job(gpus=16, elastic={"minGPUs": 8}))
    begin(story)
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == PendingReason.WAITING_FOR_KUEUE
    story.pass_time(5 * MINUTE)
    admit(story)
    story.settle()
    story.pass_time(MINUTE - 1)
    story.settle()
    assert story.status().placement is None
    story.pass_time(1)
    begin(story)
    assert size(story) == 8
