"""The API server as the leader writes to it: nothing is sent without the Lease, and its last write ends before it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from closeknit.kube.api import Api, JsonObject, ListPage, Resource, WatchEvent
from closeknit.kube.object_identity import Head

# What is under way is given so long to be answered; half of what a reign may go unrenewed. A write takes milliseconds.
DRAIN_S = 5.0

T = TypeVar("T")


class FencedApi:
    """`Api`. A write that may not be sent is never answered: its process ends, and a successor begins from what is
    stored. Reads pass."""

    def __init__(self, api: Api, may_write: Callable[[], bool]) -> None:
        """`may_write` is asked just before each write."""
        self._api = api
        self._may_write = may_write
        self._under_way = 0
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_drained(self) -> bool:
        """Whether nothing of ours can change anything any more."""
        return self._is_closed and not self._under_way

    async def drain(self) -> None:
        """Sends no further write, and returns once all are answered, or after DRAIN_S."""
        self._is_closed = True
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._idle.wait()
        except TimeoutError:
            return

    async def get(self, resource: Resource, name: str, **options: Any) -> JsonObject:
        """See `Api.get`."""
        return await self._api.get(resource, name, **options)

    async def list(self, resource: Resource, **options: Any) -> ListPage:
        """See `Api.list`."""
        return await self._api.list(resource, **options)

    def watch(self, resource: Resource, **options: Any) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """See `Api.watch`."""
        return self._api.watch(resource, **options)

    async def create(self, resource: Resource, body: JsonObject, **options: Any) -> JsonObject:
        """See `Api.create`."""
        return await self._sent(lambda: self._api.create(resource, body, **options))

    async def make(self, resource: Resource, body: JsonObject, **options: Any) -> Head:
        """See `Api.make`."""
        return await self._sent(lambda: self._api.make(resource, body, **options))

    async def json_patch(
        self, resource: Resource, name: str, patch: Sequence[Mapping[str, Any]], **options: Any
    ) -> JsonObject:
        """See `Api.json_patch`."""
        return await self._sent(lambda: self._api.json_patch(resource, name, patch, **options))

    async def apply(self, resource: Resource, name: str, body: JsonObject, **options: Any) -> JsonObject:
        """See `Api.apply`."""
        return await self._sent(lambda: self._api.apply(resource, name, body, **options))

    async def put_status(self, resource: Resource, name: str, body: JsonObject, **options: Any) -> Head:
        """See `Api.put_status`."""
        return await self._sent(lambda: self._api.put_status(resource, name, body, **options))

    async def delete(self, resource: Resource, name: str, **options: Any) -> None:
        """See `Api.delete`."""
        await self._sent(lambda: self._api.delete(resource, name, **options))

    async def _sent(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._is_closed or not self._may_write():
            await asyncio.Event().wait()
        self._under_way += 1
        self._idle.clear()
        try:
            return await call()
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
