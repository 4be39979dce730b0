"""The scheduling loop: look at the cluster, decide, write. Only this loop decides and writes."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import inf

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.cluster.booking.booking import booking, until_stored
from closeknit.cluster.booking.job import InvalidJob
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.forest.domain import Domain
from closeknit.controller.decision_log import log_decision
from closeknit.controller.in_flight import (
    END_SEEN_S,
    HastyError,
    InFlight,
    Pace,
    deletions,
    gone,
    newer,
    unanswered,
    versions,
)
from closeknit.controller.leader.leadership import Leadership
from closeknit.controller.metrics import Metrics
from closeknit.controller.templates import TemplateReader
from closeknit.controller.watched_cluster import WatchedCluster
from closeknit.controller.worker import Worker
from closeknit.controller.writes.writes import Writes
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import ApiError, Forbidden
from closeknit.kube.lease import counted
from closeknit.lifecycle.unreadable import BROKEN_PAUSE_S, erred
from closeknit.lifecycle.writes.answers import NOTHING, Answers, after
from closeknit.lifecycle.writes.plan import Plan
from closeknit.lifecycle.writes.results import PASSING, DenialKind, Result, StatusStored, unfinished
from closeknit.placement.gang.cache import Tables
from closeknit.scheduling.decision import Decision, decide
from closeknit.scheduling.memo.advice import Advisor
from closeknit.scheduling.memo.memory import Memory
from closeknit.scheduling.queue.entries import Schedule
from closeknit.scheduling.warm_up import WarmUp

COALESCE_S = 0.02  # one change brings others: the Pods of a gang are bound within milliseconds of each other
# Looking and deciding take a twenty-fifth of the time at most while changes pour in: with a gang of 512 that starts,
# three new states of every Pod, it is four decisions a second and not fifty, and of three states one is looked at.
# A single change waits for none of it: rest follows work.
REST_PER_WORK = 24
LONGEST_REST_S = 0.25
LOOK_ON_S = 0.25  # nearest changes of jobs that wait are looked for so often while nothing else is to be done
RESYNC_S = 300.0  # everything is looked at again though nothing changed
SEEN_POLL_S = 0.05  # our own write may be seen without any change worth waking for
# A job whose writes fail so often in a row, half a minute by these pauses, loses its turn: what stops it may last, and
# the GPUs that it would get are not to stand idle for that.
PATIENCE_FAILURES = 8
# A job that was booked with a higher epoch than ours is left alone so long: a renewal of the Lease gives us a higher.
OUTRANKED_PAUSE_S = 0.5

_log = logging.getLogger(__name__)


class SchedulingLoop:
    """Decides in `run` whenever `wake` was called and something has changed, a moment has come, or five minutes are
    over. Until its process leads it only follows, and learns the machines that it will place on."""

    def __init__(
        self,
        watched: WatchedCluster,
        leadership: Leadership,
        writes: Writes,
        metrics: Metrics,
        now: Callable[[], datetime],
        worker: Worker,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.cycles = 0
        self.begun = asyncio.Event()
        """Set once this process leads, and everything was read and looked at."""
        self._look_on_at = inf
        """When to look on for nearest changes, on that clock."""
        self.beat = float("-inf")  # when the loop last came round, on the event loop's clock
        self.deciding_since: float | None = None
        """When the decision under way was begun, on that clock; None while there is none."""
        self._watched = watched
        self._leadership = leadership
        self._writes = writes
        self._metrics = metrics
        self._now = now
        self._worker = worker
        self._backoff = Backoff(first_s=0.1, longest_s=30.0, jitter=jitter)
        self._tables = Tables()
        self._learned: Domain | None = None
        """The empty cluster with nothing left to learn."""
        self._warm_up = WarmUp()
        self._advisor = Advisor()
        self._awake = asyncio.Event()
        self._in_flight: dict[JobKey, InFlight] = {}
        self._answers: dict[str, Answers] = {}
        self._paces: dict[str, Pace] = {}
        self._failures: dict[JobKey, int] = {}
        self._decision: Decision | None = None
        self._goes_on = False
        """Whether the last decision left jobs for the next one, and what it gave others is being written."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader = TemplateReader(watched.read, self._backoff, self._report)
        self._bugs: dict[JobKey, str] = {}
        self._unkept: frozenset[str] = frozenset()
        """Paths of a status that were reported; there are as many as fields of a CRD."""

    @property
    def tables(self) -> Tables:
        """What placement keeps; used by the worker alone."""
        return self._tables

    def wake(self) -> None:
        """Has the loop look again."""
        self._awake.set()

    async def run(self) -> None:
        """Decides for ever, from the moment when everything was read and this process leads."""
        await self._watched.synced()
        await self._stand_by()
        cluster = await self._watched.look(self._worker, self._now())
        self.begun.set()
        facts = {"jobs": len(cluster.jobs), "nodes": len(cluster.nodes), "epoch": self._leadership.epoch}
        _log.info("ready", extra=facts)
        loop = asyncio.get_running_loop()
        decide_at = loop.time()
        while True:
            began = loop.time()
            self._awake.clear()
            is_free = self._let_go()
            cluster = await self._watched.look(self._worker, self._now())
            self._forget(cluster)
            if is_free or loop.time() >= decide_at or not self._is_known(cluster):
                decide_at = loop.time() + await self._decide(cluster)
            elif self._may_learn(cluster):
                await self._learn(cluster)
            elif self._decision is not None and loop.time() >= self._look_on_at:
                decide_at = await self._advise(self._decision.schedule, decide_at)
            if self._may_learn(cluster):
                self.wake()  # it is learnt now, and not when its first job comes
            self.beat = loop.time()
            rest_s = 0.0 if self._goes_on else min(LONGEST_REST_S, REST_PER_WORK * (self.beat - began))
            rested_at = self.beat + rest_s
            pause_s = min(decide_at, self._look_on_at) - loop.time()
            if await self._is_woken(pause_s) or pause_s <= 0:
                await asyncio.sleep(max(COALESCE_S, rested_at - loop.time()))

    async def stop(self) -> None:
        """Gives up what is being written; the next process goes on from what was stored."""
        await self._reader.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _stand_by(self) -> None:
        """Keeps up with the cluster until this process leads, and decides nothing."""
        begun = self._leadership.begun
        waking = asyncio.create_task(begun.wait(), name="waits to lead")
        waking.add_done_callback(lambda _: self.wake())
        try:
            while not begun.is_set():
                self._awake.clear()
                cluster = await self._watched.look(self._worker, self._now())
                if self._may_learn(cluster):
                    await self._learn(cluster)
                elif not begun.is_set():
                    await self._awake.wait()
                    await asyncio.sleep(COALESCE_S)
        finally:
            waking.cancel()

    def _may_learn(self, cluster: Cluster) -> bool:
        """Whether there is a machine, an empty cluster, or what a job asks, that placement has not worked out yet."""
        if self._watched.has_new_machine or self._learned is not cluster.forest.empty:
            return True
        return self._decision is not None and self._warm_up.is_left(self._decision.schedule)

    async def _learn(self, cluster: Cluster) -> None:
        """One step of it."""
        if (machine := self._watched.new_machine()) is not None:
            await self._worker.run(partial(self._tables.learn, machine))
        elif self._learned is not cluster.forest.empty:
            is_more = await self._worker.run(partial(self._tables.learn_asked, cluster.forest.empty))
            self._learned = None if is_more else cluster.forest.empty
        elif self._decision is not None:
            await self._worker.run(partial(self._warm_up.step, self._decision.schedule, self._tables))

    async def _is_woken(self, pause_s: float) -> bool:
        """Waits until woken, or until there may be something to do without that."""
        time = asyncio.get_running_loop().time()
        for flight in self._in_flight.values():
            if not flight.is_writing:
                pause_s = min(pause_s, max(SEEN_POLL_S, flight.not_before - time))
        try:
            async with asyncio.timeout(pause_s):
                await self._awake.wait()
        except TimeoutError:
            return False
        return True

    def _is_known(self, cluster: Cluster) -> bool:
        """Whether a decision on this very cluster was made."""
        return self._decision is not None and cluster.is_same(self._decision.schedule.cluster)

    async def _decide(self, cluster: Cluster) -> float:
        """One decision over all jobs. Gives the seconds after which to decide again at the latest."""
        loop = asyncio.get_running_loop()
        now, last = self._now(), self._decision
        judged_at = None if last is None else last.schedule.cluster.now
        if judged_at is not None and now < judged_at:
            last = None  # the clock was set back, and what was to stand for a while would stand for longer
        memory = Memory(
            answers=dict(self._answers),
            busy=frozenset(self._in_flight),
            put_aside=frozenset(key for key, flight in self._in_flight.items() if not flight.is_kept),
            epoch=self._leadership.epoch,
            schedule=last.schedule if last else None,
            followed=last.followed if last else {},
            advice=self._advisor.told,
            told=last.told if last else (),
        )
        self.deciding_since = loop.time()
        with self._metrics.cycle.time():
            decision = await self._worker.run(partial(decide, cluster, self._tables, memory, now))
        self.deciding_since = None
        self._decision = replace(decision, plans=())  # they have whole gangs, and are kept by who writes them
        self._watched.keep_templates(frozenset(decision.schedule.unread), decision.schedule.templates.beyond.keys())
        self._reader.want(decision.schedule.unread)
        assumed: set[JobKey] = set()
        for plan in sorted(decision.plans, key=_is_news):
            if plan.error is not None:
                self._report(plan.job, plan.error)
            if not plan.unkept <= self._unkept:
                self._report_unkept(plan)
            if plan.error is not None and not plan.writes:
                self._in_flight[plan.job] = InFlight(False, False, not_before=loop.time() + BROKEN_PAUSE_S)
                self.wake()  # what it would have got is for others
            elif plan.writes and self._is_outranked(plan, cluster):
                self._in_flight[plan.job] = InFlight(False, False, not_before=loop.time() + OUTRANKED_PAUSE_S)
                self.wake()
            elif plan.writes and self._start(plan, cluster):
                assumed.add(plan.job)
        made = decision.schedule
        self._goes_on = made.is_cut and bool(assumed)
        if made.booked is not made.cluster and assumed.issuperset(made.given):
            self._watched.go_on_from(made.booked)
        self.cycles += 1
        self._look_on_at = loop.time() + LOOK_ON_S if made.refused else inf
        if self._goes_on:
            self.wake()
        wake_at = decision.wake_at
        return RESYNC_S if wake_at is None else min(RESYNC_S, max(0.0, (wake_at - now).total_seconds()))

    async def _advise(self, schedule: Schedule, decide_at: float) -> float:
        """Looks for nearest changes while there is nothing else to do. Gives when to decide again: at once where some
        are to be told."""
        time, told = asyncio.get_running_loop().time, self._advisor.told
        began, now = time(), self._now()
        is_left = await self._worker.run(partial(self._advisor.step, schedule, self._tables, now))
        if self._advisor.mistake is not None:
            self._report(*self._advisor.mistake)
        if self._advisor.told is not told:
            return time()
        if is_left:
            self._look_on_at = time() + max(LOOK_ON_S, REST_PER_WORK * (time() - began))
        else:
            due_at = self._advisor.due_at(schedule, now)
            self._look_on_at = inf if due_at is None else began + (due_at - now).total_seconds()
        return decide_at

    def _let_go(self) -> bool:
        """Takes jobs up again whose writes are seen. Whether there were any."""
        time = asyncio.get_running_loop().time()
        over: list[JobKey] = []
        for key, flight in self._in_flight.items():
            if flight.is_status_seen(self._watched):
                self._watched.settle(key)
            if flight.is_over(key, self._watched, time):
                over.append(key)
        for key in over:
            del self._in_flight[key]
        return bool(over)

    def _forget(self, seen: Cluster) -> None:
        """Drops what is remembered of jobs that are gone."""
        if self._decision is not None and seen.jobs is self._decision.schedule.cluster.jobs:
            return
        there = {job.metadata.uid for job in seen.jobs.values()}
        there |= {job.metadata.uid for job in seen.invalid_jobs.values()}
        for kept in (self._answers, self._paces):
            for uid in kept.keys() - there:
                del kept[uid]
        names = {*seen.jobs, *seen.invalid_jobs}
        for key in self._failures.keys() - names - self._in_flight.keys():
            del self._failures[key]
        for key in self._bugs.keys() - names:
            del self._bugs[key]

    def _is_outranked(self, plan: Plan, cluster: Cluster) -> bool:
        """Whether a leader after us has booked the job, or one before us with a Lease that is gone: nothing is written
        of it. Where we still lead our epoch rises above that; else this process ends."""
        job = cluster.jobs.get(plan.job) or cluster.invalid_jobs.get(plan.job)
        epoch = 0 if job is None else counted(job.status.epoch)
        if epoch <= self._leadership.epoch:
            return False
        self._leadership.raise_above(epoch)
        return True

    def _start(self, plan: Plan, cluster: Cluster) -> bool:
        """Begins to write. Whether the job is taken to hold what is meant for it from now on."""
        job = cluster.jobs.get(plan.job)
        # What it takes counts from now on; what it gives is free once that is stored.
        # A job that ends keeps its placement to be read, and gives what it held.
        meant = None if job is None or plan.status is None else job.model_copy(update={"status": plan.status})
        is_assumed = meant is not None and booking(meant) is not None
        if meant is not None and is_assumed:
            self._watched.assume(_until_stored(meant, job))
        stored = job or cluster.invalid_jobs[plan.job]
        self._in_flight[plan.job] = flight = InFlight(is_kept=plan.error is None)
        task = asyncio.create_task(self._write(plan, stored, meant, flight), name=f"write {plan.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return is_assumed

    async def _write(
        self, plan: Plan, stored: TrainingJob | InvalidJob, meant: TrainingJob | None, flight: InFlight
    ) -> None:
        """`stored` is the job as it was decided on, `meant` the job once the status is stored; None where none is to
        be, or it cannot be read."""
        loop = asyncio.get_running_loop()
        try:
            results = await self._writes.apply(plan)
            self._answers[plan.uid] = after(self._answers.get(plan.uid, NOTHING), plan, results, self._now())
            seen = versions(results)
            for result in results:
                if isinstance(result, StatusStored):
                    self._stored(plan, stored, meant, result.version)
            asked = list(unanswered(plan.job, results))
            found = (self._asked(kind, plan.job.namespace, name) for _, kind, name in asked)
            for (source, *_), version in zip(asked, await asyncio.gather(*found), strict=True):
                seen[source] = newer(version, seen.get(source, ""))
            flight.versions = seen
            flight.deleted, flight.gone = deletions(results), gone(results)
            flight.ends_awaited_until = loop.time() + END_SEEN_S
            self._rest(plan, results, flight)
            self._pace(plan, flight)
        except Exception as error:  # it must not keep its job waiting for ever
            self._report(plan.job, error)
            await self._tell_error(plan, stored.status, error)
            flight.is_kept, flight.not_before = False, loop.time() + BROKEN_PAUSE_S
        if plan.error is not None:
            flight.not_before = max(flight.not_before, loop.time() + BROKEN_PAUSE_S)
        flight.is_writing = False
        self.wake()

    async def _tell_error(self, plan: Plan, before: TrainingJobStatus, error: Exception) -> None:
        """Tells in the job's status that its writes met a mistake of ours. Where that fails, too, the log has it."""
        job = self._watched.cluster.jobs.get(plan.job)
        if job is None or job.metadata.uid != plan.uid:
            return
        try:
            await self._writes.apply(erred(job.model_copy(update={"status": before}), self._now(), error))
        except Exception as another:
            self._report(plan.job, another)

    def _stored(self, plan: Plan, before: TrainingJob | InvalidJob, meant: TrainingJob | None, version: str) -> None:
        self._metrics.stored(plan, before, self._watched.cluster.pods_of(plan.job))
        log_decision(plan, before.status)
        if meant is not None and meant.status.placement is not None:
            metadata = meant.metadata.model_copy(update={"resource_version": version})
            self._watched.assume(meant.model_copy(update={"metadata": metadata}))

    async def _asked(self, kind: str, namespace: str, name: str) -> str:
        """The version that an object has, as the API server tells: what was written without an answer is in it or not;
        empty where there is none, or where it may not be read.

        Until the stream has passed it, the job is taken to hold what was to be stored.
        """
        failures = 0
        while True:
            try:
                return await self._writes.version(kind, namespace, name)
            except Forbidden as error:  # then nobody can tell, and the job is not to wait for that
                _log.warning("an object may not be read", extra={"object": f"{namespace}/{name}", "error": str(error)})
                return ""
            except ApiError as error:
                failures += 1
                await asyncio.sleep(self._backoff.pause_s(failures, error.retry_after_s))

    def _rest(self, plan: Plan, results: Sequence[Result], flight: InFlight) -> None:
        """How long to leave the job alone where its Plan was not written to its end."""
        denial = unfinished(results, plan.uid)
        if denial is None:
            self._failures.pop(plan.job, None)
            return
        failures = self._failures[plan.job] = self._failures.get(plan.job, 0) + 1
        if denial.failure not in {
            DenialKind.CONFLICT,
            DenialKind.NOT_FOUND,
        }:  # somebody was quicker, or the job is gone
            _log.warning("a write failed and is tried again", extra={"job": plan.job, "error": denial.message})
        flight.is_kept = denial.failure in PASSING and failures < PATIENCE_FAILURES
        pause_s = self._backoff.pause_s(failures, denial.retry_after_s)
        flight.not_before = asyncio.get_running_loop().time() + pause_s

    def _pace(self, plan: Plan, flight: InFlight) -> None:
        """How long to leave the job alone where it is written to too often. Others get what it would have got."""
        time = asyncio.get_running_loop().time()
        pace = self._paces.setdefault(plan.uid, Pace())
        pause_s = pace.count_plan(time)
        if not pause_s:
            return
        if not pace.is_told:
            pace.is_told = True
            self._report(plan.job, HastyError())
        flight.is_kept, flight.not_before = False, max(flight.not_before, time + pause_s)

    def _report(self, job: JobKey, error: Exception) -> None:
        """Tells of a mistake of ours once. All other jobs go on."""
        self._metrics.broken_decisions.inc()
        if self._bugs.get(job) != repr(error):
            self._bugs[job] = repr(error)
            _log.error("a mistake of ours about one job", extra={"job": job}, exc_info=error)

    def _report_unkept(self, plan: Plan) -> None:
        """Tells once of each field that the API server does not keep."""
        self._unkept |= plan.unkept
        words = "the API server keeps not all of a status: bring the CRDs of this version (docs/upgrades.md)"
        _log.warning(words, extra={"job": plan.job, "fields": sorted(plan.unkept)})


def _is_news(plan: Plan) -> bool:
    """Whether a Plan only tells something: it is written after those that others wait for."""
    return not plan.actions and not plan.probes


def _until_stored(meant: TrainingJob, stored: TrainingJob | None) -> TrainingJob:
    """The job that is meant, with all that it still holds."""
    held, placement = None if stored is None else booking(stored), meant.status.placement
    if held is None or placement is None:
        return meant
    status = meant.status.model_copy(update={"placement": until_stored(placement, held)})
    return meant.model_copy(update={"status": status})
