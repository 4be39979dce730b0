"""What a newcomer sees while the control plane is brought: on a terminal, and in a log."""

import io
import os
import re
import time

import pytest

from harness import progress
from harness.progress import Progress

LONG = "building " + "kubernetes, " * 20


class Work:
    """Is a little further each time that it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def so_far(self) -> str:
        self.asked += 1
        return f"{self.asked} of 4 packages"

    def wait(self) -> None:
        """Returns once it has been asked twice."""
        deadline = time.monotonic() + 10
        while self.asked < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def said_on(terminal: int) -> str:
    """All that was written to a terminal that is closed at the other end: it comes in pieces."""
    said = b""
    while True:
        try:
            said += os.read(terminal, 65536)
        except OSError:
            return said.decode()


def test_in_a_log_there_is_a_line_at_each_beginning_and_end_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "ELSEWHERE_S", 0.05)
    work, log = Work(), io.StringIO()
    with Progress(log) as shown:
        with shown.of("building", work.so_far):
            work.wait()
        with shown.of("asking", lambda: "0 MB", aloud=False):
            pass
        shown.say("done")
    lines = re.sub(r"\d+ s", "0 s", log.getvalue()).splitlines()
    assert lines[:3] == ["building ...", "1 of 4 packages, 0 s: building", "2 of 4 packages, 0 s: building"]
    assert lines[-2:] == ["building: 0 s", "done"]


def test_on_a_terminal_one_line_moves_and_is_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TERMINAL_S", 0.05)
    reader, writer = os.openpty()
    work = Work()
    with os.fdopen(writer, "w") as terminal, Progress(terminal) as shown, shown.of(LONG, work.so_far, aloud=False):
        work.wait()
    said = re.sub(r"\d+ s", "0 s", said_on(reader))
    os.close(reader)
    lines = said.split("\r\x1b[K")
    assert lines[0] == ""
    assert lines[1:3] == [f"{count} of 4 packages, 0 s: {LONG}"[:79] for count in (1, 2)]
    assert lines[-1] == ""  # the terminal is left as it was found
