"""A page of text for a person: words, columns and colours, as wide as the terminal is.

Where a program reads, there is no colour and no row is cut. Words wrap at 80 columns there, or at $COLUMNS. rich would
do, and takes 0.15 s to import: these commands are typed many times a day.
"""

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from textwrap import wrap
from typing import Self, TextIO

from closeknit.api.text.printable import printable

USUAL_WIDTH = 80
WIDEST_WORDS = 100  # longer lines of prose are hard to read
LEAST_WIDTH = 40
_GAP = "  "  # between columns: with three, as kubectl has it, uuids of ranks do not fit 80
_CUT = "…"
_LEAST_ROOM = 24  # columns in which words can be read
NOTHING = "-"  # a cell that says nothing


class Ink(StrEnum):
    """What a colour means. The value is the number of the terminal's own colour."""

    STRONG = "1"
    FAINT = "2"
    BAD = "31"
    GOOD = "32"
    CARE = "33"


@dataclass(frozen=True, slots=True)
class Inked:
    """Words in a colour."""

    words: str
    ink: Ink | None = None


@dataclass(frozen=True, slots=True)
class Paper:
    """What is written on."""

    width: int = USUAL_WIDTH
    is_cut: bool = False
    """Whether rows that are wider are cut: on a terminal."""
    is_coloured: bool = False

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str] = os.environ) -> Self:
        """That of a stream: colours only on a terminal that has some, and whose user wants them (NO_COLOR)."""
        is_terminal = stream.isatty()
        width = max(LEAST_WIDTH, shutil.get_terminal_size((USUAL_WIDTH, 24)).columns)
        is_coloured = is_terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        return cls(width, is_terminal, is_coloured)


class Page:
    """Lines that are written from top to bottom."""

    def __init__(self, paper: Paper) -> None:
        self._paper = paper
        self.lines: list[str] = []

    def say(self, *parts: Inked | str, indent: int = 0) -> None:
        """A paragraph. Its parts follow each other without a break."""
        inked = [each if isinstance(each, Inked) else Inked(each) for each in parts]
        whole = "".join(printable(each.words) for each in inked)
        width = min(self._paper.width, WIDEST_WORDS)
        lines = wrap(whole, width - indent, break_long_words=False, break_on_hyphens=False) or [""]
        starts = [(0, None), *((len(printable(each.words)), each.ink) for each in inked)]
        if not self._paper.is_coloured or all(ink is None for _, ink in starts):
            self.lines += [f"{' ' * indent}{line}" for line in lines]
        elif len(lines) == 1:
            self.lines.append(" " * indent + "".join(self._inked(printable(each.words), each.ink) for each in inked))
        else:  # only the first part of a long paragraph has a colour: its headline
            head = printable(inked[0].words)
            lines[0] = (
                self._inked(head, inked[0].ink) + lines[0][len(head) :] if lines[0].startswith(head) else lines[0]
            )
            self.lines += [f"{' ' * indent}{line}" for line in lines]

    def columns(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[Inked | str]],
        indent: int = 0,
        optional: Collection[str] = (),
    ) -> None:
        """A table. On a terminal `optional` columns that say nothing are left out. The last column is cut there where
        it is too wide, and stands below its row where there is hardly any room beside it."""
        cells = [[each if isinstance(each, Inked) else Inked(each) for each in row] for row in rows]
        if self._paper.is_cut and cells:
            shown = [at for at, each in enumerate(headings) if each not in optional or _says(row[at] for row in cells)]
            headings, cells = [headings[at] for at in shown], [[row[at] for at in shown] for row in cells]
        texts = [list(headings), *([printable(each.words) for each in row] for row in cells)]
        widths = [max(len(row[at]) for row in texts) for at in range(len(headings))]
        room = self._paper.width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1) - indent
        is_below = self._paper.is_cut and room < min(widths[-1], _LEAST_ROOM)
        for number, row in enumerate(texts):
            inks = [Ink.FAINT] * len(row) if number == 0 else [each.ink for each in cells[number - 1]]
            last = row[-1]
            if self._paper.is_cut and len(last) > room:
                last = last[: max(0, room - 1)] + _CUT
            padded = [*(text.ljust(width) for text, width in zip(row[:-1], widths, strict=False)), last]
            if is_below:
                padded, inks = padded[:-1], inks[:-1]
            line = _GAP.join(self._inked(text, ink) for text, ink in zip(padded, inks, strict=True))
            self.lines.append(" " * indent + line.rstrip())
            if is_below and number and row[-1] != NOTHING:
                self.say(row[-1], indent=indent + len(_GAP))

    def gap(self) -> None:
        """An empty line, unless the page begins here."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def show(self) -> None:
        """Writes it to standard output."""
        sys.stdout.write("".join(f"{line}\n" for line in self.lines))

    def _inked(self, words: str, ink: Ink | None) -> str:
        if ink is None or not self._paper.is_coloured or not words.strip():
            return words
        bare = words.rstrip()
        return f"\x1b[{ink.value}m{bare}\x1b[0m{words[len(bare) :]}"


def _says(cells: Iterable[Inked]) -> bool:
    return any(each.words not in ("", NOTHING) for each in cells)


def paper() -> Paper:
    """That of standard output."""
    return Paper.of(sys.stdout)


def length(seconds: float) -> str:
    """How long, as kubectl writes ages: 45s, 12m, 3h5m, 2d4h, 30d."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left}s"
    minutes = left // 60
    if minutes < 10:
        return f"{minutes}m{left % 60}s" if left % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    return f"{days}d{hours % 24}h" if days < 8 and hours % 24 else f"{days}d"
