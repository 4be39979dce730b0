"""A login that is refused is read anew from where it came: a file changes, and nobody says so."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from closeknit.kube.api import Resource
from closeknit.kube.errors import Unauthorized
from closeknit.kube.login import LoginError
from closeknit.kube.pod_login import TOKEN_S, PodLogin
from faults import virtual_time
from faults.http_server import serving
from harness.certificates import Authority

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


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """What the kubelet mounts into a Pod."""
    (tmp_path / "ca.crt").write_bytes(Authority().certificate)
    (tmp_path / "token").write_text("first\n")
    return tmp_path


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_pod_logs_in_by_its_token_which_is_read_once_a_minute_and_after_a_refusal(mount: Path) -> None:
    async def main() -> None:
        login = PodLogin(POD, mount)
        assert (login.host, await login.authorization()) == ("https://10.0.0.1:443", "Bearer first")
        (mount / "token").write_text("second")
        assert await login.authorization() == "Bearer first"
        await login.renew()
        assert await login.authorization() == "Bearer second"
        (mount / "token").write_text("third")
        await asyncio.sleep(TOKEN_S)
        assert await login.authorization() == "Bearer third"

    virtual_time.run(main())


def test_a_pod_of_a_cluster_of_ipv6(mount: Path) -> None:
    assert PodLogin(POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, mount).host == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("token", "", "holds no token"),
        ("token", "a\nb", "holds no token"),
        ("ca.crt", "", "is no certificate"),
        ("ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "is no certificate"),
    ],
)
def test_a_pod_with_torn_files_says_so(file: str, content: str, words: str, mount: Path) -> None:
    (mount / file).write_text(content)
    with pytest.raises(LoginError, match=words):
        PodLogin(POD, mount)


def test_a_pod_without_a_service_account_says_so(mount: Path) -> None:
    (mount / "token").unlink()
    with pytest.raises(OSError, match="token"):
        PodLogin(POD, mount)
    with pytest.raises(LoginError, match="do not name an API server"):
        PodLogin({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, mount)


def test_a_pod_needs_no_library_for_kubeconfigs() -> None:
    """Which an agent of 80 MB has no room for."""
    program = "import sys; import closeknit.kube.http, closeknit.kube.pod_login; print('kubernetes' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"
