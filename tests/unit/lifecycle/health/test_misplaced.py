"""A device plugin gives other GPUs than planned: when a job is placed again for it, and when it keeps what it has."""

from closeknit.api.trainingjob_status import Actual
from scenarios.machines import dgx1v
from scenarios.manifests import allocation, node, node_topology, training_job, uuids
from scenarios.stories import ended
from scenarios.story import Story

# On a DGX-1 with V100s two links join 0 and 3, which NVIDIA's plugin picks of a free machine, and 0 and 4; none joins 0
# and 5.
SLOWER, AS_FAST = (0, 5), (0, 4)


def running(*given: int) -> Story:
    """A job of two GPUs of one machine, which runs; the kubelet tells what it gave."""
    machine = {**node_topology("gpu-1"), "spec": dgx1v(tag="gpu-1").wire()}
    story = Story(node("gpu-1", gpus=8), machine, training_job(spec={"gpus": 2, "gpu": {"binding": "BestEffort"}}))
    run(story, *given)
    return story


def run(story: Story, *given: int) -> None:
    """The current attempt starts, and gets these GPUs."""
    story.settle()
    attempt = story.status().attempt
    story.run_all()
    story.settle()
    told = allocation("team-b", f"train-a{attempt}-worker-00000", uuids("gpu-1", *given))
    story.objects[("NodeTopology", "", "gpu-1")]["status"]["allocations"] = [told]


def verified(story: Story) -> tuple[str, str]:
    found = next(each for each in story.status().conditions if each.type == "PlacementVerified")
    return found.status, found.message or ""


def test_with_slower_gpus_it_is_placed_anew() -> None:
    story = running(*SLOWER)
    story.settle()
    assert ended(story) == [(1, "Misplaced", False)]
    assert story.status().attempts[0].message == (
        "device plugins gave slower GPUs than planned: gpu-1 was to give 0,3 and gave 0,5; the job is placed again"
    )
    run(story, 0, 3)
    story.settle()
    assert (story.status().attempt, verified(story)) == (2, ("True", "every Pod has the planned GPUs"))


def test_others_that_are_as_fast_are_told_and_kept() -> None:
    story = running(*AS_FAST)
    story.settle()
    assert ended(story) == []
    assert verified(story) == ("False", "other GPUs than planned: gpu-1 was to give 0,3 and gave 0,4")
    placement = story.status().placement
    assert placement is not None and placement.nodes[0].actual is Actual.MISMATCH


def test_the_third_attempt_keeps_what_it_gets() -> None:
    story = running(*SLOWER)
    for seconds in (0, 1, 3):  # of several in a row each waits longer
        story.settle()
        story.pass_time(seconds)
        run(story, *SLOWER)
    story.settle()
    assert ended(story) == [(1, "Misplaced", False), (2, "Misplaced", False)]
    assert verified(story)[0] == "False"


def test_what_has_run_for_a_while_is_kept() -> None:
    """The agent was down when it began."""
    story = running(*SLOWER)
    story.pass_time(121)
    story.settle()
    assert ended(story) == []
    assert verified(story)[0] == "False"


def test_what_was_kept_once_is_kept() -> None:
    """A set that is as fast becomes a slower one when a link of it goes; that is not the plugin's doing."""
    story = running(*AS_FAST)
    story.settle()
    told = story.objects[("NodeTopology", "", "gpu-1")]["status"]
    told["linksDown"] = [{"gpu": 0, "link": link} for link in range(6)]
    story.settle()
    assert ended(story) == []
