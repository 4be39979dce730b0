"""Which host gets which ranks: bytes across domains beside the least that any order sends, as one JSON line.
`make bench-rankmap` also writes docs/benchmarks.md.

    PYTHONPATH=tests uv run python -m bench.rankmap [--write] [GANGS]

Hosts of eight GPUs that happen to be free in a Clos of pods and racks, and trays of four in NVLink domains of eighteen,
as many of a domain as chance has it; 8 to 64 hosts, tensor 4 or 8, 2 to 8 stages. What is sent is `parallelism.traffic`
of the job: the default of dense jobs (gradients 1, activations 0.1), that of jobs with experts (tokens 1, gradients
0.3, activations 0.1), and one that says the opposite (gradients 0.1, activations 1).

`ratio_to_exact_max` is the worst ratio to what every order sends at least, over all gangs: rank_stages.py proves it of
each. A mixed-integer program (rank_oracle.py) bounds the same from below, so that either judges the other; `optimal`
counts the gangs of which it reached its optimum in its time, `unproven` those of which it did not and that are in too
many domains to count. `peers` are ratios of the sums, theirs to ours, and
`ratio_to_best_peer` is ours to the least of theirs; `peers_to_exact_max` leaves out gangs that need send nothing. Kueue
hands out pod indexes through domains in the order of their names; host-name order is what a StatefulSet or an Indexed
Job gets. `spread_max` is the most racks that one data-parallel group spans, the mean over all gangs, as Arnold counts
them.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from random import Random
from typing import Any, NamedTuple

from bench.chart import Bars, table, write
from bench.rank_oracle import SECONDS, crossing, least_crossing
from bench.rank_stages import least_sent
from closeknit.placement.ranks.axis_traffic import between_hosts
from closeknit.placement.ranks.coordinates import in_fabric_order
from closeknit.placement.ranks.host_order import ordered
from closeknit.placement.values.request import Request
from harness.progress import Progress
from scenarios.clusters import wanted

GANGS = 32  # of each traffic
GAP = 1e-3  # a mixed-integer optimum is one within 1e-4 of its own bound
HOSTS = (8, 12, 16, 24, 32, 48, 64)
STAGES = (2, 3, 4, 6, 8)
EXPERTS = (2, 4, 8, 16)
TRAFFIC = {"dense": None, "experts": None, "pipeline": {"data": 0.1, "pipeline": 1.0}}

PROVEN = ("ratio_to_exact_max", "ratio_to_exact_mean", "at_exact", "unproven", "optimal")

Domains = Sequence[tuple[str, ...]]
Row = dict[str, Any]


class Gang:
    """Free hosts by name, and a job for them."""

    def __init__(self, traffic: str, hosts: int, seed: int) -> None:
        random = Random(seed)  # noqa: S311 - the same gangs every time
        self.ranks = random.choice((8, 8, 4))
        domain = self._racks(random, hosts) if self.ranks == 8 else self._trays(random, hosts)
        found: list[tuple[str, ...]] = []
        while len(found) < hosts:
            found += [random.choice(domain)] * random.randint(1, max(1, 2 * hosts // len(domain)))
        random.shuffle(found)
        self.domains = found[:hosts]
        self.request = self._job(random, traffic, hosts)

    @staticmethod
    def _racks(random: Random, hosts: int) -> list[tuple[str, ...]]:
        return [(f"p{rack % 3}", f"p{rack % 3}/r{rack:02}") for rack in range(random.randint(2, max(2, hosts // 4)))]

    @staticmethod
    def _trays(random: Random, hosts: int) -> list[tuple[str, ...]]:
        return [(f"n{rack:02}",) for rack in range(random.randint(2, max(2, hosts // 6)))]

    def _job(self, random: Random, traffic: str, hosts: int) -> Request:
        gpus = hosts * self.ranks
        pipeline = random.choice([stages for stages in STAGES if hosts % stages == 0])
        tensor = random.choice([degree for degree in (4, 8) if degree <= self.ranks])
        data, stage = gpus // pipeline // tensor, hosts // pipeline
        able = [
            degree for degree in EXPERTS if data % degree == 0 and stage % max(1, tensor * degree // self.ranks) == 0
        ]
        expert = random.choice(able) if traffic == "experts" and able else 1
        parallelism = {"tensor": tensor, "pipeline": pipeline, "expert": expert, "traffic": TRAFFIC[traffic]}
        return wanted(gpus=gpus, parallelism=parallelism)

    def in_fabric_order(self) -> Domains:
        """As `place` has them before it orders them: nodes have names that say nothing."""
        names = in_fabric_order([(each, f"{number:05}", self.ranks) for number, each in enumerate(self.domains)])
        return [self.domains[int(name)] for name in names]

    def ours(self) -> Domains:
        domains = self.in_fabric_order()
        return [domains[host] for host in ordered(domains, self.request)]

    def sent(self, domains: Domains) -> float:
        return crossing(domains, between_hosts(self.request, self.ranks))

    def spread(self, domains: Domains) -> int:
        stage = len(domains) // self.request.pipeline
        return max(len(set(domains[first : first + stage])) for first in range(0, len(domains), stage))


PEERS: dict[str, Callable[[Gang], Domains]] = {
    "host_name_order": lambda gang: gang.domains,
    "kueue_domain_order": lambda gang: sorted(gang.domains),
    "fabric_order": Gang.in_fabric_order,
}


def ratio(sent: float, least: float) -> float:
    return 1.0 if sent <= least + 1e-6 else sent / least if least > 0 else float("inf")


class Least(NamedTuple):
    """What every order of a gang's hosts sends at least."""

    sent: float
    is_proven: bool
    """Or a bound that a better order may pass."""
    is_optimal: bool
    """The mixed-integer program has reached its optimum."""


