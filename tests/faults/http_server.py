"""A small HTTP server in the place of an API server, for what only a real connection can show."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from closeknit.kube.http.http_api import HttpApi

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(
    handler: Handler,
    folder: Path,
    token: str = "secret",  # noqa: S107 -- of nobody
    **options: Any,
) -> AsyncGenerator[HttpApi, None]:
    """An HttpApi, logged in by a token of a kubeconfig, whose server is `handler`."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    kubeconfig = write_kubeconfig(folder, f"http://127.0.0.1:{runner.addresses[0][1]}", token)
    try:
        async with await HttpApi.connect(kubeconfig=kubeconfig, user_agent="closeknit-test/1", **options) as api:
            yield api
    finally:
        await runner.cleanup()


def write_kubeconfig(folder: Path, server: str, token: str = "secret") -> Path:  # noqa: S107 -- of nobody
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path
