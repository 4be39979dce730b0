"""Restart in place on real kubelets: one rank fails, and the whole gang begins again in the same Pods."""

from collections.abc import Iterator
from typing import Any

import pytest

from node.jobs import Jobs

pytestmark = pytest.mark.nodes

# What each rank does: it notes that it runs, meets the others, and trains until one of them is told how to end.
SCRIPT = """
import os, sys, time
rank = os.environ["RANK"]
open(f"/reports/ran-{rank}", "a").write(f"{time.time()}\\n")
import torch, torch.distributed as dist
dist.init_process_group("gloo")
open(f"/reports/met-{rank}", "a").write(f"{time.time()}\\n")
while True:
    if os.path.exists(f"/reports/crash-{rank}"):
        os.remove(f"/reports/crash-{rank}")
        sys.exit(3)
    done = torch.tensor(float(os.path.exists(f"/reports/done-{rank}")))
    dist.all_reduce(done)
    if done > 0:
        sys.exit(0)
    time.sleep(0.1)
"""


@pytest.fixture(scope="module", autouse=True)
def claims(jobs: Jobs) -> Iterator[None]:
    with jobs.stand.claims():
        yield


@pytest.fixture(autouse=True)
def nothing_is_left(jobs: Jobs) -> Iterator[None]:
    for node in jobs.stand.nodes:
        for file in node.reports.glob("*-[0-9]"):
            file.unlink()
    yield
    jobs.delete("trainingjob", "train")
    jobs.wait_for_nothing()


def begun(jobs: Jobs, ranks: int, what: str = "ran") -> list[list[float]]:
    """When each rank began each of its runs, by the clock of this machine."""
    found: list[list[float]] = []
    for rank in range(ranks):
        files = [file for node in jobs.stand.nodes if (file := node.reports / f"{what}-{rank}").exists()]
        found.append([float(line) for file in files for line in file.read_text().split()])
    return found


def tell(jobs: Jobs, rank: int, word: str) -> None:
    for node in jobs.stand.nodes:
        if (node.reports / f"ran-{rank}").exists():
            (node.reports / f"{word}-{rank}").touch()


def wait_for_run(jobs: Jobs, number: int, ranks: int, what: str = "ran") -> float:
    """When the last rank of this run, from 1, began, or had met all others."""
    jobs.cluster.wait_for(
        lambda: all(len(each) >= number for each in begun(jobs, ranks, what)), f"run {number} of all ranks", 90
    )
    return max(each[number - 1] for each in begun(jobs, ranks, what))


def torchrun(jobs: Jobs, gpus: int = 4, **restart: Any) -> None:
    jobs.train(
        ["torchrun", "--no_python", "python", "-c", SCRIPT],
        gpus=gpus,
        topology={"gpusPerNode": gpus // 2},
        restart=restart,
    )
