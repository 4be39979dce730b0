"""Who goes is needed, and who could go does, on nodes of every kind: GPUs that are ill, split or held twice, NICs,
claims, volumes. Jobs there have not begun to run, so that they all cost the same."""

import random
from itertools import combinations
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.lifecycle.verdict import Await, Wait, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place
from closeknit.placement.values.request import NOBODY, request
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.schedule import schedule
from closeknit.scheduling.victims.victim import gone
from scenarios.fleets import Fleet, Followed, job_of, spec_by
from scenarios.manifests import priority_class, training_job
from scenarios.story import NOW

URGENT = JobKey("team-b", "urgent")
TABLES = Tables()
MOST = 8  # jobs there, for every choice of them is tried
# In the first three a job holds GPUs that are ill, or that another one holds, too.
SEEDS = (51, 116, 572, *range(27))


def preempted(seed: int) -> bool:
    """Whether somebody makes room for the job of this seed, as every choice of them says."""
    chance = random.Random(seed)  # noqa: S311 - a fleet that can be seen again
    objects: dict[Any, Any] = {}
    fleet = Fleet(chance, objects, nodes=chance.choice((1, 2, 3)))
    for _ in range(chance.randint(5, 40)):
        chance.choice([fleet._book, fleet._book, fleet._book, fleet._hold, fleet.happen])()
    spec = None
    while spec is None:
        spec = job_of(spec_by(chance))
    spec["topology"].setdefault("fabric", {}).pop("preferred", None)
    fleet.put(priority_class("high", 100))
    fleet.put(training_job("urgent", spec={**spec, "priorityClassName": "high"}))
    cluster = Followed().of(objects, NOW)
    low = sorted(key for key in cluster.jobs if cluster.booking_of(key) is not None)
    if len(low) > MOST:
        return False
    asked = request(NOBODY, cluster.jobs[URGENT].spec, cluster.volumes_of(cluster.jobs[URGENT]).required)

    def fits(some: tuple[JobKey, ...]) -> bool:
        return can_place(
            cluster.after([each for key in some for each in gone(cluster, cluster.jobs[key])]), asked, TABLES
        )

    verdict = schedule(cluster, TABLES, Memory(is_rationed=False), NOW)[URGENT]
    if fits(()):
        assert not isinstance(verdict, Await), seed
        return False
    if isinstance(verdict, Wait) and verdict.refusal.cause is not WaitCause.NO_FIT:
        return False
    choices = [some for count in range(1, len(low) + 1) for some in combinations(low, count) if fits(some)]
    assert isinstance(verdict, Await) == bool(choices), seed
    if not isinstance(verdict, Await):
        return False
    going = {each.job for each in verdict.awaits}
    assert any(set(some) == going for some in choices), seed
    assert not any(set(some) < going for some in choices), seed
    return True


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(range(27, 900), marks=pytest.mark.long)], ids=["", "long"])
def test_who_goes_is_needed_on_any_fleet(seeds: tuple[int, ...] | range) -> None:
    assert sum(map(preempted, seeds)) >= 3
