"""Which GPUs in one node, beside what others choose: one JSON line. `--write` also writes docs/benchmarks.md.

    PYTHONPATH=tests uv run python -m bench.node_gpu [--write]

Two questions. For every mask of free GPUs and every size: what the chosen set is worth beside the best free one
(`ratio_to_exhaustive`, `share_short`). And what becomes of a machine while jobs come and go: a saturated queue of JOBS
jobs, first in first out, of 1 to 5 GPUs (summit: 4) with equal chance, running for exponential times, on SEEDS seeds
that all choosers share; jobs of one GPU are not judged. Judges, peers and machines are those of bench/traced.py.

`first_ms_16_gpus` is the most that a first decision takes on machines of 16 GPUs with any links between them, for 1 to
16 GPUs and with empty Tables. Later ones ask for 1 to 16 GPUs with equal chance, under any masks that leave as many
free: `p99_ms_16_gpus` is what they take once the operator's loop has worked out what jobs ask of the empty machine, as
it does while it has nothing to decide: a size at a time, each at most `step_ms_16_gpus`, and all of them at most
`learn_ms_16_gpus`. `p99_unlearned_ms_16_gpus` is what the same decisions take where it never comes to that. CPU time.
`searched_16_gpus` says for how many of these machines the first decision for eight GPUs is exact: the others end at
their budget (docs/decisions/0004-place.md).
"""

import json
import sys
import time
from heapq import heappop, heappush
from random import Random
from typing import Any

from bench.chart import Bars, table, write
from bench.traced import (
    SWITCHED,
    Chooser,
    Traced,
    at_random,
    first_fit,
    go_gpuallocator,
    ours,
    summary,
    traced,
)
from closeknit.cluster.cluster import Cluster
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, node, wanted
from scenarios.irregular import irregular

MACHINES = ("dgx-v", "dgx-p", "summit", "pairs-8", SWITCHED)
JUDGES = ("tree", "ring")
SEEDS = 100
JOBS = 300
MOST_GPUS = {"summit": 4}
MEAN_RUN = 60.0
IRREGULAR = 5  # machines of 16 GPUs
MASKS = 200  # of free GPUs of each, one to sixteen asked
EIGHT = 8  # GPUs that the first job asks for


Row = dict[str, Any]


def choosers(of: Traced) -> dict[str, Chooser]:
    """Ours and the peers."""
    peers: dict[str, Chooser] = {"closeknit": ours(of), "first-fit": first_fit, "random": at_random(1)}
    if of.name != SWITCHED:
        peers["go-gpuallocator"] = go_gpuallocator(of.name)
    return peers


def arrivals(of: Traced, choose: Chooser, seed: int) -> list[int]:
    """The sets that the jobs of one queue get, of those with two GPUs and more."""
    random = Random(seed)  # noqa: S311 - the same jobs every time
    free, now, taken = of.every, 0.0, []
    running: list[tuple[float, int]] = []
    for _ in range(JOBS):
        size, run = random.randint(1, MOST_GPUS.get(of.name, 5)), random.expovariate(1 / MEAN_RUN)
        while free.bit_count() < size:
            now, ended = heappop(running)
            free |= ended
        mask = choose(free, size)
        free &= ~mask
        heappush(running, (now + run, mask))
        if size > 1:
            taken.append(mask)
    return taken


def every_mask(of: Traced, choose: Chooser, judge: str) -> dict[str, float]:
    """What is chosen of every mask of free GPUs beside the best that is free."""
    ratios = [
        of.worth[judge][choose(free, size)] / of.best(judge, free, size)
        for free in range(1, of.every + 1)
        for size in range(2, free.bit_count() + 1)
    ]
    short = sum(ratio < 1 - 1e-9 for ratio in ratios)
    return {"ratio_to_exhaustive": round(sum(ratios) / len(ratios), 4), "share_short": round(short / len(ratios), 4)}


def measured(name: str) -> dict[str, Row]:
    """The figures of one machine, by judge."""
    of = traced(name)
    every = choosers(of)
    taken = {who: [mask for seed in range(SEEDS) for mask in arrivals(of, by, seed)] for who, by in every.items()}
    found: dict[str, Row] = {}
    for judge in JUDGES:
        rows = {
            who: {**every_mask(of, by, judge), **summary([of.ideal(judge, mask) for mask in taken[who]])}
            for who, by in every.items()
        }
        own = rows.pop("closeknit")
        best = max(row["at_ideal"] for row in rows.values())
        found[judge] = {**own, "at_ideal_to_best_peer": round(own["at_ideal"] / best, 3), "peers": rows}
    return found


