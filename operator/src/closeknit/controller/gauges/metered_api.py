"""The API server, with each request counted and timed."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any, TypeVar

from closeknit.kube.api import Api, JsonObject, ListPage, Resource, WatchEvent
from closeknit.kube.errors import ApiError
from closeknit.kube.object_identity import Head

T = TypeVar("T")

Observe = Callable[[str, Resource, str, float], None]
"""Takes note of a request: its verb, its resource, `ok` or the kind of the error, and the seconds that it took."""


class MeteredApi:
    """`Api`. A watch counts once, when it is accepted or refused: how long it lasts says nothing."""

    def __init__(self, api: Api, observe: Observe) -> None:
        self._api = api
        self._observe = observe

    async def get(self, resource: Resource, name: str, **options: Any) -> JsonObject:
        """See `Api.get`."""
        return await self._timed("get", resource, self._api.get(resource, name, **options))

    async def list(self, resource: Resource, **options: Any) -> ListPage:
        """See `Api.list`."""
        return await self._timed("list", resource, self._api.list(resource, **options))

    async def watch(self, resource: Resource, **options: Any) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """See `Api.watch`."""
        async with aclosing(self._api.watch(resource, **options)) as stream:
            try:
                yield await self._timed("watch", resource, anext(stream))
            except StopAsyncIteration:
                return
            async for batch in stream:
                yield batch

    async def create(self, resource: Resource, body: JsonObject, **options: Any) -> JsonObject:
        """See `Api.create`."""
        return await self._timed("create", resource, self._api.create(resource, body, **options))

    async def make(self, resource: Resource, body: JsonObject, **options: Any) -> Head:
        """See `Api.make`."""
        return await self._timed("create", resource, self._api.make(resource, body, **options))

    async def json_patch(
        self, resource: Resource, name: str, patch: Sequence[Mapping[str, Any]], **options: Any
    ) -> JsonObject:
        """See `Api.json_patch`."""
        return await self._timed("patch", resource, self._api.json_patch(resource, name, patch, **options))

    async def apply(self, resource: Resource, name: str, body: JsonObject, **options: Any) -> JsonObject:
        """See `Api.apply`."""
        return await self._timed("apply", resource, self._api.apply(resource, name, body, **options))

    async def put_status(self, resource: Resource, name: str, body: JsonObject, **options: Any) -> Head:
        """See `Api.put_status`."""
        return await self._timed("update", resource, self._api.put_status(resource, name, body, **options))

    async def delete(self, resource: Resource, name: str, **options: Any) -> None:
        """See `Api.delete`."""
        await self._timed("delete", resource, self._api.delete(resource, name, **options))

    async def _timed(self, verb: str, resource: Resource, call: Awaitable[T] | Coroutine[Any, Any, T]) -> T:
        code, began = "ok", monotonic()
        try:
            return await call
        except ApiError as error:
            code = type(error).__name__  # a webhook may give any reason
            raise
        finally:
            self._observe(verb, resource, code, monotonic() - began)
