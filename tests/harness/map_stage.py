"""A web map of a made-up cluster: for tests of the page, its pictures and its costs, and to look at.

PYTHONPATH=tests uv run python -m harness.map_stage [eight|thousand]
"""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.controller.mapserver.feed import MapFeed
from closeknit.controller.mapserver.pages import MapPages
from closeknit.controller.mapserver.viewers import Viewers
from closeknit.lifecycle.status.conditions import timestamp
from closeknit.placement.fragmentation import fragmentation
from closeknit.placement.gang.cache import Tables
from closeknit.runtime.access import Access
from closeknit.runtime.address import Address
from closeknit.runtime.web import WebServer
from closeknit.scheduling.memo.advice import Advisor
from closeknit.scheduling.memo.memory import Memory
from harness.inline_worker import InlineWorker
from scenarios.machines import MACHINES
from scenarios.manifests import (
    Manifest,
    booked,
    cluster_topology,
    node,
    node_topology,
    pod,
    resource_slice,
    training_job,
)
from scenarios.story import NOW, Story

RACK, BLOCK = "net.example/rack", "net.example/block"


class Vitals:
    """A process that is well."""

    def faults(self) -> list[str]:
        return []

    def gaps(self) -> list[str]:
        return []


def machine(name: str, kind: str, rack: str, **status: Any) -> list[Manifest]:
    """A node of a known machine, whose GPUs claims bind."""
    block = f"b{1 + int(rack[1:]) // 8}"
    spec = MACHINES[kind](name).wire()
    return [
        node(name, gpus=None, labels={RACK: rack, BLOCK: block}, allocatable={"rdma/hca": "63"}),
        {**node_topology(name, **status), "spec": spec},
        resource_slice(name, range(len(spec["gpus"]))),
    ]


def eight() -> Story:
    """Eight nodes of three kinds, with a job that has lost a node, and two that wait."""
    story = Story(
        cluster_topology("block", "rack", fabric={"levelBandwidthGBps": {"block": 25, "rack": 50}}),
        *machine("gpu-01", "hgx-h200", "r1"),
        *machine("gpu-02", "hgx-h200", "r1"),
        *machine("gpu-03", "hgx-h200", "r1"),
        *machine("gpu-04", "hgx-h200", "r2"),
        *machine("gpu-05", "hgx-h200", "r2", gpus=[{"index": 5, "state": "Unhealthy", "reasons": ["XID79"]}]),
        *machine("gpu-06", "dgx-1v", "r2"),
        *machine("gpu-07", "dgx-1v-link-down", "r3"),
        *machine("gpu-08", "pairs8", "r3"),
    )
    story.now = NOW - timedelta(hours=3)
    h200 = {"gpu": {"products": ["NVIDIA-H200"]}}
    _submit(
        story,
        "llama-70b",
        "team-llm",
        gpus=16,
        topology={"gpusPerNode": 8},
        parallelism={"tensor": 8},
        expectedDuration="6h",
        **h200,
    )
    _submit(story, "mixtral", "team-llm", gpus=16, topology={"gpusPerNode": 8}, parallelism={"expert": 8}, **h200)
    _submit(story, "asr-small", "team-speech", gpus=4)
    _submit(story, "vision-sweep-17", "team-vision", gpus=2)
    story.pass_time(2 * 3600)
    _submit(
        story, "llama-405b", "team-llm", gpus=32, topology={"gpusPerNode": 8, "fabric": {"required": "rack"}}, **h200
    )
    _submit(story, "diffusion", "team-vision", gpus=8, topology={"nvlink": "Required"}, **h200)
    _submit(story, "llama-13b", "team-llm", gpus=8, topology={"nvlink": "Required"}, **h200)
    story.pass_time(25 * 60)
    placement = story.status("mixtral", "team-llm").placement
    if placement is not None:
        story.lose_node(placement.nodes[1].name)
        for each in story.pods():
            if story.pod(each)["spec"].get("nodeName") == placement.nodes[1].name:
                story.mark_deleted(each)
    story.settle()
    story.pass_time(150)
    story.settle()
    _advise(story)
    return story


def _advise(story: Story) -> None:
    """Has jobs that wait told what would help, as the operator does once it has nothing else to do."""
    decision, advisor = story.decide(), Advisor()
    while advisor.step(decision.schedule, story.tables, story.now):
        pass
    for plan in story.decide(Memory(schedule=decision.schedule, advice=advisor.told)).plans:
        story.write(plan)


def _submit(story: Story, name: str, namespace: str, **spec: Any) -> None:
    made = training_job(name, namespace=namespace, spec=spec)
    made["metadata"]["creationTimestamp"] = timestamp(story.now)
    story.add(made)
    story.pass_time(40)
    story.settle()
    story.pass_time(35)
    story.run_all()
    story.settle()


