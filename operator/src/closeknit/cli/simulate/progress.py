"""How far a replay is, on stderr: a bar on a terminal, elsewhere a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from closeknit.cli.output.outlet import left_tidy

ELSEWHERE_S = 30.0  # of an hour's replay a log has 120 lines, and its reader waits no longer than this
_WHAT = "jobs begun and ended"


@contextmanager
def progress(total: int, console: Console) -> Iterator[Callable[[int], None]]:
    """Yields what to call with how many more of the total are done."""
    if not console.is_terminal:
        yield _Lines(total, console).advance
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with left_tidy(), Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(_WHAT, total=total)
        yield lambda more: bar.advance(task, more)


class _Lines:
    """Says nothing of a replay that is over before the first line is due."""

    def __init__(self, total: int, console: Console) -> None:
        self._total = total
        self._console = console
        self._done = 0
        self._began = self._said = time.monotonic()

    def advance(self, more: int) -> None:
        self._done += more
        now = time.monotonic()
        if now - self._said < ELSEWHERE_S:
            return
        self._said = now
        line = f"{_WHAT}: {self._done:,} of {self._total:,} after {now - self._began:.0f} s"
        self._console.print(line, highlight=False, soft_wrap=True)
