"""Which node and which GPUs together, against node first and GPUs second: one JSON line. `make bench-joint` also writes
docs/benchmarks.md.

    PYTHONPATH=tests uv run python -m bench.joint [--write]

NODES nodes of one machine, jobs as they come (Poisson, load .85), 40% of one GPU, 20% of two, 5% of three, 22% of
four and 13% of a whole node (on summit of six), running for exponential times of mean 60. Every policy has the same
queue, in order of arrival, and passes over what does not fit, 50 deep. SEEDS seeds that all policies share. closeknit
is `place` on the whole cluster, with who holds which GPU as the Cluster has it. Peers choose the node first, the
emptiest (spread, as kube-scheduler does by default) or the fullest that has room (binpack), and the GPUs second, the
lowest indexes or those that go-gpuallocator takes. Judges are those of bench/traced.py; jobs of one GPU are not judged.

`wait_ratio_to_binpack` is the mean wait of jobs of a whole node beside that under binpack, which is the same whichever
GPUs are taken.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from random import Random
from typing import Any, NamedTuple

from bench.chart import Bars, table, write
from bench.traced import SWITCHED, Chooser, Traced, first_fit, go_gpuallocator, summary, traced
from closeknit.cluster.node.node import NodeView
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from closeknit.simulation.replay import replay
from scenarios.clusters import cluster_of, node, wanted

NODES = 16
JOBS = 1_000
# The wait of jobs of a whole node scatters by a fifth from seed to seed: ten seeds tell no more than .93 from 1.00.
SEEDS = {"dgx-v": 40, "dgx-p": 10, "summit": 40, "pairs-8": 10, SWITCHED: 10}
SIZES = ((1, 40), (2, 20), (3, 5), (4, 22), (8, 13))  # and how many of a hundred
LOAD = 0.85
MEAN_RUN = 60.0
DEPTH = 50
PROCESSES = 2

Masks = list[int]
"""Of each node the free GPUs."""
Policy = Callable[[Masks, list[dict[int, int]], int], tuple[int, int] | None]
"""(free GPUs, jobs on each node by their number with their GPUs, size) -> (node, GPUs)."""


class Arrival(NamedTuple):
    """A job."""

    number: int
    at_s: float
    size: int
    run_s: float


def sizes(of: Traced) -> list[tuple[int, int]]:
    """Sizes of jobs and their weights; the largest is a whole node."""
    whole = len(of.graph.gpus)
    return [(min(size, whole), weight) for size, weight in SIZES]


def arrivals(of: Traced, seed: int) -> Iterator[Arrival]:
    """The jobs of one seed."""
    random, mix = Random(seed), sizes(of)  # noqa: S311 - the same jobs every time
    mean = sum(size * weight for size, weight in mix) / sum(weight for _, weight in mix)
    at = 0.0
    for number in range(1, JOBS + 1):
        at += random.expovariate(LOAD * NODES * len(of.graph.gpus) / (mean * MEAN_RUN))
        size = random.choices([size for size, _ in mix], [weight for _, weight in mix])[0]
        yield Arrival(number, at, size, random.expovariate(1 / MEAN_RUN))


class Waiting:
    """One queue for every policy: in order of arrival, whatever fits of the first DEPTH."""

    def __init__(self, of: Traced, policy: Policy) -> None:
        self._policy = policy
        self._free = [of.every] * NODES
        self._jobs = [dict[int, int]() for _ in range(NODES)]
        self._waiting: list[Arrival] = []
        self.taken: dict[int, tuple[int, int]] = {}
        """Node and GPUs by a job's number."""

    def come(self, job: Arrival, _now: float) -> None:
        """At the end of the queue."""
        self._waiting.append(job)

    def go(self, job: Arrival, _now: float) -> None:
        """What it had is free."""
        where, _ = self.taken[job.number]
        self._free[where] |= self._jobs[where].pop(job.number)

    def begun(self, _now: float) -> list[Arrival]:
        """Those that the policy has GPUs for."""
        found: list[Arrival] = []
        at = 0
        while at < min(len(self._waiting), DEPTH):
            job = self._waiting[at]
            is_room = job.size <= max(map(int.bit_count, self._free))
            chosen = self._policy(self._free, self._jobs, job.size) if is_room else None
            if chosen is None:
                at += 1
                continue
            where, mask = self.taken[job.number] = chosen
            self._free[where] &= ~mask
            self._jobs[where][job.number] = mask
            found.append(self._waiting.pop(at))
        return found

    def stopped(self) -> Sequence[Arrival]:
        """Nobody stops who runs."""
        return ()

    def resized(self) -> Sequence[tuple[Arrival, float]]:
        """Nobody's GPUs change while it runs."""
        return ()

    def wake_s(self, _now: float) -> None:
        """Nobody asks for less after a while."""


def simulate(of: Traced, policy: Policy, seed: int) -> tuple[list[int], list[float]]:
    """The sets that jobs of two GPUs and more get, and how long those of a whole node wait."""
    queue = Waiting(of, policy)
    began = [(moment.now_s, job) for moment in replay(arrivals(of, seed), queue) for job in moment.began]
    taken = [queue.taken[job.number][1] for _, job in began if job.size > 1]
    return taken, [now - job.at_s for now, job in began if job.size == len(of.graph.gpus)]


