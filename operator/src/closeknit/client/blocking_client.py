"""The client for code without an event loop of its own, or in a notebook, whose loop is not to be blocked."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from closeknit.cli.answers.job_answers import Explanation
from closeknit.client.async_client import AsyncClient
from closeknit.client.client_errors import ClientError
from closeknit.client.job_draft import JobDraft
from closeknit.client.job_event import JobEvent
from closeknit.client.job_maker import JobMaker
from closeknit.client.seen_job import SeenJob
from closeknit.client.waiting import Progress, Until

if TYPE_CHECKING:
    from concurrent.futures import Future

    from closeknit.cli.plan.plan_decision import Placed, PlanRefused

_T = TypeVar("_T")


class _LoopThread:
    """One event loop for all clients of a process, begun at the first call; a forked process begins its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a generator may be collected, and closed, at any line
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def begin(self, work: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Has it done there."""
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="closeknit.client", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def result(self, work: Coroutine[Any, Any, _T]) -> _T:
        """What it gives. Ctrl-C ends it. Raises ClientError where the thread that would do it is the one that asks."""
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientError("Client cannot be used inside `say`, which is called where its answers come from")
        future = self.begin(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Has it done, and waits for that; not in the thread that does it, where Python may collect a generator."""
        future = self.begin(work)
        if threading.current_thread() is not self._thread:
            with suppress(RuntimeError):  # an interrupted one is being closed already
                future.result()


_thread = _LoopThread()


class Client(JobMaker):
    """Jobs of one namespace of one cluster, reached as kubectl reaches it. Each call waits for its answer.

    The arguments and methods are those of AsyncClient. It works in a notebook and in threads.
    """

    def __init__(
        self,
        *,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        namespace: str | None = None,
    ) -> None:
        super().__init__(namespace)
        self._client = AsyncClient(kubeconfig=kubeconfig, context=context, namespace=namespace)

    def plan(self, job: JobDraft) -> "Placed | PlanRefused":
        """See AsyncClient.plan."""
        return _thread.result(self._client.plan(job))

    def submit(self, job: JobDraft) -> SeenJob:
        """See AsyncClient.submit."""
        return _thread.result(self._client.submit(job))

    def get(self, name: str) -> SeenJob:
        """See AsyncClient.get."""
        return _thread.result(self._client.get(name))

    def explain(self, name: str) -> Explanation:
        """See AsyncClient.explain."""
        return _thread.result(self._client.explain(name))

    def wait(
        self,
        name: str,
        until: Until = "Succeeded",
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> SeenJob:
        """See AsyncClient.wait. `progress` is called in the thread that waits, so that a notebook shows what it prints
        below the cell."""
        if progress is None:
            return _thread.result(self._client.wait(name, until, timeout_s=timeout_s))
        news: SimpleQueue[SeenJob | None] = SimpleQueue()
        future = _thread.begin(self._client.wait(name, until, timeout_s=timeout_s, progress=news.put))
        future.add_done_callback(lambda _: news.put(None))
        try:
            while (seen := news.get()) is not None:
                progress(seen)
            return future.result()
        finally:
            future.cancel()

    def logs(
        self,
        name: str,
        rank: int | None = None,
        *,
        follow: bool = True,
        tail: int | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> Iterator[str]:
        """See AsyncClient.logs."""
        lines = self._client.logs(name, rank, follow=follow, tail=tail, say=say)

        async def following() -> str | None:
            return await anext(lines, None)

        try:
            while (line := _thread.result(following())) is not None:
                yield line
        finally:
            _thread.finish(lines.aclose())

    def events(self, name: str) -> tuple[JobEvent, ...]:
        """See AsyncClient.events."""
        return _thread.result(self._client.events(name))

    def delete(self, name: str) -> None:
        """See AsyncClient.delete."""
        _thread.result(self._client.delete(name))
