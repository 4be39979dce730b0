"""`make bench-waiting`: how quick the operator's process answers while a thousand jobs wait, on the real control plane.

The operator runs as its own process with the chart's rights, on NODES kwok nodes of eight GPUs, of which each has a
foreign Pod that holds some; JOBS TrainingJobs of dozens of shapes wait, and foreign Pods with a GPU come and go. What
is read are the process's own metrics and the time that its health page takes. The last line is one JSON object.
"""

import json
import statistics
import time
import urllib.request
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from closeknit.agent.discovery.topology import discover
from closeknit.api.names import API_VERSION
from closeknit.api.nodetopology import Method
from harness.install import free_port, install, start_operator
from harness.local_cluster import LocalCluster
from harness.machines import node_object, readings

NODES = 100
JOBS = 1_000
ROUNDS = 60  # of a Pod that comes and one that goes
PAUSE_S = 0.5
TEAMS = 20
PROFILE = "hgx-h200"
# Two GPUs are free on every node: none of these fits, and none is refused for its form.
SHAPES = tuple(
    {"gpus": gpus, "topology": topology, "parallelism": {"tensor": tensor}}
    for gpus in (8, 16, 24, 32, 64, 128, 256, 512)
    for tensor in (1, 4, 8)
    for topology in ({}, {"nvlink": "Required"}, {"gpusPerNode": 8})
)
LAG = "closeknit_event_loop_lag_seconds"


def main() -> None:
    """Prints the figures."""
    with LocalCluster() as cluster:
        install(cluster)
        names = [f"gpu-{number:04d}" for number in range(NODES)]
        cluster.apply(*(namespace(f"team-{team}") for team in range(TEAMS)), namespace("others"))
        cluster.apply(*(each for name in names for each in machine(name)))
        cluster.wait_for_default_account("others")
        cluster.apply(*(foreign_pod(f"holder-{name}", name, 6) for name in names))
        port = free_port()
        start_operator(cluster, port)
        submitted = time.monotonic()
        cluster.apply(*(job(number) for number in range(JOBS)))
        cluster.wait_for(
            lambda: sample(port, "closeknit_jobs", state="Queued") == JOBS and is_told(cluster),
            "all jobs to wait",
            timeout_s=300,
        )
        waiting_s = time.monotonic() - submitted
        before = lag_buckets(port)
        answers_s = []
        for turn, name in zip(range(ROUNDS), cycle(names), strict=False):
            cluster.apply(foreign_pod(f"passing-{turn}", name, 1))
            if turn:
                cluster.kubectl("delete", "pod", f"passing-{turn - 1}", "--namespace=others", "--wait=false")
            began = time.perf_counter()
            get(port, "/healthz")
            answers_s.append(time.perf_counter() - began)
            time.sleep(PAUSE_S)
        after = lag_buckets(port)
        figures = {
            "bench": "waiting",
            "nodes": NODES,
            "jobs": JOBS,
            "all_told_seconds": round(waiting_s, 1),
            "loop_lag_p99_ms": quantile_ms(before, after, 0.99),
            "healthz_p50_ms": round(statistics.median(answers_s) * 1e3, 1),
            "healthz_max_ms": round(max(answers_s) * 1e3, 1),
            "cycles": int(sample(port, "closeknit_scheduling_cycle_duration_seconds_count")),
            "cycle_seconds": round(sample(port, "closeknit_scheduling_cycle_duration_seconds_sum"), 2),
            "rss_mb": round(sample(port, "process_resident_memory_bytes") / 1e6),
        }
    print(json.dumps(figures))


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def machine(name: str) -> Iterator[dict[str, Any]]:
    """A Node with a device plugin, and what its agent would publish."""
    yield node_object(name, PROFILE, plugin=True)
    spec = discover(readings(name, PROFILE), Method.SIMULATED).spec
    yield {"apiVersion": API_VERSION, "kind": "NodeTopology", "metadata": {"name": name}, "spec": spec.wire()}


def foreign_pod(name: str, node: str, gpus: int) -> dict[str, Any]:
    container = {"name": "main", "image": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "others"},
        "spec": {"nodeName": node, "containers": [container]},
    }


def job(number: int) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "train"}]}}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": f"wait-{number}", "namespace": f"team-{number % TEAMS}"},
        "spec": {**SHAPES[number % len(SHAPES)], "template": template},
    }


def is_told(cluster: LocalCluster) -> bool:
    """Whether every job's status says why it waits."""
    return all("pending" in each.get("status", {}) for each in cluster.get("trainingjobs")["items"])


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def sample(port: int, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    families = text_string_to_metric_families(get(port, "/metrics"))
    return sum(
        each.value
        for family in families
        for each in family.samples
        if each.name == name and labels.items() <= each.labels.items()
    )


def lag_buckets(port: int) -> dict[float, float]:
    """Upper limit in seconds -> how many measurements were no longer."""
    families = text_string_to_metric_families(get(port, "/metrics"))
    return {
        float(each.labels["le"]): each.value
        for family in families
        for each in family.samples
        if each.name == f"{LAG}_bucket"
    }


def quantile_ms(before: dict[float, float], after: dict[float, float], share: float) -> float:
    """The upper limit of the bucket that this share of the measurements between the two lies in."""
    counts = {limit: after[limit] - before[limit] for limit in sorted(after)}
    total = max(counts.values())
    return next(limit for limit, count in counts.items() if count >= share * total) * 1e3


if __name__ == "__main__":
    main()
