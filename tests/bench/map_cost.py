"""What the web map costs the operator at 1,000 nodes and 200 jobs, as one JSON line.

    PYTHONPATH=tests uv run python -m bench.map_cost [NODES JOBS STREAMS]

`first_ms` is the CPU time of the first map of a cluster, `next_ms` that of one after a change of one job and its nodes,
`frames_ms` that of what is sent to who has the one before; `first_kb` is what a new reader gets. `streams_core` is the
share of a core that so many open maps cost where the cluster changes every second, over real sockets, with the reading
of them in another process; `streams_mb` what they add to the memory of the process.
"""

import asyncio
import json
import multiprocessing
import re
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from closeknit.cluster.cluster import Cluster
from closeknit.webmap.frames import OPEN, frames
from closeknit.webmap.scene import EMPTY_SCENE, scene
from harness.map_stage import Stage, thousand
from scenarios.story import NOW

SECONDS = 20
REQUEST = b"GET /map/stream HTTP/1.1\r\nHost: localhost\r\nCloseknit-Map: 1\r\n\r\n"


def cpu_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of CPU, and the result."""
    began = time.process_time()
    found = work()
    return round((time.process_time() - began) * 1000, 1), found


def resident_kb() -> int:
    """Memory of this process now."""
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) if found else 0


def changed(cluster: Cluster, second: int) -> Cluster:
    """Some job has a new status, and all else is as it was."""
    keys = sorted(cluster.jobs)
    job = cluster.jobs[keys[second % len(keys)]]
    status = job.status.model_copy(update={"restarts": second})
    return cluster.with_job(job.model_copy(update={"status": status})).at(NOW + timedelta(seconds=second))


def read(port: int, streams: int) -> None:
    """Reads so many streams until it is ended."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        while await reader.read(1 << 16):
            pass

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(streams)))

    asyncio.run(all_of_them())


async def open_maps(cluster: Cluster, streams: int) -> tuple[float, float]:
    """Share of a core, and MB."""
    stage = Stage(cluster)
    async with stage.served() as port:
        before = resident_kb()
        readers = multiprocessing.get_context("spawn").Process(target=read, args=(port, streams), daemon=True)
        readers.start()
        await stage.feed._watched.wait()
        await asyncio.sleep(3)  # all of them have come
        assert stage.feed._watchers == streams
        work, own = 0.0, time.process_time()
        for second in range(SECONDS):
            began = time.process_time()
            stage.cluster = changed(stage.cluster, second)
            work += time.process_time() - began
            await asyncio.sleep(1)
        used = time.process_time() - own - work
        after = resident_kb()
        readers.terminate()
    return round(used / SECONDS, 4), round((after - before) / 1024, 1)


def measured(nodes: int = 1000, jobs: int = 200, streams: int = 50) -> dict[str, float]:
    """The figures, by name."""
    cluster = thousand(nodes, jobs)
    first_ms, first = cpu_ms(lambda: scene(cluster, None, NOW, "0", EMPTY_SCENE))
    later = changed(cluster, 1)
    next_ms, after = cpu_ms(lambda: scene(later, None, NOW, "0", first))
    frames_ms, _ = cpu_ms(lambda: frames(first, after, OPEN, NOW))
    first_kb = sum(map(len, frames(None, first, OPEN, NOW))) // 1024
    core, grown_mb = asyncio.run(open_maps(cluster, streams))
    told: dict[str, float] = {
        "nodes": nodes,
        "jobs": jobs,
        "first_ms": first_ms,
        "next_ms": next_ms,
        "frames_ms": frames_ms,
    }
    return told | {"first_kb": first_kb, "streams": streams, "streams_core": core, "streams_mb": grown_mb}


if __name__ == "__main__":
    print(json.dumps(measured(*map(int, sys.argv[1:]))))
