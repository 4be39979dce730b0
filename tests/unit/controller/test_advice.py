"""The nearest changes of a job that waits come into its status by and by, stay there, and cost few writes."""

from datetime import timedelta
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.placement.gang.cache import Tables
from closeknit.placement.suggestions.changes import inquiry
from closeknit.scheduling.memo import advice as module
from closeknit.scheduling.memo.advice import Advisor
from closeknit.scheduling.memo.memory import Memory
from scenarios.manifests import node, pod, training_job
from scenarios.operated import MortalApi, Operator, add
from scenarios.story import Story, dra_node, plugin_node
from unit.controller.writes.test_turns import Bed


def told(bed: Bed, name: str = "large") -> list[str]:
    status = bed.jobs()[name].get("status", {})
    return list(status.get("pending", {}).get("nearest", []))


async def advised(bed: Bed) -> list[str]:
    bed.submit("large", 16)
    await bed.pass_time(90)
    return told(bed)


def test_they_are_told() -> None:
    bed = Bed(dra_node, 1)
    (change,) = bed.live(advised)
    assert change.startswith("with gpus: 8: 8 GPUs on 1 node")


def test_they_are_written_once_and_stay_over_a_restart() -> None:
    bed = Bed(dra_node, 1)
    before = bed.live(advised)
    version = bed.jobs()["large"]["metadata"]["resourceVersion"]

    async def later(bed: Bed) -> None:
        await bed.pass_time(120)

    bed.api = MortalApi(bed.store)
    bed.operator = Operator(bed.api)
    bed.live(later)
    assert told(bed) == before
    assert bed.jobs()["large"]["metadata"]["resourceVersion"] == version


def test_what_was_more_than_may_be_asked_is_asked_as_soon_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_INQUIRIES", 1)
    monkeypatch.setattr(module, "STANDS", timedelta(seconds=100))

    async def story(bed: Bed) -> None:
        bed.submit("first", 16)
        bed.submit("second", 24)
        await bed.pass_time(90)
        assert told(bed, "first")
        assert not told(bed, "second")
        await bed.pass_time(90)
        assert told(bed, "second")

    Bed(dra_node, 1).live(story)


def test_what_is_old_is_asked_anew_though_nothing_moves_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STANDS", timedelta(seconds=100))

    async def story(bed: Bed) -> None:
        bed.submit("large", 24)
        await bed.pass_time(70)
        (change,) = told(bed)
        assert change.startswith("with gpus: 16")
        bed.submit("small", 8)
        await bed.pass_time(20)
        assert told(bed) == [change]
        await bed.pass_time(90)
        assert told(bed)[0].startswith("with gpus: 8")

    Bed(dra_node, 2).live(story)


class Asked:
    """A story of a job for two nodes where there is one, and an advisor."""

    def __init__(self, **spec: Any) -> None:
        self.story = Story(*plugin_node("gpu-1"), training_job(spec={"gpus": 16, **spec}))
        self.advisor, self.tables = Advisor(), Tables()
        self.memory = Memory()

    def decide(self) -> None:
        memory = Memory(schedule=self.memory.schedule, advice=self.advisor.told)
        decision = self.story.decide(memory)
        for plan in decision.plans:
            if plan.writes:
                self.story.write(plan)
        self.memory = Memory(schedule=decision.schedule)

    def ask(self) -> int:
        """Until nothing is left to be asked; how many times that took."""
        assert self.memory.schedule is not None
        steps = 0
        while self.advisor.step(self.memory.schedule, self.tables, self.story.now):
            steps += 1
        return steps

    def told(self) -> list[str]:
        pending = self.story.status().pending
        assert pending is not None
        return list(pending.nearest)


def test_each_step_is_one_question_where_the_cluster_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = Asked(), Asked()
    small.decide()
    large.decide()
    few = small.ask()
    monkeypatch.setattr(module, "NODES_PER_STEP", 1)
    assert large.ask() > few + 3
    assert [each.changes for each in large.advisor.told.values()] == [
        each.changes for each in small.advisor.told.values()
    ]


def test_what_is_told_stands_for_ten_minutes_while_the_cluster_moves() -> None:
    asked = Asked()
    asked.decide()
    asked.ask()
    asked.story.pass_time(61)
    asked.decide()
    (before,) = asked.told()
    assert before.startswith("with gpus: 8")
    asked.story.add(pod("notebook", node="gpu-1", requests={"nvidia.com/gpu": "4"}))
    asked.decide()
    assert asked.ask() == 0
    asked.story.pass_time(61)
    asked.decide()
    assert asked.told() == [before]
    asked.story.pass_time(600)
    asked.decide()
    assert asked.ask() > 0
    asked.decide()
    assert not any("gpus: 8" in each for each in asked.told())


def test_another_reason_or_another_spec_has_other_changes() -> None:
    asked = Asked()
    asked.decide()
    asked.ask()
    asked.story.pass_time(61)
    asked.decide()
    assert asked.told()
    asked.story.edit_job(gpus=24)
    asked.decide()
    assert asked.told() == []


