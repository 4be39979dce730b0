"""What stays of a Pod's runs when all its containers start again: small files in an emptyDir.

The trainer's own program can write there, too: what is read is bounded, and what is no word of ours counts as missing.
"""

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

from closeknit.sidecar.gang.hub import NO_REPLACED, Hub
from closeknit.sidecar.gang.settings import LARGEST_GANG

_LONGEST = 4096  # bytes that are read of a file
_LONGEST_GANG = 1 << 22  # of some 45 for each of 65,536 members
_LONGEST_SIZE = 64
_LONGEST_VERSION = 11  # three numbers below 1,000
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

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def run(self) -> int | None:
        """The last run that the Pod was let go for; None for a new Pod."""
        text = self._read("run")
        return int(text) if text.isdigit() else None

    def begin(self, run: int) -> None:
        """Keeps that the Pod is let go for this run."""
        self._write("run", str(run))

    def hub(self, size: int, run: int, replaced: Mapping[int, int] = NO_REPLACED) -> Hub:
        """The meeting point as it was kept: an order that somebody has not heard yet is given again. `replaced` is
        what is known of replaced members beside that."""
        try:
            began, quick, last, released, known, begun = json.loads(self._read("gang", _LONGEST_GANG))
            found = {int(index): str(word) for index, word in released.items()}
            numbers = {int(index): int(number) for index, number in known.items()}
            newest = {each: max(numbers.get(each, 0), replaced.get(each, 0)) for each in {*numbers, *replaced}}
            when, members = None if began is None else float(began), int(begun)
            return Hub(size, max(run, int(last)), when, int(quick), found, newest, begun=members)
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return Hub(size, run, replaced=replaced)

    def keep(self, hub: Hub) -> None:
        """Keeps it."""
        self._write("gang", json.dumps([hub.began, hub.quick, hub.run, hub.released, hub.replaced, hub.begun]))

    def told_size(self) -> tuple[int, int] | None:
        """How many nodes and ranks the gang has, by an annotation of node rank 0's Pod; None where that tells nothing.
        A kubelet writes it, as a link."""
        try:
            with open(f"{self._folder}-size/size", "rb") as told:
                nodes, ranks = map(int, told.read(_LONGEST_SIZE).split())
        except (OSError, ValueError):
            return None
        return (nodes, ranks) if 0 < nodes <= min(ranks, LARGEST_GANG) else None

    def keep_variables(self, variables: Mapping[str, str]) -> None:
        """Keeps what the trainer is to find in its environment from the next run on."""
        self._write("env", "".join(f"{name}={value}\n" for name, value in variables.items()))

    def ask_to_leave(self, run: int) -> None:
        """Has the trainer of this run told to end, by its wrapper."""
        self._write(f"leave-{run}", "")

    def was_asked_to_leave(self, run: int) -> bool:
        """Whether it was, maybe by a sidecar before this one."""
        return os.path.exists(self._path(f"leave-{run}"))

    def is_wrapped(self, run: int) -> bool:
        """Whether a wrapper started the trainer of this run, and will say how it ended."""
        return os.path.exists(self._path(f"wrapped-{run}"))

    def is_alive(self, run: int) -> bool:
        """Whether that wrapper is there now: as long as it is, it holds a lock on its file."""
        try:
            handle = os.open(self._path(f"wrapped-{run}"), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            os.lockf(handle, os.F_TEST, 0)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    def began(self) -> float:
        """When the run began that the Pod was let go for last, in seconds of Unix time; infinity without one."""
        try:
            return os.stat(self._path("run")).st_mtime
        except OSError:
            return float("inf")

    def lose(self) -> None:
        """Keeps that no next run can begin in these Pods."""
        if not self.is_lost:
            self._write("lost", "")

    @property
    def is_lost(self) -> bool:
        """Whether that was kept."""
        return os.path.exists(self._path("lost"))

    @property
    def progress(self) -> str:
        """The file that the trainer may touch when it makes progress."""
        return self._path("progress")

    def keep_first_step(self, run: int, at: float) -> None:
        """Keeps when the trainer of this run first touched it, in seconds of Unix time."""
        self._write(f"step-{run}", str(round(at)))

    def first_step(self, run: int) -> int | None:
        """What was kept of that."""
        text = self._read(f"step-{run}")
        return int(text) if text.isdigit() and len(text) < 12 else None

    def keep_nccl_version(self, version: str) -> None:
        """Keeps which version of NCCL the trainer has; it stays when the containers start again."""
        self._write("nccl", version)

    def nccl_version(self) -> str | None:
        """What was kept of that."""
        return self._read("nccl", _LONGEST_VERSION) or None

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
        return os.path.exists(self._path(f"told-{run}"))

    def end(self, run: int) -> End | None:
        """How the trainer of this run ended, by its wrapper; None while it runs, or without a wrapper."""
        try:
            at = os.stat(self._path(f"exit-{run}")).st_mtime
        except OSError:
            return None
        text = self._read(f"exit-{run}")
        if not text.isdigit() or len(text) > 3:
            return None
        return End(int(text), at, self.was_told(run), self._read(f"words-{run}")[:_WORDS])

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _read(self, name: str, longest: int = _LONGEST) -> str:
        try:
            handle = os.open(self._path(name), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return ""
        try:
            return os.read(handle, longest).decode(errors="replace").strip()
        except OSError:
            return ""
        finally:
            os.close(handle)

    def _write(self, name: str, text: str) -> None:
        with open(self._path(f".{name}"), "w") as beside:
            beside.write(text)
        os.replace(beside.name, self._path(name))
