"""The queue on lists of public clusters, beside the orders of other schedulers: one JSON line. `make bench-queue` also
writes docs/benchmarks.md.

    PYTHONPATH=tests uv run python -m bench.queue_replay [--write] [PART [CLUSTERS]]

closeknit is `schedule` itself, on a virtual clock as `closeknit simulate` has it: every job is a TrainingJob that
prefers a switch and declares its run time with an error of up to a fifth. queue_lists.py tells the lists and their
fabric, queue_peers.py the others; all share jobs, hosts and run times, and a gang runs the longer the farther apart its
hosts are. With PART each list is every so manieth of its jobs.

Completion is from a job's coming to its end, a wait all of it that is no run. `mean_jct_ratio` and `p95_jct_ratio` are
ours to the best of FIFO, strict FIFO, best-effort FIFO, EASY, QSSF and LAS, each figure to its own best;
`max_wait_ratio_to_fifo` is the longest wait to FIFO's, `to_srpt` the mean to that of the better of the two orders of
`shortest_remaining`. `to_qssf_told` is the mean to QSSF's if it had our declarations in place of its guesses.
`allocation_ratio` is the part of all GPUs that is held while jobs come, to that of the same `schedule` where it knows
no switch. Of the jobs that were told when they would start, by what each was told first: `median_error_share` is the
error as part of the wait, `reserved_late_max` the longest wait as part of what was said, from coming on.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import msgspec

from bench import preemption
from bench.chart import Bars, table, write
from bench.clos import GPUS, Host
from bench.queue_lists import LOAD, SWITCHES, QueueJob, fabric, jobs, stretched_s
from bench.queue_peers import ORDERS, TOLD, Ordered, Stopping, attained, shortest_remaining
from bench.scale import Fleet, parsed_topology
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import ClusterObject
from closeknit.simulation.account import SHORT_S
from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import Queue, replay
from closeknit.simulation.submission import Submission
from harness.progress import Progress
from scenarios.traces import BEGINS

OURS, BLIND, FIFO, SRPT, QSSF_TOLD = "closeknit", "closeknit without levels", "fifo", "srpt", "qssf told"
BY_AREA = "srpt by GPU time"
PEERS = (*ORDERS, "las")
RULES = (OURS, BLIND, *PEERS, QSSF_TOLD, SRPT, BY_AREA)
PROCESSES = 2

Row = dict[str, Any]


@dataclass
class Outcomes:
    """What became of the jobs of a list by one rule."""

    completed_s: list[float]
    waits_s: list[float]
    allocated: float
    estimates: list[tuple[float, float]]
    """(said, was): waits of jobs that were told when they would start."""


class Closeknit:
    """The operator's queue; a job runs as long as where it is makes it."""

    def __init__(self, hosts: Sequence[Host], *, knows_levels: bool) -> None:
        fleet = Fleet(len(hosts), ("hgx-h200",), seed=8)
        self._places = dict(zip(fleet.names, hosts, strict=True))
        self._preferred = {"fabric": {"preferred": "rack"}} if knows_levels else {}
        self.operated = Operated(_cluster(fleet, hosts, knows_levels=knows_levels), BEGINS)
        self._specs: dict[tuple[int, int], TrainingJobSpec] = {}
        self._submitted: dict[QueueJob, Submission] = {}
        self._jobs: dict[Submission, QueueJob] = {}
        self.estimates: list[tuple[float, float]] = []

    def come(self, job: QueueJob, now_s: float) -> None:
        """As a TrainingJob."""
        made = Submission(job.number, job.at_s, job.alone_s, self._spec(job))
        self._submitted[job], self._jobs[made] = made, job
        self.operated.come(made, now_s)

    def go(self, job: QueueJob, now_s: float) -> None:
        """It is over."""
        self.operated.go(self._submitted[job], now_s)

    def begun(self, now_s: float) -> Sequence[QueueJob]:
        """Those that are booked."""
        found = []
        for made in self.operated.begun(now_s):
            job = self._jobs[made]
            nodes = [share.node for share in self.operated.placement(made).shares]
            job.run_s = stretched_s(job, [self._places[node] for node in nodes], len(nodes))
            if (said_s := self.operated.estimate_s(made)) is not None:
                self.estimates.append((said_s - job.at_s, now_s - job.at_s))
            found.append(job)
        return found

    def stopped(self) -> Sequence[QueueJob]:
        """Nobody stops who runs."""
        return ()

    def resized(self) -> Sequence[tuple[QueueJob, float]]:
        """Nobody's GPUs change while it runs."""
        return ()

    def wake_s(self, now_s: float) -> float | None:
        """As the operator's."""
        return self.operated.wake_s(now_s)

    def _spec(self, job: QueueJob) -> TrainingJobSpec:
        body = {
            "gpus": job.gpus,
            "expectedDuration": f"{max(1, round(job.declared_s))}s",
            "topology": {"gpusPerNode": min(job.gpus, GPUS), **self._preferred},
            "template": {"spec": {"containers": [{"name": "trainer", "image": "simulated"}]}},
        }
        return TrainingJobSpec.parse_strictly(body)


