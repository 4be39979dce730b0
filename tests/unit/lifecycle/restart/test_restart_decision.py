"""Who pays for an end of a run, and whether the gang starts again: the judgement alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.api.reasons import EndReason
from closeknit.api.trainingjob import Restart
from closeknit.api.trainingjob_status import EndedAttempt, Exit, TrainingJobStatus
from closeknit.cluster.pods.symptoms import Symptom
from closeknit.lifecycle.restart.restart_decision import EndOfRun, Fails, StartsAgain, judge
from closeknit.lifecycle.status.blame import TABLE, Blame, Follows
from closeknit.lifecycle.status.conditions import timestamp

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
LONG = timedelta(hours=1)
OWN = TABLE[Symptom.EXITED]
FREE = StartsAgain(charged=False, words="the job starts again")


def end(exit_code: int | None = 1, ran: timedelta | None = LONG, **fields: Any) -> EndOfRun:
    return EndOfRun(**{"row": OWN, "exit_code": exit_code, "ran": ran} | fields)


def ended(
    reason: EndReason = EndReason.POD_FAILED,
    *,
    ran: str | None = "1h",
    exit_code: int | None = 1,
    why: str | None = None,
) -> EndedAttempt:
    exits = [Exit(pod="train-a1-worker-00000", exit_code=exit_code, reason=why)]
    return EndedAttempt(number=1, reason=reason, charged=True, ended=timestamp(NOW), ran=ran, exits=exits)


def status(*attempts: EndedAttempt, charges: tuple[timedelta, ...] = ()) -> TrainingJobStatus:
    """`charges` are how long ago charged restarts were."""
    return TrainingJobStatus(attempts=list(attempts), charges=[timestamp(NOW - ago) for ago in charges])


def judged(
    made: EndOfRun, stored: TrainingJobStatus | None = None, *, now: datetime = NOW, **restart: Any
) -> StartsAgain | Fails:
    return judge(made, Restart.parse(restart), stored or status(), now)


def reason(made: StartsAgain | Fails) -> EndReason:
    assert isinstance(made, Fails)
    return made.reason


def is_charged(made: StartsAgain | Fails) -> bool:
    assert isinstance(made, StartsAgain)
    return made.charged


@pytest.mark.parametrize("symptom", [each for each in Symptom if not TABLE[each].is_charged])
def test_what_the_job_has_not_caused_is_never_charged_and_never_ends_it(symptom: Symptom) -> None:
    made = end(42, timedelta(seconds=1), row=TABLE[symptom])
    stored = status(*(ended(ran="1s") for _ in range(10)), charges=(LONG,) * 5)
    assert judged(made, stored, limit=1, rules=[{"exitCodes": [42], "action": "Fail"}]) == FREE


def test_only_the_jobs_own_ends_are_charged() -> None:
    assert {each for each in Symptom if TABLE[each].is_charged} == {
        each for each in Symptom if TABLE[each].blame is Blame.JOB and TABLE[each].follows is Follows.END
    }


def test_without_a_limit_the_first_failure_ends_the_job() -> None:
    assert judge(end(), None, status(), NOW) == Fails(EndReason.POD_FAILED, "")
    assert judged(end(), limit=0) == Fails(EndReason.POD_FAILED, "")


def test_a_failure_within_the_limit_is_charged() -> None:
    assert judged(end(), limit=2) == StartsAgain(True, "the job starts again, charged: 1 of 2 within 24h")
    assert judged(end(), status(charges=(LONG,)), limit=2) == StartsAgain(
        True, "the job starts again, charged: 2 of 2 within 24h"
    )


def test_past_the_limit_the_job_fails_and_tells_the_ends_before() -> None:
    stored = status(ended(exit_code=1), ended(exit_code=137, why="OOMKilled"), charges=(2 * LONG, LONG))
    assert judged(end(), stored, limit=2) == Fails(
        EndReason.RESTART_LIMIT_EXCEEDED,
        "it has started again 2 times within 24h, which is as often as restart.limit allows; before: exit code 137 "
        "(OOMKilled), exit code 1",
    )


@pytest.mark.parametrize(
    ("ago", "counts"),
    [
        (timedelta(seconds=-60), False),  # a clock that was set back
        (timedelta(seconds=-3), True),  # another replica's clock
        (timedelta(), True),
        (timedelta(minutes=59, seconds=59), True),
        (timedelta(hours=1), False),
    ],
)
def test_a_charge_counts_within_the_window(ago: timedelta, counts: bool) -> None:
    made = judged(end(), status(charges=(ago,)), limit=1, window="1h")
    assert isinstance(made, Fails) == counts


def test_a_rule_may_fail_a_job_that_has_restarts_left() -> None:
    rules = [{"exitCodes": [42], "action": "Fail"}]
    assert judged(end(42), limit=9, rules=rules) == Fails(
        EndReason.POD_FAILED, "restart.rules says Fail for exit code 42"
    )
    assert is_charged(judged(end(43), limit=9, rules=rules))


def test_a_free_restart_needs_no_limit() -> None:
    rules = [{"exitCodes": [85], "action": "RestartFree"}]
    assert judged(end(85), rules=rules) == StartsAgain(
        False, "restart.rules says RestartFree for exit code 85: the job starts again"
    )
    assert not is_charged(judged(end(85), status(charges=(LONG,)), limit=1, rules=rules))
    assert reason(judged(end(1), rules=rules)) is EndReason.POD_FAILED


def test_the_first_rule_with_the_code_decides() -> None:
    rules = [
        {"exitCodes": [1, 2], "action": "RestartFree"},
        {"exitCodes": [2, 3], "action": "RestartFree"},
        {"exitCodes": [3], "action": "RestartFree"},
    ]
    assert not is_charged(judged(end(2), rules=rules))


def test_an_unknown_exit_code_matches_no_rule_and_is_charged() -> None:
    rules = [{"exitCodes": [1], "action": "Fail"}]
    assert judged(end(None), limit=1, rules=rules) == StartsAgain(
        True,
        "no exit code of its trainer is known, so that no rule matches; the job starts again, charged: 1 of 1 within "
        "24h",
    )
    assert judged(end(None), limit=1) == StartsAgain(True, "the job starts again, charged: 1 of 1 within 24h")


@pytest.mark.parametrize("ran", [None, timedelta(), timedelta(seconds=59)])
def test_three_ends_without_progress_in_a_row_end_the_job_before_its_limit(ran: timedelta | None) -> None:
    quick = ended(ran="4s")
    assert is_charged(judged(end(ran=ran), status(quick), limit=100))
    made = judged(end(ran=ran), status(quick, ended(ran=None)), limit=100)
    assert made == Fails(
        EndReason.NO_PROGRESS,
        "its last 3 runs each ended within 60 s, and that is too short for progress: to start it again would not help; "
        "before: exit code 1, exit code 1; mend the program or its settings, and create the job again",
    )


def test_free_restarts_end_without_progress_too() -> None:
    rules = [{"exitCodes": [85], "action": "RestartFree"}]
    stored = status(ended(ran="4s"), ended(ran="4s"))
    assert reason(judged(end(85, timedelta(seconds=4)), stored, rules=rules)) is EndReason.NO_PROGRESS


def test_a_run_of_a_minute_begins_the_row_again() -> None:
    quick = ended(ran="59s")
    assert is_charged(judged(end(ran=timedelta(seconds=1)), status(quick, ended(ran="1m"), quick), limit=100))
    assert is_charged(judged(end(ran=timedelta(seconds=60)), status(quick, quick), limit=100))


def test_progress_that_is_seen_counts_however_short_the_run() -> None:
    quick = ended(ran="4s")
    made = end(ran=timedelta(seconds=4), has_progressed=True)
    assert is_charged(judged(made, status(quick, quick), limit=100))


def test_ends_by_others_neither_break_the_row_nor_count() -> None:
    quick, lost = ended(ran="4s"), ended(EndReason.NODE_LOST, ran="4s")
    assert is_charged(judged(end(ran=timedelta(seconds=4)), status(lost, quick, lost, lost), limit=100))
    assert reason(judged(end(ran=timedelta(seconds=4)), status(quick, lost, quick), limit=100)) is EndReason.NO_PROGRESS


def test_the_limit_comes_before_the_lack_of_progress() -> None:
    quick = ended(ran="4s")
    stored = status(quick, quick, charges=(LONG, LONG))
    assert reason(judged(end(ran=timedelta(seconds=4)), stored, limit=2)) is EndReason.RESTART_LIMIT_EXCEEDED
