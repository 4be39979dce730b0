"""Random lives of many jobs over the in-memory API server."""

import pytest

from lives.life import live


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_life_goes_well(seed: int) -> None:
    outcome = live(seed)
    assert not outcome.faults, str(outcome)
