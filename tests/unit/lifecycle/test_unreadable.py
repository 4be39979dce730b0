"""A job that this version can no longer read while it holds GPUs: its booking stands, its Pods are left alone, nobody
else gets its GPUs, and it is told.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from closeknit.cluster.objects.silence import Quiet
from scenarios.manifests import priority_class, training_job
from scenarios.stories import two_plugin_nodes
from scenarios.story import Story

TRAIN = JobKey("team-b", "train")
Edit = Callable[[dict[str, Any]], None]


def spec(**fields: Any) -> Edit:
    return lambda job: job["spec"].update(fields)


def status(**fields: Any) -> Edit:
    return lambda job: job["status"].update(fields)


def first_share(**fields: Any) -> Edit:
    return lambda job: job["status"]["placement"]["nodes"][0].update(fields)


def placement(**fields: Any) -> Edit:
    return lambda job: job["status"]["placement"].update(fields)


def end_of_a_newer_form(job: dict[str, Any]) -> None:
    job["status"]["attempts"] = [{"number": "first", "reason": ["a", "b"]}]


def oddly_dated(moment: str) -> Edit:
    """The API server takes any date-time."""

    def edit(job: dict[str, Any]) -> None:
        job["status"]["startTime"] = moment
        job["status"]["conditions"][0]["lastTransitionTime"] = moment

    return edit


def without_a_binding(job: dict[str, Any]) -> None:
    del job["status"]["placement"]["nodes"][1]["binding"]


EDITS: dict[str, Edit] = {
    "spec: another type": spec(gpus="many"),
    "spec: a word of a newer version": spec(restart={"onHang": "Explode"}),
    "spec: too large": spec(template={"spec": {"containers": [{"name": "trainer", "image": "x" * 300_000}]}}),
    "spec: none": lambda job: job.update(spec=None),
    "status: a word of a newer version": status(state="Hibernating"),
    "status: another type": status(restarts="many"),
    "status: an end of a newer form": end_of_a_newer_form,
    "status: conditions of a newer form": lambda job: job["status"]["conditions"].append({"kind": "Cosy"}),
    "status: moments after which no calendar goes on": oddly_dated("9999-12-31T23:59:59Z"),
    "status: moments before the first": oddly_dated("0001-01-01T00:00:00+14:00"),
    "status: moments in small letters": oddly_dated("2026-11-21t10:00:00z"),
    "placement: a binding of a newer version": first_share(binding="Quantum"),
    "placement: a share without a binding": without_a_binding,
    "placement: a GPU beyond all": first_share(gpus=[*range(8), 99]),
    "placement: room of a newer form": placement(room="much"),
    "spec and status": lambda job: job.update(spec={"gpus": "many"}, status={**job["status"], "state": "Hibernating"}),
}


def running(**more: Any) -> Story:
    story = two_plugin_nodes(restart={"limit": 2}, **more)
    story.settle()
    story.run_all()
    story.settle()
    assert story.status().state is State.RUNNING
    story.written.clear()
    story.notices.clear()
    return story


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_what_it_holds_stays_its_own_and_it_is_told(edit: Edit) -> None:
    story = running()
    edit(story.objects["TrainingJob", *TRAIN])
    stored = story.objects["TrainingJob", *TRAIN]["status"]
    assert TRAIN in story.cluster.invalid_jobs
    for pod in story.pods():  # so that nothing but the booking stands for the GPUs
        story.remove_pod(pod)
    story.add(priority_class("high", 100))
    story.add(training_job("next", spec={"gpus": 8, "priorityClassName": "high"}))
    story.settle()
    assert story.pods() == []
    assert story.status("next").state is State.QUEUED
    (told,) = [each for each in story.notices if "cannot read it" in each.note]
    assert told.note.endswith("it keeps its GPUs, and its Pods are left as they are")
    if not story.cluster.invalid_jobs[TRAIN].is_status_read:
        assert story.objects["TrainingJob", *TRAIN]["status"] == stored, "what cannot be read is not lost"


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "2026-11-21t10:00:00z", "2026-11-21T10:00:00"])
@pytest.mark.parametrize("where", ["startTime", "Placed"])
def test_an_odd_moment_of_one_job_keeps_no_other_from_its_decision(where: str, moment: str) -> None:
    story = running(activeDeadlineSeconds=3600)
    stored = story.objects["TrainingJob", *TRAIN]["status"]
    (placed,) = [each for each in stored["conditions"] if each["type"] == "Placed"]
    (stored if where == "startTime" else placed)["startTime" if where == "startTime" else "lastTransitionTime"] = moment
    story.add(training_job("next", spec={"gpus": 8}))
    story.settle()
    pending = story.status("next").pending
    assert pending is not None
    assert pending.reason == PendingReason.INSUFFICIENT_GPUS


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_no_pod_is_touched_whatever_happens_and_it_goes_on_once_it_can_be_read(edit: Edit) -> None:
    story = running()
    key = ("TrainingJob", *TRAIN)
    before = deepcopy({name: story.objects[key][name] for name in ("spec", "status")})
    edit(story.objects[key])
    story.silence("gpu-2", Quiet.LONG)
    story.lose_node("gpu-2")
    story.change_pod("train-a1-worker-00000", phase="Failed", reason="Evicted")
    story.settle()
    story.answers.clear()  # another process
    story.pass_time(86_400)
    story.settle()
    assert [each for each in story.written if "Pod" in each or "Service" in each] == []
    assert story.pods() == ["train-a1-worker-00000", "train-a1-worker-00001"]
    story.objects[key].update(before)
    story.settle()
    assert story.status().attempts, "what has happened meanwhile is seen then"
