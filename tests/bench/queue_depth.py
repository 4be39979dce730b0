"""What a thousand waiting jobs cost: one JSON line.

    PYTHONPATH=tests uv run python -m bench.queue_depth [declared | late] [NODES ...]

HGX H200 nodes in racks and blocks, full but for nothing: gangs of eight nodes, and one node in 25 shared by a job of
seven GPUs and one of a single GPU; a Pod with a booking runs on each share. A thousand jobs of some dozens of shapes
wait. `idle_event_ms` is the worst of what an event costs that frees nothing (a heartbeat, a Pod that becomes ready, a
job that is written to), `freeing_event_ms` the worst of those that free something: a single GPU, which fits nobody, and
a whole gang, whose place somebody gets. Both are medians of CPU time, of the very functions that the loop calls, from
the event to its Plans. `loop_lag_p99_ms` is what closeknit_event_loop_lag_seconds observes over ten seconds of such
events, with the loop, its thread and its writes running over the in-memory API server on a real event loop.
`event_p99_ms` is of these events alone, sixty: it lies between the two slowest. `decision_p99_ms` and
`decision_max_ms` are of all decisions: each event leads to some fifty more, a second of the clock apart, until every
message is written. The garbage collector is set as the operator sets it. `declared`: all jobs say how long they run, so
that room is reserved for the first that waits, and each that comes after it is asked whether it ends before. `late`:
the same, and all that run have run longer than they say, for days.
"""

import asyncio
import gc
import json
import statistics
import sys
import time
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, product
from operator import itemgetter
from typing import Any

from closeknit.api.trainingjob_status import PlacementStatus
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.agent_report import AgentReport
from closeknit.cluster.store.watched_kinds import ClusterObject, change, from_document
from closeknit.controller import interpreter
from closeknit.controller.worker import ThreadWorker
from closeknit.controller.writes.resources import PODS
from closeknit.kube.api import Key
from closeknit.lifecycle.verdict import Book
from closeknit.lifecycle.writes.answers import NOTHING, Answers, after
from closeknit.lifecycle.writes.results import StatusStored
from closeknit.placement.gang.cache import Tables
from closeknit.runtime.responsive import measure_lag
from closeknit.scheduling.decision import Decision, decide
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.warm_up import WarmUp
from faults.store import Store
from scenarios.machines import hgx_h200
from scenarios.manifests import (
    Manifest,
    booked,
    cluster_topology,
    condition,
    node,
    node_topology,
    training_job,
    uuids,
    worker,
)
from scenarios.operated import NODE_TOPOLOGIES, MortalApi, Operator, add, set_status

WAITING = 1000
ROUNDS = 12
LAG_S = 10.0
NOW = datetime.now(UTC).replace(microsecond=0)  # the loop reads the real clock
SAYS = ("nothing", "declared", "late")  # how long a job runs
SINCE = timedelta(hours=1)  # all that run, but
LATE = timedelta(days=5)  # where all have run longer than they say
BEATS_EVERY = timedelta(minutes=5)  # as an agent does; each on a second of its own
LATER = timedelta(minutes=1)  # a job of two GPUs that could be torn waits for half an hour
# 48 shapes, the smallest of two GPUs: nobody fits on a single one.
SHAPES = [
    {
        "gpus": gpus * tensor,
        "parallelism": {"tensor": tensor},
        "topology": {"nvlink": nvlink, "fabric": {"required": level} if level else {}},
    }
    for gpus, tensor, nvlink, level in product(
        (2, 8, 16, 64), (1, 8), ("Required", "Preferred"), (None, "rack", "block")
    )
]


def name(number: int) -> str:
    return f"gpu-{number:05d}"


