"""`closeknit logs` on real kubelets: from before the Pods are there, through a restart in place, to the job's end."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("nothing_is_left")]

PODS = ("00000", "00001")
RANKS = ("[0-7] ", "[8-15] ")  # how lines of the one and of the other begin
# It counts aloud, and ends as it is told.
SCRIPT = """
me=${HOSTNAME##*-}
echo run >> /reports/began-$me
run=$(wc -l < /reports/began-$me)
line=0
trap 'echo "run $run told to end"; exit 143' TERM
while :; do
  line=$((line + 1))
  echo "run $run line $line"
  for code in 0 3; do
    [ -e /reports/exit-$code-$me ] && rm /reports/exit-$code-$me && {
      echo "run $run ends with $code"; exit $code; }
  done
  sleep 0.1
done
"""


def command(jobs: Jobs, *arguments: str) -> list[str]:
    program = str(Path(sys.executable).parent / "closeknit")
    where = (f"--namespace={jobs.namespace}", f"--kubeconfig={jobs.cluster.kubeconfig}")
    return [program, "logs", "train", *arguments, *where]


@contextmanager
def following(jobs: Jobs, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """Who follows rank 0 and rank 8, with the files of what it prints and says."""
    out, said = folder / "out", folder / "said"
    with out.open("wb") as stdout, said.open("wb") as stderr:
        process = subprocess.Popen(
            command(jobs, "--follow", "--rank=0", "--rank=8"), stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL
        )
    try:
        yield process, out, said
    finally:
        process.kill()
        process.wait()


def tell(jobs: Jobs, code: int, pod: int) -> None:
    (jobs.stand.nodes[pod].reports / f"exit-{code}-{PODS[pod]}").touch()


def wait_for_run(jobs: Jobs, number: int) -> None:
    def have_begun() -> bool:
        files = [node.reports / f"began-{pod}" for node, pod in zip(jobs.stand.nodes, PODS, strict=True)]
        return all(file.exists() and len(file.read_text().split()) >= number for file in files)

    jobs.cluster.wait_for(have_begun, f"run {number} of both", 90)


def wait_for_lines(jobs: Jobs, out: Path, run: int) -> None:
    """Until some of both ranks are printed: what a kubelet deletes before that is seen by nobody."""

    def are_printed() -> bool:
        printed = out.read_text()
        return all(printed.count(f"{ranks}run {run} line") > 10 for ranks in RANKS)

    jobs.cluster.wait_for(are_printed, f"lines of run {run} of both", 60)


def check_runs(lines: list[str], runs: int) -> None:
    """Each line once, and none lost: every run counts from 1, without a gap."""
    counted = [line for line in lines if " line " in line]
    last = {run: sum(line.startswith(f"run {run} ") for line in counted) for run in range(1, runs + 1)}
    assert counted == [f"run {run} line {n}" for run in range(1, runs + 1) for n in range(1, last[run] + 1)]
    assert all(last.values())


def test_two_ranks_are_followed_from_before_their_pods_to_the_end(jobs: Jobs, tmp_path: Path) -> None:
    jobs.begin("followed")
    jobs.train(["sh", "-c", SCRIPT], gpus=16, restart={"limit": 3}, suspend=True)
    with jobs.stand.claims(), following(jobs, tmp_path) as (process, out, said):
        jobs.cluster.wait_for(lambda: "/train has no Pod yet" in said.read_text(), "the follower to wait", 60)
        jobs.change("trainingjob", "train", {"spec": {"suspend": False}})
        wait_for_run(jobs, 1)
        jobs.wait_for_state("Running")
        wait_for_lines(jobs, out, 1)

        tell(jobs, 3, 1)
        wait_for_run(jobs, 2)
        jobs.cluster.wait_for(lambda: jobs.job()["status"].get("restarts") == 1, "the restart to be counted", 60)
        before = subprocess.run(command(jobs, "--previous"), capture_output=True, text=True, check=False, timeout=60)
        assert before.returncode == 2 and before.stdout == ""
        assert "the kubelet has deleted what train-a1-worker-00001 printed before it started again" in before.stderr

        wait_for_lines(jobs, out, 2)
        for pod in (0, 1):
            tell(jobs, 0, pod)
        jobs.wait_for_end("Succeeded")
        assert process.wait(timeout=60) == 0
    printed = out.read_text().splitlines()
    for ranks in RANKS:
        lines = [line.removeprefix(ranks) for line in printed if line.startswith(ranks)]
        check_runs(lines, 2)
        assert lines[-1] == "run 2 ends with 0"
    assert "[8-15] run 1 ends with 3" in printed
    assert {line[:2] for line in printed} == {"[0", "[8"}