def least(known: Domains, request: Request) -> Least:
    """ArithmeticError where the mixed-integer program has proven more than counting: one of the two judges is wrong."""
    counted = least_sent(known, request)
    bound, is_optimal = least_crossing(known, request)
    if counted is None:
        return Least(bound, is_optimal, is_optimal)
    if bound > counted * (1 + GAP) + GAP:
        raise ArithmeticError(f"every order sends {bound:.3f} by mixed integers, {counted:.3f} by stages: {known}")
    return Least(counted, True, is_optimal)


def measured(traffic: str, gangs: int, done: list[str]) -> Row:
    ratios: dict[str, list[float]] = {name: [] for name in ("ours", *PEERS)}
    sums = dict.fromkeys(ratios, 0.0)
    spreads = dict.fromkeys(ratios, 0.0)
    found: list[Least] = []
    for number in range(gangs):
        gang = Gang(traffic, HOSTS[number % len(HOSTS)], number)
        ours = gang.ours()
        found.append(least(ours, gang.request))
        for name, domains in {"ours": ours, **{name: peer(gang) for name, peer in PEERS.items()}}.items():
            sent = gang.sent(domains)
            ratios[name].append(ratio(sent, found[-1].sent))
            sums[name] += sent
            spreads[name] += gang.spread(domains) / gangs
        done.append(traffic)
    return {
        "ratio_to_exact_max": round(max(ratios["ours"]), 3),
        "ratio_to_exact_mean": round(sum(ratios["ours"]) / gangs, 3),
        "at_exact": sum(1 for each in ratios["ours"] if each == 1.0),
        "unproven": sum(1 for each in found if not each.is_proven),
        "optimal": sum(1 for each in found if each.is_optimal),
        "ratio_to_best_peer": round(sums["ours"] / min(sums[name] for name in PEERS), 3),
        "peers": {name: round(sums[name] / sums["ours"], 2) for name in PEERS},
        "peers_to_exact_max": {name: round(max(each for each in ratios[name] if isfinite(each)), 3) for name in PEERS},
        "spread_max": {name: round(value, 2) for name, value in spreads.items()},
    }


