"""A member's connection to the meeting point. It is made again as long as the Pod runs: a lost one means nothing."""

import errno
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector

from closeknit.sidecar.gang.channel import Channel
from closeknit.sidecar.gang.protocol import (
    GREETING,
    ForgedError,
    Order,
    Report,
    Seals,
    nonce,
    order,
    to_client,
    to_server,
)
from closeknit.sidecar.gang.settings import Settings

CONNECTS_WITHIN_S = 3.0
SILENT_FOR_S = 10.0  # every report is answered at once
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 0.5
_NONCE = 32


class Link:
    """One member's. `obey` is called with each order; `opened` once a report may be sent."""

    def __init__(
        self, settings: Settings, selector: BaseSelector, obey: Callable[[Order], None], opened: Callable[[], None]
    ) -> None:
        self._settings, self._selector, self._obey, self._opened = settings, selector, obey, opened
        self._addresses: list[tuple[int, object]] = []
        self._turn = 0
        self._resolving: threading.Thread | None = None
        self._channel: Channel | None = None
        self._own = ""
        self._reports: Seals | None = None
        self._orders: Seals | None = None
        self._heard = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._next = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it is connected, and the meeting point has answered."""
        return self._reports is not None

    def tend(self) -> None:
        """Connects where it is not, and gives up a connection that nothing comes from."""
        now = time.monotonic()
        if self._channel is not None:
            if now - self._heard > (SILENT_FOR_S if self.is_open else CONNECTS_WITHIN_S):
                self._close()
        elif now >= self._next:
            self._connect()

    def send(self, report: Report) -> None:
        """Sends a report, if it is open."""
        if self._channel is None or self._reports is None:
            return
        try:
            self._channel.send(self._reports.seal(report))
        except OSError:
            self._close()
        else:
            self._watch()

    def end(self, within_s: float) -> None:
        """Ends it in order: what was sent arrives."""
        channel, until = self._channel, time.monotonic() + within_s
        if channel is None:
            return
        with suppress(OSError):
            channel.socket.setblocking(True)
            channel.socket.settimeout(within_s)
            channel.flush()
            channel.socket.shutdown(socket.SHUT_WR)
            while time.monotonic() < until and channel.socket.recv(1 << 14):
                pass

    def _connect(self) -> None:
        """With the address that was found last, while the name is looked up again beside it: no look-up may hold up
        a signal."""
        if self._resolving is None or not self._resolving.is_alive():
            self._resolving = threading.Thread(target=self._resolve, daemon=True)
            self._resolving.start()
        self._later()
        addresses = self._addresses
        if not addresses:
            return
        # One after the other: for a moment the name may still mean a Pod that was replaced, and is not there.
        family, address = addresses[self._turn % len(addresses)]
        self._turn += 1
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        if connection.connect_ex(address) not in (0, errno.EINPROGRESS):  # type: ignore[arg-type]
            connection.close()
            return
        self._channel, self._own, self._heard = Channel(connection), nonce(), time.monotonic()
        self._selector.register(connection, EVENT_WRITE, self._serve)

    def _resolve(self) -> None:
        with suppress(OSError):
            found = socket.getaddrinfo(self._settings.host, self._settings.port, type=socket.SOCK_STREAM)
            if not self._addresses:
                self._next = 0.0  # it is what the first connection waits for
            self._addresses = [(family, address) for family, _, _, _, address in found]

    def _serve(self, mask: int) -> None:
        channel = self._channel
        if channel is None:
            return
        try:
            if mask & EVENT_WRITE:
                if self._own and not self.is_open and self._selector.get_key(channel.socket).events == EVENT_WRITE:
                    channel.send(f"{GREETING} {self._own}\n".encode())
                channel.flush()
            if mask & EVENT_READ:
                for line in channel.lines():
                    self._take(line)
        except (OSError, ForgedError):
            self._close()
            return
        self._watch()

    def _take(self, line: bytes) -> None:
        self._heard = time.monotonic()
        if self._orders is not None:
            self._pause_s = _FIRST_PAUSE_S
            self._obey(order(self._orders.opened(line)))
            return
        if len(line) != _NONCE:
            raise ForgedError("no meeting point")
        session = f"{self._own} {line.decode(errors='replace')}"
        self._reports, self._orders = to_server(self._settings.key, session), to_client(self._settings.key, session)
        self._opened()

    def _watch(self) -> None:
        if self._channel is not None:
            wanted = EVENT_READ | (EVENT_WRITE if self._channel.has_unsent else 0)
            key = self._selector.get_key(self._channel.socket)
            if key.events != wanted:
                self._selector.modify(self._channel.socket, wanted, key.data)

    def _later(self) -> None:
        self._next = time.monotonic() + self._pause_s * (0.5 + os.urandom(1)[0] / 512)  # 512 at once otherwise
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _close(self) -> None:
        if self._channel is not None:
            self._selector.unregister(self._channel.socket)
            self._channel.socket.close()
        self._channel = self._reports = self._orders = None
        self._later()
