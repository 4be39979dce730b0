"""Elastic jobs and planned moves in a replay: the operator's decisions, and the time that they take and give."""

from typing import Any

import pytest

from closeknit.api.reasons import EndReason
from closeknit.api.trainingjob import Defragment, Elastic, TrainingJobSpec
from closeknit.cluster.objects.node_objects import PriorityClass
from closeknit.cluster.store.watched_kinds import change
from closeknit.simulation.account import Bookkeeper, ReplayAccount
from closeknit.simulation.changing import RunLeft
from closeknit.simulation.fractional import Sharing
from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import replay
from closeknit.simulation.submission import Submission
from scenarios.traces import BEGINS, cluster, spec

HIGH = change(PriorityClass("high", 100))


def elastic(gpus: int, least: int, **fields: Any) -> TrainingJobSpec:
    return spec(gpus).model_copy(update={"elastic": Elastic(min_gpus=least), **fields})


def urgent(gpus: int) -> TrainingJobSpec:
    return spec(gpus).model_copy(update={"priority_class_name": "high"})


def happens(queue: Operated, *jobs: Submission) -> list[tuple[float, str, int, int]]:
    """When which job begins, changes and ends, with its GPUs then."""
    found: list[tuple[float, str, int, int]] = []
    for moment in replay(jobs, queue):
        found += [(moment.now_s, "goes", job.number, 0) for job in moment.went]
        found += [(moment.now_s, "stops", job.number, 0) for job in moment.stopped]
        found += [(moment.now_s, "begins", job.number, queue.held_gpus(job)) for job in moment.began]
        found += [(moment.now_s, how, job.number, queue.held_gpus(job)) for job, how in queue.changes.items()]
    return found


def test_an_elastic_job_that_ends_before_anything_else_happens_leaves_its_gpus() -> None:
    jobs = (Submission(1, 0, 300, elastic(8, 4)), Submission(2, 1000, 300, spec(8)))
    began = [
        (job.number, moment.now_s) for moment in replay(jobs, Operated(cluster("r1"), BEGINS)) for job in moment.began
    ]
    assert began == [(1, 0), (2, 1000)]


def test_an_elastic_job_begins_with_fewer_after_a_minute_and_takes_longer() -> None:
    """Half of its GPUs do half of its work in the time."""
    jobs = (Submission(1, 0, 100_000, spec(8)), Submission(2, 10, 600, elastic(16, 8)))
    assert happens(Operated(cluster("r1", "r1"), BEGINS), *jobs)[:3] == [
        (0, "begins", 1, 8),
        (70, "begins", 2, 8),
        (70 + 1200, "goes", 2, 0),
    ]


def test_it_grows_once_there_has_been_room_for_a_while() -> None:
    """It has done 500 of its 4,000 seconds with half of its GPUs by then, and 270 while it waited to grow."""
    jobs = (Submission(1, 0, 1070, spec(8)), Submission(2, 10, 4000, elastic(16, 8)))
    found = happens(Operated(cluster("r1", "r1"), BEGINS), *jobs)
    ((grown_s, *_),) = [each for each in found if each[1] == EndReason.GROWN]
    assert grown_s > 1070
    done_s = (grown_s - 70) / 2
    assert found[-1] == (grown_s + 120 + 4000 - done_s, "goes", 2, 0)
    assert (grown_s, EndReason.GROWN, 2, 16) in found


def test_it_shrinks_for_a_job_of_higher_priority_and_goes_on() -> None:
    queue = Operated(cluster("r1", "r1").after([HIGH]), BEGINS)
    jobs = (Submission(1, 0, 1000, elastic(16, 8)), Submission(2, 100, 200_000, urgent(8)))
    assert happens(queue, *jobs) == [
        (0, "begins", 1, 16),
        (100, "begins", 2, 8),
        (100, EndReason.SHRUNK, 1, 8),
        (100 + 120 + 2 * 900, "goes", 1, 0),
        (200_100, "goes", 2, 0),
    ]


def test_it_stops_where_its_least_size_has_no_room_left() -> None:
    queue = Operated(cluster("r1").after([HIGH]), BEGINS)
    jobs = (Submission(1, 0, 1000, elastic(8, 4)), Submission(2, 100, 200, urgent(8)))
    found = happens(queue, *jobs)
    assert found[:4] == [
        (0, "begins", 1, 8),
        (100, "stops", 1, 0),
        (100, "begins", 2, 8),
        (300, "goes", 2, 0),
    ]
    assert ("begins", 1, 8) in [each[1:] for each in found[4:]]


def planned(gpus: int) -> TrainingJobSpec:
    return spec(gpus).model_copy(update={"defragment": Defragment.PLANNED})


def test_a_job_moves_so_that_a_gang_begins() -> None:
    """Four GPUs are free on each of two nodes once the second and the fourth have gone."""
    queue = Operated(cluster("r1", "r1"), BEGINS)
    jobs = (
        Submission(1, 0, 100_000, planned(4)),
        Submission(2, 1, 500, spec(4)),
        Submission(3, 2, 100_000, spec(4)),
        Submission(4, 3, 500, spec(4)),
        Submission(5, 4, 600, spec(8, gpusPerNode=8)),
    )
    found = happens(queue, *jobs)
    ((moved_s, *_),) = [each for each in found if each[1] == EndReason.MOVED]
    assert 503 <= moved_s <= 600
    assert (moved_s, "begins", 5, 8) in found
    assert found[-1][:3] == (100_000 + 120, "goes", 1)


def test_what_jobs_hold_and_how_often_they_changed_is_counted() -> None:
    def account(*jobs: Submission) -> ReplayAccount:
        queue = Sharing(Operated(cluster("r1", "r1").after([HIGH]), BEGINS))
        book = Bookkeeper(queue, max(job.at_s for job in jobs))
        for moment in replay(jobs, queue):
            book.note(moment)
        return book.account()

    jobs = (
        Submission(1, 0, 1000, elastic(16, 8)),
        Submission(2, 100, 50_000, urgent(8)),
        Submission(3, 10_000, 10, spec(1)),
    )
    found = account(*jobs)
    assert (found.resizes.shrunk, found.resizes.grown, found.resizes.moved) == (1, 0, 0)
    # 16 GPUs for 100 s, then 8 and 8 until the first has gone after 1,920 s more, then 8.
    assert found.allocated == pytest.approx((16 * 2020 + 8 * (10_000 - 2020)) / (16 * 10_000))


def test_a_run_goes_on_from_where_it_was() -> None:
    left = RunLeft(1000, 1, 0).resized(0.5, 400)
    assert left.ends_in_s(400) == 120 + 2 * 600
    assert left.resized(1, 460).ends_in_s(460) == 120 + 600  # the restart was not over: nothing more was done
