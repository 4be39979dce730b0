"""A job that waits: for GPUs, for a name, for a template that is accepted, for better luck."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob_status import State
from scenarios.manifests import pod, resource_claim, training_job, worker
from scenarios.stories import conditions, ended, two_dra_nodes, two_plugin_nodes
from scenarios.story import Story, dra_node, plugin_node


def test_a_job_that_does_not_fit_writes_its_status_once_and_reserves_nothing() -> None:
    story = Story(
        *plugin_node("gpu-1"),
        training_job("large", spec={"gpus": 16}),
        training_job("small", spec={"gpus": 8}),
    )
    story.settle()
    pending = story.status("large").pending
    assert pending is not None
    assert pending.reason == PendingReason.INSUFFICIENT_GPUS
    assert story.status("small").state is State.STARTING
    assert story.status("large").state is State.QUEUED
    assert [notice.reason for notice in story.notices] == ["InsufficientGPUs", "Placed"]


def test_since_stays_while_the_reason_does() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 16}))
    story.settle()
    since = (story.status().pending or pytest.fail("not pending")).since
    story.pass_time(600)
    story.add(pod("notebook", requests={"nvidia.com/gpu": "8"}))  # other numbers, the same reason
    story.settle()
    assert (story.status().pending or pytest.fail("not pending")).since == since
    assert [notice.reason for notice in story.notices] == ["InsufficientGPUs"]


def test_a_booking_of_this_walk_counts_against_the_jobs_after_it() -> None:
    story = Story(*plugin_node("gpu-1"), training_job("a", spec={"gpus": 8}), training_job("b", spec={"gpus": 8}))
    story.settle()
    assert (story.status("a").state, story.status("b").state) == (State.STARTING, State.QUEUED)


def test_a_template_that_the_api_server_refuses_is_told_in_its_words_and_asked_again() -> None:
    story = two_plugin_nodes()
    words = 'the API server refuses Pod team-b/train-a1-worker-00000: violates PodSecurity "restricted:latest"'
    story.forbidden["train-a1-worker-00000"] = 'violates PodSecurity "restricted:latest"'
    story.settle()
    pending = story.status().pending
    assert pending is not None
    told = f"{words}; change spec.template, or have an administrator allow it"
    assert (pending.reason, pending.message) == ("TemplateInvalid", told)
    assert story.written == [
        "status Starting", "create Service train-a1", "status Queued", "delete Service train-a1",
    ]  # fmt: skip
    assert [notice.reason for notice in story.notices] == ["TemplateInvalid"]
    assert {kind: conditions(story)[kind] for kind in ("Admitted", "Placed", "Running")} == {
        "Admitted": "False",
        "Placed": "False",
        "Running": "False",
    }
    assert [plan.wake_after_s for plan in story.plans()] == [15.0]
    story.forbidden.clear()
    story.pass_time(15)
    story.settle()
    assert story.status().state is State.STARTING
    assert story.status().pending is None


@pytest.mark.parametrize(
    ("begin", "foreign", "owner"),
    [
        pytest.param(
            two_plugin_nodes,
            worker("train", 1, node=None, phase="Pending", job_uid="uid-of-another", requests={}),
            "TrainingJob train (uid uid-of-another)",
            id="a Pod of an earlier job of this name",
        ),
        pytest.param(
            two_dra_nodes,
            pod("train-a1-worker-00001", namespace="team-b", requests={}),
            "nobody that it names",
            id="a Pod without GPUs",
        ),
        pytest.param(
            two_dra_nodes,
            resource_claim("train-a1-worker-00001", namespace="team-b"),
            "nobody that it names",
            id="a ResourceClaim without GPUs",
        ),
    ],
)
def test_a_name_that_somebody_has_is_waited_for_without_making_anything(
    begin: Callable[[], Story], foreign: dict[str, Any], owner: str
) -> None:
    story = begin()
    story.add(foreign)
    story.settle()
    pending = story.status().pending
    assert pending is not None
    assert (pending.reason, pending.message) == (
        "NameConflict",
        f"{foreign['kind']} team-b/train-a1-worker-00001 exists and belongs to {owner}; "
        "delete it, or delete this job and give it another name",
    )
    assert story.written == ["status Queued"]
    del story.objects[(foreign["kind"], "team-b", "train-a1-worker-00001")]
    story.settle()
    assert story.status().state is State.STARTING


def test_a_service_name_that_somebody_has_shows_when_it_is_created_and_is_probed_before_the_next_booking() -> None:
    story = two_plugin_nodes()
    story.taken.add("Service train-a1")
    story.settle()
    assert story.pods() == []
    story.pass_time(2)
    (plan,) = story.plans()
    assert [probe["kind"] for probe in plan.probes] == ["Service"]


def test_a_gang_waits_for_the_claims_of_the_pods_that_had_its_names_before() -> None:
    """The API server collects them when it comes round to it; until then no Pod could be told from theirs."""
    story = two_dra_nodes()
    story.taken.add("ResourceClaim train-a1-worker-00001")
    booking, *_ = story.plans()
    story.write(booking)
    assert story.names("ResourceClaim") == ["train-a1-worker-00000"]
    left_over = story.objects[("ResourceClaim", "team-b", "train-a1-worker-00000")]
    story.settle()
    assert (story.pods(), story.status().state) == ([], State.QUEUED)

    story.add(left_over)
    story.taken.clear()
    story.pass_time(2)
    story.settle()
    story.pass_time(5)
    story.settle()
    assert (story.pods(), story.names("ResourceClaim")) == ([], ["train-a1-worker-00000"])
    running = next(c for c in story.status().conditions if c.type == "Running")
    assert (running.reason, running.message) == (
        "Restarting",
        "waits until what is left of its Pods of before is gone: ResourceClaim train-a1-worker-00000",
    )
    del story.objects[("ResourceClaim", "team-b", "train-a1-worker-00000")]
    story.settle()
    assert story.pods() == story.names("ResourceClaim") == ["train-a1-worker-00000", "train-a1-worker-00001"]
    assert ended(story) == []


def test_a_clock_that_is_set_back_ends_the_pauses() -> None:
    story = Story(*dra_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.settle()
    for attempt in (1, 2):
        story.run_all()
        story.settle()
        story.remove_pod(f"train-a{attempt}-worker-00000")
        story.settle()
    assert story.pods() == []
    story.pass_time(-3600)
    story.settle()
    assert story.pods() == ["train-a3-worker-00000"]


def test_a_clock_that_is_set_back_does_not_keep_a_refusal_standing() -> None:
    story = two_plugin_nodes()
    story.forbidden["train-a1-worker-00000"] = "exceeded quota"
    story.settle()
    story.forbidden.clear()
    story.pass_time(-3600)
    assert [plan.status.state for plan in story.plans() if plan.status] == [State.STARTING]


def test_bad_luck_in_a_row_is_waited_out() -> None:
    story = Story(*dra_node("gpu-1"), training_job(spec={"gpus": 8}))
    story.settle()
    for attempt in (1, 2):
        story.run_all()
        story.settle()
        story.remove_pod(f"train-a{attempt}-worker-00000")
        story.settle()
    assert story.pods() == []
    assert [plan.wake_after_s for plan in story.plans()] == [2.0]
    story.pass_time(2)
    story.settle()
    assert story.pods() == ["train-a3-worker-00000"]


def test_a_job_being_deleted_gets_nothing_more() -> None:
    story = two_plugin_nodes()
    booking, *_ = story.plans()
    story.write(booking)
    metadata = story.objects[("TrainingJob", "team-b", "train")]["metadata"]
    metadata |= {"deletionTimestamp": "2026-11-21T10:00:00Z", "generation": 2}  # as the API server marks it
    before = len(story.written)
    story.settle()
    assert story.written[before:] == []


def test_a_stored_job_that_cannot_be_read_is_refused_in_words() -> None:
    story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": "many"}))
    story.settle()
    job = next(iter(story.cluster.invalid_jobs.values()))
    assert job.status.pending is not None
    assert job.status.pending.reason == "NotSupported"
    assert job.status.pending.message.startswith("this version cannot read it: spec.gpus: ")
    assert story.written == ["status Queued"]


@pytest.mark.parametrize(
    "mistaken",
    [
        pytest.param("policy.gates.gate", id="what is it to get"),
        pytest.param("decision.follow", id="what is to be written"),
    ],
)
def test_a_mistake_of_ours_about_one_job_keeps_no_other_waiting(mistaken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, name = mistaken.rpartition(".")
    right = getattr(import_module(f"closeknit.scheduling.{module}"), name)

    def wrong(job: TrainingJob, *rest: Any, **options: Any) -> Any:
        if job.metadata.name == "a":
            raise KeyError("gpu-9")
        return right(job, *rest, **options)

    monkeypatch.setattr(f"closeknit.scheduling.{mistaken}", wrong)
    story = Story(*plugin_node("gpu-1"), training_job("a", spec={"gpus": 8}), training_job("b", spec={"gpus": 8}))
    broken, *_ = story.plans()
    assert repr(broken.error) == "KeyError('gpu-9')"
    aside = frozenset({JobKey("team-b", "a")})  # what the loop does then
    (booked,) = (plan for plan in story.plans(busy=aside, put_aside=aside) if plan.job not in aside)
    assert (str(broken.job), repr(broken.error)) == ("team-b/a", "KeyError('gpu-9')")
    assert (str(booked.job), booked.error, booked.writes) == ("team-b/b", None, True)


ERRED = (
    "closeknit itself erred about this job (KeyError: 'gpu-9'): {}, and it is tried again every 60 s; "
    "please report it with the operator's log"
)


@pytest.mark.parametrize("mistaken", ["policy.gates.gate", "decision.follow"])
def test_a_job_about_which_we_erred_says_so_once_and_goes_on_when_we_do_not(
    mistaken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: Any, **__: Any) -> Any:
        raise KeyError("gpu-9")

    story = Story(*plugin_node("gpu-1"), training_job("a", spec={"gpus": 8}))
    with monkeypatch.context() as patched:
        patched.setattr(f"closeknit.scheduling.{mistaken}", wrong)
        story.settle()
        pending, (notice,) = story.status("a").pending, story.notices
        assert pending is not None
        assert (pending.reason, pending.message) == ("InternalError", ERRED.format("it is given nothing"))
        assert (notice.reason, notice.action, notice.note) == ("InternalError", "Decide", pending.message)
        story.pass_time(3600)
        story.settle()
        assert story.written == ["status Queued"]
        assert [plan.wake_after_s for plan in story.plans()] == [60.0]
    story.settle()
    assert (story.status("a").state, story.status("a").pending) == (State.STARTING, None)


def test_a_job_that_holds_gpus_keeps_them_while_we_err_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any, **__: Any) -> Any:
        raise KeyError("gpu-9")

    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    before = story.status()
    with monkeypatch.context() as patched:
        patched.setattr("closeknit.scheduling.decision.follow", wrong)
        story.settle()
    placed = next(each for each in story.status().conditions if each.type == "Placed")
    assert (placed.status, placed.reason) == ("True", "InternalError")
    assert placed.message == ERRED.format("its Pods are left as they are")
    assert (story.status().state, story.status().placement) == (State.RUNNING, before.placement)
    story.settle()
    assert story.status() == before


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_a_mistake_whose_own_words_are_one_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any, **__: Any) -> Any:
        raise UnprintableError

    monkeypatch.setattr("closeknit.scheduling.decision.follow", wrong)
    story = Story(*plugin_node("gpu-1"), training_job("a", spec={"gpus": 8}))
    story.settle()
    assert "erred about this job (UnprintableError)" in (story.status("a").pending or pytest.fail("untold")).message


def test_a_mistake_about_a_job_that_cannot_be_read_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any) -> Any:
        raise KeyError("gpu-9")

    monkeypatch.setattr("closeknit.scheduling.decision.refuse_invalid", wrong)
    story = Story(*plugin_node("gpu-1"), training_job("a", spec={"gpus": "many"}), training_job("b", spec={"gpus": 8}))
    story.settle()
    assert story.status("b").state is State.STARTING
    (job,) = story.cluster.invalid_jobs.values()
    assert job.status.pending is not None and job.status.pending.reason == "InternalError"


def test_of_a_job_that_holds_gpus_and_cannot_be_read_any_more_it_is_told() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    before = story.status()
    job = story.objects[("TrainingJob", "team-b", "train")]
    job["spec"]["gpus"] = "many"
    story.settle()
    (invalid,) = story.cluster.invalid_jobs.values()
    placed = next(each for each in invalid.status.conditions if each.type == "Placed")
    assert (placed.status, placed.reason) == ("True", "NotSupported")
    assert placed.message.startswith("this version cannot read it: spec.gpus: ")
    assert (invalid.status.placement, story.pods()) == (before.placement, [f"train-a1-worker-{n:05d}" for n in (0, 1)])
    job["spec"]["gpus"] = 16
    story.settle()
    assert story.status() == before


def test_of_a_job_whose_status_cannot_be_read_an_event_tells_once_an_hour() -> None:
    story = two_plugin_nodes()
    story.settle()
    story.objects[("TrainingJob", "team-b", "train")]["status"]["placement"]["nodes"][0]["actual"] = "Partly"
    told = len(story.notices)
    story.settle()
    (notice,) = story.notices[told:]
    assert notice.note.startswith("this version cannot read it: status.placement.nodes[0]")
    story.pass_time(3599)
    story.settle()
    assert len(story.notices) == told + 1


def test_a_job_that_is_busy_gets_no_plan_and_keeps_what_it_holds() -> None:
    story = Story(*plugin_node("gpu-1"), training_job("a", spec={"gpus": 8}), training_job("b", spec={"gpus": 8}))
    booking, *_ = story.plans()
    story.write(booking)
    busy = frozenset({JobKey("team-b", "a")})
    (plan,) = story.plans(busy=busy)
    assert (str(plan.job), plan.status and plan.status.placement) == ("team-b/b", None)


def test_a_status_that_cannot_be_read_is_never_written_over() -> None:
    """A newer version may have written a word that this one does not know, and been rolled back."""
    story = two_plugin_nodes()
    story.settle()
    story.run_all()
    story.settle()
    before = list(story.written)
    story.objects[("TrainingJob", "team-b", "train")]["status"]["placement"]["nodes"][0]["actual"] = "Partly"
    story.settle()
    assert list(story.cluster.invalid_jobs) == [JobKey("team-b", "train")]
    assert (story.written, story.pods()) == (before, ["train-a1-worker-00000", "train-a1-worker-00001"])


def test_what_was_refused_is_asked_about_as_it_would_be_made_now() -> None:
    story = two_plugin_nodes(priorityClassName="high")
    story.forbidden["train-a1-worker-00001"] = "no PriorityClass with name high was found"
    story.settle()
    story.edit_job(priorityClassName="low")
    story.pass_time(2)
    (plan,) = story.plans()
    assert [probe["metadata"]["name"] for probe in plan.probes] == ["train-a1-worker-00001"]
    assert {probe["spec"]["priorityClassName"] for probe in plan.probes} == {"low"}


def test_words_that_cannot_be_found_keep_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), training_job("large", spec={"gpus": 32}))
    story.settle()

    def broken(*_: object) -> None:
        raise ArithmeticError("a mistake of ours")

    monkeypatch.setattr(import_module("closeknit.scheduling.memo.refusal_words"), "place", broken)
    story.add(pod("notebook", requests={"nvidia.com/gpu": "1"}))  # other numbers
    story.add(training_job("small", spec={"gpus": 4}))
    plans = {plan.job.name: plan for plan in story.decide(story._memory).plans}
    assert str(plans["large"].error) == "a mistake of ours"
    assert plans["small"].status is not None
    assert plans["small"].status.state is State.STARTING