def node_first(order: Callable[[int], int], choose: Chooser) -> Policy:
    """The node by how many GPUs it has free, then its GPUs."""

    def policy(free: Masks, _: list[dict[int, int]], size: int) -> tuple[int, int] | None:
        able = [number for number, mask in enumerate(free) if mask.bit_count() >= size]
        if not able:
            return None
        where = min(able, key=lambda number: (order(free[number].bit_count()), number))
        return where, choose(free[where], size)

    return policy


def closeknit(of: Traced) -> Policy:
    """`place`, on the cluster as it is."""
    tables = Tables()
    tables.learn(of.graph)
    views: dict[tuple[int, tuple[int, ...]], NodeView] = {}

    def view(number: int, jobs: dict[int, int]) -> NodeView:
        """Holders are named by their order on the node: who it is makes no difference, how many they are does."""
        key = (number, tuple(jobs.values()))
        if key not in views:
            words = [str(position) for position in range(len(of.graph.gpus))]
            for job, mask in enumerate(key[1]):
                words = [f"job-{job}" if mask >> position & 1 else word for position, word in enumerate(words)]
            views[key] = node(f"gpu-{number:02}", of.graph, gpus=" ".join(words))
        return views[key]

    def policy(_: Masks, jobs: list[dict[int, int]], size: int) -> tuple[int, int] | None:
        cluster = cluster_of(*(view(number, held) for number, held in enumerate(jobs)))
        placed = place(cluster, wanted(gpus=size), tables)
        if not isinstance(placed, Placement):
            return None
        if len(placed.shares) > 1:  # a job that fits into a machine waits for one here, under every policy
            return None
        (share,) = placed.shares
        return int(share.node[4:]), sum(1 << index for index in share.gpus)

    return policy


def policies(of: Traced) -> dict[str, Policy]:
    """Ours and the peers."""
    choosers: dict[str, Chooser] = {"first-fit": first_fit}
    if of.name != SWITCHED:
        choosers["go-gpuallocator"] = go_gpuallocator(of.name)
    orders: dict[str, Callable[[int], int]] = {"spread": lambda free: -free, "binpack": lambda free: free}
    peers = {f"{by} + {which}": node_first(orders[by], choosers[which]) for by in orders for which in choosers}
    return {"closeknit": closeknit(of), **peers}


Row = dict[str, Any]
Runs = dict[str, list[tuple[list[int], list[float]]]]


def some(name: str, seeds: range) -> Runs:
    """Every policy on some seeds."""
    of = traced(name)
    return {who: [simulate(of, policy, seed) for seed in seeds] for who, policy in policies(of).items()}


def measured(name: str, parts: list[Runs]) -> Row:
    """The figures of one machine."""
    of = traced(name)
    rows: dict[str, Row] = {}
    waits: dict[str, float] = {}
    for who in parts[0]:
        runs = [run for part in parts for run in part[who]]
        masks = list(chain.from_iterable(taken for taken, _ in runs))
        waited = list(chain.from_iterable(waits for _, waits in runs))
        waits[who] = sum(waited) / len(waited)
        ring = summary([of.ideal("ring", mask) for mask in masks])
        rows[who] = {**summary([of.ideal("tree", mask) for mask in masks]), "ring_at_ideal": ring["at_ideal"]}
    for who, row in rows.items():
        row["wait_ratio_to_binpack"] = round(waits[who] / waits["binpack + first-fit"], 3)
    own = rows.pop("closeknit")
    best = max(row["at_ideal"] for row in rows.values())
    return {**own, "at_ideal_to_best_peer": round(own["at_ideal"] / best, 3), "seeds": SEEDS[name], "peers": rows}


def report(machines: dict[str, Row]) -> None:
    """The section of docs/benchmarks.md."""
    bars = Bars(
        "Jobs at the best set of their size, 16 nodes, tree judge",
        across="part of all jobs; more is better",
        down="machine",
    )
    rows: list[tuple[object, ...]] = []
    columns = ("at_ideal", "p5", "mean", "ring_at_ideal", "wait_ratio_to_binpack")
    for name, found in machines.items():
        by_policy: dict[str, Row] = {"closeknit": found, **found["peers"]}
        bars.add(name, {who: row["at_ideal"] for who, row in by_policy.items()})
        rows += [(name, who, *(row[key] for key in columns)) for who, row in by_policy.items()]
    text = (
        f"{NODES} nodes at a load of {LOAD}, {JOBS} jobs a seed, "
        + ", ".join(f"{name} {seeds}" for name, seeds in SEEDS.items())
        + " seeds. By the tree judge, and in the last but one column by the ring judge. The wait is that of jobs of a "
        "whole node, beside binpack's. Behind NVSwitches all sets are alike."
    )
    header = ("machine", "policy", "at ideal", "p5", "mean", "at ideal, rings", "wait to binpack's")
    write("joint", "Which node and which GPUs", f"{text}\n\n{table(header, rows)}", bars)


def main() -> None:
    """Prints the figures; with --write also into docs/benchmarks.md."""
    with ProcessPoolExecutor(PROCESSES) as processes:
        parts = {
            name: [processes.submit(some, name, range(first, seeds, PROCESSES)) for first in range(PROCESSES)]
            for name, seeds in SEEDS.items()
        }
        machines = {name: measured(name, [part.result() for part in runs]) for name, runs in parts.items()}
    figures = {"bench": "joint", "nodes": NODES, "jobs": JOBS, "load": LOAD, "machines": machines}
    if "--write" in sys.argv[1:]:
        report(machines)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
