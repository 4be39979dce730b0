"""`Api` in memory: a `Store` seen through a door that can be told to fail."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from closeknit.kube.api import JsonObject, Key, ListPage, Resource, WatchEvent
from closeknit.kube.errors import Conflict, NotFound, Unavailable
from closeknit.kube.object_identity import Head
from faults.fault import Call, Delay, EndStream, Fault, HoldEvents, Kill, LoseReply, Refuse
from faults.selectors import Matches, selector
from faults.store import Change, Store

BOOKMARK_S = 60.0  # about once a minute, as an API server does

_T = TypeVar("_T")


class MemoryApi:
    """One client of `store`. `calls` holds what it asked for, in order; the store counts what that changed."""

    def __init__(self, store: Store | None = None, faults: Iterable[Fault] = ()) -> None:
        self.store = store or Store()
        self.calls: list[Call] = []
        self._faults = tuple(faults)
        self._matched = [0] * len(self._faults)
        self._streams = 0  # raised to end all streams that are open now

    def end_streams(self) -> None:
        """Ends every open watch quietly, as an API server does with a client that lags."""
        self._streams += 1
        for listener in list(self.store.listeners):
            listener()

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> JsonObject:
        """See `Api.get`."""
        call = _call("get", resource, namespace, name)
        return await self._do(call, lambda: self.store.get(resource, call.key))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        limit: int = 500,
        continue_token: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
        cached: bool = False,
    ) -> ListPage:
        """See `Api.list`."""

        def page() -> ListPage:
            matches = selector(field_selector, label_selector, self.store.kind(resource).fields)
            if continue_token is not None:
                return self.store.next_page(continue_token, limit=limit)
            return self.store.page(resource, matches, namespace=namespace, limit=1 << 20 if cached else limit)

        return await self._do(_call("list", resource, namespace), page)

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        timeout_s: int,
        namespace: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """See `Api.watch`."""
        call = _call("watch", resource, namespace)
        effects = await self._before(call)
        matches = selector(field_selector, label_selector, self.store.kind(resource).fields)

        def selected(obj: JsonObject) -> bool:
            return namespace in (None, obj["metadata"].get("namespace")) and matches(obj)

        yield ()
        left = min((effect.after_events for effect in effects if isinstance(effect, EndStream)), default=None)
        if left == 0:
            return
        async for batch in self._batches(resource, int(resource_version), timeout_s, selected):
            for events in [[event] for event in batch] if effects else [batch]:
                for effect in effects:
                    if isinstance(effect, HoldEvents) and effect.when(events[0]):
                        await asyncio.sleep(effect.seconds)
                yield events
                left = None if left is None else left - 1
                if left == 0:
                    return

    async def _batches(
        self, resource: Resource, after_rv: int, timeout_s: float, selected: Matches
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """The store's changes as they come, and whenever a minute has passed a bookmark, if it says anything new."""
        began_at = after_rv
        loop = asyncio.get_running_loop()
        ends_at, bookmark_at = loop.time() + timeout_s, loop.time() + BOOKMARK_S
        streams = self._streams
        changed = asyncio.Event()
        self.store.listeners.append(changed.set)
        try:
            while streams == self._streams:
                changed.clear()
                changes = self.store.changes(resource, after_rv)
                after_rv = self.store.rv
                if batch := [event for change in changes for event in _events(change, selected)]:
                    yield batch
                    continue
                try:
                    async with asyncio.timeout_at(min(ends_at, bookmark_at)):
                        await changed.wait()
                except TimeoutError:
                    if loop.time() >= ends_at:
                        return
                    bookmark_at += BOOKMARK_S
                    if after_rv > began_at:
                        yield [WatchEvent("BOOKMARK", msgspec.json.encode(_bookmark(resource, after_rv, self.store)))]
        finally:
            self.store.listeners.remove(changed.set)

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """See `Api.create`."""
        call = _call("create", resource, namespace, body.get("metadata", {}).get("name", ""), body)
        return await self._do(
            call, lambda: self.store.create(resource, body, namespace=call.key.namespace, dry_run=dry_run)
        )

    async def make(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> Head:
        """See `Api.make`."""
        made = await self.create(resource, body, namespace=namespace, dry_run=dry_run)
        return msgspec.convert(made["metadata"], Head)

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        patch: Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> JsonObject:
        """See `Api.json_patch`."""
        call = _call("json_patch", resource, namespace, name, patch)
        return await self._do(call, lambda: self.store.json_patch(resource, call.key, patch, subresource=subresource))

    async def apply(
        self,
        resource: Resource,
        name: str,
        body: JsonObject,
        *,
        field_manager: str,
        namespace: str | None = None,
        subresource: str | None = None,
        force: bool = True,
    ) -> JsonObject:
        """See `Api.apply`."""
        call = _call("apply", resource, namespace, name, body)
        return await self._do(
            call,
            lambda: self.store.apply(
                resource, call.key, body, field_manager=field_manager, subresource=subresource, force=force
            ),
        )

    async def put_status(
        self, resource: Resource, name: str, body: JsonObject, *, namespace: str | None = None
    ) -> Head:
        """See `Api.put_status`."""
        if not body.get("metadata", {}).get("resourceVersion"):
            raise ValueError(f"put_status of {resource} {name} needs metadata.resourceVersion")
        call = _call("put_status", resource, namespace, name, body)
        stored = await self._do(call, lambda: self.store.update(resource, call.key, body, subresource="status"))
        return msgspec.convert(stored["metadata"], Head)

    async def delete(
        self, resource: Resource, name: str, *, uid: str, namespace: str | None = None, is_forced: bool = False
    ) -> None:
        """See `Api.delete`. In its store all goes at once."""
        del is_forced
        call = _call("delete", resource, namespace, name)

        def delete() -> None:
            try:
                self.store.delete(resource, call.key, uid=uid)
            except (NotFound, Conflict):
                return

        await self._do(call, delete)

    async def _do(self, call: Call, act: Callable[[], _T]) -> _T:
        """What `act` gives, with this client's faults before and after it."""
        await self._before(call)
        written = len(self.store.writes)
        result = act()
        await asyncio.sleep(0)  # a reply never comes within the same step of the loop
        if len(self.store.writes) > written:
            for effect in self._effects(call, (LoseReply, Kill)):
                if isinstance(effect, Kill):
                    raise effect.exception
                raise Unavailable("no answer from the API server: connection reset after the request was sent")
        return result

    async def _before(self, call: Call) -> Sequence[Any]:
        """Notes the call and lets its delays and refusals happen; gives the effects that a stream is to show."""
        self.calls.append(call)
        for effect in self._effects(call, (Delay, Refuse)):
            if isinstance(effect, Refuse):
                error = effect.error
                raise type(error)(
                    error.message,
                    code=error.code,
                    reason=error.reason,
                    causes=error.causes,
                    retry_after_s=error.retry_after_s,
                )
            await asyncio.sleep(effect.seconds)
        return self._effects(call, (HoldEvents, EndStream))

    def _effects(self, call: Call, kinds: tuple[type, ...]) -> Sequence[Any]:
        """The effects of these kinds that hit this call; counts it."""
        hit = []
        for index, fault in enumerate(self._faults):
            if isinstance(fault.effect, kinds) and fault.matches(call):
                self._matched[index] += 1
                if fault.nth in (None, self._matched[index]):
                    hit.append(fault.effect)
        return hit


def _call(verb: str, resource: Resource, namespace: str | None, name: str = "", body: Any = None) -> Call:
    """Raises ValueError, as every Api does, where the namespace does not go with the resource."""
    resource.path(namespace, name or None)
    return Call(verb, resource, Key(namespace or "", name), body)


def _events(change: Change, selected: Matches) -> list[WatchEvent]:
    """How a change looks through a selector: what enters it is ADDED, what leaves it DELETED with its old state."""
    was = change.old is not None and selected(change.old)
    now = change.new is not None and selected(change.new)
    if now:
        return [WatchEvent("MODIFIED" if was else "ADDED", msgspec.json.encode(change.new))]
    if was and change.old is not None:
        last = change.old | {"metadata": change.old["metadata"] | {"resourceVersion": str(change.rv)}}
        return [WatchEvent("DELETED", msgspec.json.encode(last))]
    return []


def _bookmark(resource: Resource, rv: int, store: Store) -> JsonObject:
    kind = store.kind(resource).kind
    return {"apiVersion": resource.api_version, "kind": kind, "metadata": {"resourceVersion": str(rv)}}
