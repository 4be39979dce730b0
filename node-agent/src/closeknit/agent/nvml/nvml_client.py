"""Questions to NVML through a process of their own, so that a driver that hangs or crashes costs only that process."""

import os
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TypeVar

import msgspec

from closeknit.agent.discovery.health.driver import CRASHED, HUNG
from closeknit.agent.nvml.nvml_messages import ANSWERS, LENGTH_BYTES, MAX_BYTES, DriverQuestion, framed

WORKER = (sys.executable, "-m", "closeknit.agent.nvml.nvml_worker")
# An empty libcuda.so.1, which the loader finds first and cannot load. NVML loads that library where it is in sight, as
# it is by a DRA claim, for the version of CUDA alone, which it knows anyway: 4.4 MB on an H200 (driver 580.159).
WITHOUT_CUDA = Path(__file__).parent / "without_cuda"
# A process that waits in the kernel cannot be killed until the driver lets it go. A second may reach the other GPUs;
# where it is held as well, the driver hangs as a whole, and no third one is started.
MAX_HELD = 2
KILL_S = 0.5  # a process that is not held in the kernel is gone in some milliseconds

T = TypeVar("T")


class NoAnswer(Exception):  # noqa: N818 -- it is no error of ours
    """The driver did not answer; the message is HUNG or CRASHED."""


class NvmlClient:
    """Starts the process on demand, and again after it was given up. One question at a time, from any thread."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self._command = command
        self._worker: subprocess.Popen[bytes] | None = None
        self._held: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the process has been started and answered so far."""
        return self._worker is not None

    def ask(self, question: DriverQuestion[T], deadline_s: float) -> T:
        """The answer. Raises NoAnswer after `deadline_s`, or when the process ends; the next one is another's."""
        until = monotonic() + deadline_s
        if not self._lock.acquire(timeout=max(0.0, deadline_s)):
            raise NoAnswer(HUNG)  # somebody else's question
        try:
            worker = self._started()
            answer = self._answer(worker, framed(question), until)
            found: T = msgspec.msgpack.decode(answer, type=ANSWERS[type(question)])
        except (NoAnswer, msgspec.MsgspecError) as error:
            self._give_up()
            raise error if isinstance(error, NoAnswer) else NoAnswer(CRASHED) from error
        else:
            return found
        finally:
            self._lock.release()

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._give_up()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._worker is None:
            self._held = [worker for worker in self._held if worker.poll() is None]
            if len(self._held) >= MAX_HELD:
                raise NoAnswer(HUNG)
            self._worker = subprocess.Popen(  # noqa: S603 -- our own program
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=_environment()
            )
        return self._worker

    def _answer(self, worker: subprocess.Popen[bytes], question: bytes, until: float) -> bytes:
        assert worker.stdin is not None  # noqa: S101 -- both are pipes
        try:
            worker.stdin.write(question)  # some bytes into an empty pipe: never waits
        except OSError as error:
            raise NoAnswer(CRASHED) from error
        length = int.from_bytes(_read(worker, LENGTH_BYTES, until), "big")
        if length > MAX_BYTES:
            raise NoAnswer(CRASHED)
        return _read(worker, length, until)

    def _give_up(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.kill()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                pipe.close()
        try:
            worker.wait(KILL_S)
        except subprocess.TimeoutExpired:
            self._held.append(worker)


def _environment() -> dict[str, str]:
    before = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": f"{WITHOUT_CUDA}:{before}" if before else str(WITHOUT_CUDA)}


def _read(worker: subprocess.Popen[bytes], count: int, until: float) -> bytes:
    """So many bytes of its output. Raises NoAnswer."""
    assert worker.stdout is not None  # noqa: S101 -- it is a pipe
    ready = select.poll()
    ready.register(worker.stdout, select.POLLIN)
    content = b""
    while len(content) < count:
        if not ready.poll(max(0.0, until - monotonic()) * 1000):
            raise NoAnswer(HUNG)
        piece = worker.stdout.read(count - len(content))
        if not piece:
            raise NoAnswer(CRASHED)
        content += piece
    return content
