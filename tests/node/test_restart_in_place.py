"""Restart in place on real kubelets: one rank fails, and the whole gang begins again in the same Pods.

Ranks import PyTorch for seconds on two cores, so that what closeknit takes is measured by their shells.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from node.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("nothing_is_left")]

RANKS = 4
# What each rank does: it meets the others, and trains until one of them is told how to end.
SCRIPT = """
import os, sys, time, torch, torch.distributed as dist
rank = os.environ["RANK"]
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
TORCHRUN = """
echo run >> /reports/pods-${HOSTNAME##*-}
date +%s.%N >> /reports/began-${HOSTNAME##*-}
torchrun --no_python python -c "$0"
code=$?
date +%s.%N >> /reports/ended-${HOSTNAME##*-}
exit $code
"""
# Without PyTorch: a rank that does as it is told, and leaves a word.
PLAIN = """
me=${HOSTNAME##*-}
date +%s.%N >> /reports/began-$me
trap 'exit 143' TERM
while :; do
  for code in 0 3 9; do
    [ -e /reports/exit-$code-$me ] && rm /reports/exit-$code-$me && date +%s.%N >> /reports/ended-$me && {
      echo "out of tea" > /dev/termination-log; exit $code; }
  done
  [ -e /reports/kill-$me ] && rm /reports/kill-$me && date +%s.%N >> /reports/ended-$me && kill -9 $$$$
  sleep 0.1
done
"""


@pytest.fixture(scope="module", autouse=True)
def claims(jobs: Jobs) -> Iterator[None]:
    with jobs.stand.claims():
        yield


def moments(jobs: Jobs, name: str) -> list[float]:
    """What was noted under this name, on whatever node."""
    files = [file for node in jobs.stand.nodes if (file := node.reports / name).exists()]
    return [float(line) for file in files for line in file.read_text().split()]


def tell(jobs: Jobs, word: str, *, node: int) -> None:
    (jobs.stand.nodes[node].reports / word).touch()


def wait_for_runs(jobs: Jobs, number: int, names: list[str]) -> float:
    """When the last of these noted its run of this number, from 1."""
    jobs.cluster.wait_for(lambda: all(len(moments(jobs, name)) >= number for name in names), f"run {number}", 90)
    return max(moments(jobs, name)[number - 1] for name in names)


PODS = ["00000", "00001"]
BEGAN = [f"began-{pod}" for pod in PODS]
MOST_S = 15.0  # of a restart in place: it takes 3 to 6 on a quiet machine, and took 8.3 with a run queue of 15


def plain(jobs: Jobs, **restart: Any) -> None:
    """Two Pods of a rank each, which run."""
    jobs.train(["sh", "-c", PLAIN], gpus=16, restart=restart)
    wait_for_runs(jobs, 1, BEGAN)
    jobs.wait_for_state("Running")


def uids(jobs: Jobs) -> set[str]:
    return {pod["metadata"]["uid"] for pod in jobs.all("pods")}


def wait_for_restarts(jobs: Jobs, number: int) -> dict[str, Any]:
    """The job's status once it has counted so many and runs."""

    def found() -> dict[str, Any] | None:
        status: dict[str, Any] = jobs.job()["status"]
        return status if status.get("restarts") == number and status["state"] == "Running" else None

    return jobs.cluster.wait_for(found, f"restart {number} to be counted", 30)


