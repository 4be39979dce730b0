"""What a replay comes to, against sums by hand."""

import pytest

from closeknit.cluster.objects.node_objects import PriorityClass
from closeknit.cluster.store.watched_kinds import change
from closeknit.simulation.account import SAMPLES, Bookkeeper, ReplayAccount
from closeknit.simulation.fractional import Sharing
from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import replay
from closeknit.simulation.submission import Submission
from scenarios.traces import BEGINS, cluster, spec


def account(jobs: list[Submission], *racks: str) -> ReplayAccount:
    queue = Sharing(Operated(cluster(*racks), BEGINS))
    book = Bookkeeper(queue, max(job.at_s for job in jobs))
    for moment in replay(jobs, queue):
        book.note(moment)
    return book.account()


def test_waits_allocation_and_domains() -> None:
    jobs = [Submission(1, 0, 100, spec(8)), Submission(2, 50, 20, spec(8)), Submission(3, 200, 10, spec(4))]
    found = account(jobs, "r1")
    assert found.waits is not None
    assert found.waits.mean_s == pytest.approx(50 / 3)
    assert (found.waits.p50_s, found.waits.longest_s) == (0, 50)
    assert found.gpus == 8
    assert found.allocated == pytest.approx((100 + 20) / 200)
    assert (found.came_s, found.ended_s) == (200, 210)
    assert found.locality.jobs == 3
    assert found.locality.domains == {"rack": 1, "host": 1}
    assert found.never == {}


def test_a_gang_over_racks_uses_several_domains() -> None:
    found = account([Submission(1, 0, 100, spec(16))], "r1", "r2")
    assert found.locality.domains == {"rack": 2, "host": 2}


def test_parts_of_gpus_count_as_parts() -> None:
    found = account([Submission(1, 0, 100, spec(1), 0.5), Submission(2, 100, 1, spec(8))], "r1")
    assert found.allocated == pytest.approx(0.5 / 8)


def test_fragmentation_is_sampled_so_many_times_at_most() -> None:
    found = account([Submission(number, number, 1.5, spec(2)) for number in range(1, 400)], "r1")
    assert 200 < len(found.samples) <= SAMPLES + 1
    assert found.samples[0].free.largest_gang == 8
    assert [sample.at_s for sample in found.samples] == sorted({sample.at_s for sample in found.samples})


def test_partly_used_nodes_are_fragmentation() -> None:
    found = account([Submission(1, 0, 100, spec(2)), Submission(2, 50, 1, spec(1))], "r1", "r1")
    last = found.samples[-1]
    assert (last.free.free_gpus, last.free.broken_gpus, last.allocated_gpus) == (13, 5, 3)


def test_who_never_began_is_told_with_the_reason() -> None:
    found = account([Submission(1, 0, 10, spec(8)), Submission(2, 0, 10, spec(64))], "r1")
    assert [(job.number, str(refusal.reason)) for job, refusal in found.never.items()] == [(2, "InsufficientGPUs")]


def test_a_trace_of_one_moment_has_an_account() -> None:
    found = account([Submission(1, 0, 10, spec(64))], "r1")
    assert (found.waits, found.allocated, found.locality.jobs) == (None, 0, 0)


def test_estimates_and_what_preemption_costs() -> None:
    said = spec(8).model_copy(update={"expected_duration": "10m"})
    jobs = [Submission(1, 0, 600, said), Submission(2, 0, 600, said)]
    found = account(jobs, "r1")
    assert found.foretold == (1, 0, 1)
    assert found.stopped == (0, 0)
    queue = Sharing(Operated(cluster("r1").after([change(PriorityClass("high", 100))]), BEGINS))
    book = Bookkeeper(queue, 100)
    urgent = spec(8).model_copy(update={"priority_class_name": "high"})
    parts = [Submission(number, 0, 600, spec(1), 0.5) for number in (1, 2)]
    for moment in replay([*parts, Submission(3, 100, 600, urgent)], queue):
        book.note(moment)
    found = book.account()
    assert found.stopped == (2, 2 * 0.5 * 100)
    assert found.waits is not None
    assert found.waits.longest_s == 0
    assert found.ended_s == 1300
    assert found.never == {}
