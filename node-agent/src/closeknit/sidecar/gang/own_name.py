"""Whether the meeting point's host name means another Pod by now: then its Pod was replaced, and the gang meets there.

A member that is connected looks no name up, so that the old meeting point has to end its connections itself. Its node
may have lost its kubelet alone.
"""

import socket
import threading
import time
from collections.abc import Collection
from contextlib import suppress

LOOKS_EVERY_S = 10.0
TIMES = 2  # in a row: one wrong answer of a name server ends no connection


class OwnName:
    """The look-ups of one meeting point. No look-up may hold up a signal, so that each has a thread."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._next = time.monotonic() + LOOKS_EVERY_S
        self._resolving: threading.Thread | None = None
        self._found: frozenset[str] = frozenset()
        self._times = 0
        self.is_others = False
        """Whether the name means another Pod."""

    def look(self, own: Collection[str]) -> None:
        """Compares what was found last with its own addresses, as its members reach it, and looks again when it is
        time. Without an answer, or without members, nothing is new."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOKS_EVERY_S
        found, self._found = self._found, frozenset()
        if found and (own or self.is_others):
            self._times = self._times + 1 if found.isdisjoint(own) else 0
            self.is_others = self._times >= TIMES
        if self._resolving is None or not self._resolving.is_alive():
            self._resolving = threading.Thread(target=self._resolve, daemon=True)
            self._resolving.start()

    def _resolve(self) -> None:
        with suppress(OSError):
            told = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._found = frozenset(str(address[0]) for *_, address in told)
