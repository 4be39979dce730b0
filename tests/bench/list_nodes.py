"""Seconds and memory that a first list takes: 2,000 Nodes of 5 KB through HttpApi and the reflector, as one JSON line.

    PYTHONPATH=tests uv run python -m bench.list_nodes

The API server is a real one on this machine; the decoder keeps a few fields, as the operator's does.
"""

import asyncio
import json
import resource
import time
from collections.abc import Sequence

import msgspec

from closeknit.kube.api import JsonObject, Resource
from closeknit.kube.http.http_api import HttpApi
from closeknit.kube.reflector import Event, Reflector
from harness.local_cluster import LocalCluster

NODES = Resource("", "v1", "nodes", namespaced=False)
COUNT = 2_000
ROUNDS = 9


class Metadata(msgspec.Struct, frozen=True):
    name: str
    uid: str
    labels: dict[str, str] = {}


class Spec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class Status(msgspec.Struct, frozen=True):
    allocatable: dict[str, str] = {}


class Node(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: Spec
    status: Status


def node(index: int) -> JsonObject:
    """A Node as a GPU machine's kubelet publishes it: 28 images and 30 labels make most of its 5 KB."""
    labels = {f"feature.example.com/label-{number}": f"value-{number}" for number in range(30)}
    images = [{"names": [f"images.example.com/team/image-{n}:v1"], "sizeBytes": 1_000_000 + n} for n in range(28)]
    capacity = {"cpu": "192", "memory": "2113409Mi", "nvidia.com/gpu": "8", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"gpu-{index:05}", "labels": labels},
        "status": {"capacity": capacity, "allocatable": capacity, "images": images},
    }


async def fill(api: HttpApi) -> None:
    """Creates the Nodes, 16 writes in flight."""
    slots = asyncio.Semaphore(16)

    async def create(index: int) -> None:
        async with slots:
            await api.create(NODES, node(index))

    async with asyncio.TaskGroup() as group:
        for index in range(COUNT):
            group.create_task(create(index))


async def first_list(api: HttpApi) -> tuple[float, float]:
    """Wall and CPU seconds from the start of a reflector to its being synced."""

    def take(_: Sequence[Event[Node]]) -> None: ...

    reflector = Reflector(api, NODES, msgspec.json.Decoder(Node).decode, take)
    wall, cpu = time.perf_counter(), time.process_time()
    running = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    taken = time.perf_counter() - wall, time.process_time() - cpu
    assert len(reflector.objects) == COUNT, reflector.last_error
    running.cancel()
    return taken


async def measure(cluster: LocalCluster) -> dict[str, float]:
    async with await HttpApi.connect(kubeconfig=cluster.kubeconfig, user_agent="closeknit-bench/1") as api:
        await fill(api)
        rounds = [await first_list(api) for _ in range(ROUNDS)]
        (best_s, _), (wall_s, cpu_s) = min(rounds), sorted(rounds)[ROUNDS // 2]
        peak_rss_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        page = await api.list(NODES, limit=COUNT)
        return {
            "nodes": COUNT,
            "megabytes": round(sum(map(len, page.items)) / 1e6, 1),
            "best_wall_s": round(best_s, 3),
            "wall_s": round(wall_s, 3),
            "cpu_s": round(cpu_s, 3),
            "peak_rss_mib": peak_rss_kib // 1024,
        }


def main() -> None:
    """Prints the median of nine lists, and the best."""
    with LocalCluster() as cluster:
        print(json.dumps(asyncio.run(measure(cluster))))


if __name__ == "__main__":
    main()
