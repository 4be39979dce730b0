"""`make demo`: three jobs on eight simulated GPU nodes of a real control plane, and what became of them.

Real: API server, controller manager, stock kube-scheduler with DRA, the chart's RBAC and policies, operator, agents.
Played: the nodes (kwok), and what NVML would say on them (recorded and simulated machines).
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from closeknit.api.names import API_VERSION, CLUSTER_TOPOLOGY, GROUP
from closeknit.api.objects import TrainingJob
from closeknit.cli.input.cluster_file import cluster_file, training_job
from closeknit.cluster.booking.booking import booking
from closeknit.cluster.cluster import Cluster, build
from closeknit.launch.environment.environment import container_environment
from closeknit.launch.gang import Gang
from closeknit.lifecycle.attempt.launched_gang import gang as gang_of
from closeknit.placement.gang.cache import Tables
from closeknit.placement.values.request import request
from harness.first_fit import first_fit
from harness.install import free_port, install, start_agents, start_operator
from harness.local_cluster import LocalCluster, end_on_signals
from harness.machines import OTHER_TEAM, device_class, node_object, notebook, resource_slices

ROOT = Path(__file__).parents[2]
RACK_LABEL = "example.com/rack"
OUT_OF_RACK_GB_S = 50  # a node's share of an uplink that eight nodes would overload
RECORDED = ROOT / "tests" / "fixtures" / "dumps" / "hgx-h200-8gpu-vm.json"
JOBS = ("tensor-4", "pytorch-16gpu", "too-large")


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One node of the demo cluster."""

    name: str
    rack: str
    machine: str  # a profile, or "recorded" for the recorded H200 virtual machine
    dra: bool = False
    rdma: bool = False

    @property
    def fleet_entry(self) -> dict[str, Any]:
        """As a fleet file has it."""
        source = {"dump": str(RECORDED)} if self.machine == "recorded" else {"profile": self.machine}
        return {"name": self.name, **source}

    @property
    def profile(self) -> str | Path:
        """What a kubelet and a DRA driver would register it from."""
        return RECORDED if self.machine == "recorded" else self.machine


# Racks are mixed on purpose: taking nodes by name puts a gang on two racks.
NODES = (
    DemoNode("gpu-01", "r1", "hgx-h200", rdma=True),
    DemoNode("gpu-02", "r2", "hgx-h200", rdma=True),
    DemoNode("gpu-03", "r1", "dgx1-v100", dra=True),
    DemoNode("gpu-04", "r2", "dgx1-v100", dra=True),
    DemoNode("gpu-05", "r1", "hgx-h200", rdma=True),
    DemoNode("gpu-06", "r2", "recorded"),
    DemoNode("gpu-07", "r1", "pcie-bridges-8"),
    DemoNode("gpu-08", "r2", "pcie-bridges-8"),
)
# GPUs of the DGX-1Vs that somebody else holds: what is left of gpu-03 has one good set of four, and many bad ones.
HELD = {"gpu-03": (0, 7), "gpu-04": (0, 3, 6)}


def main() -> int:
    """Runs the demo; 0 when every job ended up where it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up until Ctrl-C")
    keep = parser.parse_args().keep
    console = Console(highlight=False, soft_wrap=True)
    end_on_signals()
    started = time.monotonic()
    try:
        with LocalCluster() as cluster:
            port = _set_up(cluster)
            version = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
            console.print(
                f"[bold]closeknit[/bold] on Kubernetes {version}: {len(NODES)} nodes in 2 racks, ready after "
                f"{time.monotonic() - started:.1f} s"
            )
            _print_nodes(cluster, console)
            for name in JOBS:
                _run_job(cluster, name, console)
            console.print("\n[bold]kubectl get trainingjobs[/bold]")
            console.print(cluster.kubectl("get", "trainingjobs"), end="", markup=False)
            if keep:
                _hold(cluster, port, console)
    except KeyboardInterrupt:
        pass
    console.print(f"\n{time.monotonic() - started:.1f} s in all; nothing is left behind")
    return 0


def _set_up(cluster: LocalCluster) -> int:
    """The port of the operator."""
    nodes = [
        node_object(
            each.name, each.profile, plugin=not each.dra, labels={RACK_LABEL: each.rack}, rdma=8 if each.rdma else 0
        )
        for each in NODES
    ]
    slices = [slice_ for each in NODES if each.dra for slice_ in resource_slices(each.name, each.profile)]
    install(cluster)
    cluster.apply(*nodes, device_class(), *slices, _topology(), *_held())
    start_agents(cluster, [each.fleet_entry for each in NODES])
    port = free_port()
    start_operator(cluster, port)
    cluster.wait_for(
        lambda: len(cluster.get("nodetopologies")["items"]) == len(NODES), "every agent to have published its node"
    )
    cluster.wait_for(lambda: _all_held(cluster), "the other team's Pods to hold their GPUs")
    return port


def _topology() -> dict[str, Any]:
    spec = {
        "levels": [{"name": "rack", "nodeLabel": RACK_LABEL}],
        "fabric": {"levelBandwidthGBps": {"rack": OUT_OF_RACK_GB_S}},
    }
    return {"apiVersion": API_VERSION, "kind": CLUSTER_TOPOLOGY, "metadata": {"name": "default"}, "spec": spec}


def _held() -> list[dict[str, Any]]:
    """Pods of another team that hold some GPUs of the DGX-1Vs."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER_TEAM}}
    return [namespace, *(each for node, indexes in HELD.items() for each in notebook(node, indexes))]


