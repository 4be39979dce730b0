"""Pauses between attempts, and what they make of clocks."""

from datetime import timedelta

import pytest

from closeknit.api.reasons import EndReason
from closeknit.api.trainingjob_status import EndedAttempt, TrainingJobStatus, UnfitNode
from closeknit.api.wire import Condition
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.lifecycle.status.pauses import failed_starts, over_at, restart_at
from scenarios.story import NOW

BAD_LUCK = (
    EndReason.CHILD_DELETED,
    EndReason.GPU_TAKEN,
    EndReason.NODE_CHANGED,
    EndReason.UNSCHEDULABLE,
    EndReason.NODE_REFUSED,
    EndReason.DISRUPTED,
    EndReason.NODE_LOST,
    EndReason.GPU_LOST,
    EndReason.GPU_UNHEALTHY,
    EndReason.NIC_DOWN,
    EndReason.RANK_NOT_STARTED,
    EndReason.MISPLACED,
    EndReason.POD_FAILED,
)


def ended(*ago_s: int, reason: EndReason = EndReason.UNSCHEDULABLE) -> TrainingJobStatus:
    """Attempts that ended so many seconds ago, the oldest first."""
    moments = [timestamp(NOW - timedelta(seconds=seconds)) for seconds in ago_s]
    attempts = [
        EndedAttempt(number=number, reason=reason, charged=False, ended=moment)
        for number, moment in enumerate(moments, start=1)
    ]
    return TrainingJobStatus(attempts=attempts)


@pytest.mark.parametrize(
    ("ago_s", "pause_s"),
    [
        pytest.param((0,), None, id="one is bad luck"),
        pytest.param((30, 0), 2, id="of two the second waits"),
        pytest.param((60, 30, 0), 4, id="and twice as long each"),
        pytest.param(tuple(range(330 * 9, -1, -330)), 300, id="though the pauses themselves take long: five minutes"),
        pytest.param((700, 30, 0), 2, id="an attempt that lasted eleven minutes had its chance"),
        pytest.param((0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 300, id="never longer than five minutes"),
    ],
)
def test_a_pause_grows_with_bad_luck_in_a_row(ago_s: tuple[int, ...], pause_s: int | None) -> None:
    ready = restart_at(ended(*ago_s), NOW)
    assert ready == (None if pause_s is None else NOW + timedelta(seconds=pause_s))


@pytest.mark.parametrize(("ago_s", "pause_s"), [((0,), 15), ((60, 0), 30), ((200, 100, 0), 60), ((0,) * 10, 300)])
def test_what_waits_for_an_object_pauses_from_the_first_time_on(ago_s: tuple[int, ...], pause_s: int) -> None:
    status = ended(*ago_s, reason=EndReason.OBJECT_MISSING)
    assert restart_at(status, NOW) == NOW + timedelta(seconds=pause_s)


OTHERS = [reason for reason in EndReason if reason not in {*BAD_LUCK, EndReason.OBJECT_MISSING}]


@pytest.mark.parametrize("reason", OTHERS)
def test_what_a_job_or_its_user_does_is_no_bad_luck(reason: EndReason) -> None:
    assert restart_at(ended(30, 0, reason=reason), NOW) is None


@pytest.mark.parametrize("reason", BAD_LUCK)
def test_what_others_do_is(reason: EndReason) -> None:
    assert restart_at(ended(30, 0, reason=reason), NOW) == NOW + timedelta(seconds=2)


def test_a_gang_that_has_lost_one_node_after_the_other_waits_for_nobody() -> None:
    lost = ended(200, 150, 100, 50, 0, reason=EndReason.NODE_LOST)
    unfit = [UnfitNode(name="node", state="as it was")]
    attempts = [each.model_copy(update={"unfit": unfit}) for each in lost.attempts]
    assert restart_at(TrainingJobStatus(attempts=attempts), NOW) is None
    others = ended(170, 30, 0, reason=EndReason.CHILD_DELETED).attempts
    among = sorted([*attempts[:4], *others], key=lambda each: each.ended)
    assert restart_at(TrainingJobStatus(attempts=among), NOW) == NOW + timedelta(seconds=4), "as without the lost ones"


@pytest.mark.parametrize("hours", [-6, 6])
def test_a_pause_ends_when_the_clock_is_set(hours: int) -> None:
    assert restart_at(ended(30, 0), NOW + timedelta(hours=hours)) is None


@pytest.mark.parametrize(
    ("began", "over_in_s"),
    [
        ("2026-11-21T10:00:00Z", 30),
        ("2026-11-21T09:59:40Z", 10),
        ("2026-11-21T11:00:00+01:00", 30),
        ("2026-11-21T10:00:05Z", 35),
        ("2026-11-21T10:00:06Z", 0),
        ("2026-11-21T16:00:00Z", 0),
        ("yesterday", 0),
        (None, 0),
    ],
)
def test_what_began_by_another_machines_clock_lasts_no_longer_than_it_may(began: str | None, over_in_s: int) -> None:
    assert over_at(began, timedelta(seconds=30), NOW) == NOW + timedelta(seconds=over_in_s)


def failed(*ago_min: int, reason: EndReason = EndReason.UNSCHEDULABLE, unfit: bool = True) -> list[EndedAttempt]:
    """Attempts that could not start and ended so many minutes ago, the oldest first."""
    nodes = [UnfitNode(name="gpu-1", state="")] if unfit else None
    attempts = ended(*(60 * minutes for minutes in ago_min), reason=reason).attempts
    return [attempt.model_copy(update={"unfit": nodes}) for attempt in attempts]


def missing(*ago_min: int) -> list[EndedAttempt]:
    return failed(*ago_min, reason=EndReason.OBJECT_MISSING, unfit=False)


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        pytest.param(failed(1), (1, 9, None), id="another node may take it"),
        pytest.param(failed(3, 1), (2, 19, None), id="or a third one"),
        pytest.param(failed(3, 2, 1), (3, 39, 9), id="most likely it is the job"),
        pytest.param(failed(*range(10, 0, -1)), (10, 719, 9), id="twelve hours at most"),
        pytest.param(failed(3, 1, reason=EndReason.NODE_LOST), None, id="a dead node is no sign"),
        pytest.param(missing(1), (1, 9, None), id="it may come"),
        pytest.param(missing(3, 1), (2, 19, 9), id="no node would take it"),
        pytest.param(missing(*range(8, 0, -1)), (8, 719, 59), id="an hour"),
        pytest.param(failed(30, 21), None, id="that is over"),
        pytest.param(failed(*range(10080, 10073, -1), 1), (1, 9, None), id="those of last week do not count"),
    ],
)
def test_a_job_that_could_not_start_is_taken_not_to_start_for_a_while(
    attempts: list[EndedAttempt], expected: tuple[int, int, int | None] | None
) -> None:
    assert told(TrainingJobStatus(attempts=attempts)) == expected