def _cluster(fleet: Fleet, hosts: Sequence[Host], *, knows_levels: bool) -> Cluster:
    def objects() -> Iterator[ClusterObject]:
        if knows_levels:
            yield parsed_topology()
        for name, host, node, report in zip(fleet.names, hosts, fleet.nodes, fleet.reports, strict=True):
            labels = {**node.labels, "net.example/block": host.pod, "net.example/rack": host.tor.partition("/")[2]}
            yield from (msgspec.structs.replace(node, labels=labels), replace(report, heartbeat=BEGINS))
            yield fleet.slice_of(name)

    return build(objects())


def outcomes(name: str, rule: str, part: int) -> Outcomes:
    """What becomes of a list by a rule."""
    hosts, there = fabric(name), jobs(name, part=part)
    if rule in (SRPT, BY_AREA):
        return _of_stopping(shortest_remaining(there, len(hosts) * GPUS, is_by_area=rule == BY_AREA), hosts)
    if rule == "las":
        return _of_stopping(attained(there, hosts), hosts)
    if rule in (OURS, BLIND):
        queue = Closeknit(hosts, knows_levels=rule == OURS)
        return _of_replay(there, queue, hosts, lambda: queue.estimates)
    return _of_replay(there, Ordered(hosts, TOLD if rule == QSSF_TOLD else ORDERS[rule]), hosts, list)


def _of_replay(
    there: Sequence[QueueJob],
    queue: Queue[QueueJob],
    hosts: Sequence[Host],
    estimates: Callable[[], list[tuple[float, float]]],
) -> Outcomes:
    began = {job: moment.now_s for moment in replay(there, queue) for job in moment.began}
    last_s = there[-1].at_s
    held = sum(job.gpus * max(0.0, min(last_s, at_s + job.run_s) - at_s) for job, at_s in began.items())
    return Outcomes(
        completed_s=sorted(at_s + job.run_s - job.at_s for job, at_s in began.items()),
        waits_s=sorted(at_s - job.at_s for job, at_s in began.items()),
        allocated=held / last_s / len(hosts) / GPUS,
        estimates=estimates(),
    )


def _of_stopping(ended: Sequence[Stopping], hosts: Sequence[Host]) -> Outcomes:
    wanted = sum(each.job.gpus * each.job.alone_s for each in ended)
    return Outcomes(
        completed_s=sorted(each.ended_s - each.job.at_s for each in ended),
        waits_s=sorted(each.ended_s - each.job.at_s - each.job.alone_s for each in ended),
        allocated=wanted / max(each.ended_s for each in ended) / len(hosts) / GPUS,
        estimates=[],
    )


def figures(found: dict[str, Outcomes]) -> Row:
    """Of one list."""
    rows: dict[str, Row] = {
        rule: {
            "mean_jct_s": round(statistics.fmean(each.completed_s), 1),
            "p95_jct_s": round(_p95(each.completed_s), 1),
            "max_wait_s": round(each.waits_s[-1], 1),
            "allocated": round(each.allocated, 4),
        }
        for rule, each in found.items()
    }
    ours = rows[OURS]
    best = {key: min(rows[peer][key] for peer in PEERS) for key in ("mean_jct_s", "p95_jct_s")}
    return {
        "jobs": len(found[OURS].completed_s),
        "mean_jct_ratio": round(ours["mean_jct_s"] / best["mean_jct_s"], 3),
        "p95_jct_ratio": round(ours["p95_jct_s"] / best["p95_jct_s"], 3),
        "max_wait_ratio_to_fifo": round(ours["max_wait_s"] / rows[FIFO]["max_wait_s"], 3),
        "allocation_ratio": round(ours["allocated"] / rows[BLIND]["allocated"], 4),
        "to_srpt": round(ours["mean_jct_s"] / min(rows[each]["mean_jct_s"] for each in (SRPT, BY_AREA)), 3),
        "to_qssf_told": round(ours["mean_jct_s"] / rows[QSSF_TOLD]["mean_jct_s"], 3),
        "rules": rows,
    }


