"""What stays of a Pod's runs when all its containers start again: small files in an emptyDir.

The trainer's own program can write there, too: what is read is bounded, and what is no word of ours counts as missing.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

_LONGEST = 4096  # bytes that are read of a file
_WORDS = 1024  # characters of a trainer's last words that are kept


class End(NamedTuple):
    """How a trainer ended."""

    code: int
    at: float
    """When, in seconds of Unix time."""
    was_told: bool = False
    """Whether it had been told to end before."""
    words: str = ""
    """Its termination message."""


class RunFolder:
    """The files of one Pod. Those that must not be half there are written beside and moved."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def socket(self) -> str:
        """Path of the socket at which the barrier asks."""
        return str(self._folder / "barrier.sock")

    def run(self) -> int | None:
        """The last run that the Pod was let go for; None for a new Pod."""
        text = self._read("run")
        return int(text) if text.isdigit() else None

    def begin(self, run: int) -> None:
        """Keeps that the Pod is let go for this run."""
        self._write("run", str(run))

    def last_run(self) -> tuple[float | None, int]:
        """When the gang's last run began, and how many quick ones there were in a row: of the meeting point."""
        try:
            began, quick = json.loads(self._read("gang"))
            return float(began), int(quick)
        except (ValueError, TypeError, RecursionError, OverflowError):
            return None, 0

    def keep_last_run(self, began: float | None, quick: int) -> None:
        """Keeps that."""
        self._write("gang", json.dumps([began, quick]))

    def is_wrapped(self, run: int) -> bool:
        """Whether a wrapper started the trainer of this run, and will say how it ended."""
        return (self._folder / f"wrapped-{run}").exists()

    def began(self) -> float:
        """When the run began that the Pod was let go for last, in seconds of Unix time; infinity without one."""
        try:
            return (self._folder / "run").stat().st_mtime
        except OSError:
            return float("inf")

    @property
    def progress(self) -> Path:
        """The file that the trainer may touch when it makes progress."""
        return self._folder / "progress"

    def keep_hang(self, words: dict[str, object] | None) -> None:
        """Keeps what was told of a hang in this run; None: that it is over."""
        self._write("hang", json.dumps(words))

    def hang(self) -> dict[str, object] | None:
        """What was told of it last; None without a hang that lasts."""
        try:
            words = json.loads(self._read("hang"))
        except (ValueError, RecursionError):
            return None
        return words if isinstance(words, dict) else None

    def was_told(self, run: int) -> bool:
        """Whether the trainer was told to end: its wrapper says so before it passes the signal on."""
        return (self._folder / f"told-{run}").exists()

    def end(self, run: int) -> End | None:
        """How the trainer of this run ended, by its wrapper; None while it runs, or without a wrapper."""
        try:
            at = (self._folder / f"exit-{run}").stat().st_mtime
        except OSError:
            return None
        text = self._read(f"exit-{run}")
        if not text.isdigit() or len(text) > 3:
            return None
        return End(int(text), at, self.was_told(run), self._read(f"words-{run}")[:_WORDS])

    def _read(self, name: str) -> str:
        try:
            handle = os.open(self._folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return ""
        try:
            return os.read(handle, _LONGEST).decode(errors="replace").strip()
        except OSError:
            return ""
        finally:
            os.close(handle)

    def _write(self, name: str, text: str) -> None:
        beside = self._folder / f".{name}"
        beside.write_text(text)
        beside.replace(self._folder / name)
