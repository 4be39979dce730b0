"""Milliseconds that one batch of changes takes on a large Cluster, as one JSON line.

    PYTHONPATH=tests uv run python -m bench.cluster_value [NODES]

Nodes with eight GPUs (HGX H200), 42 labels and a NodeTopology each, and four Pods with a GPU on every node.
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.kinds import KINDS, Change, ClusterObject, Stream, change
from closeknit.cluster.objects import Node
from closeknit.cluster.pod import Pod
from closeknit.cluster.report import AgentReport
from scenarios.machines import hgx_h200
from scenarios.manifests import Manifest, booked, cluster_topology, node, node_topology, pod, training_job

ROUNDS = 30
DECODE = {kind.stream: kind.decode for kind in KINDS}
BEAT = "2026-11-21T12:00:00Z"


def decoded(source: Stream, manifest: Manifest) -> ClusterObject:
    value = DECODE[source](json.dumps(manifest).encode())
    assert value is not None
    return value


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def fleet(count: int) -> list[ClusterObject]:
    labels = {f"feature.example.com/label-{number}": f"value-{number}" for number in range(40)}
    objects = [decoded(Stream.CLUSTER_TOPOLOGIES, cluster_topology("block", "rack"))]
    for number in range(count):
        name = f"gpu-{number:05d}"
        places = {"net.example/block": f"b{number // 256}", "net.example/rack": f"r{number // 16}"}
        objects.append(decoded(Stream.NODES, node(name, labels={**labels, **places}, allocatable={"rdma/hca": "63"})))
        topology = {**node_topology(name, heartbeatTime=BEAT), "spec": hgx_h200(name).wire()}
        objects.append(decoded(Stream.NODE_TOPOLOGIES, topology))
        objects += [decoded(Stream.OTHER_PODS, pod(f"{name}-{place}", node=name)) for place in range(4)]
    return objects


def booking(nodes: int, first: int) -> Change:
    shares = ((f"gpu-{number:05d}", range(8)) for number in range(first, first + nodes))
    return change(decoded(Stream.TRAINING_JOBS, training_job(placement=booked(*shares))))


def median_ms(cluster: Cluster, batch: Callable[[int], Sequence[Change]]) -> float:
    """Of batches that follow each other."""
    taken = []
    for turn in range(ROUNDS):
        changes = batch(turn)
        start = time.perf_counter()
        cluster = cluster.after(changes)
        taken.append((time.perf_counter() - start) * 1e3)
    return round(statistics.median(taken), 2)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    before_mb = resident_mb()
    start = time.perf_counter()
    objects = fleet(count)
    decode_s = time.perf_counter() - start
    start = time.perf_counter()
    cluster = build(objects)
    build_s = time.perf_counter() - start
    now = cluster.newest_heartbeat
    assert now is not None
    cluster = cluster.at(now)
    gc.collect()
    gc.freeze()  # as a long-lived process does once it has read the world
    nodes = [value for value in objects if isinstance(value, Node)]
    reports = [value for value in objects if isinstance(value, AgentReport)]
    pods = [value for value in objects if isinstance(value, Pod)]
    beats = [replace(entry, heartbeat=now + timedelta(seconds=9)) for entry in reports[:ROUNDS]]
    gangs = {size: [booking(size, first) for first in range(ROUNDS)] for size in (2, 64, 512) if size + ROUNDS < count}
    print(
        json.dumps(
            {
                "nodes": len(nodes),
                "pods": len(pods),
                "decode_s": round(decode_s, 2),
                "build_s": round(build_s, 2),
                "resident_mb_over_imports": round(resident_mb() - before_mb),
                "pod_changed_ms": median_ms(
                    cluster, lambda turn: [change(msgspec.structs.replace(pods[turn], priority=turn + 1))]
                ),
                "pod_added_ms": median_ms(
                    cluster, lambda turn: [change(decoded(Stream.OTHER_PODS, pod(f"new-{turn}", node="gpu-00000")))]
                ),
                "heartbeat_ms": median_ms(cluster, lambda turn: [change(beats[turn])]),
                "node_changed_ms": median_ms(
                    cluster, lambda turn: [change(msgspec.structs.replace(nodes[turn], not_ready="it rests"))]
                ),
                "node_gone_ms": median_ms(cluster, lambda turn: [Change(Stream.NODES, ("", nodes[turn].name), None)]),
                **{
                    f"booking_{size}_nodes_ms": median_ms(cluster, lambda turn, gang=gang: [gang[turn]])  # type: ignore[misc]
                    for size, gang in gangs.items()
                },
            }
        )
    )


if __name__ == "__main__":
    main()
