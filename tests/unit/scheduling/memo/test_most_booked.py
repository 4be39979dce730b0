"""One decision gives GPUs to so many gangs, and nobody behind them takes what those are to have that are left."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.store.watched_kinds import ClusterObject, change, from_document
from closeknit.lifecycle.verdict import Await, Book, Hold, Reserve
from closeknit.lifecycle.writes.answers import NOTHING, Answers, after
from closeknit.lifecycle.writes.results import StatusStored
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import Decision, decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.memo.question_budget import MOST_BOOKED, QuestionBudget
from closeknit.scheduling.queue.entries import QueuePlace
from scenarios.manifests import Manifest, booked, priority_class, training_job, uuids, worker
from scenarios.story import plugin_node

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CLASSES = [priority_class("low", -100), priority_class("urgent", 100), priority_class("highest", 200)]


@dataclass
class Queue:
    """Decision after decision, each status stored."""

    cluster: Cluster
    now: datetime = NOW
    tables: Tables = field(default_factory=Tables)
    answers: dict[str, Answers] = field(default_factory=dict)
    last: Decision | None = None

    def decide(self) -> dict[str, Any]:
        """The verdicts on all jobs."""
        last, memory = self.last, Memory(self.answers)
        if last is not None:
            memory = replace(memory, schedule=last.schedule, followed=last.followed, told=last.told)
        self.last = decide(self.cluster, self.tables, memory, self.now)
        return {key.name: verdict for key, verdict in self.last.schedule.items()}

    def store(self) -> None:
        """All statuses are written."""
        assert self.last is not None
        told = [plan for plan in self.last.plans if plan.status is not None]
        for plan in told:
            self.answers[plan.uid] = after(self.answers.get(plan.uid, NOTHING), plan, [StatusStored("")], self.now)
        stored = (self.cluster.jobs[plan.job].model_copy(update={"status": plan.status}) for plan in told)
        self.cluster = self.cluster.after(list(map(change, stored)))

    def step(self) -> set[str]:
        """Decides and stores. Who gets GPUs."""
        verdicts = self.decide()
        self.store()
        return {name for name, verdict in verdicts.items() if isinstance(verdict, Book)}

    def add(self, *manifests: Manifest) -> None:
        self.cluster = self.cluster.after(map(change, objects(manifests)))

    def remove(self, *manifests: Manifest) -> None:
        self.cluster = self.cluster.after([replace(change(each), new=None) for each in objects(manifests)])

    def status(self, name: str) -> TrainingJobStatus:
        return self.cluster.jobs[JobKey("team-b", name)].status


def objects(manifests: Iterable[Manifest]) -> list[ClusterObject]:
    return [value for manifest in manifests if (value := from_document(manifest)) is not None]


def queue(nodes: int, *manifests: Manifest) -> Queue:
    machines = [each for number in range(nodes) for each in plugin_node(f"gpu-{number:02d}")]
    return Queue(Cluster.empty().after(map(change, objects((*machines, *CLASSES, *manifests)))))


def waits(name: str, gpus: int, priority: str | None = None, *, hour: int = 0, **spec: Any) -> Manifest:
    """A job that came at this hour of the day."""
    if priority is not None:
        spec["priorityClassName"] = priority
    made = training_job(name, spec={"gpus": gpus, "expectedDuration": "2h", **spec})
    made["metadata"] |= {"uid": f"uid-of-{name}", "creationTimestamp": f"2026-11-21T{hour:02d}:00:00Z"}
    return made


def runs(name: str, *nodes: int, priority: str | None = None, hours: int = 2) -> Manifest:
    spec: dict[str, Any] = {"gpus": 8 * len(nodes), "expectedDuration": f"{hours}h"}
    if priority is not None:
        spec["priorityClassName"] = priority
    at = booked(*((f"gpu-{number:02d}", range(8)) for number in nodes))
    made = training_job(name, spec=spec, placement=at, attempt=1, state="Running", observedGeneration=1)
    made["status"]["startTime"] = "2026-11-21T11:30:00Z"
    return made


def kept_for(manifest: Manifest) -> Manifest:
    """The job with room that is kept for it by its status."""
    since = "2026-11-21T10:00:00Z"
    told = {"reason": "InsufficientGPUs", "message": "full", "since": since, "queuedSince": since}
    return {**manifest, "status": {"state": "Queued", "pending": {**told, "reservedSince": since}}}


def urgent(count: int) -> list[Manifest]:
    return [waits(f"urgent-{number:02d}", 8, "urgent", hour=11) for number in range(count)]


def names(first: int, end: int) -> set[str]:
    return {f"urgent-{number:02d}" for number in range(first, end)}


def test_who_room_is_kept_for_takes_nothing_ahead_of_those_that_were_left() -> None:
    """It may start with fewer GPUs, and these are wanted by jobs of higher priority."""
    site = queue(8, runs("train", 7), kept_for(waits("kept", 64, elastic={"minGPUs": 8})), *urgent(7))
    verdicts = site.decide()
    assert {name for name, verdict in verdicts.items() if isinstance(verdict, Book)} == names(0, MOST_BOOKED)
    assert isinstance(verdicts["kept"], Reserve)
    site.store()
    assert site.step() == names(MOST_BOOKED, 7)


def test_who_room_is_kept_for_is_told_so_until_those_that_were_left_are_asked() -> None:
    """It fits behind them now, and its reservation would be withdrawn and made again."""
    running = [runs(f"train-{number:02d}", number) for number in range(12)]
    site = queue(12, *running, waits("kept", 16))
    for _ in range(3):
        site.step()
    told = site.status("kept").pending
    assert told is not None
    assert told.reserved_since is not None
    site.remove(*running)
    site.add(*urgent(10))
    site.now += timedelta(minutes=2)
    assert site.step() == names(0, 4)
    assert site.status("kept").pending == told
    assert site.step() == names(4, 8)
    assert site.status("kept").pending == told
    assert site.step() == {*names(8, 10), "kept"}


def test_those_that_were_refused_before_are_left_for_a_decision_that_comes_at_once() -> None:
    """None of them is asked: they keep the refusal that they have."""
    running = [runs(f"train-{number:02d}", number, priority="highest") for number in range(12)]
    site = queue(12, *running, *urgent(10))
    for _ in range(3):
        site.step()
    before = site.decide()
    site.remove(*running)
    verdicts = site.decide()
    assert {name for name, verdict in verdicts.items() if isinstance(verdict, Book)} == names(0, MOST_BOOKED)
    assert all(verdicts[name] is before[name] for name in names(MOST_BOOKED, 10))
    assert site.last is not None
    assert site.last.schedule.is_cut
    site.store()
    assert site.step() == names(MOST_BOOKED, 2 * MOST_BOOKED)


def test_no_room_is_kept_for_a_job_behind_those_that_were_left() -> None:
    """The last one asks for as much as the first, which was refused a moment ago, and has waited long."""
    running = [runs(f"train-{number:02d}", number, priority="highest") for number in range(12)]
    for each in running[6:]:
        del each["spec"]["expectedDuration"]
    first, second, third = waits("first", 96, "highest"), waits("second", 24, hour=2), waits("third", 96, hour=3)
    since = "2026-11-20T16:00:00Z"
    told = {"reason": "InsufficientGPUs", "message": "full", "since": since, "queuedSince": since}
    third["status"] = {"state": "Queued", "pending": told}
    site = queue(12, *running, first, kept_for(waits("kept", 8)), second, third)
    for _ in range(3):
        site.step()
    site.remove(*running[:4])
    site.add(*urgent(3))
    verdicts = site.decide()
    assert {name for name, verdict in verdicts.items() if isinstance(verdict, Book)} == {*names(0, 3), "kept"}
    assert not any(isinstance(verdict, Reserve) for verdict in verdicts.values())
    site.store()
    assert isinstance(site.decide()["second"], Reserve)


def test_who_others_make_room_for_takes_no_other_room_ahead_of_those_that_were_left() -> None:
    low = runs("low", 0, priority="low")
    pod = worker("low", 0, node="gpu-00", gpus=uuids("gpu-00", *range(8)), requests={"nvidia.com/gpu": "8"})
    running = [runs(f"train-{number:02d}", number, priority="highest") for number in range(1, 6)]
    site = queue(6, low, pod, *running, waits("waits", 8))
    assert isinstance(site.decide()["waits"], Await)
    site.store()
    site.remove(*running)
    site.add(*urgent(5))
    assert site.step() == names(0, 4)
    assert site.step() == names(4, 5)
    assert site.status("low").placement is None
    site.remove(pod)
    assert "waits" in site.step()


def test_jobs_that_start_with_fewer_gpus_count_among_those_of_a_decision() -> None:
    since = "2026-11-21T11:50:00Z"
    told = {"reason": "InsufficientGPUs", "message": "full", "since": since, "queuedSince": since}
    elastic = [waits(f"elastic-{number}", 16, elastic={"minGPUs": 8}, hour=number) for number in range(6)]
    for each in elastic:  # on one node, and each has half of what it asks for
        each["spec"]["topology"] = {"fabric": {"required": "host"}}
        each["status"] = {"state": "Queued", "pending": told}
    assert queue(6, *elastic).step() == {each["metadata"]["name"] for each in elastic[:MOST_BOOKED]}


@pytest.mark.parametrize("left", [0, 1])
def test_a_gang_with_a_lost_node_is_looked_at_behind_four_unless_others_were_left(left: int) -> None:
    lost = runs("train", 0, 1)
    lost["status"]["placement"]["lost"] = "1"
    ended = {"number": 1, "reason": "NodesLost", "ended": "2026-11-21T11:58:00Z", "charged": False}
    lost["status"] |= {"attempt": 2, "attempts": [ended], "state": "Queued"}
    site = queue(8, lost, *urgent(MOST_BOOKED + left))
    verdicts = site.decide()
    assert isinstance(verdicts["train"], Hold if left else Book)
    site.store()
    assert site.step() == ({"train", "urgent-04"} if left else set())


@pytest.mark.parametrize(("left", "stays"), [((99, 101), True), ((99,), False)], ids=["it is others' turn", "over"])
def test_a_turn_goes_on_where_it_was_behind_four_bookings(left: tuple[int, ...], *, stays: bool) -> None:
    came_to: dict[str, QueuePlace] = {"a": place(100)}
    budget = QuestionBudget(came_to, are_bounded=True)
    for number in left:
        budget.leave(place(number))
    assert budget.came_to == (came_to if stays else {})


def place(number: int) -> QueuePlace:
    return (0, True, False, float(number), "2026", "a", f"train-{number:03d}")
