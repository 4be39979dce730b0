"""What one event costs a large Cluster, and what the Cluster weighs: one JSON line.

    PYTHONPATH=tests uv run python -m bench.cluster_value [NODES ...]

Nodes with eight GPUs (HGX H200), 42 labels and a NodeTopology each, and four Pods with a GPU on every node. Every size
is measured in a process of its own. `event_ms.<kind>` is CPU time of one batch of one change as `p50` and `p99`, the
forest that placement reads included; `rss_mb` is resident memory with all that is imported, `cluster_mb` without.
"""

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.objects.node_objects import Node
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.watched_kinds import KINDS, ClusterObject, ObjectChange, Stream, change
from scenarios.machines import hgx_h200
from scenarios.manifests import (
    Manifest,
    booked,
    cluster_topology,
    condition,
    node,
    node_topology,
    pod,
    resource_claim,
    resource_slice,
    training_job,
)

SIZES = (5_000, 40_000)
ROUNDS = 300
AT_ONCE = 1_000  # nodes read per batch, as a paged list gives them
DECODE = {kind.stream: kind.decode for kind in KINDS}
BEAT = "2026-11-21T12:00:00Z"
RACK = "net.example/rack"


def decoded(stream: Stream, manifest: Manifest) -> ClusterObject:
    value = DECODE[stream](json.dumps(manifest).encode())
    assert value is not None
    return value


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def objects_of(number: int) -> list[ClusterObject]:
    """A node, its NodeTopology and its Pods."""
    name = f"gpu-{number:05d}"
    labels = {f"feature.example.com/label-{label}": f"value-{label}" for label in range(40)}
    labels |= {"net.example/block": f"b{number // 256}", RACK: f"r{number // 16}"}
    topology = {**node_topology(name, heartbeatTime=BEAT), "spec": hgx_h200(name).wire()}
    return [
        decoded(Stream.NODES, node(name, labels=labels, allocatable={"rdma/hca": "63"})),
        decoded(Stream.NODE_TOPOLOGIES, topology),
        *(decoded(Stream.OTHER_PODS, pod(f"{name}-{place}", node=name)) for place in range(4)),
    ]


def fleet(count: int) -> Iterator[list[ClusterObject]]:
    """The cluster's objects, some nodes at a time."""
    yield [decoded(Stream.CLUSTER_TOPOLOGIES, cluster_topology("block", "rack"))]
    numbers = iter(range(count))
    while some := list(islice(numbers, AT_ONCE)):
        yield [value for number in some for value in objects_of(number)]


def gang(nodes: int, first: int, **status: Any) -> ObjectChange:
    shares = ((f"gpu-{number:05d}", range(8)) for number in range(first, first + nodes))
    return change(decoded(Stream.TRAINING_JOBS, training_job(placement=booked(*shares), **status)))


def touched_names(count: int) -> list[str]:
    """The nodes that the events speak of, one per turn."""
    return [f"gpu-{(7 * turn) % count:05d}" for turn in range(ROUNDS)]


