"""What a declaration that is wrong by a factor of 100 costs, and whom."""

import pytest

from closeknit.simulation.operated import Operated
from closeknit.simulation.replay import replay
from closeknit.simulation.submission import Submission
from scenarios.traces import BEGINS, cluster, spec

RUNS_S = 6000


def began(*declared_s: int) -> dict[int, float]:
    """When each of ten jobs of one node begins that run equally long; the last ones declare as told."""
    said = (*[RUNS_S] * (10 - len(declared_s)), *declared_s)
    jobs = [
        Submission(number, number, RUNS_S, spec(8).model_copy(update={"expected_duration": f"{length_s}s"}))
        for number, length_s in enumerate(said)
    ]
    return {job.number: at.now_s for at in replay(jobs, Operated(cluster("r1", "r1"), BEGINS)) for job in at.began}


def test_a_liar_costs_each_of_the_others_one_turn_at_most() -> None:
    honest, with_liar = began(RUNS_S), began(RUNS_S // 100)
    later = [with_liar[number] - honest[number] for number in range(9)]
    assert with_liar[9] < honest[9]
    assert max(later) == pytest.approx(RUNS_S, abs=10)
    assert sum(later) <= 9 * RUNS_S / 2 + 100


def test_who_declares_too_much_pays_for_it_alone() -> None:
    honest, with_liar = began(RUNS_S), began(RUNS_S * 100)
    assert with_liar[9] == honest[9]
    assert [with_liar[number] for number in range(9)] == [honest[number] for number in range(9)]
