"""When running jobs are expected to end."""

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.node_objects import PriorityClass
from closeknit.cluster.store.watched_kinds import ObjectChange, change, from_document
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.reservation import expected_ends
from closeknit.scheduling.reservation.expected_ends import EndTerms, JobTerms, KnownEnds, end_terms, terms_of
from closeknit.scheduling.reservation.reserve import ends_may_change_at
from closeknit.scheduling.schedule import schedule
from scenarios.manifests import booked, condition, training_job, uuids, worker
from scenarios.story import NOW, Story, plugin_node

BOOKED = "2026-11-21T09:00:00Z"  # an hour before NOW


def runs(spec: dict[str, Any], **status: Any) -> TrainingJob:
    placed = {**condition("Placed"), "lastTransitionTime": BOOKED}
    where = booked(("gpu-1", range(8)))
    manifest = training_job("runs", spec={"gpus": 8, **spec}, placement=where, conditions=[placed], **status)
    made = from_document(manifest)
    assert isinstance(made, TrainingJob)
    return made


def minutes(job: TrainingJob, now: datetime = NOW) -> float | None:
    """How long it is expected to stay."""
    end = end_terms(job, now).end(now)
    return None if end is None else (end.at - now).total_seconds() / 60


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        pytest.param({}, None, id="it says nothing"),
        pytest.param({"expectedDuration": "4h"}, 180, id="as declared"),
        pytest.param({"activeDeadlineSeconds": 7200}, 60, id="its deadline"),
        pytest.param({"expectedDuration": "3h", "activeDeadlineSeconds": 7200}, 60, id="its deadline is sooner"),
        pytest.param({"expectedDuration": "4h", "activeDeadlineSeconds": 18000}, 180, id="its declaration is sooner"),
        pytest.param({"expectedDuration": "2h"}, 60 + 120 / 8, id="half of it: an eighth more"),
        pytest.param({"expectedDuration": "96m"}, 36 + 96 / 4, id="soon as declared: two eighths more"),
        pytest.param({"expectedDuration": "1h"}, 60 * 3 / 8, id="late by nothing yet: three eighths more"),
        pytest.param({"expectedDuration": "50m"}, 50 * 12 / 8 - 60, id="late by more than an eighth: four eighths"),
        pytest.param({"expectedDuration": "42m"}, 42 * 13 / 8 - 60, id="late by more than three eighths: five"),
        pytest.param({"expectedDuration": "36m"}, 36 * 2 - 60, id="late by more than four eighths: as long again"),
        pytest.param(
            {"expectedDuration": "72m", "activeDeadlineSeconds": 4500}, 15, id="its deadline ends it until then"
        ),
        pytest.param({"expectedDuration": "1m"}, 5, id="a lie of 60 times: 1, 2, 4 … 64 minutes more"),
        pytest.param({"expectedDuration": "0s"}, 5, id="nothing counts as a minute"),
        pytest.param({"expectedDuration": "99999999999999999999999999999h"}, 100 * 365 * 1440 - 60, id="for ever"),
    ],
)
def test_the_end(spec: dict[str, Any], left: float | None) -> None:
    assert minutes(runs(spec, startTime=BOOKED)) == left


def test_what_it_trained_before_a_restart_counts() -> None:
    ended = {"number": 1, "reason": "NodeLost", "charged": False, "ended": "2026-11-21T09:45:00Z"}
    job = runs({"expectedDuration": "4h"}, attempts=[ended], cost={"trainedSeconds": 2400})
    assert minutes(job) == 240 - 40 - 15


def test_an_end_is_never_in_the_past_and_moves_a_few_times_alone() -> None:
    job, seen = runs({"expectedDuration": "10m"}), set()
    for minute in range(10_000):
        now = NOW + timedelta(minutes=minute)
        end = end_terms(job, now).end(now)
        assert end is not None
        assert end.at > now
        seen.add(end.at)
    assert len(seen) <= 13


def test_a_decision_is_due_when_a_late_end_is_no_longer_allowed_for() -> None:
    """From then on it counts no more for a job that has waited long, though nothing has changed."""
    job, now = runs({"expectedDuration": "1h"}), NOW + timedelta(minutes=40)
    terms = end_terms(job, now)
    end = terms.end(now)
    assert end is not None and end.is_late
    moments = ends_may_change_at([end], JobTerms(by_job={job.key: terms}), now)
    assert sorted(moments) == [NOW + timedelta(minutes=45), NOW + timedelta(minutes=60)]


STEPS = st.integers(-3 * 86_400, 3 * 86_400)


@given(
    declared=st.none() | STEPS,
    eighth=st.integers(7, 40_000),
    due=st.none() | STEPS,
    later=st.lists(st.integers(0, 3 * 86_400), max_size=8),
)
def test_an_end_holds_until_it_says(declared: int | None, eighth: int, due: int | None, later: list[int]) -> None:
    def at(seconds: int | None) -> datetime | None:
        return None if seconds is None else NOW + timedelta(seconds=seconds)

    terms = EndTerms(runs({}), at(declared), timedelta(seconds=eighth), at(due))
    found = terms.dated_end(NOW)
    assert found.end == terms.end(NOW)
    moments = [NOW + timedelta(seconds=each) for each in later]
    if found.until is not None:
        assert found.until > NOW
        moments += [found.until - timedelta(seconds=1), found.until]
    for now in moments:
        if now >= NOW and (found.until is None or now < found.until):
            assert terms.end(now) == found.end


