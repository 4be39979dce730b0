"""Random lives of many jobs: whatever goes wrong meanwhile, no GPU is held twice, and in the end nobody is stuck.

Nodes blip, die and are cut off; gangs start again in place by the rules of their own sidecars, take spares, and have
single Pods replaced. Elastic ones grow in their Pods, and go back where the added ones are refused.

`pytest tests/lives --seed 17` repeats a life exactly, and the one of a job that grows. `make test-long` lives for an
hour, each time other lives; every third is of a job that grows.
"""

import random
import time

import pytest

from lives.life import live

SEEDS = (*range(5, 9), *range(10, 14), 16, 17)  # in the last a machine is booted again under a job; 9 takes 20 s
# How many growths in place come about, and are taken back. In 12 a gang that has lost a node goes on where one of its
# Pods of before shares a node with somebody else.
GROWING = {3: (2, 1), 5: (0, 1), 12: (0, 0), 14: (1, 0)}
HOUR_S = 3600.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    given = metafunc.config.getoption("--seed")
    for name, seeds in (("seed", SEEDS), ("growing", GROWING)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, seeds if given is None else [given])


def test_a_life_goes_well(seed: int) -> None:
    outcome = live(seed)
    assert not outcome.faults, str(outcome)


def test_a_life_of_a_job_that_grows_in_its_pods_goes_well(growing: int) -> None:
    outcome = live(growing, grows=True)
    assert not outcome.faults, str(outcome)
    growths = (outcome.grown, outcome.taken_back)
    assert growths == GROWING.get(growing, growths)


def test_a_life_is_repeated_by_its_seed() -> None:
    assert live(7).digest == live(7).digest != live(12).digest


@pytest.mark.long
def test_an_hour_of_lives(capsys: pytest.CaptureFixture[str]) -> None:
    first = random.SystemRandom().randrange(1_000, 1_000_000_000)
    with capsys.disabled():
        print(f"\nlives from seed {first} on")
    until, seed, failed = time.monotonic() + HOUR_S, first, []
    while time.monotonic() < until:
        outcome = live(seed, grows=seed % 3 == 0)
        if outcome.faults:
            failed.append(outcome)
            with capsys.disabled():
                print(outcome)
        seed += 1
    assert not failed, f"{len(failed)} of {seed - first} lives went wrong: {[outcome.seed for outcome in failed]}"
