"""The operator's decision as the queue of a replay."""

from closeknit.api.names import PendingReason
from closeknit.cluster.objects.node_objects import PriorityClass
from closeknit.cluster.store.kinds import change
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import request
from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import replay
from closeknit.simulation.submission import Submission
from scenarios.traces import BEGINS, cluster, spec


def begins(queue: Operated, *jobs: Submission) -> dict[int, float]:
    """When each job that ever began did, by its number."""
    return {job.number: moment.now_s for moment in replay(jobs, queue) for job in moment.began}


def test_a_job_goes_where_place_puts_it() -> None:
    there = cluster("r1", "r1", "r2")
    job = Submission(1, 0, 60, spec(16))
    queue = Operated(there, BEGINS)
    queue.come(job, 0)
    assert queue.begun(0) == [job]
    expected = place(there, request(next(iter(queue.cluster.jobs)), job.spec), Tables())
    assert isinstance(expected, Placement)
    assert queue.placement(job) == expected
    assert {share.node for share in expected.shares} == {"gpu-0", "gpu-1"}


def test_what_is_booked_is_nobody_elses_until_it_goes() -> None:
    jobs = (Submission(1, 0, 60, spec(8)), Submission(2, 10, 60, spec(8)), Submission(3, 20, 60, spec(8)))
    assert begins(Operated(cluster("r1", "r2"), BEGINS), *jobs) == {1: 0, 2: 10, 3: 60}


def test_a_small_job_passes_a_large_one_that_waits() -> None:
    jobs = (Submission(1, 0, 60, spec(8)), Submission(2, 10, 60, spec(16)), Submission(3, 20, 60, spec(4)))
    assert begins(Operated(cluster("r1", "r2"), BEGINS), *jobs) == {1: 0, 3: 20, 2: 80}


def test_patience_is_over_in_virtual_time() -> None:
    patient = spec(16, fabric={"preferred": "rack", "patience": "30s"})
    runs_s = (20, 600, 20, 600)  # two jobs in each rack, one of which goes soon
    jobs = [Submission(number, number, run_s, spec(8)) for number, run_s in enumerate(runs_s)]
    assert begins(Operated(cluster("r1", "r1", "r2", "r2"), BEGINS), *jobs, Submission(9, 30, 60, patient))[9] == 60
    jobs[3] = Submission(3, 3, 40, spec(8))  # a rack comes free before that
    assert begins(Operated(cluster("r1", "r1", "r2", "r2"), BEGINS), *jobs, Submission(9, 30, 60, patient))[9] == 43


def test_why_a_job_never_began() -> None:
    queue = Operated(cluster("r1"), BEGINS)
    job = Submission(7, 0, 60, spec(16))
    assert begins(queue, job) == {}
    assert queue.waiting[job].reason is PendingReason.INSUFFICIENT_GPUS


def test_agents_do_not_fall_silent_while_virtual_days_pass() -> None:
    jobs = (Submission(1, 0, 60, spec(8)), Submission(2, 900_000, 60, spec(8)))
    assert begins(Operated(cluster("r1"), BEGINS), *jobs) == {1: 0, 2: 900_000}


def test_a_job_of_higher_priority_goes_first_and_ends_nobody() -> None:
    urgent = spec(8).model_copy(update={"priority_class_name": "high"})
    there = cluster("r1").after([change(PriorityClass("high", 100))])
    jobs = (Submission(1, 0, 60, spec(8)), Submission(2, 5, 60, spec(8)), Submission(3, 10, 60, urgent))
    assert begins(Operated(there, BEGINS), *jobs) == {1: 0, 3: 60, 2: 120}
