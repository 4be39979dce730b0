"""`closeknit map` against an API server whose kubelet forwards to a real map."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.map import command
from closeknit.cli.map.command import MapArguments, forward
from closeknit.cli.map.operator_pod import NAMESPACE, operator_pod
from closeknit.kube.errors import Unavailable
from closeknit.kube.http.port_forward import PortForward
from faults.http_server import serving
from harness.map_stage import Stage
from scenarios.story import Story, dra_node

TOKEN = "secret"  # noqa: S105 - of nobody


def pod(name: str, *, is_ready: bool = True, port: int = 8080, **spec: Any) -> dict[str, Any]:
    container = {"name": "operator", "ports": [{"name": "http", "containerPort": port}], **spec}
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    return {"metadata": {"name": name}, "spec": {"containers": [container]}, "status": {"conditions": conditions}}


@dataclass
class Cluster:
    """An API server, and what is behind the port of each Pod."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0
    """Of this machine, where a forwarded connection leads; 0: nobody listens."""
    refuses: int = 0
    asked: list[str] = field(default_factory=list)
    passed: bytes = b""
    """What came from the browser."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if not request.path.endswith("/portforward"):
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": self.pods})
        if self.refuses:
            return web.json_response({"message": "no"}, status=self.refuses)
        if request.headers.get("Accept", "*/*") != "*/*":  # as the server of a kubelet, which has no type for it
            return web.Response(status=406)
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(struct.pack("<BH", channel, int(request.query["ports"])))
        if not self.port:
            await socket.send_bytes(b"\x01nobody listens on it")
            await socket.close()
            return socket
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)

        async def back() -> None:
            while data := await reader.read(1 << 16):
                await socket.send_bytes(b"\x00" + data)
            await socket.close()

        task = asyncio.create_task(back())
        try:
            async for message in socket:
                assert isinstance(message.data, bytes) and message.data[0] == 0
                self.passed += message.data[1:]
                writer.write(message.data[1:])
        finally:  # also where the story ends first: a later test would be told of a socket that is left open
            task.cancel()
            writer.close()
        return socket


@asynccontextmanager
async def forwarded(cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[str]:
    """The address that is printed, in plain HTTP: the map of this test has no certificate."""
    async with serving(cluster.answer, folder, TOKEN):
        asked = MapArguments(Reach(folder / "kubeconfig"), 0, opens_browser=False)
        task = asyncio.create_task(forward(asked))
        told = ""
        while "/map/" not in told and not task.done():
            await asyncio.sleep(0.01)
            told += capsys.readouterr().out
        try:
            if task.done():
                task.result()
            yield told.split()[0].replace("https", "http")
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def refused(cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    async def story() -> None:
        async with forwarded(cluster, folder, capsys):
            pass

    with pytest.raises(NotThere) as found:
        asyncio.run(asyncio.wait_for(story(), 20))
    return str(found.value)


def test_the_map_comes_through_with_its_headers_and_no_credential_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> tuple[str, bytes, Any, Cluster]:
        async with Stage.of(Story(*dra_node("gpu-1"))).served() as port:
            cluster = Cluster([pod("old", is_ready=False), pod("operator-b", port=9090)], port)
            async with forwarded(cluster, tmp_path, capsys) as url, aiohttp.ClientSession() as browser:
                async with browser.get(url) as page:
                    headers, policy = page.headers, page.headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy and page.status == 200
                async with browser.get(f"{url}stream", headers={"Closeknit-Map": "1"}) as stream:
                    begun = await stream.content.readuntil(b'"gpu-1"')
                return url, begun, headers, cluster

    url, begun, _, cluster = asyncio.run(asyncio.wait_for(story(), 20))
    assert url.startswith("http://127.0.0.1:") and url.endswith("/map/")
    assert b"data: {" in begun
    assert cluster.asked[0].startswith("/api/v1/namespaces/closeknit-system/pods?")
    assert "app.kubernetes.io%2Fcomponent%3Doperator" in cluster.asked[0]
    assert cluster.asked[-1] == "/api/v1/namespaces/closeknit-system/pods/operator-b/portforward?ports=9090"
    assert TOKEN.encode() not in cluster.passed and b"Authorization" not in cluster.passed


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (Cluster([]), "no operator runs in namespace closeknit-system: name its namespace by --namespace"),
        (Cluster([pod("a", is_ready=False)]), "no Pod of the operator is ready: a in namespace closeknit-system"),
        (Cluster([pod("a", args=["--no-map"])]), "this operator serves no map: the chart's map.enabled"),
        (Cluster([pod("a")], refuses=403), "you may not forward a port to the operator: that takes list of pods"),
        (Cluster([pod("a")], refuses=401), "cannot ask the cluster"),
        (Cluster([pod("a")], refuses=500), "cannot ask the cluster"),
    ],
)
def test_why_there_is_no_way(cluster: Cluster, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(cluster, tmp_path, capsys)
    assert told.startswith(words) and "\n" not in told


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        async with taken, serving(Cluster([pod("a")]).answer, tmp_path, TOKEN):
            await forward(MapArguments(Reach(tmp_path / "kubeconfig"), port, opens_browser=False))

    with pytest.raises(NotThere, match=r"127.0.0.1:\d+ cannot be used: .*; name another one by --port, 0 for any"):
        asyncio.run(asyncio.wait_for(story(), 20))


def test_a_pod_that_is_gone_is_replaced_and_what_is_wrong_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> tuple[list[str], int]:
        async with Stage.of(Story(*dra_node("gpu-1"))).served() as port:
            cluster = Cluster([pod("first")])
            async with forwarded(cluster, tmp_path, capsys) as url, aiohttp.ClientSession() as browser:
                for _ in range(2):
                    with pytest.raises(aiohttp.ClientError):
                        await browser.get(url)
                cluster.pods, cluster.port = [pod("second")], port
                with pytest.raises(aiohttp.ClientError):  # it is at the first one until then
                    cluster.refuses = 404
                    await browser.get(url)
                cluster.refuses = 0
                async with browser.get(url) as page:
                    return cluster.asked, page.status

    asked, status = asyncio.run(asyncio.wait_for(story(), 20))
    assert status == 200
    assert asked[-1].startswith("/api/v1/namespaces/closeknit-system/pods/second/portforward")
    lost = [line for line in capsys.readouterr().err.splitlines() if "nobody listens on it" in line]
    assert lost == ["closeknit: the way to the operator was lost: the kubelet says: nobody listens on it"]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([b"\x00\x90\x1f", b"\x01\x90\x1f", b"\x00ab", b"\x00c"], b"abc"),
        ([b"\x00\x90", b"\x00\x1fab"], b"ab"),  # the port in two messages
        ([b"\x00\x90\x1fab"], b"ab"),
        ([b"", "text", b"\x07x", b"\x00\x90\x1fa"], b"a"),
    ],
)
def test_channels(messages: list[Any], expected: bytes) -> None:
    class Socket:
        def __aiter__(self) -> AsyncIterator[Any]:
            return self._given()

        async def _given(self) -> AsyncIterator[Any]:
            for data in messages:
                yield aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, data, None)

    async def story(of: Socket) -> bytes:
        return b"".join([piece async for piece in PortForward(of).received()])  # type: ignore[arg-type]

    assert asyncio.run(story(Socket())) == expected
    messages.append(b"\x01\x90\x1fgone\x1b[2J")
    with pytest.raises(Unavailable, match=r"the kubelet says: "):
        asyncio.run(story(Socket()))


def test_it_listens_on_the_loopback_alone_and_opens_no_browser_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.LOOPBACK == "127.0.0.1"
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not command._has_window()


def test_it_looks_where_the_readme_installs_it_and_then_everywhere(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[4] / "README.md").read_text()
    assert f"helm install closeknit helm/closeknit --namespace {NAMESPACE} --create-namespace" in readme
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        elsewhere = {**pod("operator"), "metadata": {"name": "operator", "namespace": "gpu-infra"}}
        if not request.path.endswith("/pods"):
            return web.json_response({}, status=404)
        if request.path == "/api/v1/pods" and is_tenant:
            return web.json_response({"message": "no"}, status=403)
        items = [elsewhere] if request.path in ("/api/v1/pods", "/api/v1/namespaces/gpu-infra/pods") else []
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def found(namespace: str | None) -> str:
        async with serving(answer, tmp_path) as api:
            return (await operator_pod(api, namespace)).path

    is_tenant = False
    assert asyncio.run(found(None)) == "/api/v1/namespaces/gpu-infra/pods/operator"
    assert asked == ["/api/v1/namespaces/closeknit-system/pods", "/api/v1/pods"]
    with pytest.raises(NotThere, match="no operator runs in namespace other: name its namespace by --namespace"):
        asyncio.run(found("other"))
    is_tenant = True
    with pytest.raises(NotThere, match="no operator runs in namespace closeknit-system: name its namespace by"):
        asyncio.run(found(None))
    assert asyncio.run(found("gpu-infra")) == "/api/v1/namespaces/gpu-infra/pods/operator"
