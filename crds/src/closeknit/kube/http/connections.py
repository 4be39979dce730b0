"""Connections to one server that are kept, with one request at a time on each.

aiohttp's client follows redirects, keeps cookies, compresses and calls hooks. A create of 4 KB costs it 0.12 ms of CPU
and this one 0.03 ms, and a gang is a thousand creates. aiohttp takes 16 MB of memory, this 1 MB, and an agent of 80 MB
runs on every node (`make bench-own-http`, 2026-11-25, Python 3.11, aiohttp 3.14).
"""

import asyncio
import ssl
from math import inf
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

# Unused so long, a connection is not used again: something on the way may have forgotten it without a word.
KEPT_S = 15.0
MAX_HEAD_BYTES = 2**16  # of an answer; Go sends half a kilobyte


class HttpResponse(NamedTuple):
    """What a server has answered."""

    status: int
    retry_after: str
    """The header of this name; empty where there is none."""
    body: bytes


class LargeAnswer(Exception):  # noqa: N818 -- a fact about an answer, and no error of the server's
    """The answer has more bytes than the caller takes; the rest of it is not read."""


class Connections:
    """Connections to the server of one URL, opened when they are needed and none is free; closed by `close`."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext,
        server_name: str | None,
        *,
        connect_timeout_s: float,
        sent_within_s: float = inf,
    ) -> None:
        """Raises ValueError for a URL that names no server. `server_name`: whose certificate it shows, where that is
        not the host's. A request that cannot be sent within `sent_within_s`, because its connection took longer or the
        process was stopped meanwhile, is not sent: what allowed it may be over."""
        address = urlsplit(url)
        if not address.hostname or address.scheme not in {"http", "https"}:
            raise ValueError(f"{url} names no HTTP server")
        is_secure = address.scheme == "https"
        self._host, self._port = address.hostname, address.port or (443 if is_secure else 80)
        self._tls = tls if is_secure else None
        self._server_name = (server_name or self._host) if is_secure else None
        self._path = address.path.rstrip("/")
        self._named = f"Host: {address.netloc.rpartition('@')[2]}\r\n"
        self._connect_timeout_s = connect_timeout_s
        self._sent_within_s = sent_within_s
        self._open: set[_Connection] = set()
        self._free: list[_Connection] = []
        """Those without a request, the last used last."""

    async def ask(
        self, method: str, target: str, headers: str, body: bytes | None, *, most_bytes: int | None = None
    ) -> HttpResponse:
        """The answer to one request, whatever its status; `headers` are whole lines. Raises OSError, TimeoutError among
        it, where there is none, and LargeAnswer for a body of more than most_bytes. Nothing is sent twice."""
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._path}{target} HTTP/1.1\r\n{self._named}{headers}{length}\r\n"
        connection = self._taken()
        if connection is None:
            asked_at = asyncio.get_running_loop().time()
            connection = await self._connected()
            if asyncio.get_running_loop().time() - asked_at > self._sent_within_s:
                self._keep(connection)
                raise TimeoutError("it was not sent: the connection took too long")
        try:
            answer = await connection.ask(head.encode() + (body or b""), most_bytes)
        except BaseException:
            connection.drop()  # what it still answers would be taken for the answer to the next request
            raise
        if connection.is_usable:
            self._keep(connection)
        else:
            connection.drop()
        return answer

    def close(self) -> None:
        """Closes all of them, also those that wait for an answer."""
        for connection in tuple(self._open):
            connection.drop()
        self._free.clear()

    def _taken(self) -> "_Connection | None":
        """The last used of the free ones that can still be used."""
        now = asyncio.get_running_loop().time()
        while self._free:
            connection = self._free.pop()
            if connection.is_usable and now - connection.used_at < KEPT_S:
                return connection
            connection.drop()
        return None

    def _keep(self, connection: "_Connection") -> None:
        now = connection.used_at = asyncio.get_running_loop().time()
        while self._free and now - self._free[0].used_at >= KEPT_S:
            self._free.pop(0).drop()
        self._free.append(connection)

    async def _connected(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._open),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._server_name,
                    happy_eyeballs_delay=0.25,  # RFC 8305
                )
        except OSError as error:
            said = str(error) or type(error).__name__
            raise ConnectionError(f"Cannot connect to host {self._host}:{self._port}: {said}") from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, open_: "set[_Connection]") -> None:
        self.used_at = 0.0  # on the event loop's clock
        self._open = open_
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._is_kept = True
        self._most_bytes: int | None = None
        self._begin()

    @property
    def is_usable(self) -> bool:
        """Whether it can be asked once more."""
        return self._is_kept and self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes, most_bytes: int | None) -> HttpResponse:
        """The answer to a request. Raises OSError or LargeAnswer."""
        if self._transport is None:
            raise ConnectionResetError("the connection was closed")
        self._most_bytes = most_bytes
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def drop(self) -> None:
        """Closes it at once: a farewell by TLS would have to be waited for, and the peer may be gone."""
        self._is_kept = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's: it is open."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream, for the type checker
        self._transport = transport
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's: it is closed, by whom ever."""
        self._open.discard(self)
        self._transport = None
        if exc is None and self._lasts_to_the_end:
            self._answered()
        else:
            self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        """asyncio's: some of an answer."""
        if self._waiting is None:  # no request is open: it would be taken for the next answer
            self.drop()
            return
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the answer is no HTTP: {error}"))
            self.drop()
        if not self._has_head and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(ConnectionError("the answer's head does not end"))
            self.drop()

    def on_message_begin(self) -> None:
        """httptools': an answer begins."""
        if self._waiting is None:
            self._is_kept = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools': one header of it."""
        match name.lower():
            case b"retry-after":
                self._retry_after = value.decode(errors="replace")
            case b"content-length" | b"transfer-encoding":
                self._tells_length = True

    def on_headers_complete(self) -> None:
        """httptools': its head is whole."""
        self._has_head = True

    def on_body(self, piece: bytes) -> None:
        """httptools': a piece of its body."""
        self._body_bytes += len(piece)
        if self._most_bytes is not None and self._body_bytes > self._most_bytes:
            self._pieces.clear()
            self._fail(LargeAnswer(f"the answer has more than {self._most_bytes} bytes"))
            self.drop()
            return
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """httptools': it is whole."""
        if 100 <= self._parser.get_status_code() < 200:
            self._begin()  # another follows
        elif self._waiting is not None:
            self._is_kept = self._is_kept and self._parser.should_keep_alive()
            self._answered()

    @property
    def _lasts_to_the_end(self) -> bool:
        """Whether the end of the connection is that of the answer."""
        return self._has_head and not self._tells_length

    def _begin(self) -> None:
        self._pieces: list[bytes] = []
        self._retry_after = ""
        self._tells_length = self._has_head = False
        self._head_bytes = self._body_bytes = 0

    def _answered(self) -> None:
        answer = HttpResponse(self._parser.get_status_code(), self._retry_after, b"".join(self._pieces))
        self._begin()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _fail(self, error: OSError | LargeAnswer) -> None:
        self._is_kept = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
