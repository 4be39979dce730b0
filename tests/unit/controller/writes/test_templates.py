"""What the operator has of jobs' templates while more wait than one namespace may have in its memory."""

import asyncio
import base64
import random
from collections.abc import Callable
from typing import Any

import pytest

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.job import is_whole, weight_bytes
from closeknit.cluster.store.watched_kinds import Stream
from closeknit.controller.templates import TemplateReader, Templates
from closeknit.controller.writes.resources import PODS, TRAINING_JOBS
from closeknit.kube.api import Key
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import Forbidden, Unavailable
from closeknit.scheduling.memo import template_memory
from closeknit.scheduling.queue.entries import Schedule
from faults import virtual_time
from faults.fault import Delay, Fault, HoldEvents, Refuse
from faults.store import Store
from scenarios.manifests import CREATED, priority_class, training_job
from scenarios.operated import MortalApi, Operator, add, end_job, lived, run_pods
from scenarios.story import plugin_node

KIB = 1024
ALLOWED = 100 * KIB


class Site:
    """Nodes, jobs of 30 KiB each, and an operator that may have 100 KiB of a namespace."""

    def __init__(self, nodes: int, *faults: Fault) -> None:
        self.store = Store(history=100_000, now=lambda: CREATED)
        for number in range(nodes):
            for manifest in plugin_node(f"gpu-{number}"):
                add(self.store, manifest)
        self.api = MortalApi(self.store, faults)
        self.operator = Operator(self.api)
        self.most = 0

    def submit(self, name: str, gpus: int = 8, kib: int = 30, **spec: Any) -> None:
        text = base64.b64encode(random.Random(name).randbytes(kib * KIB)).decode()  # noqa: S311 - a test
        template = {"spec": {"containers": [{"name": "trainer", "args": [text]}]}}
        add(self.store, training_job(name, spec={"gpus": gpus, "template": template, **spec}))

    def change(self, name: str, **spec: Any) -> None:
        job = self.store.get(TRAINING_JOBS, Key("team-b", name))
        job["spec"] |= spec
        self.store.update(TRAINING_JOBS, Key("team-b", name), job)

    def told(self) -> dict[str, str]:
        """State of each job, or the reason why it waits."""
        statuses = {each["metadata"]["name"]: each.get("status", {}) for each in self.store.objects(TRAINING_JOBS)}
        return {
            name: status.get("pending", {}).get("reason") or status.get("state") for name, status in statuses.items()
        }

    def whole(self) -> list[str]:
        """Jobs whose templates the operator has, in all that it keeps of them."""
        shown = self.operator.watched.reflectors[Stream.TRAINING_JOBS].objects.values()
        jobs = [each for each in shown if isinstance(each, TrainingJob)]
        assert all(is_whole(each) == is_whole(self.operator.watched.cluster.jobs[each.key]) for each in jobs)
        return sorted(each.metadata.name for each in jobs if is_whole(each))

    def gets(self) -> list[str]:
        """Jobs that were read one by one."""
        return [call.key.name for call in self.api.calls if call.verb == "get" and call.resource == TRAINING_JOBS]

    def weigh(self) -> None:
        shown = self.operator.watched.reflectors[Stream.TRAINING_JOBS].objects.values()
        jobs = [each for each in shown if isinstance(each, TrainingJob) and template_memory.is_waiting(each)]
        self.most = max(self.most, sum(weight_bytes(each) for each in jobs if is_whole(each)))

    async def settle(self, seconds: float = 5) -> None:
        for _ in range(round(seconds * 10)):
            await asyncio.sleep(0.1)
            self.weigh()
            run_pods(self.store)

    def end(self, name: str) -> None:
        end_job(self.store, Key("team-b", name))

    def live(self, story: Callable[["Site"], Any]) -> Any:
        return lived(self.operator, lambda: story(self))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_memory, "TEMPLATE_BYTES", ALLOWED)


@pytest.mark.parametrize("comes", ["before the operator", "one by one"])
def test_no_more_is_kept_than_is_allowed_and_the_others_are_told(comes: str) -> None:
    """All at once, as after a restart, or one after the other: the same are kept, the first of the queue."""
    site = Site(1)
    names = [f"j{number}" for number in range(8)]
    add(site.store, priority_class("high", 100))
    if comes == "before the operator":
        for name in names:
            site.submit(name, 16, priorityClassName="high" if name == "j7" else None)

    async def story(site: Site) -> list[str]:
        for name in names if comes == "one by one" else ():
            site.submit(name, 16, priorityClassName="high" if name == "j7" else None)
            await asyncio.sleep(0.3)
            site.weigh()
        await site.settle()
        return site.whole()

    assert site.live(story) == ["j0", "j1", "j7"]
    kept_out = {f"j{number}": "QuotaExceeded" for number in range(2, 7)}
    assert site.told() == {**kept_out, **dict.fromkeys(["j0", "j1", "j7"], "InsufficientGPUs")}
    assert site.most <= ALLOWED + 31 * KIB


