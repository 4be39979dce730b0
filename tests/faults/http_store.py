"""A `Store` behind HTTP, in a thread of its own: for clients that come by a kubeconfig and block."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from closeknit.kube.api import Key, Resource
from closeknit.kube.errors import ApiError, Invalid, NotFound
from faults.http_server import serving
from faults.memory_api import MemoryApi
from faults.store import Store

_T = TypeVar("_T")
CLOSING_S = 0.05  # for connections that a client has just left
_STATUS_SET = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields")


@dataclass
class HttpStore:
    """The server. Use `do` for whatever touches the store."""

    store: Store
    kubeconfig: Path
    loop: asyncio.AbstractEventLoop
    printed: dict[str, list[bytes]] = field(default_factory=dict)
    """What a Pod has printed, in the pieces that are sent; one that is not here is waiting to start."""
    asked: list[str] = field(default_factory=list)
    """Method and path with query of each request."""
    open_logs: int = 0
    sent_bytes: int = 0
    """Of logs."""
    says: dict[str, ApiError] = field(default_factory=dict)
    """Method and plural -> what it answers in the place of an answer."""

    def __post_init__(self) -> None:
        self.api = MemoryApi(self.store)
        self._uids: dict[str, str] = {}  # those of objects as they were put -> those that they got

    def do(self, act: Callable[[], _T]) -> _T:
        """What `act` gives, in the thread of the server."""

        async def acting() -> _T:
            return act()

        return asyncio.run_coroutine_threadsafe(acting(), self.loop).result(10)

    def put(self, resource: Resource, body: Mapping[str, Any]) -> None:
        """An object with its status; the uids of owners that were put before are those that they got."""
        text = json.dumps(body)
        for given, got in self._uids.items():
            text = text.replace(given, got)
        body = json.loads(text)
        metadata = {name: value for name, value in body["metadata"].items() if name not in _STATUS_SET}
        namespace = metadata.get("namespace", "") if resource.namespaced else ""
        made = self.do(lambda: self.store.create(resource, {**body, "metadata": metadata}, namespace=namespace))
        if "uid" in body["metadata"]:
            self._uids[body["metadata"]["uid"]] = made["metadata"]["uid"]
        if "status" in body:
            self.set_status(resource, Key(namespace, metadata["name"]), body["status"])

    def set_status(self, resource: Resource, key: Key, status: Mapping[str, Any]) -> None:
        """Gives an object that status."""

        def act() -> None:
            now = self.store.get(resource, key)
            self.store.update(resource, key, {**now, "status": dict(status)}, subresource="status")

        self.do(act)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The answer to any request."""
        self.asked.append(f"{request.method} {request.path_qs}")
        try:
            return await self._answer(request)
        except ApiError as error:
            status = {"kind": "Status", "code": error.code, "reason": error.reason, "message": error.message}
            return web.json_response(status, status=error.code)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        resource, namespace, rest = _asked(request.path)
        if (error := self.says.get(f"{request.method} {resource.plural}")) is not None:
            raise error
        name = rest[0] if rest else None
        if request.method == "POST":
            dry_run = "dryRun" in request.query
            made = self.store.create(resource, await request.json(), namespace=namespace or "", dry_run=dry_run)
            return web.json_response(made, status=201)
        if name is not None and request.method == "DELETE":
            options = await request.json()
            self.store.delete(resource, Key(namespace or "", name), uid=options["preconditions"]["uid"])
            return web.json_response({"kind": "Status", "status": "Success"})
        if rest[1:] == ["log"]:
            return await self._log(request, rest[0])
        if name is not None:
            return web.json_response(await self.api.get(resource, name, namespace=namespace))
        if "watch" in request.query:
            return await self._watch(request, resource, namespace)
        page = await self.api.list(
            resource,
            namespace=namespace,
            field_selector=request.query.get("fieldSelector"),
            label_selector=request.query.get("labelSelector"),
        )
        items = [json.loads(item) for item in page.items]
        if "as=Table" in request.headers["Accept"]:
            return web.json_response(
                {"kind": "Table", "rows": [{"cells": [each["metadata"]["name"]]} for each in items]}
            )
        return web.json_response({"metadata": {"resourceVersion": page.resource_version}, "items": items})

    async def _watch(self, request: web.Request, resource: Resource, namespace: str | None) -> web.StreamResponse:
        response = web.StreamResponse()
        changes = self.api.watch(
            resource,
            resource_version=request.query["resourceVersion"],
            timeout_s=int(request.query["timeoutSeconds"]),
            namespace=namespace,
            field_selector=request.query.get("fieldSelector"),
        )
        async with aclosing(changes) as batches:
            await response.prepare(request)
            async for events in batches:
                for event in events:
                    line = {"type": event.kind, "object": msgspec.Raw(event.document)}
                    await response.write(msgspec.json.encode(line) + b"\n")
        await response.write_eof()
        return response

    async def _log(self, request: web.Request, pod: str) -> web.StreamResponse:
        if pod not in self.printed:
            raise Invalid(f'container "trainer" in pod "{pod}" is waiting to start', code=400, reason="BadRequest")
        response = web.StreamResponse()
        await response.prepare(request)
        self.open_logs += 1
        try:
            for piece in self.printed[pod]:
                await response.write(piece)
                self.sent_bytes += len(piece)
            await response.write_eof()
        finally:
            self.open_logs -= 1
        return response


def _asked(path: str) -> tuple[Resource, str | None, list[str]]:
    """The resource, the namespace, and what stands behind the resource."""
    parts = path.strip("/").split("/")
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        return Resource(group, version, rest[2]), rest[1], rest[3:]
    for namespaced in (True, False):
        found = Resource(group, version, rest[0], namespaced)
        if found in Store()._kinds:
            return found, None, rest[1:]
    raise NotFound("the server could not find the requested resource", code=404, reason="NotFound")


@contextmanager
def stored(folder: Path, store: Store) -> Iterator[HttpStore]:
    """A server of this store, and its kubeconfig in `folder`."""
    ready = threading.Event()
    made: list[HttpStore] = []
    over: list[asyncio.Event] = []

    async def main() -> None:
        server = HttpStore(store, folder / "kubeconfig", asyncio.get_running_loop())
        over.append(asyncio.Event())
        async with serving(server.answer, folder):
            made.append(server)
            ready.set()
            await over[0].wait()
            server.api.end_streams()
            await asyncio.sleep(CLOSING_S)
        await asyncio.sleep(CLOSING_S)

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield made[0]
    finally:
        made[0].loop.call_soon_threadsafe(over[0].set)
        thread.join(10)