def _all_held(cluster: LocalCluster) -> bool:
    pods = cluster.get("pods", namespace=OTHER_TEAM)["items"]
    return len(pods) == len(HELD) and all(pod["spec"].get("nodeName") for pod in pods)


def _print_nodes(cluster: LocalCluster, console: Console) -> None:
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in cluster.get("nodes")["items"]}
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for heading in ("NODE", "RACK", "GPUS", "ISLANDS", "NICS", "GIVEN BY", "HELD"):
        table.add_column(heading)
    for each in NODES:
        node = labels[each.name]
        table.add_row(
            each.name,
            each.rack,
            f"{node[f'{GROUP}/gpu.count']} {node[f'{GROUP}/gpu.product']}",
            node.get(f"{GROUP}/nvlink.islands", "-"),
            node[f"{GROUP}/rdma.nics"] if each.rdma else "-",
            "DRA" if each.dra else "device plugin",
            ",".join(map(str, HELD.get(each.name, ()))) or "-",
        )
    console.print(table)


def _run_job(cluster: LocalCluster, name: str, console: Console) -> None:
    file = ROOT / "examples" / f"{name}.yaml"
    before = _snapshot(cluster)
    console.print(f"\n[bold]kubectl apply -f examples/{name}.yaml[/bold]")
    applied = time.monotonic()
    cluster.kubectl("apply", f"--filename={file}")
    job = cluster.wait_for(lambda: _settled(cluster, name), f"{name} to run or to be refused")
    took_s = time.monotonic() - applied
    if job.status.placement is None:
        pending = job.status.pending
        assert pending is not None  # settled
        console.print(f"  waits: [bold]{pending.reason}[/bold]\n  {pending.message}", markup=True)
        return
    now = _snapshot(cluster)
    held = booking(job)
    assert held is not None
    gang = gang_of(job, held, now, ipc_lock=True)
    assert isinstance(gang, Gang)  # it runs
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for heading in ("  NODE", "GPUS", "RANKS", "BOUND BY"):
        table.add_column(heading)
    for node in job.status.placement.nodes:
        table.add_row(f"  {node.name}", ",".join(map(str, node.gpus)), node.ranks, str(node.binding))
    console.print(f"  all Pods bound after {took_s:.1f} s")
    console.print(table)
    _print_bandwidth(job, before, console)
    console.print("  rank 0's environment:")
    for variable, value in _shown(container_environment(gang, 0)).items():
        console.print(f"    {variable}={value}", markup=False)


def _print_bandwidth(job: TrainingJob, before: Cluster, console: Console) -> None:
    placement = job.status.placement
    assert placement is not None
    naive = first_fit(
        before, request(job.key, training_job(ROOT / "examples" / f"{job.metadata.name}.yaml").job.spec), Tables()
    )
    assert naive is not None  # it fits, so the first nodes with room do, too
    where = "; ".join(f"{share.node}: {','.join(map(str, share.gpus))}" for share in naive.shares)
    console.print(
        f"  predicted all-reduce: [bold]{_gb_s(placement.predicted_bus_bandwidth_gb_s)}[/bold], "
        f"limited by {placement.limited_by}\n"
        f"  first fit would give: {_gb_s(naive.predicted_bus_bandwidth_gb_s)} ({where})"
    )


def _gb_s(bandwidth_gb_s: float | None) -> str:
    return "unknown" if bandwidth_gb_s is None else f"{bandwidth_gb_s:.1f} GB/s"


def _shown(environment: Mapping[str, str]) -> dict[str, str]:
    prefixes = ("PET_", "NCCL_", "MASTER_", "CUDA_", "OMP_")
    return {name: value for name, value in environment.items() if name.startswith(prefixes)}


def _settled(cluster: LocalCluster, name: str) -> TrainingJob | None:
    job = TrainingJob.parse(cluster.get("trainingjob", name, "default"))
    if job.status.placement is None:
        return job if job.status.pending else None
    pods = cluster.get("pods", namespace="default")["items"]
    mine = [pod for pod in pods if pod["metadata"]["labels"].get(f"{GROUP}/job") == name]
    bound = len(mine) == job.status.placement.node_count and all(pod["spec"].get("nodeName") for pod in mine)
    return job if bound else None


def _snapshot(cluster: LocalCluster) -> Cluster:
    """The cluster as `closeknit plan` would see it in a file that kubectl printed."""
    file = cluster.directory / "objects.json"
    kinds = "nodes,nodetopologies,clustertopologies,trainingjobs,pods"
    kinds += ",resourceslices,resourceclaims,deviceclasses,priorityclasses"
    kinds += ",persistentvolumeclaims,persistentvolumes,storageclasses"
    file.write_text(cluster.kubectl("get", kinds, "--all-namespaces", "--output=json"))
    return build(cluster_file(file).objects)


def _hold(cluster: LocalCluster, port: int, console: Console) -> None:
    console.print(
        f"\nThe cluster stays up until Ctrl-C. In another terminal:\n"
        f"  export KUBECONFIG={cluster.kubeconfig} PATH={cluster.binaries.kubectl.parent}:$PATH\n"
        "  uv run closeknit status\n"
        "  uv run closeknit explain too-large\n"
        "  kubectl describe trainingjob too-large\n"
        "  kubectl get nodes -L closeknit.dev/nvlink.islands,closeknit.dev/gpu.product\n"
        "  kubectl explain trainingjob.spec.topology\n"
        f"The map of racks, nodes and GPUs: http://127.0.0.1:{port}/map/\n"
        "Its nodes are simulated and run nothing: Pods have no logs.\n"
        f"Logs of the programs: {cluster.directory}/logs",
        markup=False,
    )
    signal.pause()


if __name__ == "__main__":
    sys.exit(main())
