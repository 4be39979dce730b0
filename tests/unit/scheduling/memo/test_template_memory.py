"""Jobs that wait with more in their templates than one namespace's share of the operator's memory."""

import base64
import random
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.reasons import PendingReason
from closeknit.cluster.booking.job import without_templates
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import ObjectChange, Stream, change, from_document
from closeknit.lifecycle.verdict import Book, Refusal, Wait, WaitCause
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import Decision, decide
from closeknit.scheduling.memo import template_memory
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.entries import NOTHING_WAITS, Schedule
from scenarios.manifests import Manifest, booked, condition, priority_class, training_job
from scenarios.story import NOW, plugin_node

KIB = 1024


def job(
    name: str, kib: int, *, namespace: str = "a", minute: int = 0, status: Manifest | None = None, **spec: Any
) -> Manifest:
    """Its template is as large as that, whatever is done to make it smaller."""
    text = base64.b64encode(random.Random(name).randbytes(kib * KIB)).decode()  # noqa: S311 - a test
    container = {"name": "trainer", "args": [text]}
    made = training_job(
        name, namespace=namespace, spec={"gpus": 8, "template": {"spec": {"containers": [container]}}, **spec}
    )
    made["metadata"]["creationTimestamp"] = f"2026-11-21T09:{minute:02}:00Z"
    return made | {"status": status or {}}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_memory, "TEMPLATE_BYTES", 100 * KIB)


def decided(*manifests: Manifest, nodes: int = 0, last: Decision | None = None) -> Decision:
    machines = [each for number in range(nodes) for each in plugin_node(f"gpu-{number}")]
    objects = [value for each in (*machines, *manifests) if (value := from_document(each)) is not None]
    cluster = (
        Cluster.empty().after(map(change, objects))
        if last is None
        else last.schedule.cluster.after(map(change, objects))
    )
    memory = Memory() if last is None else Memory(schedule=last.schedule, followed=last.followed)
    return decide(cluster, Tables(), memory, NOW)


def refusals(decision: Decision) -> dict[str, Refusal]:
    return {key.name: verdict.refusal for key, verdict in decision.schedule.items() if isinstance(verdict, Wait)}


def kept_out(decision: Decision) -> list[str]:
    return sorted(name for name, why in refusals(decision).items() if why.reason is PendingReason.QUOTA_EXCEEDED)


def test_those_that_come_first_in_the_queue_get_in_and_the_others_are_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_memory, "TEMPLATE_BYTES", 1024 * KIB)
    found = refusals(decided(*(job(f"j{number}", 150, minute=9 - number) for number in range(8))))
    assert [name for name, why in found.items() if why.reason is PendingReason.QUOTA_EXCEEDED] == ["j1", "j0"]
    assert found["j0"].message == (
        "the Pod templates of the jobs of namespace a that wait take 2 MiB of the operator's memory, more than the "
        "1 MiB that one namespace has, and jobs before this one in the queue take them; it is looked at once enough of "
        "them have started or are gone: delete some, or move what is large in their templates into ConfigMaps"
    )


def test_a_higher_priority_comes_before_age() -> None:
    jobs = [job(f"j{number}", 30, minute=number) for number in range(3)]
    urgent = job("urgent", 30, minute=9, priorityClassName="high")
    assert kept_out(decided(*jobs, urgent, priority_class("high", 100))) == ["j2"]


def test_a_small_one_gets_in_where_a_large_one_does_not() -> None:
    assert kept_out(decided(job("a", 60), job("b", 60), job("c", 10))) == ["b"]


def test_each_namespace_has_its_own() -> None:
    assert kept_out(decided(*(job(f"{space}-{n}", 30, namespace=space) for space in "ab" for n in range(3)))) == []


