"""What bench-fabric makes of the gap between waiting never and waiting for ever."""

from bench.clos import GPUS, Host, Job
from bench.clos_peers import PEERS
from bench.fabric import (
    OURS,
    PATIENCE,
    PATIENCE_OF_LARGE,
    WAITS_FOR_EVER,
    WAITS_NEVER,
    Closeknit,
    Row,
    measured,
)
from closeknit.scheduling.policy.backlog import CROWD


def _seed(one_tor: dict[str, list[int]], waits: dict[str, list[float]]) -> dict[str, Row]:
    """All policies on one seed: those not named as the one that never waits."""
    return {
        name: {
            "one_tor": one_tor.get(name, one_tor[WAITS_NEVER]),
            "spread": [1.0],
            "waits": waits.get(name, waits[WAITS_NEVER]),
            "gar": [0.9],
        }
        for name in (OURS, *PEERS)
    }


def test_the_parts_are_of_all_seeds_together_and_have_an_error() -> None:
    waits = {OURS: [1.5], WAITS_NEVER: [1.0], WAITS_FOR_EVER: [3.0]}
    low, high = [1, 0, 0, 0], [1, 1, 1, 1]
    seeds = [
        _seed({OURS: [1, 1, 0, 0], WAITS_NEVER: low, WAITS_FOR_EVER: high}, waits),
        _seed({OURS: [1, 1, 1, 0], WAITS_NEVER: low, WAITS_FOR_EVER: high}, waits),
    ]
    found = measured(seeds)
    # One seed alone closes 1 of 3, the other 2 of 3: half a third to either side.
    assert (found["gap_closed"], found["gap_closed_error"]) == (0.5, 0.167)
    assert (found["extra_wait_share"], found["extra_wait_share_error"]) == (0.25, 0.0)


def test_a_gap_of_single_gangs_is_none_and_says_why() -> None:
    one_tor = {OURS: [1] * 998 + [0] * 2, WAITS_NEVER: [1] * 999 + [0], WAITS_FOR_EVER: [1] * 1000}
    found = measured([_seed(one_tor, {WAITS_NEVER: [0.0], WAITS_FOR_EVER: [0.006]})])
    assert found["gap_closed"] is None
    assert found["extra_wait_share"] is None
    assert found["why_null"] == "the gap is 0.0010 of all gangs, less than 0.01: there is nothing to close"


def test_it_waits_as_the_operator_would() -> None:
    """Two hosts are free in each of two pods, one under each switch, and a job takes three."""
    fabric = [Host(f"p{number // 4}", f"p{number // 4}/t{number // 2}") for number in range(8)]
    policy = Closeknit(fabric)
    singles = [Job(number, 0.0, GPUS, 1.0) for number in range(8)]
    for single, taken in [(single, policy.take(single, 0.0, 0)) for single in singles]:
        if taken is not None and taken[0][0] % 2:
            policy.give_back(single, ())
    large, small = Job(8, 0.0, 3 * GPUS, 1.0), Job(9, 0.0, 2 * GPUS, 1.0)
    assert policy.take(large, PATIENCE_OF_LARGE - 1, CROWD) is None
    assert policy.take(small, PATIENCE - 1, 1) is None
    assert policy.patient_until(small) == PATIENCE
    assert policy.patient_until(large) == PATIENCE_OF_LARGE
    taken = policy.take(large, 0.0, CROWD - 1)
    assert taken is not None
    assert len({fabric[host].pod for host, _ in taken}) == 2
    policy.give_back(large, taken)
    assert policy.take(small, PATIENCE, 1) is not None
    policy.give_back(small, ())
    assert policy.take(large, PATIENCE_OF_LARGE, CROWD) is not None
