"""Pieces of a log as lines, of which none is kept for longer than it has to be."""

from collections.abc import Iterator

MOST_LINE_BYTES = 1 << 16  # what is longer is shown in pieces of so many


class LogLines:
    """Cuts pieces into lines."""

    def __init__(self) -> None:
        self._begun = b""

    def of(self, piece: bytes) -> Iterator[bytes]:
        """Lines that are whole with this piece, each with its line break; of one that is too long parts."""
        *whole, rest = (self._begun + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
        while len(rest) > MOST_LINE_BYTES:
            yield rest[:MOST_LINE_BYTES] + b"\n"
            rest = rest[MOST_LINE_BYTES:]
        self._begun = rest

    def rest(self) -> Iterator[bytes]:
        """The last line, where it has no line break."""
        if self._begun:
            yield self._begun + b"\n"
        self._begun = b""


def stamped(line: bytes) -> tuple[bytes, bytes]:
    """(time, the line itself) of a line that an API server was asked to date; no time where it has none."""
    time, blank, words = line.partition(b" ")
    return (time, words) if blank and time[:2] == b"20" and time.endswith(b"Z") else (b"", line)
