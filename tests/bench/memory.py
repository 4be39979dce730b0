"""`make bench-memory`: what the operator's process weighs, by nodes, Pods and jobs that wait: docs/sizing.md, and one
JSON line.

    PYTHONPATH=tests uv run python -m bench.memory [--write] [NODES PODS JOBS]

The operator runs as its own process, with its own command, over HTTP. The API server is a stand-in in this process,
which serves lists in pages, watches and writes of statuses, so that 5,000 nodes are there within seconds and nothing
else of a cluster takes part. Objects are as large as real ones: Nodes with 50 images, NodeTopologies of an HGX H200,
Pods with 40 variables, of which one on each node holds six GPUs, jobs of dozens of shapes with 4 KB of template, no two
alike. All but a few jobs, which share the GPUs that are left, wait and are told why. Then the operator is ended and
starts again, as after an update: of both runs the most that was resident counts (VmHWM), and of the second what stays
(VmRSS), when it has run for SETTLED_S.
"""

import asyncio
import json
import platform
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import aiohttp
from aiohttp import web

from bench.chart import DOCS, table
from closeknit.agent.discovery.topology import discover
from closeknit.api.names import API_VERSION, GROUP, VERSION
from closeknit.api.nodetopology import Method
from closeknit.cluster.store.watched_kinds import KINDS
from faults.http_server import write_kubeconfig
from harness.install import free_port
from harness.machines import node_object, readings

PAGE = DOCS / "sizing.md"
BEGIN, END = "<!-- memory: make bench-memory -->", "<!-- end of memory -->"
POINTS = (
    (10, 100, 10),
    (100, 1_000, 100),
    (1_000, 10_000, 1_000),
    (1_000, 10_000, 5_000),
    (5_000, 20_000, 1_000),
    (5_000, 50_000, 5_000),
    (10_000, 100_000, 5_000),
)
PROFILE = "hgx-h200"
IMAGES = 50  # the kubelet's nodeStatusMaxImages
VARIABLES = 40
TEAMS = 20
HELD_GPUS = 6  # of eight on each node: few jobs fit
SETTLED_S = 45.0  # after all was read, and every job was told why it waits
BOOKMARK_S = 20.0
SHAPES = tuple(
    {"gpus": gpus, "topology": topology, "parallelism": {"tensor": tensor}}
    for gpus in (8, 16, 24, 32, 64, 128, 256, 512)
    for tensor in (1, 4, 8)
    for topology in ({}, {"nvlink": "Required"}, {"gpusPerNode": 8})
)
Object = dict[str, Any]
OURS = f"/apis/{GROUP}/{VERSION}"
JOBS = f"{OURS}/trainingjobs"
# What kopf asks for before it watches the one kind that it does.
DISCOVERY: dict[str, Object] = {
    "/api": {"versions": ["v1"]},
    "/api/v1": {"resources": []},
    "/apis": {
        "groups": [{"name": GROUP, "versions": [{"version": VERSION}], "preferredVersion": {"version": VERSION}}]
    },
    OURS: {
        "resources": [
            {
                "name": "clustertopologies",
                "kind": "ClusterTopology",
                "singularName": "clustertopology",
                "namespaced": False,
                "verbs": ["list", "watch", "patch"],
            }
        ]
    },
}


@dataclass
class Served:
    """One resource: its objects as JSON, and whoever watches it."""

    objects: dict[str, bytes] = field(default_factory=dict)
    watchers: list[asyncio.Queue[bytes]] = field(default_factory=list)


