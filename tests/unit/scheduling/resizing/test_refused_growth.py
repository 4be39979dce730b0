"""An elastic job that the API server would refuse at a larger size goes on as it is, says so once, and tries rarely."""

from typing import Any

import pytest

from closeknit.api.reasons import EventReason
from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.writes.resource_quotas import Quota
from scenarios.manifests import cluster_topology
from scenarios.stories import placement
from scenarios.story import Story, dra_node, plugin_node
from unit.scheduling.resizing.test_elastic_jobs import (
    MINUTE,
    ROOM_LASTS,
    begin,
    elastic,
    ends,
    finish,
    fixed,
    ready_to_grow,
    site,
    size,
    small,
)

POLICY = 'admission webhook "limits.example" denied the request: no Pod of more than 4 GPUs'
HOUR = 60 * MINUTE

pytestmark = pytest.mark.usefixtures("no_mistakes")


def refuse(story: Story, *names: str) -> None:
    story.forbidden |= dict.fromkeys(names, POLICY)


def goes_on(story: Story) -> bool:
    """Whether it runs with the Pods that it has, and nothing of another attempt was made."""
    return (story.status().state, size(story), ends(story)) == (State.RUNNING, 24, []) and not [
        written for written in story.written if "train-a2" in written
    ]


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        (plugin_node, "train-a2-worker-00000"),
        (dra_node, "train-a2-worker-00000"),
        (dra_node, "ResourceClaim train-a2-worker-00000"),
        (plugin_node, "Service train-a2"),
    ],
    ids=["Pod", "Pod with a claim", "claim", "Service"],
)
def test_what_admission_refuses_is_tried_before_anything_ends(kind: Any, refused: str) -> None:
    story = ready_to_grow(kind)
    refuse(story, refused)
    begin(story)
    assert goes_on(story)
    title = refused if " " in refused else f"Pod {refused}"
    title = title.replace(" ", " team-b/")
    assert story.status().message == (
        f"runs with 24 of its 32 GPUs; there is room for 32 since 2026-11-21T10:01:00Z, and it stays as it is: the API "
        f"server refuses {title} on trial: {POLICY}"
    )
    (told,) = [each for each in story.notices if each.reason == "ResizeRefused"]
    assert told.note.startswith("it goes on with 24 of its 32 GPUs: the API server refuses")


def test_every_size_of_pod_is_tried() -> None:
    """The policy is against Pods on a part of a node, and the larger gang has a second Pod of 4 GPUs."""
    story = site(fixed("one", 4), fixed("two", 4), nodes=2)
    story.add(elastic(gpus=12, least=8, parallelism={"tensor": 4}))
    story.settle()
    story.pass_time(MINUTE)
    begin(story)
    assert size(story) == 8
    finish(story, "two")
    story.settle()
    story.pass_time(ROOM_LASTS)
    refuse(story, "train-a2-worker-00001")
    begin(story)
    assert (story.status().state, size(story), ends(story)) == (State.RUNNING, 8, [])


def test_it_is_tried_rarely_and_told_once() -> None:
    story = ready_to_grow(plugin_node)
    refuse(story, "train-a2-worker-00000")
    tries = []
    for _ in range(20):
        begin(story)
        tries.append(sum(1 for each in story.tried if each == "Pod train-a2-worker-00000"))
        story.pass_time(10 * MINUTE)
    assert 3 <= tries[-1] <= 3 * 6  # in three hours; with IPC_LOCK, with the sidecar, and without
    assert [each.reason for each in story.notices].count(EventReason.RESIZE_REFUSED) == 1
    assert goes_on(story)
    story.forbidden.clear()
    story.pass_time(HOUR)
    begin(story)
    assert (size(story), ends(story)) == (32, [("Grown", False)])


def test_what_a_webhook_fails_at_keeps_it_as_it_is() -> None:
    story = ready_to_grow(plugin_node)
    story.failing = "failed calling webhook"
    begin(story)
    assert goes_on(story)
    assert "failed calling webhook" in (story.status().message or "")
    assert len(story.tried) < 20


def used(amount: int, hard: int = 32) -> list[Quota]:
    return [Quota("gpus", {"requests.nvidia.com/gpu": str(hard)}, {"requests.nvidia.com/gpu": str(amount)})]


def test_a_quota_that_others_use_up_is_read_rarely_and_told() -> None:
    story = ready_to_grow(plugin_node)
    story.quotas = used(32)  # 24 of them its own
    begin(story)
    assert goes_on(story)
    assert "; there is room for 32 since" in (story.status().message or "")
    assert "and it stays as it is: the whole gang is more than is left of the quotas" in (story.status().message or "")
    refused = story.answers[story.cluster.jobs[next(iter(story.cluster.jobs))].metadata.uid or ""].refused_change
    assert refused is not None
    assert (refused.retry_at - story.now).total_seconds() == 5 * MINUTE
    story.pass_time(4 * MINUTE)
    story.quotas = used(24)
    begin(story)
    assert size(story) == 24
    story.pass_time(MINUTE)
    story.write_once()
    assert ends(story) == [("Grown", False)]


def test_a_refused_growth_is_no_refusal_of_the_job_or_its_namespace() -> None:
    """Other jobs of the namespace start at once, and the job itself restarts at once."""
    story = small(restart={"limit": 5})
    finish(story, "other")
    story.settle()
    story.pass_time(ROOM_LASTS)
    story.quotas = used(24, hard=26)
    begin(story)
    assert goes_on(story)
    story.add(fixed("next", 1))
    begin(story)
    assert story.status("next").state == State.RUNNING
    story.quotas = []
    story.change_pod("train-a1-worker-00000", phase="Failed")
    begin(story)
    begin(story)
    assert (story.status().state, size(story), story.status().pending) == (State.RUNNING, 24, None)


def test_quotas_that_still_count_its_pods_refuse_nothing_once_it_has_ended() -> None:
    """Its new nodes are others, so that nothing of its own is in the way: all the same nothing of the larger gang is
    made by the write that ends the smaller one."""
    machines = [each for number in range(1, 5) for each in plugin_node(f"gpu-{number}")]
    for manifest in machines:
        if manifest["kind"] == "Node":
            rack = "r1" if manifest["metadata"]["name"] in {"gpu-1", "gpu-2"} else "r2"
            manifest["metadata"].setdefault("labels", {})["net.example/rack"] = rack
    story = Story(*machines, cluster_topology("rack"))
    for number in range(4):
        story.add(fixed(f"other-{number}"))
        begin(story)
    finish(story, "other-0")
    story.add(elastic(gpus=16, topology={"fabric": {"required": "rack"}}))
    story.settle()
    story.pass_time(MINUTE)
    begin(story)
    assert [node.name for node in placement(story).nodes] == ["gpu-1"]
    finish(story, "other-2")
    finish(story, "other-3")
    story.settle()
    story.pass_time(ROOM_LASTS)
    story.quotas = used(16)
    story.write_once()
    assert [node.name for node in placement(story).nodes] == ["gpu-3", "gpu-4"]
    assert not [written for written in story.written if "train-a2" in written]
    story.quotas = used(0)
    begin(story)
    assert (story.status().state, size(story)) == (State.RUNNING, 16)
