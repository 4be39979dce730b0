"""A spec that is edited while its job waits, as it may be until it is booked: only the new one counts."""

from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.cluster.pods.symptoms import FENCE
from closeknit.lifecycle.writes.answers import Answers
from closeknit.lifecycle.writes.refusals import Refusing, Rejection
from scenarios.manifests import training_job
from scenarios.stories import booked_nodes, ended, two_plugin_nodes
from scenarios.story import Story

FIXED = (
    "; the job was booked, so its spec is fixed but for elastic, priorityClassName, queue, suspend and "
    "ttlSecondsAfterFinished: to change anything else, delete the job and create it again"
)
OTHER = {"spec": {"containers": [{"name": "trainer", "image": "registry.example/train:2"}]}}


def image(story: Story) -> Any:
    return story.pod("train-a1-worker-00000")["spec"]["containers"][0]["image"]


@pytest.mark.parametrize(
    ("wrong", "mended", "reason"),
    [
        pytest.param({"gpus": 64}, {"gpus": 16}, "InsufficientGPUs", id="too many GPUs"),
        pytest.param(
            {"topology": {"fabric": {"required": "rack"}}}, {"topology": {}}, "UnknownLevel", id="an unknown level"
        ),
        pytest.param({"gpu": {"products": ["H200"]}}, {"gpu": {}}, "NoMatchingGPU", id="an unknown product"),
        pytest.param(
            {"elastic": {"minGPUs": 8}, "spares": 1},
            {"spares": 0},
            "NotSupported",
            id="two fields that exclude each other",
        ),
        pytest.param(
            {"template": {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}},
            {"template": OTHER},
            "TemplateInvalid",
            id="no trainer",
        ),
    ],
)
def test_a_mistake_is_mended_by_an_edit(wrong: dict[str, Any], mended: dict[str, Any], reason: str) -> None:
    story = two_plugin_nodes(**wrong)
    story.settle()
    assert (story.status().pending or pytest.fail("not pending")).reason == reason
    assert not story.status().was_booked
    story.edit_job(**mended)
    story.settle()
    assert (story.status().state, story.status().observed_generation) == (State.STARTING, 2)
    assert (len(story.pods()), story.status().pending) == (2, None)


def test_an_edit_that_is_wrong_again_is_told_at_once_with_what_is_wrong_now() -> None:
    story = two_plugin_nodes(gpus=64)
    story.settle()
    story.edit_job(gpus=48)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.message.startswith("needs 48 GPUs")
    assert story.status().observed_generation == 2


def test_what_only_the_api_server_refuses_is_mended_by_an_edit_too() -> None:
    """The booking that shows it is taken back, and fixes nothing; the new template is asked about at once."""
    story = two_plugin_nodes()
    story.forbidden["train-a1-worker-00000"] = "not this image"
    story.settle()
    assert (story.status().state, story.status().was_booked) == (State.QUEUED, False)
    story.forbidden.clear()
    story.edit_job(template=OTHER, gpus=8)
    story.pass_time(2)  # as between two tries of any jobs of one namespace; without an edit it is 15 s
    story.settle()
    assert (story.status().state, story.status().was_booked) == (State.STARTING, True)
    assert (image(story), [len(node.gpus) for node in booked_nodes(story)]) == ("registry.example/train:2", [8])


def test_a_status_speaks_of_the_spec_that_it_was_decided_for() -> None:
    """While Pods of a try before stand in the way, nothing is known of the new spec, and nothing is said of it."""
    story = two_plugin_nodes()
    story.forbidden["train-a1-worker-00001"] = "not this one"
    for node in ("gpu-1", "gpu-2"):
        story.dead.add(node)
    plan, *_ = [each for each in story.plans() if each.writes]
    story.write(plan)  # the first Pod is made, the second refused
    story.change_pod("train-a1-worker-00000", node="gpu-1")
    story.settle()
    told = story.status()
    assert (story.pods(), told.observed_generation) == (["train-a1-worker-00000"], 1)
    assert (told.pending or pytest.fail("not pending")).reason == PendingReason.TEMPLATE_INVALID
    story.edit_job(template=OTHER)
    story.settle()
    assert story.status() == told
    story.remove_pod("train-a1-worker-00000")
    story.forbidden.clear()
    story.pass_time(2)
    story.settle()
    assert (story.status().state, story.status().observed_generation) == (State.STARTING, 2)


