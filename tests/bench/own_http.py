"""What the HTTP client and the web server of our own save beside aiohttp: CPU of requests and memory, as one JSON line.

    PYTHONPATH=tests uv run python -m bench.own_http

Both clients send the same creates of 4 KB to the same server on loopback, in turns; both servers answer the same
/metrics of 100 KB to the same client. CPU is that of the measured process alone. Memory is what a fresh interpreter has
more after its imports.
"""

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from statistics import median
from time import process_time

from aiohttp import web

from closeknit.kube.http.connections import Connections
from closeknit.kube.http.http_session import HttpSession
from closeknit.runtime.exchange import Exchange, HttpRequest, Reply
from closeknit.runtime.turnstile import Turnstile

REQUESTS, ROUNDS = 1000, 5
BODY = json.dumps({"kind": "Pod", "data": "x" * 4000}).encode()
CREATED = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
METRICS = b"closeknit_jobs 1\n" * 6000
IMPORTS = {
    "own client": "closeknit.kube.http.connections",
    "own server": "closeknit.runtime.web",
    "aiohttp": "aiohttp",
    "aiohttp and its server": "aiohttp.web",
}


class _Created(asyncio.Protocol):
    """Answers each create at once: a body is read by its length, as an API server's is."""

    def __init__(self) -> None:
        self._left = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._left += data
        while (end := self._left.find(b"\r\n\r\n")) >= 0 and len(self._left) >= end + 4 + len(BODY):
            self._left = self._left[end + 4 + len(BODY) :]
            self._transport.write(CREATED)


def _serve(port: "SimpleQueue[int]") -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Created, "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def _get(port: int, requests: int) -> None:
    """Scrapes so often, one connection each, as Prometheus may."""

    async def main() -> None:
        for _ in range(requests):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            await reader.read(-1)
            writer.close()

    asyncio.run(main())


async def _cpu_ms(ask: Callable[[], Awaitable[object]]) -> float:
    """CPU ms of one request, of so many one after the other."""
    began = process_time()
    for _ in range(REQUESTS):
        await ask()
    return (process_time() - began) * 1000 / REQUESTS


async def _clients(port: int) -> dict[str, float]:
    url, tls = f"http://127.0.0.1:{port}", ssl.create_default_context()
    own = Connections(url, tls, None, connect_timeout_s=5)
    theirs = HttpSession(url, tls, None, None, connect_timeout_s=5)
    found: dict[str, list[float]] = {"own": [], "aiohttp": []}
    for _ in range(ROUNDS):
        found["own"].append(await _cpu_ms(lambda: own.ask("POST", "/pods", "Accept: application/json\r\n", BODY)))
        found["aiohttp"].append(
            await _cpu_ms(lambda: theirs.answer("POST", "/pods", BODY, {"Accept": "application/json"}, timeout_s=30))
        )
    own.close()
    await theirs.close()
    return {name: round(median(each), 4) for name, each in found.items()}


async def _servers() -> dict[str, float]:
    async def own_metrics(_: HttpRequest) -> Reply:
        return Reply(200, METRICS, "text/plain")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=METRICS, content_type="text/plain")

    loop = asyncio.get_running_loop()
    own = await loop.create_server(Turnstile(lambda _: Exchange({"/metrics": own_metrics})), "127.0.0.1", 0)
    application = web.Application()
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    ports = {"own": own.sockets[0].getsockname()[1], "aiohttp": runner.addresses[0][1]}
    found: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(ROUNDS):
        for name, port in ports.items():
            began = process_time()
            scraper = await asyncio.create_subprocess_exec(
                sys.executable, "-c", f"from bench.own_http import _get; _get({port}, {REQUESTS // 2})"
            )
            await scraper.wait()
            found[name].append((process_time() - began) * 1000 / (REQUESTS // 2))
    own.close()
    await runner.cleanup()
    return {name: round(median(each), 4) for name, each in found.items()}


def _memory_mb(module: str) -> float:
    program = (
        "import asyncio, ssl; from pathlib import Path\n"
        "def mb(): return int(Path('/proc/self/statm').read_text().split()[1]) * 4096 / 1e6\n"
        f"before = mb(); import {module}; print(mb() - before)"
    )
    return round(float(subprocess.check_output([sys.executable, "-c", program], text=True)), 1)


def main() -> None:
    context = get_context("spawn")
    port: SimpleQueue[int] = context.SimpleQueue()
    server = context.Process(target=_serve, args=(port,), daemon=True)
    server.start()
    print(
        json.dumps(
            {
                "client_cpu_ms": asyncio.run(_clients(port.get())),
                "server_cpu_ms": asyncio.run(_servers()),
                "import_mb": {name: _memory_mb(module) for name, module in IMPORTS.items()},
            }
        )
    )
    server.kill()


if __name__ == "__main__":
    main()
