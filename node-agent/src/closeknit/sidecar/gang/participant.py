"""One container's part in its gang: the loop of sockets, signals and reports that barrier and watch share.

One thread and one selector. Nothing here waits for anybody for longer than a tick, so that a signal is heeded at once.
"""

import signal
import socket
import time
from selectors import EVENT_READ, DefaultSelector

from closeknit.sidecar.gang.hub import HEARD_FOR_S, Hub
from closeknit.sidecar.gang.link import Link
from closeknit.sidecar.gang.member_state import Act, MemberState
from closeknit.sidecar.gang.protocol import Command, Order
from closeknit.sidecar.gang.run_folder import RunFolder
from closeknit.sidecar.gang.server import Server
from closeknit.sidecar.gang.settings import Settings

TICK_S = 0.2  # how late an exit of the trainer is seen
BEAT_S = 2.0  # between two reports that say the same
FAREWELL_S = 0.5  # of the 2 s that a kubelet gives where all containers start again


class Participant:
    """A member of the gang, in node rank 0's Pod with the meeting point."""

    def __init__(self, settings: Settings, folder: RunFolder) -> None:
        self.settings, self.folder = settings, folder
        self.member = MemberState(settings.index, folder.run(), settings.replacement)
        self.code: int | None = None
        """With which it ends; None while it runs."""
        self.is_told_to_end = False
        self.hub: Hub | None = None
        self.server: Server | None = None
        self._link: Link | None = None
        self.selector = DefaultSelector()
        self._said: tuple[str, str] | None = None
        self._says_at = 0.0
        self._ordered: tuple[int, bool, bool] | None = None
        self._replaced: dict[int, int] = {}
        self._whole_until = 0.0

    @property
    def hears_whole(self) -> bool:
        """Whether the meeting point has answered lately, and heard the whole gang."""
        return time.monotonic() < self._whole_until

    def look(self) -> None:
        """Sees what is new in the Pod; at each tick."""

    def act(self, act: Act) -> None:
        """Does what the gang asks of the Pod."""
        raise NotImplementedError

    def run(self) -> int:
        """Runs until there is an exit code, and gives it."""
        waker, woken = socket.socketpair()
        for end in (waker, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._end)  # as process 1 it would not end without
        self.selector.register(woken, EVENT_READ, lambda _: woken.recv(64))
        if self.settings.is_meeting_point:
            self.hub = self.folder.hub(self.settings.size, self.member.run, self.settings.replaced)
            if self.hub.began is None and self.member.run >= 0:  # the first run begins without it
                self.hub.began = time.time()
                self.folder.keep(self.hub)
            self._hear_size()
            self.server = Server(self.settings, self.hub, self.selector, self._decide)
        else:
            self._link = Link(self.settings, self.selector, self._obey, self.speak)
        while self.code is None:
            for key, mask in self.selector.select(TICK_S):
                key.data(mask)
            self._tick()
        self._farewell()
        return self.code

    def speak(self) -> None:
        """Reports what is true now."""
        report = self.member.report
        self._said, self._says_at = (report.phase, report.nonce), time.monotonic() + BEAT_S
        if self.hub is not None:
            self.hub.hear(report, time.time())
            self._decide()
        elif self._link is not None:
            self._link.send(report)

    def _end(self, *_: object) -> None:
        self.is_told_to_end = True

    def _tick(self) -> None:
        self.look()
        report = self.member.report
        if (report.phase, report.nonce) != self._said or time.monotonic() >= self._says_at:
            self.speak()
        if self.server is not None:
            self._hear_size()
            self.server.tidy()
            self._decide()
        if self._link is not None:
            self._link.tend()

    def _hear_size(self) -> None:
        """At the meeting point: takes the size that the gang is to have."""
        told = self.folder.told_size() if self.settings.sizes else None
        if told is not None and self.hub is not None:
            self.hub.resize(*told)

    def _decide(self) -> None:
        """At the meeting point: begins a run where that may be, and orders what is new."""
        hub, server = self.hub, self.server
        if hub is None or server is None:
            return
        if hub.release(time.time()) or hub.replaced != self._replaced:
            self._replaced = dict(hub.replaced)
            self.folder.keep(hub)  # before anybody is let go
        state = hub.run, hub.is_called, hub.is_lost
        if state != self._ordered:
            self._ordered = state
            server.order_all()
        if self._said is not None:
            self._obey(hub.order(self.settings.index))

    def _obey(self, order: Order) -> None:
        self._whole_until = time.monotonic() + HEARD_FOR_S if order.command is Command.WHOLE else 0.0
        act = self.member.obey(order)
        if act is not None:
            self.act(act)

    def _farewell(self) -> None:
        """Has what was said arrive. Node rank 0 waits until the others are gone that it has told to go."""
        self.speak()
        if self._link is not None:
            self._link.end(FAREWELL_S)
        until = time.monotonic() + FAREWELL_S
        while self.server is not None and self.server.has_members and time.monotonic() < until:
            for key, mask in self.selector.select(0.05):
                key.data(mask)
