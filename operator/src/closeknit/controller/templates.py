"""Which jobs' templates the process keeps, of one namespace's waiting jobs no more than it is allowed; and how dropped
ones are read."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Set

from closeknit.api.names import JobKey
from closeknit.api.objects import TrainingJob
from closeknit.cluster.booking.job import is_whole, weight_bytes, without_templates
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import ApiError
from closeknit.scheduling.memo import template_memory

_log = logging.getLogger(__name__)


class Templates:
    """What is kept of each job that is read. Which jobs come first, the schedule says: here is no more than the sum."""

    def __init__(self) -> None:
        self.wanted: Collection[JobKey] = frozenset()
        """Jobs that come first, whatever others have."""
        self._weights: dict[JobKey, int] = {}
        self._sums = Counter[str]()

    @property
    def counted(self) -> Set[JobKey]:
        """Waiting jobs whose templates are there."""
        return self._weights.keys()

    def kept(self, job: TrainingJob) -> TrainingJob:
        """The job, without its templates if they are not needed, or if there is no room for them."""
        self.forget(job.key)
        if not is_whole(job):
            return job
        if not template_memory.needs_templates(job):
            return without_templates(job)
        if not template_memory.is_waiting(job):
            return job
        has_room = self._sums[job.key.namespace] + weight_bytes(job) <= template_memory.TEMPLATE_BYTES
        if not has_room and job.key not in self.wanted:
            return without_templates(job)
        self.count(job)
        return job

    def count(self, job: TrainingJob) -> None:
        """What is kept of it from now on."""
        self.forget(job.key)
        if is_whole(job) and template_memory.is_waiting(job):
            self._weights[job.key] = weight_bytes(job)
            self._sums[job.key.namespace] += self._weights[job.key]

    def forget(self, job: JobKey) -> None:
        """It is gone, or its templates are."""
        weight = self._weights.pop(job, 0)
        self._sums[job.namespace] -= weight
        if not self._sums[job.namespace]:
            del self._sums[job.namespace]


class TemplateReader:
    """Reads templates that were dropped, of jobs whose turn has come: one after the other, for each may have half a
    megabyte.

    Namespaces take turns. A job that cannot be read, or changes while it is read, is tried again after a pause that
    grows, and keeps no other one waiting. `read` says whether there is no more to read of the job, and raises ApiError.
    """

    def __init__(
        self,
        read: Callable[[JobKey], Awaitable[bool]],
        backoff: Backoff,
        report: Callable[[JobKey, Exception], None],
    ) -> None:
        self._read = read
        self._backoff = backoff
        self._report = report
        self._unread: dict[str, deque[JobKey]] = {}
        """Of each namespace, in the order of their turns."""
        self._failures: dict[JobKey, int] = {}
        self._not_before: dict[JobKey, float] = {}
        self._failures_in_a_row = 0
        self._is_other = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def want(self, jobs: Iterable[JobKey]) -> None:
        """From now on these are to be read and no others: of each namespace in this order, but after those that have
        failed less often."""
        found: dict[str, deque[JobKey]] = {namespace: deque() for namespace in self._unread}
        for job in sorted(jobs, key=lambda job: self._failures.get(job, 0)):
            found.setdefault(job.namespace, deque()).append(job)
        self._unread = {namespace: unread for namespace, unread in found.items() if unread}
        for job in self._failures.keys() - {job for unread in self._unread.values() for job in unread}:
            del self._failures[job], self._not_before[job]
        self._is_other.set()
        if self._unread and self._task is None:
            self._task = asyncio.create_task(self._run(), name="read templates")

    async def stop(self) -> None:
        """Reads no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unread:
            self._is_other.clear()
            job = self._next(loop.time())
            pause_s = await self._try(job) if job is not None else min(self._not_before.values()) - loop.time()
            if pause_s > 0:
                try:
                    async with asyncio.timeout(pause_s):
                        await self._is_other.wait()
                except TimeoutError:
                    continue
        self._task = None

    def _next(self, time: float) -> JobKey | None:
        """The first that is due, of the namespace that has waited longest; None where all of them pause."""
        jobs = (job for unread in self._unread.values() for job in unread)
        return next((job for job in jobs if self._not_before.get(job, time) <= time), None)

    async def _try(self, job: JobKey) -> float:
        """Reads one. Gives the seconds to pause before the next one: an API server that is down fails all of them."""
        is_read, retry_after_s = False, None
        try:
            is_read = await self._read(job)
            self._failures_in_a_row = 0
        except ApiError as error:
            self._failures_in_a_row += 1
            retry_after_s = error.retry_after_s
            if job not in self._failures:
                _log.warning("a job's template cannot be read", extra={"job": job, "error": str(error)})
        except Exception as error:  # it must not keep all others unread
            self._report(job, error)
        unread = self._unread.pop(job.namespace, deque())
        is_wanted = job in unread
        if is_wanted:
            unread.remove(job)
        if is_wanted and not is_read:
            unread.append(job)
            self._failures[job] = failures = self._failures.get(job, 0) + 1
            self._not_before[job] = asyncio.get_running_loop().time() + self._backoff.pause_s(failures, retry_after_s)
        else:
            self._failures.pop(job, None)
            self._not_before.pop(job, None)
        if unread:
            self._unread[job.namespace] = unread
        return self._backoff.pause_s(self._failures_in_a_row) if self._failures_in_a_row else 0.0