class ApiServer:
    """As much of an API server as the operator asks for."""

    def __init__(self, served: dict[str, Served]) -> None:
        self.told: set[str] = set()
        self._version = 1_000
        self._served = served

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path, served = request.path, self._served.get(request.path)
        if request.method == "PUT" and path.endswith("/status"):
            return await self._stated(request)
        if request.method == "GET" and path in DISCOVERY:
            return web.json_response(DISCOVERY[path])
        if request.method == "GET" and request.query.get("watch") == "true":
            return await self._watch(request, served or Served())
        if request.method == "GET":
            return self._page(request, served or Served())
        self._version += 1  # an Event
        return web.json_response({"metadata": {"name": "x", "resourceVersion": str(self._version)}}, status=201)

    def _page(self, request: web.Request, served: Served) -> web.Response:
        items = [] if _is_of_children(request) else list(served.objects.values())
        begin, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or len(items))
        end = begin + limit
        meta = {"resourceVersion": str(self._version), "continue": str(end) if end < len(items) else ""}
        body = b'{"metadata":%b,"items":[%b]}' % (json.dumps(meta).encode(), b",".join(items[begin:end]))
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, served: Served) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if not _is_of_children(request):
            served.watchers.append(queue)
        try:
            while True:
                await response.write(await self._next(queue) + b"\n")
        except ConnectionResetError:  # nobody reads any more
            return response
        finally:
            if queue in served.watchers:
                served.watchers.remove(queue)

    async def _next(self, queue: asyncio.Queue[bytes]) -> bytes:
        try:
            async with asyncio.timeout(BOOKMARK_S):
                return await queue.get()
        except TimeoutError:
            self._version += 1
            return encoded({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}})

    async def _stated(self, request: web.Request) -> web.Response:
        """An object of ours is given a status, and whoever watches hears of it."""
        *above, plural, name, _ = map(unquote, request.path.split("/"))
        key = f"{above[-1]}/{name}" if "namespaces" in above else name
        served = self._served[f"{OURS}/{plural}"]
        self._version += 1
        stored = json.loads(served.objects[key]) | {"status": (await request.json())["status"]}
        stored["metadata"]["resourceVersion"] = str(self._version)
        served.objects[key] = encoded(stored)
        for watcher in served.watchers:
            watcher.put_nowait(b'{"type":"MODIFIED","object":%b}' % served.objects[key])
        if plural == "trainingjobs":
            self.told.add(key)
        return web.json_response({"metadata": stored["metadata"]})


def _is_of_children(request: web.Request) -> bool:
    """Whether it is about Pods of jobs, of which there are none."""
    return request.query.get("labelSelector") == f"{GROUP}/job"


