"""Where answers go: pipes that are closed early, disks that are full, encodings that lack a character, terminals that
somebody interrupts."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EDQUOT, EFBIG, EIO, ENOSPC, EPIPE
from io import TextIOWrapper
from pathlib import Path

NOBODY_READS = 1
NOT_WRITTEN = 2
_OF_WRITING = {ENOSPC, EDQUOT, EFBIG, EIO}


def answering(command: Callable[[], None]) -> None:
    """Runs a command that prints. The process ends silently if its reader stops, as after `| head`, and with a
    line if the output cannot be written, or there is none; characters that the encoding lacks are escaped."""
    if sys.stderr is None:  # else print would write what is meant for it to standard output
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process is there
    if sys.stdout is None:
        print("closeknit: the answer cannot be written: standard output is closed", file=sys.stderr)
        sys.exit(NOT_WRITTEN)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            command()
        finally:  # commands end by SystemExit; what is left to the interpreter's end fails with a traceback
            sys.stdout.flush()
    except OSError as error:
        if error.errno == EPIPE:
            _end(NOBODY_READS)
        if error.errno in _OF_WRITING:
            print(f"closeknit: the answer cannot be written: {error.strerror}", file=sys.stderr)
            _end(NOT_WRITTEN)
        raise


@contextmanager
def left_tidy() -> Iterator[None]:
    """While a terminal is drawn on, Ctrl-C raises KeyboardInterrupt, so that its cursor comes back."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(code: int) -> None:
    """Ends the process; what is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)
