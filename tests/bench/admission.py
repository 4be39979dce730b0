"""`make bench-admission`: what a gang of 512 whole nodes takes from apply to the last bound Pod, beside a bare client.

    PYTHONPATH=tests uv run python -m bench.admission [--pods N] [--nodes N] [--rounds N]

640 kwok nodes of eight GPUs in racks and blocks on the real control plane, the operator as its own process with the
chart's rights, the audit log on; once by device plugin and once with DRA. The two take turns, every round in a
namespace of its own and from rest: the bare client (bench.bare_client) creates the very Pods that the operator made in
a round before the first, with the operator stopped and the policy lifted that keeps their labels to the operator.

`…_seconds` is from the arrival of the TrainingJob, or of the bare client's first Pod, to the answer to the last
binding, both by the audit log. `…_cpu_seconds` are the CPU seconds of the API server, etcd, the controller manager, the
scheduler, kwok and the client or operator, from then until all Pods run and the job's status says so. Medians of all
rounds. `operator_writes_per_gang` are the operator's writes beside the creation of Pods and claims, dry runs included;
`patches_per_pod` those of Pods that were there. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.bare_client import Body
from bench.gpu_fleet import GPUS, write_fleet
from closeknit.api.names import API_VERSION
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.booking.booking import booking
from closeknit.cluster.cluster import build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.api import Api, JsonObject, Resource
from closeknit.kube.errors import NotFound
from closeknit.kube.http.http_api import HttpApi
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.claim import claim
from closeknit.launch.manifests.pod_manifest import pods
from closeknit.lifecycle.attempt.launched_gang import gang
from harness.audit import AuditEvent, audit_event
from harness.chart import prefix_lifted
from harness.install import free_port, install, start_operator
from harness.local_cluster import LocalCluster, is_running
from harness.operator_bed import USER

NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
CONFIG_MAPS = Resource("", "v1", "configmaps")
JOB, CLIENT = "gang", "bare"
KINDS = ("nodes", "nodetopologies", "clustertopologies", "resourceslices")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
POLL_S = 0.05
TIMEOUT_S = 120.0
REST_CORES = 0.4  # of everything: 640 nodes renew a Lease every ten seconds each
REST_S = 60.0


@dataclass
class Round:
    """One gang, from its arrival to its running."""

    namespace: str
    events: list[AuditEvent] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)
    """Of each program."""
    job: JsonObject = field(default_factory=dict)
    """As it runs; not of the bare client's."""

    @property
    def wall_s(self) -> float:
        begun = min(event.received for event in self.events if event.resource in {"pods", "trainingjobs"})
        return (max(event.at for event in self.events if event.subresource == "binding") - begun).total_seconds()

    def of(self, user: str) -> list[AuditEvent]:
        return [event for event in self.events if event.user == user]


