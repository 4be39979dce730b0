"""A verdict may free what others hold, and memory still alters none: random lives with a policy that preempts."""

from dataclasses import replace

import pytest

from closeknit.api.names import JobKey
from closeknit.lifecycle.verdict import Book
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.memo import message_rate
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.policy.admit import admit
from closeknit.scheduling.policy.gates import gated, put_aside, readable
from closeknit.scheduling.policy.hold import held
from closeknit.scheduling.policy.policy_context import Walk
from closeknit.scheduling.queue.entries import Case, Outcome, Schedule, queue_place
from closeknit.scheduling.queue.room import Room
from closeknit.scheduling.schedule import schedule
from unit.scheduling.test_incremental import Life, essence

STEPS = 40


class Preempting:
    """A policy for tests: a job of high priority that does not fit takes the place of all jobs behind it, where it then
    fits."""

    def __init__(self) -> None:
        self.freed = 0

    def __call__(self, case: Case, room: Room, walk: Walk) -> Outcome | None:
        if case.job.spec.priority_class_name != "high" or room.cluster.booking_of(case.key) is not None:
            return None
        refused = admit(case, room, walk)
        if isinstance(refused.verdict, Book):
            return None
        refused.is_settled, refused.scene = False, None  # it rests on who holds GPUs, too, not on what is free alone
        cluster = room.cluster
        for key, job in walk.cluster.jobs.items():
            if cluster.booking_of(key) is not None and queue_place(cluster, job) > case.place:
                status = job.status.model_copy(update={"placement": None})
                cluster = cluster.with_job(job.model_copy(update={"status": status}))
        if cluster is room.cluster:
            return refused
        found = admit(case, room.more(cluster), walk)
        if not isinstance(found.verdict, Book):
            return refused
        self.freed += 1
        return found


class Preempted(Life):
    """A life in which verdicts free; what is written is what the operator's own policies say."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.policy = Preempting()
        self.remembered: Schedule | None = None

    def step(self) -> None:
        """Half of the jobs that come are of high priority, and find the cluster full."""
        if self.chance.random() < 0.5:
            self.made += 1
            spec = {"gpus": self.chance.choice((4, 8, 16))}
            self.submit(f"job-{self.made:03d}", spec | self.chance.choice(({}, {"priorityClassName": "high"})))
        super().step()

    def decide(
        self, busy: frozenset[JobKey] = frozenset(), *, aside: frozenset[JobKey] = frozenset(), written: float = 1
    ) -> None:
        super().decide(busy, aside=aside, written=written)
        policies = (readable, gated, self.policy, held, put_aside, admit)
        memory = Memory(self.story.answers, busy, aside, is_rationed=False)
        remembering = replace(memory, schedule=self.remembered)
        fresh = schedule(self.cluster, Tables(), memory, self.story.now, policies)
        found = schedule(self.cluster, self.tables, remembering, self.story.now, policies)
        assert essence(map(_kind, found.values())) == essence(map(_kind, fresh.values()))
        self.remembered = found


def _kind(verdict: object) -> object:
    """The verdict; of one that waits, that it does: words may lag behind numbers."""
    return verdict if isinstance(verdict, Book) else type(verdict).__name__


@pytest.mark.parametrize("seeds", [range(1, 4), pytest.param(range(4, 200), marks=pytest.mark.long)], ids=["", "long"])
def test_memory_alters_no_verdict_where_verdicts_free(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for rate in ("CHANGED_WRITES", "CHANGED_WRITES_OF_ONE"):  # who remembers what it wrote writes less
        monkeypatch.setattr(message_rate, rate, 1000)
    freed = 0
    for seed in seeds:
        life = Preempted(seed)
        for _ in range(STEPS):
            life.step()
        freed += life.policy.freed
    assert freed > 5


def test_what_was_freed_for_a_job_is_kept_once_that_asks_for_nothing() -> None:
    """The refusal of who lost its GPUs rests on the verdict that freed them, and on no more."""
    life = Preempted(0)
    life.submit("first", {"gpus": 32, "suspend": True})
    life.submit("low", {"gpus": 32})
    life.decide()
    for kind, namespace, name in list(life.story.objects):  # its Pods hold what it has, too
        if kind in {"Pod", "ResourceClaim"}:
            del life.story.objects[kind, namespace, name]
    low, high = JobKey("team-b", "low"), JobKey("team-b", "high")
    life.story.edit_job("first", suspend=False)  # before it in the queue, and refused in the same words
    life.submit("high", {"gpus": 8, "priorityClassName": "high"})
    life.decide(written=0)
    assert life.remembered is not None
    assert [type(life.remembered[key]).__name__ for key in (high, low)] == ["Book", "Wait"]
    life.story.edit_job("high", suspend=True)
    life.decide(written=0)
    assert type(life.remembered[low]).__name__ == "Keep"
