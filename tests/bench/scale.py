"""CPU time of one decision and of one event on large clusters, and what they weigh, as one JSON line.

    PYTHONPATH=tests uv run python -m bench.scale [NODES …]

Decisions are `place(cluster, request, tables)` whole: the search, the refusal or the placement with ranks, NICs and
bandwidth, and the ideal. Between two decisions what is held of one node changes, where anything is held at all.

What is generated: nodes of eight GPUs in racks of 16 and blocks of 400, with a Node, a NodeTopology and a
ResourceSlice each, and one ResourceClaim for what is held of a node. One object per kind is decoded and then renamed;
uuids and labels are each node's own. Machines are of one kind (HGX H200), or of four (HGX H200, HGX A100, DGX-1V,
eight A40 in pairs) block by block. A cluster is empty, or each GPU is held by a chance of .6 or .9. Shares are equal
(1, 2, 4 … 4,096 GPUs), or cannot be (13, 61, 509).

Tables have learned the machines before anything is measured, as the operator's have when a job comes. Every decision
counts, the first of each size on each cluster included; the worst of those is `first_ms`.
`event_ms` is the worst 99th percentile over the kinds of events, but for a label that moves a node to another rack,
which is `label_ms`. `explanation_ms`, on up to 5,000 nodes, is the slowest refusal with its nearest changes, of ten
kinds of refusals.
`longest_ms` is the longest event of all: of some 600 one meets a collection of Python's youngest generation, 20,000
objects in the operator's setting, whichever kind of event it is that makes the last of them.
`rss_mb` is the whole process at its largest.
"""

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import ceil
from random import Random
from typing import TypeVar

import msgspec

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.objects.dra import ResourceClaim, ResourceSlice
from closeknit.cluster.objects.node_objects import Node
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.watched_kinds import ClusterObject, ObjectChange, change, from_document
from closeknit.controller.interpreter import freeze_heap
from closeknit.machine.graph import Machine
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.suggestions.changes import nearest_changes
from closeknit.placement.values.placement import NoFit, Placement
from scenarios.clusters import wanted
from scenarios.machines import MACHINES
from scenarios.manifests import Manifest, cluster_topology, node, node_topology, pod, resource_slice

COUNTS = (5_000, 40_000)
MIXES = (("hgx-h200", "hgx-a100", "dgx-1v", "pairs8"), ("hgx-h200",))
HELD = (0.0, 0.6, 0.9)
EQUAL = tuple(1 << power for power in range(13))
UNEQUAL = (13, 61, 509)
ROUNDS = {5_000: 6, 40_000: 2}
EVENTS = 100
EXPLAINED = 5_000  # nodes: so many, and no more, can ask for what would make a job fit while somebody waits for it
BEAT = "2026-11-21T12:00:00Z"

V = TypeVar("V", bound=ClusterObject)


def parsed(kind: type[V], manifest: Manifest) -> V:
    value = from_document(manifest)
    assert isinstance(value, kind)
    return value