def events(cluster: Cluster, count: int) -> dict[str, Callable[[int], ObjectChange]]:
    """One change of each kind, of another object at every turn."""
    names = touched_names(count)
    objects = {name: objects_of(int(name.removeprefix("gpu-"))) for name in names}
    nodes = {name: value for name, (value, *_) in objects.items() if isinstance(value, Node)}
    reports = {name: value for name, (_, value, *_) in objects.items() if isinstance(value, AgentReport)}
    pods = {name: value for name, (*_, value) in objects.items() if isinstance(value, Pod)}
    heard = cluster.newest_heartbeat(datetime.now(UTC))
    assert heard is not None
    beat = heard + timedelta(minutes=5)

    def labelled(turn: int, **labels: str) -> ObjectChange:
        value = nodes[names[turn]]
        return change(msgspec.structs.replace(value, labels={**value.labels, **labels}))

    return {
        "pod_changed": lambda turn: change(msgspec.structs.replace(pods[names[turn]], priority=turn + 1)),
        "pod_added": lambda turn: change(msgspec.structs.replace(pods[names[turn]], name=f"new-{turn}", uid="new")),
        "pod_gone": lambda turn: ObjectChange(Stream.OTHER_PODS, pods[names[turn]].key, None),
        "claim": lambda turn: change(decoded(Stream.RESOURCE_CLAIMS, resource_claim(f"x-{turn}", (names[turn], 0)))),
        "slice": lambda turn: change(decoded(Stream.RESOURCE_SLICES, resource_slice(names[turn], generation=2))),
        "heartbeat": lambda turn: change(replace(reports[names[turn]], heartbeat=beat)),
        "gpu_unhealthy": lambda turn: change(replace(reports[names[turn]], unhealthy={turn % 8: "XID79"})),
        "node_changed": lambda turn: change(msgspec.structs.replace(nodes[names[turn]], not_ready="it rests")),
        "label": lambda turn: labelled(turn, team=f"team-{turn}"),
        "label_of_a_level": lambda turn: labelled(turn, **{RACK: f"r{(turn * 31) % 500}"}),
        "topology_gone": lambda turn: ObjectChange(Stream.NODE_TOPOLOGIES, ("", names[turn]), None),
        "topology_added": lambda turn: change(reports[names[turn]]),
        "node_gone": lambda turn: ObjectChange(Stream.NODES, ("", names[turn]), None),
        "node_added": lambda turn: change(nodes[names[turn]]),
        "booking_1_node": lambda turn: gang(1, turn),
        "booking_2_nodes": lambda turn: gang(2, turn),
        "booking_64_nodes": lambda turn: gang(64, turn),
        "status_of_a_gang_of_512": lambda turn: gang(512, 0, conditions=[condition("Running", reason=f"r{turn}")]),
    }


def spread(taken_ms: list[float]) -> dict[str, float]:
    return {
        "p50": round(statistics.median(taken_ms), 3),
        "p99": round(statistics.quantiles(taken_ms, n=100, method="inclusive")[98], 3),
    }


def measured(count: int) -> dict[str, Any]:
    before_mb = resident_mb()
    cluster = Cluster.empty()
    read_s = 0.0
    for objects in fleet(count):
        start = time.process_time()
        cluster = cluster.after(map(change, objects))
        read_s += time.process_time() - start
    slices = (change(decoded(Stream.RESOURCE_SLICES, resource_slice(name))) for name in touched_names(count))
    cluster = cluster.after(slices)  # so that a claim means something there
    now = cluster.newest_heartbeat(datetime.now(UTC))
    assert now is not None
    cluster = cluster.at(now)
    del objects
    gc.collect()
    after_mb = resident_mb()
    kinds = events(cluster, count)
    gc.freeze()  # as a long-lived process does once it has read the world
    event_ms = {}
    follower = cluster
    for kind, one in kinds.items():
        if kind not in {"topology_added", "node_added"}:  # these come again after they went
            follower = cluster
        taken_ms = []
        for turn in range(ROUNDS):
            batch = [one(turn)]
            start = time.process_time()
            follower = follower.after(batch)
            taken_ms.append((time.process_time() - start) * 1e3)
        event_ms[kind] = spread(taken_ms)
    return {
        "read_s": round(read_s, 2),
        "rss_mb": round(after_mb),
        "cluster_mb": round(after_mb - before_mb),
        "event_ms": event_ms,
    }


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or list(SIZES)
    if len(sizes) == 1:
        print(json.dumps({"nodes": {str(sizes[0]): measured(sizes[0])}}))
        return
    found: dict[str, Any] = {}
    for size in sizes:
        command = [sys.executable, "-m", "bench.cluster_value", str(size)]
        found |= json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["nodes"]
    print(json.dumps({"nodes": found}))


if __name__ == "__main__":
    main()