def test_a_torchrun_job_begins_again_after_the_crash_of_a_rank(jobs: Jobs) -> None:
    jobs.begin("in-place")
    jobs.train(["sh", "-c", TORCHRUN, SCRIPT], gpus=RANKS, topology={"gpusPerNode": RANKS // 2}, restart={"limit": 3})
    met = [f"met-{rank}" for rank in range(RANKS)]
    wait_for_runs(jobs, 1, met)
    jobs.wait_for_state("Running")
    before, moment = uids(jobs), datetime.now(UTC)
    tell(jobs, "crash-3", node=1)
    again = wait_for_runs(jobs, 2, BEGAN)
    ended = min(moments(jobs, name)[0] for pod in PODS if moments(jobs, name := f"ended-{pod}"))
    print(f"restart in place of 2 x {RANKS // 2} ranks: {again - ended:.1f} s from the first exit to the last start")
    wait_for_runs(jobs, 2, met)
    status = wait_for_restarts(jobs, 1)
    assert uids(jobs) == before
    (end,) = status["attempts"]
    assert (end["inPlace"], end["charged"], end["reason"]) == (True, True, "PodFailed")
    writes = jobs.writes(since=moment)
    assert {(each.verb, each.resource) for each in writes} <= {("update", "trainingjobs"), ("create", "events")}
    assert len([each for each in writes if each.resource == "trainingjobs"]) <= 2
    assert again - ended <= MOST_S
    tell(jobs, "done-0", node=0)
    jobs.wait_for_end("Succeeded")
    jobs.wait_for_told("Placed", "Restarted", "Succeeded")


def test_what_a_rank_said_last_is_told_though_kubernetes_loses_it(jobs: Jobs) -> None:
    """Its exit code, and its word; a rank that is killed; one whose code ends the job; and an end that is none."""
    jobs.begin("codes")
    plain(jobs, limit=5, rules=[{"exitCodes": [9], "action": "Fail"}])
    before = uids(jobs)
    tell(jobs, "exit-3-00001", node=1)
    again = wait_for_runs(jobs, 2, BEGAN)
    print(f"restart in place of 2 Pods: {again - moments(jobs, 'ended-00001')[0]:.1f} s")
    assert again - moments(jobs, "ended-00001")[0] <= MOST_S
    (end,) = wait_for_restarts(jobs, 1)["attempts"]
    assert [(each["exitCode"], each["message"]) for each in end["exits"]] == [(3, "out of tea")]

    tell(jobs, "kill-00000", node=0)  # of node rank 0, whose sidecar the others talk to
    again = wait_for_runs(jobs, 3, BEGAN)
    assert again - moments(jobs, "ended-00000")[0] <= MOST_S
    end = wait_for_restarts(jobs, 2)["attempts"][-1]
    assert [each["exitCode"] for each in end["exits"]] == [137]
    assert uids(jobs) == before

    tell(jobs, "exit-9-00001", node=1)
    status = jobs.wait_for_end("Failed")
    assert status["attempts"][-1]["message"].startswith("container trainer of Pod train-a1-worker-00001 on node node-2")
    assert "says Fail for exit code 9" in status["attempts"][-1]["message"]
    assert len(moments(jobs, "began-00000")) == 3, "nobody began again"


def test_who_is_done_early_resets_nobody(jobs: Jobs) -> None:
    jobs.begin("early")
    plain(jobs, limit=5)
    tell(jobs, "exit-0-00000", node=0)
    jobs.cluster.wait_for(
        lambda: jobs.all("pods")[0]["status"]["phase"] == "Succeeded", "the first Pod to be over", 20
    )  # its sidecar heeds SIGTERM: it would take 30 s
    tell(jobs, "exit-0-00001", node=1)
    jobs.wait_for_end("Succeeded")
    assert jobs.job()["status"]["restarts"] == 0
    assert [len(moments(jobs, name)) for name in BEGAN] == [1, 1]


def test_past_its_limit_a_gang_is_ended(jobs: Jobs) -> None:
    jobs.begin("limit")
    plain(jobs, limit=1)
    tell(jobs, "exit-3-00000", node=0)
    wait_for_runs(jobs, 2, BEGAN)
    wait_for_restarts(jobs, 1)
    tell(jobs, "exit-3-00000", node=0)
    status = jobs.wait_for_end("Failed")
    assert status["attempts"][-1]["reason"] == "RestartLimitExceeded"
    jobs.cluster.wait_for(lambda: not jobs.live_pods(), "its Pods to end", 20)
