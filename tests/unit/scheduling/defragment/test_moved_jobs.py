"""A job that starts again anyway goes where that frees a node as a whole, if it allows it, and stays otherwise."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.pauses import restart_at
from scenarios.manifests import cluster_topology, training_job
from scenarios.stories import nodes
from scenarios.story import Story, dra_node, plugin_node

KINDS = pytest.mark.parametrize("kind", [plugin_node, dra_node], ids=["plugin", "DRA"])

pytestmark = pytest.mark.usefixtures("no_mistakes")


def job(name: str, gpus: int = 4, **spec: Any) -> dict[str, Any]:
    return training_job(name, spec={"gpus": gpus, "restart": {"limit": 5}, **spec})


def scattered(kind: Any = plugin_node, *, racks: bool = False, **spec: Any) -> Story:
    """A job runs on one half of gpu-2, and half of gpu-1 has come free."""
    machines = [each for number in (1, 2) for each in kind(f"gpu-{number}")]
    for manifest in machines:
        if racks and manifest["kind"] == "Node":
            manifest["metadata"].setdefault("labels", {})["net.example/rack"] = manifest["metadata"]["name"]
    story = Story(*machines, *([cluster_topology("rack")] if racks else []), job("x"))
    begin(story)
    story.add(job("y"))
    begin(story)
    story.add(job("z", **spec))
    begin(story)
    assert [nodes(story, name) for name in ("x", "y", "z")] == [["gpu-1"], ["gpu-1"], ["gpu-2"]]
    del story.objects["TrainingJob", "team-b", "x"]
    story.remove_pod("x-a1-worker-00000")
    begin(story)
    story.pass_time(120)
    return story


def begin(story: Story) -> None:
    story.settle()
    story.run_all()
    story.settle()


def fail(story: Story, pod: str) -> None:
    """Its trainer ends with an error; Kubernetes' own controller frees its claim."""
    states = [{"name": "trainer", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]
    story.change_pod(pod, phase="Failed", containerStatuses=states)
    if claim := story.objects.get(("ResourceClaim", "team-b", pod)):
        claim.pop("status", None)
    begin(story)
    begin(story)


@KINDS
def test_it_moves_where_that_frees_a_node(kind: Any) -> None:
    story = scattered(kind, defragment="OnRestart")
    fail(story, "z-a1-worker-00000")
    assert (nodes(story, "z"), story.status("z").state) == (["gpu-1"], State.RUNNING)
    assert [each.reason for each in story.status("z").attempts] == ["PodFailed"]
    told = [each.note for each in story.notices if each.name.startswith("z.") and "it moves" in each.note]
    assert [words.partition("; ")[2] for words in told] == ["it moves, which frees 1 host"]


def test_it_tells_of_a_rack_that_is_freed() -> None:
    story = scattered(racks=True, defragment="OnRestart")
    fail(story, "z-a1-worker-00000")
    assert nodes(story, "z") == ["gpu-1"]
    assert any(each.note.endswith("it moves, which frees 1 rack and 1 host") for each in story.notices)


def test_it_stays_where_it_does_not_allow_it() -> None:
    story = scattered()
    fail(story, "z-a1-worker-00000")
    assert (nodes(story, "z"), story.status("z").state) == (["gpu-2"], State.RUNNING)


def test_it_stays_where_nothing_is_freed_as_a_whole() -> None:
    story = scattered(defragment="OnRestart")
    story.add(job("w", 2, template={"spec": {"nodeName": "", "containers": [{"name": "t", "image": "t"}]}}))
    begin(story)
    (there,) = nodes(story, "w")
    story.add(job("v", 2))
    begin(story)
    fail(story, "z-a1-worker-00000")
    assert (there, nodes(story, "z")) == ("gpu-1", ["gpu-2"])


def test_a_job_that_runs_is_never_moved() -> None:
    story = scattered(defragment="OnRestart")
    story.pass_time(7 * 86_400)
    begin(story)
    assert (nodes(story, "z"), story.status("z").attempts) == (["gpu-2"], [])


def test_the_next_operator_finishes_a_move() -> None:
    story = scattered(defragment="OnRestart")
    story.change_pod("z-a1-worker-00000", phase="Failed")
    for _ in range(2):  # the end, and the booking elsewhere, each by an operator of its own
        story.write_once()
        story.answers.clear()
    begin(story)
    assert (nodes(story, "z"), story.status("z").state, story.status("z").restarts) == (["gpu-1"], State.RUNNING, 1)


def test_a_move_waits_for_the_pause_of_a_job_that_fails_again_and_again() -> None:
    story = scattered(defragment="OnRestart")
    story.add(job("w"))  # so that nothing is gained by a move yet
    begin(story)
    for attempt in (1, 2):
        fail(story, f"z-a{attempt}-worker-00000")
        story.pass_time(20)
        begin(story)
    states = [{"name": "trainer", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]
    story.change_pod("z-a3-worker-00000", phase="Failed", containerStatuses=states)
    story.settle()
    ready = restart_at(story.status("z"), story.now)
    assert ready is not None
    del story.objects["TrainingJob", "team-b", "w"]
    story.remove_pod("w-a1-worker-00000")
    story.settle()
    assert (nodes(story, "z"), [name for name in story.pods() if name.startswith("z-a4")]) == (["gpu-2"], [])
    story.pass_time((ready - story.now).total_seconds())
    begin(story)
    assert nodes(story, "z") == ["gpu-1"]


def test_it_restarts_where_it_is_if_the_api_server_refuses_it_elsewhere() -> None:
    """What refuses it there is a policy that looks at where a Pod is to run."""
    story = scattered(defragment="OnRestart")
    there = story.denial
    elsewhere = "gpu-1"

    def denial(manifest: Any) -> str | None:
        return "no Pods on gpu-1" if f"'{elsewhere}'" in str(manifest["spec"].get("affinity")) else there(manifest)

    story.denial = denial  # type: ignore[method-assign]
    fail(story, "z-a1-worker-00000")
    assert (nodes(story, "z"), story.status("z").state) == (["gpu-2"], State.RUNNING)
