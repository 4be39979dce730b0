"""Under every mask of free GPUs the best set is taken, by a judge that knows nothing of closeknit and by the rings."""

import pytest

from bench.node_gpu import every_mask
from bench.traced import ours, sets_of, summary, traced


@pytest.mark.parametrize("name", ["dgx-v", "summit"])
def test_no_free_set_is_better_by_either_judge(name: str) -> None:
    of = traced(name)
    choose = ours(of)
    for judge in ("tree", "ring"):
        assert every_mask(of, choose, judge) == {"ratio_to_exhaustive": 1.0, "share_short": 0.0}


def test_the_judges_see_what_they_should() -> None:
    of = traced("dgx-v")
    assert {of.worth["tree"][mask] for mask in sets_of(of.every, 2)} == {10, 25, 50}
    assert of.worth["tree"][0b1111] == 75
    assert of.ideal("tree", 0b0101) == 0.5
    assert summary([1.0, 0.5]) == {"at_ideal": 0.5, "p5": 0.5, "mean": 0.75}