def seconds_of_1200_hosts() -> dict[str, float]:
    found = {}
    for traffic, said in TRAFFIC.items():
        random = Random(1)  # noqa: S311 - the same hosts every time
        racks = [(f"p{rack % 3}", f"p{rack % 3}/r{rack:03}") for rack in range(97)]
        domains = [random.choice(racks) for _ in range(1200)]
        names = in_fabric_order([(each, f"{number:05}", 8) for number, each in enumerate(domains)])
        expert = 5 if traffic == "experts" else 1
        request = wanted(gpus=9600, parallelism={"tensor": 8, "pipeline": 8, "expert": expert, "traffic": said})
        before = time.process_time()
        ordered([domains[int(name)] for name in names], request)
        found[traffic] = round(time.process_time() - before, 3)
    return found


def report(by_traffic: Mapping[str, Row], seconds: float, gangs: int) -> None:
    """The section of docs/benchmarks.md."""
    bars = Bars(
        "What closeknit's order sends beside others",
        across="bytes across domains by closeknit's order, as part of the other's; below 1 closeknit sends less",
        down="traffic",
    )
    rows: list[tuple[object, ...]] = []
    for traffic, found in by_traffic.items():
        bars.add(traffic, {who: 1 / ratio for who, ratio in found["peers"].items()})
        ours = {"peers": 1.0, "peers_to_exact_max": found["ratio_to_exact_max"]}
        for who in ("ours", *PEERS):
            figures = [float(found[figure].get(who, own)) for figure, own in ours.items()]
            name = "closeknit" if who == "ours" else who.replace("_", " ")
            rows.append((traffic, name, *figures, float(found["spread_max"][who])))
    proofs = [(traffic, *(found[figure] for figure in PROVEN)) for traffic, found in by_traffic.items()]
    of_proofs = ("traffic", "worst to the least", "mean", "gangs that send the least", "unproven", "optimum reached")
    text = (
        f"{gangs} gangs of 8 to 64 hosts for each traffic, on racks and NVLink domains that chance left free. What "
        "every order sends at least is proven by counting over the stages of each (tests/bench/rank_stages.py). A "
        f"mixed-integer program bounds it from below, too, and reaches its optimum of most in {SECONDS:g} s each. "
        f"1,200 hosts are ordered in {seconds:.1f} s of CPU time.\n\n{table(of_proofs, proofs)}\n\nWhat each order "
        "sends, and how many racks the widest data-parallel group spans, on average:"
    )
    rows_table = table(
        ("traffic", "order", "sends beside ours", "worst to the least", "racks of the widest group"), rows
    )
    write("rankmap", "Which host gets which ranks", f"{text}\n\n{rows_table}", bars)


def main(gangs: int, *, is_written: bool) -> None:
    """Prints the figures; with --write also into docs/benchmarks.md."""
    done: list[str] = []
    with Progress(sys.stderr) as progress, progress.of("rank orders", lambda: f"{len(done)} of {gangs * len(TRAFFIC)}"):
        by_traffic = {traffic: measured(traffic, gangs, done) for traffic in TRAFFIC}
    seconds = seconds_of_1200_hosts()
    figures = {
        **{
            figure: {traffic: found[figure] for traffic, found in by_traffic.items()}
            for figure in ("ratio_to_exact_max", "ratio_to_best_peer")
        },
        "seconds_1200_hosts": max(seconds.values()),
        "seconds_1200_hosts_by_traffic": seconds,
        "by_traffic": by_traffic,
    }
    if is_written:
        report(by_traffic, max(seconds.values()), gangs)
    print(json.dumps(figures))


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word != "--write"]
    main(numbers[0] if numbers else GANGS, is_written="--write" in sys.argv[1:])
