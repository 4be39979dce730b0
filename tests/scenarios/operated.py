"""The very loop and writes of the operator over the in-memory API server, and the hands of everybody else."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from closeknit.api.objects import TrainingJob
from closeknit.controller.leader.fenced_api import FencedApi
from closeknit.controller.leader.leadership import Elected, Election, Leadership, Unopposed
from closeknit.controller.loop import SchedulingLoop
from closeknit.controller.metrics import Metrics
from closeknit.controller.watched_cluster import WatchedCluster
from closeknit.controller.worker import Worker
from closeknit.controller.writes.resources import PODS, RESOURCE_CLAIMS, TRAINING_JOBS
from closeknit.controller.writes.write_slots import WriteSlots
from closeknit.controller.writes.writes import Writes
from closeknit.kube.api import JsonObject, Key, Resource
from faults import virtual_time
from faults.fault import Call, Fault
from faults.kinds import NODES
from faults.memory_api import MemoryApi
from faults.store import Store
from harness.inline_worker import InlineWorker

T = TypeVar("T")

CLUSTER_TOPOLOGIES = Resource("closeknit.dev", "v1alpha1", "clustertopologies", namespaced=False)
NODE_TOPOLOGIES = Resource("closeknit.dev", "v1alpha1", "nodetopologies", namespaced=False)
RESOURCES = {
    "ClusterTopology": CLUSTER_TOPOLOGIES,
    "Node": NODES,
    "NodeTopology": NODE_TOPOLOGIES,
    "Pod": PODS,
    "PriorityClass": Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False),
    "ResourceSlice": Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False),
    "TrainingJob": TRAINING_JOBS,
}
MOST_DECISIONS = 2_500
"""In a minute. One that is always to be made again at once is made 3,000 times where it takes no time."""
BEGIN = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


class MortalApi(MemoryApi):
    """Answers nobody any more after so many writes: the process that held it is dead."""

    def __init__(self, store: Store, faults: Iterable[Fault] = (), *, dies_after: int | None = None) -> None:
        super().__init__(store, faults)
        self.dead = asyncio.Event()
        self.written = 0
        self._dies_after = dies_after

    async def _do(self, call: Call, act: Callable[[], Any]) -> Any:
        def mortal() -> Any:
            before = self.store.rv
            result = act()
            if self.store.rv > before:
                self.written += 1
                if self.written == self._dies_after:
                    self.dead.set()
            return result

        if self.dead.is_set():
            await asyncio.Event().wait()
        result = await super()._do(call, mortal)
        if self.dead.is_set():
            await asyncio.Event().wait()
        return result


class _Watched(WatchedCluster):
    decided: Callable[[TrainingJob], None]

    def assume(self, job: TrainingJob) -> None:
        self.decided(job)
        super().assume(job)


class Operator:
    """One process of the operator, without its web server: the only one, or with an election one of several. `loop`
    decides; on a virtual clock, inline."""

    def __init__(
        self,
        api: MortalApi,
        worker: Worker | None = None,
        election: Election | None = None,
        sidecar_image: str = "",
        decided: Callable[[TrainingJob], None] = lambda _: None,
    ) -> None:
        """`decided` hears of each job that is booked, before that is written and once it is."""
        self._api = api
        self.metrics = Metrics()
        self.watched = _Watched(api, self._wake, sidecar_image)
        self.watched.decided = decided
        self._minute = self._cycles_before = 0
        self.leadership: Leadership = Unopposed(self.watched)
        if election is not None:
            clock = asyncio.get_running_loop().time
            self.leadership = Elected(api, self.watched, election, lambda _: api.dead.set(), clock)
        self.fence = FencedApi(api, lambda: self.leadership.holds)
        writes = Writes(WriteSlots(self.fence, self.metrics.count_write), self._now, "test")
        decides = worker or InlineWorker()
        self.loop = SchedulingLoop(
            self.watched, self.leadership, writes, self.metrics, self._now, decides, jitter=lambda: 0.5
        )

    async def run(self) -> None:
        """Until its API answers nobody any more, or a part of it fails."""
        parts = [asyncio.create_task(each.run()) for each in (self.watched, self.leadership, self.loop)]
        died = asyncio.create_task(self._api.dead.wait())
        try:
            done, _ = await asyncio.wait([*parts, died], return_when=asyncio.FIRST_COMPLETED)
            for part in done - {died}:
                part.result()
        finally:
            for task in (*parts, died):
                task.cancel()
            await self.loop.stop()
            await asyncio.gather(*parts, died, return_exceptions=True)

    def _wake(self) -> None:
        self.loop.wake()

    def _now(self) -> datetime:
        minute, cycles = int(asyncio.get_running_loop().time() // 60), self.loop.cycles
        if minute != self._minute:
            self._minute, self._cycles_before = minute, cycles
        assert cycles - self._cycles_before < MOST_DECISIONS, f"{MOST_DECISIONS} decisions in minute {minute}"
        return BEGIN + timedelta(seconds=asyncio.get_running_loop().time())


async def operate(api: MortalApi) -> None:
    """One process, until its end."""
    await Operator(api).run()


def add(store: Store, manifest: dict[str, Any]) -> JsonObject:
    """Somebody makes an object, and whoever tells its status does so."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in {"uid", "generation"}}
    resource, namespace = RESOURCES[manifest["kind"]], metadata.get("namespace", "")
    made = store.create(resource, {**manifest, "metadata": metadata}, namespace=namespace)
    if manifest.get("status") and manifest["status"] != made.get("status"):
        set_status(store, resource, Key(namespace, metadata["name"]), **manifest["status"])
    return made


def set_status(store: Store, resource: Resource, key: Key, **status: Any) -> None:
    """Somebody says something of an object."""
    stored = store.get(resource, key)
    stored["status"] = {**stored.get("status", {}), **status}
    store.update(resource, key, stored, subresource="status")


def end_job(store: Store, job: Key) -> None:
    """A job is deleted, and the garbage collector takes its Pods."""
    store.delete(TRAINING_JOBS, job)
    for pod in store.objects(PODS):
        if pod["metadata"]["labels"]["closeknit.dev/job"] == job.name:
            store.delete(PODS, Key(job.namespace, pod["metadata"]["name"]))


def lived(operator: Operator, story: Callable[[], Awaitable[T]]) -> T:
    """What a story gives while the operator runs, on a virtual clock."""

    async def told() -> T:
        running = asyncio.create_task(operator.run())
        try:
            return await story()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return virtual_time.run(told())


def run_pods(store: Store) -> None:
    """The scheduler and the kubelets, all at once: whatever has its claim runs where it is pinned."""
    claims = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in store.objects(RESOURCE_CLAIMS)}
    for pod in store.objects(PODS):
        if pod.get("status", {}).get("phase") != "Pending":
            continue
        target = pinned(pod)
        key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if pod["spec"].get("resourceClaims"):
            if key not in claims:
                continue
            uuids = pod["metadata"]["annotations"]["closeknit.dev/gpus"].split(",")
            results = [
                {"driver": "gpu.nvidia.com", "pool": target, "device": f"gpu-{uuid.rpartition('-')[2]}"}
                for uuid in uuids
            ]
            set_status(store, RESOURCE_CLAIMS, Key(*key), allocation={"devices": {"results": results}})
        stored = store.get(PODS, key)
        stored["spec"]["nodeName"] = target
        store.update(PODS, key, stored)
        set_status(store, PODS, key, phase="Running")


def pinned(pod: JsonObject) -> str:
    """The node that a Pod of ours is for."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
