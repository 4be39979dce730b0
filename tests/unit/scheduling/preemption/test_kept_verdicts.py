"""Memory alters no verdict where jobs make room for others: random lives, most jobs of which differ in priority."""

import pytest

from closeknit.api.names import JobKey
from closeknit.scheduling.decision import Decision
from unit.scheduling.test_incremental import Life

STEPS = 40


class Crowded(Life):
    """A life on few nodes, in which urgent jobs come and find them full."""

    def step(self) -> None:
        if self.chance.random() < 0.5:
            self.made += 1
            spec = {"gpus": self.chance.choice((2, 4, 8, 16))}
            self.submit(f"job-{self.made:03d}", spec | self.chance.choice(({}, {"priorityClassName": "high"})))
        super().step()

    def _is_on_trial(self, decision: Decision) -> bool:  # noqa: ARG002 - of its base
        """Words are not compared: they may lag behind numbers, and so many jobs are told them at a bounded rate."""
        return True

    def check(self) -> None:
        """No GPU of a job that makes room is promised to two jobs, and none of these makes room itself."""
        awaiting = self.cluster.awaiting
        named = [each.job for them in awaiting.values() for each in them]
        assert len(named) == len(set(named))
        assert not set(named) & set(awaiting)
        for key, awaited in awaiting.items():
            job = self.cluster.jobs[key]
            held = self.cluster.booking_of(key)
            assert held is not None
            assert all(self._is_lower(each.job, key) for each in awaited)
            assert not [pod for pod in self.cluster.pods_of(key) if pod.attempt == held.attempt]
            assert job.status.pending is not None

    def _is_lower(self, victim: JobKey, by: JobKey) -> bool:
        jobs = self.cluster.jobs
        return victim not in jobs or self.cluster.priority(jobs[victim]) < self.cluster.priority(jobs[by])


@pytest.mark.parametrize("seeds", [range(1, 4), pytest.param(range(4, 200), marks=pytest.mark.long)], ids=["", "long"])
def test_memory_alters_no_verdict_where_jobs_make_room(seeds: range) -> None:
    seen: set[str] = set()
    for seed in seeds:
        life = Crowded(seed)
        for _ in range(STEPS):
            life.step()
            life.check()
        seen |= life.seen
    assert seen >= {"Await", "Evict", "Book", "Keep", "Wait"}
