"""`Api` over HTTP: what each verb asks for. `log_in` says how to reach the API server and who asks, `Requests` asks.
Objects are sent as plain dicts, answers are raw bytes that msgspec decodes into what is needed.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any, Self

import msgspec

from closeknit.kube.api import JsonObject, ListPage, Resource, WatchEvent
from closeknit.kube.errors import Conflict, NotFound
from closeknit.kube.http.connections import LargeAnswer
from closeknit.kube.http.http_requests import Query, Requests
from closeknit.kube.http.port_forward import PROTOCOL, PortForward
from closeknit.kube.http.replies import events_of, made_of, names_of, object_of, page_of
from closeknit.kube.http.stream import line_batches
from closeknit.kube.lease import LEASE_S, RENEW_DEADLINE_S, SENT_WITHIN_S
from closeknit.kube.login.login import Login, log_in
from closeknit.kube.object_identity import Head

REQUEST_TIMEOUT_S = 30.0
# What is made, or given a status, is answered by its metadata alone where the API server can do that: half of what
# comes for a Pod, and of a job with a large template hardly anything.
HEAD_ALONE = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"}
AS_TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
# The API server gives up on a status that it has kept waiting for so long. What a leader sends in the last moment, that
# is SENT_WITHIN_S after his deadline, is stored before another one may lead, or never.
STORED_WITHIN_S = int(LEASE_S - RENEW_DEADLINE_S - SENT_WITHIN_S)
READ_BUFFER_BYTES = 2**21  # one object of a watch may have 1.5 MiB
# A page of a list is there several times while it is taken apart. One object may have 1.5 MiB, and tenants may make
# hundreds of such Pods or jobs: a page that is larger is given up, and asked for in fewer objects. 500 Nodes have less.
PAGE_BYTES = 2**23
LEAST_PAGE = 5


class HttpApi:
    """The API server that a kubeconfig, or the Pod this runs in, points to. It has connections, closed by `close`.

    `async with await HttpApi.connect(user_agent="closeknit-operator/0.1.0") as api: ...`
    """

    def __init__(
        self,
        login: Login,
        *,
        user_agent: str,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        sent_within_s: float = inf,
    ) -> None:
        """A request that cannot be sent within `sent_within_s` is given up."""
        self.namespace = login.namespace
        """Where kubectl would look when it is told no namespace."""
        self._requests = Requests(
            login,
            {"Accept": "application/json", "User-Agent": user_agent},
            timeout_s=request_timeout_s,
            sent_within_s=sent_within_s,
        )
        self._limits: dict[Resource, int] = {}
        """How many objects a page of a resource may have, where that is less than was asked for."""

    @classmethod
    async def connect(
        cls,
        *,
        user_agent: str,
        kubeconfig: Path | None = None,
        context: str | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        sent_within_s: float = inf,
    ) -> Self:
        """The Api that `log_in` finds.

        No request is sent. Raises LoginError or OSError if the configuration is unusable.
        """
        return cls(
            await log_in(kubeconfig, context),
            user_agent=user_agent,
            request_timeout_s=request_timeout_s,
            sent_within_s=sent_within_s,
        )

    async def close(self) -> None:
        """Closes all connections and what reads from them."""
        await self._requests.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def text(self, path: str, headers: Mapping[str, str]) -> str:
        """What a GET of any path answers, with these headers besides; bytes that are no text are replaced."""
        return (await self._call("GET", path, headers=headers)).decode(errors="replace")

    async def pieces(self, path: str, query: Query) -> AsyncGenerator[bytes, None]:
        """What a GET of any path answers, as it comes, for as long as it lasts. Close it with `contextlib.aclosing`."""
        async with self._requests.stream(path, query) as response:
            async for piece in response.content.iter_any():
                yield piece

    @asynccontextmanager
    async def port_forward(self, pod_path: str, port: int) -> AsyncGenerator[PortForward, None]:
        """A connection to a port of the Pod at this path. Raises ApiError."""
        async with self._requests.websocket(f"{pod_path}/portforward", {"ports": port}, PROTOCOL) as websocket:
            yield PortForward(websocket)

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> JsonObject:
        """See `Api.get`."""
        return object_of(await self._call("GET", resource.path(namespace, name)))

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
        selected = {"continue": continue_token, "fieldSelector": field_selector, "labelSelector": label_selector}
        if cached:
            return page_of(await self._call("GET", resource.path(namespace), {"resourceVersion": "0", **selected}))
        while True:
            most = min(limit, self._limits.get(resource, limit))
            large = PAGE_BYTES if most > LEAST_PAGE else None
            try:
                answer = await self._call(
                    "GET", resource.path(namespace), {"limit": most, **selected}, most_bytes=large
                )
            except LargeAnswer:
                self._limits[resource] = max(LEAST_PAGE, most // 5)
                continue
            if most < limit and len(answer) < PAGE_BYTES // 4:
                self._limits[resource] = 2 * most
            return page_of(answer)

    async def names(self, resource: Resource, *, namespace: str | None = None) -> Sequence[str]:
        """Names of all objects of a resource, as a cache of the API server remembers them. Some 100 bytes come of each:
        a table without the objects."""
        query = {"resourceVersion": "0", "includeObject": "None"}
        answer = await self._call("GET", resource.path(namespace), query, headers=AS_TABLE)
        return names_of(answer)

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
        query: dict[str, str | int | None] = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": timeout_s,
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
        }
        async with self._requests.stream(resource.path(namespace), query) as response:
            yield ()
            async for lines in line_batches(response):
                events, error_inside = events_of(lines)
                if events:
                    yield events
                if error_inside is not None:
                    raise error_inside

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """See `Api.create`."""
        return object_of(await self._created(resource, body, namespace, dry_run=dry_run))

    async def make(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> Head:
        """See `Api.make`."""
        return made_of(await self._created(resource, body, namespace, dry_run=dry_run, headers=HEAD_ALONE))

    async def _created(
        self,
        resource: Resource,
        body: JsonObject,
        namespace: str | None,
        *,
        dry_run: bool,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        query = {"dryRun": "All" if dry_run else None}
        return await self._call("POST", resource.path(namespace), query, body=body, headers=headers)

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
        path = resource.path(namespace, name, subresource)
        operations = [dict(operation) for operation in patch]
        return object_of(await self._call("PATCH", path, body=operations, content_type="application/json-patch+json"))

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
        path = resource.path(namespace, name, subresource)
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        # The API server accepts JSON under this type, as JSON is YAML.
        return object_of(await self._call("PATCH", path, query, body=body, content_type="application/apply-patch+yaml"))

    async def put_status(
        self, resource: Resource, name: str, body: JsonObject, *, namespace: str | None = None
    ) -> Head:
        """See `Api.put_status`. Raises ValueError without metadata.resourceVersion: it would overwrite anything."""
        if not body.get("metadata", {}).get("resourceVersion"):
            raise ValueError(f"put_status of {resource} {name} needs metadata.resourceVersion")
        path, query = resource.path(namespace, name, "status"), {"timeout": f"{STORED_WITHIN_S}s"}
        return made_of(await self._call("PUT", path, query, body=body, headers=HEAD_ALONE))

    async def delete(
        self, resource: Resource, name: str, *, uid: str, namespace: str | None = None, is_forced: bool = False
    ) -> None:
        """See `Api.delete`. Dependants are collected in the background."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
            **({"gracePeriodSeconds": 0} if is_forced else {}),
        }
        try:
            await self._call("DELETE", resource.path(namespace, name), body=options)
        except NotFound:
            return
        except Conflict:
            # The precondition failed, or something else did, and only the server's prose says which: look.
            if await self._has_uid(resource, name, namespace, uid):
                raise

    async def _has_uid(self, resource: Resource, name: str, namespace: str | None, uid: str) -> bool:
        try:
            return bool((await self.get(resource, name, namespace=namespace))["metadata"]["uid"] == uid)
        except NotFound:
            return False

    async def _call(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: Any = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        most_bytes: int | None = None,
    ) -> bytes:
        """Body of a successful answer. Raises ApiError, and LargeAnswer for more than most_bytes."""
        said = dict(headers or {})
        if body is None:
            return await self._requests.answer(method, path, query or {}, None, said, most_bytes=most_bytes)
        said["Content-Type"] = content_type
        return await self._requests.answer(method, path, query or {}, msgspec.json.encode(body), said)
