"""The table of blame is closed, and its page says what it says."""

from closeknit.api.reasons import EndReason
from closeknit.cluster.pods.symptoms import Symptom
from closeknit.lifecycle.status.blame import TABLE, Blame, Follows
from scenarios.blame import PAGE, page

ENDS = {Follows.ELSEWHERE, Follows.OTHER_GPUS, Follows.AGAIN, Follows.WAIT, Follows.END}
# Nobody is to blame for these: the job is done, or its own spec says how long, how often, or that it is to stop.
OF_THE_USER = {
    EndReason.SUCCEEDED,
    EndReason.SUSPENDED,
    EndReason.DEADLINE_EXCEEDED,
    EndReason.RESTART_LIMIT_EXCEEDED,
    EndReason.NO_PROGRESS,
    EndReason.PREEMPTED,  # of another job
    EndReason.EVICTED_BY_KUEUE,  # of a queue
    EndReason.SHRUNK,
    EndReason.GROWN,
    EndReason.MOVED,
}


def test_every_symptom_has_its_row() -> None:
    assert set(TABLE) == set(Symptom)


def test_every_end_of_an_attempt_has_a_row() -> None:
    assert {row.reason for row in TABLE.values() if isinstance(row.reason, EndReason)} == set(EndReason) - OF_THE_USER


def test_only_what_ends_a_job_is_charged_and_only_to_itself() -> None:
    assert {row.reason for row in TABLE.values() if row.is_charged} == {EndReason.POD_FAILED, EndReason.HUNG}
    assert all(row.follows in ENDS for row in TABLE.values() if isinstance(row.reason, EndReason))
    assert all(row.blame is Blame.JOB for row in TABLE.values() if row.follows is Follows.END)


def test_the_page_is_generated() -> None:
    assert PAGE.read_text() == page(), "run: make generate"
