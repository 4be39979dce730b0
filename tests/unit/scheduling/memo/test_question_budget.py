"""Thousands of different questions of one namespace: nobody else waits for them, and each is asked in the end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.reasons import PendingReason
from closeknit.cli.plan.plan_decision import PlanRefused
from closeknit.cli.plan.plan_decision import plan as planned
from closeknit.cluster.booking.job import job_from_builtins
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import ClusterObject, ObjectChange, Stream, change, from_document
from closeknit.lifecycle.follow import follow
from closeknit.lifecycle.verdict import Book, Refusal, Wait, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import can_place, place
from closeknit.placement.refusals.ideal import could_place
from closeknit.scheduling.decision import Decision, decide
from closeknit.scheduling.memo import questions as module
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.memo.question_budget import (
    HEAD_STEPS,
    MOST_BOOKED,
    TURN_STEPS,
    QuestionBudget,
    steps_of_selection,
    steps_of_words,
)
from closeknit.scheduling.queue.entries import QueuePlace
from closeknit.scheduling.reservation import patience
from scenarios.manifests import Manifest, cluster_topology, node, node_topology, pod, priority_class, training_job
from scenarios.story import plugin_node

ATTEMPTS = 300
RATION = HEAD_STEPS + TURN_STEPS
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def job(name: str, namespace: str, gpus: int, cpu: int, *, created: str = "2026-11-20T10:00:00Z") -> Manifest:
    container = {"name": "trainer", "image": "i", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    made = training_job(
        name, namespace=namespace, spec={"gpus": gpus, "template": {"spec": {"containers": [container]}}}
    )
    made["metadata"] |= {"uid": f"uid-of-{namespace}-{name}", "creationTimestamp": created}
    return made


def flood(gpus: int = 64) -> list[Manifest]:
    """Jobs that do not fit, each of a shape of its own."""
    return [job(f"flood-{number:05d}", "flood", gpus, 1000 + number) for number in range(ATTEMPTS)]


def objects(*manifests: Manifest) -> list[ClusterObject]:
    return [value for manifest in manifests if (value := from_document(manifest)) is not None]


@dataclass
class Desk:
    """Decision after decision on a cluster, with what is remembered."""

    cluster: Cluster
    asked: list[int] = field(default_factory=list)
    """Questions of each decision."""
    tables: Tables = field(default_factory=Tables)
    now: datetime = NOW
    last: Decision | None = None

    def decide(self) -> Decision:
        self.asked.append(0)
        memory = Memory(schedule=self.last.schedule, followed=self.last.followed) if self.last else Memory()
        self.last = decide(self.cluster, self.tables, memory, self.now)
        self.now += timedelta(seconds=1)
        return self.last

    def disturb(self) -> None:
        """Something changes that fits nobody of the flood."""
        name = f"other-{len(self.asked)}"
        self.cluster = self.cluster.after(
            map(change, objects(pod(name, node="gpu-2", requests={"nvidia.com/gpu": "1"})))
        )

    def cause(self, key: JobKey) -> WaitCause | None:
        verdict = self.last.schedule[key] if self.last else None
        return verdict.refusal.cause if isinstance(verdict, Wait) else None


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Desk]:
    """Sits down at a cluster of these manifests, and counts what placement is asked."""
    sat: list[Desk] = []

    def sit(*manifests: Manifest) -> Desk:
        sat.append(Desk(Cluster.empty().after(map(change, objects(*manifests)))))
        return sat[0]

    def counted(search: Any) -> Any:
        def asked(*arguments: Any) -> Any:
            sat[0].asked[-1] += 1
            return search(*arguments)

        return asked

    for search in (place, can_place):
        monkeypatch.setattr(module, search.__name__, counted(search))
    return sit


KEY = JobKey("team-a", "train")


def test_a_flood_of_different_jobs_costs_its_ration_and_nobody_his_turn(desk: Callable[..., Desk]) -> None:
    at = desk(
        *plugin_node("gpu-1"),
        *plugin_node("gpu-2"),
        *flood(),
        job("train", "team-a", 8, 1, created="2026-11-21T10:00:00Z"),
    )
    decision = at.decide()
    assert isinstance(decision.schedule[KEY], Book)
    assert at.asked[-1] <= RATION + 1
    assert decision.wake_at is not None
    assert at.cause(JobKey("flood", "flood-00000")) is WaitCause.NO_FIT
    assert at.cause(JobKey("flood", "flood-00299")) is WaitCause.NOT_ASKED
    assert {plan.job.name for plan in decision.plans if plan.job.namespace == "flood"} == {
        f"flood-{number:05d}" for number in range(RATION)
    }


def patient_flood() -> list[Manifest]:
    """The same, each waiting for a rack that none of them would need to wait for on an empty cluster."""
    found = flood(gpus=24)
    for manifest in found:
        manifest["spec"]["topology"] = {"fabric": {"preferred": "rack", "patience": "48h"}}
    return found


def test_a_flood_of_patient_jobs_costs_no_more(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(*arguments: Any) -> bool:
        asked[-1] += 1
        return could_place(*arguments)

    monkeypatch.setattr(patience, "could_place", counted)
    nodes = [
        each
        for number in (1, 2, 3)
        for each in (node(f"gpu-{number}", labels={"net.example/rack": "r1"}), node_topology(f"gpu-{number}"))
    ]
    at = desk(
        cluster_topology("rack"), *nodes, pod("held", node="gpu-1", requests={"nvidia.com/gpu": "8"}), *patient_flood()
    )
    for _ in range(2):
        asked.append(0)
        at.decide()
        at.disturb()
    assert all(0 < count <= RATION for count in asked), asked
    while at.last is not None and at.last.wake_at is not None and len(asked) < 20 and asked[-1]:
        asked.append(0)
        at.decide()
    assert at.cause(JobKey("flood", "flood-00299")) is WaitCause.NO_FIT


def test_whoever_is_not_asked_now_is_asked_a_moment_later(desk: Callable[..., Desk]) -> None:
    at = desk(*plugin_node("gpu-1"), *flood())
    seen = set()
    for _ in range(ATTEMPTS // RATION + 1):
        seen |= {plan.job.name for plan in at.decide().plans if plan.status is not None}
    assert len(seen) == ATTEMPTS
    assert max(at.asked) <= RATION
    before = list((at.last or pytest.fail("not decided")).schedule.values())
    assert list(at.decide().schedule.values()) == before
    assert at.asked[-1] == 0


def test_a_flood_comes_to_rest_where_nothing_changes(desk: Callable[..., Desk]) -> None:
    at = desk(*plugin_node("gpu-1"), *plugin_node("gpu-2"), *flood())
    for _ in range(2):
        rounds = [at.decide().wake_at is None for _ in range(ATTEMPTS // HEAD_STEPS + 1)]
        assert rounds[-1]
        assert at.asked[-1] == 0
        at.disturb()


def test_the_last_of_a_flood_gets_its_turn_though_the_cluster_changes_all_the_time(desk: Callable[..., Desk]) -> None:
    last = job("zzz", "flood", 8, 1, created="2026-11-21T10:00:00Z")
    at = desk(*plugin_node("gpu-1"), *plugin_node("gpu-2"), *flood(), last)
    for number in range((ATTEMPTS - HEAD_STEPS) // TURN_STEPS + 1):
        if number:
            at.disturb()
        found = at.decide().schedule[JobKey("flood", "zzz")]
    assert isinstance(found, Book)


def test_the_head_of_a_queue_is_asked_at_every_decision(desk: Callable[..., Desk]) -> None:
    at = desk(
        *plugin_node("gpu-1"),
        *plugin_node("gpu-2"),
        *(pod(f"p-{number}", node=f"gpu-{number}", requests={"nvidia.com/gpu": "8"}) for number in (1, 2)),
        *flood(8),
    )
    for _ in range(2):
        at.decide()
    at.cluster = at.cluster.after([ObjectChange(Stream.OTHER_PODS, ("ml", "p-1"), None)])
    assert [key.name for key, verdict in at.decide().schedule.items() if isinstance(verdict, Book)] == ["flood-00000"]


def test_whoever_is_not_asked_keeps_the_words_that_he_had(desk: Callable[..., Desk]) -> None:
    at = desk(*plugin_node("gpu-1"), *plugin_node("gpu-2"), *flood())
    for _ in range(3):
        before = dict(at.decide().schedule)
    at.disturb()
    decision = at.decide()
    assert at.asked[-1] <= RATION
    after = dict(decision.schedule)
    assert [name for name in before if after[name] is not before[name] and after[name] != before[name]][RATION:] == []
    assert not any(isinstance(each, Wait) and each.refusal.cause is WaitCause.NOT_ASKED for each in after.values())


def test_a_plan_is_asked_for_one_job_whatever_waits_before_it() -> None:
    asked = job_from_builtins(job("train", "flood", 64, 1, created="2026-11-21T10:00:00Z"))
    answer = planned(asked, objects(*plugin_node("gpu-1"), *flood()), NOW)  # type: ignore[arg-type]
    assert isinstance(answer, PlanRefused)


def places(namespace: str, count: int) -> list[QueuePlace]:
    return [(0, True, False, 0.0, "2026", namespace, f"job-{number:05d}") for number in range(count)]


def test_what_costs_more_than_a_ration_is_asked_all_the_same() -> None:
    came_to: dict[str, Any] = {}
    asked: list[str] = []
    for _ in range(4):
        rations = QuestionBudget(came_to, are_bounded=True)
        asked += [place[-1][-1] for place in places("a", 5) if rations.take(place, 10 * RATION)]
        came_to = rations.came_to
    assert asked == ["0", "1", "0", "2", "0", "3", "0", "4"]


def test_namespaces_have_rations_of_their_own() -> None:
    rations = QuestionBudget({}, are_bounded=True)
    taken = [rations.take(place, 1) for place in (*places("a", 200), *places("b", 100))]
    assert (sum(taken[:200]), sum(taken[200:])) == (RATION, 100)
    assert rations.is_short
    assert set(rations.came_to) == {"a"}


def test_words_on_a_large_cluster_cost_as_much_as_many_searches() -> None:
    assert (steps_of_words(10, 10), steps_of_words(5000, 5000)) == (0, 20)


def test_words_cost_little_where_the_holders_of_gpus_are_counted() -> None:
    assert (steps_of_words(10, 0), steps_of_words(5000, 0)) == (0, 1)


def test_words_of_jobs_that_need_different_amounts_of_cpu_count_holders_once(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lack GPUs, of which all jobs are told the same."""
    counted: list[int] = []

    def steps(*of: int) -> int:
        counted.append(of[1])
        return 0

    monkeypatch.setattr(module, steps_of_words.__name__, steps)
    at = desk(*plugin_node("gpu-1"), *plugin_node("gpu-2"), *flood()[:5])
    at.decide()
    assert counted == [2, 0, 0, 0, 0]


