"""Where several processes share the tests of a run (pytest-xdist), a test that is marked `alone` runs beside no other.

For what asserts seconds: with a busy neighbour they would tell of the machine. Everybody holds one lock file shared, or
whole, while a test runs; and takes a second one for a moment before it, so that whoever wants the first one whole gets
it before the others' next tests.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest


class Alone:
    """The plugin of one of a run's processes."""

    def __init__(self, folder: Path) -> None:
        self._door = folder / "door.lock"
        self._room = folder / "room.lock"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """One test, with its fixtures."""
        how = fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH
        with ExitStack() as stack:
            with _held(self._door, fcntl.LOCK_EX):
                stack.enter_context(_held(self._room, how))
            return (yield)


@contextmanager
def _held(path: Path, how: int) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, how)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile may have the file open, too
