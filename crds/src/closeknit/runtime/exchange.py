"""One request and its answer on one connection of a small web server, whatever bytes come.

aiohttp.web would do, and takes 19 MB of memory: an agent of 80 MB runs on every node and needs no other part of
aiohttp. A scrape of 100 KB costs 0.26 ms of CPU here and 0.42 there (`make bench-own-http`, 2026-11-25).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus

import httptools

_log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 8192  # request line and headers: a token takes one or two thousand
# A reader of a stream that takes nothing for so long is gone, or wants our memory.
STUCK_S = 15.0
FAREWELL_S = 5.0  # and for what it has not taken when the stream ends


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is asked: a path without its query, and headers by lower-cased name, the first of each."""

    path: str
    headers: Mapping[str, str]
    address: str
    """Whose; empty where the transport does not say."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered; `text` is told to be of the type."""

    status: int
    text: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    def wire(self) -> bytes:
        """The bytes of the answer, which is the last one of its connection."""
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.text)}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            "Connection: close",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + self.text


@dataclass(frozen=True, slots=True)
class StreamedReply:
    """An answer that goes on: pieces of at most some hundred KB, until there are no more or the reader is gone."""

    pieces: AsyncGenerator[bytes, None]
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> bytes:
        """The bytes before the first piece. The end of the connection is the end of the answer."""
        lines = [
            "HTTP/1.1 200 OK",
            f"Content-Type: {self.content_type}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            "Connection: close",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


Handler = Callable[[HttpRequest], Awaitable[Reply | StreamedReply]]


def _stay() -> None:
    """Nothing bounds how long the connection lasts."""


class Exchange(asyncio.Protocol):
    """Answers the first GET as soon as its headers are there, without its body, and no second request."""

    def __init__(self, routes: Mapping[str, Handler], stay: Callable[[], None] = _stay) -> None:
        """`stay` is called once, where the answer is a stream: it lasts longer than any other answer may."""
        self._routes = routes
        self._stay = stay
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._received = 0
        self._target = b""
        self._headers: dict[str, str] = {}
        self._is_asked = False
        self._task: asyncio.Task[None] | None = None
        self._farewell: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio: somebody is there."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio: bytes of the request, or of what comes after it."""
        if self._is_asked:
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._is_asked:
                self._refuse(HTTPStatus.BAD_REQUEST)
            return
        if not self._is_asked and self._received > MAX_HEAD_BYTES:
            self._refuse(HTTPStatus.BAD_REQUEST)

    def pause_writing(self) -> None:
        """See asyncio: the client is slower than we are."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """See asyncio: it has caught up."""
        self._may_write.set()

    def connection_lost(self, _: Exception | None) -> None:
        """See asyncio: the client is gone."""
        if self._task is not None:
            self._task.cancel()
        if self._farewell is not None:
            self._farewell.cancel()

    def on_url(self, url: bytes) -> None:
        """Called by the parser: the target, or a piece of it."""
        if not self._is_asked:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser: one header. Bytes that are no ASCII stay no ASCII. Those of a second request, or behind
        a body, count for nothing."""
        if not self._is_asked:
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Called by the parser: the head is whole."""
        if self._is_asked:  # by a request before it, in the same bytes
            return
        handler = self._routes.get(path := self._target.partition(b"?")[0].decode("latin-1"))
        if len(self._target) + sum(map(len, (*self._headers, *self._headers.values()))) > MAX_HEAD_BYTES:
            self._refuse(HTTPStatus.BAD_REQUEST)
        elif handler is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif self._parser.get_method() != b"GET":
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET"})
        else:
            self._is_asked = True
            assert self._transport is not None  # noqa: S101 - it brought the bytes
            address = str((self._transport.get_extra_info("peername") or ("",))[0])
            self._task = asyncio.ensure_future(self._answered(handler, HttpRequest(path, self._headers, address)))

    async def _answered(self, handler: Handler, request: HttpRequest) -> None:
        try:
            reply = await handler(request)
        except Exception:
            _log.exception("%s was not answered", request.path)
            reply = Reply(HTTPStatus.INTERNAL_SERVER_ERROR)
        if isinstance(reply, StreamedReply):
            await self._stream(reply, request)
        else:
            self._send(reply)

    async def _stream(self, reply: StreamedReply, request: HttpRequest) -> None:
        transport = self._transport
        assert transport is not None  # noqa: S101 - it brought the request
        self._stay()
        transport.write(reply.head())
        try:
            async with aclosing(reply.pieces) as pieces:
                async for piece in pieces:
                    transport.write(piece)
                    async with asyncio.timeout(STUCK_S):
                        await self._may_write.wait()
        except TimeoutError:
            transport.abort()
        except Exception:
            _log.exception("%s has ended early", request.path)
            transport.abort()
        transport.close()
        self._farewell = asyncio.get_running_loop().call_later(FAREWELL_S, transport.abort)

    def _refuse(self, status: HTTPStatus, headers: Mapping[str, str] | None = None) -> None:
        self._is_asked = True
        self._send(Reply(status, status.phrase.encode(), headers=headers or {}))

    def _send(self, reply: Reply) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(reply.wire())
            self._transport.close()