class Trail:
    """The audit log as it grows, read so that it costs next to nothing while a gang starts."""

    def __init__(self, path: Path, namespace: str) -> None:
        self._file = path.open("rb")
        self._file.seek(0, os.SEEK_END)
        self._rest = b""
        self._in_namespace = f'"requestURI":"/api[^"]*/namespaces/{namespace}[/"]'.encode()
        pod = f'"requestURI":"/api/v1/namespaces/{namespace}/pods/[^/"]+'
        self._binding = re.compile(f'{pod}/binding[?"]'.encode())
        self._running = re.compile(f'{pod}/status[^"]*","verb":"patch","user":{{"username":"kwok"'.encode())
        self._status = re.compile(rb'/trainingjobs/[^/"]+/status[?"]')
        self._lines: list[bytes] = []
        self.bound = 0
        self.running = 0
        self.state = ""

    def read(self) -> None:
        """Goes on to the end."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            head = line[:1000]
            if not re.search(self._in_namespace, head):
                continue
            self._lines.append(line)
            self.bound += bool(self._binding.search(head))
            self.running += bool(self._running.search(head))
            if self._status.search(head):
                self.state = json.loads(line)["requestObject"]["status"].get("state", "")

    def events(self) -> list[AuditEvent]:
        """All writes in the namespace so far."""
        return [audit_event(json.loads(line)) for line in self._lines]


@dataclass(frozen=True)
class Bench:
    """One control plane with its fleet, and what is measured on it."""

    cluster: LocalCluster
    api: Api
    pods: int
    dra: bool

    async def rounds(self, count: int) -> tuple[list[Round], list[Round]]:
        """Of the bare client and of the operator, in turn."""
        bare: list[Round] = []
        ours: list[Round] = []
        port = free_port()
        first = await self.ours("first", port)
        objects = [each for kind in KINDS for each in self.cluster.get(kind)["items"]]
        file = self.cluster.directory / "bodies.json"
        file.write_text(json.dumps(bodies(objects, first.job)))
        client = self._client(file)
        for number in range(count):
            with prefix_lifted(self.cluster):  # its Pods bear the labels that are the operator's alone
                bare.append(await self._bare(f"bare-{number}", client))
            ours.append(await self.ours(f"ours-{number}", port))
            assert nodes_of(bare[-1]) == nodes_of(ours[-1]) == nodes_of(first)
            print(
                f"{'DRA' if self.dra else 'device plugin'}, round {number}: "
                f"bare {bare[-1].wall_s:.2f} s, CPU {shown(bare[-1].cpu_s)}; "
                f"ours {ours[-1].wall_s:.2f} s, CPU {shown(ours[-1].cpu_s)}",
                file=sys.stderr,
            )
        client.terminate()
        client.wait()
        return bare, ours

    def _client(self, file: Path) -> "subprocess.Popen[str]":
        binding = f"--serviceaccount=default:{CLIENT}"
        self.cluster.kubectl("create", "serviceaccount", CLIENT, "--namespace=default")
        self.cluster.kubectl("create", "clusterrolebinding", CLIENT, "--clusterrole=cluster-admin", binding)
        kubeconfig = self.cluster.service_account_kubeconfig("default", CLIENT)
        command = [sys.executable, "-m", "bench.bare_client", str(kubeconfig), str(file)]
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None and client.stdout.readline() == "ready\n"
        return client

    async def _bare(self, namespace: str, client: "subprocess.Popen[str]") -> Round:
        await self._namespace(namespace)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": JOB}}
        made = await self.api.create(CONFIG_MAPS, body, namespace=namespace)
        uid = made["metadata"]["uid"]
        # As a TrainingJob would own them, so that the garbage collector has as much to do.
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": JOB, "uid": uid, "controller": True}
        words, answers = client.stdin, client.stdout
        assert words is not None and answers is not None  # both are PIPE

        async def begin() -> None:
            words.write(json.dumps({"namespace": namespace, "owner": owner}) + "\n")
            words.flush()

        done = await self._measured(namespace, client.pid, begin, lambda _: True)
        assert answers.readline() == "done\n"
        await self._clean(CONFIG_MAPS, namespace, uid)
        return done

    async def ours(self, namespace: str, port: int) -> Round:
        """One gang of an operator that is started for it, in a namespace of its own."""
        await self._namespace(namespace)
        pid = start_operator(self.cluster, port)
        job = {
            "apiVersion": API_VERSION,
            "kind": "TrainingJob",
            "metadata": {"name": JOB},
            "spec": {
                "gpus": GPUS * self.pods,
                "gpu": {"binding": "DRA"} if self.dra else {},
                "template": {"spec": {"containers": [{"name": "trainer", "image": "registry.example/train:1"}]}},
            },
        }
        uid = ""

        async def begin() -> None:
            nonlocal uid
            made = await self.api.create(TRAINING_JOBS, job, namespace=namespace)
            uid = made["metadata"]["uid"]

        done = await self._measured(namespace, pid, begin, lambda trail: trail.state == "Running")
        done.job = await self.api.get(TRAINING_JOBS, JOB, namespace=namespace)
        await self._clean(TRAINING_JOBS, namespace, uid)
        os.kill(pid, signal.SIGTERM)
        self.cluster.wait_for(lambda: not is_running(pid), "the operator to end")
        return done

    async def _measured(
        self, namespace: str, pid: int, begin: Callable[[], Awaitable[None]], is_over: Callable[[Trail], bool]
    ) -> Round:
        """What happens from `begin` until all Pods run."""
        pids = {**self.cluster.pids, "client": pid}
        await self._rest(pids)
        trail = Trail(self.cluster.audit_log, namespace)
        before = cpu_s(pids)
        await begin()

        async def runs() -> bool:
            trail.read()
            return trail.running >= self.pods and is_over(trail)

        await until(runs, "the gang to run")
        after = cpu_s(pids)

        async def is_told() -> bool:
            trail.read()
            return trail.bound >= self.pods

        await asyncio.sleep(1)  # the audit log is a moment late, and on a busy machine some seconds
        await until(is_told, "the audit log to tell of all bindings")
        assert trail.bound == self.pods
        return Round(namespace, trail.events(), {name: after[name] - before[name] for name in pids})

    async def _namespace(self, name: str) -> None:
        await self.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

        async def is_there() -> bool:
            try:
                return bool(await self.api.get(SERVICE_ACCOUNTS, "default", namespace=name))
            except NotFound:
                return False

        await until(is_there, "the default ServiceAccount")

    async def _clean(self, resource: Resource, namespace: str, uid: str) -> None:
        """Deletes the owner of the Pods and waits until none is left."""
        await self.api.delete(resource, JOB, uid=uid, namespace=namespace)

        async def is_empty() -> bool:
            return not (await self.api.list(PODS, namespace=namespace, limit=1)).items

        await until(is_empty, "the Pods to be gone")

    async def _rest(self, pids: dict[str, int]) -> None:
        """Waits until nobody works any more on what was before."""
        deadline = time.monotonic() + REST_S
        while True:
            before = sum(cpu_s(pids).values())
            await asyncio.sleep(1)
            if sum(cpu_s(pids).values()) - before < REST_CORES:
                return
            assert time.monotonic() < deadline, "the control plane does not come to rest"


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {TIMEOUT_S:g} s for {what}")
        await asyncio.sleep(POLL_S)


def cpu_s(pids: dict[str, int]) -> dict[str, float]:
    """CPU seconds that each process has used so far, all its threads together, in steps of 10 ms."""
    return {name: _cpu_s(Path(f"/proc/{pid}/stat").read_text()) for name, pid in pids.items()}


def _cpu_s(stat: str) -> float:
    user, system = stat.rpartition(")")[2].split()[11:13]  # proc(5): after the name that may hold anything
    return (int(user) + int(system)) / TICKS_PER_S


def bodies(objects: Iterable[JsonObject], job: JsonObject) -> list[tuple[Body, Body | None]]:
    """The Pods of a booked job and their claims, as the operator makes them."""
    read = (from_document(each) for each in (*objects, job))
    seen = build(each for each in read if each is not None)
    (booked,) = seen.jobs.values()
    held = booking(booked)
    assert held is not None
    made = gang(booked, held, seen, ipc_lock=True)
    assert isinstance(made, Gang)
    claims = [claim(made, member.index) if member.binding is Binding.DRA else None for member in made.members]
    return list(zip(pods(made, range(len(made.members))), claims, strict=True))


def nodes_of(gang: Round) -> set[str]:
    """The nodes that a gang's Pods were bound to."""
    return {event.body["target"]["name"] for event in gang.events if event.subresource == "binding"}


