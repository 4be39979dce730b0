"""Jobs that a quota refused are tried again, and keep what is free from nobody else by it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from closeknit.api.names import JobKey
from closeknit.api.reasons import PendingReason
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import change, from_document
from closeknit.lifecycle.verdict import Book
from closeknit.lifecycle.writes.answers import Answers
from closeknit.lifecycle.writes.refusals import Refusing, Rejection
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.policy.probation import BETWEEN, REST
from scenarios.manifests import Manifest, training_job
from scenarios.story import plugin_node

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def job(name: str, namespace: str) -> Manifest:
    made = training_job(name, namespace=namespace, spec={"gpus": 8})
    made["metadata"]["uid"] = f"uid-of-{name}"
    return made


def refused(ago_s: float) -> Answers:
    at = NOW - timedelta(seconds=ago_s)
    rejection = Rejection(PendingReason.QUOTA_EXCEEDED, "too much", Refusing.CHILD, None, 1, 1, at, 1)
    return Answers(rejection=rejection, rejections=1)


def booked(now: datetime, *manifests: Manifest) -> list[JobKey]:
    """Who gets the eight GPUs while the first of the two refused jobs was refused just now, and the other long ago."""
    objects = [value for each in (*plugin_node("gpu-1"), *manifests) if (value := from_document(each)) is not None]
    memory = Memory({"uid-of-first": refused(0), "uid-of-second": refused(60)})
    cluster = Cluster.empty().after(map(change, objects))
    schedule = decide(cluster, Tables(), memory, now).schedule
    return [key for key, verdict in schedule.items() if isinstance(verdict, Book)]


def test_between_two_trials_of_a_namespace_what_is_free_is_free_for_others() -> None:
    over, other = [job("first", "a"), job("second", "a")], job("train", "b")
    soon = NOW + BETWEEN / 2
    assert booked(soon, *over) == []
    assert booked(soon, *over, other) == [JobKey("b", "train")]


def test_a_job_that_was_never_tried_waits_for_the_next_moment_like_those_that_were() -> None:
    """Else four hundred new ones, each refused in its turn, would keep an idle cluster from everybody."""
    new, other = job("new", "a"), job("train", "b")
    soon = NOW + BETWEEN / 2
    assert booked(soon, job("first", "a"), new) == []
    assert booked(soon, job("first", "a"), new, other) == [JobKey("b", "train")]
    assert booked(NOW + BETWEEN, job("other", "a"), new) == [JobKey("a", "new")]


def test_then_they_are_tried_in_their_turn() -> None:
    assert booked(NOW + BETWEEN, job("second", "a"), job("first", "a"), job("train", "b")) == [JobKey("a", "first")]


def test_a_namespace_waits_a_moment_after_another_ones_refusals_and_no_longer() -> None:
    """Else jobs of ten namespaces would take turns, and one of them always have what is free."""
    over, other = [job("first", "a"), job("second", "b")], job("train", "c")
    assert booked(NOW + REST / 2, *over, other) == [JobKey("c", "train")]
    assert booked(NOW + REST, *over) == [JobKey("b", "second")]


@pytest.mark.parametrize(("ago_s", "new_waits"), [(3, True), (60, False)])
def test_a_new_job_beside_one_that_was_refused_lately_waits_as_if_it_had_been(ago_s: float, new_waits: bool) -> None:
    """Its status says so later, when hundreds of others are written: until then each would be tried in its turn."""
    behind, new = job("second", "b"), job("new", "b")
    objects = [
        value for each in (*plugin_node("gpu-1"), job("first", "a"), behind, new) if (value := from_document(each))
    ]
    memory = Memory({"uid-of-first": refused(0), "uid-of-second": refused(ago_s)})
    cluster = Cluster.empty().after(map(change, objects))
    schedule = decide(cluster, Tables(), memory, NOW + REST / 2).schedule
    assert isinstance(schedule[JobKey("b", "new")], Book) is not new_waits


def test_while_one_is_on_trial_the_others_that_were_refused_keep_their_words() -> None:
    """In another namespace, too: else each trial would be told to all of them, and a moment later its end."""
    manifests = [job("first", "a"), job("second", "b")]
    objects = [value for each in (*plugin_node("gpu-1"), *manifests) if (value := from_document(each)) is not None]
    cluster = Cluster.empty().after(map(change, objects))
    memory = Memory({"uid-of-first": refused(60), "uid-of-second": refused(60)})
    (begun,) = (plan for plan in decide(cluster, Tables(), memory, NOW).plans if plan.status is not None)
    assert begun.status is not None and begun.status.placement is not None
    assumed = cluster.with_job(cluster.jobs[begun.job].model_copy(update={"status": begun.status}))
    meanwhile = replace(memory, busy=frozenset({begun.job}))
    assert [plan for plan in decide(assumed, Tables(), meanwhile, NOW).plans if plan.status is not None] == []


@pytest.mark.parametrize("are_alike", [True, False], ids=["alike", "all different"])
def test_all_that_come_behind_a_refused_one_hear_a_reason_at_once(are_alike: bool) -> None:
    """More than a namespace's ration of questions: those at the end of the queue were never told anything while others
    were tried."""
    new = [job(f"new-{number:03d}", "a") for number in range(200)]
    for number, each in enumerate(new):
        each["spec"]["template"]["spec"]["tolerations"] = [] if are_alike else [{"key": f"t{number}"}]
    objects = [value for each in (*plugin_node("gpu-1"), job("first", "a"), *new) if (value := from_document(each))]
    cluster = Cluster.empty().after(map(change, objects))
    decision = decide(cluster, Tables(), Memory({"uid-of-first": refused(0)}), NOW + BETWEEN / 2)
    told = {plan.job.name for plan in decision.plans if plan.status is not None and plan.status.pending is not None}
    assert told >= {each["metadata"]["name"] for each in new}


def waits_for_a_name(name: str) -> Manifest:
    """A job that has been told that somebody else has the name of its Pod."""
    told = {"reason": "NameConflict", "message": f"Pod {name}-a1-worker-00000 exists", "since": "2026-11-21T12:00:00Z"}
    return job(name, "a") | {"status": {"observedGeneration": 1, "state": "Queued", "pending": told}}


@pytest.mark.parametrize("was_refused", [False, True])
@pytest.mark.parametrize("ago_s", [pytest.param(0, id="was refused"), pytest.param(60, id="is on trial")])
def test_what_a_job_itself_lacks_is_not_told_anew_with_each_try_of_another(ago_s: float, was_refused: bool) -> None:
    """Else its status would be written twice each time; so it is, too, where it was refused itself long ago."""
    manifests = (*plugin_node("gpu-1"), job("first", "a"), waits_for_a_name("waiting"))
    cluster = Cluster.empty().after(map(change, [value for each in manifests if (value := from_document(each))]))
    memory = Memory({"uid-of-first": refused(ago_s), **({"uid-of-waiting": refused(3600)} if was_refused else {})})
    decision = decide(cluster, Tables(), memory, NOW + BETWEEN / 2)
    assert isinstance(decision.schedule[JobKey("a", "first")], Book) is (ago_s > 0)
    plans = {plan.job.name: plan for plan in decision.plans}
    assert "waiting" not in plans or plans["waiting"].status is None


def test_a_job_that_was_refused_itself_is_not_told_of_it_anew_while_it_lacks_gpus_as_well() -> None:
    """Another job of its namespace is tried and refused every minute; it would be told one thing and then the other."""
    waiting = job("second", "a")
    waiting["spec"]["gpus"] = 16
    objects = [value for each in (*plugin_node("gpu-1"), job("first", "a"), waiting) if (value := from_document(each))]
    cluster = Cluster.empty().after(map(change, objects))
    memory = Memory({"uid-of-first": refused(0), "uid-of-second": refused(60)})
    plans = {plan.job.name: plan for plan in decide(cluster, Tables(), memory, NOW + BETWEEN / 2).plans}
    assert (status := plans["second"].status) is not None
    assert status.pending is not None
    assert status.pending.reason == PendingReason.INSUFFICIENT_GPUS
