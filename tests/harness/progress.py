"""What long work shows: on a terminal one line that keeps moving, elsewhere a line at each beginning and end, and one a
minute between them."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self, TextIO

TERMINAL_S = 1.0
ELSEWHERE_S = 60.0  # a log is read afterwards, or by somebody who wonders whether anything moves at all


class Progress:
    """Shows several things at once, each with its seconds and how far it is."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._lock = Lock()
        self._running: dict[str, tuple[float, Callable[[], str]]] = {}
        self._ended = Event()
        self._thread = Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._terminal:
            self._write("\r\033[K")

    def say(self, words: str) -> None:
        """One line that stays."""
        with self._lock:
            self._write(f"\r\033[K{words}\n" if self._terminal else f"{words}\n")

    @contextmanager
    def of(self, what: str, so_far: Callable[[], str], *, aloud: bool = True) -> Iterator[None]:
        """Shows one thing until the end of the block; not `aloud`, for what may fail, by no line that stays."""
        began = time.monotonic()
        with self._lock:
            self._running[what] = (began, so_far)
        if aloud and not self._terminal:
            self.say(f"{what} ...")
        try:
            yield
        finally:
            with self._lock:
                del self._running[what]
            if aloud:
                self.say(f"{what}: {time.monotonic() - began:.0f} s")

    def _tick(self) -> None:
        while not self._ended.wait(TERMINAL_S if self._terminal else ELSEWHERE_S):
            with self._lock:
                shown = [
                    f"{so_far()}, {time.monotonic() - began:.0f} s: {what}"
                    for what, (began, so_far) in self._running.items()
                ]
                if self._terminal:
                    self._write(f"\r\033[K{'; '.join(shown)[: self._columns() - 1]}")
                else:
                    self._write("".join(f"{line}\n" for line in shown))

    def _columns(self) -> int:
        """Of the terminal as it is now: a longer line would wrap, and could not be taken back."""
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except OSError:
            return 80

    def _write(self, text: str) -> None:
        print(text, end="", file=self._out, flush=True)