def beat(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def machines(count: int) -> Iterator[Manifest]:
    """Nodes whose GPUs a device plugin offers, 16 in a rack, 256 in a block."""
    yield cluster_topology("block", "rack")
    for number in range(count):
        places = {"net.example/block": f"b{number // 256}", "net.example/rack": f"r{number // 16}"}
        yield node(name(number), labels=places, allocatable={"rdma/hca": "63"})
        yield heartbeat(number, NOW)


def gangs(count: int) -> Iterator[tuple[str, list[tuple[int, range]]]]:
    """Running jobs and their shares: (node, GPUs)."""
    shared = count // 25
    for number in range(shared):
        yield f"seven-{number:05d}", [(number, range(7))]
        yield f"one-{number:05d}", [(number, range(7, 8))]
    for first in range(shared, count, 8):
        yield f"gang-{first:05d}", [(number, range(8)) for number in range(first, min(first + 8, count))]


def running(job: str, shares: list[tuple[int, range]]) -> Iterator[Manifest]:
    """A job that runs, and its Pods."""
    nodes = booked(*((name(number), gpus) for number, gpus in shares))
    nodes["nodes"] = [{**each, "actual": "Verified"} for each in nodes["nodes"]]
    true = [condition(kind, reason=kind) for kind in ("Admitted", "Placed", "PlacementVerified", "Running")]
    size = sum(len(gpus) for _, gpus in shares)
    yield training_job(
        job, spec={"gpus": size}, placement=nodes, attempt=1, state="Running", conditions=true, observedGeneration=1
    )
    for index, (number, gpus) in enumerate(shares):
        asked = {"nvidia.com/gpu": str(len(gpus))}
        yield worker(job, index, node=name(number), gpus=uuids(name(number), *gpus), requests=asked)


def workers(job: str, placement: PlacementStatus | None) -> Iterator[Manifest]:
    """The Pods of a job that has just been booked."""
    shares = () if placement is None else placement.nodes
    for index, share in enumerate(shares):
        yield worker(job, index, node=share.name, gpus=uuids(share.name, *share.gpus))


def waiting() -> Iterator[Manifest]:
    for number in range(WAITING):
        yield training_job(f"wait-{number:04d}", spec=SHAPES[number % len(SHAPES)])


def said(manifest: Manifest, says: str) -> Manifest:
    """The object as of this hour; if it is a job, with how long it `says` to run: 2 to 25 hours, from any second on."""
    if manifest["kind"] != "TrainingJob":
        return manifest
    salt = zlib.crc32(manifest["metadata"]["name"].encode())
    began = beat(NOW - (LATE if says == "late" else SINCE) - timedelta(seconds=salt % 3600))
    spec, status = manifest["spec"], dict(manifest["status"])
    if says != "nothing":
        spec = {**spec, "expectedDuration": f"{2 + salt // 3600 % 24}h"}
    if status.get("placement"):
        conditions = [{**each, "lastTransitionTime": began} for each in status["conditions"]]
        status |= {"startTime": began, "conditions": conditions}
    metadata = {**manifest["metadata"], "creationTimestamp": began}
    return {**manifest, "metadata": metadata, "spec": spec, "status": status}


class Core:
    """The decision without its shell: events in, Plans out, every refusal taken as told."""

    def __init__(self, count: int, says: str = "nothing") -> None:
        self._says = says
        manifests = [*machines(count), *waiting()]
        for job, shares in gangs(count):
            manifests += running(job, shares)
        found = (from_document(said(manifest, says)) for manifest in manifests)
        objects = [value for value in found if value is not None]
        reports = (value for value in objects if isinstance(value, AgentReport))
        period_s = int(BEATS_EVERY.total_seconds())
        self._beats = [
            (NOW - timedelta(seconds=period_s - 1 - number * period_s // count), report)
            for number, report in enumerate(reports)
        ]
        """The last heartbeat of each agent, the oldest first."""
        heard = (replace(report, heartbeat=at) for at, report in self._beats)
        self.cluster = Cluster.empty().after(map(change, chain(objects, heard))).at(NOW)
        self.tables = Tables()
        self.now = NOW
        self.answers: dict[str, Answers] = {}
        self.decision: Decision | None = None
        self.decisions_ms: list[float] = []
        """CPU milliseconds of each decision."""
        self._warm_up = WarmUp()

    def event(self, *changed: Manifest, gone: tuple[ClusterObject, ...] = ()) -> float:
        """CPU milliseconds of what follows an event."""
        found = (from_document(said(manifest, self._says)) for manifest in changed)
        changes = [change(value) for value in found if value is not None]
        changes += [replace(change(value), new=None) for value in gone]
        self.now += timedelta(seconds=1)
        began = time.process_time()
        self.cluster = self.cluster.after(changes).at(self.now)
        if self.decision is None or not self.cluster.is_same(self.decision.schedule.cluster):
            self.decide()
        return (time.process_time() - began) * 1e3

    def settled(self, *changed: Manifest) -> float:
        """The same, and then whatever it led to is stored."""
        taken_ms = self.event(*changed)
        self.rest()
        return taken_ms

    def decide(self) -> None:
        last = self.decision
        memory = Memory(self.answers, schedule=last.schedule if last else None, followed=last.followed if last else {})
        began = time.process_time()
        self.decision = decide(self.cluster, self.tables, memory, self.now)
        self.decisions_ms.append((time.process_time() - began) * 1e3)

    def store(self) -> int:
        """Takes every Plan's status as stored, and the Pods of what is booked as running. How many jobs got GPUs."""
        assert self.decision is not None
        told = [plan for plan in self.decision.plans if plan.status is not None]
        for plan in told:
            self.answers[plan.uid] = after(self.answers.get(plan.uid, NOTHING), plan, [StatusStored("")], self.now)
        jobs = {plan.job: self.cluster.jobs[plan.job].model_copy(update={"status": plan.status}) for plan in told}
        new = [self.cluster.jobs[plan.job] for plan in told if plan.opening]
        self.cluster = self.cluster.after([change(job) for job in jobs.values()])
        pods = (pod for job in new for pod in workers(job.metadata.name, jobs[job.key].status.placement))
        self.cluster = self.cluster.after([change(made) for pod in pods if (made := from_document(pod)) is not None])
        return sum(plan.status is not None and plan.status.placement is not None for plan in told)

    def _heartbeats(self) -> Iterator[AgentReport]:
        """The reports of the agents whose time has come."""
        due = bisect_left(self._beats, self.now - BEATS_EVERY, key=itemgetter(0))
        beaten = [(self.now, report) for _, report in self._beats[:due]]
        self._beats = [*self._beats[due:], *beaten]
        return (replace(report, heartbeat=at) for at, report in beaten)

    def rest(self) -> None:
        """Decides and stores until nothing is left to write or soon to renew, while every agent lives; then it asks
        for the shapes of the jobs that wait, as the loop does between two events."""
        while True:
            self.now += timedelta(seconds=1)
            self.cluster = self.cluster.after(map(change, self._heartbeats())).at(self.now)
            self.decide()
            assert self.decision is not None
            wake_at = self.decision.schedule.wake_at
            is_soon = wake_at is not None and wake_at <= self.now + LATER
            if not self.store() and not is_soon:
                break
            if wake_at is not None and is_soon:
                self.now = max(self.now, wake_at)
        while self._warm_up.is_left(self.decision.schedule):
            self._warm_up.step(self.decision.schedule, self.tables)


def heartbeat(number: int, now: datetime) -> Manifest:
    return {**node_topology(name(number), heartbeatTime=beat(now)), "spec": hgx_h200(name(number)).wire()}


def ready(job: str, shares: list[tuple[int, range]]) -> Manifest:
    pod = list(running(job, shares))[1]
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return pod


def written_to(job: str, shares: list[tuple[int, range]]) -> Manifest:
    changed = next(running(job, shares))
    changed["spec"]["queue"] = "research"
    return changed


def over(job: str, shares: list[tuple[int, range]]) -> list[Manifest]:
    """The job has succeeded, and all its Pods."""
    changed = list(running(job, shares))
    changed[0]["status"]["conditions"].append(condition("Succeeded"))
    for pod in changed[1:]:
        pod["status"]["phase"] = "Succeeded"
    return changed


def events_ms(count: int, says: str) -> dict[str, float]:
    """CPU milliseconds of events that free nothing, and of those that free something."""
    core = Core(count, says)
    core.decide()
    core.store()
    core.rest()
    interpreter.freeze_heap()
    core.decisions_ms.clear()
    every = list(gangs(count))
    large = [gang for gang in every if gang[0].startswith("gang")]
    single = [gang for gang in every if gang[0].startswith("one")]
    beats = [core.event(heartbeat(number, core.now)) for number in range(ROUNDS)]
    # What each event leads to is stored before the next, as the loop would have it.
    pods = [core.settled(ready(*gang)) for gang in large[:ROUNDS]]
    jobs = [core.settled(written_to(*gang)) for gang in large[-ROUNDS:]]
    freed = [core.settled(*over(*gang)) for gang in single[:ROUNDS]]
    placed = []
    for gang in large[ROUNDS : 2 * ROUNDS]:
        placed.append(core.event(*over(*gang)))
        assert core.decision is not None
        is_taken = any(isinstance(verdict, Book) for verdict in core.decision.schedule.values())
        assert is_taken or says != "nothing", "nobody got it"  # it may be kept for the first that waits
        core.rest()
    parts = {"heartbeat": beats, "pod": pods, "job": jobs, "one GPU": freed, "a gang": placed}
    taken = [*chain(*parts.values())]
    medians = {what: round(statistics.median(each), 2) for what, each in parts.items()}
    print(f"{count} nodes, CPU ms by event: {medians}", file=sys.stderr)
    return {
        "idle_event_ms": max(medians[what] for what in ("heartbeat", "pod", "job")),
        "freeing_event_ms": max(medians[what] for what in ("one GPU", "a gang")),
        "event_p99_ms": p99(taken),
        "decision_p99_ms": p99(core.decisions_ms),
        "decision_max_ms": round(max(core.decisions_ms), 2),
    }


def p99(taken_ms: list[float]) -> float:
    return round(statistics.quantiles(taken_ms, n=100, method="inclusive")[98], 2)


async def loop_lag_p99_ms(count: int, says: str) -> float:
    """Of the loop while such events come, four in a second."""
    store = Store(history=100_000)
    jobs = list(gangs(count))
    for manifest in (*machines(count), *waiting()):
        add(store, said(manifest, says))
    for gang in jobs:
        job, *pods = running(*gang)
        job = said(job, says)
        uid = add(store, job)["metadata"]["uid"]
        for pod in pods:
            pod["metadata"]["ownerReferences"][0]["uid"] = uid
            add(store, pod)
    operator = Operator(MortalApi(store), ThreadWorker())
    interpreter.share_the_interpreter()
    task = asyncio.create_task(operator.run())
    while operator.loop.cycles < 3:  # noqa: ASYNC110 - nobody would set an event
        await asyncio.sleep(0.1)
    interpreter.freeze_heap()
    lags: list[float] = []
    measuring = asyncio.create_task(measure_lag(lags.append))
    ends = asyncio.get_running_loop().time() + LAG_S
    large = [gang for gang in jobs if gang[0].startswith("gang")]
    for number, gang in enumerate(large):
        if asyncio.get_running_loop().time() >= ends:
            break
        moment = beat(NOW + timedelta(seconds=number))
        set_status(store, NODE_TOPOLOGIES, Key("", name(number)), heartbeatTime=moment)
        await asyncio.sleep(0.25)
        if number % 4 == 0:
            for index in range(len(gang[1])):
                set_status(store, PODS, Key("team-b", f"{gang[0]}-a1-worker-{index:05d}"), phase="Succeeded")
    for each in (measuring, task):
        each.cancel()
    await asyncio.gather(measuring, task, return_exceptions=True)
    return round(statistics.quantiles(lags, n=100)[98] * 1e3, 1)


def main() -> None:
    found: dict[str, Any] = {}
    says = next((each for each in sys.argv[1:] if each in SAYS), "nothing")
    for count in [int(each) for each in sys.argv[1:] if each not in SAYS] or [500, 5000]:
        gc.unfreeze()
        found[str(count)] = events_ms(count, says)
        gc.collect()
        found[str(count)]["loop_lag_p99_ms"] = asyncio.run(loop_lag_p99_ms(count, says))
    print(json.dumps({"jobs_say": says, "nodes": found}))


if __name__ == "__main__":
    main()
