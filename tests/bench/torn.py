"""How long a job that fits into one machine should wait for one before it is torn over several: one JSON line a row.

    PYTHONPATH=tests uv run python -m bench.torn [LOAD [SEEDS [JOBS [SHARE]]]]

The operator's own queue (simulation/operated.py) on HOSTS machines of eight H200, each GPU with a NIC of 400 Gb/s. Jobs
come by Poisson, of the sizes of SIZES, and run as Philly's do (data/philly_run_times.csv). On the same arrivals jobs of
2 to 8 GPUs wait for one machine for one time of WAITS after the other, instead of the operator's own.

SHARE of a job's time is spent in all-reduce where it has the best bandwidth there is. One that is torn takes longer by
as much as it is predicted to be slower there: run time x (1 + SHARE x (ideal / predicted - 1)). That counts nothing of
what is overlapped with compute, and holds the GPUs for as long.

`torn` is the part of jobs of 2 to 8 GPUs that lay on several machines, `wait_h` their mean wait, `wait_p99_h` the wait
that one in a hundred exceeds, `done_h` their mean wait and run time; `all_done_h` is that of all jobs.
"""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from bench.scale import Fleet
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import build
from closeknit.scheduling.reservation import patience
from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import replay
from closeknit.simulation.submission import Submission

RUN_TIMES = Path(__file__).parent / "data" / "philly_run_times.csv"
HOSTS, GPUS = 16, 8
SIZES = {1: 0.4, 2: 0.2, 4: 0.2, 8: 0.15, 16: 0.05}
WAITS_MIN = (0, 10, 30, 120, 60_000)
LOAD, SEEDS, JOBS, SHARE = 0.8, 4, 1_500, 0.2
HOUR_S = 3600.0


class Job:
    """A job of the trace, which learns how long it runs when it is placed."""

    __slots__ = ("at_s", "is_torn", "of", "run_s", "wait_s")

    def __init__(self, of: Submission) -> None:
        self.of, self.at_s, self.run_s, self.wait_s, self.is_torn = of, of.at_s, of.run_s, 0.0, False


class Torn:
    """The operator's queue, with run times that follow from where a job lies."""

    def __init__(self, share: float) -> None:
        cluster = build(Fleet(HOSTS, ("hgx-h200",), seed=8).objects())
        self._operated = Operated(cluster, cluster.newest_heartbeat(datetime.now(UTC)) or datetime.now(UTC))
        self._share = share
        self._jobs: dict[Submission, Job] = {}

    def come(self, job: Job, now_s: float) -> None:
        """It is submitted."""
        self._jobs[job.of] = job
        self._operated.come(job.of, now_s)

    def go(self, job: Job, now_s: float) -> None:
        """It has ended."""
        self._operated.go(job.of, now_s)

    def begun(self, now_s: float) -> Sequence[Job]:
        """Those that begin, each with its run time."""
        began = [self._jobs[each] for each in self._operated.begun(now_s)]
        for job in began:
            found = self._operated.placement(job.of)
            predicted, ideal = found.predicted_bus_bandwidth_gb_s, found.ideal_bus_bandwidth_gb_s
            job.wait_s, job.is_torn = now_s - job.at_s, len(found.shares) > 1
            if predicted and ideal:
                job.run_s *= 1 + self._share * (ideal / predicted - 1)
        return began

    def stopped(self) -> Sequence[Job]:
        """Nobody stops who runs."""
        return ()

    def resized(self) -> Sequence[tuple[Job, float]]:
        """Nobody's GPUs change while it runs."""
        return ()

    def wake_s(self, now_s: float) -> float | None:
        """When somebody's patience is over."""
        return self._operated.wake_s(now_s)


def arrivals(load: float, seed: int, count: int, *, waits: bool) -> Iterator[Submission]:
    """The jobs of one seed; `load` is what they ask for, were none torn, to what there is."""
    random = Random(seed)  # noqa: S311 - the same jobs for every wait
    with RUN_TIMES.open() as opened:
        run_times = {int(gpus): list(map(float, times)) for gpus, *times in list(csv.reader(opened))[1:]}
    work = sum(part * gpus * sum(run_times[gpus]) / len(run_times[gpus]) for gpus, part in SIZES.items())
    template = {"spec": {"containers": [{"name": "trainer"}]}}
    topology = {} if waits else {"fabric": {"preferred": "host"}}  # with no patience
    specs = {
        gpus: TrainingJobSpec.parse({"gpus": gpus, "template": template, "topology": topology if gpus <= GPUS else {}})
        for gpus in SIZES
    }
    at_s = 0.0
    for number in range(count):
        at_s += random.expovariate(load * HOSTS * GPUS / work)
        (gpus,) = random.choices(list(SIZES), list(SIZES.values()))
        yield Submission(number, at_s, random.choice(run_times[gpus]), specs[gpus])


def row(load: float, seeds: int, count: int, share: float, wait_min: int) -> dict[str, Any]:
    """The figures of one wait, over all seeds."""
    found: list[Job] = []
    for seed in range(seeds):
        jobs = [Job(each) for each in arrivals(load, seed, count, waits=wait_min > 0)]
        with patch.object(patience, "FOR_ONE_MACHINE", timedelta(minutes=wait_min)):
            for _ in replay(jobs, Torn(share)):
                pass
        found += jobs
    ours = [job for job in found if 1 < job.of.gpus <= GPUS]
    return {
        "load": load,
        "share": share,
        "wait_min": wait_min,
        "torn": round(_mean([job.is_torn for job in ours]), 4),
        "wait_h": round(_mean([job.wait_s for job in ours]) / HOUR_S, 3),
        "wait_p99_h": round(sorted(job.wait_s for job in ours)[len(ours) * 99 // 100] / HOUR_S, 1),
        "done_h": round(_mean([job.wait_s + job.run_s for job in ours]) / HOUR_S, 3),
        "all_done_h": round(_mean([job.wait_s + job.run_s for job in found]) / HOUR_S, 3),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main(load: float = LOAD, seeds: float = SEEDS, count: float = JOBS, share: float = SHARE) -> None:
    """Prints a row for each wait."""
    for wait_min in WAITS_MIN:
        print(json.dumps(row(load, int(seeds), int(count), share, wait_min)), flush=True)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
