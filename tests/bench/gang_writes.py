"""Every write of the operator for a gang of 16 GPUs on two nodes, from the audit log of a real API server.

    PYTHONPATH=tests uv run python -m bench.gang_writes

Prints a Markdown table for each binding, as docs/decisions/0006 has them; milliseconds are since the first write.
"""

import asyncio
from collections.abc import Iterator

from bench.admission import Bench, Round
from bench.gpu_fleet import GPUS, write_fleet
from closeknit.kube.http.http_api import HttpApi
from harness.audit import AuditEvent
from harness.install import free_port, install
from harness.local_cluster import LocalCluster
from harness.operator_bed import USER

NODES = 2


async def started(*, dra: bool) -> Round:
    """One gang on a control plane of its own."""
    with LocalCluster() as cluster:
        install(cluster)
        async with await HttpApi.connect(kubeconfig=cluster.kubeconfig, user_agent="closeknit-bench/1") as api:
            await write_fleet(api, NODES, dra=dra)
            return await Bench(cluster, api, NODES, dra).ours("team", free_port())


def table(gang: Round) -> Iterator[str]:
    """Its lines, in the order in which the writes arrived."""
    yield "| ms | write | object | code |"
    yield "|---|---|---|---|"
    writes = sorted(gang.of(USER), key=lambda event: event.received)
    for event in writes:
        ms = (event.received - writes[0].received).total_seconds() * 1e3
        yield f"| {ms:.0f} | {_what(event)} | {event.body['kind']} {event.name} | {event.code} |"


def _what(event: AuditEvent) -> str:
    verb = " ".join(filter(None, ("dry run" if event.dry_run else "", event.verb, event.subresource)))
    match event.body:
        case {"kind": "Event", "reason": reason}:
            return f"{verb}: `{reason}`"
        case {"kind": "TrainingJob", "status": {"state": state}}:
            return f"{verb}: {state}"
    return verb


def main() -> None:
    """Prints both tables."""
    for dra, binding in ((False, "device plugin"), (True, "DRA")):
        print(f"{GPUS * NODES} GPUs on {NODES} nodes by {binding}:\n")
        print("\n".join(table(asyncio.run(started(dra=dra)))), end="\n\n")


if __name__ == "__main__":
    main()
