"""How long a trainer has not touched its file, on nodes whose clock is set meanwhile."""

import os
import time
from pathlib import Path

import pytest

from closeknit.sidecar.progress_signs import Touches, stall

DEADLINE_S = 60.0


class Clocks:
    """The clock that counts on, and that of the node, which somebody sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
        self.monotonic_s, self.unix_s, self.file = 1000.0, 1_800_000_000.0, file
        monkeypatch.setattr(time, "monotonic", lambda: self.monotonic_s)
        monkeypatch.setattr(time, "time", lambda: self.unix_s)
        file.touch()

    def touch(self) -> None:
        os.utime(self.file, (self.unix_s, self.unix_s))

    def pass_time(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.unix_s += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clocks:
    return Clocks(monkeypatch, tmp_path / "progress")


@pytest.mark.parametrize("set_by_s", [-3600.0, 0.0, 30.0, 3600.0])
def test_a_clock_that_is_set_is_no_stall_and_hides_none(clocks: Clocks, set_by_s: float) -> None:
    touches, began = Touches(str(clocks.file)), clocks.unix_s
    clocks.pass_time(7200)
    clocks.touch()
    assert stall(touches, DEADLINE_S, began, None) is None
    clocks.unix_s += set_by_s
    assert stall(touches, DEADLINE_S, began, None) is None
    clocks.pass_time(DEADLINE_S - 1)
    clocks.touch()
    assert stall(touches, DEADLINE_S, began, None) is None
    clocks.pass_time(DEADLINE_S - 1)
    assert stall(touches, DEADLINE_S, began, None) is None
    clocks.pass_time(2)
    found = stall(touches, DEADLINE_S, began, None)
    assert found is not None
    assert found.still_s == DEADLINE_S + 1


def test_a_watch_that_is_started_again_knows_since_when_it_is_still(clocks: Clocks) -> None:
    clocks.touch()
    clocks.pass_time(DEADLINE_S)
    found = stall(Touches(str(clocks.file)), DEADLINE_S, 0.0, None)
    assert found is not None
    assert found.still_s == DEADLINE_S
