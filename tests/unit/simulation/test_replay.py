"""The loop: what comes, begins and goes when."""

from collections.abc import Sequence
from typing import NamedTuple

from closeknit.simulation.replay import replay


class Job(NamedTuple):
    name: str
    at_s: float
    run_s: float
    gpus: int = 1


class FirstFit:
    """Whatever fits of some GPUs, in order; who has waited a minute is given one more."""

    def __init__(self, gpus: int, *, patience_s: float | None = None) -> None:
        self.free = gpus
        self.waiting: list[Job] = []
        self.asked: list[float] = []
        self._patience_s = patience_s

    def come(self, job: Job, _now_s: float) -> None:
        self.waiting.append(job)

    def go(self, job: Job, _now_s: float) -> None:
        self.free += job.gpus

    def begun(self, now_s: float) -> Sequence[Job]:
        self.asked.append(now_s)
        found = []
        for job in list(self.waiting):
            is_over = self._patience_s is not None and now_s >= job.at_s + self._patience_s
            if job.gpus <= self.free or is_over:
                self.free -= job.gpus
                self.waiting.remove(job)
                found.append(job)
        return found

    def stopped(self) -> Sequence[Job]:
        return ()

    def resized(self) -> Sequence[tuple[Job, float]]:
        """Nobody's GPUs change while it runs."""
        return ()

    def wake_s(self, _now_s: float) -> float | None:
        if self._patience_s is None or not self.waiting:
            return None
        return min(job.at_s for job in self.waiting) + self._patience_s


def told(jobs: Sequence[Job], queue: FirstFit) -> list[tuple[float, str, str, str]]:
    """Who came, began and went at each moment."""

    def names(of: Sequence[Job]) -> str:
        return "".join(job.name for job in of)

    return [
        (moment.now_s, names(moment.came), names(moment.began), names(moment.went)) for moment in replay(jobs, queue)
    ]


def test_a_job_begins_when_another_has_gone() -> None:
    assert told([Job("a", 0, 10), Job("b", 3, 5)], FirstFit(1)) == [
        (0, "a", "a", ""),
        (3, "b", "", ""),
        (10, "", "b", "a"),
        (15, "", "", "b"),
    ]


def test_jobs_come_by_their_time_whatever_their_order() -> None:
    assert [row[1] for row in told([Job("b", 3, 5), Job("a", 0, 1)], FirstFit(2))] == ["a", "", "b", ""]


def test_what_happens_at_one_moment_is_decided_once_and_after_all_of_it() -> None:
    queue = FirstFit(1)
    found = told([Job("a", 0, 10), Job("b", 10, 5), Job("c", 10, 5)], queue)
    assert found[1] == (10, "bc", "b", "a")
    assert queue.asked == [0, 10, 15, 20]


def test_a_queue_is_asked_again_when_it_wants_to_be() -> None:
    assert told([Job("a", 0, 100), Job("b", 5, 1)], FirstFit(1, patience_s=60)) == [
        (0, "a", "a", ""),
        (5, "b", "", ""),
        (65, "", "b", ""),
        (66, "", "", "b"),
        (100, "", "", "a"),
    ]


def test_a_job_that_never_fits_is_left_waiting() -> None:
    queue = FirstFit(1)
    assert told([Job("a", 0, 10, gpus=2)], queue) == [(0, "a", "", "")]
    assert [job.name for job in queue.waiting] == ["a"]


def test_a_wake_that_is_not_later_does_not_keep_the_loop() -> None:
    class Insistent(FirstFit):
        def wake_s(self, now_s: float) -> float | None:
            return now_s

    assert len(told([Job("a", 0, 10)], Insistent(1))) == 2