def thousand(nodes: int = 1000, jobs: int = 200) -> Cluster:
    """So many nodes in racks of sixteen, and jobs of 1 to 64 GPUs, of which every tenth waits."""
    documents: list[Manifest] = [cluster_topology("block", "rack")]
    for number in range(nodes):
        kind = "dgx-1v" if number // 128 % 4 == 3 else "hgx-h200"
        status = (
            {"gpus": [{"index": number % 8, "state": "Unhealthy", "reasons": ["XID79"]}]} if number % 97 == 5 else {}
        )
        documents += machine(f"gpu-{number:04d}", kind, f"r{number // 16 + 1}", **status)
        if number % 111 == 7:
            documents[-3]["spec"]["unschedulable"] = True
        if number % 53 == 11:
            documents.append(pod(f"notebook-{number}", node=f"gpu-{number:04d}"))
    documents += _jobs(nodes, jobs)
    found = (from_document(each) for each in documents)
    return build([each for each in found if each is not None]).at(NOW)


def _jobs(nodes: int, jobs: int) -> list[Manifest]:
    sizes = (8, 64, 16, 4, 32, 8, 128, 2, 24, 1)
    made, free = [], [(f"gpu-{number:04d}", 0) for number in range(nodes) if number % 111 != 7 and number % 97 != 5]
    for number in range(jobs):
        gpus, name = sizes[number % len(sizes)], f"{('llm', 'vision', 'speech', 'sim')[number % 4]}-{number:03d}"
        job = training_job(name, namespace=f"team-{number % 12:02d}", spec={"gpus": gpus})
        created = NOW - timedelta(minutes=7 * (number + 1))
        job["metadata"]["creationTimestamp"] = timestamp(created)
        if number % 10 == 9 or not free:
            words = f"{gpus} GPUs were asked for in one rack; the fullest rack has room for {gpus // 2} of them"
            job["status"] = {
                "state": "Queued",
                "reason": "InsufficientGPUs",
                "message": words,
                "pending": {
                    "reason": "InsufficientGPUs",
                    "message": words,
                    "since": timestamp(created),
                    "nearest": ["with topology.fabric.required left out"],
                    "estimatedStart": timestamp(NOW + timedelta(minutes=9 * (number % 7 + 1))),
                },
            }
        else:
            job["status"] = {**_running(_shares(free, gpus), created, gpus), "state": "Running"}
        made.append(job)
    return made


def _shares(free: list[tuple[str, int]], gpus: int) -> list[tuple[str, Sequence[int]]]:
    shares: list[tuple[str, Sequence[int]]] = []
    while gpus and free:
        name, used = free.pop(0)
        part = min(gpus, 8 - used)
        shares.append((name, range(used, used + part)))
        gpus -= part
        if used + part < 8:
            free.insert(0, (name, used + part))
    return shares


def _running(shares: list[tuple[str, Sequence[int]]], created: Any, gpus: int) -> Manifest:
    began = created + timedelta(minutes=3)
    placement = booked(*shares, binding="DRA")
    ideal = 360.0 if gpus <= 8 else 48.0
    placement |= {"predictedBusBandwidthGBps": ideal * (0.8 if len(shares) > 3 else 1), "idealBusBandwidthGBps": ideal}
    placement["levels"] = {"block": 1, "rack": 1 + len(shares) // 16, "host": len(shares)}
    return {
        "placement": placement,
        "attempt": 1,
        "startTime": timestamp(began),
        "conditions": [
            {"type": kind, "status": "True", "reason": "Because", "lastTransitionTime": timestamp(began)}
            for kind in ("Placed", "Running")
        ],
    }


class Stage:
    """What is shown; another cluster may take its place."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.feed: MapFeed

    @classmethod
    def of(cls, story: Story) -> "Stage":
        """The cluster of a story."""
        return cls(story.cluster.at(story.now))

    @asynccontextmanager
    async def served(self, access: Access | None = None, port: int = 0, now: Any = None) -> AsyncIterator[int]:
        """The port of localhost where the map is."""
        free = fragmentation(self.cluster, Tables()) if len(self.cluster.nodes) < 100 else None
        clock = now or (lambda: self.cluster.now or NOW)
        self.feed = MapFeed(lambda: self.cluster, lambda: free, InlineWorker().run, clock, "0.0")
        viewers = Viewers(access, lambda: sorted({key.namespace for key in self.cluster.jobs}))
        pages = MapPages(self.feed, viewers).handlers()
        web = WebServer(Address("127.0.0.1", port), Vitals(), CollectorRegistry(), access, pages=pages)
        await web.start()
        run = asyncio.create_task(self.feed.run())
        try:
            yield web.port
        finally:
            run.cancel()
            await web.stop()
            await asyncio.gather(run, return_exceptions=True)

    @contextmanager
    def in_a_thread(self, access: Access | None = None) -> Iterator[int]:
        """The same for who has no event loop."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        server = self.served(access)
        try:
            yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _show(which: str) -> None:
    stage = Stage.of(eight()) if which == "eight" else Stage(thousand())
    async with stage.served(port=8090) as port:
        print(f"http://localhost:{port}/map/")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_show(sys.argv[1] if len(sys.argv) > 1 else "eight"))