def test_each_gets_its_turn_and_runs() -> None:
    """Eight jobs for one node, of whose templates three may be there: the next are read as others start and end."""
    site = Site(1, Fault(Refuse(Unavailable("down", code=503)), "get", TRAINING_JOBS, nth=1))
    for number in range(8):
        site.submit(f"j{number}")

    async def story(site: Site) -> list[str]:
        ran: list[str] = []
        for _ in range(8):
            await site.settle(20)
            (running,) = [name for name, state in site.told().items() if state == "Running"]
            ran.append(running)
            site.end(running)
        return ran

    assert site.live(story) == [f"j{number}" for number in range(8)]
    assert site.most <= ALLOWED + 31 * KIB


def test_one_that_the_api_server_does_not_give_keeps_none_of_the_others_waiting() -> None:
    no = Fault(Refuse(Forbidden("no", code=403)), "get", TRAINING_JOBS, when=lambda call: call.key.name == "j3")
    site = Site(1, no)
    for number in range(8):
        site.submit(f"j{number}")

    async def story(site: Site) -> list[str]:
        ran: list[str] = []
        for _ in range(7):
            await site.settle(20)
            for name in [name for name, state in site.told().items() if state == "Running"]:
                ran.append(name)
                site.end(name)
        return ran

    assert site.live(story) == [f"j{number}" for number in range(8) if number != 3]


def test_of_jobs_that_are_over_or_suspended_no_templates_are_kept() -> None:
    site = Site(2)
    for name in ("runs", "ends", "rests"):
        site.submit(name, suspend=name == "rests")

    async def story(site: Site) -> tuple[list[str], list[str]]:
        await site.settle()
        run = site.store.get(PODS, Key("team-b", "ends-a1-worker-00000"))
        run["status"] = {**run["status"], "phase": "Succeeded"}
        site.store.update(PODS, Key("team-b", "ends-a1-worker-00000"), run, subresource="status")
        await site.settle()
        before = site.whole()
        site.change("rests", suspend=False)
        await site.settle()
        return before, site.whole()

    assert site.live(story) == (["runs"], ["rests", "runs"])
    assert site.told() == {"runs": "Running", "ends": "Succeeded", "rests": "Running"}


def test_a_job_that_is_kept_out_can_be_suspended_resumed_and_deleted() -> None:
    site = Site(1)
    for number in range(5):
        site.submit(f"j{number}", 16)

    async def story(site: Site) -> list[dict[str, str]]:
        seen: list[dict[str, str]] = []
        await site.settle()
        site.change("j4", suspend=True)
        await site.settle()
        seen.append(site.told())
        site.change("j4", suspend=False)
        site.end("j0")
        await site.settle(120)
        seen.append(site.told())
        site.end("j3")
        site.end("j4")
        await site.settle(120)
        seen.append(site.told())
        return seen

    full = "InsufficientGPUs"
    assert site.live(story) == [
        {"j0": full, "j1": full, "j2": full, "j3": "QuotaExceeded", "j4": "Suspended"},
        {"j1": full, "j2": full, "j3": full, "j4": "QuotaExceeded"},
        {"j1": full, "j2": full},
    ]
    assert JobKey("team-b", "j4") not in site.operator.watched._templates._weights


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (0, ()),
        (1, ()),
        (2, (Fault(Delay(0.7), "get", TRAINING_JOBS),)),
        (3, (Fault(HoldEvents(0.3), resource=TRAINING_JOBS),)),
        (4, (Fault(HoldEvents(0.3), resource=TRAINING_JOBS), Fault(Delay(0.5), "get", TRAINING_JOBS))),
    ],
)
def test_whatever_comes_and_goes_the_first_of_the_queue_are_kept_in_the_end(
    seed: int, faults: tuple[Fault, ...]
) -> None:
    """Jobs are changed and deleted while they are read, too, and the stream shows it before or after."""
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
    site = Site(1, *faults)

    async def story(site: Site) -> tuple[list[str], set[str]]:
        there: set[str] = set()
        for number in range(60):
            name = f"j{chance.randrange(12):02d}"
            if name not in there:
                site.submit(name, 16, kib=chance.choice([5, 20, 40]), suspend=chance.random() < 0.2)
                there.add(name)
            elif chance.random() < 0.5:
                site.end(name)
                there.discard(name)
            else:
                site.change(name, suspend=bool(number % 2))
            await site.settle(chance.choice([0, 0.1, 1]))
        await site.settle(20)
        calls = len(site.gets())
        assert calls > 0
        await site.settle(60)
        assert len(site.gets()) == calls, "nothing is read again and again"
        cluster = site.operator.watched.cluster
        beyond = template_memory.template_memory(cluster, Schedule(cluster, cluster, cluster)).beyond
        wanted = {
            job.metadata.name
            for key, job in cluster.jobs.items()
            if template_memory.is_waiting(job) and key not in beyond
        }
        return site.whole(), wanted

    whole, wanted = site.live(story)
    assert set(whole) == wanted
    assert site.most <= ALLOWED + 41 * KIB