def test_the_refusal_of_the_old_spec_is_not_told_of_the_new_one() -> None:
    """A job of a namespace that was refused just now is tried a moment later: until then the new spec is not judged."""
    story = two_plugin_nodes()
    story.forbidden["train-a1-worker-00000"] = "not this image"
    story.settle()
    told = story.status()
    story.edit_job(template=OTHER)
    rejection = Rejection(
        PendingReason.QUOTA_EXCEEDED, "too much", Refusing.PROBE, None, 1, 1, story.now - timedelta(seconds=0.5), 1
    )
    other = training_job("other", spec={"gpus": 64})
    other["metadata"]["uid"] = "uid-of-other"
    story.add(other)
    story.answers["uid-of-other"] = Answers(rejection=rejection, rejections=1)
    plans = {plan.job: plan for plan in story.plans()}
    plan = plans.get(JobKey("team-b", "train"))
    assert plan is None or plan.status is None or plan.status.pending is None, plan
    assert story.status() == told


def test_advice_to_change_the_spec_of_a_job_that_was_booked_says_what_that_takes() -> None:
    story = two_plugin_nodes(gpu={"products": ["NVIDIA-H200"]})
    story.settle()
    story.edit_job(suspend=True)
    story.settle()
    assert story.status().was_booked
    for name in ("gpu-1", "gpu-2"):
        for gpu in story.objects["NodeTopology", "", name]["spec"]["gpus"]:
            gpu["product"] = "NVIDIA-H100"  # the machine was replaced
    story.edit_job(suspend=False)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, ended(story)) == ("NoMatchingGPU", [(1, "Suspended", False)])
    assert pending.message.endswith(f"name one of these in gpu.products{FIXED}")


def test_advice_to_lower_requests_says_what_that_takes() -> None:
    containers = [{"name": "trainer", "image": "i", "resources": {"requests": {"cpu": "8"}}}]
    story = two_plugin_nodes(template={"spec": {"containers": containers}})
    story.settle()
    story.edit_job(suspend=True)
    story.settle()
    assert story.status().was_booked
    for name in ("gpu-1", "gpu-2"):
        story.objects["Node", "", name]["status"]["allocatable"]["cpu"] = "4"  # the kubelet keeps more for itself
    story.edit_job(suspend=False)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.reason == "InsufficientResources"
    assert pending.message.endswith(f"lower the template's requests{FIXED}")


def test_nothing_of_that_is_said_of_a_job_that_was_not_booked() -> None:
    story = two_plugin_nodes(gpu={"products": ["NVIDIA-B200"]})
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.message.endswith("name one of these in gpu.products")


def test_what_an_administrator_has_to_mend_needs_no_other_job() -> None:
    """A policy that changes Pods, or a claim that is gone: the job goes on as soon as that is mended."""
    story = two_plugin_nodes(gpus=8)
    story.settle()
    story.edit_job(suspend=True)
    story.settle()
    story.forbidden["train-a2-worker-00000"] = f"ValidatingAdmissionPolicy '{FENCE}' with binding '{FENCE}' denied: no"
    story.edit_job(suspend=False)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, "its spec is fixed" in pending.message) == ("ChangedOnTheWay", False)


def test_a_priority_class_that_is_not_there_is_told_as_what_can_be_changed() -> None:
    story = two_plugin_nodes(gpus=8, priorityClassName="nope")
    story.forbidden["train-a1-worker-00000"] = "no PriorityClass with name nope was found"
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert pending.message == (  # as closeknit plan says it
        "needs PriorityClass nope; this cluster has none of that name: name another one in spec.priorityClassName, or "
        "have an administrator create it"
    )
