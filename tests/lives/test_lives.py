"""Random lives of many jobs: whatever goes wrong meanwhile, no GPU is held twice, and in the end nobody is stuck.

Nodes blip, die and are cut off; gangs start again in place by the rules of their own sidecars, take spares, and have
single Pods replaced.

`pytest tests/lives --seed 17` repeats a life exactly. `make test-long` lives for an hour, each time other lives.
"""

import random
import time

import pytest

from lives.life import live

SEEDS = (*range(5, 14), 17)  # in the last a machine is booted again under a job
HOUR_S = 3600.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        given = metafunc.config.getoption("--seed")
        metafunc.parametrize("seed", SEEDS if given is None else [given])


def test_a_life_goes_well(seed: int) -> None:
    outcome = live(seed)
    assert not outcome.faults, str(outcome)


def test_a_life_is_repeated_by_its_seed() -> None:
    assert live(7).digest == live(7).digest != live(12).digest


@pytest.mark.long
def test_an_hour_of_lives(capsys: pytest.CaptureFixture[str]) -> None:
    first = random.SystemRandom().randrange(1_000, 1_000_000_000)
    with capsys.disabled():
        print(f"\nlives from seed {first} on")
    until, seed, failed = time.monotonic() + HOUR_S, first, []
    while time.monotonic() < until:
        outcome = live(seed)
        if outcome.faults:
            failed.append(outcome)
            with capsys.disabled():
                print(outcome)
        seed += 1
    assert not failed, f"{len(failed)} of {seed - first} lives went wrong: {[outcome.seed for outcome in failed]}"
