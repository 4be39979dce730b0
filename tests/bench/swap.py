"""A part of `make bench-recovery`: a gang of 512 whole nodes that restarts in place loses one node.

`writes_per_swap_512` are the operator's writes, Events among them, from the evidence until the gang is told to run;
`swap_lost_node_writes_512` are those among them for the lost node: its Pod's farewell and deletion, and the new Pod.
`swap_bound_seconds_512` are the seconds from the evidence, a taint out-of-service, until the new Pod is bound, both by
the audit log.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from bench.gpu_fleet import GPUS, write_fleet
from closeknit.kube.http.http_api import HttpApi
from harness.audit import AuditEvent
from harness.gang_kubelets import OPTIONS, RESTARTS, allow_restarts_in_place, begin_run
from harness.install import free_port, install, start_operator
from harness.local_cluster import LocalCluster
from harness.operator_bed import Bed

GANG, SPARE = 512, 16
TAINT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
STARTS_WITHIN_S = 300.0


def swaps(*, is_quick: bool) -> Mapping[str, float]:
    """The figures; of a smaller gang they are the same but for the seconds."""
    gang = 64 if is_quick else GANG
    with LocalCluster() as cluster:
        install(cluster)
        asyncio.run(_fleet(cluster, gang + SPARE))
        nodes = [node["metadata"]["name"] for node in cluster.get("nodes")["items"]]
        allow_restarts_in_place(cluster, nodes)
        bed = Bed(cluster, free_port())
        bed.pid = start_operator(cluster, bed.port, *OPTIONS)
        bed.begin("swap")
        bed.submit(gpus=GPUS * gang, topology={"gpusPerNode": GPUS}, **RESTARTS)
        cluster.wait_for(lambda: bed.job()["status"].get("state") == "Running", "the gang to run", STARTS_WITHIN_S)
        return _swapped(bed, gang // 2)


async def _fleet(cluster: LocalCluster, nodes: int) -> None:
    async with await HttpApi.connect(kubeconfig=cluster.kubeconfig, user_agent="closeknit-bench/1") as api:
        await write_fleet(api, nodes, dra=False)


def _swapped(bed: Bed, rank: int) -> Mapping[str, float]:
    """The gang loses the node of this rank."""
    cluster = bed.cluster
    lost = f"train-a1-worker-{rank:05d}"
    begin_run(cluster, bed.namespace, bed.live_pods(), 0)
    node = cluster.get("pod", lost, bed.namespace)["spec"]["nodeName"]
    _kill(bed, node, lost)
    before = len(bed.writes())
    cluster.patch("node", node, {"spec": {"taints": [TAINT]}})
    new = f"{lost}-r1"
    cluster.wait_for(lambda: _phase(bed, new) == "Running", "the new Pod to run", STARTS_WITHIN_S)
    begin_run(cluster, bed.namespace, [pod for pod in bed.live_pods() if pod != lost], 1)
    cluster.wait_for(lambda: bed.job()["status"]["state"] == "Running", "the gang to run again", STARTS_WITHIN_S)
    cluster.wait_for(lambda: _is_told(bed.writes()[before:]), "the audit log to tell of it")
    told = bed.writes()[before:]
    print(Counter(f"{each.verb} {each.resource}" for each in told), file=sys.stderr, flush=True)
    every = cluster.audit_events()
    tainted = next(each for each in every if each.resource == "nodes" and _taints(each, node))
    bound = next(each for each in every if each.subresource == "binding" and each.name == new)
    return {
        "swap_gang_nodes": float(len(bed.job()["status"]["placement"]["nodes"])),
        "writes_per_swap_512": float(len(told)),
        "swap_lost_node_writes_512": float(sum(1 for each in told if each.resource in {"pods", "resourceclaims"})),
        "swap_bound_seconds_512": round((bound.at - tainted.received).total_seconds(), 2),
    }


def _kill(bed: Bed, node: str, pod: str) -> None:
    """Nobody hears of its kubelet any more, which never confirms that the Pod is gone."""
    bed.change("pod", pod, {"metadata": {"finalizers": ["test.example/kubelet"]}})
    bed.cluster.kubectl("annotate", "node", node, "kwok.x-k8s.io/node-")
    condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "stopped"}
    patch = json.dumps({"status": {"conditions": [condition]}})
    bed.cluster.kubectl("patch", "node", node, "--subresource=status", "--type=strategic", f"--patch={patch}")


def _phase(bed: Bed, pod: str) -> str:
    found = [each["status"].get("phase", "") for each in bed.all("pods") if each["metadata"]["name"] == pod]
    return str(found[0]) if found else ""


def _taints(event: AuditEvent, node: str) -> bool:
    """Whether it is the write by which this node is out of service."""
    spec = (event.body.get("spec") or {}) if isinstance(event.body, dict) else {}
    return event.name == node and event.verb == "patch" and TAINT in (spec.get("taints") or ())


def _is_told(written: Sequence[AuditEvent]) -> bool:
    """Whether the last status says that it runs."""
    statuses = [each.body["status"] for each in written if each.resource == "trainingjobs"]
    return bool(statuses) and statuses[-1]["state"] == "Running"
