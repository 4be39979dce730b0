"""Two real nodes with the chart installed, which the tests of tests/node share: to start them again costs 20 s."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from harness.chart import render
from harness.install import install
from harness.local_cluster import LocalCluster
from harness.machines import AGENT_NAMESPACE, device_class
from harness.node.gpus import pretended
from harness.node.host_python import AGENT_IMAGE, RUNTIME_CLASS, write_agent_image
from harness.node.local_node import LocalNode
from harness.node.programs import KUBELET_CONFIG
from harness.node.trainers import TRAINERS, trainer_folders

PROFILE = "dgx1-v100"  # which of its GPUs a job gets matters, and most sets of them are bad
_OPTIONS = ("agent.podResources=true", f"agent.kubeletConfig={KUBELET_CONFIG}")
_REPOSITORY, _, _TAG = AGENT_IMAGE.rpartition(":")


@dataclass(frozen=True, slots=True)
class Stand:
    """A control plane with two nodes, whose GPUs nobody offers yet."""

    cluster: LocalCluster
    nodes: tuple[LocalNode, ...]

    def machine(self, node: LocalNode) -> dict[str, Any]:
        """The GPUs of a node, as its agent simulates them."""
        return pretended(node.site.name, PROFILE)

    def agents(self, *options: str, profile: str = PROFILE, faults: str = "{}") -> dict[str, Any]:
        """The chart's DaemonSet; all that is changed is that machines are simulated, and looked at more often."""
        values = (f"agent.image.repository={_REPOSITORY}", f"image.tag={_TAG}", "image.pullPolicy=Never", *options)
        objects = render(self.cluster.binaries.helm, *(f"--set={value}" for value in values))
        (found,) = (each for each in objects if each["kind"] == "DaemonSet")
        (container,) = found["spec"]["template"]["spec"]["containers"]
        container["args"] = [
            "--source=simulated",
            f"--profile={profile}",
            f"--faults={faults}",
            "--interval=2",
            *container["args"][1:],
        ]
        return found

    @contextmanager
    def agents_running(self) -> Iterator[None]:
        """The chart's agents on both nodes, which tell who holds which GPUs."""
        self.cluster.apply(self.agents(*_OPTIONS))
        names = [node.site.name for node in self.nodes]
        self.cluster.wait_for(lambda: all(map(self._tells, names)), "the agents to tell who holds what", 60)
        yield
        self.cluster.kubectl("delete", "daemonset", "closeknit-agent", f"--namespace={AGENT_NAMESPACE}", "--wait=true")

    @contextmanager
    def other_machines(self, profile: str, faults: str) -> Iterator[None]:
        """Meanwhile these agents tell of machines of another profile; nobody may have GPUs before or after."""
        self._change_machines(profile, faults)
        yield
        self._change_machines(PROFILE, "{}")

    def _change_machines(self, profile: str, faults: str) -> None:
        agents = self.agents(*_OPTIONS, profile=profile, faults=faults)
        agents["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
        before = {node.site.name: self._generation(node.site.name) for node in self.nodes}
        self.cluster.apply(agents)
        self.cluster.wait_for(
            lambda: all(self._generation(node) != old for node, old in before.items()), f"agents of {profile}", 60
        )

    @contextmanager
    def claims(self) -> Iterator[None]:
        """The GPUs of both nodes are given by claims. TrainingJobs give theirs back when it ends: a Pod
        whose driver has gone stays for ever."""
        for node in self.nodes:
            node.offer_claims(self.machine(node))
        try:
            yield
        finally:
            self._take_back()
            for node in self.nodes:
                node.withdraw_claims()

    @contextmanager
    def plugin(self) -> Iterator[None]:
        """The GPUs of both nodes are given by a device plugin."""
        for node in self.nodes:
            node.offer_gpus(self.machine(node))
        yield
        for node in self.nodes:
            node.withdraw_gpus()

    @contextmanager
    def spare(self) -> Iterator["Stand"]:
        """The stand with one node more, whose agent tells of it and whose GPUs are given by claims, while those of the
        others are."""
        number = len(self.nodes) + 1
        with LocalNode(self.cluster, f"node-{number}", number, host_folders=trainer_folders()) as node:
            _equip(self.cluster, node)
            node.offer_claims(self.machine(node))
            self.cluster.wait_for(lambda: self._tells(node.site.name), "the spare node's agent", 60)
            try:
                yield replace(self, nodes=(*self.nodes, node))
            finally:
                self._take_back()
        self.cluster.kubectl("delete", "nodetopology", node.site.name, "--ignore-not-found")

    def topology(self, node: str) -> Mapping[str, Any]:
        """A node's NodeTopology; empty where there is none."""
        found = self.cluster.get("nodetopologies")["items"]
        return next((each for each in found if each["metadata"]["name"] == node), {})

    def _take_back(self) -> None:
        self.cluster.kubectl("delete", "trainingjobs", "--all", "--all-namespaces", "--wait=false")
        self.cluster.wait_for(lambda: not self._pods_with_claims(), "all Pods with GPUs of claims to be gone", 120)

    def _pods_with_claims(self) -> list[str]:
        pods = self.cluster.get("pods")["items"]
        return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("resourceClaims")]

    def _generation(self, node: str) -> int:
        return int(self.topology(node)["metadata"]["generation"])

    def _tells(self, node: str) -> bool:
        return "allocations" in self.topology(node).get("status", {})


@contextmanager
def standing() -> Iterator[Stand]:
    """Both nodes Ready, with the agent's image and the trainers'."""
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(with_nodes=True))
        folders = trainer_folders()
        one, other = (
            stack.enter_context(LocalNode(cluster, f"node-{number}", number, host_folders=folders)) for number in (1, 2)
        )
        for node in (one, other):
            _equip(cluster, node)
        cluster.apply(RUNTIME_CLASS, device_class())
        install(cluster)
        cluster.wait_for_default_account(AGENT_NAMESPACE)
        yield Stand(cluster, (one, other))


def _equip(cluster: LocalCluster, node: LocalNode) -> None:
    """Gives a node the images, and the label by which the chart's agents come."""
    for write in (write_agent_image, *(trainer.write for trainer in TRAINERS)):
        archive = node.folder / "image.tar"
        write(archive)
        node.import_image(archive)
    cluster.kubectl("label", "node", node.site.name, "nvidia.com/gpu.present=true")
