"""Gangs on a real Clos fabric, placed near each other or waiting for it: one JSON line. `make bench-fabric` also writes
docs/benchmarks.md.

    PYTHONPATH=tests uv run python -m bench.fabric [--write] [SEEDS [JOBS]]

The fabric is that of Alibaba's Lingjun cluster of 2023 (data/lingjun2023_topo.csv): 847 hosts under 119 ToR switches in
3 pods; eight H200 a host are assumed. Jobs come by Poisson, run for exponential times of mean 60, and are of 1 to 512
GPUs, of which every Pod takes up to eight, whoever places it. All policies share seeds, queue and rule: in order of
arrival, whatever fits of the first 50. closeknit is `place` on the whole cluster, with a claim for every share; each
gang prefers a ToR with a patience of PATIENCE, one that is larger than a ToR with a patience of PATIENCE_OF_LARGE, as
its TrainingJob would say, by the very rules of the operator (reservation/patience.py). clos_peers.py tells the peers'.

A gang of 2 to 8 hosts is `one_tor` when it lies under one switch; `spread` is how many switches larger ones use, beside
the fewest. Waits are of jobs of more than eight GPUs. Of the gap in one_tor between Kueue's `preferred`, which never
waits, and `required`, which waits for ever, `gap_closed` is what closeknit closes, and `extra_wait_share` is how much
of the wait that `required` costs it takes, each with its standard error, as seeds left out one by one tell it (a job of
512 GPUs waits nearly as long as one runs, so that a few of them move the mean). Where nearly all gangs are under one
switch, whoever places them, there is no gap to close, and both are null. The jobs that the fabric begins with are not
counted. `gar` is the part of all GPU time that is allocated while jobs come. `one_tor` and `gar` are also told beside
those of the best peer (`one_tor_to_best_peer`, `gar_to_best_peer`).
"""

import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from math import sqrt
from typing import Any

import msgspec

from bench.chart import Bars, table, write
from bench.clos import GPUS, Host, Job, Run, Taken, arrivals, hosts, simulate
from bench.clos_peers import PEERS, Peer
from bench.scale import Fleet, parsed_topology
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.objects.dra import ResourceClaim
from closeknit.cluster.store.watched_kinds import ClusterObject, change
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.values.placement import Placement
from closeknit.placement.values.request import Request
from closeknit.scheduling.policy.backlog import CROWD
from closeknit.scheduling.reservation.patience import patient
from harness.progress import Progress
from scenarios.clusters import wanted

SEEDS_AT = {0.7: 5, 0.85: 100, 0.95: 25}  # by how much they differ; at .70 hardly anybody waits
JOBS = 2_500
PATIENCE, PATIENCE_OF_LARGE = 8.0, 120.0  # in a unit of which jobs run 60 on average: docs/decisions/0004-place.md
PROCESSES = 2
LEAST_GAP = 0.01  # of all gangs; at a load of .70 it is .001, and all that closes or widens it is single gangs
OURS, WAITS_NEVER, WAITS_FOR_EVER = "closeknit", "kueue preferred", "kueue required"

Row = dict[str, Any]


