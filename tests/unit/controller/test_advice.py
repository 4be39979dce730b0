"""The nearest changes of a job that waits come into its status by and by, stay there, and cost few writes."""

from typing import Any

import pytest

from closeknit.lifecycle import advice as module
from closeknit.lifecycle.advice import Advisor
from closeknit.lifecycle.memory import Memory
from closeknit.placement.tables import Tables
from scenarios.manifests import pod, training_job
from scenarios.operated import MortalApi, Operator
from scenarios.story import Story, dra_node, plugin_node
from unit.controller.test_turns import Bed


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


def test_a_mistake_in_one_inquiry_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> Any:
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(module, "inquiry", mistaken)
    asked = Asked()
    asked.decide()
    asked.ask()
    assert [each.changes for each in asked.advisor.told.values()] == [()]
