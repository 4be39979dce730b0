"""Jobs of parts of a GPU."""

from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.simulation.fractional import Sharing
from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import replay
from closeknit.simulation.submission import Submission
from scenarios.traces import BEGINS, cluster, spec

ONE, ANOTHER = spec(1), spec(1, nvlink="Ignored")


WITH_CPU = TrainingJobSpec.parse_strictly(
    {
        "gpus": 1,
        "template": {
            "spec": {
                "containers": [{"name": "trainer", "image": "simulated", "resources": {"requests": {"cpu": "60"}}}],
            }
        },
    }
)


def small(number: int, at_s: float, run_s: float, part: float) -> Submission:
    return Submission(number, at_s, run_s, ONE, part)


def begins(queue: Sharing, *jobs: Submission) -> dict[int, float]:
    return {job.number: moment.now_s for moment in replay(jobs, queue) for job in moment.began}


def gpus(count: int) -> Sharing:
    return Sharing(Operated(cluster("r1", count=count), BEGINS))


def free(queue: Sharing) -> int:
    return sum(len(view.free) for view in queue.operated.cluster.nodes.values())


def test_two_halves_share_a_gpu_and_a_third_waits_for_one_of_them() -> None:
    jobs = (small(1, 0, 60, 0.5), small(2, 0, 90, 0.5), small(3, 0, 10, 0.5))
    assert begins(gpus(1), *jobs) == {1: 0, 2: 0, 3: 60}


def test_ten_tenths_take_one_gpu_of_two() -> None:
    queue = gpus(2)
    for number in range(10):
        queue.come(small(number, 0, 60, 0.1), 0)
    assert len(queue.begun(0)) == 10
    assert free(queue) == 1


def test_the_fullest_gpu_with_room_is_taken() -> None:
    queue = gpus(3)
    jobs = [small(1, 0, 60, 0.7), small(2, 0, 60, 0.6), small(3, 0, 60, 0.2), small(4, 0, 60, 0.4)]
    for job in jobs:
        queue.come(job, 0)
        queue.begun(0)
    assert free(queue) == 1  # .7 + .2 and .6 + .4


def test_the_gpu_goes_back_with_the_last_on_it_though_who_asked_for_it_went_first() -> None:
    queue = gpus(1)
    jobs = (small(1, 0, 10, 0.5), small(2, 0, 50, 0.5), Submission(3, 0, 10, ONE))
    assert begins(queue, *jobs) == {1: 0, 2: 0, 3: 50}
    assert free(queue) == 1


def test_a_job_that_asked_for_a_gpu_and_found_room_elsewhere_asks_no_more() -> None:
    queue = gpus(1)
    assert begins(queue, small(1, 0, 60, 0.5), small(2, 0, 20, 0.5), small(3, 5, 10, 0.5)) == {1: 0, 2: 0, 3: 20}
    assert free(queue) == 1
    assert not queue.operated.cluster.jobs


def test_jobs_of_other_specs_do_not_share() -> None:
    queue = gpus(1)
    assert begins(queue, small(1, 0, 60, 0.25), Submission(2, 0, 60, ANOTHER, 0.25)) == {1: 0, 2: 60}


def test_each_on_a_gpu_takes_its_cpu_and_gives_it_back() -> None:
    jobs = [Submission(number, 0, run_s, WITH_CPU, 0.25) for number, run_s in ((1, 20), (2, 60), (3, 60))]
    assert begins(gpus(1), *jobs) == {1: 0, 2: 0, 3: 20}  # the node has 128 cores
    queue = gpus(1)
    assert begins(queue, *jobs, Submission(4, 100, 10, WITH_CPU)) == {1: 0, 2: 0, 3: 20, 4: 100}
    assert queue.operated.cluster.nodes["gpu-0"].spare == gpus(1).operated.cluster.nodes["gpu-0"].spare


def test_why_small_jobs_never_began_is_told_of_each() -> None:
    queue = gpus(1)
    for job in (Submission(1, 0, 60, spec(2)), small(2, 0, 60, 0.6), small(3, 0, 5, 0.6), small(4, 0, 5, 0.6)):
        queue.come(job, 0)
    queue.begun(0)
    assert {job.number for job in queue.refused()} == {1, 3, 4}