def test_who_got_a_question_gets_the_next_ones_too() -> None:
    """Its first one may take all of a half, at every decision: on 10,000 nodes of which it selects some."""
    came_to: dict[str, QueuePlace] = {}
    answered: list[str] = []
    for _ in range(4):
        rations = QuestionBudget(came_to, are_bounded=True)
        for each in places("a", 3):
            if rations.take(each, RATION):
                assert rations.take(each, 2)
                answered.append(each[-1][-1])
        came_to = rations.came_to
    assert answered == ["0", "1", "0", "2", "0", "1", "0", "2"]


def test_words_are_paid_from_the_half_that_the_question_came_from() -> None:
    rations = QuestionBudget({}, are_bounded=True)
    asked: list[str] = []
    for at in places("a", 12):
        if rations.take(at, 1):
            asked.append(at[-1])
            rations.spend(at, 19)
    assert asked == [f"job-{number:05d}" for number in range(8)]  # four of each half, 20 steps each


def test_who_fits_pays_for_no_words(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, steps_of_words.__name__, lambda *_, **__: HEAD_STEPS)
    nodes = [each for number in range(8) for each in plugin_node(f"gpu-{number}")]
    at = desk(*nodes, *(job(f"fits-{number}", "team-a", 8, number) for number in range(MOST_BOOKED)))
    assert all(isinstance(verdict, Book) for verdict in at.decide().schedule.values())


