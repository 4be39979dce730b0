"""Restart in place on real kubelets: one rank fails, and the whole gang begins again in the same Pods."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from node.jobs import Jobs

pytestmark = pytest.mark.nodes

# What each rank does: it meets the others, notes that it runs, and trains until it is told how to end.
SCRIPT = """
import os, sys, time, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
open(f"/reports/ran-{rank}", "a").write(f"{time.time()}\\n")
while True:
    for word in ("crash", "done"):
        if os.path.exists(f"/reports/{word}-{rank}"):
            os.remove(f"/reports/{word}-{rank}") if word == "crash" else None
            sys.exit(3 if word == "crash" else 0)
    dist.barrier() if False else time.sleep(0.1)
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


def begun(jobs: Jobs, ranks: int) -> list[list[float]]:
    """When each rank began each of its runs, by the clock of this machine."""
    found: list[list[float]] = []
    for rank in range(ranks):
        files = [file for node in jobs.stand.nodes if (file := node.reports / f"ran-{rank}").exists()]
        found.append([float(line) for file in files for line in file.read_text().split()])
    return found


def tell(jobs: Jobs, rank: int, word: str) -> None:
    for node in jobs.stand.nodes:
        if (node.reports / f"ran-{rank}").exists():
            (node.reports / f"{word}-{rank}").touch()


def wait_for_run(jobs: Jobs, number: int, ranks: int) -> float:
    """When the last rank of this run, from 1, began."""
    jobs.cluster.wait_for(
        lambda: all(len(each) >= number for each in begun(jobs, ranks)), f"run {number} of all ranks", 90
    )
    return max(each[number - 1] for each in begun(jobs, ranks))


def torchrun(jobs: Jobs, **restart: Any) -> None:
    jobs.train(
        ["torchrun", "--no-python", "python", "-c", SCRIPT], gpus=8, topology={"gpusPerNode": 4}, restart=restart
    )


def test_a_crash_of_one_rank_restarts_all_in_the_same_pods(jobs: Jobs) -> None:
    jobs.begin("in-place")
    torchrun(jobs, limit=3)
    wait_for_run(jobs, 1, 8)
    jobs.wait_for_state("Running")
    before = {pod["metadata"]["uid"] for pod in jobs.all("pods")}
    import json

    print(json.dumps(jobs.all("pods")[0]["spec"], indent=1))
    print(json.dumps(jobs.cluster.get("node", "node-1")["status"].get("declaredFeatures")))
    at = datetime.now(UTC).timestamp()
    tell(jobs, 5, "crash")
    ran = wait_for_run(jobs, 2, 8)
    print(f"restart in place: {ran - at:.1f} s")
    print(json.dumps(jobs.all("pods")[1]["status"], indent=1))
    assert {pod["metadata"]["uid"] for pod in jobs.all("pods")} == before
    print(jobs.job()["status"])
    for rank in range(8):
        tell(jobs, rank, "done")
    jobs.wait_for_end("Succeeded")
