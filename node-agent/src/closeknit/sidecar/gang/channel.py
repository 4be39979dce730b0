"""A connection that is never waited for: lines in, bytes out, both bounded."""

import socket
from contextlib import suppress

from closeknit.sidecar.gang.protocol import LONGEST_LINE

_MOST_UNSENT = 1 << 16  # bytes; who reads so little is gone
_AT_ONCE = 1 << 14


class Channel:
    """One of them."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._read = b""
        self._unsent = b""

    @property
    def has_unsent(self) -> bool:
        """Whether it is to be flushed when it can be written to."""
        return bool(self._unsent)

    def lines(self) -> list[bytes]:
        """The whole lines that have come, without their ends. Raises OSError once the other side has ended, or sends
        what is no line."""
        try:
            more = self.socket.recv(_AT_ONCE)
        except BlockingIOError:
            return []
        if not more:
            raise ConnectionResetError("the other side has ended")
        *lines, self._read = (self._read + more).split(b"\n")
        if len(self._read) > LONGEST_LINE or any(len(line) > LONGEST_LINE for line in lines):
            raise ConnectionAbortedError("a line that is too long")
        return [line.rstrip(b"\r") for line in lines]

    def send(self, data: bytes) -> None:
        """Sends, now or when it can. Raises OSError where that is hopeless."""
        self._unsent += data
        if len(self._unsent) > _MOST_UNSENT:
            raise ConnectionAbortedError("the other side does not read")
        self.flush()

    def flush(self) -> None:
        """Sends what is left. Raises OSError once the other side has ended."""
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
