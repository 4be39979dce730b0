"""The controllers that look after dead nodes: Ready becomes Unknown, taints drive Pods out, Pods of no node go."""

import random
from collections.abc import Mapping

from closeknit.cluster.objects.silence import NODE_LEASES
from closeknit.controller.writes.resources import PODS
from closeknit.kube.api import JsonObject, Key, Resource
from faults.kinds import NODES
from lives.api_server import FINISHED, PATIENCE_S, ApiServer, key_of
from lives.hand import Hand
from lives.kubelet import Kubelet
from lives.scheduler import with_condition

MONITOR_GRACE_S = 50.0  # node-monitor-grace-period, until a silent node is Unknown
PERIOD_S = 5.0
RENEW_S = 10.0
LEASES = Resource("coordination.k8s.io", "v1", "leases")
ORPHAN_S = 40.0  # quarantine of the Pod garbage collector, for Pods of a node that is not there
UNREACHABLE = "node.kubernetes.io/unreachable"


class NodeController(Hand):
    """Node lifecycle, taint eviction and Pod garbage collection in one."""

    name = "nodes"
    reads = (NODES,)

    def __init__(self, server: ApiServer, chance: random.Random, kubelets: Mapping[str, Kubelet]) -> None:
        super().__init__(server, chance)
        self._kubelets = kubelets
        self._tainted_at: dict[str, float] = {}
        self._missing_at: dict[str, float] = {}
        self._renewed_at: dict[str, float] = {}
        self.wake_at(PERIOD_S)

    def step(self) -> None:
        """Looks at every node."""
        self.wake_at(self.time + PERIOD_S)
        for key in list(self.server.view(NODES)):
            kubelet = self._kubelets[key.name]
            if kubelet.is_alive:
                self._renew(key.name)
                self._tell(key, "True", ())
                self._tainted_at.pop(key.name, None)
            elif self.time - kubelet.died_at >= MONITOR_GRACE_S:
                self._tell(key, "Unknown", ("NoSchedule", "NoExecute"))
                if self.time - self._tainted_at.setdefault(key.name, self.time) >= PATIENCE_S:
                    self._evict(key.name)
        self._remove_orphans()

    def _renew(self, node: str) -> None:
        """Every kubelet renews its Lease every 10 s, whoever hears it."""
        key = Key(NODE_LEASES, node)
        if key not in self.server.view(LEASES):
            body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": node}, "spec": {}}
            self.server.create(LEASES, body, namespace=NODE_LEASES)
        if self.time - self._renewed_at.get(node, -RENEW_S) >= RENEW_S:
            self._renewed_at[node] = self.time
            self.server.amend(LEASES, key, spec={"renewTime": f"{self.time:.6f}"})

    def _tell(self, key: Key, ready: str, effects: tuple[str, ...]) -> None:
        node = self.server.view(NODES)[key]
        reason = "KubeletReady" if ready == "True" else "NodeStatusUnknown"
        conditions = [
            {**each, "status": ready, "reason": reason} if each["type"] == "Ready" else each
            for each in node["status"]["conditions"]
        ]
        taints = [each for each in node["spec"].get("taints") or () if each["key"] != UNREACHABLE]
        taints += [{"key": UNREACHABLE, "effect": effect} for effect in effects]
        if taints != (node["spec"].get("taints") or []) or conditions != node["status"]["conditions"]:
            status = {**node["status"], "conditions": conditions}
            self.server.amend(NODES, key, spec={**node["spec"], "taints": taints}, status=status)

    def _evict(self, node: str) -> None:
        for pod in self._pods_on(node):
            if "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] in FINISHED:
                continue
            self._disrupt(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
            self.server.delete(PODS, key_of(pod))

    def _remove_orphans(self) -> None:
        nodes = {key.name for key in self.server.view(NODES)}
        gone = {pod["spec"].get("nodeName") or "" for pod in self.server.view(PODS).values()} - nodes - {""}
        for node in sorted(gone):
            if self.time - self._missing_at.setdefault(node, self.time) < ORPHAN_S:
                continue
            for pod in self._pods_on(node):
                if pod["status"]["phase"] not in FINISHED:
                    self._disrupt(pod, "DeletionByPodGC", "PodGC: node no longer exists", phase="Failed")
                self.server.remove(PODS, key_of(pod))
        for node in self._missing_at.keys() - gone:
            del self._missing_at[node]

    def _disrupt(self, pod: JsonObject, reason: str, words: str, **status: str) -> None:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": words}
        self.server.amend(PODS, key_of(pod), status=with_condition({**pod["status"], **status}, condition))

    def _pods_on(self, node: str) -> list[JsonObject]:
        return [pod for pod in self.server.view(PODS).values() if pod["spec"].get("nodeName") == node]