class Fleet:
    """The objects of one cluster, and the changes that are made to it."""

    def __init__(self, count: int, kinds: Sequence[str], seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - the same clusters every time
        labels = {f"feature.example.com/label-{number}": f"value-{number}" for number in range(40)}
        self._node = parsed(Node, node("x", gpus=None, labels=labels, allocatable={"rdma/hca": "63"}))
        self._slice = parsed(ResourceSlice, resource_slice("x"))
        reports = [
            parsed(AgentReport, {**node_topology("x", heartbeatTime=BEAT), "spec": MACHINES[kind]("x").wire()})
            for kind in kinds
        ]
        self.machines = [report.machine for report in reports if report.machine]
        self.names = [f"gpu-{number:05d}" for number in range(count)]
        self.nodes = [self.node(number, number // 16) for number in range(count)]
        self.reports = [renamed(reports[number // 400 % len(kinds)], name) for number, name in enumerate(self.names)]

    def node(self, number: int, rack: int) -> Node:
        places = {"net.example/block": f"b{number // 400}", "net.example/rack": f"r{rack}"}
        return msgspec.structs.replace(self._node, name=self.names[number], labels={**self._node.labels, **places})

    def slice_of(self, name: str) -> ResourceSlice:
        devices = tuple(
            msgspec.structs.replace(device, uuid=f"GPU-{name}-{index}")
            for index, device in enumerate(self._slice.devices)
        )
        return msgspec.structs.replace(self._slice, name=f"{name}-slice", node=name, pool=name, devices=devices)

    def objects(self) -> Iterator[ClusterObject]:
        yield parsed_topology()
        for name, machine_node, report in zip(self.names, self.nodes, self.reports, strict=True):
            yield from (machine_node, report, self.slice_of(name))

    def claim(self, number: int, held: float) -> ObjectChange:
        """What is held of one node from now on, each GPU by chance."""
        name = self.names[number]
        devices = tuple((name, device.name) for device in self._slice.devices if self.random.random() < held)
        claim = ResourceClaim(namespace="ml", name=f"{name}-gpus", uid=f"uid-{name}", allocated=True, devices=devices)
        made = change(claim)
        return made if devices else replace(made, new=None)

    def claims(self, held: float) -> list[ObjectChange]:
        return [self.claim(number, held) for number in range(len(self.names))] if held else []


def parsed_topology() -> ClusterObject:
    value = from_document(cluster_topology("block", "rack"))
    assert value is not None
    return value


def renamed(report: AgentReport, name: str) -> AgentReport:
    machine = report.machine
    assert machine is not None
    return replace(report, name=name, machine=with_uuids(machine, name))


def with_uuids(machine: Machine, name: str) -> Machine:
    return replace(machine, gpus=tuple(replace(gpu, uuid=f"GPU-{name}-{gpu.index}") for gpu in machine.gpus))


def percentile(values: Sequence[float], part: float) -> float:
    """The least of the values that so large a part of them does not exceed."""
    return sorted(values)[ceil(len(values) * part) - 1]


def cpu_ms(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


class Decisions:
    """What single decisions took, in ms."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.equal: list[float] = []
        self.unequal: list[float] = []

    def measure(self, cluster: Cluster, fleet: Fleet, tables: Tables, held: float, rounds: int) -> None:
        for turn in range(rounds + 1):
            for gpus in (*EQUAL, *UNEQUAL):
                request = wanted(gpus=gpus)
                taken = cpu_ms(lambda: place(cluster, request, tables))  # noqa: B023 - called at once
                (self.equal if gpus in EQUAL else self.unequal).append(taken)
                if turn == 0:
                    self.first.append(taken)
                cluster = cluster.after([fleet.claim(fleet.random.randrange(len(fleet.names)), held)])


def explained(cluster: Cluster, tables: Tables) -> Iterator[float]:
    """What refusals of several kinds take, each with its nearest changes, in ms."""
    free = sum(len(view.free) for view in cluster.nodes.values())
    rack: Manifest = {"fabric": {"required": "rack"}}
    for request in (
        wanted(gpus=free + 8),
        wanted(gpus=free // 16 * 8, topology={"gpusPerNode": 8}),
        wanted(gpus=512, topology=rack),
        wanted(gpus=4096, parallelism={"tensor": 8}, topology={"nvlink": "Required"}),
        wanted(gpus=512, parallelism={"tensor": 8}, topology={"nvlink": "Required", **rack}),
        wanted(gpus=64, gpu={"products": ["no such product"]}),
        wanted(gpus=64, topology={"minBusBandwidthGBps": 1000}),
        wanted(gpus=4096, topology={"minBusBandwidthGBps": 1000}),
        wanted(gpus=16_384, gpu={"products": ["NVIDIA-H200"]}),
        wanted(gpus=free // 2, topology={"nvlink": "Required"}),
    ):
        refused: list[Placement | NoFit] = []
        taken = cpu_ms(lambda: refused.append(place(cluster, request, tables)))  # noqa: B023 - called at once
        if isinstance(refused[0], NoFit):
            yield taken + cpu_ms(lambda: nearest_changes(cluster, request, tables))  # noqa: B023 - called at once


def events(cluster: Cluster, fleet: Fleet, held: float) -> dict[str, list[float]]:
    """What single events took, in ms, by kind; each follows on the one before."""

    def beat(number: int, turn: int) -> ObjectChange:
        report = fleet.reports[number]
        assert report.heartbeat is not None
        return change(replace(report, heartbeat=report.heartbeat + timedelta(seconds=turn)))

    def started(number: int, turn: int) -> ObjectChange:
        return change(parsed(Pod, pod(f"web-{turn}", node=fleet.names[number])))

    def cordoned(number: int, _: int) -> ObjectChange:
        return change(msgspec.structs.replace(fleet.nodes[number], not_ready="it rests"))

    def gone(number: int, _: int) -> ObjectChange:
        return replace(change(fleet.nodes[number]), new=None)

    def moved(number: int, _: int) -> ObjectChange:
        return change(fleet.node(number, number // 16 + 1))

    kinds: dict[str, Callable[[int, int], ObjectChange]] = {
        "heartbeat": beat,
        "pod": started,
        "claim": lambda number, _: fleet.claim(number, held),
        "not_ready": cordoned,
        "gone": gone,
        "label": moved,
    }
    found: dict[str, list[float]] = {}
    for kind, make in kinds.items():
        for turn in range(EVENTS):
            batch = [make(fleet.random.randrange(len(fleet.names)), turn)]
            start = time.process_time()
            cluster = cluster.after(batch)
            found.setdefault(kind, []).append((time.process_time() - start) * 1e3)
    return found


def measured(count: int) -> dict[str, float]:
    decisions = Decisions()
    explanations: list[float] = []
    by_kind: dict[str, list[float]] = {}
    for kinds in MIXES:
        fleet = Fleet(count, kinds, seed=8)
        tables = Tables()
        for machine in fleet.machines:
            tables.learn(machine)
        empty = build(fleet.objects())
        now = empty.newest_heartbeat(datetime.now(UTC))
        assert now is not None
        empty = empty.at(now)
        for held in HELD:
            cluster = empty.after(fleet.claims(held))
            freeze_heap()  # as the operator does once it has read the world
            decisions.measure(cluster, fleet, tables, held, ROUNDS.get(count, 3))
            explanations.extend(explained(cluster, tables) if held and count <= EXPLAINED else ())
        for kind, taken in events(cluster, fleet, held).items():
            by_kind.setdefault(kind, []).extend(taken)
    longest = max(map(max, by_kind.values()))
    label = by_kind.pop("label")
    figures = {
        "p50_ms": percentile(decisions.equal, 0.5),
        "p99_ms": percentile(decisions.equal, 0.99),
        "unequal_p99_ms": percentile(decisions.unequal, 0.99),
        "first_ms": max(decisions.first),
        **({"explanation_ms": max(explanations)} if explanations else {}),
        "event_ms": max(percentile(taken, 0.99) for taken in by_kind.values()),
        "label_ms": percentile(label, 0.99),
        "longest_ms": longest,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    return {name: round(value, 1) for name, value in figures.items()}


def main() -> None:
    counts = [int(word) for word in sys.argv[1:]] or COUNTS
    # Each in a process of its own, whose memory is of this count alone.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as processes:
        print(json.dumps({"nodes": dict(zip(map(str, counts), processes.map(measured, counts), strict=True))}))


if __name__ == "__main__":
    main()