def test_one_decision_gives_gpus_to_so_many_and_the_next_goes_on_behind_them(desk: Callable[..., Desk]) -> None:
    """The queue's order stands: nobody behind them is asked, of another namespace or not, and nobody waits long."""
    nodes = [each for number in range(12) for each in plugin_node(f"gpu-{number:02d}")]
    jobs = [job(f"fits-{number:02d}", f"team-{number % 3}", 8, number) for number in range(11)]
    at = desk(*nodes, *jobs)
    found = at.decide()
    first = [key for key, verdict in found.schedule.items() if isinstance(verdict, Book)]
    assert first == [*found.schedule][:MOST_BOOKED]
    assert [at.cause(key) for key in [*found.schedule][MOST_BOOKED:]] == [WaitCause.NOT_ASKED] * 7
    assert found.wake_at == NOW + timedelta(seconds=1)
    stored = [at.cluster.jobs[plan.job].model_copy(update={"status": plan.status}) for plan in found.plans]
    assert len(stored) == MOST_BOOKED
    at.cluster = at.cluster.after(map(change, stored))
    then = at.decide()
    assert sum(isinstance(verdict, Book) for verdict in then.schedule.values()) == MOST_BOOKED


def test_who_room_is_kept_for_gets_none_before_those_ahead_of_it_are_asked(desk: Callable[..., Desk]) -> None:
    """It comes after them by its priority, and much came free at once."""
    nodes = [each for number in range(6) for each in plugin_node(f"gpu-{number:02d}")]
    kept = job("kept", "team-b", 8, 1, created="2026-11-19T10:00:00Z")
    waits = {"reason": "InsufficientGPUs", "message": "full", "since": "2026-11-20T10:00:00Z"}
    kept["status"] = {"state": "Queued", "pending": {**waits, "reservedSince": "2026-11-20T11:00:00Z"}}
    urgent = [job(f"urgent-{number}", "team-a", 8, number) for number in range(MOST_BOOKED + 1)]
    for each in urgent:
        each["spec"]["priorityClassName"] = "urgent"
    at = desk(*nodes, priority_class("urgent", 100), kept, *urgent)
    found = at.decide()
    booked = [plan for plan in found.plans if isinstance(found.schedule[plan.job], Book)]
    assert [plan.job.name for plan in booked] == [each["metadata"]["name"] for each in urgent][:MOST_BOOKED]
    stored = [at.cluster.jobs[plan.job].model_copy(update={"status": plan.status}) for plan in booked]
    at.cluster = at.cluster.after(map(change, stored))
    assert {key.name for key, verdict in at.decide().schedule.items() if isinstance(verdict, Book)} == {
        f"urgent-{MOST_BOOKED}",
        "kept",
    }