@pytest.mark.parametrize(
    ("status", "spec"),
    [
        ({"conditions": [condition("Succeeded")]}, {}),
        ({}, {"suspend": True}),
        ({"attempt": 1, "placement": booked(("gpu-9", range(8)))}, {}),
    ],
    ids=["over", "suspended", "running"],
)
def test_who_does_not_wait_takes_nothing_of_it(status: Manifest, spec: Manifest) -> None:
    others = [job(f"other-{number}", 60, status=status, **spec) for number in range(3)]
    assert kept_out(decided(*others, job("j", 60))) == []


def test_whoever_is_kept_out_gets_in_once_there_is_room_and_out_again() -> None:
    jobs = [job(f"j{number}", 60, minute=number) for number in range(2)]
    first = decided(*jobs)
    assert kept_out(first) == ["j1"]
    second = decided(job("j0", 60, suspend=True), last=first)
    assert refusals(second)["j1"].reason is PendingReason.INSUFFICIENT_GPUS
    assert kept_out(decided(job("j0", 60), last=second)) == ["j1"]


def test_the_same_is_decided_whatever_is_remembered() -> None:
    chance = random.Random(7)  # noqa: S311 - a test that can be repeated
    last: Decision | None = None
    shown: dict[str, Manifest] = {}
    for _ in range(40):
        name = f"j{chance.randrange(8)}"
        shown[name] = job(name, chance.choice([10, 30, 60]), minute=chance.randrange(9), suspend=chance.random() < 0.3)
        last = decided(shown[name], last=last)
        assert kept_out(last) == kept_out(decided(*shown.values()))


@pytest.mark.parametrize("seed", range(5))
def test_the_same_does_not_fit_whatever_was_found_before(seed: int) -> None:
    """Jobs come, change and go in two namespaces, some of which wait, and some of which are the last of theirs."""
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
    cluster, last = Cluster.empty(), NOTHING_WAITS
    made = [
        TrainingJob.parse(job(f"j{n}", 15 * (n % 5), namespace="ab"[n % 2], minute=n, suspend=n > 13))
        for n in range(20)
    ]
    for _ in range(300):
        changes = [
            ObjectChange(
                Stream.TRAINING_JOBS, (value.key.namespace, value.key.name), chance.choice([value, value, None])
            )
            for value in chance.sample(made, chance.randrange(1, 4))
        ]
        before, cluster = cluster, cluster.after(changes)
        last = template_memory.template_memory(cluster, Schedule(before, before, before, templates=last))
        fresh = template_memory.template_memory(cluster, Schedule(cluster, cluster, cluster))
        assert (last.beyond, last.sums, last.weighed) == (fresh.beyond, fresh.sums, fresh.weighed)


def test_one_whose_templates_were_dropped_is_to_be_read_first_and_is_asked_then() -> None:
    found = from_document(job("j", 60))
    dropped = change(without_templates(found))  # type: ignore[arg-type]
    nodes = [change(value) for each in plugin_node("gpu-1") if (value := from_document(each)) is not None]
    cluster = Cluster.empty().after([*nodes, dropped])
    decision = decide(cluster, Tables(), Memory(), NOW)
    assert decision.schedule.unread == (JobKey("a", "j"),)
    assert refusals(decision)["j"].cause is WaitCause.NOT_ASKED
    assert [plan for plan in decision.plans if plan.writes] == []
    memory = Memory(schedule=decision.schedule, followed=decision.followed)
    read = decide(cluster.after([change(found)]), Tables(), memory, NOW)  # type: ignore[arg-type]
    assert read.schedule.unread == ()
    assert isinstance(read.schedule[JobKey("a", "j")], Book)


def test_what_was_dropped_counts_as_before() -> None:
    jobs = [from_document(job(f"j{number}", 60, minute=number)) for number in range(2)]
    cluster = Cluster.empty().after([change(without_templates(each)) for each in jobs])  # type: ignore[arg-type]
    decision = decide(cluster, Tables(), Memory(), NOW)
    assert (decision.schedule.unread, kept_out(decision)) == ((JobKey("a", "j0"),), ["j1"])