def writes(gang: Round) -> Counter[str]:
    """What the operator wrote, dry runs apart."""
    return Counter(
        f"{'dry-run ' if event.dry_run else ''}{event.verb} {event.resource}{'/' if event.subresource else ''}"
        f"{event.subresource}"
        for event in gang.of(USER)
    )


def shown(programs: dict[str, float]) -> str:
    return f"{sum(programs.values()):.2f} s ({', '.join(f'{name} {used:.2f}' for name, used in programs.items())})"


def median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 2)


async def measured(pods: int, nodes: int, rounds: int, *, dra: bool) -> tuple[list[Round], list[Round]]:
    """Rounds of the bare client and of the operator on a control plane of their own."""
    with LocalCluster() as cluster:
        install(cluster)
        async with await HttpApi.connect(kubeconfig=cluster.kubeconfig, user_agent="closeknit-bench/1") as api:
            await write_fleet(api, nodes, dra=dra)
            return await Bench(cluster, api, pods, dra).rounds(rounds)


def figures(
    pods: int, nodes: int, plugin: tuple[list[Round], list[Round]], dra: tuple[list[Round], list[Round]]
) -> Any:
    (bare, ours), (bare_dra, ours_dra) = plugin, dra
    own = [gang.cpu_s["client"] for gang in ours]
    made = writes(ours[-1])
    patches = sum(count for write, count in made.items() if re.match("(patch|update) pods", write))
    creations = made["create pods"] + made["create resourceclaims"]
    return {
        "bench": "admission",
        "pods": pods,
        "nodes": nodes,
        "rounds": len(ours),
        "gang_512_seconds": median(gang.wall_s for gang in ours),
        "floor_seconds": median(gang.wall_s for gang in bare),
        "gang_512_dra_seconds": median(gang.wall_s for gang in ours_dra),
        "floor_dra_seconds": median(gang.wall_s for gang in bare_dra),
        "gang_512_cpu_seconds": median(sum(gang.cpu_s.values()) for gang in ours),
        "floor_cpu_seconds": median(sum(gang.cpu_s.values()) for gang in bare),
        "gang_512_dra_cpu_seconds": median(sum(gang.cpu_s.values()) for gang in ours_dra),
        "floor_dra_cpu_seconds": median(sum(gang.cpu_s.values()) for gang in bare_dra),
        "own_cpu_ms_per_pod": median(each / pods * 1e3 for each in own),
        "client_cpu_ms_per_pod": median(gang.cpu_s["client"] / pods * 1e3 for gang in bare),
        "operator_writes_per_gang": made.total() - creations - patches,
        "patches_per_pod": patches / pods,
        "operator_writes": dict(sorted(made.items())),
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=512)
    parser.add_argument("--nodes", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=5)
    size = parser.parse_args()
    found = [asyncio.run(measured(size.pods, size.nodes, size.rounds, dra=dra)) for dra in (False, True)]
    print(json.dumps(figures(size.pods, size.nodes, *found)))


if __name__ == "__main__":
    main()