def told(status: TrainingJobStatus) -> tuple[int, int, int | None] | None:
    """How many there are, and for how many minutes they and the bar last."""
    minute, known = timedelta(minutes=1), failed_starts(status, NOW)
    if known is None:
        return None
    barred = known.bars_room_until
    return len(known.attempts), (known.until - NOW) // minute, None if barred is None else (barred - NOW) // minute


def test_a_run_ends_the_row_of_failed_starts_and_what_others_caused_does_not() -> None:
    attempts = failed(9, 7, 5, 3, 1)
    attempts[1] = attempts[1].model_copy(update={"ran": "2m"})
    attempts[3] = attempts[3].model_copy(update={"reason": EndReason.PREEMPTED})
    assert told(TrainingJobStatus(attempts=attempts)) == (2, 19, None)


@pytest.mark.parametrize(("ago_min", "expected"), [(2, (1, 9, None)), (0, None)])
def test_who_resumes_a_job_has_it_tried_as_a_new_one(ago_min: int, expected: tuple[int, int, None] | None) -> None:
    at = timestamp(NOW - timedelta(minutes=ago_min))
    resumed = Condition(type="Suspended", status="False", reason="Resumed", message="", last_transition_time=at)
    assert told(TrainingJobStatus(attempts=failed(5, 3, 1), conditions=[resumed])) == expected


def test_a_clock_that_was_set_back_keeps_nobody_from_making_room() -> None:
    assert failed_starts(TrainingJobStatus(attempts=failed(3, 1)), NOW - timedelta(hours=1)) is None
