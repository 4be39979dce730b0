"""A whole cluster on this machine: control plane, nodes, GPUs handed out by claims, agents in Pods, the operator."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from closeknit.api.names import API_VERSION, CLUSTER_TOPOLOGY, DEFAULT_CLUSTER_TOPOLOGY, HOST_LEVEL
from hardware.gpus import PRETENDED_PROFILE, RealGpu, machine
from hardware.site import AGENT, IMAGE, SIDECAR, SMI, Site
from harness.chart import NAMESPACE
from harness.install import OPERATOR, free_port, is_ready
from harness.local_cluster import LocalCluster
from harness.machines import device_class
from harness.node.image import Layer, write_image
from harness.node.local_node import LocalNode

JOBS = "research"  # namespace of the jobs: PodSecurity restricted
AGENT_OPTIONS = (
    "--set=agent.access=Claim",
    "--set=agent.podResources=true",
    f"--set=agent.image.repository={IMAGE.partition(':')[0]}",
    f"--set=image.tag={IMAGE.partition(':')[2]}",
    "--set=image.pullPolicy=Never",
)
READY_TIMEOUT_S = 90
OPERATOR_TIMEOUT_S = 30
SMI_STUB = b"""#!/bin/sh
for each in /dev/nvidia[0-9]*; do
  minor=${each#/dev/nvidia}
  sed -n "s/^$NODE_OF_GPUS $minor /GPU $minor: pretended (UUID: /p" /host/shared/uuids | sed 's/$/)/'
done
"""


class Stack:
    """The cluster with closeknit installed; nodes come and go."""

    def __init__(self, cluster: LocalCluster, site: Site, chart: Path) -> None:
        self.cluster = cluster
        self._site = site
        self._numbers = iter(range(1, 100))
        self.nodes: dict[str, LocalNode] = {}
        self._install([each for each in yaml.load_all(chart.read_text(), yaml.CSafeLoader) if each])
        self.start_operator()

    def _install(self, objects: Sequence[dict[str, Any]]) -> None:
        """The chart, but for the operator's Deployment: the operator is a process here, with its account's rights."""
        crds = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
        others = [each for each in objects if each not in crds and each["kind"] != "Deployment"]
        if self._site.pretended:
            (agents,) = (each for each in others if each["kind"] == "DaemonSet")
            (container,) = agents["spec"]["template"]["spec"]["containers"]
            simulated = ["--source=simulated", f"--profile={PRETENDED_PROFILE}"]
            container["args"] = [*simulated, *container["args"][1:]]
        labels = {"resource.kubernetes.io/admin-access": "true"}
        self.cluster.apply(_namespace(NAMESPACE, labels), *crds)
        names = [f"crd/{each['metadata']['name']}" for each in crds]
        self.cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
        jobs = _namespace(JOBS, {"pod-security.kubernetes.io/enforce": "restricted"})
        self.cluster.apply(*others, device_class(), jobs)
        self.cluster.wait_for_default_account(JOBS)

    def start_operator(self) -> None:
        kubeconfig = self.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)
        program = [sys.executable, "-m", "closeknit.controller.main", f"--kubeconfig={kubeconfig}"]
        port = free_port()
        options = (f"--metrics-address=127.0.0.1:{port}", f"--sidecar-image={IMAGE}")
        self.cluster.start_program("operator", *program, *options)
        self.cluster.wait_for(lambda: is_ready(port), "the operator to be ready", OPERATOR_TIMEOUT_S)

    @contextmanager
    def node(self, name: str, gpus: Sequence[RealGpu]) -> Iterator[LocalNode]:
        """A node with these GPUs, whose agent has published them."""
        with LocalNode(self.cluster, name, next(self._numbers), host_folders=self._site.host_folders) as node:
            archive = node.folder / "host.tar"
            write_image(archive, IMAGE, self._image(), ["/bin/sh"], environment=["PATH=/programs:/usr/bin"])
            node.import_image(archive)
            with (self._site.shared / "uuids").open("a") as uuids:
                uuids.writelines(f"{name} {gpu.minor} {gpu.uuid}\n" for gpu in gpus)
            node.offer_claims(self._machine(name, gpus))
            self.cluster.kubectl("label", "node", name, "nvidia.com/gpu.present=true")
            self.wait_for(lambda: self.topology(name), f"the agent of {name} to publish", READY_TIMEOUT_S)
            self.nodes[name] = node
            yield node
            del self.nodes[name]

    def agent_log(self) -> str:
        """What the agent says, where one node stands."""
        return self.cluster.kubectl("logs", "daemonset/closeknit-agent", f"--namespace={NAMESPACE}")

    @contextmanager
    def network_declared(self, bandwidth_gb_s: float) -> Iterator[None]:
        """While it lasts, the site says how fast the network between nodes is."""
        fabric = {"levelBandwidthGBps": {HOST_LEVEL: bandwidth_gb_s}}
        said = {"apiVersion": API_VERSION, "kind": CLUSTER_TOPOLOGY, "metadata": {"name": DEFAULT_CLUSTER_TOPOLOGY}}
        self.cluster.apply({**said, "spec": {"levels": [], "fabric": fabric}})
        yield
        self.cluster.kubectl("delete", "clustertopology", DEFAULT_CLUSTER_TOPOLOGY)

    def give_by_plugin(self, node: LocalNode, gpus: Sequence[RealGpu]) -> None:
        """From now on a device plugin gives the node's GPUs; the agent keeps those that it got by its claim."""
        node.withdraw_claims()
        node.offer_gpus(self._machine(node.site.name, gpus))

    def _machine(self, node: str, gpus: Sequence[RealGpu]) -> dict[str, Any]:
        return machine(gpus, self._site.mounts, self._site.environment | {"NODE_OF_GPUS": node})

    def topology(self, node: str) -> dict[str, Any] | None:
        """The NodeTopology of a node."""
        found = {each["metadata"]["name"]: each for each in self.cluster.get("nodetopologies")["items"]}
        return found.get(node)

    def wait_for(self, condition: Any, what: str, timeout_s: float) -> Any:
        """As LocalCluster's; where it does not come, what the cluster says of its Pods is in the error."""
        try:
            return self.cluster.wait_for(condition, what, timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self._events()}") from None

    def _events(self) -> str:
        said = self.cluster.kubectl("get", "pods", "--all-namespaces", "--output=wide", check=False)
        for kind in ("events", "trainingjobs"):
            said += self.cluster.kubectl("get", kind, "--all-namespaces", "--output=wide", check=False)[-6000:]
        return said

    def _image(self) -> Layer:
        layer = Layer()
        layer.add_etc()
        for name in ("bin", "sbin", "lib", "lib64"):
            layer.add_link(name, f"usr/{name}")
        for program, module in ((AGENT, "closeknit.agent.main"), (SIDECAR, "closeknit.sidecar.main")):
            layer.add_file(program.lstrip("/"), self._site.script(module), mode=0o755)
        if self._site.pretended:
            layer.add_file(SMI.lstrip("/"), SMI_STUB, mode=0o755)
        return layer


def _namespace(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
