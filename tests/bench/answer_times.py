"""`make bench-answers`: how soon people have an answer, from commands at 5,000 nodes and from the map at 1,000.

    PYTHONPATH=tests uv run python -m bench.answer_times [commands] [map] [NODES]

Commands: the installed program against a real API server, with the operator as its own process: 5,000 nodes with a
NodeTopology each, a job of 64 nodes that runs, a job that fits nowhere, and 5,000 Pods of others in their namespace.
Each command is run nine times from nothing, by a token; the median and the longest are told in ms, with the exit code
checked. `status_kb` is what the API server sends for one `status`.

Only the 64 nodes of that job are kwok's: 5,000 kubelets' leases would be 500 writes a second. The controller manager
stands still meanwhile, or it would call the other nodes dead.

The map: 1,000 nodes and 200 jobs, in Chromium (harness.browser). `paint_ms` is from the address to the first picture
with all nodes; `update_ms` from the moment the cluster is another one to the next picture, where nothing holds it up
but the feed's own look; `page_ms` is the page's part of that. Then bench.map_cost's figures with 50 open maps.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.map_cost import changed, measured
from closeknit.agent.discovery.topology import discover
from closeknit.api.names import API_VERSION, GROUP, VERSION
from closeknit.api.nodetopology import Method
from closeknit.kube.api import Resource
from closeknit.kube.http.http_api import HttpApi
from harness.browser import browser, program
from harness.install import free_port, install, start_operator
from harness.local_cluster import LocalCluster
from harness.machines import node_object, readings
from harness.map_stage import Stage, thousand

NODES, OF_JOB = 5_000, 64
BATCH = 500
MOST_GPUS = 65_536  # that a job may ask for
ROUNDS = 9
UPDATES = 9
TEAM = "team-a"
RACK = "example.com/rack"
IN_FLIGHT = 16
START_S = 600.0  # on two busy cores 10,000 objects take their time
SECOND_S = 2.5  # more than a second after the last map: nothing holds the next one up
COMMANDS: Mapping[str, Sequence[str]] = {
    "status": ("status",),
    "status_wide": ("status", "-o", "wide"),
    "explain_waiting": ("explain", "too-large", "-n", TEAM),
    "explain_running": ("explain", "train", "-n", TEAM),
    "ranks": ("ranks", "train", "-n", TEAM),
    "jobs": ("jobs", "-A"),
}
_KINDS = {
    "Node": Resource("", "v1", "nodes", namespaced=False),
    "NodeTopology": Resource(GROUP, VERSION, "nodetopologies", namespaced=False),
    "Pod": Resource("", "v1", "pods"),
}
_UNTAINTED = [{"op": "remove", "path": "/spec/taints"}]
# When the page takes something off the stream, and when it has drawn what that said.
WATCHED = """
window.taken = []; window.drawn = [];
const Plain = TextDecoderStream;
window.TextDecoderStream = function () {
  const made = new Plain();
  const counted = new TransformStream({ transform(piece, to) { taken.push(performance.now()); to.enqueue(piece); } });
  made.readable.pipeTo(counted.writable).catch(() => {});
  return { readable: counted.readable, writable: made.writable };
};
new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => drawn.push(performance.now()))))
  .observe(document, { attributes: true, subtree: true, attributeFilter: ["data-drawn"] });
