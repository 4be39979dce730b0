"""Signs of progress, and of a hang: what NCCL's RAS says, asked beside the sidecar's loop, and when the trainer last
touched its file.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from closeknit.sidecar.hang import BEHIND_FOR_S, Hang, Witness, hang
from closeknit.sidecar.ras import NoReport, RasAnswer, asked

TICK_S = 5.0
ASKS = 4  # a tick: chance decides which process of the Pod answers, and a stopped one does not
_ANSWERS_WITHIN_S = 1.0  # it takes a millisecond (measured)
_TOLD_RANKS = 8


class ProgressSigns:
    """What RAS has told in one run. `listen` begins to ask; it needs NCCL in this Pod, and says nothing without."""

    def __init__(self, behind_for_s: float = BEHIND_FOR_S, ask: Callable[[float], RasAnswer] = asked) -> None:
        self._behind_for_s, self._ask = behind_for_s, ask
        self._witness = Witness()
        self.found: Hang | None = None
        """Who holds the gang up now."""
        self.is_moving = False
        """Whether collectives were called between two looks, and nothing has been found since."""
        self.nccl_version: str | None = None
        """Version of the trainer's NCCL, as far as it has told."""
        self.hears_counts = True
        """Whether the last answer was one that hangs can be seen by; True before the first."""

    @property
    def last_progress_s(self) -> float | None:
        """When a rank last called a collective, by the monotonic clock; None before the first."""
        return self._witness.rose_at_s

    def listen(self) -> None:
        """Asks for ever, on a thread that ends with the process."""
        threading.Thread(target=self._listen, name="ras", daemon=True).start()

    def _listen(self) -> None:
        while True:
            self.hear()
            time.sleep(TICK_S)

    def hear(self) -> None:
        """Asks once."""
        witness = self._witness
        for _ in range(ASKS):
            try:
                answer = self._ask(_ANSWERS_WITHIN_S)
            except NoReport as nothing:
                if not nothing.is_silent:
                    break  # nothing listens here: not NCCL, or not yet
                continue
            witness = witness.after(answer.report, time.monotonic())
            self.nccl_version = answer.nccl_version or self.nccl_version
            self.hears_counts = not answer.is_in_words
        before, self._witness = self._witness, witness
        self.found = hang(witness, time.monotonic(), self._behind_for_s)
        has_risen = before.rose_at_s is not None and witness.rose_at_s != before.rose_at_s
        self.is_moving = self.found is None and (self.is_moving or has_risen)


class Stall(NamedTuple):
    """A trainer that had touched its file, and then has not for so long."""

    still_s: float


class Touches:
    """The file that a trainer touches, looked at again and again. How long ago that was is measured, for a node's clock
    may be set meanwhile; of a touch before the first look its date is believed."""

    def __init__(self, progress: str) -> None:
        self._progress = progress
        self._at: float | None = None
        self._seen_s = 0.0

    def still_s(self, began: float) -> float | None:
        """How long the trainer of a run, which began at that second of Unix time, has not touched it; None before it
        has."""
        at, now_s = touched(self._progress, began), time.monotonic()
        if at is not None and at != self._at:
            self._seen_s = now_s if self._at is not None else now_s - max(0.0, time.time() - at)
            self._at = at
        return None if at is None else now_s - self._seen_s


def stall(touches: Touches, deadline_s: float, began: float, last_progress_s: float | None) -> Stall | None:
    """Whether the trainer of a run, which began at that second of Unix time, has stalled by its file. One that it has
    not touched since, and one beside which collectives are called, says nothing."""
    still_s = touches.still_s(began)
    if still_s is None or still_s < deadline_s:
        return None
    if last_progress_s is not None and time.monotonic() - last_progress_s < deadline_s:
        return None
    return Stall(still_s)


def touched(progress: str, began: float) -> float | None:
    """When the trainer of a run, which began at that second of Unix time, last touched its file; None before it has."""
    try:
        at = os.stat(progress, follow_symlinks=False).st_mtime
    except OSError:
        return None
    return at if at >= began else None


def words(found: Hang | Stall, position: Callable[[str], int | None], own: int) -> dict[str, object]:
    """What the operator is told: which ranks, by the position of their Pod and their local rank. `position`: of the
    Pod with an address, where it is known."""
    told: dict[str, object] = {"at": round(time.time()), "stillSeconds": round(found.still_s)}
    if isinstance(found, Hang):
        told["silent"] = found.is_silent
        told["ranks"] = [
            {"index": position(rank.host), "host": rank.host[:45], "local": rank.cuda_dev}
            for rank in found.ranks[:_TOLD_RANKS]
        ]
    else:
        told["stalled"] = own
    return told
