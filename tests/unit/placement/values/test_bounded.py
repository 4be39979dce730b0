"""Memory of bounded size: what it holds, and what goes first."""

from random import Random

import pytest

from closeknit.placement.values.bounded import Bounded


@pytest.mark.parametrize("most", [1, 2, 63, 64, 500])
def test_it_holds_the_newest_and_never_too_many(most: int) -> None:
    kept: Bounded[int, int] = Bounded(most)
    for number in range(3 * most):
        kept[number] = -number
        assert most * 60 // 64 <= len(kept) <= most or len(kept) == number + 1
        assert list(kept.items()) == [(key, -key) for key in range(number + 1 - len(kept), number + 1)]


def test_what_is_used_goes_last() -> None:
    kept: Bounded[str, int] = Bounded(3)
    for number, key in enumerate("abc"):
        kept[key] = number
    assert (kept.use("a"), kept.use("z"), kept.kept("b", lambda: 9), kept["c"]) == (0, None, 1, 2)
    assert kept.kept("d", lambda: 3) == 3
    assert list(kept) == ["a", "b", "d"]
    kept.limit(1)
    assert dict(kept) == {"d": 3}


def test_what_is_false_is_made_once() -> None:
    kept: Bounded[str, bool] = Bounded()
    assert [kept.kept("fits", iter([False, True]).__next__) for _ in range(2)] == [False, False]


def test_values_are_counted_by_what_they_weigh() -> None:
    """One that weighs too much by itself is kept as long as it is the newest."""
    chance = Random(1)  # noqa: S311 - the same values every time
    kept: Bounded[int, str] = Bounded(100, lambda _, value: len(value))
    for number in range(101):
        kept[number] = ""
    assert 98 < len(kept) <= 100
    for number in range(2_000):
        kept[chance.randrange(300)] = "x" * chance.choice((0, 1, 7, 30, 101))
        kept.kept(number % 300, lambda: "xx")
        kept.use(chance.randrange(300))
        assert kept._weight == sum(map(len, kept.values()))
        assert len(kept) <= 100
        assert kept._weight <= 100 or kept._weight - len(next(reversed(kept.values()))) <= 100
