"""Kubelets that fall silent under a running gang, in seconds: what the operator hears of it, and when.

Kubelets renew their Lease every 10 s, and Kubernetes calls a node not Ready after 50 s. Sidecars hear a rank that runs,
however silent its kubelet is; what they tell of it comes by the kubelet of their own node.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER
from closeknit.cluster.objects.silence import POLL_S, SignsOfLife
from closeknit.cluster.pods.gang_runs import tellers
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node

RENEW_S, JITTER = 10.0, 1.04
NOT_READY_S = 50.0  # node-lifecycle-controller's grace period (1.36)
HEARD_FOR_S = 10.0  # of a rank by node rank 0
PROBE_S = 5.0
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
_TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "train", "command": ["train"]}]}}


@dataclass(frozen=True)
class Outage:
    """A kubelet that gives no sign of life for so long."""

    node: str
    from_s: float
    for_s: float = inf
    ranks_go_on: bool = True
    others_fail_after_s: float = inf
    """When the ranks of other nodes give up on those of this one, and begin again as soon as it does."""


@dataclass
class _Kubelet:
    renewed_s: float
    next_s: float
    heard_ranks: bool | None = None
    """What it last told of the sidecar on its node, if that tells."""


@dataclass
class Outages:
    """A story in which kubelets renew their Leases, or do not. `advance` lets time pass."""

    story: Story
    chance: random.Random
    outages: tuple[Outage, ...]
    now_s: float = 0.0
    _signs: SignsOfLife = field(default_factory=SignsOfLife)
    _kubelets: dict[str, _Kubelet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, _, name in self.story.objects:
            if kind == "Node":
                last = -self.chance.uniform(0, RENEW_S)
                self._kubelets[name] = _Kubelet(last, last + RENEW_S)

    def advance(self, until_s: float) -> None:
        """Lets time pass, and the operator decide whenever it hears something new."""
        while self.now_s < until_s:
            self.now_s += (step := POLL_S + self.chance.uniform(0, 0.05))
            self.story.pass_time(step)
            if self._look():
                self.story.settle()

    def _silent(self, node: str, at_s: float) -> Outage | None:
        return next((each for each in self.outages if each.node == node and 0 <= at_s - each.from_s < each.for_s), None)

    def _look(self) -> bool:
        for node, kubelet in self._kubelets.items():
            while kubelet.next_s <= self.now_s:
                if self._silent(node, kubelet.next_s) is None:
                    kubelet.renewed_s = kubelet.next_s
                kubelet.next_s += RENEW_S * self.chance.uniform(1, JITTER)
        renewals = {node: f"{kubelet.renewed_s:.3f}" for node, kubelet in self._kubelets.items()}
        before, self._signs = self._signs, self._signs.after(renewals, {}, self.now_s)
        news = self._signs.news_since(before)
        for node, silence in news.items():
            if silence is None:
                self.story.silent.pop(node, None)
            else:
                self.story.silence(node, silence.quiet)
        return any([bool(news), *[self._readiness(node) for node in self._kubelets], self._tell()])

    def _tell(self) -> bool:
        """What kubelets tell of the Pods."""
        failed = any(self.now_s - each.from_s - each.others_fail_after_s >= 0 for each in self.outages)
        return self._barriers() if failed and not self.story.status().attempts else self._sidecars()

    def _barriers(self) -> bool:
        """Every Pod whose kubelet is heard waits at its barrier."""
        has_news = False
        for name in self.story.pods():
            status = self.story.pod(name)
            node = str(status["spec"].get("nodeName"))
            if self._silent(node, self.now_s) is None and status["status"]["phase"] != "Pending":
                waiting = {"waiting": {"reason": "PodInitializing"}}
                self.story.change_pod(
                    name,
                    phase="Pending",
                    initContainerStatuses=[{"name": BARRIER_CONTAINER, "state": {"running": {}}}],
                    containerStatuses=[{"name": each, "state": waiting} for each in ("trainer", SIDECAR_CONTAINER)],
                )
                has_news = True
        return has_news

    def _readiness(self, node: str) -> bool:
        is_lost = self.now_s - self._kubelets[node].renewed_s > NOT_READY_S
        if is_lost == (node in self.story.dead):
            return False
        (self.story.lose_node if is_lost else self.story.recover_node)(node)
        self.story.objects["Node", "", node]["spec"]["taints"] = [UNREACHABLE] if is_lost else []
        return True

    def _sidecars(self) -> bool:
        """What those that tell of the gang say by their kubelets."""
        pods = self.story.pods()
        nodes = [str(self.story.pod(name)["spec"].get("nodeName")) for name in pods]
        gone = {node for node in nodes if self._is_missed(node)}
        has_news = False
        for rank in tellers(len(pods)):
            kubelet = self._kubelets.get(nodes[rank])
            if kubelet is None or self._silent(nodes[rank], self.now_s) is not None:
                continue
            if kubelet.heard_ranks != (not gone):
                kubelet.heard_ranks = not gone
                self.story.change_pod(pods[rank], containerStatuses=_containers(is_ready=not gone))
                has_news = True
        return has_news

    def _is_missed(self, node: str) -> bool:
        outage = self._silent(node, self.now_s - HEARD_FOR_S - PROBE_S)
        return outage is not None and not outage.ranks_go_on


def gang(nodes: int, spare: int, **restart: Any) -> Story:
    """A gang with sidecars of so many whole nodes, which runs; `spare` nodes are free."""
    manifests = [each for number in range(1, nodes + spare + 1) for each in plugin_node(f"gpu-{number}")]
    spec = {"gpus": 8 * nodes, "topology": {"gpusPerNode": 8}, "template": _TEMPLATE}
    story = Story(*manifests, training_job(spec={**spec, "restart": {"limit": 3, **restart}}))
    story.sidecar_image = "closeknit/agent:1"
    for (kind, _, _), found in story.objects.items():
        if kind == "Node":
            found["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    story.settle()
    story.run_all()
    for pod in story.pods():
        let_go = {"terminated": {"exitCode": 0, "message": '{"run":0}', "finishedAt": "2026-11-21T10:00:00Z"}}
        story.change_pod(
            pod,
            initContainerStatuses=[{"name": BARRIER_CONTAINER, "state": let_go}],
            containerStatuses=_containers(is_ready=True),
        )
    story.settle()
    return story


def blips(seed: int, nodes: Iterable[str]) -> tuple[Outage, ...]:
    """One to three kubelets that are silent for 5 to 240 s, some of them together; their ranks train on."""
    chance = random.Random(seed)  # noqa: S311 - the same each time
    names = list(nodes)
    chosen = chance.sample(names, chance.choice([1, 1, 1, 2, min(3, len(names) - 1)]))
    return tuple(Outage(node, chance.uniform(20, 60), chance.uniform(5, 240)) for node in chosen)


def _containers(*, is_ready: bool) -> list[Mapping[str, Any]]:
    running: Mapping[str, Any] = {"running": {}}
    return [
        {"name": "trainer", "state": running, "ready": True},
        {"name": SIDECAR_CONTAINER, "state": running, "ready": is_ready},
    ]
