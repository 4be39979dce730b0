"""What a gang's status tells of each way in which it fails, on real kubelets: a table, and the writes that it took.

    PYTHONPATH=tests uv run python -m bench.failures_shown [--pods 8]

A torchrun job over gloo of so many Pods with a rank each, every one on a kubelet of its own, and one kubelet more. As
root; eight Pods take some 2 GiB, and minutes of two cores, nearly all of it to import PyTorch.
"""

import argparse
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.in_place import standing_jobs
from harness.audit import AuditEvent
from harness.node.local_node import LocalNode
from harness.node.stand import Stand
from node.jobs import Jobs

STALL_S = 30  # a step takes a tenth of a second, and the start of the others is not waited for
RUNS_FOR_S = 65  # so that no end is one of those that follow each other at once
BLIP_S = 100
TORCHRUN = 'exec torchrun --no_python python -c "$0"'
SCRIPT = """
import os, signal, sys, time, torch, torch.distributed as dist
rank = os.environ["RANK"]
dist.init_process_group("gloo")
open(f"/reports/began-{rank}", "a").write(f"{time.time()}\\n")
while True:
    for word in ("crash", "kill", "hang"):
        if os.path.exists(f"/reports/{word}-{rank}"):
            os.remove(f"/reports/{word}-{rank}")
            open(f"/reports/ended-{rank}", "a").write(f"{time.time()}\\n")
            if word == "crash":
                sys.exit(3)
            os.kill(os.getpid(), signal.SIGKILL) if word == "kill" else time.sleep(1e6)
    dist.all_reduce(torch.zeros(1))
    open(os.environ["CLOSEKNIT_PROGRESS_FILE"], "w").close()
    time.sleep(0.1)
"""


@dataclass
class Shown:
    """The job on its kubelets."""

    jobs: Jobs
    stand: Stand
    pods: int

    @property
    def nodes(self) -> list[LocalNode]:
        """Those of the gang, by node rank."""
        there = {node.site.name: node for node in self.stand.nodes}
        return [there[each["name"]] for each in self.jobs.job()["status"]["placement"]["nodes"]]

    def tell(self, word: str) -> None:
        """Tells the last rank how to end."""
        (self.nodes[-1].reports / f"{word}-{self.pods - 1}").touch()

    def wait_for_run(self, number: int) -> None:
        """Until every rank has met the others in this run, from 1, and the status says so."""
        self.jobs.cluster.wait_for(lambda: self._met() >= number * self.pods, f"run {number}", 600)
        self.jobs.cluster.wait_for(lambda: self.jobs.job()["status"].get("state") == "Running", "the gang to run", 60)

    def _met(self) -> int:
        files = [file for node in self.stand.nodes for file in node.reports.glob("began-*")]
        return sum(len(file.read_text().splitlines()) for file in files)


@contextmanager
def shown(pods: int) -> Iterator[Shown]:
    """The job, which runs."""
    with ExitStack() as stack:
        jobs = stack.enter_context(standing_jobs())
        stand = jobs.stand
        while len(stand.nodes) <= pods:
            stand = stack.enter_context(stand.spare())
        jobs.begin("shown")
        restart = {"limit": 9, "stallDeadline": f"{STALL_S}s", "onHang": "Restart"}
        jobs.train(["sh", "-c", TORCHRUN, SCRIPT], gpus=pods, topology={"gpusPerNode": 1}, restart=restart)
        found = Shown(jobs, stand, pods)
        found.wait_for_run(1)
        yield found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="bench.failures_shown")
    parser.add_argument("--pods", type=int, default=8)
    columns = ("what", "reason", "in place", "charged", "phases", "writes")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with shown(parser.parse_args().pods) as job:
        number = 1
        for what, does in WAYS.items():
            time.sleep(RUNS_FOR_S)
            since = datetime.now(UTC)
            ends = len(job.jobs.job()["status"].get("attempts", ()))
            undo = does(job)
            if what != BLIP:
                number += 1
                job.wait_for_run(number)
            undo()
            told = job.jobs.job()["status"].get("attempts", [])[ends:]
            print(f"| {what} | {_row(told)} | {_written(job.jobs.writes(), since)} |", flush=True)


def _row(ends: list[dict[str, Any]]) -> str:
    if not ends:
        return "none | | | "
    (end,) = ends
    phases = end["phases"]
    order = [*("detect", "decide", "free", "bind", "start"), *sorted(phases.keys())]
    told = ", ".join(f"{phase} {phases[phase]}" for phase in dict.fromkeys(order) if phase in phases)
    place, charged = ("yes" if end.get(key) else "no" for key in ("inPlace", "charged"))
    return f"{end['reason']} | {place} | {charged} | {told}"


def _written(writes: list[AuditEvent], since: datetime) -> str:
    """What the operator wrote since then."""
    counts = Counter(
        f"{event.verb} {event.resource}{'/' * bool(event.subresource)}{event.subresource}"
        for event in writes
        if event.received > since
    )
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"


def _nothing() -> None:
    """Nothing is to be undone."""


def _told(word: str) -> Callable[[Shown], Callable[[], None]]:
    def does(job: Shown) -> Callable[[], None]:
        job.tell(word)
        return _nothing

    return does


def _dies(job: Shown) -> Callable[[], None]:
    node = job.nodes[-1]
    node.die()
    return node.revive


def _cut_off(job: Shown) -> Callable[[], None]:
    node = job.nodes[0]
    node.unplug()
    return node.plug_in


def _stopped(job: Shown) -> Callable[[], None]:
    node = job.nodes[0]
    node.signal(signal.SIGSTOP, "kubelet")
    time.sleep(BLIP_S)
    node.signal(signal.SIGCONT, "kubelet")
    time.sleep(15)
    return _nothing


BLIP = f"the kubelet of rank 0 is stopped for {BLIP_S} s"
WAYS: dict[str, Callable[[Shown], Callable[[], None]]] = {
    "a rank exits with an error": _told("crash"),
    "a rank is killed": _told("kill"),
    "a rank hangs": _told("hang"),
    BLIP: _stopped,
    "a node dies": _dies,
    "node rank 0's node is cut off": _cut_off,
}


if __name__ == "__main__":
    main()
