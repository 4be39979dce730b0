"""The scheduling loop: look at the cluster, decide, write. One loop, and nobody else decides or writes."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from closeknit.api.names import JobKey
from closeknit.api.objects import ObjectMeta, TrainingJob
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.kinds import Stream, change
from closeknit.controller.decisions import log_decision
from closeknit.controller.metrics import Metrics
from closeknit.controller.sight import Sight
from closeknit.controller.writes import Outcome, Writes
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import Conflict, NotFound
from closeknit.lifecycle.answers import NOTHING, Answers, Memory
from closeknit.lifecycle.plan import Plan
from closeknit.lifecycle.step import BROKEN_PAUSE_S, step

COALESCE_S = 0.02  # one change brings others: the Pods of a gang are bound within milliseconds of each other
RESYNC_S = 300.0  # everything is looked at again though nothing changed
SEEN_POLL_S = 0.05  # our own write may be seen without any change worth waking for
DELETION_SEEN_S = 5.0  # a deletion that is not seen by then is asked for again

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """A job that is left alone: its Plan is being written, or was and is not seen yet, or it waits after an error."""

    shown: TrainingJob | None
    """The job as decisions about others must see it meanwhile; None: as the reflector shows it."""
    is_writing: bool = True
    versions: Mapping[Stream, str] = field(default_factory=dict)
    deleted: tuple[tuple[str, str], ...] = ()
    deleted_until: float = 0.0
    not_before: float = 0.0


class SchedulingLoop:
    """Decides in `run` whenever `wake` was called, a moment has come, or five minutes are over."""

    def __init__(
        self,
        sight: Sight,
        writes: Writes,
        metrics: Metrics,
        now: Callable[[], datetime],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.cycles = 0
        self.beat = float("-inf")  # when the loop last came round, on the event loop's clock
        self._sight = sight
        self._writes = writes
        self._metrics = metrics
        self._now = now
        self._backoff = Backoff(first_s=0.1, longest_s=30.0, jitter=jitter)
        self._awake = asyncio.Event()
        self._held: dict[JobKey, _Held] = {}
        self._answers: dict[str, Answers] = {}
        self._failures: dict[JobKey, int] = {}
        self._epoch = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._bugs: dict[JobKey, str] = {}

    def wake(self) -> None:
        """Has the loop look again."""
        self._awake.set()

    async def run(self) -> None:
        """Decides for ever, from the moment when everything was read once."""
        await self._sight.synced()
        jobs = self._sight.cluster.jobs.values()
        self._epoch = max((job.status.epoch or 0 for job in jobs), default=0) + 1
        _log.info("ready", extra={"jobs": len(jobs), "nodes": len(self._sight.cluster.nodes), "epoch": self._epoch})
        loop = asyncio.get_running_loop()
        decide_at = loop.time()
        while True:
            woken = self._awake.is_set()
            self._awake.clear()
            if self._let_go() or woken or loop.time() >= decide_at:
                decide_at = loop.time() + self._decide()
            self.beat = loop.time()
            if await self._is_woken(decide_at - loop.time()):
                await asyncio.sleep(COALESCE_S)

    async def stop(self) -> None:
        """Gives up what is being written; whoever comes next goes on from what was stored."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _is_woken(self, pause_s: float) -> bool:
        """Waits until woken, or until there may be something to do without that."""
        time = asyncio.get_running_loop().time()
        for held in self._held.values():
            if not held.is_writing:
                pause_s = min(pause_s, max(SEEN_POLL_S, held.not_before - time))
        try:
            async with asyncio.timeout(pause_s):
                await self._awake.wait()
        except TimeoutError:
            return False
        return True

    def _decide(self) -> float:
        """One decision over all jobs. Gives the seconds after which to decide again at the latest."""
        seen = self._sight.cluster
        cluster = seen.after(change(held.shown) for held in self._held.values() if held.shown is not None)
        memory = Memory(self._answers, frozenset(self._held), self._epoch)
        with self._metrics.cycle.time():
            plans = step(cluster, self._now(), memory)
        time = asyncio.get_running_loop().time()
        waits = [RESYNC_S]
        for plan in plans:
            if plan.error is not None:
                self._report(plan, plan.error)
                self._held[plan.job] = _Held(None, False, not_before=time + BROKEN_PAUSE_S)
            if plan.writes:
                self._start(plan, cluster)
            elif plan.wake_after_s is not None:
                waits.append(plan.wake_after_s)
        self.cycles += 1
        return min(waits)

    def _let_go(self) -> bool:
        """Takes jobs up again whose writes are seen. Whether there were any."""
        time = asyncio.get_running_loop().time()
        seen = self._sight.cluster
        before = len(self._held)
        for key, held in list(self._held.items()):
            if held.is_writing:
                continue
            unseen = {source for source, version in held.versions.items() if not self._sight.has_seen(source, version)}
            if Stream.TRAINING_JOBS not in unseen:
                held.shown = None  # the reflector knows as much, or more
            if unseen or time < held.not_before:
                continue
            if time < held.deleted_until and any(_is_there(seen, key, name, uid) for name, uid in held.deleted):
                continue
            del self._held[key]
        self._forget(seen)
        return len(self._held) < before

    def _forget(self, seen: Cluster) -> None:
        """Drops what is remembered of jobs that are gone."""
        there = {job.metadata.uid for job in seen.jobs.values()}
        there |= {job.metadata.uid for job in seen.invalid_jobs.values()}
        for uid in self._answers.keys() - there:
            del self._answers[uid]
        names = {*seen.jobs, *seen.invalid_jobs}
        for key in self._failures.keys() - names - self._held.keys():
            del self._failures[key]
        for key in self._bugs.keys() - names:
            del self._bugs[key]

    def _start(self, plan: Plan, cluster: Cluster) -> None:
        job = cluster.jobs.get(plan.job)
        shown = None
        # Only what it takes counts from now on; what it gives is free once that is stored.
        if job is not None and plan.status is not None and plan.status.placement is not None:
            shown = job.model_copy(update={"status": plan.status})
        stored = job or cluster.invalid_jobs[plan.job]
        self._held[plan.job] = held = _Held(shown)
        task = asyncio.create_task(self._write(plan, stored.metadata, stored.status, held), name=f"write {plan.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, plan: Plan, job: ObjectMeta, before: TrainingJobStatus, held: _Held) -> None:
        loop = asyncio.get_running_loop()
        answers = self._answers.get(plan.uid, NOTHING)
        try:
            outcome = await self._writes.apply(plan, job.generation, answers)
        except Exception as error:  # it must not keep its job waiting for ever
            self._report(plan, error)
            held.shown, held.not_before, held.is_writing = None, loop.time() + BROKEN_PAUSE_S, False
            self.wake()
            return
        self._answers[plan.uid] = outcome.answers
        if outcome.stored is not None:
            self._metrics.stored(plan, before)
            log_decision(plan, before)
        held.shown = outcome.stored
        held.versions = outcome.versions
        held.deleted = tuple(outcome.deleted)
        held.deleted_until = loop.time() + DELETION_SEEN_S
        if outcome.error is None:
            self._failures.pop(plan.job, None)
        else:
            held.not_before = loop.time() + self._pause_s(plan, outcome)
        held.is_writing = False
        self.wake()

    def _pause_s(self, plan: Plan, outcome: Outcome) -> float:
        """How long to leave a job alone whose Plan could not be written to its end."""
        error = outcome.error
        failures = self._failures[plan.job] = self._failures.get(plan.job, 0) + 1
        if not isinstance(error, Conflict | NotFound):  # somebody was quicker, or the job is gone: nothing to tell
            _log.warning("a write failed and is tried again", extra={"job": plan.job, "error": error})
        return self._backoff.pause_s(failures, None if error is None else error.retry_after_s)

    def _report(self, plan: Plan, error: Exception) -> None:
        """Tells of a mistake of ours once. Its job is left alone for a while, and all others go on."""
        self._metrics.broken_decisions.inc()
        if self._bugs.get(plan.job) != repr(error):
            self._bugs[plan.job] = repr(error)
            _log.error("a mistake of ours about one job", extra={"job": plan.job}, exc_info=error)


def _is_there(cluster: Cluster, job: JobKey, name: str, uid: str) -> bool:
    pod = cluster.pods.get((job.namespace, name))
    return pod is not None and pod.uid == uid and pod.deletion_timestamp is None
