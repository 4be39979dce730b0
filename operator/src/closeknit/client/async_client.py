"""The client for code that runs in an event loop. The blocking one is this one, in a thread."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from closeknit.api.text.printable import printable
from closeknit.cli.answers.job_answers import Explanation
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.jobs.found_jobs import asked_pods, read
from closeknit.cli.live.cluster_connection import NOT_INSTALLED, TRAINING_JOBS, reached
from closeknit.client.client_errors import ClientError, JobRefused, NoSuchJob, WaitTimeout
from closeknit.client.job_draft import JobDraft
from closeknit.client.job_event import JobEvent
from closeknit.client.job_maker import JobMaker
from closeknit.client.odd_arguments import check_name, check_number
from closeknit.client.seen_job import SeenJob
from closeknit.client.waiting import REACHED, JobWait, Progress, Until
from closeknit.kube.api import JsonObject, Resource
from closeknit.kube.errors import AlreadyExists, Forbidden, Invalid, NotFound, TooLarge
from closeknit.kube.http.http_api import HttpApi

if TYPE_CHECKING:
    from closeknit.cli.plan.plan_decision import Placed, PlanRefused

EVENTS = Resource("", "v1", "events")
LINES_AHEAD = 256  # of a log that are read before somebody takes them: 16 MB of the longest lines
_MOST_NAMED = 8


class AsyncClient(JobMaker):
    """Jobs of one namespace of one cluster, reached as kubectl and `closeknit` reach it.

    Without arguments: by $KUBECONFIG or ~/.kube/config, and in a Pod without one by its account. `namespace` None is
    that of the context. Each call has connections of its own, so that a client needs no closing, and may be kept for
    as long as a notebook is open.
    """

    def __init__(
        self,
        *,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        namespace: str | None = None,
    ) -> None:
        super().__init__(namespace)
        self._reach = Reach(Path(kubeconfig) if kubeconfig is not None else None, context, namespace)

    async def plan(self, job: JobDraft) -> "Placed | PlanRefused":
        """What the operator would decide now: Placed with nodes, GPUs and ranks, or PlanRefused with its reason and
        the nearest changes that would fit. The API server is asked by dry runs whether it takes job and Pods; nothing
        is made. Raises JobRefused and ClientError."""
        from closeknit.cli.live.cluster_objects import plan_of  # noqa: PLC0415 - a second of models, which no other call needs

        written = _draft(job).checked()
        reach = Reach(self._reach.kubeconfig, self._reach.context)
        if job.namespace is None and self._namespace is not None:
            written = written.inside(self._namespace)
        try:
            return await plan_of(written, reach, datetime.now(UTC))
        except NotThere as error:
            raise _told(error) from None

    async def submit(self, job: JobDraft) -> SeenJob:
        """Makes the job. Raises JobRefused, also where one of that name is there already, and ClientError."""
        _draft(job).checked()
        async with self._reached() as api:
            namespace = job.namespace or self._here(api)
            try:
                made = await api.create(TRAINING_JOBS, dict(job.body), namespace=namespace)
            except AlreadyExists:
                words = f"there is a TrainingJob {namespace}/{job.name} already: delete it first, or take another name"
                raise JobRefused(printable(words)) from None
            except (Invalid, Forbidden, TooLarge, NotFound) as error:
                if isinstance(error, NotFound) and not str(error).startswith("namespaces "):
                    raise  # the kind is not there
                said = " ".join(str(error).split())
                words = f"the API server refuses TrainingJob {namespace}/{job.name}: {said}"
                if isinstance(error, Forbidden) and (who := _NOT_ALLOWED.search(said)) is not None:
                    words = (
                        f"{who[1]} may not create TrainingJobs in namespace {namespace}: an administrator binds the "
                        f"role edit, or closeknit-edit, there ({said})"
                    )
                raise JobRefused(printable(words)) from None
            return SeenJob(msgspec.json.encode(made))

    async def get(self, name: str) -> SeenJob:
        """The job as it is now, with its Pods where they may be read. Raises NoSuchJob and ClientError."""
        async with self._reached() as api:
            return await self._seen(api, name)

    async def explain(self, name: str) -> Explanation:
        """What `closeknit explain -o json` prints: why it waits or where it sits, and what to do. Raises NoSuchJob and
        ClientError."""
        return (await self.get(name)).explanation

    async def wait(
        self,
        name: str,
        until: Until = "Succeeded",
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> SeenJob:
        """The job once it is that far; one that has succeeded has also run.

        `progress` is called with the job as it is at first, and whenever its state, reason or message changes:
        `progress=print` will do. A lost connection is made again for as long as it takes. Raises JobFailed,
        WaitTimeout (a TimeoutError) after `timeout_s`, NoSuchJob where it is not there or is deleted meanwhile, and
        ClientError.
        """
        if until not in REACHED:
            raise ValueError(f"until is {until!r}; allowed: {', '.join(REACHED)}")
        check_name(name)
        if timeout_s is not None:
            check_number(timeout_s, "timeout_s", is_whole=False, least=float("-inf"))
        waiting: JobWait | None = None
        try:
            async with asyncio.timeout(timeout_s) as limit, self._reached() as api:
                waiting = JobWait(api, self._here(api), name, until, progress)
                return await waiting.end()
        except TimeoutError:
            if not limit.expired():
                raise
        last = waiting.last if waiting is not None else None
        so_far = f"; it is {last.state}{f' ({last.reason})' if last.reason else ''}" if last is not None else ""
        raise WaitTimeout(printable(f"{name} is not {until} after {timeout_s:g} s{so_far}"), last)

    async def logs(
        self,
        name: str,
        rank: int | None = None,
        *,
        follow: bool = True,
        tail: int | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> AsyncGenerator[str, None]:
        """The lines that a rank prints, without line breaks: of rank 0, or of a job that has failed the one that ended
        it. The other ranks of its Pod print there, too.

        `follow` waits for Pods that are not there yet, and goes on through restarts until the job is over. `tail` is
        the last lines alone. Bytes that are no UTF-8 are replaced. `say` gets a sentence about what is waited for. Of a
        log of any length a bounded part is in memory. Close it with `contextlib.aclosing` where you leave it early.
        Raises NoSuchJob and ClientError.
        """
        from closeknit.cli.logs.log_reader import LogsArguments, read_logs  # noqa: PLC0415 - models of 0.3 s

        if tail is not None:
            check_number(tail, "tail")
        if rank is not None:
            check_number(rank, "rank")
        async with self._reached() as api:
            await self._body(api, name)
            reach = Reach(namespace=self._here(api))
            asked = LogsArguments(name, () if rank is None else (rank,), False, follow, tail, reach)
            lines: asyncio.Queue[bytes | None] = asyncio.Queue(LINES_AHEAD)

            async def fill() -> None:
                try:
                    await read_logs(api, asked, lines.put, say)
                except NotFound:
                    await lines.put(None)
                    raise NoSuchJob(printable(f"{reach.namespace}/{name} is gone")) from None
                except Exception:
                    await lines.put(None)
                    raise
                await lines.put(None)

            reading = asyncio.create_task(fill())
            try:
                while (line := await lines.get()) is not None:
                    yield line.decode(errors="replace").rstrip("\r\n")
                await reading
            finally:
                reading.cancel()
                await asyncio.wait({reading})
                if not reading.cancelled():
                    reading.exception()  # it was raised already, or there is no one left to tell

    async def events(self, name: str) -> tuple[JobEvent, ...]:
        """What Kubernetes has told of the job, the oldest first; it forgets after an hour. Raises NoSuchJob and
        ClientError."""
        async with self._reached() as api:
            uid = (await self._body(api, name))["metadata"]["uid"]
            found: list[JobEvent] = []
            token: str | None = None
            while True:
                page = await api.list(
                    EVENTS,
                    namespace=self._here(api),
                    continue_token=token,
                    field_selector=f"involvedObject.uid={uid}",
                )
                for item in page.items:
                    with suppress(msgspec.DecodeError):  # people may write Events, and odd ones
                        found.append(JobEvent.of_json(item))
                token = page.continue_token
                if token is None:
                    return tuple(sorted(found, key=lambda event: event.last_seen))

    async def delete(self, name: str) -> None:
        """Deletes the job; its Pods end with it. Raises NoSuchJob and ClientError."""
        async with self._reached() as api:
            uid = (await self._body(api, name))["metadata"]["uid"]
            await api.delete(TRAINING_JOBS, name, uid=uid, namespace=self._here(api))

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[HttpApi]:
        try:
            async with reached(self._reach, missing=NOT_INSTALLED) as api:
                yield api
        except NotThere as error:
            raise _told(error) from None

    def _here(self, api: HttpApi) -> str:
        return self._namespace or api.namespace

    async def _seen(self, api: HttpApi, name: str) -> SeenJob:
        document = msgspec.json.encode(await self._body(api, name))
        with suppress(Forbidden):
            return SeenJob(document, await asked_pods(api, read(document)))
        return SeenJob(document)

    async def _body(self, api: HttpApi, name: str) -> JsonObject:
        namespace = self._here(api)
        check_name(name)
        try:
            return await api.get(TRAINING_JOBS, name, namespace=namespace)
        except NotFound:
            there = sorted(await api.names(TRAINING_JOBS, namespace=namespace))
        more = f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
        these = f"there are {', '.join(there[:_MOST_NAMED])}{more}" if there else "there is no job at all"
        raise NoSuchJob(printable(f"there is no TrainingJob {name} in namespace {namespace}; {these}"))


def _draft(job: object) -> JobDraft:
    if not isinstance(job, JobDraft):
        raise JobRefused(f"the job is a {type(job).__name__}; make one by client.job(...), or JobDraft(manifest)")
    return job


# As RBAC says it; a quota or an admission policy refuses the job, and says so otherwise.
_NOT_ALLOWED = re.compile(r"\bUser (\"[^\"]*\") cannot create resource\b")
_OPTIONS = re.compile(r"--(kubeconfig|context|namespace|rank|follow)\b")


def _told(error: NotThere) -> ClientError:
    """The words of a command in those of Python."""
    return ClientError(_OPTIONS.sub(r"\1=", str(error)))
