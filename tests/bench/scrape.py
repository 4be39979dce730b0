"""What a scrape of the operator costs on 5,000 nodes with 1,000 jobs: one JSON line.

    PYTHONPATH=tests uv run python -m bench.scrape

64 gangs of 64 GPUs run, so that closeknit_rank_info has as many lines as it may have, and the other jobs wait. Names
are as long as people make them, and each metric with labels has thirty series. The web server serves by HTTPS with a
certificate of its own, as in a Pod. `scrape_ms` is from the connection to the last byte, the handshake with it, for a
client in the same process. `lag_ms` is the longest that the event loop was late meanwhile. `totals_cpu_ms` and
`ranks_cpu_ms` are of the thread that decides, every five seconds; `answer_cpu_ms` of the one that writes an answer.
"""

import asyncio
import json
import ssl
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import product
from uuid import UUID

from bench.queue_depth import NOW, machines, running
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.store.watched_kinds import from_document
from closeknit.controller.gauges.ranks import LIMIT, rank_info
from closeknit.controller.gauges.totals import totals
from closeknit.controller.interpreter import share_the_interpreter
from closeknit.controller.process import Process
from closeknit.runtime.address import Address
from closeknit.runtime.responsive import measure_lag
from closeknit.runtime.serving import OwnCertificate
from faults.memory_api import MemoryApi
from faults.store import Store
from harness.operator_bed import unverified
from scenarios.manifests import Manifest, training_job

NODES, JOBS, GANGS, NODES_OF_A_GANG, ROUNDS, SERIES = 5_000, 1_000, 64, 8, 20, 30


def objects() -> Iterator[Manifest]:
    """The cluster's, with uuids of real length."""
    numbers = iter(range(1, 8 * NODES + 1))
    for manifest in machines(NODES):
        for gpu in manifest.get("spec", {}).get("gpus", ()):
            gpu["uuid"] = f"GPU-{UUID(int=next(numbers) << 60)}"
        yield manifest
    for number in range(GANGS):
        first = number * NODES_OF_A_GANG
        shares = [(node, range(8)) for node in range(first, first + NODES_OF_A_GANG)]
        yield from running(f"llama-70b-pretraining-run-{number:03d}", shares)
    for number in range(JOBS - GANGS):
        pending = {"reason": "InsufficientGPUs", "message": "", "since": "2026-11-26T00:00:00Z"}
        yield training_job(f"waits-{number:04d}", spec={"gpus": 64}, state="Queued", pending=pending)


def filled(process: Process) -> None:
    """Each metric with labels has as many series as a busy operator's."""
    for collector in process.metrics.registry._collector_to_names:
        names = getattr(collector, "_labelnames", ())
        if names and not getattr(collector, "_metrics", None):
            for values in list(product(*(("x" * 20 + str(each) for each in range(SERIES)) for _ in names)))[:SERIES]:
                collector.labels(*values)  # type: ignore[attr-defined]


def median_ms(work: Callable[[], object]) -> float:
    """CPU of five times."""
    took = []
    for _ in range(5):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return round(1000 * statistics.median(took), 1)


def shown(process: Process, cluster: Cluster) -> dict[str, float]:
    """Shows the cluster, and says what that takes."""
    process.metrics.show(totals(cluster, NOW))
    ranks = rank_info(cluster, LIMIT)
    assert ranks.ranks == LIMIT and ranks.text
    process.metrics.show_ranks(ranks)
    return {
        "totals_cpu_ms": median_ms(lambda: totals(cluster, NOW)),
        "ranks_cpu_ms": median_ms(lambda: rank_info(cluster, LIMIT)),
    }


async def scraped(port: int, context: ssl.SSLContext) -> int:
    """Bytes of one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    text = await reader.read()
    writer.close()
    assert text.startswith(b"HTTP/1.1 200")
    return len(text)


async def main() -> dict[str, float]:
    """The figures."""
    cluster = build([found for each in objects() if (found := from_document(each)) is not None])
    share_the_interpreter()
    certificate = await OwnCertificate.made()
    process = Process(MemoryApi(Store()), Address("127.0.0.1", 0), None, certificate=certificate)
    filled(process)
    figures = shown(process, cluster)
    await process.web.start()
    took, lags, size = [], list[float](), 0
    measuring = asyncio.create_task(measure_lag(lags.append))
    for _ in range(ROUNDS):
        began = time.perf_counter()
        size = await scraped(process.web.port, unverified())
        took.append(1000 * (time.perf_counter() - began))
    measuring.cancel()
    await process.web.stop()
    return {
        "nodes": NODES,
        "jobs": JOBS,
        "ranks": LIMIT,
        "scrape_ms": round(statistics.median(took), 1),
        "longest_scrape_ms": round(max(took), 1),
        "lag_ms": round(1000 * max(lags), 1),
        "answer_cpu_ms": median_ms(process.web.exposition),
        "kilobytes": round(size / 1000),
        **figures,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
