"""What long work shows: on a terminal one line that keeps moving, elsewhere a line for each beginning and end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self, TextIO


class Progress:
    """Shows several things at once, each with its seconds and the lines that its log has so far."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._lock = Lock()
        self._running: dict[str, tuple[float, Path]] = {}
        self._ended = Event()
        self._thread = Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._terminal:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._terminal:
            self._thread.join()

    def say(self, words: str) -> None:
        """One line that stays."""
        with self._lock:
            print(f"\r\033[K{words}" if self._terminal else words, file=self._out, flush=True)

    @contextmanager
    def of(self, what: str, log: Path) -> Iterator[None]:
        """Shows one thing until the end of the block. A build's log has a line for every package that is done."""
        began = time.monotonic()
        with self._lock:
            self._running[what] = (began, log)
        if not self._terminal:
            self.say(f"{what} ...")
        try:
            yield
        finally:
            with self._lock:
                del self._running[what]
            self.say(f"{what}: {time.monotonic() - began:.0f} s")

    def _tick(self) -> None:
        while not self._ended.wait(1):
            with self._lock:
                shown = ", ".join(
                    f"{what} {time.monotonic() - began:.0f} s ({_lines(log)} packages)"
                    for what, (began, log) in self._running.items()
                )
                print(f"\r\033[K{shown}", end="", file=self._out, flush=True)


def _lines(log: Path) -> int:
    try:
        return log.read_bytes().count(b"\n")
    except OSError:
        return 0
