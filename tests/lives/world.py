"""A cluster in which everybody does what he does, and the operator on a virtual clock: one life, made of its seed."""

import asyncio
import logging
import random
import traceback
from datetime import datetime, timedelta
from typing import Any

from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.cluster.pods.pod import Pod
from closeknit.cluster.store.watched_kinds import Stream
from closeknit.kube.api import JsonObject, Key
from lives.agent import Agents
from lives.api_server import RESOURCE_QUOTAS, ApiServer
from lives.chronicle import Chronicle
from lives.garbage import ClaimController, GarbageCollector
from lives.growing import FEWEST, Growers
from lives.invariants import Invariants
from lives.kubelet import Kubelet
from lives.node_controller import NodeController
from lives.people import People
from lives.policy import Policy
from lives.quota import NAMESPACE, QuotaAdmission, QuotaController, limit_range
from lives.scheduler import Scheduler
from lives.sidecars import Sidecars
from lives.training import Training
from lives.weather import Connection, Weather, stormy
from scenarios.machines import INTEL_2023, spec
from scenarios.manifests import cluster_topology, node, node_topology, priority_class, resource_slice
from scenarios.operated import BEGIN, Operator, add

WEATHER_S = (10.0, 90.0)
"""How long a weather lasts."""
SIDECAR_IMAGE = "registry.example/agent:1"
RESTARTS_IN_PLACE = ["RestartAllContainersOnContainerExits"]  # what a kubelet of 1.36 declares


