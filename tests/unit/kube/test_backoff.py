"""One rule for pauses: doubling, at least half of it waited, beginning when the server asks for it."""

from itertools import islice

import pytest

from closeknit.controller.kopf_operator import Backoffs
from closeknit.kube.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "jitter", "expected_s"),
    [
        pytest.param(0, 1.0, 0.0, id="no failure, no pause"),
        pytest.param(1, 1.0, 0.2, id="the first"),
        pytest.param(1, 0.0, 0.1, id="at least half"),
        pytest.param(2, 0.5, 0.3, id="twice the first, and the chance between"),
        pytest.param(8, 1.0, 25.6, id="doubling"),
        pytest.param(9, 1.0, 30.0, id="up to the longest"),
        pytest.param(10_000, 1.0, 30.0, id="for ever"),
    ],
)
def test_pauses(failures: int, jitter: float, expected_s: float) -> None:
    assert Backoff(0.2, 30.0, lambda: jitter).pause_s(failures) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("failures", "asked_s", "expected_s"),
    [
        pytest.param(1, 7.0, 7.2, id="the server asks for more"),
        pytest.param(1, 0.01, 0.21, id="the server asks for less"),
        pytest.param(1, None, 0.2, id="the server asks for nothing"),
        pytest.param(0, 7.0, 7.0, id="the server asks, and nothing failed"),
        pytest.param(1, 86_400.0, 60.2, id="the server asks for a day"),
        pytest.param(1, -5.0, 0.2, id="the server asks for the past"),
    ],
)
def test_what_the_server_asks_for(failures: int, asked_s: float | None, expected_s: float) -> None:
    assert Backoff(0.2, 30.0, lambda: 1.0).pause_s(failures, asked_s) == pytest.approx(expected_s)


def test_those_whom_the_server_turns_away_together_do_not_come_back_together() -> None:
    chances = iter([0.0, 0.25, 1.0])
    backoff = Backoff(1.0, 60.0, lambda: next(chances))
    assert [backoff.pause_s(1, 1.0) for _ in range(3)] == [1.5, 1.625, 2.0]


def test_kopf_is_given_pauses_without_end() -> None:
    pauses = list(islice(Backoffs(), 40))
    longest = [min(30.0, 0.5 * 2**number) for number in range(40)]
    assert all(half / 2 <= pause <= half for pause, half in zip(pauses, longest, strict=True))
