"""`closeknit map` through a real API server: to a kubelet of this test, which forwards to the real operator."""

import asyncio
import json
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.map.command import MapArguments, forward
from harness.certificates import Authority
from harness.operator_bed import Bed

POD, NODE, PROTOCOL = "map-operator", "map-node", "v4.channel.k8s.io"


@asynccontextmanager
async def kubelet(folder: Path, leads_to: int, asked: list[str]) -> AsyncIterator[int]:
    """The port of a kubelet that forwards every port of every Pod to this one."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path_qs)
        if request.headers.get("Accept", "*/*") != "*/*":  # as the server of a kubelet, which has no type for it
            return web.Response(status=406)
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(struct.pack("<BH", channel, int(request.query["port"])))
        reader, writer = await asyncio.open_connection("127.0.0.1", leads_to)

        async def back() -> None:
            while data := await reader.read(1 << 16):
                await socket.send_bytes(b"\x00" + data)
            await socket.close()

        task = asyncio.create_task(back())
        async for message in socket:
            writer.write(message.data[1:])
        task.cancel()
        writer.close()
        return socket

    pair = Authority().server(["127.0.0.1"])
    (folder / "kubelet.pem").write_bytes(pair.private + pair.public)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "kubelet.pem")
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def an_operator_on(bed: Bed, port: int) -> None:
    """A Pod as the chart labels it, ready, on a node whose kubelet is at this port."""
    labels = {"app.kubernetes.io/name": "closeknit", "app.kubernetes.io/component": "operator"}
    container = {"name": "operator", "image": "a", "ports": [{"name": "http", "containerPort": 8080}]}
    spec = {"nodeName": NODE, "containers": [container]}
    metadata = {"name": POD, "namespace": bed.namespace, "labels": labels}
    bed.cluster.apply(
        json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}),
        json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
    )
    address = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"addresses": address, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    bed.cluster.patch("node", NODE, {"status": status}, subresource="status")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    bed.cluster.patch("pod", POD, {"status": ready}, bed.namespace, subresource="status")


def reader(bed: Bed, role: str) -> Path:
    """Somebody with a built-in role in the namespace."""
    account = f"--serviceaccount={bed.namespace}:{role}"
    where = f"--namespace={bed.namespace}"
    bed.cluster.kubectl("create", "serviceaccount", role, where)
    bed.cluster.kubectl("create", "rolebinding", role, f"--clusterrole={role}", account, where)
    return bed.cluster.service_account_kubeconfig(bed.namespace, role)


def test_who_may_forward_a_port_opens_the_map_and_who_may_not_is_told(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    may, may_not, asked = reader(bed, "edit"), reader(bed, "view"), list[str]()

    async def story() -> tuple[int, str, bytes]:
        async with kubelet(tmp_path, bed.port, asked) as port:
            await asyncio.to_thread(an_operator_on, bed, port)
            with pytest.raises(NotThere, match="you may not forward a port to the operator: that takes list of pods"):
                await forward(MapArguments(Reach(may_not, namespace=bed.namespace), 0, opens_browser=False))
            assert asked == []
            task = asyncio.create_task(
                forward(MapArguments(Reach(may, namespace=bed.namespace), 0, opens_browser=False))
            )
            told = ""
            while "/map/" not in told and not task.done():
                await asyncio.sleep(0.05)
                told += capsys.readouterr().out
            if task.done():
                task.result()
            url = told.split()[0].replace("https", "http")  # the operator of this test serves on localhost alone
            async with aiohttp.ClientSession() as browser:
                async with browser.get(url) as page:
                    status, policy = page.status, page.headers["Content-Security-Policy"]
                async with browser.get(f"{url}stream", headers={"Closeknit-Map": "1"}) as stream:
                    begun = await stream.content.readuntil(b"data: {")
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return status, policy, begun

    try:
        status, policy, begun = asyncio.run(asyncio.wait_for(story(), 60))
    finally:
        where = f"--namespace={bed.namespace}"
        # No kubelet ends it.
        bed.cluster.kubectl("delete", "pod", POD, where, "--grace-period=0", "--force", check=False)
        bed.cluster.delete("node", NODE)
    assert (status, "default-src 'none'" in policy, begun[-7:]) == (200, True, b"data: {")
    assert asked[0].startswith(f"/portForward/{bed.namespace}/{POD}")
