"""A login that is refused is read anew from where it came: a file changes, and nobody says so."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from closeknit.kube.api import Resource
from closeknit.kube.errors import Unauthorized
from faults.http_server import serving

NODES = Resource("", "v1", "nodes", namespaced=False)


def test_a_token_that_was_exchanged_in_its_file_is_used_after_one_refusal(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response({"metadata": {"name": "n"}}, status=200 if seen[-1].endswith("new") else 401)

    async def main() -> None:
        async with serving(handler, tmp_path) as api:
            with pytest.raises(Unauthorized):
                await api.get(NODES, "n")
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(kubeconfig.read_text().replace("secret", "new"))
            await api.get(NODES, "n")

    asyncio.run(main())
    assert seen == ["Bearer secret", "Bearer new"]
