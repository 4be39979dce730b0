"""`Api` over HTTP. `log_in` says how to reach the API server and who asks; the connections are aiohttp's. Requests are
plain dicts, answers are raw bytes that msgspec decodes into what is needed.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec

from closeknit.kube.api import JsonObject, ListPage, Resource, WatchEvent
from closeknit.kube.errors import ApiError, Conflict, NotFound, Unavailable, error_from_status
from closeknit.kube.head import Head
from closeknit.kube.login import Login, LoginError, log_in
from closeknit.kube.replies import events_of, made_of, object_of, page_of
from closeknit.kube.stream import line_batches

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
READ_BUFFER_BYTES = 2**21  # one object of a watch may have 1.5 MiB


class HttpApi:
    """The API server that a kubeconfig, or the Pod this runs in, points to. One connection pool, closed by `close`.

    `async with await HttpApi.connect(user_agent="closeknit-operator/0.1.0") as api: ...`
    """

    def __init__(self, login: Login, *, user_agent: str, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._login = login
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}
        self._proxy = login.proxy or _proxy_of_environment(login.host)
        # Not the library's own session: it looks into the environment and into ~/.netrc before every request, in two
        # turns of another thread, which costs as much as all the rest of a request; and a login for every host in there
        # would have it refuse ours.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=login.tls),
            cookie_jar=aiohttp.DummyCookieJar(),  # as client-go has it: an API server knows who asks by the login
            read_bufsize=READ_BUFFER_BYTES,
            trust_env=False,
        )
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        self._is_unauthorized = False

    @classmethod
    async def connect(
        cls, *, user_agent: str, kubeconfig: Path | None = None, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Self:
        """The Api of `kubeconfig`, else of $KUBECONFIG, else of the Pod this runs in, else of ~/.kube/config.

        No request is sent. Raises LoginError or OSError if the configuration is unusable.
        """
        return cls(await log_in(kubeconfig), user_agent=user_agent, request_timeout_s=request_timeout_s)

    async def close(self) -> None:
        """Closes the pool and what reads from it."""
        self._login.close()
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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
    ) -> ListPage:
        """See `Api.list`."""
        query: dict[str, str | int | None] = {
            "limit": limit,
            "continue": continue_token,
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
        }
        return page_of(await self._call("GET", resource.path(namespace), query))

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
        # No limit on reading here: how long silence may last is for the reader of the stream to say.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        response = await self._send("GET", resource.path(namespace), query, timeout=timeout)
        try:
            if response.status != 200:
                raise _error(response, await response.read())
            yield ()
            async for lines in line_batches(response):
                events, error_inside = events_of(lines)
                if events:
                    yield events
                if error_inside is not None:
                    raise error_inside
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unavailable(error) from error
        finally:
            _hang_up(response)

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """See `Api.create`."""
        return object_of(await self._created(resource, body, namespace, dry_run=dry_run))

    async def make(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> Head:
        """See `Api.make`."""
        return made_of(await self._created(resource, body, namespace, dry_run=dry_run))

    async def _created(self, resource: Resource, body: JsonObject, namespace: str | None, *, dry_run: bool) -> bytes:
        query = {"dryRun": "All" if dry_run else None}
        return await self._call("POST", resource.path(namespace), query, body=body)

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
    ) -> JsonObject:
        """See `Api.put_status`. Raises ValueError without metadata.resourceVersion: it would overwrite anything."""
        if not body.get("metadata", {}).get("resourceVersion"):
            raise ValueError(f"put_status of {resource} {name} needs metadata.resourceVersion")
        return object_of(await self._call("PUT", resource.path(namespace, name, "status"), body=body))

    async def delete(self, resource: Resource, name: str, *, uid: str, namespace: str | None = None) -> None:
        """See `Api.delete`. Dependants are collected in the background."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
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
        query: Mapping[str, str | int | None] | None = None,
        *,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Body of a successful answer. Raises ApiError."""
        response = await self._send(
            method, path, query or {}, body=body, content_type=content_type, timeout=self._timeout
        )
        try:
            answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            response.close()
            raise _unavailable(error) from error
        if not 200 <= response.status <= 299:
            raise _error(response, answer)
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        *,
        body: Any = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 -- aiohttp's own, it knows connecting from reading
    ) -> aiohttp.ClientResponse:
        """The answer's head, whatever its status; its body is still to be read. Raises Unavailable."""
        url = f"{self._login.host}{path}"
        if parameters := urlencode({name: value for name, value in query.items() if value is not None}):
            url = f"{url}?{parameters}"
        headers = dict(self._headers)
        try:
            if self._is_unauthorized:
                self._is_unauthorized = False
                await self._login.renew()
            authorization = await self._login.authorization()
            if authorization is not None:
                headers["Authorization"] = authorization
            if body is not None:
                headers["Content-Type"] = content_type
            response = await self._session.request(
                method,
                url,
                data=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
                server_hostname=self._login.server_name,
            )
        except (aiohttp.ClientError, TimeoutError, OSError, LoginError) as error:
            raise _unavailable(error) from error
        self._is_unauthorized = response.status == HTTPStatus.UNAUTHORIZED
        return response


def _proxy_of_environment(host: str) -> str | None:
    """The proxy that the usual variables name for this URL (HTTPS_PROXY, NO_PROXY), read once."""
    address = urlsplit(host)
    if proxy_bypass(address.hostname or ""):
        return None
    return getproxies().get(address.scheme)


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Ends a stream at once: a farewell by TLS would have to be waited for, and nobody may be there."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _error(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    wait = response.headers.get("Retry-After", "")
    return error_from_status(response.status, body, float(wait) if wait.isdigit() else None)


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"no answer from the API server: {error or type(error).__name__}")
