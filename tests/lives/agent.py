"""The node agents: a sign of life every few minutes, and what the kubelet gave to whom."""

import random
from collections.abc import Mapping

from closeknit.kube.api import Key
from lives.api_server import ApiServer
from lives.hand import Hand
from lives.kubelet import Kubelet
from scenarios.manifests import allocation
from scenarios.operated import NODE_TOPOLOGIES

BEAT_S = 300.0


class Agents(Hand):
    """All of them; one on a dead node is silent."""

    name = "agents"
    pause_s = (0.5, 6.0)

    def __init__(self, server: ApiServer, chance: random.Random, kubelets: Mapping[str, Kubelet]) -> None:
        super().__init__(server, chance)
        self._kubelets = kubelets
        self._beaten_at = {node: chance.uniform(-BEAT_S, 0) for node in kubelets}
        self.wake_at(0)

    def step(self) -> None:
        """Everybody reports."""
        for node, kubelet in self._kubelets.items():
            key = Key("", node)
            topology = self.server.view(NODE_TOPOLOGIES).get(key)
            if topology is None or not kubelet.is_alive:
                continue
            beat = topology.get("status", {}).get("heartbeatTime")
            if beat is None or self.time - self._beaten_at[node] >= BEAT_S:
                self._beaten_at[node] = self.time
                beat = self.server.stamp()
            given = []
            for uid, run in sorted(kubelet.runs.items()):
                metadata = run.pod["metadata"]
                if devices := [each for each in run.devices if each.startswith("GPU-")]:
                    given.append(allocation(metadata["namespace"], metadata["name"], devices, uid))
            status = {**topology.get("status", {}), "heartbeatTime": beat, "allocations": given}
            self.server.amend(NODE_TOPOLOGIES, key, status=status)
        self.wake_at(self.time + self.chance.uniform(*self.pause_s) + 5)
