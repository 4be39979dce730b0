"""The operator's decision as the queue of a replay."""

from closeknit.api.reasons import PendingReason
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.objects.node_objects import PriorityClass
from closeknit.cluster.store.watched_kinds import change, from_document
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import request
from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import replay
from closeknit.simulation.submission import Submission
from scenarios.manifests import booked, training_job
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


def urgent(gpus: int) -> TrainingJobSpec:
    return spec(gpus).model_copy(update={"priority_class_name": "high"})


HIGH = change(PriorityClass("high", 100))


def test_a_job_of_higher_priority_ends_another_which_begins_anew() -> None:
    jobs = (Submission(1, 0, 60, spec(8)), Submission(2, 5, 60, spec(8)), Submission(3, 10, 60, urgent(8)))
    queue = Operated(cluster("r1").after([HIGH]), BEGINS)
    moments = [(at.now_s, [job.number for job in at.began], [job.number for job in at.stopped])
               for at in replay(jobs, queue) if at.began or at.stopped]  # fmt: skip
    assert moments == [(0, [1], []), (10, [3], [1]), (70, [1], []), (130, [2], [])]


def test_who_ends_for_another_is_who_loses_least() -> None:
    jobs = (Submission(1, 0, 600, spec(8)), Submission(2, 5, 600, spec(8)), Submission(3, 10, 60, urgent(8)))
    queue = Operated(cluster("r1", "r1").after([HIGH]), BEGINS)
    assert [job.number for at in replay(jobs, queue) for job in at.stopped] == [2]


def test_nobody_ends_for_a_job_that_would_not_fit_then() -> None:
    jobs = (Submission(1, 0, 60, spec(8)), Submission(2, 5, 60, urgent(16)))
    queue = Operated(cluster("r1").after([HIGH]), BEGINS)
    assert [job.number for at in replay(jobs, queue) for job in at.stopped] == []


def test_a_job_that_the_cluster_held_before_leaves_for_good() -> None:
    there = cluster("r1").after([HIGH])
    before = from_document(training_job("before", spec={"gpus": 8}, placement=booked(("gpu-0", range(8)))))
    assert before is not None
    queue = Operated(there.after([change(before)]), BEGINS)
    assert begins(queue, Submission(1, 5, 60, urgent(8)), Submission(2, 6, 60, spec(8))) == {1: 5, 2: 65}


def test_what_is_told_of_a_start_is_kept() -> None:
    length = {"expected_duration": "10m"}
    first, second = (Submission(number, number, 600, spec(8).model_copy(update=length)) for number in (1, 2))
    queue = Operated(cluster("r1"), BEGINS)
    assert begins(queue, first, second) == {1: 1, 2: 601}
    assert queue.estimate_s(first) is None
    assert queue.estimate_s(second) == 660  # the full minute after