class Closeknit:
    """`place` on a Cluster that claims change, as the operator's is."""

    def __init__(self, fabric: Sequence[Host]) -> None:
        self._fleet = Fleet(len(fabric), ("hgx-h200",), seed=8)
        self._numbers = {name: number for number, name in enumerate(self._fleet.names)}
        self._tables = Tables()
        for machine in self._fleet.machines:
            self._tables.learn(machine)
        self._cluster = self._built(fabric)
        self._claims: dict[int, list[ResourceClaim]] = {}
        self._refused: set[Request] = set()
        self._asked: dict[int, tuple[Request, Request | None]] = {}

    def _built(self, fabric: Sequence[Host]) -> Cluster:
        fleet = self._fleet

        def objects() -> Iterator[ClusterObject]:
            yield parsed_topology()
            for name, host, node, report in zip(fleet.names, fabric, fleet.nodes, fleet.reports, strict=True):
                labels = {**node.labels, "net.example/block": host.pod, "net.example/rack": host.tor.partition("/")[2]}
                yield from (msgspec.structs.replace(node, labels=labels), report, fleet.slice_of(name))

        cluster = build(objects())
        return cluster.at(cluster.newest_heartbeat(datetime.now(UTC)) or datetime.now(UTC))

    def _request(self, gpus: int) -> tuple[Request, Request | None]:
        """What a job asks in the end, and what while it is patient."""
        if gpus not in self._asked:
            topology = {"gpusPerNode": min(gpus, GPUS), "fabric": {"preferred": "rack"}}
            plain = wanted(gpus=gpus, topology=topology)
            self._asked[gpus] = plain, patient(plain, self._cluster, self._tables)
        return self._asked[gpus]

    def patient_until(self, job: Job) -> float | None:
        """When it no longer waits for a switch or a pod of its own."""
        _, waiting = self._request(job.gpus)
        if waiting is None or job.gpus <= GPUS:
            return None
        return job.at + (PATIENCE_OF_LARGE if waiting.gives_way else PATIENCE)

    def take(self, job: Job, now: float, smaller: int) -> Taken | None:
        """By `place`, each share a claim."""
        until = self.patient_until(job)
        request, patiently = self._request(job.gpus)
        if until is not None and now < until and patiently is not None:
            request = request if patiently.gives_way and smaller < CROWD else patiently
        if request in self._refused:
            return None
        answer = (
            place(self._cluster, request, self._tables) if can_place(self._cluster, request, self._tables) else None
        )
        if not isinstance(answer, Placement):
            self._refused.add(request)
            return None
        self._claims[job.number] = claims = [
            ResourceClaim(
                namespace="ml",
                name=f"job-{job.number}-{share.node}",
                uid=f"uid-{job.number}-{share.node}",
                allocated=True,
                devices=tuple((share.node, f"gpu-{index}") for index in share.gpus),
            )
            for share in answer.shares
        ]
        self._cluster = self._cluster.after([change(claim) for claim in claims])
        return [(self._numbers[share.node], len(share.gpus)) for share in answer.shares]

    def give_back(self, job: Job, _taken: Taken) -> None:
        """Its claims are gone."""
        self._refused.clear()
        self._cluster = self._cluster.after(
            [replace(change(claim), new=None) for claim in self._claims.pop(job.number)]
        )


def some(load: float, seed: int, count: int) -> dict[str, Row]:
    """Every policy on one seed: sums, and lists of what is no sum."""
    fabric = hosts()
    jobs = arrivals(load, seed, count, len(fabric) * GPUS)
    found = {}
    for name in (OURS, *PEERS):
        policy = Closeknit(fabric) if name == OURS else Peer(fabric, PEERS[name])
        found[name] = _row(fabric, simulate(jobs, policy), jobs[-1].at)
    return found