class World:
    """Made within a running event loop, whose clock is the world's."""

    def __init__(self, seed: int, *, grows: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        chance = random.Random(seed)  # noqa: S311 - to be repeated
        # What the operator leaves to chance, pauses for example, is to be repeated, too.
        random.seed(seed)
        self._chance = chance
        self.server = ApiServer(self._now)
        self.chronicle = Chronicle(self.server, self._loop.time)
        self.training = Training(self._part())
        self.invariants = Invariants(self.server, self.training, self.note, self._is_heard_bound)
        self.weather = Weather(self._part())
        self.size = chance.choice([2, 4, 4, 8])
        """GPUs of each node."""
        self.policy = Policy()
        self.limit_range = limit_range(seed)
        self.kubelets: dict[str, Kubelet] = {}
        self.sidecars = Sidecars(self.server, self._part(), self.invariants.broken.append)
        self.operator: Operator | None = None
        self._connection: Connection | None = None
        self._build(grows=grows)
        self.people = (Growers if grows else People)(self, self._part())

    @property
    def time(self) -> float:
        """Seconds since it began."""
        return self._loop.time()

    def note(self, actor: str, words: str) -> None:
        """Takes down what no object shows."""
        self.chronicle.note(actor, words)

    def kill(self, words: str) -> None:
        """Ends the operator's process, wherever it is."""
        if self._connection is not None:
            self._connection.die(words)

    def end_streams(self) -> None:
        """Ends all watches."""
        if self._connection is not None:
            self._connection.end_streams()

    async def operate(self) -> None:
        """One process of the operator after the other, for ever. Raises what one of them ends by."""
        chance = self._part()
        while True:
            self._connection = Connection(self.server, self.weather, self.note)
            self.operator = Operator(
                self._connection, sidecar_image=SIDECAR_IMAGE, decided=self.invariants.take_decision
            )
            await self.operator.run()
            await asyncio.sleep(chance.choice([0.05, 1.0, 20.0]))

    async def change_weather(self) -> None:
        """Storm and sunshine by turns, for ever."""
        chance = self._part()
        while True:
            await asyncio.sleep(chance.uniform(*WEATHER_S))
            is_sunny = chance.random() < 0.4
            self.weather.climate = type(self.weather.climate)() if is_sunny else stormy(chance)
            self.note("weather", str(self.weather.climate))

    def faults(self) -> list[str]:
        """What went wrong so far that never may."""
        if self.server.mistakes:
            raise self.server.mistakes[0]
        return [*self.invariants.broken, *self.weather.haste]

    def take(self, record: logging.LogRecord) -> None:
        """What the operator reports as a mistake of its own is one."""
        if record.exc_info and record.exc_info[1]:
            self.invariants.broken.append("".join(traceback.format_exception(record.exc_info[1])))

    def _is_heard_bound(self, pod: JsonObject) -> bool:
        """Whether the operator has been told that a Pod is bound. While there is none, the next one will be."""
        if self.operator is None:
            return bool(pod["spec"].get("nodeName"))
        name = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
        heard = self.operator.watched.reflectors[Stream.CHILD_PODS].objects.get(name)
        return isinstance(heard, Pod) and heard.uid == pod["metadata"]["uid"] and bool(heard.node)

    def _build(self, *, grows: bool) -> None:
        chance, server = self._chance, self.server
        kind = chance.choice(["plugin", "DRA", "mixed"])
        # Where machines have a bandwidth, a job that could be torn waits for one of them.
        is_joined = chance.random() < 0.5
        restarts_in_place = chance.random() < 0.75 or grows
        add(server, cluster_topology("block", "rack"))
        nodes = max(chance.randint(2, 5), FEWEST if grows else 0)
        for number in range(1, nodes + 1):
            name = f"gpu-{number}"
            is_plugin = kind == "plugin" or (kind == "mixed" and number % 2 == 0)
            labels = {"test/gpus": str(self.size), **_place(number)}
            topology = node_topology(name, count=self.size)
            if is_joined:
                topology["spec"] = _joined(name, self.size).wire()
            manifests: list[dict[str, Any]] = [
                node(name, gpus=self.size if is_plugin else None, labels=labels),
                topology,
            ]
            if restarts_in_place:
                manifests[0]["status"]["declaredFeatures"] = RESTARTS_IN_PLACE
            if not is_plugin:
                manifests.append(resource_slice(name, range(self.size)))
            for manifest in manifests:
                add(server, manifest)
            devices = [f"GPU-{name}-{index}" for index in range(self.size)] if is_plugin else []
            kubelet = self.kubelets[name] = Kubelet(server, self._part(), name, devices, self.training, self.sidecars)
            kubelet.refusals = chance.choice([0.0, 0.0, 0.0, 0.1])
        add(server, priority_class("high", 100))
        add(server, priority_class("low", -10))
        server.admission += [self.policy, QuotaAdmission(server)]
        Scheduler(server, self._part())
        NodeController(server, self._part(), self.kubelets)
        GarbageCollector(server, self._part())
        ClaimController(server, self._part())
        QuotaController(server, self._part())
        Agents(server, self._part(), self.kubelets)
        if chance.random() < 0.5:
            hard = {"pods": "6", "requests.nvidia.com/gpu": str(2 * self.size)}
            if self.limit_range is not None:
                hard |= self.limit_range.hard(pods=6)
            body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "fair"}, "spec": {"hard": hard}}
            server.create(RESOURCE_QUOTAS, body, namespace=NAMESPACE)
        if self.limit_range is not None:
            server.defaults[NAMESPACE] = self.limit_range.apply

    def _part(self) -> random.Random:
        """A chance of its own for each part, so that one part's choices do not move another's."""
        return random.Random(self._chance.getrandbits(64))  # noqa: S311 - to be repeated

    def _now(self) -> datetime:
        return BEGIN + timedelta(seconds=self._loop.time())


def _place(number: int) -> dict[str, str]:
    """Two nodes in each block, each its own rack: most gangs are too large for a rack, some for a block."""
    return {"net.example/block": f"b{number // 2}", "net.example/rack": f"r{number}"}


def _joined(name: str, count: int) -> NodeTopologySpec:
    """So many H200 behind NVSwitches, on a network that is not described."""
    return spec(
        count=count,
        product="NVIDIA-H200",
        capability="9.0",
        memory_gib=141,
        switch_links=18,
        pcie=5,
        cpu=INTEL_2023,
        tag=name,
    )
