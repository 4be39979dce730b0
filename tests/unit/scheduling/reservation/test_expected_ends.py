"""When running jobs are expected to end."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from closeknit.api.objects import TrainingJob
from closeknit.cluster.store.kinds import from_document
from closeknit.scheduling.reservation.expected_ends import end_terms
from scenarios.manifests import booked, condition, training_job
from scenarios.story import NOW

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
        pytest.param({"expectedDuration": "2h"}, 60, id="as declared"),
        pytest.param({"activeDeadlineSeconds": 7200}, 60, id="its deadline"),
        pytest.param({"expectedDuration": "3h", "activeDeadlineSeconds": 7200}, 60, id="its deadline is sooner"),
        pytest.param({"expectedDuration": "2h", "activeDeadlineSeconds": 10800}, 60, id="its declaration is sooner"),
        pytest.param({"expectedDuration": "96m"}, 36 + 96 / 8, id="soon as declared: an eighth more"),
        pytest.param({"expectedDuration": "1h"}, 15, id="late by nothing yet: two eighths more"),
        pytest.param({"expectedDuration": "50m"}, 50 * 11 / 8 - 60, id="late by more than an eighth: three eighths"),
        pytest.param({"expectedDuration": "42m"}, 42 * 12 / 8 - 60, id="late by more than three eighths: four"),
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
    job = runs({"expectedDuration": "2h"}, attempts=[ended], cost={"trainedSeconds": 2400})
    assert minutes(job) == 120 - 40 - 15


def test_an_end_is_never_in_the_past_and_moves_a_few_times_alone() -> None:
    job, seen = runs({"expectedDuration": "10m"}), set()
    for minute in range(10_000):
        now = NOW + timedelta(minutes=minute)
        end = end_terms(job, now).end(now)
        assert end is not None
        assert end.at > now
        seen.add(end.at)
    assert len(seen) <= 13
