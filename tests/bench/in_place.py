"""How soon a gang begins again in its Pods on two real kubelets, and what that costs the start of a healthy one."""

import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.install import free_port, start_operator
from harness.node.host_python import AGENT_IMAGE
from harness.node.stand import standing
from node.jobs import Jobs

RUNS, QUICK_RUNS = 10, 3
RANKS = ("00000", "00001")
# A rank that notes when it begins and when it ends, and ends when it is told to.
SCRIPT = """
me=${HOSTNAME##*-}
date +%s.%N >> /reports/began-$me
until [ -e /reports/end-$me ]; do sleep 0.05; done
rm /reports/end-$me
date +%s.%N >> /reports/ended-$me
exit 3
"""


@contextmanager
def standing_jobs() -> Iterator[Jobs]:
    """An operator with two real nodes whose GPUs are given by claims."""
    with standing() as stand, stand.agents_running(), stand.claims():
        jobs = Jobs(stand.cluster, free_port(), stand=stand)
        jobs.pid = start_operator(stand.cluster, jobs.port, f"--sidecar-image={AGENT_IMAGE}")
        yield jobs


def restarts_in_place(*, is_quick: bool) -> Mapping[str, float]:
    """Seconds from the exit of a rank to the start of the last rank of the next run; and from the first create of a
    Pod to the start of the last rank, with what restarts need and without."""
    runs = QUICK_RUNS if is_quick else RUNS
    again, plain, ready = [], [], []
    with standing_jobs() as jobs:
        for number in range(runs):
            jobs.begin(f"in-place-{number}")
            plain.append(_start(jobs, limit=0))
            _clear(jobs)
            ready.append(_start(jobs, limit=1))
            (jobs.stand.nodes[1].reports / f"end-{RANKS[1]}").touch()
            again.append(_wait(jobs, 2) - _noted(jobs, f"ended-{RANKS[1]}")[0])
            print(f"restart in place {number + 1} of {runs}: {again[-1]:.2f} s", file=sys.stderr, flush=True)
            _clear(jobs)
    return {
        "restarts_in_place": runs,
        "restart_in_place_seconds": round(statistics.median(again), 2),
        "restart_in_place_seconds_max": round(max(again), 2),
        "restart_in_place_start_costs_seconds": round(statistics.median(ready) - statistics.median(plain), 2),
    }


def _start(jobs: Jobs, **restart: Any) -> float:
    jobs.train(["sh", "-c", SCRIPT], gpus=16, restart=restart)
    began = _wait(jobs, 1)
    made = [event.at.timestamp() for event in jobs.writes() if (event.verb, event.resource) == ("create", "pods")]
    jobs.wait_for_state("Running")
    return began - made[-len(RANKS)]


def _clear(jobs: Jobs) -> None:
    jobs.delete("trainingjob", "train")
    jobs.wait_for_nothing()
    for node in jobs.stand.nodes:
        for file in node.reports.iterdir():
            file.unlink()


def _wait(jobs: Jobs, number: int) -> float:
    """When the last rank of this run, from 1, began."""
    names = [f"began-{rank}" for rank in RANKS]
    jobs.cluster.wait_for(lambda: all(len(_noted(jobs, name)) >= number for name in names), f"run {number}", 60)
    return max(_noted(jobs, name)[number - 1] for name in names)


def _noted(jobs: Jobs, name: str) -> list[float]:
    files: list[Path] = [node.reports / name for node in jobs.stand.nodes]
    return [float(line) for file in files if file.exists() for line in file.read_text().split()]
