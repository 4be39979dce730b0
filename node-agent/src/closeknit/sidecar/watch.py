"""The native sidecar of a Pod: it ends with RESET_CODE when the gang begins again, and has the barrier wait until then.

One thread and one selector. Nothing here waits for anybody for longer than a tick, so that a signal is heeded at once.
"""

import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from closeknit.sidecar.gang.channel import Channel
from closeknit.sidecar.gang.hub import Hub
from closeknit.sidecar.gang.link import Link
from closeknit.sidecar.gang.member_state import Act, MemberState
from closeknit.sidecar.gang.protocol import Order, Phase
from closeknit.sidecar.gang.server import Server
from closeknit.sidecar.gang.settings import RESET_CODE, Settings
from closeknit.sidecar.run_folder import End, RunFolder

TICK_S = 0.2  # how late an exit of the trainer is seen
BEAT_S = 2.0  # between two reports that say the same
# A barrier follows its watch within a second where all containers start again. Without one the watch alone was
# restarted, and the trainer runs on.
BARRIER_WITHIN_S = 5.0
FAREWELL_S = 0.5  # of the 2 s that a kubelet gives where all containers start again
_MOST_BARRIERS = 8  # connections of the Pod's own


class Watch:
    """The sidecar of one Pod."""

    def __init__(self, settings: Settings, folder: RunFolder) -> None:
        self._settings, self._folder = settings, folder
        self._selector = DefaultSelector()
        self._member = MemberState(settings.index, folder.run())
        self._barriers: list[Channel] = []
        self._is_settled = False
        self._settles_at = time.monotonic() + BARRIER_WITHIN_S
        self._is_told_to_end = False
        self._code: int | None = None
        self._said: tuple[Phase, str] | None = None
        self._says_at = 0.0
        self._ended: End | None = None
        self._hub: Hub | None = None
        self._server: Server | None = None
        self._link: Link | None = None
        self._ordered: tuple[int, bool] | None = None

    def run(self) -> int:
        """Runs until the Pod's containers are to start again, or it is told to end. Gives the exit code."""
        waker, woken = socket.socketpair()
        for end in (waker, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._end)
        self._selector.register(woken, EVENT_READ, lambda _: woken.recv(64))
        self._open_barrier()
        self._join()
        while self._code is None:
            for key, mask in self._selector.select(TICK_S):
                key.data(mask)
            self._tick()
        self._farewell()
        return self._code

    def _join(self) -> None:
        settings = self._settings
        if settings.is_meeting_point:
            began, quick = self._folder.last_run()
            self._hub = Hub(settings.size, self._member.run, began, quick)
            self._server = Server(settings, self._hub, self._selector, self._decide)
        else:
            self._link = Link(settings, self._selector, self._obey, self._speak)

    def _end(self, *_: object) -> None:
        self._is_told_to_end = True

    def _tick(self) -> None:
        now = time.monotonic()
        self._is_settled = self._is_settled or now >= self._settles_at
        if self._is_settled:
            self._look()
        if self._is_told_to_end:
            self._member.leaves()
            if self._code is None:
                self._code = 0
        report = self._member.report
        if self._is_settled and ((report.phase, report.nonce) != self._said or now >= self._says_at):
            self._speak()
        if self._server is not None:
            self._server.tidy()
            self._decide()
        if self._link is not None and self._is_settled:
            self._link.tend()

    def _look(self) -> None:
        """Sees whether the trainer has ended."""
        if self._member.phase is not Phase.RUNNING:
            return
        run = self._member.run
        end = self._folder.end(run)
        if end is None:
            # Killed from outside, with its wrapper: for want of memory, say.
            if self._is_told_to_end and self._folder.is_wrapped(run) and not self._folder.was_told(run):
                self._member.trainer_ended(is_for_good=False)
        elif self._settings.is_final(end.code):
            self._member.trainer_ended(is_for_good=True)
        elif not end.was_told:
            self._member.trainer_ended(is_for_good=False)

    def _speak(self) -> None:
        report = self._member.report
        self._said, self._says_at = (report.phase, report.nonce), time.monotonic() + BEAT_S
        if self._hub is not None:
            self._hub.hear(report, time.time())
            self._decide()
        elif self._link is not None:
            self._link.send(report)

    def _decide(self) -> None:
        """At the meeting point: begins a run where that may be, and orders what is new."""
        hub, server = self._hub, self._server
        if hub is None or server is None:
            return
        if hub.release(time.time()):
            self._folder.keep_last_run(hub.began, hub.quick)
        state = hub.run, hub.is_called
        if state != self._ordered:
            self._ordered = state
            server.order_all()
        if self._said is not None:
            self._obey(hub.order(self._settings.index))

    def _obey(self, order: Order) -> None:
        match self._member.obey(order):
            case Act.LET_GO:
                self._let_go()
            case Act.RESET:
                self._code = RESET_CODE
            case Act.GIVE_UP:
                self._answer({"run": None, "why": "a Pod of the gang is over, so that the others cannot begin again"})

    def _open_barrier(self) -> None:
        with suppress(OSError):
            Path(self._folder.socket).unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        listening.bind(self._folder.socket)
        os.umask(before)
        listening.listen(_MOST_BARRIERS)
        listening.setblocking(False)
        self._selector.register(listening, EVENT_READ, lambda _: self._admit(listening))

    def _admit(self, listening: socket.socket) -> None:
        with suppress(OSError):
            channel = Channel(listening.accept()[0])
            if len(self._barriers) >= _MOST_BARRIERS:
                self._dismiss(self._barriers[0])
            self._barriers.append(channel)
            self._selector.register(channel.socket, EVENT_READ, lambda _: self._hear(channel))

    def _hear(self, channel: Channel) -> None:
        """The barrier asks to be let go."""
        try:
            lines = channel.lines()
        except OSError:
            self._dismiss(channel)
            return
        if b"wait" not in lines or self._is_told_to_end:
            return
        self._is_settled = True
        self._ended = self._folder.end(self._member.run)
        if self._member.barrier() is Act.LET_GO:
            self._let_go()
        self._speak()

    def _let_go(self) -> None:
        run = self._member.run
        self._folder.begin(run)
        if self._hub is not None and self._hub.began is None:  # the first run, which begins without it
            self._hub.began = time.time()
            self._folder.keep_last_run(self._hub.began, 0)
        said: dict[str, object] = {"run": run}
        if self._ended is not None:
            said["ended"] = self._ended._asdict()
        self._answer(said)
        self._says_at = 0.0

    def _answer(self, said: dict[str, object]) -> None:
        for channel in list(self._barriers):
            with suppress(OSError):
                channel.send(json.dumps(said, separators=(",", ":")).encode() + b"\n")
            self._dismiss(channel)

    def _dismiss(self, channel: Channel) -> None:
        if channel in self._barriers:
            self._barriers.remove(channel)
            self._selector.unregister(channel.socket)
            channel.socket.close()

    def _farewell(self) -> None:
        """Has what was said arrive. Node rank 0 waits until the others are gone that it has told to go."""
        self._speak()
        if self._link is not None:
            self._link.end(FAREWELL_S)
        until = time.monotonic() + FAREWELL_S
        while self._server is not None and self._server.has_members and time.monotonic() < until:
            for key, mask in self._selector.select(0.05):
                key.data(mask)