def estimates(told: Sequence[tuple[float, float]]) -> Row:
    """Of the jobs of all lists that were told when they would start."""
    return {
        "jobs": len(told),
        "median_error_share": round(statistics.median(abs(said - was) / max(was, SHORT_S) for said, was in told), 3),
        "reserved_late_max": round(max(was / max(said, SHORT_S) for said, was in told), 2),
    }


def report(lists: dict[str, Row], part: int) -> None:
    """The section of docs/benchmarks.md."""
    bars = Bars("Mean completion", across="to that by FIFO; less is better", down="list of jobs")
    rows: list[tuple[object, ...]] = []
    for name, found in lists.items():
        rules = {rule: row for rule, row in found["rules"].items() if rule != BLIND}
        bars.add(name, {rule: row["mean_jct_s"] / rules[FIFO]["mean_jct_s"] for rule, row in rules.items()})
        for rule, row in rules.items():
            hours = (round(row[key] / 3600, 1) for key in ("mean_jct_s", "p95_jct_s", "max_wait_s"))
            rows.append((name, rule, *hours, row["allocated"]))
    keys = ("mean_jct_ratio", "p95_jct_ratio", "max_wait_ratio_to_fifo", "allocation_ratio", "to_srpt", "to_qssf_told")
    ratios = [(name, found["jobs"], *(found[key] for key in keys)) for name, found in lists.items()]
    header = ("list", "jobs", "mean to best", "p95 to best", "longest to FIFO", "allocated", "to SRPT", "to QSSF told")
    words = "" if part == 1 else f", one of {part} of its jobs"
    text = (
        f"Lists of public clusters{words}, on as many hosts of Lingjun's fabric as they load to {LOAD:g}, runs cut at "
        "two days. Jobs declare their run time with an error of up to a fifth, and a gang runs longer on hosts that "
        "are farther apart. To the best of FIFO, strict FIFO, best-effort FIFO, EASY, QSSF and LAS, each figure to its "
        "own best; the longest wait to FIFO's; allocated to the same queue that knows no switch. SRPT stops jobs for "
        "nothing and knows the future; QSSF told has our declarations in place of its guesses. "
        "[What is missed, and why](queueing.md#what-is-missed).\n\n"
        f"{table(header, ratios)}\n\nIn hours:"
    )
    columns = ("list", "order", "mean completion", "p95", "longest wait", "allocated")
    write("queue", "The order of the queue", f"{text}\n\n{table(columns, rows)}", bars)


def _p95(ascending: Sequence[float]) -> float:
    return ascending[ceil(len(ascending) * 0.95) - 1]


def main(part: int = 1, clusters: int = preemption.CLUSTERS, *, is_written: bool) -> None:
    """Prints the figures; with --write also into docs/benchmarks.md."""
    with ProcessPoolExecutor(PROCESSES) as processes, Progress(sys.stderr) as progress:
        parts = {name: {rule: processes.submit(outcomes, name, rule, part) for rule in RULES} for name in SWITCHES}
        every = [each for of in parts.values() for each in of.values()]
        with progress.of("queues", lambda: f"{sum(each.done() for each in every)} of {len(every)} replays"):
            found = {name: {rule: each.result() for rule, each in of.items()} for name, of in parts.items()}
    lists = {name: figures(of) for name, of in found.items()}
    told = [each for of in found.values() for each in of[OURS].estimates]
    if is_written:
        report(lists, part)
    line = {"bench": "queue", "load": LOAD, "part": part, "traces": lists, "estimate": estimates(told)}
    print(json.dumps({**line, "preemption": preemption.figures(range(clusters), preemption.FEW, range(10))}))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:] if word != "--write"), is_written="--write" in sys.argv[1:])
