"""What a newcomer sees while the control plane is brought: on a terminal, and in a log."""

import io
import os
import re
import time
from collections.abc import Callable

import pytest

from harness import progress
from harness.progress import Progress

LONG = "building " + "kubernetes, " * 20


def ticked(count: Callable[[], int]) -> None:
    """Waits until it has been asked how far it is twice."""
    deadline = time.monotonic() + 10
    while count() < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_in_a_log_there_is_a_line_at_each_beginning_and_end_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "ELSEWHERE_S", 0.05)
    asked: list[None] = []
    log = io.StringIO()
    with Progress(log) as shown:
        with shown.of("building", lambda: asked.append(None) or "3 of 4 packages"):  # type: ignore[func-returns-value]
            ticked(lambda: len(asked))
        with shown.of("asking", lambda: "0 MB", aloud=False):
            pass
        shown.say("done")
    lines = re.sub(r"\d+ s", "0 s", log.getvalue()).splitlines()
    assert lines[0] == "building ..."
    assert set(lines[1:-2]) == {"3 of 4 packages, 0 s: building"}
    assert lines[-2:] == ["building: 0 s", "done"]


def test_on_a_terminal_one_line_moves_and_is_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TERMINAL_S", 0.05)
    reader, writer = os.openpty()
    asked: list[None] = []
    with os.fdopen(writer, "w") as terminal:
        with Progress(terminal) as shown, shown.of(LONG, lambda: asked.append(None) or "3 of 4 packages", aloud=False):  # type: ignore[func-returns-value]
            ticked(lambda: len(asked))
        said = os.read(reader, 65536).decode()
    os.close(reader)
    lines = re.sub(r"\d+ s", "0 s", said).split("\r\x1b[K")
    assert lines[0] == ""
    assert set(lines[1:-1]) == {f"3 of 4 packages, 0 s: {LONG}"[:79]}
    assert lines[-1] == ""  # the terminal is left as it was found