class Unprintable:
    """A change that cannot be told, by a mistake of ours."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def broken(*_: object) -> Any:
    raise ZeroDivisionError
    yield


def untold(*_: object) -> Any:
    yield
    return (Unprintable(),)


MISTAKES = pytest.mark.parametrize("mistaken", [broken, untold])


@MISTAKES
def test_a_mistake_in_one_inquiry_ends_nothing(monkeypatch: pytest.MonkeyPatch, mistaken: Any) -> None:
    monkeypatch.setattr(module, "inquiry", mistaken)
    asked = Asked()
    asked.decide()
    asked.ask()
    assert [each.changes for each in asked.advisor.told.values()] == [()]


@MISTAKES
def test_a_mistake_in_one_inquiry_is_reported_once_and_others_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mistaken: Any
) -> None:
    def one_mistaken(scene: Any, request: Any, tables: Any) -> Any:
        return (mistaken if request.gpus == 24 else inquiry)(scene, request, tables)

    async def both(bed: Bed) -> None:
        bed.submit("larger", 24)
        await advised(bed)
        add(bed.store, node("other", gpus=None))  # the cluster is another, and it is asked again
        await bed.pass_time(1200)

    monkeypatch.setattr(module, "inquiry", one_mistaken)
    bed = Bed(dra_node, 1)
    bed.live(both)
    assert told(bed)
    assert told(bed, "larger") == []
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.getMessage() == "a mistake of ours about one job"
    assert record.__dict__["job"] == JobKey("team-b", "larger")
    assert bed.operator.metrics.broken_decisions._value.get() == 2


class Crowd:
    """Jobs that all ask differently and do not fit, by namespace, and an advisor whose inquiries take one step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **jobs: int) -> None:
        self.story = Story(*plugin_node("gpu-1"))
        self.advisor, self.memory = Advisor(), Memory()
        self._decided_on: set[object] = set()
        self.asked: list[int] = []
        """GPUs of the shapes that were asked, in that order."""
        self.gpus: dict[str, list[int]] = {}
        self._last = 8
        for namespace, number in jobs.items():
            self.submit(namespace, number)

        def instant(_scene: object, request: Any, _tables: object) -> Any:
            self.asked.append(request.gpus)
            return ("a change",)
            yield

        monkeypatch.setattr(module, "inquiry", instant)

    def submit(self, namespace: str, number: int) -> None:
        for _ in range(number):
            self._last += 8
            job = training_job(f"train-{self._last:05}", namespace=namespace, spec={"gpus": self._last})
            self.story.add(job)
            self.gpus.setdefault(namespace, []).append(self._last)

    def end(self, namespace: str) -> None:
        for gpus in self.gpus.pop(namespace):
            del self.story.objects["TrainingJob", namespace, f"train-{gpus:05}"]

    def move(self) -> None:
        """The cluster is another one."""
        name = f"notebook-{len(self.story.objects)}"
        self.story.add(pod(name, node="gpu-1", requests={"nvidia.com/gpu": "1"}))

    def ask(self) -> list[int]:
        """What is asked now until there is nothing left to ask."""
        self.asked.clear()
        schedule = self.memory.schedule
        if schedule is None or self._decided_on != set(self.story.objects):
            self._decided_on = set(self.story.objects)
            schedule = self.story.decide(self.memory).schedule
            self.memory = Memory(schedule=schedule)
        while self.advisor.step(schedule, Tables(), self.story.now):
            pass
        return list(self.asked)


def test_every_shape_is_asked_and_so_many_in_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, a=70)
    assert crowd.ask() == crowd.gpus["a"][:64]
    crowd.story.pass_time(599)
    assert crowd.ask() == []
    crowd.story.pass_time(1)
    assert crowd.ask() == crowd.gpus["a"][64:]
    assert len(crowd.advisor.told) == 70


def test_what_is_known_of_none_comes_before_what_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, a=70)
    crowd.ask()
    crowd.move()
    crowd.story.pass_time(600)
    assert crowd.ask() == crowd.gpus["a"][64:] + crowd.gpus["a"][:58]
    crowd.story.pass_time(600)
    crowd.move()
    assert crowd.ask()[:6] == crowd.gpus["a"][58:64]


def test_a_namespace_that_asks_much_waits_behind_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, a=70, b=1, c=2)
    a, b, c = (crowd.gpus[name] for name in "abc")
    assert crowd.ask()[:5] == [a[0], b[0], c[0], a[1], c[1]]


def test_new_shapes_of_one_namespace_keep_no_old_advice_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, a=64, b=1)
    crowd.ask()
    for _ in range(3):
        crowd.end("a")
        crowd.submit("a", 70)
        crowd.move()
        crowd.story.pass_time(600)
        asked = crowd.ask()
        assert len(asked) == 64
        assert asked.index(crowd.gpus["b"][0]) < 2


def test_more_namespaces_than_may_be_asked_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"team-{number:02}" for number in range(80)]
    crowd = Crowd(monkeypatch, **dict.fromkeys(names, 1))
    served = set(crowd.ask())
    for name in names:  # each has a new shape, so that none is known
        crowd.end(name)
        crowd.submit(name, 1)
    crowd.story.pass_time(600)
    later = crowd.ask()
    assert len(served) == len(later) == 64
    assert later[:16] == [crowd.gpus[name][0] for name in names[64:]]


def test_jobs_that_are_gone_have_used_what_may_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, a=64)
    crowd.ask()
    crowd.end("a")
    crowd.submit("a", 3)
    assert crowd.ask() == []
    crowd.story.pass_time(600)
    assert len(crowd.ask()) == len(crowd.advisor.told) == 3


def test_no_cluster_of_before_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, a=3)
    crowd.ask()
    crowd.move()
    crowd.submit("a", 1)
    crowd.ask()
    scenes = [each.scene for each in crowd.advisor.told.values()]
    assert scenes.count(None) == 3


def test_a_clock_that_was_set_back_makes_advice_old(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, a=70)
    crowd.ask()
    crowd.move()
    crowd.story.pass_time(-86_400)
    assert len(crowd.ask()) == 64
    crowd.move()
    assert crowd.ask() == []
