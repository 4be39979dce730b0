"""Two real nodes with what an administrator has there before closeknit comes; what comes then, Helm brings.

    with before_closeknit() as site:
        site.helm("install", RELEASE, str(CHART), *OUR_IMAGES)

The nodes have a driver (harness.node.stand_in_driver), GPUs that claims give, and the images of operator and agent.
They enforce NetworkPolicies (harness.node.policies), and the namespace enforces what Pod Security calls restricted.
Chart, images and arguments are those of production.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import chart
from harness.build import bring
from harness.chart import NAMESPACE
from harness.images import AGENT, IMAGES, image_archive
from harness.local_cluster import LocalCluster
from harness.machines import device_class
from harness.node.gpus import pretended
from harness.node.host_python import RUNTIME_CLASS
from harness.node.local_node import LocalNode
from harness.node.policies import enforce_policies
from harness.node.programs import PLAIN_RUNTIME
from harness.node.projects import NoNodes
from harness.node.stand_in_driver import driver_folders
from harness.projects import HELM_3

PROFILE = "dgx1-v100"  # which of its GPUs a job gets matters
RELEASE = "closeknit"
TEAM = "team"  # the namespace of the jobs
_REGISTRY, _, _REST = AGENT.name.partition("/")
OUR_IMAGES = (
    f"--set=image.registry={_REGISTRY}",
    f"--set=image.tag={_REST.rpartition(':')[2]}",
    "--set=image.pullPolicy=Never",
)
"""What the administrator tells Helm of the cluster: where the images are."""
_RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with two nodes, and both Helms."""

    cluster: LocalCluster
    nodes: tuple[LocalNode, LocalNode]
    helm_4: Path
    helm_3: Path
    unguarded: str
    """Why no NetworkPolicy is enforced; empty where each is."""

    def helm(self, command: str, *arguments: str, version: int = 4) -> str:
        """What Helm prints. Raises HelmError."""
        where = (f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}")
        return chart.helm(self.helm_3 if version == 3 else self.helm_4, command, *arguments, *where)

    def pods(self, component: str) -> Sequence[dict[str, Any]]:
        """The Pods of operator or agent that are to stay, the oldest first."""
        found = self.cluster.get("pods", namespace=NAMESPACE)["items"]
        ours = [
            each
            for each in found
            if each["metadata"]["labels"].get("app.kubernetes.io/component") == component
            and "deletionTimestamp" not in each["metadata"]
        ]
        return sorted(ours, key=lambda each: str(each["metadata"]["creationTimestamp"]))

    def has_pods(self) -> bool:
        """Whether any Pod of operator or agent is left, also one that is about to go. That of `helm test` stays."""
        found = self.cluster.get("pods", namespace=NAMESPACE)["items"]
        return any(each["metadata"]["labels"]["app.kubernetes.io/component"] != "test" for each in found)

    def leader(self) -> str:
        """The Pod of the operator that decides; empty while none does."""
        leases = self.cluster.get("leases", namespace=NAMESPACE)["items"]
        holders = [each["spec"].get("holderIdentity", "") for each in leases]
        return str(holders[0].partition("_")[0]) if holders else ""

    def rolled_out(self) -> bool:
        """Whether all Pods of operator and agents are those that the chart wants, and ready."""
        return all(map(_is_rolled_out, self._workloads()))

    def _workloads(self) -> Iterator[dict[str, Any]]:
        for kind in ("deployments", "daemonsets"):
            yield from self.cluster.get(kind, namespace=NAMESPACE)["items"]


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether the kubelet says so."""
    return any(
        each["type"] == "Ready" and each["status"] == "True" for each in pod.get("status", {}).get("conditions", [])
    )


def _is_rolled_out(workload: dict[str, Any]) -> bool:
    status, generation = workload.get("status", {}), workload["metadata"]["generation"]
    if status.get("observedGeneration") != generation:
        return False
    if workload["kind"] == "DaemonSet":
        wanted = status.get("desiredNumberScheduled")
        return bool(wanted) and wanted == status.get("numberAvailable") == status.get("updatedNumberScheduled")
    wanted = workload["spec"]["replicas"]
    return bool(wanted == status.get("updatedReplicas") == status.get("availableReplicas") == status.get("replicas"))


@contextmanager
def before_closeknit() -> Iterator[Site]:
    """The site, until the block ends. Raises NoImages, NoNodes and BuildError."""
    archives = [image_archive(image) for image in IMAGES]
    helm_3 = bring((HELM_3,))["helm3"]
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(with_nodes=True))
        one, other = (stack.enter_context(_node(cluster, number)) for number in (1, 2))
        for node in (one, other):
            for archive in archives:
                node.import_image(archive)
            node.offer_claims(pretended(node.site.name, PROFILE))
            cluster.kubectl("label", "node", node.site.name, "nvidia.com/gpu.present=true")
        cluster.apply(RUNTIME_CLASS, device_class())
        for name, labels in ((NAMESPACE, _RESTRICTED), (TEAM, {})):
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
            cluster.wait_for_default_account(name)
        yield Site(cluster, (one, other), cluster.binaries.helm, helm_3, _guard(cluster, one, other))


def _guard(cluster: LocalCluster, *nodes: LocalNode) -> str:
    """Has the nodes enforce NetworkPolicies; why they cannot, empty where they do."""
    try:
        for node in nodes:
            enforce_policies(cluster, node)
    except NoNodes as reason:
        return str(reason)
    return ""


def _node(cluster: LocalCluster, number: int) -> LocalNode:
    name = f"node-{number}"
    driver = driver_folders(cluster.directory, name, PROFILE)
    return LocalNode(cluster, name, number, host_folders=driver, default_runtime=PLAIN_RUNTIME)
