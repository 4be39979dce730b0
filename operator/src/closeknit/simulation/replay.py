"""Jobs that come, run and go on a virtual clock: the one loop of `closeknit simulate` and of the benchmarks.

Who gets GPUs is decided by a Queue: the operator's own (operated.py), or in benchmarks a rule of others.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """A job as the loop sees it."""

    @property
    def at_s(self) -> float:
        """When it comes."""

    @property
    def run_s(self) -> float:
        """How long it runs, once it has begun."""


Job = TypeVar("Job", bound=Timed)


class Queue(Protocol[Job]):
    """Who decides which jobs begin."""

    def come(self, job: Job, now_s: float) -> None:
        """A job waits from now on."""

    def go(self, job: Job, now_s: float) -> None:
        """A job that had begun has ended."""

    def begun(self, now_s: float) -> Sequence[Job]:
        """The jobs that begin now; asked once at every moment, after all that comes and goes at it."""

    def stopped(self) -> Sequence[Job]:
        """The jobs that had begun and wait since those began; each begins from its start."""

    def resized(self) -> Sequence[tuple[Job, float]]:
        """The running jobs that now end after so many seconds from this moment on."""

    def wake_s(self, now_s: float) -> float | None:
        """When it is to be asked again though nothing comes or goes; None: never."""


@dataclass(frozen=True, slots=True)
class ReplayMoment(Generic[Job]):
    """What happened at one moment."""

    now_s: float
    came: Sequence[Job]
    began: Sequence[Job]
    went: Sequence[Job]
    stopped: Sequence[Job] = ()
    resized: Sequence[Job] = ()
    """Those that end at another moment than was said, since they have other GPUs."""


def replay(jobs: Iterable[Job], queue: Queue[Job]) -> Iterator[ReplayMoment[Job]]:
    """Every moment at which something happens, in order; what comes at one moment comes in the order given. Ends when
    no job is to come or to go any more: jobs that the queue never let begin are left waiting."""
    coming = [(job.at_s, number, job) for number, job in enumerate(jobs)]
    heapify(coming)
    running: list[tuple[float, int, Job]] = []
    count = 0
    wake_s: float | None = None
    while coming or running or wake_s is not None:
        moments = [first[0][0] for first in (coming, running) if first]
        now_s = min(moments if wake_s is None else [*moments, wake_s])
        came: list[Job] = []
        went: list[Job] = []
        while running and running[0][0] <= now_s:
            went.append(heappop(running)[2])
            queue.go(went[-1], now_s)
        while coming and coming[0][0] <= now_s:
            came.append(heappop(coming)[2])
            queue.come(came[-1], now_s)
        began = queue.begun(now_s)
        if stopped := queue.stopped():
            running = [each for each in running if each[2] not in stopped]
            heapify(running)
        for job in began:
            count += 1
            heappush(running, (now_s + job.run_s, count, job))
        resized = queue.resized()
        for job, in_s in resized:
            running = [each for each in running if each[2] is not job]
            heapify(running)
            count += 1
            heappush(running, (now_s + in_s, count, job))
        yield ReplayMoment(now_s, came, began, went, stopped, [job for job, _ in resized])
        asked_s = queue.wake_s(now_s)
        wake_s = asked_s if asked_s is not None and asked_s > now_s else None