def _row(fabric: Sequence[Host], runs: Sequence[Run], end: float) -> Row:
    tors = {run.job.number: len({fabric[host].tor for host, _ in run.taken}) for run in runs}
    widest = max(len([host for host in fabric if host.tor == tor]) for tor in {host.tor for host in fabric})
    used = sum(run.job.gpus * max(0.0, min(end, run.began + run.job.run) - run.began) for run in runs)
    runs = [run for run in runs if run.job.at > 0]
    return {
        "one_tor": [int(tors[run.job.number] == 1) for run in runs if 1 < run.job.hosts <= widest],
        "spread": [tors[run.job.number] / -(-run.job.hosts // widest) for run in runs if run.job.hosts > widest],
        "waits": [run.began - run.job.at for run in runs if run.job.gpus > GPUS],
        "gar": [used / end / len(fabric) / GPUS],
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def measured(rows: Sequence[dict[str, Row]]) -> Row:
    """The figures of one load."""
    figures: dict[str, Row] = {}
    for name in rows[0]:
        one_tor, spread, waits, gar = (
            list(chain.from_iterable(row[name][key] for row in rows)) for key in ("one_tor", "spread", "waits", "gar")
        )
        figures[name] = {
            "one_tor": round(_mean(one_tor), 4),
            "spread": round(_mean(spread), 3),
            "wait": round(_mean(waits), 3),
            "wait_p95": round(sorted(waits)[int(len(waits) * 0.95)], 2),
            "wait_max": round(max(waits), 1),
            "gar": round(_mean(gar), 4),
        }
    gap = figures[WAITS_FOR_EVER]["one_tor"] - figures[WAITS_NEVER]["one_tor"]
    own = figures.pop(OURS)
    to_best = {
        f"{key}_to_best_peer": round(own[key] / max(row[key] for row in figures.values()), 3)
        for key in ("one_tor", "gar")
    }
    found: Row = {**own, **to_best, "peers": figures}
    if gap < LEAST_GAP:
        why = f"the gap is {gap:.4f} of all gangs, less than {LEAST_GAP:g}: there is nothing to close"
        return {**found, "gap_closed": None, "extra_wait_share": None, "why_null": why}
    for name, key in (("gap_closed", "one_tor"), ("extra_wait_share", "waits")):
        without = [_part([*rows[:at], *rows[at + 1 :]], key) for at in range(len(rows))] if len(rows) > 1 else []
        found |= {name: round(_part(rows, key), 3), f"{name}_error": round(_error(without), 3)}
    return found


def _part(rows: Sequence[dict[str, Row]], key: str) -> float:
    """Of the way from what never waits to what waits for ever, the part that is ours."""
    own, low, high = (
        _mean([value for row in rows for value in row[name][key]]) for name in (OURS, WAITS_NEVER, WAITS_FOR_EVER)
    )
    return (own - low) / (high - low) if high != low else 0.0


def _error(parts: Sequence[float]) -> float:
    """The standard error of what each of these was measured without one seed: the jackknife."""
    mean = _mean(parts)
    return sqrt(max(0, len(parts) - 1) * _mean([(part - mean) ** 2 for part in parts]))


def report(loads: dict[str, Row], count: int) -> None:
    """The section of docs/benchmarks.md."""
    bars = Bars(
        "Gangs of 2 to 8 hosts under one ToR switch",
        across="part of those gangs; more is better",
        down="load of the GPUs",
    )
    rows: list[tuple[object, ...]] = []
    columns = ("one_tor", "spread", "wait", "wait_p95", "gar")
    for load, found in loads.items():
        by_policy: dict[str, Row] = {OURS: found, **found["peers"]}
        bars.add(f"load {load}", {who: row["one_tor"] for who, row in by_policy.items()})
        rows += [(load, who, *(row[key] for key in columns)) for who, row in by_policy.items()]
    gaps = [
        (load, found["seeds"], _with_error(found, "gap_closed"), _with_error(found, "extra_wait_share"))
        for load, found in loads.items()
    ]
    text = (
        f"Lingjun's 847 hosts under 119 switches, {count} jobs of 1 to 512 GPUs, seeds that all share, run times of "
        f"mean 60. Gangs prefer a switch of their own with a patience of {PATIENCE:g}, or {PATIENCE_OF_LARGE:g} where "
        f"they are larger than one: those wait for a pod, and only while {CROWD} smaller jobs or more wait. Waits are "
        "of jobs of more than eight GPUs, in the unit of run times. The gap is that between Kueue's preferred and "
        f"required, ± one standard error over seeds; where it is less than {LEAST_GAP:g} there is nothing to close.\n\n"
        f"{table(('load', 'seeds', 'of the gap in one ToR closed', 'of its wait taken'), gaps)}"
    )
    header = ("load", "policy", "one ToR", "spread", "mean wait", "p95 wait", "allocated")
    write("fabric", "Gangs under switches", f"{text}\n\n{table(header, rows)}", bars)


def _with_error(found: Row, key: str) -> str:
    return "none" if found[key] is None else f"{found[key]:.3f} ± {found[f'{key}_error']:.3f}"


def main(seeds: int | None = None, count: int = JOBS, *, is_written: bool) -> None:
    """Prints the figures; with --write also into docs/benchmarks.md."""
    with ProcessPoolExecutor(PROCESSES) as processes, Progress(sys.stderr) as progress:
        parts = {
            load: [processes.submit(some, load, seed, count) for seed in range(seeds or usual)]
            for load, usual in SEEDS_AT.items()
        }
        every = [part for of in parts.values() for part in of]
        with progress.of("gangs under switches", lambda: f"{sum(part.done() for part in every)} of {len(every)} runs"):
            loads = {
                str(load): {"seeds": len(of), **measured([part.result() for part in of])} for load, of in parts.items()
            }
    if is_written:
        report(loads, count)
    patience = {"patience": PATIENCE, "patience_of_large": PATIENCE_OF_LARGE}
    print(json.dumps({"bench": "fabric", "jobs": count, **patience, "loads": loads}))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:] if word != "--write"), is_written="--write" in sys.argv[1:])
