"""Memory alters no verdict where jobs make room for others: random lives, most jobs of which differ in priority."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.names import SPARE_FOR_LABEL, JobKey
from closeknit.lifecycle.verdict import Book, Evict
from closeknit.scheduling.decision import Decision
from closeknit.scheduling.memo import message_rate
from closeknit.scheduling.reservation import reserve
from scenarios.manifests import priority_class
from scenarios.story import plugin_node
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


def test_room_that_others_were_to_make_for_a_job_that_is_gone_is_there_for_the_next() -> None:
    """Nobody was left to make room for this one, on a walk of which nothing has been stored."""
    life = Life(0, *plugin_node("gpu-1"))
    life.submit("low", {"gpus": 8})
    life.decide()
    life.story.run_all()
    for _ in range(3):
        life.decide()
    for name in ("first", "second"):
        life.submit(name, {"gpus": 8, "priorityClassName": "high"})
    life.decide(written=0)
    del life.story.objects["TrainingJob", "team-b", "first"]
    life.decide()
    assert life.story.status("second").placement is not None


def test_a_borrower_makes_room_for_a_job_that_waited_when_nobody_was_below_it() -> None:
    """Who lent the node ends as the borrower gets it, and as many GPUs are free as before."""
    life = Life(0, *plugin_node("gpu-1"), *plugin_node("gpu-2"))
    life.submit("owner", {"gpus": 8, "spares": 1, "priorityClassName": "high"})
    life.decide()
    life.story.run_all()
    life.submit("urgent", {"gpus": 8, "priorityClassName": "high"})
    for _ in range(3):
        life.decide()
    life.submit("low", {"gpus": 8})
    life.decide()
    assert life.story.status("low").placement is not None
    del life.story.objects["TrainingJob", "team-b", "owner"]
    life.decide()
    assert life.story.status("urgent").placement is not None


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
        monkeypatch.setattr(message_rate, rate, 1000)
    seen: set[str] = set()
    for seed in seeds:
        life = Unruly(seed)
        for _ in range(STEPS):
            life.step()
        life.rest()
        seen |= life.seen
    assert seen >= {"Await", "Evict", "Book", "Keep", "Reserve"}


class Lending(Crowded):
    """A life in which most urgent jobs have spare nodes, the others find only these free, and nodes die and recover."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.lent = 0
        self.recalled = 0

    def step(self) -> None:
        if len(self._jobs()) > 5:
            del self.story.objects["TrainingJob", "team-b", self.chance.choice(self._jobs())]
        Life.step(self)

    def _events(self) -> Sequence[Callable[[], None]]:
        return (
            *[self._submit] * 6, *[self._run] * 6, *[self._die] * 3, *[self.story.end_stopped] * 3, self._end,
            self._remove, self._terminate, self._wait, self._edit, self._sicken, self._foreign,
        )  # fmt: skip

    def _spec(self) -> dict[str, Any]:
        if self.chance.random() < 0.3:
            spares = self.chance.choice((1, 1, 2))
            return {"gpus": self.chance.choice((4, 8, 8, 16)), "priorityClassName": "high", "spares": spares}
        return {"gpus": self.chance.choice((2, 4, 8, 8, 16))}

    def _die(self) -> None:
        """A machine is out of service, or all are well again."""
        if self.story.dead:
            for name in sorted(self.story.dead):
                self.story.recover_node(name)
                self.story.objects["Node", "", name]["spec"].pop("taints")
        else:
            held = (self.cluster.booking_of(key) for key in sorted(self.cluster.jobs))
            nodes = [share.node for each in held if each is not None and each.spares for share in each.shares]
            self._out_of_service(self.chance.choice(nodes or ["gpu-1"]))

    def _out_of_service(self, name: str) -> None:
        self.story.lose_node(name)
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        self.story.objects["Node", "", name]["spec"]["taints"] = [taint]

    def check(self) -> None:
        """Nothing is booked twice, but for what is lent to a job of lower priority, or waited for."""
        super().check()
        booked: dict[tuple[str, int], JobKey] = {}
        spare: dict[tuple[str, int], JobKey] = {}
        for key in self.cluster.jobs:
            held = self.cluster.booking_of(key)
            if held is None or held.awaits:
                continue
            for share in held.shares:
                for gpu in share.gpus if not share.lost else ():
                    assert booked.setdefault((share.node, gpu), key) == key
            for share in held.spares:
                for gpu in share.gpus:
                    assert spare.setdefault((share.node, gpu), key) == key
        for where, owner in spare.items():
            borrower = booked.get(where, owner)
            assert borrower == owner or self._is_lower(borrower, owner)
            self.lent += borrower != owner
        verdicts = self.memory.schedule.values() if self.memory.schedule is not None else ()
        self.recalled += any(isinstance(each, Evict) and each.is_recalled for each in verdicts)


