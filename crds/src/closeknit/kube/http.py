"""`Api` over HTTP. kubernetes.aio reads configurations, logs in, renews tokens and sets TLS up; the connections are
aiohttp's. Requests are plain dicts, answers are raw bytes that msgspec decodes into what is needed.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, incluster_config, kube_config

from closeknit.kube.api import JsonObject, ListPage, Resource, WatchEvent
from closeknit.kube.errors import ApiError, Conflict, NotFound, Unavailable, error_from_status
from closeknit.kube.head import Head
from closeknit.kube.replies import events_of, made_of, object_of, page_of
from closeknit.kube.stream import line_batches

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
# How often the library is asked to renew a token that a kubeconfig's exec plugin or provider issued: its own default.
TOKEN_REFRESH_S = 60
READ_BUFFER_BYTES = 2**21  # one object of a watch may have 1.5 MiB

_log = logging.getLogger(__name__)


class HttpApi:
    """The API server that a kubeconfig, or the Pod this runs in, points to. One connection pool, closed by `close`.

    `async with await HttpApi.connect(user_agent="closeknit-operator/0.1.0") as api: ...`
    """

    def __init__(
        self, configuration: Configuration, *, user_agent: str, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self._configuration = configuration
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}
        self._proxy = configuration.proxy or _proxy_of_environment(configuration.host)
        tls = RESTClientObject(configuration).ssl_context
        # Not the library's own session: it looks into the environment and into ~/.netrc before every request, in two
        # turns of another thread, which costs as much as all the rest of a request; and a login for every host in there
        # would have it refuse ours.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls),
            cookie_jar=aiohttp.DummyCookieJar(),  # as client-go has it: an API server knows who asks by the login
            read_bufsize=READ_BUFFER_BYTES,
            trust_env=False,
        )
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        self._log_in: Callable[[], Awaitable[Any]] | None = None
        self._is_unauthorized = False
        self._token_refresh: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls, *, user_agent: str, kubeconfig: Path | None = None, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Self:
        """The Api of `kubeconfig`, else of $KUBECONFIG, else of the Pod this runs in, else of ~/.kube/config.

        No request is sent. Raises kubernetes.aio.config.ConfigException or OSError if the configuration is unusable.
        """
        # Calling the class gives a copy of a process-wide default; several Apis in one process need one each.
        configuration: Configuration = type.__call__(Configuration)
        loader = await _log_in(configuration, kubeconfig)
        api = cls(configuration, user_agent=user_agent, request_timeout_s=request_timeout_s)
        api._log_in = partial(_log_in, configuration, kubeconfig)
        if loader is not None and loader.current_context["context"].get("user"):
            refresh = kube_config.refresh_token(  # type: ignore[no-untyped-call]
                loader, configuration, interval=TOKEN_REFRESH_S
            )
            api._token_refresh = asyncio.create_task(refresh)  # ends at once where there is nothing to renew
            api._token_refresh.add_done_callback(_report_end_of_refresh)
        return api

    async def close(self) -> None:
        """Closes the pool and what reads from it."""
        if self._token_refresh is not None:
            self._token_refresh.cancel()
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
        url = f"{self._configuration.host}{path}"
        if parameters := urlencode({name: value for name, value in query.items() if value is not None}):
            url = f"{url}?{parameters}"
        headers = dict(self._headers)
        try:
            if self._is_unauthorized and self._log_in is not None:
                # The library reads a Pod's token once a minute by the wall clock, a kubeconfig's file never again.
                self._is_unauthorized = False
                await self._log_in()
            login = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
            if login is not None:
                headers["Authorization"] = login
            if body is not None:
                headers["Content-Type"] = content_type
            response = await self._session.request(
                method,
                url,
                data=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
                server_hostname=self._configuration.tls_server_name,
            )
        except (aiohttp.ClientError, TimeoutError, OSError, ConfigException) as error:
            raise _unavailable(error) from error
        self._is_unauthorized = response.status == HTTPStatus.UNAUTHORIZED
        return response


async def _log_in(configuration: Configuration, kubeconfig: Path | None) -> Any:
    """Reads how to reach the cluster, and who asks, into `configuration`; the loader of a kubeconfig, None in a Pod."""
    path = str(kubeconfig or os.environ.get("KUBECONFIG") or "")
    if not path and incluster_config.SERVICE_HOST_ENV_NAME in os.environ:
        incluster_config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        return None
    return await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=path or "~/.kube/config", client_configuration=configuration, persist_config=False
    )


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


def _report_end_of_refresh(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("the kubeconfig's login is no longer renewed: %s", error)
