"""What the machine around a program has to do with HttpApi, and what not."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from closeknit.kube.api import Resource
from closeknit.kube.errors import Unavailable
from faults.http_server import serving

NODES = Resource("", "v1", "nodes", namespaced=False)


async def an_object(_: web.Request) -> web.Response:
    return web.json_response({"metadata": {"name": "n"}})


async def name_of_node(folder: Path) -> str:
    async with serving(an_object, folder) as api:
        return str((await api.get(NODES, "n"))["metadata"]["name"])


def test_a_login_for_other_hosts_in_netrc_is_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password something\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert asyncio.run(name_of_node(tmp_path)) == "n"


@pytest.mark.parametrize(
    ("no_proxy", "error"),
    [
        pytest.param("", "127.0.0.1:1", id="it is used"),
        pytest.param("127.0.0.1", None, id="but not for its exceptions"),
    ],
)
def test_the_proxy_of_the_environment(
    no_proxy: str, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # where nobody listens
    monkeypatch.setenv("no_proxy", no_proxy)
    if error is None:
        assert asyncio.run(name_of_node(tmp_path)) == "n"
    else:
        with pytest.raises(Unavailable, match=error):
            asyncio.run(name_of_node(tmp_path))
