"""The orders of bench-queue beside what their authors publish: docs/peers.md has the sources."""

from random import Random

import pytest

from bench.clos import Host
from bench.queue_lists import STRETCH, QueueJob, guess
from bench.queue_peers import ORDERS, STOPPED_S, Ordered, attained, shortest_remaining
from closeknit.simulation.replay import replay

TWO_HOSTS = [Host("p", "p/t")] * 2
APART = STRETCH[1]  # how much longer 16 GPUs take on them


def job(number: int, at_s: float, gpus: int, run_s: float, **said: float) -> QueueJob:
    return QueueJob(number, at_s, gpus, run_s, said.get("declared_s", run_s), said.get("guessed_s", run_s))


def began(rule: str, *jobs: QueueJob) -> list[float]:
    found = {each: at.now_s for at in replay(jobs, Ordered(TWO_HOSTS, ORDERS[rule])) for each in at.began}
    return [found[each] for each in jobs]


@pytest.mark.parametrize(("rule", "passes"), [("fifo", False), ("strict fifo", False), ("best-effort fifo", True)])
def test_a_newer_job_passes_one_that_does_not_fit_or_not(rule: str, passes: bool) -> None:
    jobs = (job(0, 0, 8, 600), job(1, 1, 16, 60), job(2, 2, 8, 6000))
    assert began(rule, *jobs)[2] == (2 if passes else 663)
    assert began(rule, *jobs)[1] == (6002 if passes else 600)


@pytest.mark.parametrize(
    ("last", "at_s"),
    [
        pytest.param({"gpus": 8, "run_s": 590}, 2, id="it ends before the first starts"),
        pytest.param({"gpus": 8, "run_s": 6000}, 663, id="it would delay the first"),
        pytest.param({"gpus": 8, "run_s": 590, "declared_s": 700}, 663, id="its declaration counts, not its end"),
    ],
)
def test_easy_lets_pass_who_delays_nobody(last: dict[str, float], at_s: float) -> None:
    said = {key: value for key, value in last.items() if key == "declared_s"}
    jobs = (job(0, 0, 8, 600), job(1, 1, 16, 60), job(2, 2, int(last["gpus"]), last["run_s"], **said))
    assert began("easy", *jobs) == [0, 600, at_s]


def test_easy_lets_pass_who_uses_what_the_first_leaves() -> None:
    jobs = (job(0, 0, 8, 600), job(1, 0, 4, 600), job(2, 1, 8, 60), job(3, 2, 4, 6000))
    assert began("easy", *jobs) == [0, 0, 600, 2]


def test_qssf_goes_by_guessed_time_and_gpus_and_its_first_blocks() -> None:
    jobs = (
        job(0, 0, 16, 600),
        job(1, 1, 8, 60, guessed_s=100),
        job(2, 2, 1, 60, guessed_s=900),
        job(3, 3, 16, 60, guessed_s=20),
    )
    assert began("qssf", *jobs) == [0, 693, 693, 630]


def test_qssfs_guesses_are_off_as_its_authors_say() -> None:
    random = Random(1)  # noqa: S311 - a sample
    errors = [abs(guess(random)) for _ in range(20_000)]
    for most, share in ((0.1, 0.1), (0.5, 0.5), (1.0, 0.7), (10.0, 0.9), (100.0, 1.0)):
        assert sum(error <= most for error in errors) / len(errors) == pytest.approx(share, abs=0.015)


def test_las_stops_who_has_had_its_share_and_that_costs() -> None:
    long, short = job(0, 0, 16, 3000), job(1, 60, 16, 600)
    ended = {each.job: each for each in attained((long, short), TWO_HOSTS)}
    turn_s = 1140  # 18,000 GPU-seconds on 16 GPUs, and then the next round
    assert ended[long].stops == 1
    assert ended[short].ended_s == turn_s + 600 * APART
    assert ended[long].ended_s == pytest.approx(1800 + (3000 + STOPPED_S) * APART - turn_s)  # from the next round on


def test_nothing_is_sooner_than_the_shortest_remaining_first() -> None:
    jobs = (job(0, 0, 1, 100), job(1, 10, 1, 20))
    assert {each.job.number: each.ended_s for each in shortest_remaining(jobs, 1, is_by_area=False)} == {0: 120, 1: 30}
