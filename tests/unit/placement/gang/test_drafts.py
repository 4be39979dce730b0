"""What cannot win is not worked out: layouts are compared by what they could be at best before they are known."""

from functools import partial

import pytest

from closeknit.placement.gang import variant
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gang.layout import Draft, Layout, Merit, Sketch, best_of_drafts
from closeknit.placement.gang.prediction import Prediction
from closeknit.placement.gang.queries import Counted
from closeknit.placement.gpusets.set_value import Value
from closeknit.placement.place import place
from closeknit.placement.spread.cheapest import Filling, Spread
from closeknit.placement.spread.cost import PackedCost
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, graph, node, wanted


def merit(racks: int, gb_s: float, cost: int) -> Merit:
    return Merit(
        is_far=False,
        domains=(racks,),
        is_unequal=False,
        minus_block_gb_s=0.0,
        minus_bus_gb_s=-gb_s,
        cost=PackedCost(cost),
    )


def layout(racks: int) -> Layout:
    return Layout((), None, (racks,), Prediction(None, ""))


def test_only_what_may_be_better_is_worked_out() -> None:
    asked: list[str] = []

    def draft(name: str, at_best: Merit, *found: Merit) -> Draft:
        def sketches() -> list[Sketch]:
            asked.append(name)
            return [Sketch(each, (), partial(layout, each.cost)) for each in found]

        return Draft(at_best, sketches)

    drafts = [
        draft("more racks", merit(3, 400.0, 0), merit(3, 400.0, 1)),
        draft("as many, slower at best", merit(2, 90.0, 0), merit(2, 90.0, 1)),
        draft("as many, which may be as fast", merit(2, 100.0, 0), merit(2, 100.0, 7)),
        draft("turns out slower than it may be", merit(2, 200.0, 0), merit(2, 100.0, 9)),
        draft("turns out to be none", merit(1, 100.0, 0)),
    ]
    found = best_of_drafts(drafts)
    assert found
    assert found.counts == (7,)
    assert asked == ["turns out to be none", "turns out slower than it may be", "as many, which may be as fast"]
    assert best_of_drafts([]) is None


@pytest.mark.parametrize("dgx_racks", [1, 2], ids=["slower", "apart"])
def test_a_kind_of_machine_that_cannot_win_is_left_at_its_domains(
    monkeypatch: pytest.MonkeyPatch, dgx_racks: int
) -> None:
    """Sixteen GPUs: of both kinds there are enough, but one is slower, or needs a rack more."""
    views = [node(f"h200-{number}", graph("hgx-h200"), path=("r0",)) for number in range(2)]
    views += [node(f"dgx-{number}", graph("dgx-1v"), path=(f"r{number % dgx_racks + 1}",)) for number in range(2)]
    kinds: set[str] = set()
    sketch = variant.Variant._sketch

    def noted(self: variant.Variant, counted: Counted, floor: Value, at_best: Merit) -> Sketch | None:
        kinds.update(offer.terms.sets.facts.machine.topology_class for offer in self._offers.values())
        return sketch(self, counted, floor, at_best)

    monkeypatch.setattr(variant.Variant, "_sketch", noted)
    found = place(cluster_of(*views, levels=("rack",)), wanted(gpus=16), Tables())
    assert isinstance(found, Placement)
    assert [share.node for share in found.shares] == ["h200-0", "h200-1"]
    assert kinds == {graph("hgx-h200").topology_class}


def test_a_spread_with_ranks_missing_is_not_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen GPUs of which the picks have eight."""
    views = [node(f"h200-{number}", graph("hgx-h200"), path=("r0",)) for number in range(2)]
    spread = Filling.spread
    monkeypatch.setattr(Filling, "spread", lambda *asked: Spread(spread(*asked).picks[:1], is_proven=True))
    with pytest.raises(AssertionError, match="16 GPUs has 8"):
        place(cluster_of(*views, levels=("rack",)), wanted(gpus=16), Tables())
