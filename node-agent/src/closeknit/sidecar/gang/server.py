"""The meeting point's side of all connections: members, and the kubelet's probe of whether the gang is whole."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector

from closeknit.sidecar.gang.channel import Channel
from closeknit.sidecar.gang.hub import Hub
from closeknit.sidecar.gang.own_name import OwnName
from closeknit.sidecar.gang.probe import answer_to_probe, listening
from closeknit.sidecar.gang.protocol import (
    GREETING,
    STAY,
    WHOLE,
    ForgedError,
    Order,
    Seals,
    nonce,
    report,
    to_client,
    to_server,
)
from closeknit.sidecar.gang.settings import Settings

UNKNOWN_FOR_S = 5.0  # a member says who it is within milliseconds
SILENT_FOR_S = 30.0  # a member reports every 2 s
COUNTS_EVERY_S = 1.0  # whether all are heard; each report is answered with it, and a gang may have thousands
MORE_CONNECTIONS = 64  # than members: probes, and strangers until they are known as such
_NONCE = 32  # characters


class _Guest:
    """One connection."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.index: int | None = None
        """The member that it has proved to be."""
        self.reports: Seals | None = None
        self.orders: Seals | None = None
        self.heard = time.monotonic()


class Server:
    """Listens at the gang's port. `heard` is called after each report."""

    def __init__(self, settings: Settings, hub: Hub, selector: BaseSelector, heard: Callable[[], None]) -> None:
        self._settings, self._hub, self._selector, self._heard = settings, hub, selector, heard
        self._guests: dict[Channel, _Guest] = {}
        self._members: dict[int, _Guest] = {}
        self._own: set[str] = set()
        """Its own addresses, as members reach it."""
        self._name = OwnName(settings.host, settings.port)
        self._is_whole, self._counts_at = False, 0.0
        self._listening = listening(settings.port)
        self._listening.setblocking(False)
        selector.register(self._listening, EVENT_READ, self._accept)

    @property
    def has_members(self) -> bool:
        """Whether a member is connected."""
        return bool(self._members)

    def addresses(self) -> dict[str, int]:
        """The members that are connected, and node rank 0 itself, by the addresses of their Pods."""
        found: dict[str, int] = {}
        for index, guest in self._members.items():
            with suppress(OSError):
                found[_address(guest.channel.socket.getsockname())] = self._settings.index
                found[_address(guest.channel.socket.getpeername())] = index
        return found

    def order_all(self) -> None:
        """Tells each connected member its order, if it is to do anything."""
        for index, guest in list(self._members.items()):
            order = self._hub.order(index)
            if order != STAY and guest.orders is not None:
                self._send(guest, guest.orders.seal(order))

    def tidy(self) -> None:
        """Ends connections that nothing comes from, and all of them where the gang meets elsewhere."""
        now = time.monotonic()
        self._name.look(self._own)
        for guest in list(self._guests.values()):
            if self._name.is_others or now - guest.heard > (UNKNOWN_FOR_S if guest.index is None else SILENT_FOR_S):
                self._close(guest)

    def _accept(self, _mask: int) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return  # gone again, or no file descriptor is left: the next one is taken when one is
        if len(self._guests) >= self._hub.size + MORE_CONNECTIONS:
            unknown = (guest for guest in self._guests.values() if guest.index is None)
            oldest = min(unknown, key=lambda guest: guest.heard, default=None)
            if oldest is not None:
                self._close(oldest)
        guest = _Guest(Channel(connection))
        self._guests[guest.channel] = guest
        self._selector.register(connection, EVENT_READ, lambda mask: self._serve(guest, mask))

    def _serve(self, guest: _Guest, mask: int) -> None:
        try:
            if mask & EVENT_WRITE:
                guest.channel.flush()
            if mask & EVENT_READ:
                for line in guest.channel.lines():
                    self._take(guest, line)
        except (OSError, ForgedError):
            self._close(guest)
            return
        self._watch(guest)

    def _take(self, guest: _Guest, line: bytes) -> None:
        if guest.reports is None or guest.orders is None:
            self._greet(guest, line)
            return
        said = report(guest.reports.opened(line))
        if not 0 < said.index < self._hub.size or guest.index not in (None, said.index):
            raise ForgedError("a report of another member")
        if self._hub.is_outlived(said):
            guest.heard = time.monotonic()
            self._hub.hear(said, time.time())
            self._send(guest, guest.orders.seal(self._hub.order_to_outlived(said)))
            return
        if guest.index is None:
            self._own.add(_address(guest.channel.socket.getsockname()))
            guest.index = said.index
            before = self._members.get(said.index)
            self._members[said.index] = guest
            if before is not None:
                self._close(before)
        if self._members.get(said.index) is not guest:
            return
        guest.heard = time.monotonic()
        self._hub.hear(said, time.time())
        self._heard()
        if guest.channel in self._guests:
            self._send(guest, guest.orders.seal(self._answer(said.index)))

    def _answer(self, index: int) -> Order:
        """What a member is answered that has reported: its order; and that all are heard, where it has none."""
        if time.monotonic() >= self._counts_at:
            self._counts_at = time.monotonic() + COUNTS_EVERY_S
            self._is_whole = self._hub.is_whole(time.time())
        order = self._hub.order(index)
        return WHOLE if order == STAY and self._is_whole else order

    def _greet(self, guest: _Guest, line: bytes) -> None:
        word, _, own = line.decode(errors="replace").partition(" ")
        if word == "GET":
            guest.channel.send(answer_to_probe(is_whole=self._hub.is_whole(time.time())))
            raise ForgedError("a probe, which is answered")
        if word != GREETING or len(own) != _NONCE:
            raise ForgedError("no member")
        mine = nonce()
        guest.reports = to_server(self._settings.key, f"{own} {mine}")
        guest.orders = to_client(self._settings.key, f"{own} {mine}")
        guest.channel.send(f"{mine}\n".encode())

    def _send(self, guest: _Guest, data: bytes) -> None:
        try:
            guest.channel.send(data)
        except OSError:
            self._close(guest)
            return
        self._watch(guest)

    def _watch(self, guest: _Guest) -> None:
        if guest.channel in self._guests:
            wanted = EVENT_READ | (EVENT_WRITE if guest.channel.has_unsent else 0)
            key = self._selector.get_key(guest.channel.socket)
            if key.events != wanted:
                self._selector.modify(guest.channel.socket, wanted, key.data)

    def _close(self, guest: _Guest) -> None:
        if self._guests.pop(guest.channel, None) is None:
            return
        if guest.index is not None and self._members.get(guest.index) is guest:
            del self._members[guest.index]
        self._selector.unregister(guest.channel.socket)
        with suppress(OSError):
            guest.channel.socket.shutdown(socket.SHUT_WR)
        guest.channel.socket.close()


def _address(name: tuple[object, ...]) -> str:
    """As NCCL writes it: an IPv4 address without what an IPv6 socket puts before it."""
    return str(name[0]).removeprefix("::ffff:")
