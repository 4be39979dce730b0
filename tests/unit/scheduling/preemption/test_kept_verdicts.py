"""Memory alters no verdict where jobs make room for others: random lives, most jobs of which differ in priority."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.scheduling.decision import Decision
from closeknit.scheduling.memo import telling
from closeknit.scheduling.reservation import reserve
from scenarios.manifests import priority_class
from unit.scheduling.test_incremental import Life, OfQueue

STEPS = 40
SHORT = (2, 12)


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


def test_a_job_that_makes_room_is_left_alone_while_it_is_written() -> None:
    """Whether somebody remembers that it kept its GPUs, or not."""
    life = Crowded(0)
    life.submit("low", {"gpus": 32, "topology": {"gpusPerNode": 8}})
    life.decide()
    life.story.run_all()
    for _ in range(3):
        life.decide()
    life.submit("urgent", {"gpus": 8, "priorityClassName": "high"})
    life.decide()
    assert life.story.status("urgent").placement is not None
    life.seen.clear()
    life.decide(frozenset({JobKey("team-b", "low")}))
    assert "Evict" not in life.seen
    life.decide()
    assert "Evict" in life.seen


class Unruly(OfQueue):
    """A queue whose PriorityClasses change their value, never preempt, or are not there, and whose jobs say of their
    ends what they like."""

    def _events(self) -> Sequence[Callable[[], None]]:
        return (*super()._events(), *[self._change_class] * 3, *[self.story.end_stopped] * 2)

    def _spec(self) -> dict[str, Any]:
        spec = super()._spec() | {"priorityClassName": self.chance.choice(("high", "middle"))}
        return spec | self.chance.choice(({}, {"expectedDuration": self.chance.choice(("0s", "1s", "876000h"))}))

    def _change_class(self) -> None:
        name = self.chance.choice(("high", "middle"))
        if self.story.objects.pop(("PriorityClass", "", name), None) is None or self.chance.random() < 0.5:
            value, preempts = self.chance.choice((-5, 50, 100)), self.chance.random() < 0.7
            self.story.add(priority_class(name, value, preempts=preempts))

    def _is_on_trial(self, decision: Decision) -> bool:  # noqa: ARG002 - of its base
        """Words are not compared, as above."""
        return True

    def rest(self) -> None:
        """Nothing happens any more, and writes come to an end."""
        for _ in range(14):
            before = len(self.story.written)
            self.decide()
            if len(self.story.written) == before:
                return
        raise AssertionError(f"still writing: {self.story.written[-6:]}")


@pytest.mark.parametrize("seeds", [SHORT, pytest.param(range(400, 500), marks=pytest.mark.long)], ids=["", "long"])
def test_memory_alters_no_verdict_where_classes_change_and_writes_end(
    seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve, "AGED", timedelta(minutes=10))
    for rate in ("CHANGED_WRITES", "CHANGED_WRITES_OF_ONE"):  # who remembers what it wrote writes less
        monkeypatch.setattr(telling, rate, 1000)
    seen: set[str] = set()
    for seed in seeds:
        life = Unruly(seed)
        for _ in range(STEPS):
            life.step()
        life.rest()
        seen |= life.seen
    assert seen >= {"Await", "Evict", "Book", "Keep", "Reserve"}
