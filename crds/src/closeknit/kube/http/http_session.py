"""Requests whose answer never ends, and those through a proxy: aiohttp's. Imported when the first one is sent, for it
takes 12 MB, and an agent without a proxy sends none.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import aiohttp

from closeknit.kube.http.connections import HttpResponse, LargeAnswer

READ_BUFFER_BYTES = 2**21  # one object of a watch may have 1.5 MiB

# As Go's default, which kubectl has, but for the number: its nine probes take 2.5 minutes. A dead peer is known after
# 15 + 15 * 3 = 60 s. Proxies answer for themselves: a reader bounds silence besides.
KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3}


class RefusedUpgrade(Exception):  # noqa: N818 -- a fact about an answer
    """The server answers a WebSocket's request by this status."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class HttpSession:
    """Asks one API server; closed by `close`. Every way to have no answer is an OSError, or a TimeoutError among it."""

    def __init__(
        self, host: str, tls: ssl.SSLContext, server_name: str | None, proxy: str | None, *, connect_timeout_s: float
    ) -> None:
        self._host = host
        self._server_name = server_name
        self._proxy = proxy
        self._connect_timeout_s = connect_timeout_s
        # Not the library's own session: it looks into the environment and into ~/.netrc before every request, in two
        # turns of another thread, which costs as much as all the rest of a request; and a login for every host in there
        # would have it refuse ours.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),  # as client-go has it: an API server knows who asks by the login
            read_bufsize=READ_BUFFER_BYTES,
            trust_env=False,
        )

    async def close(self) -> None:
        """Closes all connections and what reads from them."""
        await self._session.close()

    async def answer(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        most_bytes: int | None = None,
    ) -> HttpResponse:
        """The answer, whatever its status, within so many seconds. Raises LargeAnswer for a body of more than
        most_bytes."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=self._connect_timeout_s)
        try:
            return await whole(await self._sent(method, target, body, headers, timeout), most_bytes)
        except aiohttp.ClientError as error:
            raise _lost(error) from error

    @asynccontextmanager
    async def stream(self, target: str, headers: Mapping[str, str]) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """The head of an answer to a GET, whose body never ends. What goes wrong while it is read is an OSError."""
        # No limit on reading here: how long silence may last is for the reader of the stream to say.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s)
        try:
            response = await self._sent("GET", target, None, headers, timeout)
            try:
                yield response
            finally:
                _hang_up(response)
        except aiohttp.ClientError as error:
            raise _lost(error) from error

    @asynccontextmanager
    async def websocket(
        self, target: str, headers: Mapping[str, str], protocol: str
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse, None]:
        """A WebSocket of this subprotocol. Raises RefusedUpgrade where the answer is another one."""
        try:
            async with asyncio.timeout(2 * self._connect_timeout_s):
                socket_ = await self._session.ws_connect(
                    f"{self._host}{target}",
                    headers=headers,
                    protocols=(protocol,),
                    proxy=self._proxy,
                    server_hostname=self._server_name,
                    timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
                )
        except aiohttp.WSServerHandshakeError as error:
            raise RefusedUpgrade(error.status) from error
        except aiohttp.ClientError as error:
            raise _lost(error) from error
        try:
            yield socket_
        except aiohttp.ClientError as error:
            raise _lost(error) from error
        finally:
            await socket_.close()

    async def _sent(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 -- aiohttp's own, it knows connecting from reading
    ) -> aiohttp.ClientResponse:
        return await self._session.request(
            method,
            f"{self._host}{target}",
            data=body,
            headers=headers,
            timeout=timeout,
            proxy=self._proxy,
            server_hostname=self._server_name,
        )


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """One whose connection the kernel asks about when nothing comes: else nothing ends a stream whose peer is gone."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


async def whole(response: aiohttp.ClientResponse, most_bytes: int | None = None) -> HttpResponse:
    """The answer with all of its body. Raises LargeAnswer."""
    try:
        pieces, size = [], 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if most_bytes is not None and size > most_bytes:
                raise LargeAnswer(f"the answer has more than {most_bytes} bytes")  # noqa: TRY301 -- it is closed below
        return HttpResponse(response.status, response.headers.get("Retry-After", ""), b"".join(pieces))
    except BaseException:
        response.close()
        raise


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Ends a stream at once: a farewell by TLS would have to be waited for, and the peer may be gone."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _lost(error: aiohttp.ClientError) -> OSError:
    return ConnectionError(str(error) or type(error).__name__)