def test_while_jobs_are_read_no_more_is_kept_than_is_allowed() -> None:
    """Before anything is decided, as when an operator starts; and of one that is read again and again once."""
    templates = Templates()
    site = Site(0)
    for number in range(50):
        site.submit(f"j{number}")
    jobs = [TrainingJob.parse(each) for each in site.store.objects(TRAINING_JOBS)]
    for _ in range(2):
        assert sum(weight_bytes(job) for each in jobs if is_whole(job := templates.kept(each))) <= ALLOWED
    templates.wanted = frozenset({jobs[40].key})
    assert is_whole(templates.kept(jobs[40]))
    for job in jobs:
        templates.forget(job.key)
    assert (dict(templates._sums), templates._weights) == ({}, {})


class Read:
    """What is read, in order; a job may fail for good, or take a moment, or be called for nothing."""

    def __init__(self, *broken: str, moment_s: float = 0.01) -> None:
        self.names: list[str] = []
        self._broken = broken
        self._moment_s = moment_s
        self.reported: list[Exception] = []
        self.reader = TemplateReader(self.read, Backoff(0.1, 30.0, lambda: 1.0), lambda _, error: self.report(error))

    def report(self, error: Exception) -> None:
        self.reported.append(error)

    async def read(self, job: JobKey) -> bool:
        self.names.append(job.name)
        await asyncio.sleep(self._moment_s)
        if job.name not in self._broken:
            return True
        if job.name.startswith("mistake"):
            raise ValueError
        if job.name.startswith("changing"):
            return False
        raise Forbidden("no", code=403)

    def after(self, *wanted: tuple[float, list[JobKey]]) -> list[str]:
        async def story() -> None:
            for pause_s, jobs in wanted:
                self.reader.want(jobs)
                await asyncio.sleep(pause_s)
            await self.reader.stop()

        virtual_time.run(story())
        return self.names


def of(namespace: str, *names: str) -> list[JobKey]:
    return [JobKey(namespace, name) for name in names]


def test_namespaces_take_turns_whatever_comes_first() -> None:
    many = of("a", *(f"a{number}" for number in range(100)))
    assert Read().after((5, [*many, *of("b", "b0", "b1")]))[:5] == ["a0", "b0", "a1", "b1", "a2"]


def test_a_tenant_whose_jobs_always_come_anew_keeps_nobody_waiting() -> None:
    rounds = [(0.015, [*of("a", f"a{number}"), *of("b", f"b{number}")]) for number in range(10)]
    assert [name for name in Read(moment_s=0.007).after(*rounds) if name[0] == "b"] == [f"b{n}" for n in range(10)]


@pytest.mark.parametrize("broken", ["forbidden", "mistake", "changing"])
def test_one_that_cannot_be_read_is_tried_ever_less_and_keeps_nobody_waiting(broken: str) -> None:
    site = Read(broken)
    names = site.after((1, of("a", broken, "next")), (100, of("a", broken, "later")), (5, of("b", "other")))
    assert [name for name in names if name != broken] == ["next", "later", "other"]
    assert names.index("next") < 4
    assert 3 < names.count(broken) < 15
    assert names[-1] == "other"


def test_an_api_server_that_is_down_is_left_alone() -> None:
    jobs = of("a", *(f"a{number}" for number in range(1000)))
    assert len(Read(*(job.name for job in jobs)).after((120, jobs))) < 20


def test_what_nobody_wants_any_more_is_not_read() -> None:
    assert Read().after((0.015, of("a", "a0", "a1", "a2", "a3")), (1, of("a", "a3"))) == ["a0", "a1", "a3"]


def test_a_job_that_is_dropped_while_others_are_read_is_read_after_them() -> None:
    """No decision need tell of it again."""
    assert Read().after((0.005, of("a", "a0")), (1, of("a", "a0", "late")))[-1] == "late"
