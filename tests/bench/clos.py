"""Gangs on a Clos fabric: hosts under switches under pods, jobs as they come, and one queue for every policy."""

import csv
from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from closeknit.simulation.replay import replay

TOPOLOGY = Path(__file__).parent / "data" / "lingjun2023_topo.csv"
SIZES = ((1, 40), (2, 6), (4, 9), (8, 22), (16, 9), (32, 6), (64, 4), (128, 2.5), (256, 1.2), (512, 0.3))
MEAN_RUN = 60.0
DEPTH = 50
GPUS = 8  # of a host

Taken = Sequence[tuple[int, int]]
"""(host, GPUs of it)."""


class Job(NamedTuple):
    """A gang, its times in one unit."""

    number: int
    at: float
    gpus: int
    run: float

    @property
    def at_s(self) -> float:
        """As the replay calls it, whatever the unit."""
        return self.at

    @property
    def run_s(self) -> float:
        """The same of how long it runs."""
        return self.run

    @property
    def hosts(self) -> int:
        """Whole ones, at least."""
        return -(-self.gpus // GPUS)


class Host(NamedTuple):
    """Where a host hangs."""

    pod: str
    tor: str


class Policy(Protocol):
    """Who takes hosts."""

    def take(self, job: Job, now: float, smaller: int) -> Taken | None:
        """Hosts for a job, which are its own from now on; None where it has to wait. `smaller` is how many of fewer
        GPUs there were in the queue when it was last looked through."""

    def give_back(self, job: Job, taken: Taken) -> None:
        """A job has ended."""

    def patient_until(self, job: Job) -> float | None:
        """When a job that waits asks for less; None for one that always asks for the same."""


def hosts() -> list[Host]:
    """The hosts of the fabric, switch by switch."""
    with TOPOLOGY.open() as lines:
        rows = list(csv.DictReader(lines))
    return [Host(row["psw"], f"{row['psw']}/{row['asw']}") for row in rows for _ in range(int(row["hosts"]))]


def arrivals(load: float, seed: int, count: int, capacity: int) -> list[Job]:
    """The jobs of one seed, by Poisson and of exponential run times: `count`, after those that such a cluster runs on
    average, all at 0. What is left of an exponential time is as long as all of it, so that the fabric begins as full as
    it stays."""
    random = Random(seed)  # noqa: S311 - the same jobs for every policy
    sizes, weights = zip(*SIZES, strict=True)
    mean = sum(size * weight for size, weight in SIZES) / sum(weights)
    there = round(load * capacity / mean)
    at, found = 0.0, []
    for number in range(there + count):
        at += random.expovariate(load * capacity / (mean * MEAN_RUN)) if number >= there else 0.0
        found.append(Job(number, at, random.choices(sizes, weights)[0], random.expovariate(1 / MEAN_RUN)))
    return found


class Run(NamedTuple):
    """What became of one job."""

    job: Job
    began: float
    taken: Taken


class Waiting:
    """One queue for every policy: in order of arrival, whatever fits of the first DEPTH."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: list[Job] = []
        self._wakes: list[float] = []
        self.taken: dict[Job, Taken] = {}

    def come(self, job: Job, _now: float) -> None:
        """At the end of the queue."""
        self._waiting.append(job)
        if (until := self._policy.patient_until(job)) is not None:
            heappush(self._wakes, until)

    def go(self, job: Job, _now: float) -> None:
        """What it had is given back."""
        self._policy.give_back(job, self.taken[job])

    def begun(self, now: float) -> Sequence[Job]:
        """Those that the policy has hosts for."""
        found: list[Job] = []
        at, sizes = 0, sorted(job.gpus for job in self._waiting)
        while at < min(len(self._waiting), DEPTH):
            job = self._waiting[at]
            taken = self._policy.take(job, now, bisect_left(sizes, job.gpus))
            if taken is None:
                at += 1
                continue
            found.append(self._waiting.pop(at))
            self.taken[found[-1]] = taken
        return found

    def stopped(self) -> Sequence[Job]:
        """Nobody stops who runs."""
        return ()

    def resized(self) -> Sequence[tuple[Job, float]]:
        """Nobody's GPUs change while it runs."""
        return ()

    def wake_s(self, now: float) -> float | None:
        """When the next patience is over."""
        while self._wakes and self._wakes[0] <= now:
            heappop(self._wakes)
        return self._wakes[0] if self._wakes else None


def simulate(jobs: Sequence[Job], policy: Policy) -> list[Run]:
    """What became of every job, in the order in which they began."""
    queue = Waiting(policy)
    moments = replay(jobs, queue)
    return [Run(job, moment.now_s, queue.taken[job]) for moment in moments for job in moment.began]