"""


def main(parts: Sequence[str]) -> None:
    """Prints one JSON line of what was asked for, by default of all."""
    told: dict[str, Any] = {"bench": "answers"}
    nodes = next((int(part) for part in parts if part.isdecimal()), NODES)
    named = {part for part in parts if not part.isdecimal()} or {"commands", "map"}
    if "commands" in named:
        told |= command_times(nodes)
    if "map" in named:
        if program() is None:
            print("no Chromium here: apt-get install chromium, or CLOSEKNIT_CHROMIUM=PATH", file=sys.stderr)
        else:
            told |= map_times()
        told |= {f"map_{name}": value for name, value in measured().items()}
    print(json.dumps(told))


def command_times(nodes: int) -> dict[str, Any]:
    """Of the commands on so many nodes."""
    with LocalCluster() as cluster:
        install(cluster)
        levels = {"levels": [{"name": "rack", "nodeLabel": RACK}]}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
        topology = {"apiVersion": API_VERSION, "kind": "ClusterTopology", "metadata": {"name": "default"}}
        cluster.apply(namespace, {**topology, "spec": levels})
        cluster.wait_for_default_account(TEAM)
        os.kill(cluster.pids["kube-controller-manager"], signal.SIGSTOP)
        asyncio.run(_fill(cluster.kubeconfig, nodes))
        port = free_port()
        begun = time.monotonic()
        start_operator(cluster, port, timeout_s=START_S)
        ready_s = time.monotonic() - begun
        cluster.apply(
            _job("train", gpus=8 * OF_JOB, gpu={"products": ["Tesla-V100-SXM2-32GB"]}), _job("too-large", MOST_GPUS)
        )
        cluster.wait_for(lambda: _state(cluster, "train") == "Running", "the job to run", START_S)
        cluster.wait_for(lambda: _state(cluster, "too-large") == "Queued", "the other one to wait", START_S)
        cluster.wait_for(lambda: _counted(cluster) == 8 * nodes, "all GPUs to be counted", START_S)
        reader = ("--clusterrole=cluster-admin", f"--serviceaccount={TEAM}:reader")
        cluster.kubectl("create", "serviceaccount", "reader", f"--namespace={TEAM}")
        cluster.kubectl("create", "clusterrolebinding", "reader", *reader)
        kubeconfig = cluster.service_account_kubeconfig(TEAM, "reader")
        told: dict[str, Any] = {"nodes": nodes, "operator_ready_s": round(ready_s, 1)}
        for name, command in COMMANDS.items():
            took = sorted(_seconds(kubeconfig, command) for _ in range(ROUNDS))
            told |= {f"{name}_ms": round(1000 * took[ROUNDS // 2]), f"{name}_max_ms": round(1000 * took[-1])}
        told["status_kb"] = round(len(cluster.kubectl("get", "clustertopology", "default", "-o", "json")) / 1000, 1)
        os.kill(cluster.pids["kube-controller-manager"], signal.SIGCONT)
    return told


async def _fill(kubeconfig: Path, nodes: int) -> None:
    """Makes nodes, each with a Pod of somebody, some in flight at once."""
    slots = asyncio.Semaphore(IN_FLIGHT)
    async with await HttpApi.connect(kubeconfig=kubeconfig, user_agent="closeknit-bench/1") as api:

        async def create(body: dict[str, Any]) -> None:
            async with slots:
                metadata, kind = body["metadata"], body["kind"]
                await api.create(_KINDS[kind], body, namespace=metadata.get("namespace"))
                if kind == "Node":  # a new one is tainted until the controller manager, which stands still, sees it
                    await api.json_patch(_KINDS[kind], metadata["name"], _UNTAINTED)

        for begin in range(0, nodes, BATCH):
            batch = range(begin, min(begin + BATCH, nodes))
            await asyncio.gather(*(create(each) for number in batch for each in (*_machine(number), _other(number))))
            print(f"{batch.stop} nodes", file=sys.stderr, flush=True)


def _machine(number: int) -> Iterator[dict[str, Any]]:
    name, profile = f"gpu-{number:04d}", "dgx1-v100" if number < OF_JOB else "hgx-h200"
    node = node_object(name, profile, plugin=True, labels={RACK: f"r{number // 16:03d}"})
    if number >= OF_JOB:
        del node["metadata"]["annotations"]  # nobody's: it stays as it is
    yield node
    spec = discover(readings(name, profile), Method.SIMULATED).spec
    yield {"apiVersion": API_VERSION, "kind": "NodeTopology", "metadata": {"name": name}, "spec": spec.wire()}


def _other(number: int) -> dict[str, Any]:
    environment = [{"name": f"SETTING_{key}", "value": f"value-{key}"} for key in range(40)]
    container = {"name": "main", "image": "images.example.com/main:1", "env": environment}
    spec = {"nodeName": f"gpu-{number:04d}", "containers": [container]}
    metadata = {"name": f"other-{number:04d}", "namespace": TEAM}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _job(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "train"}]}}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"gpus": gpus, "template": template, **spec},
    }


def _state(cluster: LocalCluster, job: str) -> str:
    return str(cluster.get("trainingjob", job, TEAM).get("status", {}).get("state", ""))


def _counted(cluster: LocalCluster) -> int:
    """GPUs in the status of the ClusterTopology."""
    found = cluster.get("clustertopology", "default").get("status", {}).get("summary", {}).get("gpus", {})
    return sum(int(number) for number in found.values())


def _seconds(kubeconfig: Path, command: Sequence[str]) -> float:
    """From the start of the installed program to its end."""
    closeknit = Path(sys.executable).parent / "closeknit"
    begun = time.perf_counter()
    subprocess.run([closeknit, *command, f"--kubeconfig={kubeconfig}"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def map_times() -> dict[str, Any]:
    """Of the page, in a browser."""
    with ThreadPoolExecutor(1) as thread:  # Playwright's event loop runs in ours
        stage = Stage(thread.submit(thousand).result())
    paints, updates, own = [], [], []
    with stage.in_a_thread() as port, browser() as chromium:
        for _ in range(3):
            page = chromium.new_page(viewport={"width": 1360, "height": 850}, bypass_csp=True)  # Playwright evaluates
            page.add_init_script(WATCHED)
            page.goto(f"http://localhost:{port}/map/")
            page.wait_for_function("drawn.length > 0")
            assert page.locator("button.node").count() == 1000
            paints.append(float(page.evaluate("drawn[0]")))
            if len(paints) < 3:
                page.close()
        for second in range(1, UPDATES + 1):  # as many restarts
            time.sleep(SECOND_S)
            with ThreadPoolExecutor(1) as thread:
                later = thread.submit(changed, stage.cluster, second).result()
            before = page.evaluate("({drawn: drawn.length, now: performance.now()})")
            stage.cluster = later
            page.wait_for_function(f"drawn.length > {before['drawn']}")
            drawn, taken = page.evaluate("[drawn[drawn.length - 1], taken]")
            updates.append(drawn - before["now"])
            own.append(drawn - next(at for at in taken if at > before["now"]))
        page.close()
    return {
        "paint_ms": round(statistics.median(paints)),
        "paint_max_ms": round(max(paints)),
        "update_ms": round(statistics.median(updates)),
        "update_max_ms": round(max(updates)),
        "page_ms": round(statistics.median(own)),
        "page_max_ms": round(max(own)),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
