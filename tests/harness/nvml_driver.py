"""Drivers for tests: one in this process, and `python -m harness.nvml_driver DUMP [FAULT …]` as a process of its own.

A fault is FUNCTION:INDEX:WHAT: when that C function is called for the GPU of that index, it does not return (`hang`),
or ends the process (`crash`). A fault of a whole driver has the index `-`. With `@FILE` after it, it lasts while the
file is there.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from closeknit.agent.discovery.readings.dump import decode
from closeknit.agent.nvml import nvml_worker
from closeknit.agent.nvml.nvml_messages import DriverQuestion
from closeknit.agent.nvml.nvml_session import NvmlSession
from harness.nvml_handles import address
from harness.nvml_library import NvmlLibrary

T = TypeVar("T")


class InProcess:
    """A driver whose questions are answered right here, without a deadline."""

    def __init__(self) -> None:
        self.session = NvmlSession()
        self.asked: list[DriverQuestion[Any]] = []

    is_open = True

    def ask(self, question: DriverQuestion[T], deadline_s: float) -> T:  # noqa: ARG002 -- it is the protocol's
        """The answer."""
        self.asked.append(question)
        answer: Any = self.session.answer(question)  # type: ignore[arg-type]
        return answer  # type: ignore[no-any-return]


class FaultyLibrary(NvmlLibrary):
    """A library with functions that do not return."""

    def __init__(self, readings: Any, faults: list[str]) -> None:
        super().__init__(readings)
        self._faults = faults

    def __getattr__(self, name: str) -> Callable[..., int]:
        call = super().__getattr__(name)

        def faulty(*arguments: Any) -> int:
            for fault in self._faults:
                text, _, file = fault.partition("@")
                function, index, what = text.split(":")
                if function == name and (not file or Path(file).exists()) and _is_of(index, arguments):
                    if what == "crash":
                        os.abort()
                    time.sleep(3600)
            return call(*arguments)

        return faulty


def _is_of(index: str, arguments: tuple[Any, ...]) -> bool:
    return index == "-" or (bool(arguments) and address(arguments[0]) == int(index) + 1)


def main() -> None:
    """Answers as the agent's own process does."""
    dump, *faults = sys.argv[1:]
    pynvml.nvmlLib = FaultyLibrary(decode(Path(dump).read_bytes()), faults)
    nvml_worker.main()


if __name__ == "__main__":
    main()
