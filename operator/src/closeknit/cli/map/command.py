"""`closeknit map`: forwards a port of this machine's loopback to the operator, and opens the map there.

The bytes pass as they are, in the TLS that browser and operator make between them. No credential of the kubeconfig is
in them: the page asks for a token, and keeps it.
"""

import asyncio
import os
import sys
import webbrowser
from contextlib import suppress
from dataclasses import dataclass

from closeknit.api.text.printable import printable
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.live.cluster_connection import reached
from closeknit.cli.map.operator_pod import OperatorPod, not_allowed, operator_pod
from closeknit.kube.errors import ApiError, Forbidden
from closeknit.kube.http.http_api import HttpApi

LOOPBACK = "127.0.0.1"  # by number: `localhost` may be another one's port by IPv6
PIECE_BYTES = 1 << 15
MOST_CONNECTIONS = 64  # a browser opens six; as many as the operator serves


@dataclass(frozen=True, slots=True)
class MapArguments:
    """Where the operator is, and where the map is to be."""

    reach: Reach
    port: int
    """0: any that is free."""
    opens_browser: bool


async def forward(asked: MapArguments) -> None:
    """Forwards until it is interrupted. Raises NotThere where there is no way."""
    async with reached(asked.reach, missing="the cluster knows no Pods") as api:
        pod = await operator_pod(api, asked.reach.namespace)
        way = _Way(api, pod)
        await way.check()
        try:
            server = await asyncio.start_server(way.carry, LOOPBACK, asked.port)
        except OSError as error:
            words = f"{LOOPBACK}:{asked.port} cannot be used: {error.strerror}; name another one by --port, 0 for any"
            raise NotThere(printable(words)) from None
        async with server:
            url = f"https://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/map/"
            _tell(url, pod.namespace)
            if asked.opens_browser and _has_window():
                await asyncio.to_thread(webbrowser.open, url)
            await server.serve_forever()


def _tell(url: str, namespace: str) -> None:
    print(f"{url}\n")
    print("Ctrl-C ends it. The operator's certificate may be its own: the browser then asks whether to go on.")
    print("The page asks for a token, of an account that is bound to the ClusterRole closeknit-map-viewer:")
    print(printable(f"  kubectl create token map-reader -n {namespace} --duration=8h"), flush=True)


def _has_window() -> bool:
    """Whether a browser would have a window of its own; without one it would take this terminal."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class _Way:
    """The way to one Pod of the operator, and to the next one when it is gone."""

    def __init__(self, api: HttpApi, pod: OperatorPod) -> None:
        self._api = api
        self._pod = pod
        self._open = 0
        self._told = ""

    async def check(self) -> None:
        """Raises NotThere where no port may be forwarded."""
        try:
            async with self._api.port_forward(self._pod.path, self._pod.port):
                pass
        except Forbidden as error:
            raise not_allowed(self._pod.namespace, error) from None

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of this machine, until either end has no more."""
        if self._open >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._open += 1
        try:
            await self._carried(reader, writer)
        except (ApiError, NotThere, OSError) as error:
            await self._look_again()
            self._say(" ".join(str(error).split()))
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _carried(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._api.port_forward(self._pod.path, self._pod.port) as there:

            async def up() -> None:
                while piece := await reader.read(PIECE_BYTES):
                    await there.send(piece)

            async def down() -> None:
                async for piece in there.received():
                    writer.write(piece)
                    await writer.drain()
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

            ways = [asyncio.create_task(up()), asyncio.create_task(down())]
            try:
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in ways:
                    each.cancel()
                await asyncio.wait(ways)
            for each in done:
                with suppress(ConnectionError):  # the browser has closed it
                    each.result()

    async def _look_again(self) -> None:
        """Another Pod may have taken the place of one that is gone."""
        with suppress(ApiError, NotThere):
            self._pod = await operator_pod(self._api, self._pod.namespace)

    def _say(self, words: str) -> None:
        """Once, as long as it is the same."""
        if words != self._told:
            self._told = words
            print(printable(f"closeknit: the way to the operator was lost: {words}"), file=sys.stderr)
