"""Who goes is the cheapest choice after which the gang fits: against every choice there is, on random clusters."""

import pytest

from closeknit.lifecycle.verdict import Await, Book
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.schedule import schedule
from scenarios.crowded import TABLES, URGENT, cost, fits, least_cost, site, without
from scenarios.story import NOW


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 3000), marks=pytest.mark.long)], ids=["", "long"])
def test_the_cheapest_jobs_go_and_none_in_vain(seeds: range) -> None:
    preempted = 0
    for seed in seeds:
        cluster, low = site(seed)
        verdict = schedule(cluster, TABLES, Memory(is_rationed=False), NOW)[URGENT]
        if fits(cluster, ()):
            assert not isinstance(verdict, Await), seed
            continue
        least = least_cost(cluster, low)
        assert isinstance(verdict, Await) == (least is not None), (seed, verdict)
        if not isinstance(verdict, Await):
            continue
        preempted += 1
        names = {each.job.name for each in verdict.awaits}
        gone = tuple(each for each in low if each.name in names)
        assert cost(gone) == least, seed
        assert all(not fits(cluster, tuple(each for each in gone if each is not other)) for other in gone), seed
        after = without(cluster, gone)
        assert verdict.placement is not None
        for share in verdict.placement.shares:
            assert not set(share.gpus) & set(after.nodes[share.node].holders), seed
    assert preempted > len(seeds) // 5


def test_a_job_that_fits_ends_nobody() -> None:
    found = [site(seed) for seed in range(60)]
    for cluster, _ in found:
        if fits(cluster, ()):
            verdict = schedule(cluster, TABLES, Memory(is_rationed=False), NOW)[URGENT]
            assert not isinstance(verdict, Await)
    assert any(isinstance(schedule(cluster, TABLES, Memory(), NOW)[URGENT], Book) for cluster, _ in found)
