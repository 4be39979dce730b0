"""Pieces of a log as lines, of which none is kept for longer than it has to be."""

from collections.abc import Iterator
from dataclasses import dataclass

MOST_LINE_BYTES = 1 << 16  # what is longer is shown in pieces of so many


@dataclass(frozen=True, slots=True)
class LinePart:
    """A line, or one of the parts of a long one."""

    text: bytes
    """Without the line break."""
    begins: bool
    ends: bool


class LogLines:
    """Cuts pieces into lines."""

    def __init__(self) -> None:
        self._begun = b""
        self._is_inside = False
        """Whether a part of the present line was given already."""

    def of(self, piece: bytes) -> Iterator[LinePart]:
        """Lines that are whole with this piece; of one that is too long parts."""
        *whole, rest = (self._begun + piece).split(b"\n")
        for line in whole:
            yield from self._parts(line)
            yield self._part(self._begun, ends=True)
        yield from self._parts(rest)

    def rest(self) -> Iterator[LinePart]:
        """The last line, where it has no line break."""
        if self._begun:
            yield self._part(self._begun, ends=False)

    def _parts(self, line: bytes) -> Iterator[LinePart]:
        """Those before the last one, which is kept."""
        while len(line) > MOST_LINE_BYTES:
            yield self._part(line[:MOST_LINE_BYTES], ends=False)
            line = line[MOST_LINE_BYTES:]
        self._begun = line

    def _part(self, text: bytes, *, ends: bool) -> LinePart:
        part = LinePart(text, begins=not self._is_inside, ends=ends)
        self._is_inside = not ends
        self._begun = b""
        return part
