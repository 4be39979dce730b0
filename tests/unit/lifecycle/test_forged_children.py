"""Pods that a job's namespace makes with the job as owner, or what it writes on those that the operator made."""

from collections.abc import Callable
from copy import deepcopy

import pytest

from closeknit.api.trainingjob_status import State
from scenarios.stories import ended, two_dra_nodes, two_plugin_nodes
from scenarios.story import Story

SECOND = "train-a1-worker-00001"
KINDS = pytest.mark.parametrize("begun", [two_plugin_nodes, two_dra_nodes], ids=["plugin", "DRA"])


def forge(story: Story) -> None:
    """Somebody has deleted a Pod and made another under its name that asks for no GPU."""
    spec = story.pod(SECOND)["spec"]
    spec["containers"][0]["resources"] = {}
    spec["resourceClaims"] = []


@KINDS
def test_a_pod_in_the_place_of_ours_that_asks_for_no_gpu_ends_the_attempt(begun: Callable[[], Story]) -> None:
    story = begun()
    story.settle()
    forge(story)
    story.settle()
    assert ended(story) == [(1, "ChildDeleted", False)]
    message = story.status().attempts[0].message or ""
    assert message.startswith(f"Pod {SECOND} is not the one that was made: it does not ask for the booked GPUs")
    story.pass_time(60)
    story.settle()
    assert story.pods() == ["train-a2-worker-00000", "train-a2-worker-00001"]


@KINDS
def test_so_does_one_that_is_bound_to_another_node(begun: Callable[[], Story]) -> None:
    story = begun()
    story.settle()
    story.change_pod(SECOND, node="gpu-1", phase="Running")
    story.settle()
    assert ended(story) == [(1, "ChildDeleted", False)]


def test_another_pod_with_the_labels_of_a_rank_is_not_that_rank() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    second = deepcopy(story.pod(SECOND))
    second["metadata"] |= {"name": "train-other", "uid": "uid-of-another"}
    story.add(second)
    story.change_pod("train-other", phase="Failed")
    story.settle()
    assert (story.status().state, story.status().attempt) == (State.RUNNING, 1)


def test_a_pod_that_changes_its_annotation_does_not_verify_other_gpus_than_booked() -> None:
    story = two_dra_nodes()
    story.settle()
    story.run_all()
    others = [f"GPU-gpu-1-{index}" for index in range(8)]
    story.allocate(story.objects["ResourceClaim", "team-b", SECOND], "gpu-1", others)
    story.pod(SECOND)["metadata"]["annotations"]["closeknit.dev/gpus"] = ",".join(others)
    story.settle()
    verified = next(each for each in story.status().conditions if each.type == "PlacementVerified")
    assert (verified.status, verified.reason) == ("False", "Mismatch")
