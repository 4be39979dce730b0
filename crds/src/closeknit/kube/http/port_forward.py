"""One TCP connection to a port of a Pod, by the API server and the kubelet, inside a WebSocket.

Each message begins with the number of its channel: 0 is the connection, 1 tells what is wrong with it. The first one of
each is the port, in two bytes (kubelet's cri/streaming/portforward/websocket.go).
"""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from closeknit.api.text.printable import printable
from closeknit.kube.errors import Unavailable

if TYPE_CHECKING:
    import aiohttp

PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PORT_BYTES = 2


class PortForward:
    """The connection. It lasts as long as the WebSocket."""

    def __init__(self, websocket: "aiohttp.ClientWebSocketResponse") -> None:
        self._websocket = websocket

    async def send(self, data: bytes) -> None:
        """Sends it. Raises OSError once the connection is gone."""
        await self._websocket.send_bytes(bytes([_DATA]) + data)

    async def received(self) -> AsyncGenerator[bytes, None]:
        """What comes, until the other end has no more. Raises Unavailable for what the kubelet says is wrong."""
        to_skip = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}
        async for message in self._websocket:
            if not isinstance(message.data, bytes) or not message.data or message.data[0] not in to_skip:
                continue
            channel = message.data[0]
            skipped = to_skip[channel]
            data = message.data[1 + skipped :]
            to_skip[channel] = max(0, skipped - (len(message.data) - 1))
            if data and channel == _ERROR:
                raise Unavailable(printable(f"the kubelet says: {data.decode(errors='replace')}"))
            if data:
                yield data
