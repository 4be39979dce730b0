"""The thread that decides, so that the event loop goes on meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Worker(Protocol):
    """Runs heavy work."""

    async def run(self, work: Callable[[], T]) -> T:
        """What the work gives, or raises."""
        ...


class ThreadWorker:
    """One thread, one piece of work at a time, in the order of asking. It keeps no process from ending."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name="decisions", daemon=True).start()

    async def run(self, work: Callable[[], T]) -> T:
        """What the work gives, or raises. Cancelled, it is not waited for; what it gives is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def act() -> None:
            try:
                settle: Callable[[Any], None] = future.set_result
                result: Any = work()
            except BaseException as error:  # raised where the work was asked for
                settle, result = future.set_exception, error

            def tell() -> None:
                if not future.cancelled():
                    settle(result)

            with suppress(RuntimeError):  # the loop is closed: no caller waits
                loop.call_soon_threadsafe(tell)

        self._queue.put(act)
        return await future

    def _work(self) -> None:
        while True:
            self._queue.get()()
