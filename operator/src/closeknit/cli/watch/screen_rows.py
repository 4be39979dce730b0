"""How much of a terminal lines take: one that is drawn over takes as many rows back as it has taken."""

import re
from collections.abc import Sequence
from unicodedata import combining, east_asian_width

_COLOUR = re.compile(r"\x1b\[[0-9]*m")


def fitting(lines: Sequence[str], columns: int, rows: int) -> tuple[list[str], int]:
    """The first lines, as many as a terminal shows at once with the cursor below them, and how many rows they take;
    where some are left out, a line says so. What has left the screen can be drawn over no more."""
    taken = [_rows(line, columns) for line in lines]
    if sum(taken) < rows:
        return list(lines), sum(taken)
    count = len(lines)
    while count and sum(taken[:count]) + 1 >= rows:
        count -= 1
    more = f"… {len(lines) - count} more lines: the terminal is too low"[: max(1, columns)]
    return [*lines[:count], more], sum(taken[:count]) + 1


def _rows(line: str, columns: int) -> int:
    rows, at = 1, 0
    for character in _COLOUR.sub("", line):
        width = 0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1
        if at + width > columns:
            rows, at = rows + 1, 0
        at += width
    return rows