def sixteen() -> dict[str, float]:
    """What decisions on machines of 16 GPUs take, in ms."""
    first, steps, learned = list[float](), list[float](), list[float]()
    later: dict[bool, list[float]] = {True: [], False: []}
    searched = 0
    for seed in range(IRREGULAR):
        of = irregular(seed)
        whole = cluster_of(node("gpu-0", of))
        for gpus in range(1, 17):
            took, placed = decided(whole, gpus, Tables())
            first.append(took)
            searched += gpus == EIGHT and not placed.ended_at_budget
        for is_learned, of_kind in later.items():
            tables, random = Tables(), Random(seed)  # noqa: S311 - the same questions of both
            decided(whole, EIGHT, tables)
            if is_learned:
                own = learning(whole, tables)
                steps += own
                learned.append(sum(own))
            for _ in range(MASKS):
                gpus = random.randint(1, 16)
                held = random.sample(range(16), random.randint(0, 16 - gpus))
                free = " ".join("a" if gpu in held else str(gpu) for gpu in range(16))
                of_kind.append(decided(cluster_of(node("gpu-0", of, gpus=free)), gpus, tables)[0])
    return {
        "first_ms_16_gpus": round(max(first), 1),
        "p99_ms_16_gpus": p99(later[True]),
        "p99_unlearned_ms_16_gpus": p99(later[False]),
        "step_ms_16_gpus": round(max(steps), 1),
        "learn_ms_16_gpus": round(max(learned), 1),
        "searched_16_gpus": searched,
        "machines_16_gpus": IRREGULAR,
    }


def decided(cluster: Cluster, gpus: int, tables: Tables) -> tuple[float, Placement]:
    """What a decision takes, in ms, and what it is."""
    start = time.process_time()
    placed = place(cluster, wanted(gpus=gpus), tables)
    took = (time.process_time() - start) * 1e3
    assert isinstance(placed, Placement)
    return took, placed


def learning(cluster: Cluster, tables: Tables) -> list[float]:
    """What each step takes that the operator's loop makes while it has nothing to decide, in ms."""
    took, is_more = list[float](), True
    while is_more:
        start = time.process_time()
        is_more = tables.learn_asked(cluster.forest.empty)
        took.append((time.process_time() - start) * 1e3)
    return took


def p99(of: list[float]) -> float:
    """What one of a hundred exceeds."""
    return round(sorted(of)[int(len(of) * 0.99)], 1)


def report(machines: dict[str, dict[str, Row]], of_sixteen: dict[str, float]) -> None:
    """The section of docs/benchmarks.md."""
    bars = Bars(
        "Jobs at the best set of their size, tree judge", across="part of all jobs; more is better", down="machine"
    )
    rows: list[tuple[object, ...]] = []
    columns = ("ratio_to_exhaustive", "share_short", "at_ideal", "p5", "mean")
    for name, judges in machines.items():
        bars.add(name, {who: row["at_ideal"] for who, row in by_chooser(judges["tree"]).items()})
        for judge, found in judges.items():
            rows += [(name, judge, who, *(row[key] for key in columns)) for who, row in by_chooser(found).items()]
    text = (
        f"One machine, a saturated queue of {JOBS} jobs of 1 to 5 GPUs, {SEEDS} seeds. The first two "
        "columns of figures are over every mask of free GPUs and every size: what is chosen beside the best free set, "
        "and how often it is less. The others are beside the best set of the empty machine. Behind NVSwitches all sets "
        "are alike.\n\n"
        f"One to 16 of 16 GPUs with any links, on {of_sixteen['machines_16_gpus']} such machines, in ms of CPU time: a "
        f"machine never seen before at most {of_sixteen['first_ms_16_gpus']:.0f}, the same one later, for any number "
        f"of GPUs under any mask of free ones, {of_sixteen['p99_ms_16_gpus']:.0f} (p99). In between the operator works "
        "out what jobs ask of the empty machine while it has nothing to decide, in steps of at most "
        f"{of_sixteen['step_ms_16_gpus']:.0f} and {of_sixteen['learn_ms_16_gpus']:.0f} in all; before it has, later "
        f"decisions take {of_sixteen['p99_unlearned_ms_16_gpus']:.0f} (p99)."
    )
    header = ("machine", "judge", "chooser", "to the best free set", "short of it", "at ideal", "p5", "mean")
    write("node-gpu", "Which GPUs in one node", f"{text}\n\n{table(header, rows)}", bars)


def by_chooser(found: Row) -> dict[str, Row]:
    """Ours and the peers' figures."""
    peers: dict[str, Row] = found["peers"]
    return {"closeknit": found, **peers}


def main() -> None:
    """Prints the figures; with --write also into docs/benchmarks.md."""
    machines = {name: measured(name) for name in MACHINES}
    of_sixteen = sixteen()
    figures = {"bench": "node-gpu", "seeds": SEEDS, "jobs": JOBS, "machines": machines, **of_sixteen}
    if "--write" in sys.argv[1:]:
        report(machines, of_sixteen)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