def test_bookings_that_are_being_written_keep_nobody_waiting(desk: Callable[..., Desk]) -> None:
    """An API server that takes long to answer for some delays no others."""
    nodes = [each for number in range(9) for each in plugin_node(f"gpu-{number:02d}")]
    at = desk(*nodes, *(job(f"fits-{number:02d}", "team-a", 8, number) for number in range(9)))
    found = at.decide()
    busy = frozenset(plan.job for plan in found.plans)
    memory = Memory(schedule=found.schedule, followed=found.followed, busy=busy)
    then = decide(at.cluster, at.tables, memory, at.now)
    assert {plan.job for plan in then.plans} == {*found.schedule} - busy - {JobKey("team-a", "fits-08")}


def test_a_draft_lacks_only_the_status_of_words_that_may_wait(desk: Callable[..., Desk]) -> None:
    """It is what is rationed: as important as the Plan, with as many writes."""
    at = desk(*plugin_node("gpu-1"), job("train", "team-a", 16, 1))
    plan = at.decide().plans[0]
    waiting = at.cluster.jobs[KEY].model_copy(update={"status": plan.status})
    other = Wait(Refusal(WaitCause.NO_FIT, PendingReason.NO_DOMAIN, "other words"))
    same = at.decide().schedule[KEY]
    for verdict, is_news in ((other, True), (same, False)):
        made = follow(waiting, verdict, at.cluster, NOW)
        draft = follow(waiting, verdict, at.cluster, NOW, is_draft=True)
        assert (draft.telling, draft.notice) == (made.telling, made.notice)
        assert ((made.status is not None), draft.status) == (is_news, None)
    new = at.cluster.jobs[KEY]
    assert follow(new, other, at.cluster, NOW, is_draft=True) == follow(new, other, at.cluster, NOW)


def test_who_room_is_kept_for_is_asked_behind_all_bookings_of_a_decision() -> None:
    """Its reservation would be withdrawn else, and made again a second later."""
    budget = QuestionBudget({}, are_bounded=True)
    for _ in range(MOST_BOOKED):
        budget.book()
    assert budget.take(places("a", 1)[0], 1)  # nobody before it was left
    budget.leave(places("a", 2)[1])
    for is_kept_for in (False, True):
        place = (0, not is_kept_for, False, 0.0, "2026", "a", "train")
        assert budget.is_passed_over(place) is not is_kept_for
        assert budget.take(place, 1) is is_kept_for


def test_a_single_answer_is_bounded_by_no_number_of_bookings() -> None:
    budget = QuestionBudget({}, are_bounded=False)
    for _ in range(MOST_BOOKED):
        budget.book()
    assert budget.take(places("a", 1)[0], 1)


def selecting(name: str, value: str, cpu: int) -> Manifest:
    made = job(name, "flood", 64, cpu)
    made["spec"]["template"]["spec"]["nodeSelector"] = {"example.com/pool": value}
    return made


def test_who_selects_nodes_pays_for_finding_them(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, steps_of_selection.__name__, lambda *_: HEAD_STEPS)
    at = desk(*plugin_node("gpu-1"), *(selecting(f"flood-{number:02d}", f"p-{number}", 1) for number in range(20)))
    for _ in range(3):
        at.decide()
    assert max(at.asked) <= 2


def test_who_selects_the_same_pays_once(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, steps_of_selection.__name__, lambda *_: HEAD_STEPS)
    at = desk(*plugin_node("gpu-1"), *(selecting(f"flood-{number:02d}", "p", number) for number in range(20)))
    at.decide()
    assert at.asked == [20]


def test_more_nodes_and_more_requirements_cost_more() -> None:
    sizes = ((10, 64), (1000, 1), (1000, 64), (5000, 64))
    assert [steps_of_selection(*size) for size in sizes] == [0, 6, 21, 107]
