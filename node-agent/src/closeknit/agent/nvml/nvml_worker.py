"""The process that calls NVML: it answers questions from its standard input until that ends.

A call into the driver may never return, and no thread can be ended from outside; a process can (docs/decisions/0009).
"""

import os
import signal
import sys
from typing import BinaryIO

import msgspec

from closeknit.agent.nvml.nvml_messages import LENGTH_BYTES, Question, framed
from closeknit.agent.nvml.nvml_session import NvmlSession
from closeknit.runtime.trimmed import give_back


def main() -> None:
    """Answers until the pipe of questions ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the agent ends first
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a driver's library prints is no answer
    give_back()
    serve(NvmlSession(), sys.stdin.buffer, answers)


def serve(session: NvmlSession, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answers one question after the other."""
    while len(head := questions.read(LENGTH_BYTES)) == LENGTH_BYTES:
        question = msgspec.msgpack.decode(questions.read(int.from_bytes(head, "big")), type=Question)
        answers.write(framed(session.answer(question)))
        answers.flush()


if __name__ == "__main__":
    main()
