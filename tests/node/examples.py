"""The manifests of examples/ as they run on two real nodes, and what their processes say of themselves."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from closeknit.cli.env import live_job
from closeknit.cli.env.variables import sheet
from closeknit.cli.input.given import Reach
from closeknit.cli.plan.plan_decision import Sitting
from closeknit.cluster.booking.booking import BookingShare, decoded
from closeknit.cluster.cluster import build
from harness.node.trainers import Trainer
from node.jobs import Jobs

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = Path(__file__).parent / "scripts"
NUMA = "--numa-binding=node"  # which Debian's torchrun does not know
# Of a machine that has two CPUs for both nodes; limits stay, for OMP_NUM_THREADS follows from them.
REQUESTS = {"cpu": "50m", "memory": "64Mi"}


def scripts(namespace: str) -> dict[str, Any]:
    """The ConfigMap that the examples mount. Each script tells first what it sees (report.py); where tests/node/scripts
    has one of the same name, that says why it runs instead."""
    texts = {file.name: file.read_text() for folder in (EXAMPLES / "scripts", SCRIPTS) for file in folder.glob("*.py")}
    data = {name: text if name == "report.py" else f"import report\n{text}" for name, text in texts.items()}
    metadata = {"name": "closeknit-examples", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def example(name: str, namespace: str, trainer: Trainer, **spec: Any) -> dict[str, Any]:
    """The manifest, with an image of this machine's, requests that two nodes have room for, and what `spec` says."""
    job: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    job["metadata"]["namespace"] = namespace
    job["spec"] |= spec
    servers = job["spec"].get("parameterServers")
    for template in [job["spec"]["template"], *([servers["template"]] if servers else [])]:
        (container,) = template["spec"]["containers"]
        container["image"] = trainer.image
        container["command"] = [word for word in container["command"] if word != NUMA]
        container["resources"]["requests"] = REQUESTS
    return job


def planned(jobs: Jobs, name: str) -> tuple[BookingShare, ...]:
    """The shares of a job, in node-rank order, then those of its parameter servers."""
    placement = jobs.placement(name).status.placement
    assert placement is not None
    return decoded(placement)


def told(jobs: Jobs, name: str) -> Mapping[str, dict[str, str]]:
    """What `closeknit env` tells of each Pod's trainer, by the Pod's name."""
    reach = Reach(jobs.cluster.kubeconfig, namespace=jobs.namespace)
    _, objects = asyncio.run(live_job.objects(name, reach))
    job = jobs.placement(name)
    placement = job.status.placement
    assert placement is not None
    # As while it ran: one that is over holds nothing.
    running = job.model_copy(update={"status": job.status.model_copy(update={"conditions": [], "attempts": []})})
    found = Sitting(running, placement, build(objects))
    hosts = map(partial(host_of, name), range(len(shares := decoded(placement))), shares)
    return {host: {line.name: line.value for line in sheet(found, rank).lines} for rank, host in enumerate(hosts)}


def pod(name: str, node_rank: int) -> str:
    """Name of the Pod, which is its host name, too."""
    return f"{name}-a1-worker-{node_rank:05d}"


def host_of(name: str, position: int, share: BookingShare) -> str:
    """That of any share's."""
    return pod(name, position) if share.server is None else f"{name}-a1-ps-{share.server:05d}"


def seen(jobs: Jobs, name: str) -> Mapping[str, Sequence[dict[str, Any]]]:
    """What each process of each Pod saw, by the Pod's name; each where its node is, which proves it was there."""
    found: dict[str, list[dict[str, Any]]] = {}
    nodes = {node.site.name: node for node in jobs.stand.nodes}
    for rank, share in enumerate(planned(jobs, name)):
        host = host_of(name, rank, share)
        files = sorted(nodes[share.node].reports.glob(f"{host}-*.json"))
        found[host] = [json.loads(file.read_text()) for file in files]
    return found


def facts(jobs: Jobs, name: str) -> list[dict[str, Any]]:
    """What the script's processes printed, in no order. Launchers mix lines, and put names before them."""
    found = []
    for rank, share in enumerate(planned(jobs, name)):
        log, at = jobs.log(host_of(name, rank, share)), 0
        while (at := log.find('{"', at)) >= 0:
            try:
                each, at = json.JSONDecoder().raw_decode(log, at)
            except ValueError:
                at += 1
                continue
            if "host" in each:
                found.append(each)
    return found