def waiting_for(*declared: str) -> Story:
    """A node for each job that declares so much, and one job more."""
    story = Story()
    for number, each in enumerate(declared):
        for manifest in plugin_node(f"gpu-{number}"):
            story.add(manifest)
        story.add(training_job(f"runs-{number}", spec={"gpus": 8, "expectedDuration": each}))
    story.settle()
    story.add(training_job("waits", spec={"gpus": 8 * len(declared)}))
    story.settle()
    return story


def test_the_ends_of_jobs_that_have_not_changed_are_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand jobs may declare, and every event asks when room comes free."""
    asked: list[datetime] = []
    real = expected_ends._with_time

    def counted(declared: datetime, step: timedelta, now: datetime) -> datetime | None:
        asked.append(declared)
        return real(declared, step, now)

    monkeypatch.setattr(expected_ends, "_with_time", counted)
    story = waiting_for("4h", "5h", "6h", "7h", "8h")
    first = story.decide().schedule
    assert first.reservations
    asked.clear()
    story.pass_time(1)
    cluster = first.cluster.after([change(PriorityClass("other", 1))])
    second = schedule(cluster, story.tables, Memory(schedule=first), story.now)
    assert (second.reservations, asked) == (first.reservations, [])
    job = cluster.jobs[JobKey("team-b", "runs-3")]
    changed = job.model_copy(update={"status": job.status.model_copy(update={"restarts": 1})})
    third = schedule(cluster.with_job(changed), story.tables, Memory(schedule=second), story.now)
    assert (third.reservations, len(asked)) == (first.reservations, 1)


def test_what_is_remembered_of_ends_changes_none() -> None:
    """While time passes, jobs end, and others are late."""
    story = waiting_for("10m", "1h", "90m", "8h")
    last = None
    for step in range(40):
        fresh = story.decide().schedule
        last = schedule(fresh.cluster, story.tables, Memory(schedule=last), story.now)
        assert last.ends.ends == fresh.ends.ends
        assert last.reservations == fresh.reservations
        story.pass_time(601)
        if step == 20:
            story.edit_job("runs-2", suspend=True)


def in_any_state(name: str, chance: random.Random) -> TrainingJob:
    """It waits, runs, has its GPUs from now on, or is suspended; and says how long it runs, or does not."""
    said: list[dict[str, Any]] = [
        {},
        {"expectedDuration": f"{chance.randrange(1, 300)}m"},
        {"activeDeadlineSeconds": chance.randrange(1, 9999)},
    ]
    spec: dict[str, Any] = {"gpus": 8, **chance.choice(said), **chance.choice(said), "suspend": chance.random() < 0.3}
    status: dict[str, Any] = {}
    if chance.random() < 0.7:
        status["placement"] = booked(("gpu-1", range(8)))
        status |= chance.choice([{}, {"startTime": BOOKED}])
    ended = {"number": 1, "reason": "NodeLost", "charged": False, "ended": before(NOW, 7200 + chance.randrange(7200))}
    status |= chance.choice([{}, {"attempts": [ended]}])
    made = from_document(training_job(name, spec=spec, **status))
    assert isinstance(made, TrainingJob)
    return made


def before(now: datetime, seconds: int) -> str:
    return (now - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("seed", range(60))
def test_what_is_remembered_of_any_jobs_changes_no_end(seed: int) -> None:
    """Jobs come, change and go, and so do their Pods; the clock is set back now and then."""
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
    cluster, now = Cluster.empty(), NOW
    terms, known = JobTerms(), KnownEnds()
    for _ in range(60):
        changes: list[ObjectChange] = []
        for name in chance.sample("abcdef", chance.randrange(3)):
            if name in {key.name for key in cluster.jobs} and chance.random() < 0.2:
                changes.append(replace(change(cluster.jobs[JobKey("team-b", name)]), new=None))
                continue
            changes.append(change(in_any_state(name, chance)))
        for name in chance.sample("abcdef", chance.randrange(2)):
            phase = chance.choice(["Running", "Succeeded"])
            pod = from_document(
                {**worker(name, 0, node="gpu-1", gpus=uuids("gpu-1", *range(8))), "status": {"phase": phase}}
            )
            assert pod is not None
            changes.append(change(pod))
        cluster = cluster.after(changes)
        now += timedelta(seconds=chance.choice([0, 1, 60, 601, 7200, -90]))
        terms = terms_of(cluster, now, terms)
        known = expected_ends.expected_ends(cluster, now, terms, known)
        fresh = terms_of(cluster, now, JobTerms())
        assert terms.by_job == fresh.by_job
        assert known.ends == expected_ends.expected_ends(cluster, now, fresh, KnownEnds()).ends


def test_no_decision_is_due_at_once_where_an_end_moves_within_a_second() -> None:
    """Of a job that declares 500 s and is late, an eighth more than that: 562.5 s."""
    story = waiting_for("500s")
    story.pass_time(501)
    story.settle()
    story.pass_time(61.5)
    wake_at = story.decide().schedule.wake_at
    assert wake_at is not None
    assert wake_at - story.now == timedelta(seconds=0.5)