def encoded(value: Object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def cluster(nodes: int, pods: int, jobs: int) -> dict[str, Served]:
    """All objects, by the path of their resource."""
    spec = discover(readings("gpu-0", PROFILE), Method.SIMULATED).spec.wire()
    served = {f"/apis/{kind.group}/{kind.version}/{kind.plural}": Served() for kind in KINDS if kind.group}
    served |= {f"/api/{kind.version}/{kind.plural}": Served() for kind in KINDS if not kind.group}
    names = [f"gpu-{number:05d}" for number in range(nodes)]
    served["/api/v1/nodes"].objects = {name: encoded(node(name, number)) for number, name in enumerate(names)}
    served[f"{OURS}/nodetopologies"].objects = {name: encoded(machine(name, spec)) for name in names}
    served["/api/v1/pods"].objects = {
        str(number): encoded(pod(number, names[number % nodes], HELD_GPUS if number < nodes else 0))
        for number in range(pods)
    }
    served[JOBS].objects = {f"team-{number % TEAMS}/wait-{number}": encoded(job(number)) for number in range(jobs)}
    levels = {"levels": [{"name": "rack", "nodeLabel": "example.com/rack"}]}
    default = {"apiVersion": API_VERSION, "kind": "ClusterTopology", "metadata": meta("default", 1), "spec": levels}
    served[f"{OURS}/clustertopologies"].objects = {"default": encoded(default)}
    return served


def meta(name: str, number: int) -> Object:
    """As an API server has it, with a word on who manages its fields."""
    fields: Object = {f"f:field-{each}": {} for each in range(30)}
    manager = {"operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}}
    return {
        "name": name,
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "resourceVersion": "900",
        "generation": 1,
        "creationTimestamp": "2026-11-21T09:00:00Z",
        "managedFields": [{"manager": f"m{each}", **manager} for each in range(3)],
    }


def node(name: str, number: int) -> Object:
    made = node_object(name, PROFILE, plugin=True, labels={"example.com/rack": f"r{number // 8:04d}"})
    made["metadata"] = {**meta(name, number), **made["metadata"]}
    made["status"]["images"] = [
        {"names": [f"images.example.com/team/{image:03d}@sha256:{image:064x}"], "sizeBytes": 10**9 + image}
        for image in range(IMAGES)
    ]
    return made


def machine(name: str, spec: Object) -> Object:
    """Its GPUs have names of their own, and all else is that of every other machine."""
    gpus = [{**gpu, "uuid": f"GPU-{name}-{gpu['index']}"} for gpu in spec["gpus"]]
    status = {"heartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    body = {"spec": {**spec, "gpus": gpus}, "status": status}
    return {"apiVersion": API_VERSION, "kind": "NodeTopology", "metadata": meta(name, 1), **body}


def pod(number: int, on: str, gpus: int) -> Object:
    resources = {"cpu": "1", "memory": "16Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    environment = [{"name": f"SETTING_{key}", "value": f"value-{key}"} for key in range(VARIABLES)]
    container = {"name": "main", "image": "main:1", "env": environment, "resources": {"limits": resources}}
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")]
    return {
        "metadata": {**meta(f"pod-{number:06d}", number), "namespace": f"team-{number % TEAMS}"},
        "spec": {"nodeName": on, "containers": [container]},
        "status": {"phase": "Running", "conditions": conditions},
    }


def job(number: int) -> Object:
    environment = [{"name": f"SETTING_{key}", "value": f"of-{number}-{key}"} for key in range(2 * VARIABLES)]
    command = ["torchrun", "train.py", f"--run={number}"]
    container = {"name": "trainer", "image": "train:1", "command": command, "env": environment}
    metadata = {**meta(f"wait-{number}", number), "namespace": f"team-{number % TEAMS}"}
    spec = {**SHAPES[number % len(SHAPES)], "template": {"spec": {"containers": [container]}}}
    return {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True)
class Weight:
    """Of one run, in MB of 1,000,000 bytes, and the seconds until it was ready."""

    most: float
    resident: float
    ready_s: float


@asynccontextmanager
async def operator(server: str, folder: Path) -> AsyncIterator[tuple[int, int]]:
    """The process and its port. Raises RuntimeError where it has ended by itself."""
    port, kubeconfig, log = free_port(), write_kubeconfig(folder, server), folder / "operator.log"
    command = str(Path(sys.executable).parent / "closeknit-operator")
    with log.open("wb") as words:
        process = await asyncio.create_subprocess_exec(
            command, f"--kubeconfig={kubeconfig}", f"--metrics-address=127.0.0.1:{port}", stdout=words, stderr=words
        )
    try:
        yield process.pid, port
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()
        else:
            print(log.read_text()[-2000:], file=sys.stderr)


async def weigh(api: ApiServer, server: str, folder: Path, jobs: int) -> Weight:
    """One run, until all jobs were told and some time has passed."""
    began = time.monotonic()
    async with operator(server, folder) as (pid, port):
        while not await is_ready(port):  # noqa: ASYNC110 -- of another process
            await asyncio.sleep(0.2)
        ready_s = time.monotonic() - began
        while len(api.told) < jobs:  # noqa: ASYNC110 -- as above
            await asyncio.sleep(0.2)
        await asyncio.sleep(SETTLED_S)
        return Weight(megabytes(pid, "VmHWM"), megabytes(pid, "VmRSS"), ready_s)


async def is_ready(port: int) -> bool:
    try:
        async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def megabytes(pid: int, what: str) -> float:
    """What /proc says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (words,) = (line.split() for line in lines if line.startswith(f"{what}:"))
    return int(words[1]) * 1024 / 1e6


async def measured(nodes: int, pods: int, jobs: int) -> dict[str, Any]:
    """One point of the table."""
    api = ApiServer(cluster(nodes, pods, jobs))
    application = web.Application(client_max_size=2**24)
    application.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            first = await weigh(api, server, Path(folder), jobs)
            again = await weigh(api, server, Path(folder), jobs)
    finally:
        await runner.cleanup()
    return {
        "nodes": nodes,
        "pods": pods,
        "jobs": jobs,
        "most_mb": round(max(first.most, again.most)),
        "resident_mb": round(again.resident),
        "ready_s": round(again.ready_s, 1),
    }


def write(points: list[dict[str, Any]]) -> None:
    """The table of the docs."""
    header = ("nodes", "Pods", "jobs that wait", "most, MB", "at rest, MB")
    rows = [[f"{point[name]:,}" for name in ("nodes", "pods", "jobs", "most_mb", "resident_mb")] for point in points]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    versions = ", ".join(f"{each} {metadata.version(each)}" for each in ("aiohttp", "kopf", "msgspec", "pydantic"))
    words = f"Measured on {datetime.now(UTC):%Y-%m-%d} with Python {platform.python_version()}, {versions}."
    PAGE.write_text(f"{before}{BEGIN}\n{words}\n\n{table(header, rows)}\n{END}{rest.partition(END)[2]}")


def main(arguments: list[str]) -> None:
    """Prints the figures."""
    numbers = [int(each) for each in arguments if each.isdigit()]
    points = []
    for nodes, pods, jobs in [numbers] if numbers else POINTS:
        points.append(asyncio.run(measured(nodes, pods, jobs)))
        print(json.dumps(points[-1]), file=sys.stderr)
    if "--write" in arguments:
        write(points)
    print(json.dumps({"bench": "memory", "points": points}))


if __name__ == "__main__":
    main(sys.argv[1:])