@pytest.mark.parametrize("seeds", [(3, 28), pytest.param(range(40, 190), marks=pytest.mark.long)], ids=["", "long"])
def test_memory_alters_no_verdict_where_spare_nodes_are_lent(seeds: Sequence[int]) -> None:
    lent = recalled = 0
    for seed in seeds:
        life = Lending(seed)
        for _ in range(2 * STEPS):
            life.step()
            life.check()
        lent, recalled = lent + life.lent, recalled + life.recalled
    assert lent
    assert recalled


class Labelled(Lending):
    """The same of spare nodes of a queue, which come and go with a label."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._label()
        self.replaced = 0

    def _events(self) -> Sequence[Callable[[], None]]:
        return (*super()._events(), self._label, self._die)

    def _label(self) -> None:
        """Up to two nodes are spares, of either queue or of one that is none."""
        for number in range(1, 5):
            labels = self.story.objects["Node", "", f"gpu-{number}"]["metadata"]["labels"]
            labels.pop(SPARE_FOR_LABEL, None)
        for name in self.chance.sample(["gpu-1", "gpu-2", "gpu-3", "gpu-4"], k=self.chance.choice((1, 1, 2))):
            queue = self.chance.choice(("research", "research", "other", ""))
            self.story.objects["Node", "", name]["metadata"]["labels"][SPARE_FOR_LABEL] = queue

    def _spec(self) -> dict[str, Any]:
        spec = super()._spec()
        if "priorityClassName" in spec:
            spec |= {"spares": self.chance.choice((0, 0, 1)), "queue": self.chance.choice(("research", "other"))}
        return spec

    def _die(self) -> None:
        """As above, a node of a queue's job first."""
        if not self.story.dead:
            there = [job for job in self.cluster.jobs.values() if job.spec.queue and job.status.placement]
            spares = self.cluster.queue_spares
            for job in there:
                held = self.cluster.booking_of(job.key)
                if held is not None and held.shares and job.spec.queue in spares:
                    self._out_of_service(held.shares[0].node)
                    return
        super()._die()

    def check(self) -> None:
        """As above, and no job starts on a spare node but one that borrows it, or that has lost another."""
        super().check()
        schedule = self.memory.schedule
        for key, verdict in schedule.items() if schedule is not None else ():
            if not isinstance(verdict, Book):
                continue
            for share in verdict.placement.shares:
                queue = self.cluster.nodes[share.node].spare_for
                held = self.cluster.booking_of(key)
                if not queue or (held is not None and any(share.node == each.node for each in held.shares)):
                    continue
                job = self.cluster.jobs[key]
                if held is not None and held.lost:
                    assert job.spec.queue == queue
                    self.replaced += 1
                    continue
                others = [each for each in self.cluster.jobs.values() if each.spec.queue == queue]
                owners = [each for each in others if each.status.placement is not None and each.key != key]
                assert owners and all(self._is_lower(key, each.key) for each in owners)
                self.lent += 1


@pytest.mark.parametrize("seeds", [(14, 24), pytest.param(range(300, 400), marks=pytest.mark.long)], ids=["", "long"])
def test_memory_alters_no_verdict_where_queues_have_spare_nodes(seeds: Sequence[int]) -> None:
    lent = recalled = replaced = 0
    for seed in seeds:
        life = Labelled(seed)
        for _ in range(2 * STEPS):
            life.step()
            life.check()
        lent, recalled, replaced = lent + life.lent, recalled + life.recalled, replaced + life.replaced
    assert lent
    assert recalled
    assert replaced
