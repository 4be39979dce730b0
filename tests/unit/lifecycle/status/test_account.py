"""A job under a service account of its own: refused before anything is booked where the operator may not use it."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import State
from closeknit.lifecycle.status.degraded import FIXED
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node

CONTAINER = {"name": "trainer", "image": "i"}
WORDS = (
    "spec.template.spec.serviceAccountName is robot, which the operator has no right to use in namespace team-b; have "
    "an administrator give ServiceAccount closeknit-operator the verb use on it, or leave the name out"
)
OLD_AND_NEW = pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])


def story_of(**template: Any) -> Story:
    spec = {"gpus": 8, "template": {"spec": {"containers": [CONTAINER], **template}}}
    return Story(*plugin_node("gpu-1"), training_job(spec=spec))


@OLD_AND_NEW
def test_an_account_that_the_operator_may_not_use_is_refused_before_anything_is_made(field: str) -> None:
    story = story_of(**{field: "robot"})
    story.unusable = {"robot"}
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, pending.message) == ("TemplateInvalid", WORDS)
    assert story.written == ["status Queued"]
    story.unusable = set()
    story.pass_time(14)
    story.settle()
    assert story.status().placement is None  # nobody is asked again and again
    story.pass_time(1)
    story.settle()
    assert (story.status().state, story.pods()) == (State.STARTING, ["train-a1-worker-00000"])


@OLD_AND_NEW
def test_one_that_it_may_use_is_as_good_as_the_default_one(field: str) -> None:
    for account in ("robot", "default"):
        story = story_of(**{field: account})
        asked = [plan.account for plan in story.plans()]
        assert asked == ([account] if account == "robot" else [""])
        story.settle()
        assert story.status().state is State.STARTING


def test_a_right_that_was_lost_takes_the_next_attempt_back() -> None:
    story = story_of(serviceAccountName="robot")
    story.settle()
    story.run_all()
    story.settle()
    story.unusable = {"robot"}
    story.remove_pod("train-a1-worker-00000")
    story.settle()
    pending = story.status().pending
    assert pending is not None
    told = f"{WORDS}; {FIXED}"
    assert (pending.message, story.status().placement, story.pods()) == (told, None, [])
