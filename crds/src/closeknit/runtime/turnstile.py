"""The turnstile of a small web server: so many connections at once, each for so long, whatever comes through them.

A connection whose answer is a stream leaves it, once the server has found that its reader may have that: such streams
are bounded by who serves them.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable

CONNECTIONS = 64  # a kubelet and a few scrapers need one each
# From the first byte of a request to the last of its answer: a scraper gives up after 10 s.
CONNECTION_S = 15.0


class Turnstile:
    """Makes the protocol of each new connection from `serve`'s.

    Where all places are taken, the oldest connection of the address that has most of them makes room: no number of
    strangers that wait for nothing keeps anybody out.
    """

    def __init__(
        self,
        serve: Callable[[Callable[[], None]], asyncio.Protocol],
        secured: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`serve` is given what its protocol calls where the connection is to stay. `secured` None: what is served goes
        over the wire as it is. A handshake happens inside of the turnstile, so that who begins one and does not go on
        is bounded as everybody."""
        self._serve = serve
        self._secured = secured
        self._open: dict[_Connection, str] = {}  # addresses, the oldest connection first
        self._staying: set[_Connection] = set()

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a connection that is about to be made."""
        return _Connection(self, self._serve, None if self._secured is None else self._secured())

    def close(self) -> None:
        """Ends every connection at once."""
        for connection in (*self._open, *self._staying):
            connection.cut()

    def enter(self, connection: "_Connection", address: str) -> None:
        """A connection was made."""
        if len(self._open) >= CONNECTIONS:
            crowd = Counter(self._open.values()).most_common(1)[0][0]
            oldest = next(each for each, its_address in self._open.items() if its_address == crowd)
            self.leave(oldest)
            oldest.cut()
        self._open[connection] = address

    def leave(self, connection: "_Connection") -> None:
        """A connection is over."""
        self._open.pop(connection, None)
        self._staying.discard(connection)

    def stay(self, connection: "_Connection") -> None:
        """A connection makes room for others, and lasts."""
        if self._open.pop(connection, None) is not None:
            self._staying.add(connection)


class _Connection(asyncio.Protocol):
    """One connection; what it does is the inner protocol's."""

    def __init__(
        self,
        turnstile: Turnstile,
        serve: Callable[[Callable[[], None]], asyncio.Protocol],
        context: ssl.SSLContext | None,
    ) -> None:
        self._turnstile = turnstile
        self._inner = serve(self._stay)
        self._context = context
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._is_open = False
        """Whether the inner protocol has its transport."""
        self._early = bytearray()
        """What came with the end of the handshake, before that."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        self._transport = transport
        self._deadline = asyncio.get_running_loop().call_later(CONNECTION_S, self.cut)
        if self._context is None:
            self._open(transport)
        else:
            transport.pause_reading()  # what comes before the task has begun is the handshake's, too
            self._handshake = asyncio.ensure_future(self._shake_hands(transport, self._context))
        self._turnstile.enter(self, str((transport.get_extra_info("peername") or ("",))[0]))

    async def _shake_hands(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=CONNECTION_S, ssl_shutdown_timeout=1
            )
        except OSError:  # no TLS, or gone meanwhile: there is nobody to answer to
            self.cut()
            self._left()
            return
        if secured is not None and not secured.is_closing():
            self._transport = secured
            self._open(secured)

    def _open(self, transport: asyncio.Transport) -> None:
        self._is_open = True
        self._inner.connection_made(transport)
        if self._early:
            self._inner.data_received(bytes(self._early))

    def data_received(self, data: bytes) -> None:
        if self._is_open:
            self._inner.data_received(data)
        else:
            self._early += data

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._is_open else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._left()
        if self._is_open:
            self._inner.connection_lost(exc)

    def _stay(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._turnstile.stay(self)

    def _left(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._turnstile.leave(self)

    def cut(self) -> None:
        """Ends the connection at once, unsent data with it."""
        if self._transport is not None:
            self._transport.abort()
