"""What a kubelet's probe of a sidecar is answered: whether this one hears of its whole gang."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, BaseSelector

from closeknit.sidecar.gang.channel import Channel

CONNECTIONS = 16  # a kubelet has one every 5 s; the rest are strangers
ENDS_AFTER_S = 5.0


def answer_to_probe(*, is_whole: bool) -> bytes:
    """In HTTP."""
    state = "200 OK" if is_whole else "503 Service Unavailable"
    return f"HTTP/1.1 {state}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


def listening(port: int) -> socket.socket:
    """At all addresses of the Pod, of both families where it has both."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
    return socket.create_server(("", port), backlog=4096)


class Probe:
    """Listens at a port for probes alone: in a Pod that is not the meeting point."""

    def __init__(self, port: int, selector: BaseSelector, is_whole: Callable[[], bool]) -> None:
        self._selector, self._is_whole = selector, is_whole
        self._asking: dict[Channel, float] = {}
        """Since when."""
        self._listening = listening(port)
        self._listening.setblocking(False)
        selector.register(self._listening, EVENT_READ, self._accept)

    def tidy(self) -> None:
        """Ends connections that nothing comes from."""
        now = time.monotonic()
        for channel in [each for each, since in self._asking.items() if now - since > ENDS_AFTER_S]:
            self._close(channel)

    def _accept(self, _mask: int) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return  # gone again, or no file descriptor is left
        if len(self._asking) >= CONNECTIONS:
            self._close(next(iter(self._asking)))
        channel = Channel(connection)
        self._asking[channel] = time.monotonic()
        self._selector.register(connection, EVENT_READ, lambda _: self._serve(channel))

    def _serve(self, channel: Channel) -> None:
        try:
            lines = channel.lines()
            if not lines:
                return
            if lines[0].startswith(b"GET "):
                channel.send(answer_to_probe(is_whole=self._is_whole()))
        except OSError:
            pass
        self._close(channel)

    def _close(self, channel: Channel) -> None:
        if self._asking.pop(channel, None) is not None:
            self._selector.unregister(channel.socket)
            with suppress(OSError):
                channel.socket.shutdown(socket.SHUT_WR)
            channel.socket.close()
